"""Stage C: one outer step of condensation against the literal Algorithm 1, as ratios of medians measured in one run.

  plain      dclib/core/reference.py as the authors run it: eager float32, the C library's allocator as it comes
  tuned      the same with dclib's allocator settings
  eager      dclib, uncompiled
  compiled   dclib as `engine="auto"` runs it on a CPU
  captured   dclib as `engine="auto"` runs it on a GPU (with --device cuda, where plain and tuned are one)
  …/bfloat16, …/tf32   the same at that precision

Usage: python benchmarks/bench_condense.py [--device cuda] [--rounds 2] [--quick] [--network ConvNet]
"""

import argparse

import contest

SHORT = dict(classes=10, channels=1, size=28, network="ConvNet")
CASES = [
    ("1 image/class, 256 real images per class", dict(ipc=1, real=256, T=1, epochs=1, steps=2)),
    ("1 image/class, 64 real images per class", dict(ipc=1, real=64, T=1, epochs=1, steps=5)),
    ("10 images/class, 256 real, T = 2 of 10, 50 epochs of the network", dict(ipc=10, real=256, T=2, epochs=50, steps=1)),
]


def work(contestant: str, case: dict) -> None:
    """Time the outer steps of one contestant; the reference's floating-point operations are counted once."""
    import torch

    from dclib.core import engine as engines
    from dclib.core import reference
    from dclib.core.condense import Condenser, initial_images
    from dclib.spec import Condensation, Network

    name, _, precision = contestant.partition("/")
    if name != "plain":
        engines.tune_allocator()
    device = case.get("device", "cpu")
    loaded = contest.dataset(case["classes"], case["channels"], case["size"], case["real"]).to(device)
    loops = dict(inner_steps=case["T"], network_epochs=case["epochs"], outer_steps=1000)
    network = Network.parse(case["network"])
    hyper = Condensation(case["ipc"], network, real_batch=case["real"], precision=precision or "float32", **loops).resolve()
    with engines.arithmetic(hyper.precision, torch.device(device)):
        if name in ("plain", "tuned", "flops"):
            S = initial_images(loaded, hyper, 0, torch.float32).to(device).requires_grad_()
            optimiser = torch.optim.SGD([S], lr=hyper.image_lr, momentum=hyper.image_momentum)
            step = lambda: reference.outer_step(loaded, hyper, 0, 0, S, optimiser)  # noqa: E731
        else:
            step = Condenser(loaded, hyper, 0, name).step
        counted = name == "flops"
        found = {"seconds": [] if counted else contest.timed(step, case["steps"], device)}
        found |= {"gflop": contest.gflop(step)} if counted else {}
    contest.finish(found, device)


def contestants(options: argparse.Namespace) -> list[str]:
    """Who takes part on this device: bfloat16 where it has instructions for that."""
    from dclib.core import engine as engines

    if options.device == "cuda":
        return ["plain", "eager", "captured", "captured/tf32", "captured/bfloat16"]
    return ["plain", "tuned", "eager", "compiled", *(["compiled/bfloat16"] if engines.computes_bfloat16() else [])]


def main() -> None:
    """Run the cases, record them and print a table for each."""
    parser = contest.parser(__doc__, rounds=1)
    parser.add_argument("--quick", action="store_true", help="the second case alone")
    options = parser.parse_args()
    if options.contestant:
        work(options.contestant, options.case)
        return
    for title, shape in CASES[1:2] if options.quick else CASES:
        case = {**SHORT, "network": options.network, **shape, "device": options.device}
        peak = {"peak_gflops": contest.peak_gflops(options.device)}
        if case["T"] == 1:  # counting takes as long as the step
            peak["gflop"] = contest.run(__file__, "flops", {**case, "device": "cpu"})["gflop"]
        found = contest.contest(__file__, case, contestants(options), options.rounds)
        contest.record("condense", f"{options.network}, {title}", case, found, **peak)


if __name__ == "__main__":
    main()
