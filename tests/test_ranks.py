"""One condensation spread over processes by class: the same set, written once."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import refused

from dclib.core import condense, ranks
from dclib.errors import SpecError
from dclib.results import CondensedSet
from dclib.spec import Condensation, ConvNet

REQUEST = ["condense", "digits", "--network", "ConvNet:width=4,depth=2,norm=batch", "--real-batch", "8", "--device", "cpu"]
REQUEST += ["--ipc", "2", "-K", "2", "--network-epochs", "2", "--precision", "float64", "--engine", "eager"]


def test_the_shares_add_up_to_the_whole(made):
    """Each rank's gradient is zero for the classes of others; their sum is that of one process."""
    hyper = Condensation(2, ConvNet(width=4, depth=1), real_batch=6, precision="float64").resolve()
    parts = [condense.Condenser(made, hyper, 0, ranks=ranks.Ranks(r, n)).inner for r, n in ((0, 1), (0, 2), (1, 2))]
    for part in parts:
        part.draw(0, 0)
    (loss, whole), *shares = [part.gradient() for part in parts]
    torch.testing.assert_close(sum(g for _, g in shares), whole, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(sum(loss for loss, _ in shares), loss, rtol=1e-12, atol=0)
    assert [[bool(g[c].any()) for c in range(3)] for _, g in shares] == [[True, False, True], [False, True, False]]
    idle = condense.Condenser(made, hyper, 0, ranks=ranks.Ranks(3, 4)).inner  # of more ranks than classes
    idle.draw(0, 0)
    loss, gradient = idle.gradient()
    assert not loss
    assert not gradient.any()


@pytest.mark.slow
def test_two_processes_make_the_set_of_one(tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    one = subprocess.run([sys.executable, "-m", "dclib", *REQUEST, "-o", str(alone)], capture_output=True, text=True)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    for expected in ("is made", "is there already"):
        two = subprocess.run([sys.executable, *launch, "-m", "dclib", *REQUEST, "-o", str(shared)], capture_output=True, text=True)
        assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
        assert two.stdout.count(expected) == 1
        assert "warning" not in two.stderr.lower(), two.stderr
    a, b = CondensedSet.load(alone), CondensedSet.load(shared)
    np.testing.assert_allclose(b.images, a.images, rtol=1e-6, atol=1e-6)
    assert b.about["losses"] == pytest.approx(a.about["losses"], rel=1e-8)
    assert b.about["world_size"] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "shared"]


@pytest.fixture
def second(monkeypatch):
    """Return a function that joins as the second of two ranks that `torchrun` started on a machine with so many GPUs."""

    def second(gpus, device):
        for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
        for name, value in {"init_process_group": None, "destroy_process_group": None, "get_rank": 1, "get_world_size": 2}.items():
            monkeypatch.setattr(torch.distributed, name, lambda *_, value=value: value)
        with ranks.joined(device) as (me, own):
            return me.rank, me.count, own

    return second


def test_each_rank_takes_a_gpu_of_its_own(second):
    for gpus, device, own in ((0, "auto", "cpu"), (2, "cpu", "cpu"), (2, "auto", "cuda:1"), (2, "cuda", "cuda:1")):
        assert second(gpus, device) == (1, 2, own)
    refused("cuda:0", "2 ranks", call=second, error=SpecError, gpus=1, device="cuda:0")
    refused("rank 1", "1 GPUs", call=second, error=SpecError, gpus=1, device="cuda")
