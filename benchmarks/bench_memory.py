"""Table T11: peak memory and seconds of one iteration of Dataset Distillation and of condensation, ten images per class.

  unrolled/N   one iteration of Dataset Distillation through N steps of the network, with the graph of all of them
  reverse/N    the same gradient, one step's graph at a time
  condense/N   one outer step of condensation in which the network takes N steps between T = 2 updates of the images; 0: T = 1

Each is a process of its own, so that its peak memory is its own. What an iteration holds is counted apart: on a CPU as the bytes of
tensors that are alive at once, by PyTorch's profiler, on one thread; on a GPU as its allocator counts them. Both methods run
uncompiled, in float32, at the paper's batches: 1024 real images, and 256 for each class.

Usage: python benchmarks/bench_memory.py [--device cuda] [--memory-only]

With --memory-only nothing is timed: memory is the same beside other work, seconds are not.
"""

import json
import tempfile
from pathlib import Path

import contest

CASES = [
    ("mnist", "LeNet", dict(channels=1, size=28), ["10", "20", "30", "50"], ["10", "50"], ["0", "10", "30", "50"]),
    ("cifar10", "AlexCifarNet", dict(channels=3, size=32), ["10", "30", "50"], ["30"], ["0", "50"]),
]
RECORDS = contest.RECORDS.with_name("memory.jsonl")
IPC, REAL = 10, 256


def work(contestant: str, case: dict) -> None:
    """Do one iteration, count what a first one holds, buffers that stay included, then time another, if asked to."""
    import torch

    from dclib.core import engine as engines
    from dclib.support.provenance import peak_memory_mb

    engines.tune_allocator()
    mode, _, steps = contestant.partition("/")
    device = case["device"]
    loaded = contest.dataset(10, case["channels"], case["size"], REAL).to(device)
    make = condensing if mode == "condense" else distilling
    with engines.arithmetic("float32", torch.device(device)):
        base = peak_memory_mb(device)
        step = make(loaded, case, mode, int(steps))
        step()
        peak = peak_memory_mb(device)
        held = (held_on_gpu if device == "cuda" else held_on_cpu)(lambda: make(loaded, case, mode, int(steps)))
        seconds = contest.timed(step, case["iterations"], device) if case["iterations"] else []
    contest.finish({"seconds": seconds, "base_mb": base, "peak_mb": peak, "allocated_mb": round(held / 2**20, 1)})


def held_on_gpu(make) -> int:
    """The most bytes that the first of the steps that `make` returns takes at once, beyond those that were there."""
    import torch

    step = make()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


def held_on_cpu(make) -> int:
    """The same by the profiler's account of every allocation; it sees one thread, so that there is one."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    step = make()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
    alive = peak = 0
    for event in memory:
        alive += event["args"]["Bytes"]
        peak = max(peak, alive)
    return peak


def distilling(loaded, case: dict, mode: str, steps: int):
    """One iteration through so many steps: ten batches of one image per class, again and again."""
    from dclib.methods.distill import Distiller
    from dclib.spec import Network
    from dclib.spec.baselines import Distillation

    network = Network.parse(f"{case['network']}:init=xavier")
    hyper = Distillation(ipc=IPC, network=network, passes=steps // IPC, mode=mode, crops=case["channels"] == 3)
    worker = Distiller(loaded, hyper, 0)

    def step() -> None:
        worker.k = 0  # the same real images each time
        worker.step()

    return step


def condensing(loaded, case: dict, mode: str, steps: int):
    """One outer step with one update of the images, or with two and so many steps of the network between them."""
    from dclib.core.condense import Condenser
    from dclib.spec import Condensation, Network

    loops = dict(inner_steps=2 if steps else 1, network_epochs=max(1, steps), outer_steps=1000)
    hyper = Condensation(IPC, Network.parse(case["network"]), real_batch=REAL, **loops).resolve()
    return Condenser(loaded, hyper, 0, "eager").step


def main() -> None:
    """Measure each in a process of its own, record and print them."""
    parser = contest.parser(__doc__, rounds=1)
    parser.add_argument("--memory-only", action="store_true", help="time nothing")
    options = parser.parse_args()
    if options.contestant:
        work(options.contestant, options.case)
        return
    for name, network, shape, unrolled, reverse, condense in CASES:
        case = {"dataset": name, "network": network, **shape, "device": options.device}
        case["iterations"] = 0 if options.memory_only else 1  # besides the one that warms up
        contestants = [f"unrolled/{n}" for n in unrolled]
        contestants += [f"reverse/{n}" for n in reverse] + [f"condense/{n}" for n in condense]
        found = contest.contest(__file__, case, contestants, options.rounds)
        title = f"{network} on images of {name}'s size, ten per class"
        contest.record("memory", title, case, found, records=RECORDS)


if __name__ == "__main__":
    main()
