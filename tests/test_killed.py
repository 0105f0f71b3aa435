"""The studies and Dataset Distillation, killed (SIGKILL) in the middle and started again, record what an undisturbed run records.

Condensing has a campaign of its own (`campaign.py`).
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

SAVING_ALWAYS = "import sys; from dclib.cli.main import main; from dclib.core import resume\n"
SAVING_ALWAYS += "resume.CHECKPOINT_SECONDS = 0.0; sys.exit(main(sys.argv[1:]))"
SECONDS = 60  # to wait at most for what a process leaves
# what is run, where its numbers are, what is there when it is killed, and what must be the same in the end
RUNS = {
    "continual": (["--memories", "random"], "tasks.jsonl", "checkpoints/*", "stages"),
    "nas": (["--space", "width=8 depth=1 norm=instance"], "candidates.jsonl", "candidates.jsonl", "accuracies"),
    "distillation": (["--networks", "distill", "--ipc", "1"], "networks.jsonl", "checkpoints/*", "accuracies"),
}


def start(name, results):
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
    undisturbed, first = start(name, whole), start(name, killed)
    kill_in_the_middle(first, killed, left)
    assert start(name, killed).wait() == undisturbed.wait() == 0
    assert numbers(killed, file, field) == numbers(whole, file, field)
    assert not [*(killed / "smoke" / "checkpoints").glob("[!.]*")]
