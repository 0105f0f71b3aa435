"""Runs in a few words, from the dictionaries in which records spell them."""

from typing import Any


def in_words(kind: str, run: dict[str, Any]) -> str:
    """A run in a few words.

    Args:
        kind: the name of its class, as in its record.
        run: the run, spelled out in full.
    """
    return WORDS[kind](run)


def _set(run: dict[str, Any]) -> str:
    how = {
        "condense": f"condensed with {run['hyper']['network']}",
        "distill": f"distilled with {(run['distillation'] or run['hyper'])['network']}",
        "gan": "drawn by a GAN",
    }
    start = f" from the set {run['start']}" if run.get("start") else ""
    return f"{run['dataset']}, {run['hyper']['ipc']}/class, {how.get(run['method'], run['method'])}{start}, seed {run['seed']}"


def _networks(run: dict[str, Any]) -> str:
    made, _, seed = _set(run["set"]).rpartition(", ")
    rates = ", at its learned rates" if run.get("way") == "rates" else ""
    held_out = ", tested on held-out images" if run.get("tested_on") == "held-out" else ""
    return f"{run['hyper']['network']} on {made}{rates}, {seed}{held_out}"


def _tasks(run: dict[str, Any]) -> str:
    distillation = "with" if run["hyper"]["distillation"] else "without"
    how = f"memory filled by {run['hyper']['memory']}, {distillation} distillation"
    return f"{', '.join(run['tasks'])}, {how}, seed {run['seed']}"


WORDS = {
    "MakeSet": _set,
    "TrainNetworks": _networks,
    "WholeTraining": lambda run: f"{run['network']} on the whole of {run['dataset']}, seed {run['seed']}",
    "TrainGan": lambda run: f"a GAN on the whole of {run['dataset']}, seed {run['seed']}",
    "LearnTasks": _tasks,
    "TrainCandidate": lambda run: (
        f"{run['network']} for {run['hyper']['steps']} steps on {_set(run['set']) if run['set'] else run['dataset']}"
    ),
}
