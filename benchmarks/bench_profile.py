"""Where the time goes: the four pieces that a reproduction consists of, each split into convolutions and all the rest.

  real        gradients of a class's 256 real images, one class in each lane
  synthetic   the second derivative: one image of each of ten classes
  network     one step of the network on 100 images (10 per class)
  stage T     one step of stage T on ten images with MNIST's augmentation, a network in each lane

For each: the seconds of dclib, compiled; its floating-point operations; and the floor, which is the time that these operations
would take at the speed of a large matrix product measured in the same run. Convolutions are timed by torch's profiler; what is
left is normalisation, activation, pooling, the optimiser, and waiting.

Usage: python benchmarks/bench_profile.py [--rounds 1] [--network ConvNet]
"""

import time

import contest

SHAPE = dict(classes=10, channels=1, size=28)
PIECES = {"real": dict(ipc=1, real=256), "synthetic": dict(ipc=1, real=1), "network": dict(ipc=10, real=1), "stage T": dict(ipc=1)}
HEAVY = ("convolution", "mkldnn", "addmm", "aten::mm", "bmm", "linear")  # in the names of an operation of a profile


def piece(name: str, network: str, engine: str):
    """Return a function that does a piece once, and how often the piece is in it."""
    import torch

    from dclib.core import train
    from dclib.core.condense import Condenser
    from dclib.spec import Condensation, Network, Training

    case = PIECES[name]
    loaded, net = contest.dataset(**SHAPE, count=case.get("real", 10)), Network.parse(network)
    if name == "stage T":
        x, y = torch.randn(SHAPE["classes"], 1, SHAPE["size"], SHAPE["size"]), torch.arange(SHAPE["classes"])
        hyper = Training(net, epochs=19, augment="crop+scale+rotate").resolve()
        return lambda: train.evaluate(x, y, loaded, hyper, seeds=[0, 1, 2, 3], device="cpu", engine=engine), 4 * 20
    hyper = Condensation(case["ipc"], net, real_batch=case["real"], inner_steps=2, network_epochs=1).resolve()
    inner = Condenser(loaded, hyper, 0, engine).inner
    inner.begin(0)
    inner.draw(0, 0)
    return (lambda: inner.train_network(0, 0)) if name == "network" else (lambda: inner.gradient()), 1


def work(contestant: str, case: dict) -> None:
    """Time a piece, or profile it, or count its operations."""
    import torch
    from torch.profiler import ProfilerActivity, _ExperimentalConfig, profile

    from dclib.core import engine as engines

    engines.tune_allocator()
    if contestant == "flops":
        torch.set_num_threads(1)  # one lane, which the counter sees
    step, times = piece(case["piece"], case["network"], "eager" if contestant == "flops" else "compiled")
    found: dict = {"seconds": []}
    if contestant == "flops":
        found["gflop"] = contest.gflop(step) / times
    elif contestant == "profile":
        step()
        start = time.perf_counter()
        with profile(activities=[ProfilerActivity.CPU], experimental_config=_ExperimentalConfig(profile_all_threads=True)) as seen:
            step()
            took = time.perf_counter() - start
        lanes = torch.get_num_threads()
        heavy = sum(e.self_cpu_time_total for e in seen.key_averages() if any(word in e.key for word in HEAVY))
        found["heavy"] = heavy / 1e6 / lanes / took  # as a share, for profiling slows all alike
    else:
        found["seconds"] = [s / times for s in contest.timed(step, case["steps"])]
    contest.finish(found)


def main() -> None:
    """Take every piece in turn, record it and print a table."""
    parser = contest.parser(__doc__, rounds=1)
    options = parser.parse_args()
    if options.device != "cpu":
        parser.error("the pieces are profiled on a CPU: leave --device out")
    if options.contestant:
        work(options.contestant, options.case)
        return
    for name in PIECES:
        case = dict(piece=name, network=options.network, steps=3, device=options.device)
        found = contest.contest(__file__, case, ["compiled"], options.rounds)
        more = {key: contest.run(__file__, key_of, case)[key] for key, key_of in (("gflop", "flops"), ("heavy", "profile"))}
        contest.record("profile", f"{options.network}, {name}", case, found, peak_gflops=contest.peak_gflops(), **more)


if __name__ == "__main__":
    main()
