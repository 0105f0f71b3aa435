"""How the work is executed: on which device, compiled or not, and in pieces of what size.

Nothing here changes a result by more than the order of summation. `compiled` fuses what lies between the convolutions of a
first-order pass (the real side of gradient matching, the network steps, stage T); the synthetic side is differentiated twice,
which torch.compile cannot do, and stays eager under `vmap` over the classes.
"""

import ctypes
import importlib
import logging
import platform
import shutil
from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from .errors import SpecError, one_of

log = logging.getLogger("dclib")

ENGINES = ("auto", "eager", "compiled")
CHUNK = 64  # images of one class that pass the network at a time
COMPILE_PAYS = 3000  # passes of some ten images each, below which compiling costs more than it saves


def resolve_device(device: str) -> torch.device:
    """Return the device that `device` names; "auto" is the first GPU, or the CPU where there is none.

    Raises:
        SpecError: an unknown device, or CUDA asked for where there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = device.partition(":")[0]
    one_of("device", kind, ("auto", "cpu", "cuda"))
    if kind == "cuda" and not torch.cuda.is_available():
        raise SpecError(f"device {device!r} was asked for but torch sees no GPU: use device=cpu or auto")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise SpecError(f"device {device!r} does not exist: use auto, cpu, cuda or cuda:0, cuda:1 …") from error
    if kind == "cuda" and (found.index or 0) >= (count := torch.cuda.device_count()):
        raise SpecError(f"device {device!r} was asked for but torch sees {count} GPUs: use auto or a smaller number")
    return found


@cache
def tune_allocator() -> bool:
    """Keep freed memory in the process instead of handing it back to the system at every step; True if that was possible.

    glibc returns each large buffer at once, so every step pays for fresh pages again (about a third of the time on two
    cores). M_MMAP_MAX = 0 and the largest M_TRIM_THRESHOLD stop that; other C libraries are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(-4, 0) and libc.mallopt(-1, 2**31 - 1))


def has_compiler() -> bool:
    """Whether a C++ compiler is there for torch.compile to use on the CPU."""
    return shutil.which("g++") is not None or shutil.which("clang++") is not None


def choose(engine: str, device: torch.device, steps: int) -> str:
    """Return "eager" or "compiled"; "auto" compiles on the CPU where a compiler is found and `steps` repay the compilation.

    Args:
        engine: one of `ENGINES`.
        device: where the work will run.
        steps: how many network passes (of some ten images each) are ahead.

    Raises:
        SpecError: "compiled" was asked for and there is no compiler.
    """
    one_of("engine", engine, ENGINES)
    if engine == "compiled" and device.type == "cpu" and not has_compiler():
        raise SpecError("engine 'compiled' needs a C++ compiler and neither g++ nor clang++ is installed: use engine=eager")
    if engine != "auto":
        return engine
    if device.type == "cpu" and steps >= COMPILE_PAYS:
        if has_compiler():
            return "compiled"
        log.warning("no C++ compiler (g++ or clang++) found: running uncompiled, about 1.4 times slower")
    return "eager"


def prepare(network: nn.Module, engine: str) -> Callable:
    """Return the network, or its compiled form for first-order passes; both share the parameters."""
    if engine == "eager":
        return network
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    _load_extensions_quietly()
    return torch.compile(network)


@cache
def _load_extensions_quietly() -> None:
    """Import what torch.compile would import later, without its warning that CUDA's toolkit is there and no GPU is."""
    logger, mute = logging.getLogger("torch.utils.cpp_extension"), lambda record: "No CUDA runtime" not in record.getMessage()
    logger.addFilter(mute)
    try:
        importlib.import_module("torch.utils.cpp_extension")
    except ImportError:
        log.debug("torch.utils.cpp_extension cannot be imported")  # without setuptools; then torch.compile does without it, too
    finally:
        logger.removeFilter(mute)
