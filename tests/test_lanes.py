"""Work side by side: in order, no more at a time than there are lanes, and nobody at work when the caller goes on."""

import threading
import time

import pytest
import torch
from helpers import assert_close

from dclib.core import condense, lanes, train
from dclib.methods import full_training
from dclib.spec import Condensation, ConvNet, Training, WholeTraining

THIN = ConvNet(width=4, depth=2)


def test_results_come_in_order_and_no_more_work_than_lanes_of_a_thread_each():
    busy, most, before = [], [], torch.get_num_threads()

    def work(i: int) -> tuple[int, int]:
        busy.append(i)
        most.append(len(busy))
        time.sleep(0.02 * (3 - i % 3))
        busy.remove(i)
        return i, torch.get_num_threads()

    assert list(lanes.each(work, range(7), 2)) == [(i, 1) for i in range(7)]
    assert max(most) == 2
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


@pytest.fixture
def by_lanes(monkeypatch):
    """Return a function that calls another with one lane and with two."""

    def by_lanes(call):
        found = []
        for count in (1, 2):
            monkeypatch.setattr(lanes, "count", lambda device, count=count: count)
            found.append(call(device="cpu", engine="eager"))
        return found

    return by_lanes


HYPERS = [dict(ipc=2), dict(ipc=2, network=ConvNet(width=4, depth=2, norm="batch")), dict(ipc=1, network_epochs=1)]


@pytest.mark.slow
@pytest.mark.parametrize("changes", HYPERS, ids=str)
def test_condensing_in_two_lanes_equals_one(made, by_lanes, changes):
    """In float64, up to the order of summation; batch norm in training sees the whole batch."""
    short = dict(network=THIN, outer_steps=2, inner_steps=2, real_batch=9, precision="float64")
    one, two = by_lanes(lambda **how: condense.condense(made, Condensation(**{**short, **changes}), **how))
    torch.testing.assert_close(one.images, two.images, rtol=1e-9, atol=1e-10)
    assert one.losses == pytest.approx(two.losses, rel=1e-10)


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_training_on_the_whole_set_in_two_lanes_equals_one(made, by_lanes, norm):
    run = WholeTraining("made", ConvNet(width=4, depth=2, norm=norm).resolve("train"), epochs=1, batch=12)
    one, two = by_lanes(lambda **how: full_training.train(made, run, **how))
    assert_close(one.network, two.network, 1e-3, 1e-5)
    assert torch.equal(one.learned, two.learned)


def test_networks_side_by_side_are_those_trained_one_after_the_other(made, by_lanes):
    hyper, x = Training(THIN, epochs=4, lr=0.1, augment="noise", precision="float64"), made.normalise(made.x_train).double()
    one, two = by_lanes(lambda **how: train.evaluate(x, made.y_train, made, hyper, seeds=[5, 6, 7], **how))
    assert one == two
    assert len(set(one)) > 1
