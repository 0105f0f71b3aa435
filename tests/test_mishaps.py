"""Every mistake of `mishaps.txt`, a few damaged files of each kind, and the tally of what came of them."""

import json
import random
import sys
from pathlib import Path

import campaign
import mishaps
import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mishaps").resolve()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DCLIB_RESULTS", str(folder / "results"))
        patch.setenv("DCLIB_DATA", str(folder / "data"))
        mishaps.furnish(folder)
        yield folder


@pytest.mark.slow
def test_every_mistake_ends_in_one_sentence_that_names_it(place):
    cases = [*mishaps.mistakes(place)]
    assert mishaps.wrong(cases) == []
    assert {case.came for case in cases} == {"refused"}
    assert len(cases) == len({case.what for case in cases}) >= 200


@pytest.mark.slow
def test_damaged_files_are_refused_or_give_the_result_of_the_whole_one(place):
    cases = [*mishaps.damaged(5, random.Random(1))]
    assert mishaps.wrong(cases) == []
    assert len(cases) == 5 * 5


def speaks():
    return 1, "dclib: one\ndclib: two\n"


def changes():
    Path("bad.py").write_text("else")
    return 1, "dclib: one"


def test_what_ends_wrong_is_found(place):
    acts = [speaks, lambda: (0, ""), changes, sys.exit, lambda: (1, "dclib: one"), lambda: (1, "dclib: of ipc")]
    found = [mishaps.Case("kind", "act", mishaps.outcome(place, act, "ipc")) for act in acts]
    assert [case.came.split()[0] for case in found] == ["said", "was", "changed", "raised", "said", "refused"]
    assert mishaps.summary(found) == {"kind": {"tried": 6, "refused": 1, "harmless": 0, "unnoticed": 0, "wrong": 5}}
    assert len(mishaps.wrong(found)) == 5


def test_a_mutation_changes_something():
    content = bytes(range(200))
    found = [mishaps.mutated(content, random.Random(seed)) for seed in range(60)]
    assert all(one != content for one in found)
    assert len({len(one) for one in found}) > 10


def test_the_table_is_that_of_the_latest_records():
    records = [json.loads(line) for line in campaign.RECORDS.read_text().splitlines()]
    assert campaign.TABLE.read_text() == campaign.table(records)
    worse = [{"campaign": "inputs", "kinds": {"files": {"tried": 3, "refused": 1, "harmless": 1, "wrong": 1}}}]
    assert "| files | 3 | 1 refused in a sentence, 1 gave the result of the whole file, 1 wrong |" in campaign.table(worse)
