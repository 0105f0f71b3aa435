"""Interruptions, full disks and damaged files: a run goes on to the identical result, and what was whole stays whole."""

import dataclasses
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dclib.core.condense as algorithm
from dclib.cli.main import main
from dclib.core import engine, lanes, resume, train
from dclib.core.checkpoint import load_tensors, save_tensors
from dclib.core.inner import InnerStep
from dclib.errors import FileError, Interrupted
from dclib.results import CondensedSet, Store
from dclib.run import compute as run
from dclib.run import sets
from dclib.spec import Condensation, Network
from dclib.support import files

REQUEST = ("condense", "digits", "--image-size", "8", "--network", "ConvNet:width=8,depth=2", "-K", "12", "--real-batch", "8")
REQUEST += ("-o", "set")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", 0.0)  # after each outer step
    return tmp_path


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> CondensedSet:
    """The set that REQUEST makes when nothing stops it."""
    path = tmp_path_factory.mktemp("uninterrupted") / "set"
    assert main([*REQUEST[:-1], str(path)]) == 0
    return CondensedSet.load(path)


def identical(made: CondensedSet, other: CondensedSet) -> bool:
    return made.images.tobytes() == other.images.tobytes() and made.about["losses"] == other.about["losses"]


def refused(capsys, status: int, *parts: str) -> None:
    """Check that the last call of the command failed in one sentence."""
    err = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dclib: ")]
    assert status == 1
    assert len(err) == 1
    for part in parts:
        assert part in err[0]


# --- condensing, stopped in every way


KILLED_IN_A_STEP = """
draw = dclib.core.inner.InnerStep.draw
def drawn(self, k, t):
    if k == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    draw(self, k, t)
dclib.core.inner.InnerStep.draw = drawn
"""
KILLED_WHILE_SAVING = """
replace, calls = os.replace, []
def killed(*arguments):
    calls.append(arguments)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*arguments)
os.replace = killed
"""
WAITING_IN_A_STEP = """
draw = dclib.core.inner.InnerStep.draw
def drawn(self, k, t):
    if k == 6:
        open("waiting", "w").close()
        while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # that is, until a first signal has come
            time.sleep(0.01)
    draw(self, k, t)
dclib.core.inner.InnerStep.draw = drawn
"""
NO_ROOM = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))"
CHILDREN = {"killed in a step": KILLED_IN_A_STEP, "killed while saving": KILLED_WHILE_SAVING}
CHILDREN |= {"waiting": WAITING_IN_A_STEP, "no room": NO_ROOM}


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    """The command in processes of its own, all at once, since each loads torch: for each its folder and the process."""
    found = {}
    for name, before in CHILDREN.items():
        folder = tmp_path_factory.mktemp("child")
        code = f"import os, signal, sys, time\nimport dclib.core.condense\nfrom dclib.cli.main import main\n{before}\n"
        code += f"dclib.core.resume.CHECKPOINT_SECONDS = 0\nsys.exit(main({[*REQUEST, '--force']}))"
        (folder / "set").write_bytes(b"an older file")
        found[name] = folder, subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, cwd=folder)
    yield found
    for _, process in found.values():
        process.kill()
        process.communicate()


def goes_on(folder: Path, uninterrupted: CondensedSet, k: int) -> bool:
    """Whether an interrupted child left the older file alone and a checkpoint at step k, from which it goes on."""
    assert (folder / "set").read_bytes() == b"an older file"
    assert json.loads(metadata(folder / "set.checkpoint"))["k"] == k
    assert main([*REQUEST[:-1], str(folder / "set"), "--force"]) == 0
    assert {p.name for p in folder.iterdir()} <= {"set", "waiting"}, "the checkpoint and every part of a file are gone"
    return identical(CondensedSet.load(folder / "set"), uninterrupted)


@pytest.mark.parametrize(("name", "k"), [("killed in a step", 7), ("killed while saving", 4)])
def test_killed_it_goes_on_to_the_identical_set(children, uninterrupted, name, k):
    folder, process = children[name]
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    assert goes_on(folder, uninterrupted, k)


def test_terminated_it_goes_on_to_the_identical_set(children, uninterrupted):
    folder, process = children["waiting"]
    while not (folder / "waiting").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    err = process.communicate(timeout=100)[1]
    assert process.returncode == 130
    assert "dclib: stopped after 7 of 12 outer steps; the same command goes on from there" in err
    assert "Traceback" not in err
    assert goes_on(folder, uninterrupted, 7)


def test_a_disk_with_no_room_keeps_the_older_file(children):
    folder, process = children["no room"]
    err = process.communicate(timeout=100)[1]
    assert process.returncode == 1
    assert "dclib: cannot write set.checkpoint: file too large" in err
    assert "Traceback" not in err
    assert [(p.name, p.read_bytes()) for p in folder.iterdir()] == [("set", b"an older file")]


def metadata(path: Path) -> str:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return file.metadata()["dclib"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_every_signal_is_obeyed_at_the_next_step(place, uninterrupted, monkeypatch, capsys, number):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    for k in (2, 3, 9):
        with monkeypatch.context() as patched:
            interrupt_at(patched, k, number)
            assert main([*REQUEST]) == 130
        assert f"stopped after {k} of 12 outer steps; the same command goes on from there" in capsys.readouterr().err
        assert json.loads(metadata(place / "set.checkpoint"))["k"] == k
    assert main([*REQUEST]) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def interrupt_at(monkeypatch, k: int, number: int, times: int = 1) -> None:
    draw = InnerStep.draw

    def drawn(self, step: int, t: int):
        if step == k - 1:
            for _ in range(times):
                signal.raise_signal(number)
        return draw(self, step, t)

    monkeypatch.setattr(InnerStep, "draw", drawn)


def test_a_second_ctrl_c_ends_at_once_and_loses_one_step(place, uninterrupted, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 5, signal.SIGINT, times=2)
        assert main([*REQUEST]) == 130
    assert json.loads(metadata(place / "set.checkpoint"))["k"] == 4
    assert main([*REQUEST]) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)


class Countdown:
    """Tells to stop at each of the given calls."""

    def __init__(self, stops: list[int]):
        self.stops, self.calls = set(stops), 0

    def __call__(self) -> bool:
        self.calls += 1
        return self.calls in self.stops


@settings(max_examples=4, deadline=None, derandomize=True)
@given(stops=st.lists(st.integers(1, 9), max_size=3), ipc=st.integers(2, 3), norm=st.sampled_from(["instance", "batch"]))
def test_any_interruptions_between_inner_steps_change_nothing(tmp_path_factory, stops, ipc, norm):
    network = Network.make("ConvNet", width=4, depth=1, norm=norm)
    hyper = Condensation(ipc=ipc, network=network, outer_steps=2, inner_steps=3, network_epochs=2, network_batch=8, real_batch=4)
    dataset, path, stop = sets.load("digits", 8), tmp_path_factory.mktemp("stops") / "checkpoint", Countdown(stops)
    while True:
        try:
            state = algorithm.condense(dataset, hyper, seed=1, device="cpu", engine="eager", checkpoint=path, should_stop=stop)
            break
        except Interrupted:
            assert path.exists()
    whole = algorithm.condense(dataset, hyper, seed=1, device="cpu", engine="eager")
    assert torch.equal(state.images, whole.images)
    assert torch.equal(state.velocity, whole.velocity)
    assert state.losses == whole.losses


# --- checkpoints that cannot be used


def tensors() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(3, 1, 1, 4, 4, generator=draw) for name in ("images", "velocity")}


ABOUT = {"k": 2, "losses": [3.5, 2.5], "seconds": 1.25}
IDENTITY = {"run": "ab12", "data": "cd34", "seed": 0, "engine": "eager"}


def reads_the_same(path: Path) -> bool:
    found, about = load_tensors(path, IDENTITY, set(tensors()))
    return about == ABOUT | IDENTITY and all(torch.equal(tensor, found[name]) for name, tensor in tensors().items())


def test_a_checkpoint_is_read_back(place):
    save_tensors(place / "c", tensors(), ABOUT, IDENTITY)
    assert reads_the_same(place / "c")


@pytest.mark.parametrize("name", IDENTITY)
def test_a_checkpoint_of_another_run_is_refused(place, name):
    save_tensors(place / "c", tensors(), ABOUT, IDENTITY)
    advice = "go on with --engine eager, or delete it" if name == "engine" else "delete it or name another"
    with pytest.raises(FileError, match=rf"belongs to another run \(its {name} differ\): {advice}$"):
        load_tensors(place / "c", IDENTITY | {name: "else"}, set())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_checkpoint_with_one_wrong_byte_is_refused_or_reads_the_same(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("byte") / "c"
    save_tensors(path, tensors(), ABOUT, IDENTITY)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        assert reads_the_same(path)
    except FileError as error:
        assert "\n" not in str(error)


def test_a_checkpoint_cut_short_anywhere_is_refused(place):
    save_tensors(place / "c", tensors(), ABOUT, IDENTITY)
    whole = (place / "c").read_bytes()
    for length in range(0, len(whole), 5):
        (place / "c").write_bytes(whole[:length])
        with pytest.raises(FileError, match="is damaged: delete it to start this run again"):
            load_tensors(place / "c", IDENTITY, set())


def test_the_command_refuses_a_checkpoint_that_it_cannot_use(place, capsys):
    save_tensors(place / "set.checkpoint", tensors(), ABOUT, IDENTITY)
    for damaged in ((place / "set.checkpoint").read_bytes()[:-9], b"", b"junk" * 50):
        (place / "set.checkpoint").write_bytes(damaged)
        refused(capsys, main([*REQUEST]), "set.checkpoint is damaged", "delete it")
        assert (place / "set.checkpoint").read_bytes() == damaged
    save_tensors(place / "set.checkpoint", tensors(), ABOUT, IDENTITY)
    refused(capsys, main([*REQUEST]), "belongs to another run", "delete it")
    assert not (place / "set").exists()


# --- disks that are full


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_full_at_a_checkpoint_keeps_the_one_before(place, uninterrupted, monkeypatch, capsys):
    calls = []

    def fsync(handle):
        calls.append(handle)
        if len(calls) == 4:
            full_disk()

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", fsync)
        refused(capsys, main([*REQUEST]), "set.checkpoint", "no space left", "free some space")
    assert json.loads(metadata(place / "set.checkpoint"))["k"] == 3
    assert sorted(p.name for p in place.iterdir()) == ["set.checkpoint"]
    assert main([*REQUEST]) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)


def test_a_disk_full_at_the_end_keeps_the_old_set_and_the_work(place, uninterrupted, monkeypatch, capsys):
    dataclasses.replace(uninterrupted, key="another").save(place / "set")
    old = (place / "set").read_bytes()
    replace = os.replace

    def only_checkpoints(source, target):
        return replace(source, target) if str(target).endswith(".checkpoint") else full_disk()

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", only_checkpoints)
        refused(capsys, main([*REQUEST, "--force"]), "cannot write set", "no space left")
    assert (place / "set").read_bytes() == old
    assert json.loads(metadata(place / "set.checkpoint"))["k"] == 12
    assert main([*REQUEST, "--force"]) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)


def test_a_picture_that_cannot_be_written_leaves_the_old_one(place, uninterrupted, monkeypatch, capsys):
    uninterrupted.save(place / "set")
    (place / "set.png").write_bytes(b"a picture")
    monkeypatch.setattr(files.os, "fsync", full_disk)
    refused(capsys, main(["show", "set"]), "set.png", "no space left")
    assert (place / "set.png").read_bytes() == b"a picture"
    assert sorted(p.name for p in place.iterdir()) == ["set", "set.png"]


# --- declared runs


@pytest.fixture
def tiny(monkeypatch, shorten_smoke):
    """`smoke` with two sets of three networks, in a few steps and epochs."""
    return shorten_smoke(monkeypatch, outer_steps=4, sets=2, networks=3, random_sets=1)


RUN = ("run", "method", "--networks", "MLP:width=8 random", "--test-networks", "MLP:width=8")


def recorded(root: Path) -> dict[str, dict[int, float]]:
    """The accuracies of every run; fails if one was recorded twice."""
    found = {}
    for line in (root / "smoke" / "networks.jsonl").read_text().splitlines():
        record = json.loads(line)
        for network, accuracy in record["accuracies"].items():
            assert found.setdefault(record["key"], {}).setdefault(network, accuracy) is accuracy, "recorded twice"
    keys = [json.loads(line)["key"] for line in (root / "smoke" / "sets.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)), "recorded twice"
    return found


@pytest.mark.parametrize(("count", "stops"), [(1, 4), (2, 2)])  # side by side, some fall upon one another
def test_a_run_stopped_again_and_again_records_everything_once(place, tiny, monkeypatch, capsys, count, stops):
    monkeypatch.setattr(lanes, "count", lambda device: count)
    assert main([*RUN, "--results", "whole"]) == 0
    epoch, calls = train._epoch, []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) % 9 == 0:  # of four epochs for each of nine networks
            signal.raise_signal(signal.SIGTERM)
        return epoch(*arguments)

    monkeypatch.setattr(train, "_epoch", stopped)
    statuses = []
    while not statuses or statuses[-1] != 0:
        statuses.append(main([*RUN, "--results", "stopped"]))
        assert len(statuses) < 20
    assert statuses.count(130) == len(statuses) - 1 >= stops
    assert recorded(place / "stopped") == recorded(place / "whole")
    assert not list((place / "stopped").rglob("checkpoints/*"))
    assert "finished networks are recorded" in capsys.readouterr().err


def test_a_run_stopped_while_condensing_goes_on(place, tiny, monkeypatch):
    assert main([*RUN, "--results", "whole"]) == 0
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3, signal.SIGINT)
        assert main([*RUN, "--results", "stopped"]) == 130
    assert len(list((place / "stopped" / "smoke" / "checkpoints").iterdir())) == 1
    assert main([*RUN, "--results", "stopped"]) == 0
    assert recorded(place / "stopped") == recorded(place / "whole")


def test_a_run_killed_between_keeping_and_recording_a_set_records_it(place, tiny, monkeypatch):
    assert main([*RUN, "--results", "whole"]) == 0
    record = run.Runner.record

    def full_at_a_condensed_set(self, made, *rest):  # one of real images is no file
        full_disk() if getattr(made, "method", "") == "condense" else record(self, made, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(run.Runner, "record", full_at_a_condensed_set)
        assert main([*RUN, "--results", "killed"]) == 1
    assert list((place / "killed").rglob("*.safetensors"))
    assert main([*RUN, "--results", "killed"]) == 0
    assert recorded(place / "killed") == recorded(place / "whole")
    for root in ("whole", "killed"):
        sets_made = [r for found in Store(place / root).records.values() for r in found if r["kind"] == "MakeSet"]
        assert sorted(len(r.get("losses", ())) for r in sets_made) == [0, 4, 4]
        assert all({"seconds", "data_hash", "set_hash", "started"} <= set(r) for r in sets_made)


def test_a_record_torn_by_a_kill_is_made_again(place, tiny, capsys):
    assert main([*RUN, "--results", "whole"]) == 0
    (place / "whole").rename(place / "torn")
    path = place / "torn" / "smoke" / "networks.jsonl"
    before = recorded(place / "torn")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'"accuracies"') + 20])
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([*RUN, "--results", "torn"]) == 0
    assert "networks.jsonl: the last line is torn and is left out" in capsys.readouterr().err
    assert recorded(place / "torn") == before


def test_records_that_cannot_be_written_are_told_and_stay_whole(place, tiny, monkeypatch, capsys):
    assert main([*RUN, "--results", "full"]) == 0
    kept = {p: p.read_bytes() for p in (place / "full").rglob("*") if p.is_file()}
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full_disk)
        refused(capsys, main([*RUN[:-1], "MLP:width=4", "--results", "full"]), "cannot append", "no space left")
    assert {p: p.read_bytes() for p in (place / "full").rglob("*") if p.is_file()} == kept


def test_a_damaged_set_among_the_records_is_told(place, tiny, capsys):
    assert main([*RUN, "--results", "damaged"]) == 0
    path = max((place / "damaged").rglob("*.safetensors"))
    for found in (place / "damaged").rglob("*.safetensors"):
        found.write_bytes(found.read_bytes()[:-50])
    capsys.readouterr()
    refused(capsys, main([*RUN[:-1], "MLP:width=4", "--results", "damaged"]), "damaged", "delete it", path.suffix)


# --- training on a set


def test_training_stopped_tells_what_it_has(place, uninterrupted, monkeypatch, capsys, one_lane):
    uninterrupted.save("set")
    request = ("train", "set", "--network", "MLP:width=4", "--epochs", "2", "--networks", "3")
    assert main([*request]) == 0
    whole = capsys.readouterr().out
    epoch, calls = train._epoch, []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return epoch(*arguments)

    monkeypatch.setattr(train, "_epoch", stopped)
    assert main([*request]) == 130
    out, err = capsys.readouterr()
    assert out.split()[1] in whole
    assert "stopped after 1 of 3 networks" in err


def test_stopping_in_a_thread_leaves_signals_alone():
    import threading

    seen = []

    def work():
        with run.stopping(0.0) as should_stop:
            seen.append((should_stop(), signal.getsignal(signal.SIGINT)))

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, handler)]


def test_time_runs_out_without_a_signal():
    with run.stopping(30.0) as should_stop:
        assert not should_stop()
    with run.stopping(0.0) as should_stop:
        assert should_stop()


def test_a_cuda_toolkit_without_a_gpu_is_no_news(monkeypatch, caplog):
    """What torch.compile would say on stderr at its first use is left out, and nothing else is."""
    logger = logging.getLogger("torch.utils.cpp_extension")

    def imported(name):
        assert name == logger.name
        for text in ("No CUDA runtime is found, using CUDA_HOME='%s'", "something else in %s"):
            logger.warning(text, "/usr/local/cuda")

    monkeypatch.setattr(engine.importlib, "import_module", imported)
    engine._load_extensions_quietly.__wrapped__()
    assert [record.getMessage() for record in caplog.records] == ["something else in /usr/local/cuda"]
    imported(logger.name)
    assert len(caplog.records) == 3, "the filter is gone"


@pytest.mark.slow
def test_killed_at_random_moments_every_run_ends_with_the_identical_set():
    """The campaign in small; in a process of its own, for it forks."""
    script = Path(__file__).with_name("campaign.py")
    done = subprocess.run([sys.executable, script, "--kills", "2", "--seed", "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 runs ended with the identical set" in done.stdout
