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
from functools import partial

import pytest
import torch

from dclib import experiments
from dclib.cli.main import main
from dclib.errors import ClusterError, Interrupted, SpecError
from dclib.results import Store
from dclib.run import cluster, workers
from dclib.run import compute as run
from dclib.run.cluster import check_request, connected, mismatch
from dclib.run.workers import Done, Job, do, on_worker
from dclib.spec import ConvNet, MakeSet, WholeTraining
from dclib.support.provenance import versions


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two worker processes for all tests here; a job may lose two workers."""
    with pytest.MonkeyPatch.context() as patch:
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


def test_a_worker_of_another_version_is_refused_and_both_are_named(client, address, monkeypatch, recwarn):
    ours = {**versions(), "torch": "1.13.1"}
    sentence = rf"^the worker tcp://\S+ has torch {versions()['torch'].partition('+')[0]} and this process torch 1\.13\.1: "
    with pytest.raises(ClusterError, match=sentence):  # one that has joined later
        client.submit(on_worker, Job(MakeSet("digits"), "smoke", HOW, versions=ours)).result()
    monkeypatch.setattr(cluster, "versions", lambda: ours)
    with pytest.raises(ClusterError, match=sentence), connected(address, None):
        pass
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
HOW = ("cpu", "eager")


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


def killed_once(marker, job, *needs):
    """`on_worker`, but the first worker at such a run is killed in the midst of it."""
    whole = workers.do

    def dying(job, needs, folder, should_stop):
        asked = []

        def stop() -> bool:
            asked.append(True)
            if len(asked) > 2 and type(job.run).__name__ in marker.name and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return should_stop()

        return whole(job, needs, folder, stop)

    workers.do = dying
    try:
        return on_worker(job, *needs)
    finally:
        workers.do = whole


def always_killed(job, *needs):
    time.sleep(1)  # its nanny must have seen it start
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", ["MakeSet", "TrainNetworks"])
def test_a_killed_workers_run_is_done_again_and_each_is_recorded_once(cells, client, tmp_path, serially, monkeypatch, kind):
    """So is a set that was on the worker, and that other runs still need."""
    marker = tmp_path / f"killed at {kind}"
    monkeypatch.setattr(workers, "on_worker", partial(killed_once, marker))
    assert run.compute(cells, Store(tmp_path / "results"), "smoke", cluster=client.scheduler.address, **OPTIONS) == []
    assert marker.exists()
    assert computed(tmp_path / "results") == serially, "the same to the last bit"
    assert {len(values) for values in serially.values()} == {1}


def test_a_run_that_kills_every_worker_is_given_up_and_told(cells, address, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "on_worker", always_killed)
    with pytest.raises(ClusterError, match="every worker that began it was killed: too little memory"):
        run.compute([dataclasses.replace(cells[0], sets=1)], Store(tmp_path), "smoke", cluster=address, **OPTIONS)


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
    for where in (["--cluster", address], []):
        assert main([*command, *where]) == 0
        assert capfd.readouterr() == (out, "")
    assert not list(tmp_path.rglob("checkpoints"))
    records = [record for records in Store(tmp_path).records.values() for record in records]
    assert all(record["versions"] == versions() and record["machine"] for record in records), "they say what the worker was"


def test_a_runs_own_error_comes_back_as_its_sentence(cells, address, tmp_path, capfd):
    command = ["run", "cross_arch", *NARROW, "--results", str(tmp_path), "--cluster", address]
    assert main([*command, "--datasets", "/nowhere/own.npz"]) == 1
    assert re.fullmatch(r"dclib: there is no file [^\n]*/nowhere/own.npz: [^\n]+\n", capfd.readouterr().err)
    assert main([*command, "--engine", "fast"]) == 1
    assert re.fullmatch(r"dclib: unknown engine 'fast': [^\n]+\n", capfd.readouterr().err)


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


def test_a_cluster_does_first_what_runs_need(coresets, address, tmp_path):
    """The training on the whole set is done once; if its state is lost it is done again, unless indices are recorded."""
    store = Store(tmp_path / "spread")
    assert run.compute(coresets, store, "smoke", cluster=address, **OPTIONS) == []
    assert run.compute(coresets, Store(tmp_path / "serial"), "smoke", **OPTIONS) == []
    assert len(computed(store.root)) == len(computed(tmp_path / "serial")) == 9
    (whole,) = {cell.runs()[0] for cell in coresets if cell.network == "whole"}
    assert store.has(whole)
    store.whole_path("smoke", whole.key).unlink()
    more = [dataclasses.replace(cell, networks=2) for cell in coresets]
    assert run.compute(more, store, "smoke", cluster=address, **OPTIONS) == []
    assert not store.has(whole)
    assert {len(values) for values in computed(store.root).values()} == {1}


# --- what a worker returns


def test_what_comes_back_twice_is_recorded_once(cells, tmp_path):
    trained = cells[0].runs()[0]
    made = do(Job(trained.set, "smoke", HOW), (), tmp_path / "a", lambda: False)
    found = do(Job(trained, "smoke", HOW), [made], tmp_path / "b", lambda: False)
    for store in (Store(tmp_path / "here"), Store(tmp_path / "here")):  # that of another process, too
        for each in (made, found):
            each.unpack(store, "smoke")
    assert {len(values) for values in computed(tmp_path / "here").values()} == {1}
    assert Store(tmp_path / "here").missing(trained) == []


def test_a_stopped_run_hands_over_the_networks_it_has_trained(cells, tmp_path, one_lane):
    trained, store = cells[0].runs()[0], Store(tmp_path / "here")
    made = do(Job(trained.set, "smoke", HOW), (), tmp_path / "a", lambda: False)
    asked = iter([False] * 6)
    found = do(Job(trained, "smoke", HOW), [made], tmp_path / "b", lambda: next(asked, True))
    assert isinstance(found.error, Interrupted)
    found.unpack(store, "smoke")
    assert store.missing(trained) == [1]
    rest = do(Job(trained, "smoke", HOW, known=Done.found(trained, store)), [made], tmp_path / "c", lambda: False)
    assert [list(record["accuracies"]) for record in rest.records] == [["0"], ["1"]]


@pytest.mark.parametrize("shares", [False, True], ids=["with disks of their own", "on one disk"])
def test_stopped_trainings_on_the_whole_set_go_on_from_what_was_left(coresets, tmp_path, shares):
    store, whole = Store(tmp_path / "here"), next(cell.runs()[0] for cell in coresets if cell.network == "whole")
    job = Job(whole, "smoke", HOW, store.root if shares else None)
    asked = iter([False] * 3)
    found = do(job, (), tmp_path / "a", lambda: next(asked, True))
    assert "stopped after 2 of 3 steps" in str(found.error)
    assert bool(found.files) is not shares
    found.unpack(store, "smoke")
    asked = iter([False] * 2)
    again = dataclasses.replace(job, known=Done.found(whole, store))
    assert do(again, (), tmp_path / "b", lambda: next(asked, True)).error is None, "one step is left"


def test_a_set_under_way_goes_on_from_the_callers_checkpoint(cells, tmp_path, serially, half_the_threads):
    store, made = Store(tmp_path / "here"), cells[0].runs()[0].set
    job, asked = Job(made, "smoke", HOW, store.root), iter([False] * 3)
    found = do(job, (), tmp_path / "a", lambda: next(asked, True))
    assert "2 of 3 outer steps" in str(found.error)
    assert not found.records
    assert store.checkpoint_path("smoke", made.key).exists()
    do(job, (), tmp_path / "b", lambda: False).unpack(store, "smoke")
    assert store.checkpoint_path("smoke", made.key).exists(), "until the set is kept here"
    assert computed(store.root)[made.key, "set"] == serially[made.key, "set"]


def test_the_run_of_a_caller_that_is_gone_stops(cells, address, tmp_path):
    long = dataclasses.replace(cells[0].runs()[0].set, hyper=dataclasses.replace(cells[0].make_set(0).hyper, outer_steps=10**6))
    with connected(address, None) as other:
        jobs = [Job(dataclasses.replace(long, seed=seed), "smoke", HOW, versions=versions()) for seed in range(2)]
        futures = [other.submit(on_worker, job) for job in jobs]
        while sum(map(len, other.processing().values())) < 2:
            time.sleep(0.01)
    assert len(futures) == 2
    start = time.monotonic()
    assert run.compute(cells[:1], Store(tmp_path), "smoke", cluster=address, **OPTIONS) == []
    assert time.monotonic() - start < 150, "a million steps would take longer"


# --- stopped


LONG = """
import dataclasses, sys
from dclib import experiments
from dclib.cli.main import main
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
