"""Which device and engine are taken, said aloud; and that compiling changes nothing but rounding."""

import dataclasses
import logging
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

from dclib.core import condense, engine, resume, train
from dclib.errors import Interrupted, SpecError
from dclib.spec import Condensation, ConvNet, Training

CPU = torch.device("cpu")


# --- which engine


def test_auto_compiles_only_where_it_pays(monkeypatch):
    monkeypatch.setattr(engine, "has_compiler", lambda: True)
    assert engine.choose("auto", CPU, engine.COMPILE_PAYS - 1) == "eager"
    assert engine.choose("auto", CPU, engine.COMPILE_PAYS) == "compiled"
    assert engine.choose("eager", CPU, 10**9) == "eager"
    assert engine.choose("compiled", CPU, 1) == "compiled"
    assert engine.choose("auto", torch.device("cuda"), 1) == "captured"
    assert engine.choose("eager", torch.device("cuda"), 10**9) == "eager"


def test_without_a_compiler_it_says_so(monkeypatch, caplog):
    monkeypatch.setattr(engine, "has_compiler", lambda: False)
    with caplog.at_level(logging.WARNING, logger="dclib"):
        assert engine.choose("auto", CPU, engine.COMPILE_PAYS - 1) == "eager"
        assert not caplog.text
        assert engine.choose("auto", CPU, engine.COMPILE_PAYS) == "eager"
    assert "no C++ compiler" in caplog.text
    with pytest.raises(SpecError, match=r"neither g\+\+ nor clang\+\+"):
        engine.choose("compiled", CPU, 1)


# --- which device

BAD = [("gpu", "unknown device 'gpu'"), ("cpu:x", "does not exist"), ("auto:1", "does not exist"), ("", "unknown device ''")]


@pytest.mark.parametrize(("device", "sentence"), BAD)
def test_unknown_devices_are_refused(device, sentence):
    with pytest.raises(SpecError, match=sentence):
        engine.resolve_device(device)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_is_never_replaced_in_silence(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert engine.resolve_device("auto") == engine.resolve_device("cpu") == CPU
    with pytest.raises(SpecError, match="torch sees no GPU"):
        engine.resolve_device(device)


def test_a_gpu_is_taken_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert engine.resolve_device("auto") == torch.device("cuda")
    assert engine.resolve_device("cuda:1") == torch.device("cuda", 1)
    assert engine.resolve_device("cpu") == CPU


THREADED = """
import ctypes, threading
import torch
from dclib import engine

if not engine.tune_allocator():
    raise SystemExit(77)
held = []
threads = [threading.Thread(target=lambda: held.append(torch.ones(2**20))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
ctypes.CDLL(None).malloc_stats()
"""


def test_threads_share_the_memory_that_is_kept():
    """An arena of a thread's own would be handed back whenever it is empty."""
    done = subprocess.run([sys.executable, "-c", THREADED], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("this C library's allocator is left alone")
    assert "Arena 0" in done.stderr
    assert "Arena 1" not in done.stderr


# --- compiling changes nothing but rounding


def compiles(test):
    test = pytest.mark.filterwarnings("ignore")(pytest.mark.slow(test))  # torch's compiler warns of its own parts
    return pytest.mark.skipif(not engine.has_compiler(), reason="torch.compile needs g++ or clang++ on the CPU")(test)


@compiles
def test_condensing_compiled_equals_eager(make_dataset, monkeypatch):
    """Real gradients in pieces, frozen and moving batch norm, several steps of the network."""
    monkeypatch.setattr(engine, "CHUNK", 3)
    network = ConvNet(width=4, depth=1, norm="batch")
    more = dict(outer_steps=2, real_batch=6, precision="float64")
    hyper = Condensation(2, network, inner_steps=2, network_epochs=2, network_lr=0.1, **more)
    eager, compiled = (condense.condense(make_dataset(6, 9, 9), hyper, device="cpu", engine=e) for e in ("eager", "compiled"))
    torch.testing.assert_close(compiled.images, eager.images, rtol=1e-9, atol=1e-9)
    assert compiled.losses == pytest.approx(eager.losses, rel=1e-10)


def test_arithmetic_is_exact_and_put_back_even_after_an_error():
    places, seen = (torch.backends.cudnn.conv, torch.backends.cuda.matmul), []

    def flags():
        return [place.fp32_precision for place in places]

    @contextmanager
    def failing():
        with engine.arithmetic("float32", CPU):
            seen.extend(flags())
            yield

    before = flags()
    with pytest.raises(ZeroDivisionError), failing():
        1 // 0  # noqa: B018
    assert seen == ["ieee", "ieee"]
    assert flags() == before
    with pytest.raises(SpecError, match="precision 'tf32' is a GPU's"), engine.arithmetic("tf32", CPU):
        pass


def test_the_precision_asked_for_is_that_of_condensing_and_of_training(made, monkeypatch):
    prepare, seen = engine.prepare, []
    monkeypatch.setattr(engine, "prepare", lambda *given: seen.append(given[2]) or prepare(*given))
    hyper = Condensation(1, ConvNet(width=4, depth=1), outer_steps=1, real_batch=4, precision="bfloat16").resolve()
    made_small = condense.condense(made, hyper, device="cpu", engine="eager")
    exact = condense.condense(made, dataclasses.replace(hyper, precision="float32"), device="cpu", engine="eager")
    assert made_small.losses != exact.losses
    assert made_small.losses == pytest.approx(exact.losses, rel=0.1)
    training = Training(hyper.network, epochs=1, precision="bfloat16")
    train.evaluate(made.normalise(made.x_train), made.y_train, made, training, seeds=[0], device="cpu", engine="eager")
    assert seen == ["bfloat16", "float32", "bfloat16"]


def test_tf32_is_not_compiled():
    with pytest.raises(SpecError, match="not with compiled: use engine=captured"):
        engine.prepare(torch.nn.Linear(2, 2), "compiled", "tf32")


@compiles
def test_stopped_compiled_condensing_goes_on_to_the_same_bits(make_dataset, tmp_path, monkeypatch):
    """In what is, for the compiler, another process, and with pieces of two sizes."""
    monkeypatch.setattr(engine, "CHUNK", 4)
    made, more = make_dataset(6, 9, 9), dict(device="cpu", engine="compiled")
    hyper = Condensation(2, ConvNet(width=4, depth=1), outer_steps=3, inner_steps=2, network_epochs=2, real_batch=6).resolve()
    unbroken = condense.condense(made, hyper, **more)
    torch._dynamo.reset()
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Interrupted):
        condense.condense(made, hyper, checkpoint=tmp_path / "c", should_stop=(tmp_path / "c").exists, **more)
    torch._dynamo.reset()
    resumed = []
    on = condense.condense(made, hyper, checkpoint=tmp_path / "c", on_resume=lambda state: resumed.append(state.k), **more)
    assert 0 < resumed[0] < 3
    assert torch.equal(on.images, unbroken.images)
    assert on.losses == unbroken.losses


@compiles
def test_training_compiled_equals_eager(made):
    hyper, x = Training(ConvNet(width=4, depth=1), epochs=4, lr=0.1, batch=12, precision="float64"), made.normalise(made.x_train)
    how = dict(seeds=[0, 1], device="cpu")
    compiled, eager = (train.evaluate(x, made.y_train, made, hyper, engine=e, **how) for e in ("compiled", "eager"))
    assert compiled == eager
