"""One outer step of condensation against the literal Algorithm 1, as ratios of medians measured in one run.

Each contestant works in a process of its own, and they take turns, so that a slow spell of the machine meets all of them:

  plain      dclib/reference.py as the authors run it: eager float32, the C library's allocator as it comes
  tuned      the same with dclib's allocator settings
  eager      dclib, uncompiled
  compiled   dclib as `engine="auto"` runs it on a CPU

Usage: python benchmarks/bench_condense.py [--real 64 256] [--network ConvNet] [--channels 1] [--size 28] [--steps 5] [--rounds 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

CONTESTANTS = ("plain", "tuned", "eager", "compiled")


def made(channels: int, size: int, real: int):
    """Ten classes of random pixels: the time of a step does not depend on what the images show."""
    import torch

    from dclib.data import Dataset

    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (10 * real, channels, size, size), dtype=torch.uint8, generator=draw)
    y, names = torch.arange(10).repeat_interleave(real), tuple("0123456789")
    return Dataset("made", x, y, x[::real], y[::real], (0.5,) * channels, (0.29,) * channels, names)


def work(contestant: str, options: argparse.Namespace) -> dict:
    """Warm up with one outer step, then time `steps` of them; returns their seconds and the process's peak memory in MB."""
    import torch

    from dclib import reference
    from dclib.condense import Condenser, initial_images
    from dclib.engine import tune_allocator
    from dclib.provenance import peak_memory_mb
    from dclib.spec import Condensation, Network

    if contestant != "plain":
        tune_allocator()
    real, steps = options.real[0], options.steps
    loaded = made(options.channels, options.size, real)
    hyper = Condensation(network=Network.parse(options.network), real_batch=real, outer_steps=steps + 1).resolve()
    if contestant in ("plain", "tuned"):
        S = initial_images(loaded, hyper, 0, torch.float32).requires_grad_()
        optimiser = torch.optim.SGD([S], lr=hyper.image_lr, momentum=hyper.image_momentum)
        step = lambda k: reference.outer_step(loaded, hyper, 0, k, S, optimiser)  # noqa: E731
    else:
        condenser = Condenser(loaded, hyper, 0, contestant)
        step = lambda k: condenser.step()  # noqa: E731
    seconds = []
    for k in range(steps + 1):
        start = time.perf_counter()
        step(k)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[1:], "peak_mb": peak_memory_mb()}


def measure(contestant: str, options: argparse.Namespace, real: int) -> dict:
    """Run one contestant in a fresh process."""
    words = [sys.executable, __file__, "--worker", contestant, "--network", options.network]
    words += [f"--{name}={value}" for name, value in (("real", real), ("steps", options.steps), ("channels", options.channels))]
    words += [f"--size={options.size}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(options: argparse.Namespace, real: int) -> None:
    """Let all contestants take turns and print the table for one number of real images."""
    seconds, memory = {c: [] for c in CONTESTANTS}, dict.fromkeys(CONTESTANTS, 0)
    for _ in range(options.rounds):
        for contestant in CONTESTANTS:
            found = measure(contestant, options, real)
            seconds[contestant] += found["seconds"]
            memory[contestant] = max(memory[contestant], found["peak_mb"])
    median = {c: statistics.median(s) for c, s in seconds.items()}
    shape = f"{options.channels}×{options.size}×{options.size}"
    print(f"\n{options.network}, {shape}, 1 image/class, {real} real images per class, seconds for an outer step")
    print(f"{'':<10}{'median':>8}{'min':>8}{'max':>8}{'× plain':>9}{'× tuned':>9}{'peak MB':>9}{'memory':>8}")
    for c in CONTESTANTS:
        speed = median["plain"] / median[c], median["tuned"] / median[c]
        row = f"{c:<10}{median[c]:>8.3f}{min(seconds[c]):>8.3f}{max(seconds[c]):>8.3f}{speed[0]:>9.2f}{speed[1]:>9.2f}"
        print(f"{row}{memory[c]:>9}{memory[c] / memory['tuned']:>8.2f}", flush=True)


def main() -> None:
    """Read the options and print a table for each number of real images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--real", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--network", default="ConvNet")
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--size", type=int, default=28)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker, options)))
        return
    from dclib.provenance import processor, version

    print(f"{processor()}, torch {version('torch')}, medians of {options.rounds} rounds of {options.steps} steps")
    for real in options.real:
        compare(options, real)


if __name__ == "__main__":
    main()
