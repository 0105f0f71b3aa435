"""Which device and engine are taken, said aloud; and that compiling changes nothing but rounding."""

import logging

import pytest
import torch

from dclib import engine, matching, networks
from dclib.errors import SpecError
from dclib.spec import ConvNet

CPU = torch.device("cpu")


def test_auto_compiles_only_where_it_pays(monkeypatch):
    monkeypatch.setattr(engine, "has_compiler", lambda: True)
    assert engine.choose("auto", CPU, engine.COMPILE_PAYS - 1) == "eager"
    assert engine.choose("auto", CPU, engine.COMPILE_PAYS) == "compiled"
    assert engine.choose("eager", CPU, 10**9) == "eager"
    assert engine.choose("auto", torch.device("cuda"), 10**9) == "eager"


def test_without_a_compiler_it_says_so(monkeypatch, caplog):
    monkeypatch.setattr(engine, "has_compiler", lambda: False)
    with caplog.at_level(logging.WARNING, logger="dclib"):
        assert engine.choose("auto", CPU, engine.COMPILE_PAYS) == "eager"
    assert "no C++ compiler" in caplog.text
    with pytest.raises(SpecError, match=r"neither g\+\+ nor clang\+\+"):
        engine.choose("compiled", CPU, 1)


@pytest.mark.parametrize(("device", "sentence"), [("gpu", "unknown device 'gpu'"), ("cpu:x", "does not exist")])
def test_unknown_devices_are_refused(device, sentence):
    with pytest.raises(SpecError, match=sentence):
        engine.resolve_device(device)


def test_cuda_is_never_replaced_in_silence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert engine.resolve_device("auto") == CPU
    with pytest.raises(SpecError, match="torch sees no GPU"):
        engine.resolve_device("cuda")


def test_unknown_engine_is_refused():
    with pytest.raises(SpecError, match="did you mean 'compiled'"):
        engine.choose("compile", CPU, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own parts
@pytest.mark.skipif(not engine.has_compiler(), reason="torch.compile needs g++ or clang++ on the CPU")
def test_compiled_gradients_equal_eager_ones():
    network = networks.build(ConvNet(width=4, depth=2), channels=1, classes=3, size=(8, 8), seed=0).double()
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = list(network.parameters())
    eager = matching.real_gradients(network, parameters, x, 1, 3)
    compiled = matching.real_gradients(engine.prepare(network, "compiled"), parameters, x, 1, 3)
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_the_allocator_is_tuned_once():
    assert engine.tune_allocator() is engine.tune_allocator()
