"""Work side by side: in order, no more at a time than there are lanes, and nobody at work when the caller goes on."""

import threading
import time

import pytest
import torch

from dclib.core import condense, lanes, train
from dclib.methods import full_training as whole
from dclib.spec import Condensation, ConvNet, Training, WholeTraining

THIN = ConvNet(width=4, depth=2)


def test_results_come_in_order_and_no_more_work_than_lanes():
    busy, most = [], []

    def work(i: int) -> int:
        busy.append(i)
        most.append(len(busy))
        time.sleep(0.02 * (3 - i % 3))
        busy.remove(i)
        return i * i

    assert list(lanes.each(work, range(7), 2)) == [i * i for i in range(7)]
    assert max(most) == 2


def test_a_lane_has_one_thread_and_the_caller_keeps_its_own():
    before = torch.get_num_threads()
    assert list(lanes.each(lambda i: torch.get_num_threads(), range(4), 2)) == [1] * 4
    assert torch.get_num_threads() == before


def test_an_error_ends_the_others_before_it_is_raised():
    given_up, ended = threading.Event(), []

    def work(i: int) -> None:
        if i == 0:
            raise ValueError("the first")
        given_up.wait(10)
        ended.append(i)

    with pytest.raises(ValueError, match="the first"):
        list(lanes.each(work, range(5), 2, given_up.set))
    assert ended == [1], "the one that ran has ended, no other has begun"


def test_a_caller_that_takes_no_more_ends_the_others():
    given_up, begun = threading.Event(), []

    def work(i: int) -> int:
        begun.append(i)
        return i if i == 0 else given_up.wait(10)

    results = lanes.each(work, range(50), 2, given_up.set)
    assert next(results) == 0
    results.close()
    assert given_up.is_set()
    assert len(begun) <= 3


HYPERS = [dict(ipc=2), dict(ipc=2, network=ConvNet(width=4, depth=2, norm="batch")), dict(ipc=1, network_epochs=1)]


@pytest.mark.parametrize("changes", HYPERS, ids=str)
def test_condensing_in_two_lanes_equals_one(made, monkeypatch, changes):
    """In float64, up to the order of summation; batch norm in training sees the whole batch."""
    short = dict(network=THIN, outer_steps=2, inner_steps=2, real_batch=9, precision="float64")
    hyper = Condensation(**{**short, **changes})
    found = []
    for count in (1, 2):
        monkeypatch.setattr(lanes, "count", lambda device, count=count: count)
        found.append(condense.condense(made, hyper, device="cpu", engine="eager"))
    torch.testing.assert_close(found[0].images, found[1].images, rtol=1e-9, atol=1e-10)
    assert found[0].losses == pytest.approx(found[1].losses, rel=1e-10)


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_training_on_the_whole_set_in_two_lanes_equals_one(made, monkeypatch, norm):
    run = WholeTraining("made", ConvNet(width=4, depth=2, norm=norm).resolve("train"), epochs=1, batch=12)
    found = []
    for count in (1, 2):
        monkeypatch.setattr(lanes, "count", lambda device, count=count: count)
        found.append(whole.train(made, run, device="cpu", engine="eager"))
    for a, b in zip(found[0].network.parameters(), found[1].network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert torch.equal(found[0].learned, found[1].learned)


def test_networks_side_by_side_are_those_trained_one_after_the_other(made, monkeypatch):
    hyper = Training(THIN, epochs=4, lr=0.1, augment="noise", precision="float64")
    x, found = made.normalise(made.x_train).double(), []
    for count in (1, 2):
        monkeypatch.setattr(lanes, "count", lambda device, count=count: count)
        found.append(train.evaluate(x, made.y_train, made, hyper, seeds=[5, 6, 7], device="cpu", engine="eager"))
    assert found[0] == found[1]
    assert len(set(found[0])) > 1
