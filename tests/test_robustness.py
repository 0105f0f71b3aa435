"""Interruptions, full disks and kills: a run goes on to the identical result, and what was whole stays whole.

`test_loop.py` stops whatever learns in steps within one process; `campaign.py` kills at random moments; damaged files and other
mistakes are in `mishaps.py`; workers are killed in `test_cluster.py`, a training on the whole set in `test_full_training.py`.
"""

import contextlib
import dataclasses
import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import mishaps
import pytest

from dclib.cli.main import main
from dclib.core import resume
from dclib.results import CondensedSet, Store

REQUEST = ["condense", "digits", "--image-size", "8", "--network", "net.py:Net", "-K", "12", "--real-batch", "8", "-o", "set"]
TRIALS = 3  # times that a user's network is built before the first step


@pytest.fixture(autouse=True)
def place(command, tmp_path, monkeypatch):
    """A folder of its own, with a network that sends a signal when it is told to."""
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", 0.0)  # after each outer step
    (tmp_path / "net.py").write_text(mishaps.NET.format(""))
    return tmp_path


def signalled(number: int, step: int, times: int = 1) -> dict[str, str]:
    """The environment in which the network sends a signal when it begins a step, counted from where the run begins or goes on."""
    return {"SIGNAL": str(int(number)), "LEFT": str(TRIALS + step), "TIMES": str(times)}


@pytest.fixture
def interrupt(monkeypatch):
    """Return a function that runs a command and sends it a signal at a step."""

    def run(arguments: list[str], number: int, step: int, times: int = 1) -> int:
        for name, value in signalled(number, step, times).items():
            monkeypatch.setenv(name, value)
        status = main(arguments)
        assert int(os.environ["LEFT"]) <= 0, "the signal was sent"
        return status

    return run


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> CondensedSet:
    """The set that REQUEST makes when nothing stops it."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "net.py").write_text(mishaps.NET.format(""))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(REQUEST) == 0
    return CondensedSet.load(folder / "set")


def identical(made: CondensedSet, other: CondensedSet) -> bool:
    return made.images.tobytes() == other.images.tobytes() and made.about["losses"] == other.about["losses"]


def reached(checkpoint: Path) -> int:
    """The outer step of a checkpoint."""
    from safetensors import safe_open

    with safe_open(checkpoint, "np") as file:
        return json.loads(file.metadata()["dclib"])["k"]


# --- condensing, stopped in every way


KILLED_WHILE_SAVING = """
replace, calls = os.replace, []
def killed(*arguments):
    calls.append(arguments)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*arguments)
os.replace = killed
"""


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    """The command in processes of its own, all at once, since each loads torch: for each its folder and the process."""
    kinds = {
        "killed in a step": ("", signalled(signal.SIGKILL, 8)),
        "killed while saving": (KILLED_WHILE_SAVING, {}),
        "terminated": ("", signalled(signal.SIGTERM, 8)),
    }
    found = {}
    for name, (before, signals) in kinds.items():
        folder = tmp_path_factory.mktemp("child")
        code = f"import os, signal, sys\nimport dclib.core.resume\nfrom dclib.cli.main import main\n{before}\n"
        code += f"dclib.core.resume.CHECKPOINT_SECONDS = 0\nsys.exit(main({[*REQUEST, '--force']}))"
        (folder / "set").write_bytes(b"an older file")
        (folder / "net.py").write_text(mishaps.NET.format(""))
        command, env = [sys.executable, "-c", code], os.environ | signals
        found[name] = folder, subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=env)
    yield found
    for _, process in found.values():
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status", "k"), [("killed in a step", -9, 7), ("killed while saving", -9, 4), ("terminated", 130, 7)]
)
def test_killed_it_goes_on_to_the_identical_set(children, uninterrupted, monkeypatch, name, status, k):
    folder, process = children[name]
    err = process.communicate(timeout=400)[1]
    assert process.returncode == status
    assert (folder / "set").read_bytes() == b"an older file"
    assert reached(folder / "set.checkpoint") == k
    if name == "terminated":
        assert f"dclib: stopped after {k} of 12 outer steps; the same command goes on from there" in err
        assert "Traceback" not in err
    monkeypatch.chdir(folder)
    assert main([*REQUEST, "--force"]) == 0
    assert identical(CondensedSet.load("set"), uninterrupted)
    assert {p.name for p in folder.iterdir()} == {"set", "net.py"}, "the checkpoint and every part of a file are gone"


def test_every_signal_is_obeyed_at_the_next_step(place, uninterrupted, interrupt, capsys):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    done = []
    for number, step in ((signal.SIGINT, 3), (signal.SIGTERM, 2), (signal.SIGTERM, 6)):
        assert interrupt(REQUEST, number, step) == 130
        done.append(reached(place / "set.checkpoint"))
        assert f"stopped after {done[-1]} of 12 outer steps; the same command goes on from there" in capsys.readouterr().err
    assert done == [2, 3, 8]
    assert main(REQUEST) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_second_ctrl_c_ends_at_once_and_loses_one_step(place, uninterrupted, interrupt):
    assert interrupt(REQUEST, signal.SIGINT, 5, times=2) == 130
    assert reached(place / "set.checkpoint") == 4
    assert main(REQUEST) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)


# --- disks that are full


@contextlib.contextmanager
def full_disk(name: str, nth: int = 1):
    """The disk is full from the n-th time that a file of this name is put in its place."""
    replace, tries = os.replace, []

    def replaced(source, target):
        tries.append(Path(target).name)
        if tries.count(name) >= nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        yield


@pytest.mark.parametrize(("name", "nth", "k"), [("set.checkpoint", 4, 3), ("set", 1, 12)])
def test_a_full_disk_keeps_the_old_set_and_the_work(place, uninterrupted, command, name, nth, k):
    dataclasses.replace(uninterrupted, key="another").save(place / "set")
    old = (place / "set").read_bytes()
    with full_disk(name, nth):
        status, _, err = command(*REQUEST, "--force")
    assert (status, err.count("dclib: ")) == (1, 1)
    assert f"cannot write {name}: no space left" in err
    assert (place / "set").read_bytes() == old
    assert reached(place / "set.checkpoint") == k
    assert sorted(p.name for p in place.iterdir()) == ["net.py", "set", "set.checkpoint"]
    assert main([*REQUEST, "--force"]) == 0
    assert identical(CondensedSet.load(place / "set"), uninterrupted)


def test_a_picture_that_cannot_be_written_leaves_the_old_one(place, uninterrupted, command, refused):
    uninterrupted.save(place / "set")
    (place / "set.png").write_bytes(b"a picture")
    with full_disk("set.png"):
        refused(command("show", "set"), "set.png", "no space left")
    assert (place / "set.png").read_bytes() == b"a picture"
    assert sorted(p.name for p in place.iterdir()) == ["net.py", "set", "set.png"]


# --- declared runs


RUN = ["run", "method", "--networks", "MLP:width=8 random", "--results"]
SAME, MORE = ["--test-networks", "MLP:width=8"], ["--test-networks", "MLP:width=4"]


@pytest.fixture
def whole(place, monkeypatch, shorten_smoke) -> Path:
    """The records of RUN, undisturbed: two sets of three networks, in a few steps and epochs."""
    shorten_smoke(monkeypatch, outer_steps=4, sets=2, networks=3, random_sets=1)
    assert main([*RUN, "whole", *SAME]) == 0
    return place / "whole"


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


@pytest.mark.slow
def test_a_run_stopped_again_and_again_records_everything_once(whole, command):
    stops, seconds, err = 0, 0.05, "time is up"
    while "time is up" in err:
        stops, seconds = stops + 1, 1.5 * seconds
        status, _, err = command(*RUN, "stopped", *SAME, "--for", f"{seconds}s")
        assert status == 0
    assert stops >= 3
    assert recorded(whole.parent / "stopped") == recorded(whole)
    assert not list((whole.parent / "stopped").rglob("checkpoints/*"))


def test_what_a_killed_run_kept_but_did_not_record_or_tore_is_made_again(whole, command):
    """First its sets are there and no line of them; then the last line is torn."""
    expected = recorded(whole)
    for name in ("sets.jsonl", "networks.jsonl"):
        (whole / "smoke" / name).unlink()
    assert command(*RUN, "whole", *SAME)[0] == 0
    assert recorded(whole) == expected
    sets_made = [record for found in Store(whole).records.values() for record in found if record["kind"] == "MakeSet"]
    assert sorted(len(record.get("losses", ())) for record in sets_made) == [0, 4, 4]
    assert all({"seconds", "data_hash", "set_hash", "started"} <= set(record) for record in sets_made)
    path = whole / "smoke" / "networks.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b'"accuracies"') + 20])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, err = command(*RUN, "whole", *SAME)
    assert (status, "networks.jsonl: the last line is torn and is left out" in err) == (0, True)
    assert recorded(whole) == expected


def test_records_that_cannot_be_written_and_a_damaged_set_are_told_and_stay(whole, command, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = {p: p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        status, _, err = command(*RUN, "whole", *MORE)
    assert (status, err.count("dclib: "), "no space left" in err) == (1, 1, True)
    assert {p: p.read_bytes() for p in whole.rglob("*") if p.is_file()} == kept
    for found in whole.rglob("*.safetensors"):
        found.write_bytes(found.read_bytes()[:-50])
    status, _, err = command(*RUN, "whole", *MORE)
    assert (status, err.count("dclib: ")) == (1, 1)
    assert re.search(r"\.safetensors .*damaged.*delete it", err)


# --- training on a set


def test_training_stopped_tells_what_it_has(uninterrupted, interrupt, capsys, one_lane):
    uninterrupted.save("set")
    request = ["train", "set", "--network", "net.py:Net", "--epochs", "2", "--networks", "3"]
    assert main(request) == 0
    whole = capsys.readouterr().out
    assert interrupt(request, signal.SIGINT, 2) == 130
    out, err = capsys.readouterr()
    assert out.split()[1] in whole
    assert "stopped after 1 of 3 networks" in err


def test_a_thread_trains_and_leaves_signals_alone(uninterrupted):
    uninterrupted.save("set")
    statuses, handler = [], signal.getsignal(signal.SIGINT)
    work = lambda: statuses.append((main(["train", "set", "--epochs", "1"]), signal.getsignal(signal.SIGINT)))  # noqa: E731
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert statuses == [(0, handler)]


# --- processes that are killed (SIGKILL)


@pytest.mark.slow
def test_killed_at_random_moments_every_run_ends_with_the_identical_set():
    """The campaign in small; in a process of its own, for it forks."""
    script = Path(__file__).with_name("campaign.py")
    done = subprocess.run([sys.executable, script, "--kills", "2", "--seed", "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 runs ended with the identical set" in done.stdout


SAVING_ALWAYS = "import sys; from dclib.cli.main import main; from dclib.core import resume\n"
SAVING_ALWAYS += "resume.CHECKPOINT_SECONDS = 0.0; sys.exit(main(sys.argv[1:]))"
SECONDS = 300  # to wait at most for what a process leaves
# what is run, where its numbers are, what is there when it is killed, and what must be the same in the end
RUNS = {
    "continual": (["--memories", "random"], "tasks.jsonl", "checkpoints/*", "stages"),
    "nas": (["--space", "width=8 depth=1 norm=instance"], "candidates.jsonl", "candidates.jsonl", "accuracies"),
    "distillation": (["--networks", "distill", "--ipc", "1"], "networks.jsonl", "checkpoints/*", "accuracies"),
}


def started(name, results):
    where = {**os.environ, "DCLIB_RESULTS": str(results), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SAVING_ALWAYS, "run", name, "--device", "cpu", *RUNS[name][0]]
    return subprocess.Popen(command, env=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def size(path):
    """Of what is written, bytes; a file that is still hidden, or gone by now, has none."""
    try:
        return 0 if path.name.startswith(".") else path.stat().st_size
    except FileNotFoundError:
        return 0


def kill_in_the_middle(process, results, left):
    """Kill it soon after it has left something."""
    end = time.monotonic() + SECONDS
    while not any(size(path) for path in results.glob(f"smoke/{left}")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def numbers(results, file, field):
    """What was found, by the run's key; of a run of several networks together."""
    found = {}
    for line in (results / "smoke" / file).read_text().splitlines():
        record = json.loads(line)
        found.setdefault(record["key"], []).append(record[field])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_ends_with_the_same_numbers(name, tmp_path):
    _, file, left, field = RUNS[name]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed, first = started(name, whole), started(name, killed)
    kill_in_the_middle(first, killed, left)
    assert started(name, killed).wait() == undisturbed.wait() == 0
    assert numbers(killed, file, field) == numbers(whole, file, field)
    assert not [*(killed / "smoke" / "checkpoints").glob("[!.]*")]
