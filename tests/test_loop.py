"""Stopping, saving and going on, with a work of two numbers."""

import pytest
import torch

from dclib.core import resume as loop
from dclib.errors import FileError, Interrupted

IDENTITY = {"run": "r", "data": "d", "seed": 0}


class Descent(loop.Work):
    """Adam on a parabola whose slope depends on k."""

    def __init__(self):
        super().__init__()
        self.x = torch.tensor([1.0, -2.0])
        self.optimiser = torch.optim.Adam([self.x], lr=0.1)

    def step(self):
        self.x.grad = 2 * self.x + self.k
        self.optimiser.step()
        return float(self.x.square().sum())

    def tensors(self):
        return {"x": self.x, **loop.optimiser_tensors("adam", self.optimiser)}

    def restore(self, tensors):
        self.x.copy_(tensors["x"])
        loop.restore_optimiser("adam", self.optimiser, tensors)


def run(steps=7, identity=IDENTITY, **options):
    work = Descent()
    loop.run(work, steps, identity, what="steps", **options)
    return work


def stop_after(steps):
    calls = iter([False] * steps)
    return lambda: next(calls, True)


def test_every_step_is_done_counted_and_told(tmp_path):
    told = []
    work = run(checkpoint=tmp_path / "c", on_step=lambda w: told.append(w.k))
    assert told == [1, 2, 3, 4, 5, 6, 7]
    assert len(work.losses) == work.k == 7
    assert work.seconds > 0
    assert not list(tmp_path.iterdir()), "no checkpoint sooner than after 20 seconds"


@pytest.mark.parametrize("steps", range(7))
def test_stopped_anywhere_it_goes_on_to_the_same_bits(tmp_path, steps):
    whole, resumed = run(), []
    with pytest.raises(Interrupted, match=f"^stopped after {steps} of 7 steps; the same command goes on from there$"):
        run(checkpoint=tmp_path / "c", should_stop=stop_after(steps))
    work = run(checkpoint=tmp_path / "c", on_resume=lambda w: resumed.append((w.k, w.seconds)))
    assert [k for k, _ in resumed] == [steps]
    assert work.seconds >= resumed[0][1]
    assert torch.equal(work.x, whole.x)
    assert work.losses == whole.losses


class Killed(BaseException):
    pass


def test_killed_it_goes_on_from_the_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def die(work):
        if work.k == 4:
            raise Killed

    with pytest.raises(Killed):
        run(checkpoint=tmp_path / "c", on_step=die)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    resumed = []
    assert torch.equal(run(checkpoint=tmp_path / "c", on_resume=lambda w: resumed.append(w.k)).x, run().x)
    assert resumed == [3]


@pytest.mark.parametrize("name", IDENTITY)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, name):
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path / "c", should_stop=stop_after(2))
    with pytest.raises(FileError, match=rf"belongs to another run \(its {name} differ\)"):
        run(identity=IDENTITY | {name: "else"}, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_truncated_checkpoint_is_refused(tmp_path, keep):
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path / "c", should_stop=stop_after(2))
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:keep])
    with pytest.raises(FileError, match=r"^the checkpoint .* is damaged: delete it to start this run again$"):
        run(checkpoint=tmp_path / "c")


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tmp_path):
    loop.save_tensors(tmp_path / "c", {"y": torch.zeros(1)}, {"k": 1, "losses": [0.0], "seconds": 0.0}, IDENTITY)
    with pytest.raises(FileError, match="is damaged"):
        run(checkpoint=tmp_path / "c")
