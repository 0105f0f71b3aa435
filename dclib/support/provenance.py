"""Where a number comes from: the machine, the versions and the state of the code that measured it."""

import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def processor() -> str:
    """The processor's name and how many of its cores this process may use."""
    name, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    models = [x for x in info.read_text().splitlines() if x.startswith("model name")] if info.exists() else []
    return f"{models[0].partition(':')[2].strip() if models else name}, {_cores()} cores"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def code() -> dict[str, Any]:
    """The git commit of the code and whether the tree differed from it; empty outside a repository."""
    here = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"commit": git("rev-parse", "--short=12", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.CalledProcessError):
        return {}


@cache
def versions() -> dict[str, str]:
    """The versions of what a result may depend on."""
    from importlib.metadata import version  # slow to import, and every command imports this module

    return {"python": platform.python_version(), "torch": version("torch"), "dclib": version("dclib")}


def launched() -> int:
    """How many processes `torchrun` has started for the same work; 1 without it."""
    given = [os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR")]
    return int(given[0]) if all(given) and given[0].isdecimal() and given[1].isdecimal() else 1


def peak_memory_mb(device: str = "cpu") -> int:
    """The most memory that this process has held, in MB: resident on a CPU; on GPUs what PyTorch has reserved on one."""
    if device != "cpu":
        import torch

        return round(max(map(torch.cuda.max_memory_reserved, range(torch.cuda.device_count())), default=0) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def share(device: str) -> float:
    """The part of the machine's cores that this run's processes use, at most 1; on a GPU 1.

    `--workers 2` on two cores gives each run half of the machine.
    """
    if device != "cpu":
        return 1.0
    import torch

    return round(min(1.0, launched() * torch.get_num_threads() / _cores()), 4)


def provenance(started: str, device: str, engine: str) -> dict[str, Any]:
    """What every record says of how it was measured.

    Args:
        started: when, from `now`.
        device: as torch names it.
        engine: the engine that did the work.
    """
    return {
        "started": started,
        "device": device,
        "machine": processor(),
        "engine": engine,
        "world_size": 1,
        "share": share(device),
        "peak_memory_mb": peak_memory_mb(device),
        "versions": versions(),
        **code(),
    }


def measured_on(record: dict[str, Any]) -> str:
    """Where a record was measured: the processor's name, or the GPU's."""
    return record["machine"] if record["device"] == "cpu" else record["device"]
