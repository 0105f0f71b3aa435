"""Which device and engine are taken, said aloud; and that compiling changes nothing but rounding."""

import dataclasses
import logging
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from helpers import refused, same, stop_after

from dclib.core import condense, engine, train
from dclib.errors import Interrupted, SpecError
from dclib.spec import Condensation, ConvNet, Training

CPU = torch.device("cpu")


# --- which engine, and which device


def test_auto_compiles_only_where_it_pays_and_says_if_it_cannot(monkeypatch, caplog):
    pays, there = engine.COMPILE_PAYS, True
    monkeypatch.setattr(engine, "has_compiler", lambda: there)
    asked = [("auto", CPU, pays - 1), ("auto", CPU, pays), ("eager", CPU, 10**9), ("compiled", CPU, 1)]
    asked += [("auto", torch.device("cuda"), 1), ("eager", torch.device("cuda"), 10**9)]
    assert [engine.choose(*given) for given in asked] == ["eager", "compiled", "eager", "compiled", "captured", "eager"]
    there = False
    with caplog.at_level(logging.WARNING, logger="dclib"):
        assert engine.choose("auto", CPU, pays - 1) == "eager"
        assert not caplog.text
        assert engine.choose("auto", CPU, pays) == "eager"
    assert "no C++ compiler" in caplog.text
    refused("clang++", call=lambda: engine.choose("compiled", CPU, 1), error=SpecError)


def test_a_gpu_is_taken_where_there_is_one_and_never_replaced_in_silence(monkeypatch):
    for device in ("gpu", "cpu:x", "auto:1", ""):
        refused(f"'{device}'", call=engine.resolve_device, error=SpecError, device=device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert engine.resolve_device("auto") == engine.resolve_device("cpu") == CPU
    for device in ("cuda", "cuda:0"):
        refused("no GPU", call=engine.resolve_device, error=SpecError, device=device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(engine.resolve_device(device)) for device in ("auto", "cuda:1", "cpu")] == ["cuda", "cuda:1", "cpu"]


THREADED = """
import ctypes, threading
import torch
from dclib.core import engine

if not engine.tune_allocator():
    raise SystemExit(77)
held = []
threads = [threading.Thread(target=lambda: held.append(torch.ones(2**20))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.slow
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
    prepare, seen, how = engine.prepare, [], dict(device="cpu", engine="eager")
    monkeypatch.setattr(engine, "prepare", lambda *given: seen.append(given[2]) or prepare(*given))
    hyper = Condensation(1, ConvNet(width=4, depth=1), outer_steps=1, real_batch=4, precision="bfloat16").resolve()
    rough = condense.condense(made, hyper, **how).losses
    exact = condense.condense(made, dataclasses.replace(hyper, precision="float32"), **how).losses
    assert rough != exact
    assert rough == pytest.approx(exact, rel=0.1)
    training = Training(hyper.network, epochs=1, precision="bfloat16")
    train.evaluate(made.normalise(made.x_train), made.y_train, made, training, seeds=[0], **how)
    assert seen == ["bfloat16", "float32", "bfloat16"]
    refused("tf32", "captured", call=lambda: prepare(torch.nn.Linear(2, 2), "compiled", "tf32"), error=SpecError)


@compiles
def test_stopped_compiled_condensing_goes_on_to_the_same_bits(make_dataset, tmp_path, monkeypatch):
    """In what is, for the compiler, another process, and with pieces of two sizes."""
    monkeypatch.setattr(engine, "CHUNK", 4)
    made, more = make_dataset(6, 9, 9), dict(device="cpu", engine="compiled")
    hyper = Condensation(2, ConvNet(width=4, depth=1), outer_steps=3, inner_steps=2, network_epochs=2, real_batch=6).resolve()
    unbroken = condense.condense(made, hyper, **more)
    torch._dynamo.reset()
    with pytest.raises(Interrupted, match="stopped after 1 of 3"):
        condense.condense(made, hyper, checkpoint=tmp_path / "c", should_stop=stop_after(21), **more)
    torch._dynamo.reset()
    assert same(condense.condense(made, hyper, checkpoint=tmp_path / "c", **more), unbroken)


@compiles
def test_training_compiled_equals_eager(made):
    hyper, x = Training(ConvNet(width=4, depth=1), epochs=4, lr=0.1, batch=12, precision="float64"), made.normalise(made.x_train)
    how = dict(seeds=[0, 1], device="cpu")
    compiled, eager = (train.evaluate(x, made.y_train, made, hyper, engine=e, **how) for e in ("compiled", "eager"))
    assert compiled == eager
