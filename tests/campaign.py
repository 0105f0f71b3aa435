"""Kill condensing (SIGKILL) at random moments and start it again: it must end with the identical set.

Each run is a process forked from one that has loaded torch. Its moment is drawn uniformly over the time that an undisturbed run
takes, so that some fall into steps, some into the writing of a checkpoint or of the set.
With `--inputs`, every mistake of `mishaps.txt` is made and files are damaged, too (see `mishaps`).

Usage: python tests/campaign.py [--kills 20] [--inputs 20] [--seed 0] [--record]
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

REQUEST = ("condense", "digits", "--image-size", "8", "--network", "ConvNet:width=8,depth=2", "-K", "40", "--real-batch", "8")
RECORDS = Path(__file__).resolve().parents[1] / "results" / "campaign.jsonl"
TABLE = RECORDS.with_suffix(".md")


def start(output: Path) -> int:
    """Start condensing in a forked process, silently, with a checkpoint after each step; returns its number."""
    if child := os.fork():
        return child
    status = 1
    try:
        import torch

        import dclib.core.resume
        from dclib.cli.main import main

        torch.set_num_threads(1)
        dclib.core.resume.CHECKPOINT_SECONDS = 0.0
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            status = main([*REQUEST, "-o", str(output)])
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """Wait for a process; returns its exit status, negative for the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_after(child: int, seconds: float) -> bool:
    """Kill a process after so many seconds; whether it was still at work."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return ended(child) == -signal.SIGKILL


def left_behind(output: Path) -> str:
    """How far a killed run has come, by what it left."""
    from safetensors import safe_open

    if output.exists():
        return "set written"
    checkpoint = output.with_name(output.name + ".checkpoint")
    if not checkpoint.exists():
        return "no checkpoint yet"
    with safe_open(checkpoint, "np") as file:
        return f"step {json.loads(file.metadata()['dclib'])['k']}"


def content(output: Path) -> tuple:
    """What must be identical: the images, the labels and the loss of each step."""
    from dclib.results import CondensedSet

    made = CondensedSet.load(output)
    return made.images.tobytes(), made.labels.tobytes(), made.about["losses"]


def kills(folder: Path, count: int, seed: int) -> dict:
    """Kill so many runs; say for each when, how far it had come, and whether it made the identical set when started again."""
    draw, begun, undisturbed = random.Random(seed), time.monotonic(), folder / "undisturbed"
    assert ended(start(undisturbed)) == 0, "the undisturbed run failed"
    whole, runs = time.monotonic() - begun, []
    for i in range(count):
        output, moment = folder / f"killed-{i}", draw.uniform(0, whole)
        killed, at = kill_after(start(output), moment), left_behind(output)
        same = ended(start(output)) == 0 and content(output) == content(undisturbed)
        clean = sorted(path.name for path in folder.glob(f"{output.name}*")) == [output.name]
        runs.append({"moment": round(moment, 3), "killed": killed, "at": at, "identical": same, "clean": clean})
        print(runs[-1])
    good = sum(run["identical"] and run["clean"] for run in runs)
    print(f"{good} of {count} runs ended with the identical set; {sum(run['killed'] for run in runs)} were at work when killed")
    return {"campaign": "kills", "request": REQUEST, "runs": runs, "bad": count - good}


def inputs(folder: Path, count: int, seed: int) -> dict:
    """Make every mistake and so many mutations of a file of each kind; say how often each kind ended as it must."""
    import mishaps

    cases = mishaps.campaign(folder, count, seed)
    found, wrong = mishaps.summary(cases), mishaps.wrong(cases)
    for kind, row in found.items():
        print(f"{kind:<28}", "  ".join(f"{name}: {n:3d}" for name, n in row.items()))
    print("\n".join(wrong) or f"{len(cases)} mistakes, none of which went wrong")
    return {"campaign": "inputs", "kinds": found, "bad": len(wrong)}


def table(records: list[dict]) -> str:
    """The latest campaign of each kind as a table in Markdown."""
    latest = {record["campaign"]: record for record in records}
    lines = ["| what was tried | times | what came of it |", "|---|--:|---|"]
    if runs := latest.get("kills", {}).get("runs"):
        good, hit = sum(r["identical"] and r["clean"] for r in runs), sum(r["killed"] for r in runs)
        came = f"{good} ended with the identical set; {hit} were at work when killed"
        lines.append(f"| `kill -9` at a random moment | {len(runs)} | {came} |")
    for kind, row in latest.get("inputs", {}).get("kinds", {}).items():
        came = [f"{row['refused']} refused in a sentence"]
        came += [f"{row['harmless']} gave the result of the whole file"] if row["harmless"] else []
        came += [f"{row['unnoticed']} read as records that say something else"] if row.get("unnoticed") else []
        came += [f"{row['wrong']} wrong"] if row["wrong"] else []
        lines.append(f"| {kind} | {row['tried']} | {', '.join(came)} |")
    return "\n".join(lines) + "\n"


def record(found: dict) -> None:
    """Add a campaign to the records, and write their table."""
    from dclib.support.files import append_line, write_atomic
    from dclib.support.provenance import now, provenance

    append_line(RECORDS, json.dumps({**found, **provenance(now(), "cpu", "eager")}, sort_keys=True))
    write_atomic(TABLE, table([json.loads(line) for line in RECORDS.read_text().splitlines()]).encode())


def main() -> int:
    """Run the campaigns; the status is 1 if a set differs, anything is left over, or a mistake ends as none may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="so many runs are killed")
    parser.add_argument("--inputs", type=int, default=0, help="try wrong requests, and so many damaged files of each kind; 0: none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help=f"append the campaigns to {RECORDS.name} and write {TABLE.name}")
    options, bad = parser.parse_args(), 0
    for campaign_, count in ((kills, options.kills), (inputs, options.inputs)):
        if count:
            with tempfile.TemporaryDirectory() as folder:
                found = campaign_(Path(folder).resolve(), count, options.seed)
            bad += found["bad"]
            if options.record:
                record(found)
    return int(bad > 0)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # a process with a pool of threads is not to be forked
    from dclib.run import loading

    loading.load("digits", 8)  # once for all, and torch with it
    sys.exit(main())
