"""What the benchmarks share: contestants that work in processes of their own and take turns, and the record of a contest.

Each contestant is a fresh process, so that its allocator settings, compilation and peak memory are its own; they take turns, so
that a slow spell of the machine meets all of them. A record holds every time that was measured, never only a median.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

RECORDS = Path(__file__).resolve().parents[1] / "results" / "speed.jsonl"


def parser(doc: str, rounds: int | None = None) -> argparse.ArgumentParser:
    """The options that benchmarks have in common, and those by which one starts its contestants."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    if rounds is not None:
        made.add_argument("--rounds", type=int, default=rounds)
        made.add_argument("--network", default="ConvNet")
        made.add_argument("--contestant", help=argparse.SUPPRESS)
        made.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    return made


def dataset(classes: int, channels: int, size: int, count: int):
    """Random pixels, so many images of each class: the time of a step does not depend on what the images show."""
    import torch

    from dclib.data.dataset import Dataset

    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (classes * count, channels, size, size), dtype=torch.uint8, generator=draw)
    y, names = torch.arange(classes).repeat_interleave(count), tuple(map(str, range(classes)))
    return Dataset("made", x, y, x[::count], y[::count], (0.5,) * channels, (0.29,) * channels, names)


def timed(step, times: int, device: str = "cpu") -> list[float]:
    """Do a step so many times and once more before, to warm up; returns the seconds of each."""
    import torch

    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def gflop(step) -> float:
    """The floating-point operations of a step, in 10⁹; of one on this thread alone."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops() / 1e9


def peak_gflops(device: str = "cpu") -> float:
    """The machine's measured peak: GFLOP/s of the fastest of ten products of two square float32 matrices."""
    import torch

    a, b = torch.randn(2, 4096 if device == "cuda" else 2048, 4096 if device == "cuda" else 2048, device=device)
    return 2 * len(a) ** 3 / min(timed(lambda: a @ b, 10, device)) / 1e9


def finish(found: dict, device: str = "cpu") -> None:
    """End a contestant's process: print what it found, with its peak memory on that device unless that is among it."""
    from dclib.support.provenance import peak_memory_mb

    print(json.dumps({"peak_mb": peak_memory_mb(device), **found}))


def run(script: str, contestant: str, case: dict) -> dict:
    """Run one contestant in a fresh process and return what it found."""
    words = [sys.executable, script, "--contestant", contestant, "--case", json.dumps(case)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{contestant} failed at {case}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def contest(script: str, case: dict, contestants: list[str], rounds: int) -> dict[str, dict]:
    """Let contestants take turns; returns for each its seconds, its peak memory and whatever else it found."""
    found: dict[str, dict] = {}
    for _ in range(rounds):
        for name in contestants:
            result = run(script, name, case)
            kept = found.setdefault(name, {**result, "seconds": [], "peak_mb": 0})
            kept["seconds"] += result["seconds"]
            kept["peak_mb"] = max(kept["peak_mb"], result["peak_mb"])
    return found


def table(title: str, found: dict[str, dict]) -> str:
    """Medians and spread, and the ratios to the first contestant and, if there is one, to `tuned`; untimed, memory alone."""
    if not all(f["seconds"] for f in found.values()):
        return "\n".join([f"\n{title}", *(f"{name:<22}{f['peak_mb']:>9} MB" for name, f in found.items())])
    median = {name: statistics.median(f["seconds"]) for name, f in found.items()}
    base = [name for name in ("plain", "tuned") if name in found] or [next(iter(found))]
    ratios = "".join(f"{'× ' + name:>10}" for name in base)
    lines = [f"\n{title}", f"{'':<22}{'median s':>10}{'least':>9}{'most':>9}{ratios}{'peak MB':>9}"]
    for name, f in found.items():
        speed = "".join(f"{median[b] / median[name]:>10.2f}" for b in base)
        lines.append(f"{name:<22}{median[name]:>10.3f}{min(f['seconds']):>9.3f}{max(f['seconds']):>9.3f}{speed}{f['peak_mb']:>9}")
    return "\n".join(lines)


def record(bench: str, title: str, case: dict, found: dict[str, dict], records: Path = RECORDS, **more: object) -> None:
    """Append a contest to the records, as one line of JSON, and print it."""
    from dclib.support.files import append_line
    from dclib.support.provenance import now, provenance

    device = case.get("device", "cpu")
    about = provenance(now(), _device_name(device), "several")
    for name in ("engine", "world_size", "peak_memory_mb"):
        about.pop(name)
    line = {"bench": bench, "title": title, "case": case, "contestants": found, **more, **about, "threads": os.cpu_count()}
    append_line(records, json.dumps(line, sort_keys=True))
    print(table(title, found), flush=True)


def _device_name(device: str) -> str:
    if device != "cuda":
        return "cpu"
    import torch

    return torch.cuda.get_device_name()
