"""Runs spread over worker processes: each is recorded once, whoever is killed, and stopped at a point from which it goes on."""

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from dclib import experiments
from dclib.cli.main import main
from dclib.errors import ClusterError, DataError, Interrupted, SpecError
from dclib.results import Store
from dclib.run import cluster, spread
from dclib.run import compute as run
from dclib.run.cluster import check_request, connected, mismatch
from dclib.run.jobs import Board
from dclib.spec import ConvNet, MakeSet, TrainNetworks, WholeTraining
from dclib.support.provenance import versions


@pytest.fixture(scope="module", autouse=True)
def client(tmp_path_factory):
    """Two worker processes for all tests here; a job may lose two workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KILLED", str(tmp_path_factory.mktemp("killed") / "marker"))
        patch.setattr(cluster, "KILLS", 2)
        with connected(None, 2) as client:
            yield client


@pytest.fixture(autouse=True)
def both(client):
    """After a test that kills workers, others take their places."""
    client.wait_for_workers(2)


@pytest.fixture
def address(client) -> str:
    return client.scheduler.address


@dataclass(frozen=True)
class Step:
    """A job for the tests: what it is to do, and a file that marks that it was begun."""

    what: str
    marker: Path
    rank: int = 0


def act(step, folder, should_stop):
    """What a worker does with it."""
    assert not list(folder.iterdir())
    (folder / "mine").write_text("a folder of its own")
    begun = step.marker.exists()
    step.marker.touch()
    if step.what == "dies" or (step.what == "dies once" and not begun):
        os.kill(os.getpid(), signal.SIGKILL)
    if step.what == "fails":
        raise DataError("there are no images")
    if step.what == "waits":
        end = time.monotonic() + 60
        while not should_stop() and time.monotonic() < end:
            time.sleep(0.01)
        return "stopped"
    return step.what


class Taken(list):
    """What came back, with the jobs that follow."""

    def __init__(self, **follow):
        super().__init__()
        self.follow = follow

    def take(self, step, got):
        self.append((step.marker.name, got))
        return self.follow.pop(step.marker.name, [])


def steps(tmp_path, **what):
    return [Step(text.replace("_", " "), tmp_path / name, rank) for rank, (name, text) in enumerate(what.items())]


# --- jobs of any kind


def test_each_job_is_done_once_and_those_that_follow_it(client, tmp_path):
    first, second = steps(tmp_path, a="one", b="two"), steps(tmp_path, c="three", d="four")
    taken = Taken(a=second)
    spread.spread(client, first, act, taken.take)
    assert sorted(taken) == [("a", "one"), ("b", "two"), ("c", "three"), ("d", "four")]


def test_a_killed_workers_job_is_done_again(client, tmp_path):
    taken = Taken()
    spread.spread(client, steps(tmp_path, a="dies_once", b="one", c="two"), act, taken.take)
    assert sorted(taken) == [("a", "dies once"), ("b", "one"), ("c", "two")]


def test_a_job_that_kills_every_worker_is_given_up_and_told(client, tmp_path):
    taken = Taken()
    with pytest.raises(ClusterError, match="every worker that began it was killed: too little memory"):
        spread.spread(client, steps(tmp_path, a="dies"), act, taken.take)
    assert taken == []


def test_an_error_is_that_of_the_job_and_stops_the_others(client, tmp_path):
    taken = Taken()
    with pytest.raises(DataError, match=r"^there are no images$"):
        spread.spread(client, steps(tmp_path, a="waits", b="fails"), act, taken.take)
    assert taken == [("a", "stopped")]


def test_told_to_stop_the_workers_hand_over_what_they_have(client, tmp_path):
    taken = Taken(a=steps(tmp_path, d="never begun"))
    with pytest.raises(Interrupted):
        spread.spread(client, steps(tmp_path, a="waits", b="waits"), act, taken.take, lambda: (tmp_path / "b").exists())
    assert sorted(taken) == [("a", "stopped"), ("b", "stopped")]
    assert not (tmp_path / "d").exists()


def test_the_job_of_a_caller_that_is_gone_stops(address, tmp_path):
    with connected(address, None) as other:
        futures = [other.submit(spread.on_worker, act, step, versions(), "token") for step in steps(tmp_path, a="waits", b="waits")]
        while not all((tmp_path / name).exists() for name in "ab"):
            time.sleep(0.01)
    start = time.monotonic()
    with connected(address, None) as other:
        spread.spread(other, steps(tmp_path, c="one", d="two"), act, Taken().take)
    assert time.monotonic() - start < 30, "not the minute for which it would have waited"
    assert {future.status for future in futures} == {"cancelled"}


# --- what is refused


def test_a_cluster_without_dask_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    check_request(None, None)
    with pytest.raises(SpecError, match=r"^cluster and workers need Dask, .*: pip install 'dclib\[cluster\]'$"):
        check_request(None, 2)


def test_an_address_where_nobody_answers(monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    no_scheduler(port)


def test_an_address_where_something_else_answers(monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1)

    def answer():
        with server.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        no_scheduler(server.getsockname()[1])
        thread.join(10)


def no_scheduler(port):
    start = time.monotonic()
    sentence = rf"^no Dask scheduler answers at tcp://127\.0\.0\.1:{port}: [^.]+$"
    with pytest.raises(ClusterError, match=sentence), connected(f"tcp://127.0.0.1:{port}", None):
        pass
    assert time.monotonic() - start < 8


def test_a_worker_of_another_version_is_refused_and_both_are_named(client, address, monkeypatch, tmp_path, recwarn):
    ours = {**versions(), "torch": "1.13.1"}
    sentence = rf"^the worker tcp://\S+ has torch {versions()['torch'].partition('+')[0]} and this process torch 1\.13\.1: "
    for module in (cluster, spread):
        monkeypatch.setattr(module, "versions", lambda: ours)
    with pytest.raises(ClusterError, match=sentence), connected(address, None):
        pass
    with pytest.raises(ClusterError, match=sentence):  # one that has joined later
        spread.spread(client, steps(tmp_path, a="one"), act, Taken().take)
    assert not (tmp_path / "a").exists()
    assert not recwarn.list


@pytest.mark.parametrize(
    ("theirs", "part"),
    [
        ({"python": "3.12.1.final.0"}, "python 3.12 and this process python 3.11"),
        ({"dclib": "0.2.0"}, "dclib 0.2.0 and this process dclib 0.1.0"),
        ({"dclib": None}, "no dclib and this process dclib 0.1.0"),
        ({"torch": "2.9.0+cpu"}, None),
        ({"python": "3.11.9.final.0"}, None),
    ],
)
def test_which_versions_differ(theirs, part):
    ours = {"python": "3.11.7", "torch": "2.9.0+cu130", "dclib": "0.1.0"}
    error = mismatch("tcp://there:1", {**ours, **theirs}, ours)
    assert (part in str(error)) if part else error is None


def test_a_scheduler_without_workers_is_told(client, address, monkeypatch):
    monkeypatch.setattr(type(client), "get_versions", lambda self, packages: {"workers": {}})
    sentence = f"no workers yet: start some with `dask worker {address} --nthreads 1`"
    with pytest.warns(UserWarning, match=sentence), connected(address, None):
        pass


# --- declared runs


@pytest.fixture(scope="session")
def shorten(shorten_smoke):
    """Return a function that makes of `smoke` two sets of two networks for each cell, in a few steps, and gives some cells."""

    def shortened(monkeypatch):
        short = shorten_smoke(monkeypatch, outer_steps=3, sets=2, networks=2, random_sets=2)
        return experiments.CROSS_ARCH.cells(short, network=("MLP:width=8", "random"), test_network=("MLP:width=8", "LeNet"))

    return shortened


@pytest.fixture
def cells(monkeypatch, shorten):
    return shorten(monkeypatch)


NARROW = ("--networks", "MLP:width=8 random", "--test-networks", "MLP:width=8 LeNet")
OPTIONS = dict(device="cpu", engine="eager")


def computed(folder):
    """Every value on disk, by key and network; a set's is its hash."""
    found = {}
    for record in (record for records in Store(folder).records.values() for record in records):
        for network, value in (record.get("accuracies") or {"set": record["set_hash"]}).items():
            found.setdefault((record["key"], network), []).append(value)
    return found


@pytest.fixture(scope="module")
def serially(tmp_path_factory, shorten):
    """What one process computes, with as many threads of torch as each of two workers has."""
    folder = tmp_path_factory.mktemp("serially")
    with pytest.MonkeyPatch.context() as patch, halved():
        assert run.compute(shorten(patch), Store(folder), "smoke", **OPTIONS) == []
    return computed(folder)


@contextmanager
def halved():
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def half_the_threads():
    with halved():
        yield


def killed_once(job, folder, should_stop):
    """`run.alone`, but the first worker that condenses is killed in the midst of it."""
    marker, asked = Path(os.environ["KILLED"]), []

    def stop() -> bool:
        asked.append(True)
        if len(asked) > 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return should_stop()

    return run.alone(job, folder, stop)


def test_a_killed_workers_run_is_done_again_and_each_is_recorded_once(cells, address, tmp_path, serially, monkeypatch):
    monkeypatch.setattr(run, "alone", killed_once)
    assert run.compute(cells, Store(tmp_path), "smoke", cluster=address, **OPTIONS) == []
    assert Path(os.environ["KILLED"]).exists()
    assert computed(tmp_path) == serially, "the same to the last bit"
    assert {len(values) for values in serially.values()} == {1}


@pytest.mark.slow
def test_workers_of_this_machine_compute_what_one_process_does(cells, tmp_path, serially, capfd):
    environment = dict(os.environ)
    assert run.compute(cells[:2], Store(tmp_path), "smoke", workers=2, **OPTIONS) == []
    found = computed(tmp_path)
    assert found == {key: serially[key] for key in found}
    assert len(found) == 10
    assert not list(tmp_path.rglob("checkpoints/*.safetensors"))
    assert re.fullmatch(r"runs on worker processes: 6 of 6 in \d+ s\n", capfd.readouterr().err)
    assert dict(os.environ) == environment


def test_an_existing_cluster_computes_what_is_missing_once(cells, address, tmp_path, serially, capfd):
    command = ["run", "cross_arch", *NARROW, "--engine", "eager", "--results", str(tmp_path)]
    assert main([*command, "--cluster", address]) == 0
    out, _ = capfd.readouterr()
    assert computed(tmp_path) == serially
    assert "| MLP:width=8 " in out
    assert main([*command, "--cluster", address]) == 0
    assert capfd.readouterr() == (out, "")
    assert main(command) == 0
    assert capfd.readouterr() == (out, "")
    assert not list(tmp_path.rglob("checkpoints"))


def test_records_say_what_the_worker_was(cells, address, tmp_path):
    store = Store(tmp_path)
    run.compute(cells[:1], store, "smoke", cluster=address, **OPTIONS)
    for record in (record for records in store.records.values() for record in records):
        assert record["versions"] == versions()
        assert {"machine", "device", "engine", "seconds", "started", "peak_memory_mb", "data_hash", "set_hash"} <= set(record)


def test_a_runs_own_error_comes_back_as_its_sentence(cells, address, tmp_path, monkeypatch, capfd):
    command = ["run", "cross_arch", *NARROW, "--results", str(tmp_path), "--cluster", address]
    assert main([*command, "--datasets", "/nowhere/own.npz"]) == 1
    assert re.fullmatch(r"dclib: there is no file /nowhere/own.npz: [^\n]+\n", capfd.readouterr().err)
    assert main([*command, "--engine", "fast"]) == 1
    assert re.fullmatch(r"dclib: unknown engine 'fast': [^\n]+\n", capfd.readouterr().err)


# --- jobs


def test_a_set_is_made_once_for_all_cells_and_the_cheapest_run_is_first(cells, tmp_path):
    board = Board([*cells, *cells], Store(tmp_path), preset="smoke", **OPTIONS)
    jobs = board.begin()
    assert board.total == 12
    assert [type(job.run) for job in jobs] == [MakeSet] * 4
    assert [job.run.method for job in jobs] == ["random", "random", "condense", "condense"]
    assert len({job.run.key for job in jobs}) == 4


def test_what_comes_back_twice_is_recorded_once(cells, tmp_path):
    board = Board(cells, Store(tmp_path / "here"), preset="smoke", **OPTIONS)
    job = board.begin()[0]
    got = run.alone(job, tmp_path / "there", lambda: False)
    follow = board.take(job, got)
    assert [type(job.run) for job in follow] == [TrainNetworks] * 2
    assert board.take(job, got) == []
    other = Store(tmp_path / "here")  # that of another process
    trained = run.alone(follow[0], tmp_path / "elsewhere", lambda: False)
    for record in trained.records:
        assert other.add_once("smoke", record)
    assert board.take(follow[0], trained) == []
    assert {len(values) for values in computed(tmp_path / "here").values()} == {1}


def test_a_stopped_job_hands_over_the_networks_it_has_trained(cells, tmp_path, one_lane):
    store = Store(tmp_path / "here")
    board = Board(cells, store, preset="smoke", **OPTIONS)
    job = board.begin()[0]
    follow = board.take(job, run.alone(job, tmp_path / "there", lambda: False))[0]
    asked = iter([False] * 6)
    got = run.alone(follow, tmp_path / "elsewhere", lambda: next(asked, True))
    assert isinstance(got.error, Interrupted)
    assert board.take(follow, got) == []
    assert store.missing(follow.run) == [1]
    rest = next(job for job in Board(cells, store, preset="smoke", **OPTIONS).begin() if job.run.key == follow.run.key)
    assert [list(r["accuracies"]) for r in run.alone(rest, tmp_path / "again", lambda: False).records] == [["1"]]


def test_a_set_under_way_goes_on_from_the_callers_checkpoint(cells, tmp_path, serially, half_the_threads):
    store = Store(tmp_path / "here")
    board = Board(cells, store, preset="smoke", checkpoints=store.root, **OPTIONS)
    job = board.begin()[-1]
    asked = iter([False] * 3)
    got = run.alone(job, tmp_path / "there", lambda: next(asked, True))
    assert "2 of 3 outer steps" in str(got.error)
    assert (board.take(job, got), got.records) == ([], ())
    checkpoint = store.checkpoint_path("smoke", job.run.key)
    assert checkpoint.exists()
    got = run.alone(job, tmp_path / "elsewhere", lambda: False)
    assert checkpoint.exists(), "until the set is kept here"
    assert len(board.take(job, got)) == 2
    assert not checkpoint.exists()
    assert computed(store.root)[job.run.key, "set"] == serially[job.run.key, "set"]


# --- jobs that stand on a training on the whole set


@pytest.fixture
def coresets(monkeypatch):
    """Guided choices at one and two images per class, and the whole set's row, all of one training."""
    smoke = experiments.SMOKE
    short = dataclasses.replace(
        smoke,
        training=lambda cell: dataclasses.replace(smoke.training(cell), epochs=2),
        whole=lambda cell, seed: WholeTraining(cell.dataset, ConvNet(width=4, depth=2), epochs=1, batch=400, seed=seed),
    )
    monkeypatch.setitem(experiments.PRESETS, "smoke", short)
    return experiments.CORESETS.cells(short, network=("herding", "forgetting", "whole"), ipc=(1, 2), test_network="MLP:width=8")


def begun(jobs):
    return [type(job.run) for job in jobs]


def all_done(board, folder, jobs):
    """Do jobs and those that follow, each in a folder of its own, as workers do; returns them in order."""
    done = []
    while jobs:
        job, *jobs = jobs
        done.append(job)
        got = run.alone(job, folder / str(len(done)), lambda: False)
        assert got.error is None
        jobs += board.take(job, got)
    return done


@pytest.mark.parametrize("shares", [False, True], ids=["with disks of their own", "on one disk"])
def test_the_whole_training_is_done_once_before_what_stands_on_it(coresets, tmp_path, shares):
    store = Store(tmp_path / "here")
    board = Board(coresets, store, preset="smoke", checkpoints=store.root if shares else None, **OPTIONS)
    jobs = board.begin()
    assert (begun(jobs), board.total) == ([WholeTraining], 9)
    done = all_done(board, tmp_path / "workers", jobs)
    assert begun(done) == [WholeTraining] + [MakeSet] * 4 + [TrainNetworks] * 4
    assert all((job.state is None) == (shares or not isinstance(job.run, MakeSet)) for job in done)
    assert store.incomplete(coresets) == []
    assert {len(values) for values in computed(store.root).values()} == {1}
    assert store.is_trained(jobs[0].run)
    assert Board(coresets, store, preset="smoke", **OPTIONS).begin() == []


def test_recorded_indices_need_no_training_and_a_lost_state_is_made_again(coresets, tmp_path):
    store, first = Store(tmp_path / "here"), coresets[:1]
    board = Board(first, store, preset="smoke", **OPTIONS)
    whole, *_ = all_done(board, tmp_path / "workers", board.begin())
    store.whole_path("smoke", whole.run.key).unlink()
    assert begun(Board(coresets, store, preset="smoke", **OPTIONS).begin()) == [WholeTraining]
    again = [dataclasses.replace(first[0], networks=2)]
    assert begun(Board(again, store, preset="smoke", **OPTIONS).begin()) == [TrainNetworks]
    assert not store.is_trained(whole.run)


def test_a_stopped_training_on_the_whole_set_goes_on_from_what_came_back(coresets, tmp_path):
    store = Store(tmp_path / "here")
    board = Board(coresets, store, preset="smoke", **OPTIONS)
    (job,) = board.begin()
    asked = iter([False] * 3)
    got = run.alone(job, tmp_path / "there", lambda: next(asked, True))
    assert "stopped after 2 of 3 steps" in str(got.error)
    assert (board.take(job, got), got.records) == ([], ())
    assert not store.is_trained(job.run)
    (rest,) = Board(coresets, store, preset="smoke", **OPTIONS).begin()
    assert rest.state == got.state
    asked = iter([False] * 2)
    assert run.alone(rest, tmp_path / "elsewhere", lambda: next(asked, True)).error is None, "one step is left"


def test_a_cluster_computes_coresets(coresets, address, tmp_path, capfd):
    assert run.compute(coresets, Store(tmp_path / "spread"), "smoke", cluster=address, **OPTIONS) == []
    assert run.compute(coresets, Store(tmp_path / "serial"), "smoke", **OPTIONS) == []
    assert len(computed(tmp_path / "spread")) == len(computed(tmp_path / "serial")) == 9
    assert {len(values) for values in computed(tmp_path / "spread").values()} == {1}


# --- stopped


LONG = """
import dataclasses, sys
from dclib import experiments
from dclib.cli import main
smoke = experiments.SMOKE
long = dataclasses.replace(smoke, condensation=lambda cell: dataclasses.replace(smoke.condensation(cell), outer_steps={steps}))
experiments.PRESETS["smoke"] = long
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_where_the_rest_is(tmp_path):
    """Ctrl-C reaches a terminal's whole group of processes; the workers heed only their caller."""
    (tmp_path / "command.py").write_text(LONG.format(steps=100_000))
    command = [sys.executable, "-W", "error", "command.py", "run", "method", "--networks", "MLP:width=8 random"]
    command += ["--test-networks", "MLP:width=8", "--engine", "eager", "--results", "results", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        try:
            while sum(network != "set" for _, network in computed(tmp_path / "results")) < 5:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.1)
            os.killpg(process.pid, signal.SIGINT)
            err = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert [line for line in err.splitlines() if line and " left, " not in line] == [  # a slow machine reports its progress
        "stopping after this step; Ctrl-C again stops at once",
        "dclib: stopped after 10 of 12 runs; the same command goes on from there",
    ]
    values = computed(tmp_path / "results")
    assert len(values) == 10
    assert {len(value) for value in values.values()} == {1}
    (checkpoint,) = (tmp_path / "results").rglob("checkpoints/*.safetensors")
    assert checkpoint.stat().st_size > 10_000
