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

import pytest
import torch
from helpers import stop_after

from dclib import experiments
from dclib.errors import ClusterError, SpecError
from dclib.results import Store
from dclib.run import cluster
from dclib.run.cluster import check_request, connected, mismatch
from dclib.run.compute import compute
from dclib.run.workers import Done, Job, do
from dclib.spec import ConvNet, WholeTraining
from dclib.support.provenance import versions

HOW = ("cpu", "eager")
OPTIONS = dict(device="cpu", engine="eager")
NARROW = ("--networks", "MLP:width=8 random", "--test-networks", "MLP:width=8 LeNet")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client():
    """Two worker processes, for all tests that leave them alive."""
    with connected(None, 2) as client:
        yield client


@pytest.fixture
def mortal(monkeypatch):
    """Two worker processes for a test that kills them; a run may lose one.

    Dask replaces a killed worker, but not one that is killed while it starts: such a cluster may never be whole again.
    """
    monkeypatch.setattr(cluster, "KILLS", 1)
    with connected(None, 2) as client:
        yield client


@pytest.fixture
def address(client) -> str:
    return client.scheduler.address


# --- what is refused


def test_a_cluster_without_dask_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    check_request(None, None)
    with pytest.raises(SpecError, match=r"^cluster and workers need Dask, .*: pip install 'dclib\[cluster\]'$"):
        check_request(None, 2)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["nobody", "something else"])
def test_an_address_where_no_scheduler_answers(monkeypatch, answer):
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1)
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def speak():
        with server.accept()[0] as connection:
            connection.sendall(answer)

    if answer:
        threading.Thread(target=speak, daemon=True).start()
    else:
        server.close()
    start, sentence = time.monotonic(), rf"^no Dask scheduler answers at tcp://127\.0\.0\.1:{port}: [^.]+$"
    with pytest.raises(ClusterError, match=sentence), connected(f"tcp://127.0.0.1:{port}", None):
        pass
    assert time.monotonic() - start < 20
    server.close()


def test_a_worker_of_another_version_is_refused_and_both_are_named(address, monkeypatch, recwarn):
    monkeypatch.setattr(cluster, "versions", lambda: {**versions(), "torch": "1.13.1"})
    sentence = rf"^the worker tcp://\S+ has torch {versions()['torch'].partition('+')[0]} and this process torch 1\.13\.1: "
    with pytest.raises(ClusterError, match=sentence), connected(address, None):
        pass
    assert not recwarn.list
    ours = {"python": "3.11.7", "torch": "2.9.0+cu130", "dclib": "0.1.0"}
    for theirs, part in (
        ({"python": "3.12.1.final.0"}, "python 3.12 and this process python 3.11"),
        ({"dclib": None}, "no dclib and this process dclib 0.1.0"),
        ({"torch": "2.9.0+cpu", "python": "3.11.9.final.0"}, "None"),
    ):
        assert part in str(mismatch("tcp://there:1", {**ours, **theirs}, ours))


def test_a_scheduler_without_workers_is_told():
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        sentence = f"no workers yet: start some with `dask worker {address} --nthreads 1`"
        with pytest.warns(UserWarning, match=sentence), connected(address, None):
            pass


# --- declared runs


@pytest.fixture(scope="session")
def shorten(shorten_smoke):
    """Return a function that makes of `smoke` two sets of two networks for each cell, in a few steps, and gives some cells."""

    def shortened(monkeypatch, outer_steps=3):
        short = shorten_smoke(monkeypatch, outer_steps, sets=2, networks=2, random_sets=2)
        return experiments.CROSS_ARCH.cells(short, network=("MLP:width=8", "random"), test_network=("MLP:width=8", "LeNet"))

    return shortened


@pytest.fixture
def cells(monkeypatch, shorten):
    return shorten(monkeypatch)


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
    folder, threads = tmp_path_factory.mktemp("serially"), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        torch.set_num_threads(max(1, threads // 2))
        assert compute(shorten(patch), Store(folder), "smoke", **OPTIONS) == []
        torch.set_num_threads(threads)
    return computed(folder)


def kill_workers(client, times, ready=lambda: True):
    """Kill (SIGKILL) the worker that is at work, so many times, in a thread beside the test."""

    def kill():
        for _ in range(times):
            working = []
            while not (working and ready()):
                time.sleep(0.01)
                working = [worker for worker, tasks in client.processing().items() if tasks]
            pids = client.run(os.getpid, workers=working[:1], on_error="ignore")
            for pid in pids.values():
                if isinstance(pid, int):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("records", [0, 4], ids=["making a set", "when sets are made"])
def test_a_killed_workers_run_is_done_again_and_each_is_recorded_once(cells, mortal, tmp_path, serially, records):
    """So is a set that was on the worker, and that other runs still need."""
    store = Store(tmp_path / "results")
    killer = kill_workers(mortal, 1, lambda: len(computed(store.root)) >= records)
    assert compute(cells, store, "smoke", cluster=mortal.scheduler.address, **OPTIONS) == []
    killer.join(60)
    assert computed(store.root) == serially, "the same to the last bit"
    assert {len(values) for values in serially.values()} == {1}


def test_a_run_that_kills_every_worker_is_given_up_and_told(mortal, shorten, tmp_path, monkeypatch):
    endless = [dataclasses.replace(cell, sets=1) for cell in shorten(monkeypatch, 10**6) if cell.network != "random"][:1]
    kill_workers(mortal, 2)
    with pytest.raises(ClusterError, match="every worker that began it was killed: too little memory"):
        compute(endless, Store(tmp_path), "smoke", cluster=mortal.scheduler.address, **OPTIONS)


def test_workers_of_this_machine_compute_what_one_process_does(cells, tmp_path, serially, capfd):
    environment = dict(os.environ)
    assert compute(cells[:2], Store(tmp_path), "smoke", workers=2, **OPTIONS) == []
    found = computed(tmp_path)
    assert found == {key: serially[key] for key in found}
    assert len(found) == 10
    assert not list(tmp_path.rglob("checkpoints/*.safetensors"))
    assert re.fullmatch(r"runs on worker processes: 6 of 6 in \d+ s\n", capfd.readouterr().err)
    assert dict(os.environ) == environment


def test_an_existing_cluster_computes_what_is_missing_once(cells, address, tmp_path, serially, command):
    request = ["run", "cross_arch", *NARROW, "--engine", "eager", "--results", tmp_path]
    status, out, _ = command(*request, "--cluster", address)
    assert (status, computed(tmp_path)) == (0, serially)
    assert "| MLP:width=8 " in out
    for where in (["--cluster", address], []):
        assert command(*request, *where) == (0, out, "")
    assert not list(tmp_path.rglob("checkpoints"))
    records = [record for records in Store(tmp_path).records.values() for record in records]
    assert all(record["versions"] == versions() and record["machine"] for record in records), "they say what the worker was"


def test_a_runs_own_error_comes_back_as_its_sentence(cells, address, command, refused):
    request = ["run", "cross_arch", *NARROW, "--cluster", address]
    refused(command(*request, "--datasets", "/nowhere/own.npz"), "there is no file /nowhere/own.npz")
    refused(command(*request, "--engine", "fast"), "unknown engine 'fast'")


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
    assert compute(coresets, store, "smoke", cluster=address, **OPTIONS) == []
    assert compute(coresets, Store(tmp_path / "serial"), "smoke", **OPTIONS) == []
    assert len(computed(store.root)) == len(computed(tmp_path / "serial")) == 9
    (whole,) = {cell.runs()[0] for cell in coresets if cell.network == "whole"}
    assert store.has(whole)
    store.whole_path("smoke", whole.key).unlink()
    more = [dataclasses.replace(cell, networks=2) for cell in coresets]
    assert compute(more, store, "smoke", cluster=address, **OPTIONS) == []
    assert not store.has(whole)
    assert {len(values) for values in computed(store.root).values()} == {1}


# --- what a worker returns


def test_a_stopped_run_hands_over_what_it_has_and_each_is_recorded_once(cells, tmp_path, one_lane):
    trained, store = cells[0].runs()[0], Store(tmp_path / "here")
    made = do(Job(trained.set, "smoke", HOW), (), tmp_path / "a", lambda: False)
    found = do(Job(trained, "smoke", HOW), [made], tmp_path / "b", stop_after(6))
    for come in (made, found, made, found):
        come.unpack(Store(store.root), "smoke")
    assert store.missing(trained) == [1]
    rest = do(Job(trained, "smoke", HOW, known=Done.found(trained, store)), [made], tmp_path / "c", lambda: False)
    assert [list(record["accuracies"]) for record in rest.records] == [["0"], ["1"]]
    rest.unpack(store, "smoke")
    assert {len(values) for values in computed(store.root).values()} == {1}


@pytest.mark.parametrize("shares", [False, True], ids=["with disks of their own", "on one disk"])
def test_stopped_trainings_on_the_whole_set_go_on_from_what_was_left(coresets, tmp_path, shares):
    store, whole = Store(tmp_path / "here"), next(cell.runs()[0] for cell in coresets if cell.network == "whole")
    job = Job(whole, "smoke", HOW, store.root if shares else None)
    found = do(job, (), tmp_path / "a", stop_after(3))
    assert "stopped after 2 of 3 steps" in str(found.error)
    assert bool(found.files) is not shares
    found.unpack(store, "smoke")
    again = dataclasses.replace(job, known=Done.found(whole, store))
    assert do(again, (), tmp_path / "b", stop_after(2)).error is None, "one step is left"


def test_the_run_of_a_caller_that_is_gone_stops(cells, client, shorten, tmp_path):
    """A process that computes what takes a million steps is killed; its workers are free for others."""
    (tmp_path / "command.py").write_text(LONG.format(steps=10**6))
    command = [sys.executable, "command.py", "run", "method", "--networks", "MLP:width=8", "--test-networks", "MLP:width=8"]
    command += ["--engine", "eager", "--results", "gone", "--cluster", client.scheduler.address]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        while sum(map(len, client.processing().values())) < 1:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    start = time.monotonic()
    assert compute(cells[:1], Store(tmp_path), "smoke", cluster=client.scheduler.address, **OPTIONS) == []
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
        "stopping; Ctrl-C again stops at once",
        "dclib: stopped after 10 of 12 runs; the same command goes on from there",
    ]
    values = computed(tmp_path / "results")
    assert len(values) == 10
    assert {len(value) for value in values.values()} == {1}
    (checkpoint,) = (tmp_path / "results").rglob("checkpoints/*.safetensors")
    assert checkpoint.stat().st_size > 10_000
