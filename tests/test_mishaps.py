"""The campaign of mistakes in short: requests of each kind, wrong notebook parameters, damaged files; and its tally."""

import json
import random
import sys
from pathlib import Path

import campaign
import mishaps
import pytest


@pytest.fixture
def furnished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mishaps.furnish(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_some_of_the_mistakes_of_each_kind(furnished, monkeypatch):
    draw, every = random.Random(1), list(mishaps.listed())
    kinds = dict.fromkeys(kind for kind, _ in every)
    some = [(kind, request) for kind in kinds for request in draw.sample([r for k, r in every if k == kind], 4)]
    monkeypatch.setattr(mishaps, "listed", lambda: iter(some))
    cases = [*mishaps.requests(furnished), *mishaps.notebooks(), *mishaps.damaged(furnished, 2, draw)]
    assert len(cases) == 4 * len(kinds) + sum(map(len, mishaps.NOTEBOOKS.values())) + 5 * 2
    assert mishaps.wrong(cases) == []


def test_there_are_many_mistakes_each_once():
    requests = [request for _, request in mishaps.listed()]
    assert len(requests) == len(set(requests)) >= 150


def test_what_ends_wrong_is_found(furnished):
    """A command that prints two sentences, one that succeeds, one that changes a file, one that raises."""
    import dclib.cli.main

    def speaks(arguments):
        print("dclib: one", "dclib: two", sep="\n", file=sys.stderr)
        return 1

    def changes(arguments):
        Path("bad.py").write_text("else")
        return 1

    def raises(arguments):
        raise SystemExit(3)

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mishaps, "listed", lambda: iter([("kind", ("data",))]))
        for main in (speaks, lambda arguments: 0, changes, raises):
            patch.setattr(dclib.cli.main, "main", main)
            found += mishaps.requests(furnished)
    assert [case.came.split()[0] for case in found] == ["said", "was", "changed", "raised"]
    assert mishaps.summary(found) == {"kind": {"tried": 4, "refused": 0, "harmless": 0, "unnoticed": 0, "wrong": 4}}
    assert len(mishaps.wrong(found)) == 4


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
