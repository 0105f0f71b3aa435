"""Table T11: peak memory and seconds of one iteration of Dataset Distillation and of condensation, ten images per class.

  unrolled/N   one iteration of Dataset Distillation through N steps of the network, with the graph of all of them
  reverse/N    the same gradient, one step's graph at a time
  condense/N   one outer step of condensation in which the network takes N steps between T = 2 updates of the images; 0: T = 1

Each is a process of its own, so that its peak memory is its own; what it has taken once all code is loaded (by one iteration on a
single image per class) is measured, too. Both methods run uncompiled, in float32, at the paper's batches: 1024 real images, and 256
for each class.

Usage: python benchmarks/bench_memory.py [--device cuda] [--memory-only]

With --memory-only nothing is timed: memory is the same beside other work, seconds are not.
"""

import contest

CASES = [
    ("mnist", "LeNet", dict(channels=1, size=28), ["10", "20", "30", "50"], ["10", "50"], ["0", "10", "30", "50"]),
    ("cifar10", "AlexCifarNet", dict(channels=3, size=32), ["10", "30", "50"], ["30"], ["0", "50"]),
]
RECORDS = contest.RECORDS.with_name("memory.jsonl")
IPC, REAL = 10, 256


def work(contestant: str, case: dict) -> None:
    """Time one iteration, if any, after another that warms up, and tell the memory before and after."""
    import torch

    from dclib import engine as engines
    from dclib.provenance import peak_memory_mb

    engines.tune_allocator()
    mode, _, steps = contestant.partition("/")
    device = case["device"]
    loaded = contest.dataset(10, case["channels"], case["size"], REAL).to(device)
    make = condensing if mode == "condense" else distilling
    with engines.arithmetic("float32", torch.device(device)):
        make(contest.dataset(10, case["channels"], case["size"], 1).to(device), case, mode, 0)()
        step, before = make(loaded, case, mode, int(steps)), peak_memory_mb()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        found = {"seconds": contest.timed(step, case["iterations"], device), "before_mb": before}
        if device == "cuda":
            found["allocated_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
    contest.finish(found)


def distilling(loaded, case: dict, mode: str, steps: int):
    """One iteration through so many steps: ten batches of one image per class, again and again; 0: one step on one image."""
    from dclib.baselines import Distillation
    from dclib.distill import Distiller
    from dclib.spec import Network

    network = Network.parse(f"{case['network']}:init=xavier")
    shape = dict(ipc=IPC, passes=steps // IPC) if steps else dict(ipc=1, steps=1, passes=1)
    hyper = Distillation(**shape, network=network, mode=mode, crops=case["channels"] == 3)
    worker = Distiller(loaded, hyper, 0)

    def step() -> None:
        worker.k = 0  # the same real images each time
        worker.step()

    return step


def condensing(loaded, case: dict, mode: str, steps: int):
    """One outer step with one update of the images, or with two and so many steps of the network between them.

    Of a data set with one image per class, one image per class is condensed, too: that loads all code, and takes little memory.
    """
    from dclib.condense import Condenser
    from dclib.spec import Condensation, Network

    loops = dict(inner_steps=2 if steps else 1, network_epochs=max(1, steps), outer_steps=1000)
    ipc = min(IPC, len(loaded.y_train) // loaded.classes)
    hyper = Condensation(ipc, Network.parse(case["network"]), real_batch=REAL, **loops).resolve()
    engine = "captured" if case["device"] == "cuda" else "eager"
    return Condenser(loaded, hyper, 0, engine).step


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
