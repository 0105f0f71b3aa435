"""dclib.run.verify: recorded networks come out again; what is not as recorded is told, and makes the command fail."""

import json
import re

import pytest

from dclib import experiments
from dclib.cli.main import main
from dclib.results import CondensedSet, Store
from dclib.run.verify import tolerance

ASKED = ("method", "--preset", "smoke", "--networks", "MLP,random", "--test-networks", "MLP")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, shorten_smoke):
    """A condensed set and random real images, with two networks each, recorded at a short `smoke`."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten_smoke(monkeypatch, 2, networks=2, random_sets=1)
        assert main(["run", *ASKED, "--device", "cpu", "--engine", "eager", "--results", str(folder)]) == 0
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def store(recorded, tmp_path, monkeypatch, shorten_smoke):
    """The recorded results in a folder of the test's own."""
    shorten_smoke(monkeypatch, 2, networks=2, random_sets=1)
    for path, content in recorded.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return Store(tmp_path)


@pytest.fixture
def verify(store, command):
    """The command on these results: returns exit status, rows by what made the set, the sentence and complaints."""

    def call(*more):
        status, out, err = command("verify", *ASKED, "--device", "cpu", "--results", store.root, *more)
        lines = out.splitlines()
        rows = {"random" if "random" in line else "MLP": line for line in lines[1:-1]}
        return status, rows, lines[-1] if lines else "", err

    return call


def edit(store, name, change):
    """Change the records of one file."""
    path = store.root / "smoke" / name
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        change(record)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def the_set(store):
    (path,) = store.root.glob("smoke/sets/*.safetensors")
    return path


@pytest.mark.parametrize("networks", [1, 2, 7])
def test_the_recorded_networks_come_out_again_and_nothing_is_written(store, verify, recorded, networks):
    status, rows, said, _ = verify("--networks-each", str(networks))
    assert status == 0
    assert all(re.search(r"\+0\.00 +\d+\.\d  ok, identical$", row) for row in rows.values()), rows
    assert said == "Of 2 recorded runs 2 agree, 2 of them identical, 0 differ and 0 were not compared."
    assert {p.relative_to(store.root): p.read_bytes() for p in store.root.rglob("*") if p.is_file()} == recorded


def test_a_damaged_set_and_another_in_its_place_are_told(store, verify):
    whole = the_set(store).read_bytes()
    the_set(store).write_bytes(whole[:-5] + b"\0" * 5)
    status, rows, said, _ = verify()
    assert status == 1
    assert rows["MLP"].endswith(f"differs: {the_set(store)} is damaged")
    assert rows["random"].endswith("ok, identical")
    assert "1 agree, 1 of them identical, 1 differ and 0" in said
    the_set(store).write_bytes(whole)
    made = CondensedSet.load(the_set(store))
    made.images[0] += 0.01
    made.save(the_set(store))
    status, rows, *_ = verify()
    assert (status, rows["MLP"].endswith("is not the set that is recorded")) == (1, True)


def test_other_indices_than_the_recorded_are_told(store, verify):
    def later(record):
        if "indices" in record:
            record["indices"][0][0] += 1

    edit(store, "sets.jsonl", later)
    status, rows, *_ = verify()
    assert (status, "give other images" in rows["random"]) == (1, True)
    edit(store, "sets.jsonl", lambda record: record.update({"indices": [[10**6]]} if "indices" in record else {}))
    assert "none of this data" in verify()[1]["random"]


@pytest.mark.parametrize(("points", "status", "verdict"), [(0.5, 0, "ok"), (60.0, 1, "differs")])
def test_an_accuracy_that_does_not_come_out_again_is_told(store, verify, points, status, verdict):
    def moved(record):
        record["accuracies"] = {j: a + points for j, a in record["accuracies"].items()}

    edit(store, "networks.jsonl", moved)
    found, rows, said, _ = verify()
    assert found == status
    assert all(re.search(rf"−{points:.2f} +\d+\.\d  {verdict}$", row) for row in rows.values()), rows
    assert "0 of them identical" in said


def test_other_data_and_sets_that_are_not_kept_are_not_compared(store, verify):
    the_set(store).unlink()
    status, rows, *_ = verify()
    assert (status, rows["MLP"].endswith("not compared: its set is not kept")) == (0, True)
    edit(store, "sets.jsonl", lambda record: record.update(data_hash="another"))
    status, rows, said, _ = verify()
    assert rows["random"].endswith("digits here is other data than that of the record")
    assert (status, said.endswith("0 differ and 2 were not compared.")) == (1, True), "nothing compared is no success"


def test_data_that_cannot_be_loaded_is_told(command, tmp_path, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))
    cell = experiments.CORESETS.cells(experiments.CPU, dataset="mnist", ipc=1, network="random")[0]
    for run in cell.runs():
        Store(tmp_path / "results").add("cpu", dict(key=run.key, kind="TrainNetworks", accuracies={"0": 50.0}, data_hash="x"))
    status, out, _ = command("verify", "coresets", "--preset", "cpu", "--datasets", "mnist", "--networks", "random")
    assert (status, out.count("not compared: ")) == (1, 2)


@pytest.mark.slow
def test_all_experiments_are_verified_if_none_is_named(store, verify, command):
    status, out, _ = command("verify", "--preset", "smoke", "--networks", "MLP", "--device", "cpu", "--results", store.root)
    assert (status, "Of 1 recorded runs 1 agree, 1 of them identical" in out) == (0, True)
    status, _, _, err = verify("--networks-each", "0")
    assert (status, "networks-each" in err) == (1, True)


@pytest.mark.parametrize(
    ("recorded", "networks", "points"),
    [((90.0,), 1, 1.0), ((90.0, 90.2), 2, 1.0), ((40.0, 50.0), 2, 3 * 50**0.5), ((88.0, 90.0, 92.0), 1, 6 * 2**0.5)],
)
def test_the_tolerance_is_a_point_or_three_standard_errors_of_the_difference(recorded, networks, points):
    assert tolerance(recorded, networks) == pytest.approx(points)
