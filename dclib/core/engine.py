"""How the work is executed: on which device, compiled or not, and in pieces of what size.

No engine changes a result by more than the order of summation; a precision does, and is part of a run's key. `compiled` fuses
what lies between the convolutions of a first-order pass (the real side of gradient matching, the network steps, stage T); the
synthetic side is differentiated twice, which torch.compile cannot do, and stays eager under `vmap` over the classes. `captured`,
on a GPU, replays whole steps as CUDA graphs and trains several networks of stage T as one.
"""

import ctypes
import importlib
import logging
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import SpecError, first_line, one_of

log = logging.getLogger("dclib")

ENGINES = ("auto", "eager", "compiled", "captured")
CHUNK = 64  # images of one class that pass the network at a time on a CPU, so that activations stay in the cache
GPU_CHUNK = 256
WARM_UP = 3  # runs of a function before it is captured, so that libraries have chosen their algorithms
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
    cores). M_MMAP_MAX = 0 and the largest M_TRIM_THRESHOLD stop that, and M_ARENA_MAX = 1 lets lanes and workers, which are
    threads, share the memory that is kept: their own arenas would be handed back. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(option, value) for option, value in ((-4, 0), (-1, 2**31 - 1), (-8, 1)))


def has_compiler() -> bool:
    """Whether a C++ compiler is there for torch.compile to use on the CPU."""
    return shutil.which("g++") is not None or shutil.which("clang++") is not None


def choose(engine: str, device: torch.device, steps: int) -> str:
    """Return "eager", "compiled" or "captured"; "auto" captures on a GPU, and compiles on the CPU where `steps` repay that.

    Args:
        engine: one of `ENGINES`.
        device: where the work will run.
        steps: how many network passes (of some ten images each) are ahead.

    Raises:
        SpecError: "compiled" was asked for and there is no compiler, or "captured" without a GPU.
    """
    one_of("engine", engine, ENGINES)
    if engine == "compiled" and device.type == "cpu" and not has_compiler():
        raise SpecError("engine 'compiled' needs a C++ compiler and neither g++ nor clang++ is installed: use engine=eager")
    if engine == "captured" and device.type != "cuda":
        raise SpecError(f"engine 'captured' replays CUDA graphs and the device is {device}: use engine=auto, eager or compiled")
    if engine != "auto":
        return engine
    if device.type == "cuda":
        return "captured"
    if steps >= COMPILE_PAYS:
        if has_compiler():
            return "compiled"
        log.warning("no C++ compiler (g++ or clang++) found: running uncompiled, about 1.4 times slower")
    return "eager"


def chunk(device: torch.device) -> int:
    """How many real images of one class pass the network at a time."""
    return GPU_CHUNK if device.type == "cuda" else CHUNK


def prepare(network: nn.Module, engine: str, precision: str = "float32") -> Callable:
    """Return the network's form for first-order passes, compiled or in bfloat16 as asked; it shares the parameters.

    Raises:
        SpecError: it is to be compiled for TF32, which not every torch from 2.9 on can.
    """
    if (engine, precision) == ("compiled", "tf32"):
        raise SpecError("precision 'tf32' goes with the engines captured and eager, not with compiled: use engine=captured")
    forward = _in_bfloat16(network) if precision == "bfloat16" else network
    if engine != "compiled":
        return forward
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    _load_extensions_quietly()
    return torch.compile(forward)


def _in_bfloat16(network: nn.Module) -> Callable:
    """Let convolutions and matrix products work in bfloat16; parameters, gradients, norms and the loss stay in float32."""

    def forward(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):  # a cache would outlive a captured step
            return network(x.contiguous(memory_format=torch.channels_last)).float()

    return forward


def dtype(precision: str) -> torch.dtype:
    """The type of images and parameters at a precision."""
    return torch.float64 if precision == "float64" else torch.float32


@torch.no_grad()
def descend(
    parameters: Sequence[Tensor],
    momenta: Sequence[Tensor],
    gradients: Sequence[Tensor],
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
) -> None:
    """Do one step of SGD with momentum in place, so that it can be captured.

    Args:
        parameters: changed in place.
        momenta: one for each parameter, zero at the start; changed in place.
        gradients: one for each parameter.
        lr: the learning rate.
        momentum: 0 for none.
        weight_decay: 0 for none.
    """
    if weight_decay:
        gradients = torch._foreach_add(gradients, parameters, alpha=weight_decay)
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients)
    torch._foreach_add_(parameters, momenta, alpha=-lr)


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Let a GPU's convolutions and matrix products round to TF32 where that was asked for, and never else.

    Raises:
        SpecError: TF32 was asked for and the device is not a GPU.
    """
    if precision == "tf32" and device.type != "cuda":
        raise SpecError(f"precision 'tf32' is a GPU's and the device is {device}: use float32")
    if precision == "bfloat16" and device.type == "cpu" and not computes_bfloat16():
        log.warning("this processor has no instructions for bfloat16 (AMX or AVX-512 BF16): it will be slower than float32")
    places = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    old, benchmark = [place.fp32_precision for place in places], torch.backends.cudnn.benchmark
    try:
        for place in places:
            place.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        torch.backends.cudnn.benchmark = True  # every step has the same shapes
        yield
    finally:
        for place, value in zip(places, old, strict=True):
            place.fp32_precision = value
        torch.backends.cudnn.benchmark = benchmark


def computes_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16 (AMX or AVX-512 BF16)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


class Captured:
    """A function without arguments on tensors that stay in place, captured as a CUDA graph at its first call and replayed.

    Args:
        function: reads and changes tensors in place, draws nothing at random, and asks no tensor for its value.
        state: the tensors that it changes, so that warming up leaves no trace.
    """

    def __init__(self, function: Callable[[], Any], state: Sequence[Tensor]):
        self.function, self.state, self.graph, self.result = function, state, None, None

    def __call__(self) -> Any:
        """Replay the function, and return the tensors it returned when it was captured, with their new values."""
        if self.graph is None:
            self._capture()
        self.graph.replay()
        return self.result

    def _capture(self) -> None:
        kept = [tensor.detach().clone() for tensor in self.state]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.state[0].device):  # else the streams would be the first GPU's
            try:
                self._warm_up()
                with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                    self.result = self.function()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise SpecError(f"a step cannot be captured as a CUDA graph ({first_line(error)}): use engine=eager") from error
        with torch.no_grad():
            for tensor, value in zip(self.state, kept, strict=True):
                tensor.copy_(value)
        self.graph = graph

    def _warm_up(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.function()
        torch.cuda.current_stream().wait_stream(side)


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
