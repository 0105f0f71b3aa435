"""A method that the library does not know: one file, one line where methods are listed, one declaration, and nothing else."""

import json
import os
import subprocess
import sys

import pytest

from dclib.errors import SpecError
from dclib.experiments import SMOKE
from dclib.results import CondensedSet, Store
from dclib.run.loading import load
from dclib.spec import Condensation, MakeSet, TrainNetworks, spell

METHOD = """
'''The mean of some images of each class.'''

import torch

from dclib.data.dataset import generator
from dclib.methods import Made


def make(run, dataset, context):
    drawn = []
    for c in range(dataset.classes):
        members = dataset.class_indices(c).cpu()
        for i in range(run.hyper.ipc):
            order = torch.randperm(len(members), generator=generator(run.seed, "means", c, i))
            drawn.append(dataset.normalise(dataset.x_train[members[order[: run.settings.images]]]).mean(0))
    return Made(torch.stack(drawn).unflatten(0, (dataset.classes, run.hyper.ipc)), {"seconds": 0.0})
"""
DECLARED = """
import json
from dataclasses import dataclass

from dclib.spec.checks import check, param
from dclib.spec.methods import METHODS, Method


@dataclass(frozen=True)
class Means:
    images: int = param(2, "images whose mean is taken", at_least=1)

    def __post_init__(self):
        check(self)


METHODS["means"] = Method("means", settings=Means)

from dclib.experiments import ALL, Table

grid = dict(dataset=("made",), ipc=(2,), network=("random", "means"), test_network=("ConvNet:width=4,depth=1",))
ours = {"means": {"smoke": Means(images=10)}}
ALL["means"] = Table("means", "", "Do means train a network?", grid, settings=ours, training={"smoke": {"epochs": 1}})

from dclib.reproduce import reproduce
from dclib.results import Store
from dclib.run.verify import recorded_runs, verify

rows = reproduce("means", preset="smoke", device="cpu")
checked = verify(recorded_runs(["means"], "smoke", Store()), Store(), device="cpu")
found = dict(networks=list(rows.network), complete=list(map(bool, rows.complete)), verdicts=[one.verdict for one in checked])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, save_own):
    """A folder with the new method, data and records, after the declared table has been computed and verified in it."""
    folder = tmp_path_factory.mktemp("means")
    save_own(folder / "data" / "made.npz")
    (folder / "means.py").write_text(METHOD)
    (folder / "study.py").write_text(DECLARED)
    own = dict(DCLIB_DATA=str(folder / "data"), DCLIB_RESULTS=str(folder / "results"))
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "study.py"], cwd=folder, capture_output=True, text=True, env=os.environ | own)
    assert done.returncode == 0, done.stderr
    (folder / "printed.json").write_text(done.stdout.splitlines()[-1])
    return folder


@pytest.mark.slow
def test_it_fills_a_table_and_is_verified(folder):
    found = json.loads((folder / "printed.json").read_text())
    verdicts = ["ok, identical"] * (SMOKE.random_sets + SMOKE.sets)
    assert found == dict(networks=["random", "means"], complete=[True] * 2, verdicts=verdicts)


@pytest.mark.slow
def test_its_set_is_kept_and_recorded_with_its_hyper_parameters(folder, monkeypatch):
    monkeypatch.setenv("DCLIB_DATA", str(folder / "data"))
    store, data = Store(folder / "results"), load("made")
    records = [record for found in store.records.values() for record in found]
    (record,) = [r for r in records if r["kind"] == "MakeSet" and r["run"]["method"] == "means"]
    assert record["run"]["settings"] == {"images": 10}
    made = CondensedSet.load(store.find_set(record["key"]))
    assert (made.hash, made.about["settings"], made.ipc) == (record["set_hash"], {"images": 10}, 2)
    means = [data.normalise(data.x_train[data.class_indices(c)]).mean(0) for c in range(3)]  # of all ten images
    assert all(abs(image - means[c].numpy()).max() < 1e-5 for image, c in zip(made.images, made.labels, strict=True))
    assert [r["run"]["set"]["settings"] for r in records if r["kind"] == "TrainNetworks" and r["run"]["set"]["settings"]]


def test_a_method_without_hyper_parameters_of_its_own_takes_none_and_keeps_its_key():
    with pytest.raises(SpecError, match="method 'random' takes no `settings`"):
        MakeSet("digits", "random", settings=Condensation())
    assert "settings" not in str(spell(TrainNetworks(MakeSet("digits", "random"))))
