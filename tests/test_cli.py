"""The command and the functions of the same names: what they answer, what they refuse, and that they are quick to do so.

What a user may get wrong is listed in `mishaps.txt`; here are the refusals that a line of a list cannot make.
"""

import dataclasses
import inspect
import re
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

import dclib
from dclib import experiments
from dclib.cli.main import app
from dclib.errors import DataError, Interrupted, SpecError
from dclib.reproduce import reproduce
from dclib.results import CondensedSet, Store
from dclib.spec import Condensation, MakeSet, Network, Training
from dclib.support import console, progress

COMMANDS = ("condense", "train", "show", "select", "export", "run", "verify", "status", "merge", "data")
MLP = ("--network", "MLP:width=4,depth=1")
QUICK = (*MLP, "--epochs", "1", "--engine", "eager")
MAKE = (*MLP, "-K", "1", "--real-batch", "4", "--engine", "eager")
IN_PYTHON = dict(network=MLP[1], outer_steps=1, real_batch=4, device="cpu", engine="eager")

pytestmark = pytest.mark.usefixtures("command")  # in an empty folder


@pytest.fixture
def made(tmp_path) -> CondensedSet:
    """A set of two random images per class, in place of a condensed one, as one of the first versions."""
    digits = dclib.load("digits")
    images = np.random.default_rng(0).standard_normal((20, 1, 28, 28)).astype(np.float32)
    labels, about = np.arange(10).repeat(2), {"dataset": "digits"}
    small = CondensedSet(images, labels, "digits", digits.class_names, digits.mean, digits.std, "some-key", about)
    small.save(tmp_path / "set")
    return small


def write_folder(folder, classes=("cat", "dog"), seed=0):
    """Six training images of each class and two to test on, at random; the classes' images are apart."""
    rng = np.random.default_rng(seed)
    for split, count in (("train", 6), ("test", 2)):
        for c, name in enumerate(classes):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(120 * c, 120 * c + 60, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")


# --- help


def test_every_command_explains_itself_and_its_options(command):
    for arguments in ((), ("--help",)):
        status, out, err = command(*arguments)
        assert (status, err) == (0, "")
        assert all(re.search(rf"^  {name} +\w", out, re.M) for name in COMMANDS)
        assert "..." not in out.partition("\n")[2], "a command's sentence is cut"
    for name in COMMANDS:
        status, out, _ = command(name, "--help")
        assert (status, f"Usage: dclib {name}" in out) == (0, True)
        assert all(p.help for p in get_command(app).commands[name].params if p.name != "help")
        assert ("Examples:\n    dclib " + name in out) == (name not in ("show", "status"))


@pytest.mark.parametrize(("name", "spec"), [("condense", Condensation), ("train", Training)])
def test_every_hyper_parameter_is_an_option_with_its_help_and_default(name, spec):
    options = {p.name: p for p in get_command(app).commands[name].params}
    for field in dataclasses.fields(spec):
        assert f"--{field.name.replace('_', '-')}" in options[field.name].opts
        assert field.metadata["help"] in options[field.name].help
        default = "auto" if field.name == "augment" else getattr(spec(), field.name)
        assert options[field.name].help.endswith(f"  [default: {default}]")
    short = {name for name, p in options.items() if "-K" in p.opts or "-T" in p.opts}
    assert short == ({"outer_steps", "inner_steps"} if name == "condense" else set())


@pytest.mark.slow
def test_nothing_heavy_is_loaded_to_answer_or_to_refuse():
    code = """
import sys
import dclib
from dclib.cli.main import main
assert dclib.ConvNet(width=3)
def loaded(*names): return [name for name in names if name in sys.modules]
assert main(["--help"]) == main(["condense", "--help"]) == 0
assert main(["condense", "digits", "-o", "x", "--ipc", "0"]) == 1 and main(["train"]) == 2
assert not loaded("torch", "numpy", "pandas", "matplotlib", "sklearn", "rich", "tqdm"), loaded("torch", "numpy")
assert main(["data"]) == main(["status"]) == 0 and main(["run", "nothing"]) == main(["train", "nowhere"]) == 1
assert main(["condense", "digits", "-o", "/dev/null/x"]) == 1 and main(["run", "method", "--datasets", "digit"]) == 1
assert main(["verify", "nothing"]) == main(["verify", "method", "--preset", "smoke"]) == 1
assert main(["merge", "nowhere"]) == 1 and main(["run", "method", "--workers", "0"]) == 1
heavy = "torch", "torchvision", "matplotlib", "sklearn", "dask", "distributed"
assert not loaded(*heavy), loaded(*heavy)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# --- refusals


def test_what_torchrun_started_for_one_process_is_refused(command, refused, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    refused(command("train", "set"), "torchrun has started `dclib train` 2 times")
    refused(command("run", "method"), "torchrun has started 2 processes", "workers=2")
    monkeypatch.delenv("RANK")  # as a cluster's scheduler may leave it
    refused(command("train", "nowhere"), "there is no condensed set nowhere")


def test_a_set_that_cannot_be_drawn_is_refused(command, refused, made, tmp_path):
    dataclasses.replace(made, images=made.images.repeat(2, axis=1), mean=(0.5,) * 2, std=(0.5,) * 2).save(tmp_path / "two")
    refused(command("show", "two"), "images of 2 channels cannot be drawn")
    rest = made.labels > 0
    dataclasses.replace(made, images=made.images[rest], labels=made.labels[rest]).save(tmp_path / "bare")
    refused(command("show", "bare"), "the set has no image of class 0")


def test_functions_refuse_what_contradicts_itself(made):
    with pytest.raises(SpecError, match="given twice"):
        dclib.condense("digits", Condensation(), ipc=2)
    with pytest.raises(SpecError, match="image_size=8"):
        dclib.condense(dclib.load("digits"), image_size=8)
    with pytest.raises(SpecError, match="networks must be"):
        dclib.train(made, networks=0)


# --- condense, train, show; in Python, too


@pytest.mark.slow
def test_condense_then_train_then_show(command, refused, tmp_path):
    tiny = ("--network", "ConvNet:width=8,depth=2", "-K", "2", "--real-batch", "4")
    status, out, err = command("condense", "digits", *tiny, "-o", "a folder/set.st", "--seed", "3")
    assert status == 0
    assert "condensing digits" in err
    assert "next: dclib show 'a folder/set.st'" in out
    path = tmp_path / "a folder" / "set.st"
    small = CondensedSet.load(path)
    hyper = Condensation(network=Network.parse(tiny[1]), outer_steps=2, real_batch=4).resolve()
    assert small.key == MakeSet("digits", seed=3, hyper=hyper).key
    assert (small.images.shape, small.dataset, len(small.about["losses"])) == ((10, 1, 28, 28), "digits", 2)
    assert [p.name for p in path.parent.iterdir()] == ["set.st"]
    in_python = dclib.condense("digits", network=tiny[1], outer_steps=2, real_batch=4, seed=3)
    assert (in_python.key, in_python.hash) == (small.key, small.hash)

    before = path.read_bytes()
    assert "is there already" in command("condense", "digits", *tiny, "-o", path, "--seed", "3")[1]
    refused(command("condense", "digits", *tiny, "-o", path), path, "another run", "--force")
    assert path.read_bytes() == before
    assert command("condense", "digits", *tiny, "-o", path, "--force")[0] == 0
    assert CondensedSet.load(path).key != small.key

    status, out, err = command("train", path, "--network", "LeNet", "--networks", "2", "--epochs", "3")
    assert status == 0
    found = re.fullmatch(r"LeNet: \d+\.\d\d ± \d+\.\d\d % \((\d+\.\d\d), (\d+\.\d\d)\)\naugmentation: none\n", out)
    assert "training LeNet" in err
    assert [f"{x:.2f}" for x in dclib.train(path, network=dclib.LeNet(), networks=2, epochs=3)] == list(found.groups())

    assert command("show", path)[:2] == (0, f"{path.with_suffix('.png')}\n")
    with Image.open(path.with_suffix(".png")) as picture:
        assert picture.size[0] > 100
    assert command("show", path, "-o", "grid.pdf")[0] == 0
    assert (tmp_path / "grid.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_the_example_of_the_package_runs(capsys):
    example = "\n".join(line[4:] for line in dclib.__doc__.splitlines() if line.startswith("    "))
    small = example.replace("outer_steps=50, real_batch=32", 'outer_steps=1, real_batch=4, network="MLP:width=4"')
    small = small.replace('network="LeNet"', 'network="MLP:width=4", epochs=1').replace("herding", "random")
    assert small != example
    exec(small, {})
    assert len(re.findall(r"\d+\.\d+", capsys.readouterr().out)) == 4
    assert CondensedSet.load("set.safetensors").ipc == 1


def test_public_names_are_there_and_modules_stay_modules():
    assert all(getattr(dclib, name).__module__.startswith("dclib.") for name in dclib.__all__)
    assert set(dclib.__all__) <= set(dir(dclib))
    assert inspect.ismodule(dclib.core.condense)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dclib.nothing  # noqa: B018


# --- a set and the data it is tested on


def test_a_set_is_tested_only_where_its_labels_mean_the_same(command, refused, tmp_path):
    test = "train", "set", *QUICK
    write_folder(tmp_path / "pets")
    write_folder(tmp_path / "more", seed=1)
    assert command("condense", "pets", *MAKE, "-o", "set")[0] == 0
    assert command(*test)[0] == 0

    def rename(old, new):
        for split in ("train", "test"):
            (tmp_path / "pets" / split / old).rename(tmp_path / "pets" / split / new)

    rename("cat", "zcat")  # now dogs come first
    for options in ((), ("--other-data",)):
        refused(command(*test, *options), "class 0", "'cat'", "'dog'")
    rename("zcat", "cot")  # the same order
    refused(command(*test), "class 0", "'cat'", "'cot'")
    rename("cot", "cat")
    refused(command(*test, "--dataset", "more"), "more is not the data", "--other-data")
    assert command(*test, "--dataset", "more", "--other-data")[0] == 0
    refused(command(*test, "--dataset", "digits", "--other-data"), "2 classes", "10")
    (tmp_path / "pets" / "train" / "cat" / "0.png").unlink()  # the set's own data has changed
    for asked in (test, ("export", "set", "--to", "npz")):
        refused(command(*asked), "pets is not the data", CondensedSet.load("set").data_hash)


def test_a_set_of_the_first_versions_knows_its_data_by_name(command, refused, made, tmp_path):
    assert made.data_hash == ""
    digits = dclib.load("digits")
    arrays = {name: getattr(digits, name).numpy() for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "same.npz", **{name: a[:, 0] if name.startswith("x") else a for name, a in arrays.items()})
    assert command("train", "set", *QUICK)[0] == 0
    refused(command("train", "set", *QUICK, "--dataset", "same.npz"), "that was digits", "--other-data")
    assert command("train", "set", *QUICK, "--dataset", "same.npz", "--other-data")[0] == 0


def test_a_set_of_data_made_in_python_is_tested_on_that(tmp_path):
    digits = dclib.load("digits", image_size=8)
    parts = (digits.x_train[::2], digits.y_train[::2]), (digits.x_test, digits.y_test)
    pairs = ([(x[0].numpy(), int(y)) for x, y in zip(*part, strict=True)] for part in parts)
    own = dclib.from_torchvision(*pairs, name="mnist")
    dclib.condense(own, **IN_PYTHON).save(tmp_path / "set")
    small, how = CondensedSet.load(tmp_path / "set"), dict(network=MLP[1], epochs=1)
    assert len(dclib.train(small, dataset=own, **how)) == 1
    assert len(dclib.train(small, dataset=digits, other_data=True, **how)) == 1
    with pytest.raises(DataError, match="digits is not the data"):
        dclib.train(small, dataset=digits, **how)
    with pytest.raises(DataError, match="made from data given in Python"):
        dclib.train(small, **how)


def test_a_folder_called_mnist_is_the_users_own_from_any_folder(command, save_own, tmp_path, monkeypatch):
    """What is decided for MNIST, as its augmentation, is not decided for it; the data root's data of that name is not it."""
    save_own(tmp_path / "data" / "mnist.npz")
    write_folder(tmp_path / "mnist")
    assert command("condense", "./mnist", *MAKE, "-o", "set", "--evaluate-every", "1")[0] == 0
    assert command("select", "./mnist", "--method", "random", "-o", "chosen")[0] == 0
    dclib.condense("./mnist", **IN_PYTHON).save("made")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("set", "chosen", "made"):
        small = CondensedSet.load(f"../{name}")
        assert (small.dataset, small.source, small.about["dataset"]) == ("mnist", *[str(tmp_path / "mnist")] * 2)
        status, out, _ = command("train", f"../{name}", *QUICK)
        assert (status, out.splitlines()[1:]) == (0, ["augmentation: none"])


def test_own_arrays_by_name(command, refused, save_own, tmp_path):
    save_own(tmp_path / "data" / "mine.npz")
    assert re.search(r"^mine +npz +30 +30$", command("data")[1], re.M)
    assert command("condense", "mine", *MAKE, "-o", "set")[0] == 0
    assert CondensedSet.load("set").about["dataset"] == "mine"
    save_own(tmp_path / "data" / "mine.npz", seed=1)
    refused(command("condense", "mine", *MAKE, "-o", "set"), "another run")


def test_a_set_is_tested_with_its_own_normalisation(made):
    """By one that divides by a million all test images are alike, so that a network takes them for one class."""
    digits, how = dclib.select("digits", "random", ipc=5), dict(network="MLP:width=16", epochs=30)
    blind = dataclasses.replace(digits, mean=(0.5,), std=(1e6,))
    assert dclib.train(blind, **how)[0] < 20 < dclib.train(digits, **how)[0]
    with pytest.raises(DataError, match=r"the set's images have shape \(1, 28, 28\) and those of digits \(3, 28, 28\): name"):
        dclib.train(made, dataset=dclib.load("digits", channels=3))


# --- run, status, data


@pytest.fixture
def tiny_preset(monkeypatch, shorten_smoke):
    """`smoke` with two sets of two networks, each in a few epochs."""
    return shorten_smoke(monkeypatch, outer_steps=2, sets=2, networks=2, random_sets=2)


NARROW = ("--networks", "random,LeNet", "--test-networks", "LeNet MLP:width=16")


@pytest.mark.slow
def test_run_computes_once_and_prints_the_table(command, tiny_preset, tmp_path):
    status, _, err = command("run", "cross_arch", *NARROW, "--for", "0.001s")
    assert (status, err) == (0, "dclib: time is up: 4 of 4 cells are left; the same command goes on from there\n")
    status, out, err = command("run", "cross_arch", *NARROW)
    assert status == 0
    assert "MLP:width=16" in out.splitlines()[0]
    assert err.count("training ") == 8
    lines = (tmp_path / "results" / "smoke" / "networks.jsonl").read_text().splitlines()
    assert len(lines) == 16
    assert command("run", "cross_arch", *NARROW) == (0, out, "")
    assert (tmp_path / "results" / "smoke" / "networks.jsonl").read_text().splitlines() == lines
    assert re.search(r"^cross_arch +Table 2 +2 of 12 +0 of 36", command("status")[1], re.M)
    assert re.search(r"^cross_arch +Table 2 +0 of 36$", command("status", "--preset", "cpu")[1], re.M)

    (cell,) = experiments.CROSS_ARCH.cells(tiny_preset, network="LeNet", test_network="LeNet")
    run, store = cell.runs()[0], Store(tmp_path / "results")
    repeated = command("train", store.find_set(run.set.key), "--network", "LeNet", "--networks", "2", "--epochs", "3")[1]
    recorded = store.accuracies(run.key)
    assert f"({recorded[0]:.2f}, {recorded[1]:.2f})" in repeated


def test_records_of_own_data_are_shown_only_as_long_as_it_is_the_same(command, refused, tiny_preset, tmp_path):
    write_folder(tmp_path / "pets")
    request = ("run", "cross_arch", "--datasets", "pets", "--networks", "random", "--test-networks", MLP[1])
    status, out, _ = command(*request)
    assert status == 0
    picture = tmp_path / "pets" / "test" / "cat" / "0.png"
    before = picture.read_bytes()
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save(picture)
    refused(command(*request), "pets", "has changed since")
    for given in (dict(preset="smoke", datasets=["pets"]), dict(preset="best", datasets="./pets")):
        with pytest.raises(DataError, match="pets has changed since"):
            reproduce("cross_arch", networks=["random"], test_networks=[MLP[1]], **given)
    picture.write_bytes(before)
    assert command(*request)[:2] == (0, out)


@pytest.mark.slow
def test_status_says_what_is_asked_and_what_is_there(command, tmp_path):
    """Two sets of random images with three networks are all of `cpu` and 6 of the 100 networks of `paper`."""
    cell = experiments.CORESETS.cells(experiments.CPU, dataset="fashionmnist", ipc=1, network="random")[0]
    for run in cell.runs():
        made = dict(key=run.key, kind="TrainNetworks", accuracies={"0": 50.0, "1": 51.0, "2": 52.0})
        Store(tmp_path / "results").add("cpu", made)
    status, out, _ = command("status", "coresets")
    assert out.startswith(f"{experiments.CORESETS.label}: {experiments.CORESETS.question}\n")
    assert re.search(r"^cpu .* 1 of 64$", out, re.M)
    assert re.search(r"^paper .* 0 of 64, 1 in part: 6 of 100 networks$", out, re.M)
    with (tmp_path / "results" / "cpu" / "networks.jsonl").open("a") as file:
        file.write('{"key": "k1", "ki')
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user
        status, out, err = command("status")
    assert status == 0
    assert all(f"{name} " in out for name in experiments.ALL)
    assert str(tmp_path / "results") in out
    assert re.fullmatch(r"dclib: warning: \S+networks.jsonl: the last line is torn and is left out\n", err)


# --- what the command reads and prints


def test_durations_and_lists_are_read():
    assert [console.seconds(text) for text in ("90s", "8m", "2h", "1.5m", " 1s ")] == [90, 480, 7200, 90, 1]
    assert console.words(None) is None
    assert console.words(["a b", "c,d", "ConvNet:width=3,depth=2 MLP"]) == ["a", "b", "c", "d", "ConvNet:width=3,depth=2", "MLP"]


@pytest.mark.parametrize(
    ("error", "status", "part"),
    [
        (SpecError("a sentence"), 1, "dclib: a sentence\n"),
        (Interrupted("stopped"), 130, "stopped"),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 1, "not enough memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nmore"), 1, "smaller batch"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), 1, "unexpected RuntimeError (CUDA"),
        (ZeroDivisionError("division by zero\nand more"), 1, "unexpected ZeroDivisionError (division by zero): DCLIB_DEBUG=1"),
        (AssertionError(), 1, "unexpected AssertionError (no message)"),
    ],
)
def test_every_error_ends_in_a_status_and_one_line(capsys, error, status, part):
    def fail():
        raise error

    assert console.guarded(fail) == status
    out, err = capsys.readouterr()
    assert (out, part in err, err.count("\n")) == ("", True, int(bool(part)))


def test_an_unexpected_error_can_be_looked_into_and_a_warning_is_one_line(monkeypatch, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert console.guarded(lambda: warnings.warn("beware", stacklevel=1)) == 0
    assert capsys.readouterr().err == "dclib: warning: beware\n"
    monkeypatch.setenv("DCLIB_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        console.guarded(lambda: 1 // 0)


def test_a_reader_that_has_seen_enough_is_no_error():
    with subprocess.Popen([sys.executable, "-m", "dclib", "data"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when told to: the seconds in a list of one."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_progress_is_a_line_now_and_then_with_a_forecast(clock, capsys):
    """Without the step that compiled; of unequal steps by their sizes, without the time between them."""
    with progress.Progress("working", 10) as bar:
        bar.skip(2)
        for seconds in (100, 10, 10, 10, 10, 5, 5, 5):
            clock[0] += seconds
            bar.step("loss 3.0")
    with progress.Progress("uneven", [1, 2, 5, 2]) as bar:
        for between, seconds in ((1000, 40), (0, 80), (500, 200), (0, 80)):
            clock[0] += between  # what the step waits for has a bar of its own
            bar.begin()
            clock[0] += seconds
            bar.step()
    with progress.Progress("early", 10) as bar:
        bar.step()
    with pytest.raises(ZeroDivisionError), progress.Progress("failing", 10):
        1 // 0  # noqa: B018
    assert capsys.readouterr().err.splitlines() == [
        "working: 3 of 10, 12 min left, loss 3.0",
        "working: 6 of 10, 40 s left, loss 3.0",
        "working: 10 of 10 in 3 min",
        "uneven: 1 of 4, 6 min left",
        "uneven: 2 of 4, 5 min left",
        "uneven: 3 of 4, 80 s left",
        "uneven: 4 of 4 in 32 min",
        "early: 1 of 10 in 0 s, stopped early",
    ]


def test_progress_on_a_terminal_is_a_bar(clock, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.Progress("working", 3) as bar:
        bar.skip(1)
        bar.step("loss 3.0")
        bar.step("loss 2.0")
    assert re.search(r"working: 100%\|.+\| 3/3 .*loss 2.0", capsys.readouterr().err)
    with progress.Progress("working", [1, 3]) as bar:
        clock[0] += 100
        bar.step()
        bar.bar.refresh()
    said = capsys.readouterr().err
    assert re.search(r"working:  50%\|.+\| 1/2 \[00:00, 5 min left\]", said)
    assert "<" not in said, "tqdm's forecast takes all steps for equal"
