"""The command: what it answers, what it refuses and in which words, and that it is quick to do so."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

import dclib
from dclib import experiments, reproduce
from dclib.cli.main import app, main
from dclib.errors import DataError, FileError, Interrupted, SpecError
from dclib.experiments import studies
from dclib.results import CondensedSet, Store
from dclib.run import kept, sets
from dclib.spec import Condensation, MakeSet, Network, Training, recipes
from dclib.spec.checks import usual_augmentation
from dclib.support import console, progress

COMMANDS = ("condense", "train", "show", "select", "export", "run", "verify", "status", "merge", "data")
TINY = ("--network", "ConvNet:width=8,depth=2", "-K", "2", "--real-batch", "4")


@pytest.fixture(autouse=True)
def call(tmp_path, monkeypatch, capsys):
    """The command in an empty folder, with its own records: returns exit status, output and complaints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("DCLIB_DEBUG", raising=False)
    sets.load.cache_clear()

    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([str(a) for a in arguments])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def made(tmp_path) -> CondensedSet:
    """A set of two random images per class, in place of a condensed one."""
    rng = np.random.default_rng(0)
    found = sets.load("digits")
    labels = np.arange(10).repeat(2)
    images = rng.standard_normal((20, 1, 28, 28)).astype(np.float32)
    small = CondensedSet(images, labels, "digits", found.class_names, found.mean, found.std, "some-key", {"dataset": "digits"})
    small.save(tmp_path / "set")
    return small


def refused(result, *parts, status=1):
    """Check that a call was refused: one sentence on stderr, nothing on stdout, the right exit status."""
    code, out, err = result
    assert code == status, err
    assert out == ""
    assert err.startswith("dclib: ")
    assert err.count("\n") == 1, err
    assert not re.search(r"\. [A-Z](?!id you)", err), f"more than one sentence: {err}"
    for part in parts:
        assert str(part) in err, f"{part!r} is not named in: {err}"


# --- help


def test_help_lists_the_commands(call):
    for arguments in ((), ("--help",)):
        status, out, err = call(*arguments)
        assert (status, err) == (0, "")
        assert all(re.search(rf"^  {command} +\w", out, re.M) for command in COMMANDS)
        assert "..." not in out.partition("\n")[2], "a command's sentence is cut"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_its_options(call, command):
    status, out, _ = call(command, "--help")
    assert status == 0
    assert "Usage: dclib " + command in out
    options = get_command(app).commands[command].params
    assert all(p.help for p in options if p.name != "help")
    shown = ("condense", "train", "select", "export", "run", "verify", "merge")
    assert ("Examples:\n    dclib " + command in out) == (command in shown)


@pytest.mark.parametrize(("command", "spec"), [("condense", Condensation), ("train", Training)])
def test_every_hyper_parameter_has_an_option_with_its_default(command, spec):
    options = {p.name: p for p in get_command(app).commands[command].params}
    by_recipe = "image_lr", *recipes.FAST[1]
    for field in dataclasses.fields(spec):
        assert field.name in options
        if field.name in by_recipe and spec is Condensation:
            assert f"[default: {field.default:g}" in options[field.name].help
        elif field.name not in ("network", "augment"):
            assert options[field.name].default == field.default
    assert options["network"].default == str(Network())


def test_nothing_heavy_is_loaded_to_answer_or_to_refuse():
    code = """
import sys
from dclib.cli import main
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


BAD_REQUESTS = [
    (("condense", "digitz"), ["digitz", "did you mean 'digits'", ".npz"]),
    (("condense", "nowhere.npz"), ["nowhere.npz"]),
    (("condense", "digits", "--network", "ConvNeet"), ["ConvNeet", "did you mean 'ConvNet'"]),
    (("condense", "digits", "--network", "ConvNet:norms=batch"), ["norms", "did you mean 'norm'"]),
    (("condense", "digits", "--network", "ConvNet:depth=6", "-K", "2"), ["28"]),
    (("condense", "digits", "--ipc", "0"), ["ipc", "0"]),
    (("condense", "digits", "--ipc", "-1"), ["ipc", "-1"]),
    (("condense", "digits", "--ipc", "10000000000"), ["ipc is at most 1,000,000,000", "10,000,000,000"]),
    (("condense", "~no_such_user/x.npz"), ["no data set can be called '~no_such_user/x.npz'"]),
    (("condense", "x" * 300), ["no data set can be called 'xxx", "too long"]),
    (("condense", "digits", "-K", "0"), ["outer_steps", "0"]),
    (("condense", "digits", "-T", "-1"), ["inner_steps", "-1"]),
    (("condense", "digits", "--image-lr", "0"), ["image_lr", "0.0"]),
    (("condense", "digits", "--image-lr", "nan"), ["image_lr", "nan"]),
    (("condense", "digits", "--image-momentum", "1"), ["image_momentum", "1.0"]),
    (("condense", "digits", "--real-batch", "0"), ["real_batch", "0"]),
    (("condense", "digits", "--distance", "l2"), ["l2", "layerwise"]),
    (("condense", "digits", "--init", "zeros"), ["zeros", "noise"]),
    (("condense", "digits", "--bn", "yes"), ["yes", "true"]),
    (("condense", "digits", "--precision", "half"), ["half", "float32"]),
    (("condense", "digits", "--image-size", "-3"), ["-3"]),
    (("condense", "digits", "--device", "gpu"), ["gpu", "cpu"]),
    (("condense", "digits", "--engine", "fast"), ["fast", "eager"]),
    (("condense", "digits", "--init", "real", "--ipc", "500", "-K", "1", "-T", "1"), ["500", "lower ipc"]),
]


@pytest.mark.parametrize(("arguments", "parts"), BAD_REQUESTS, ids=lambda v: " ".join(v))
def test_condense_refuses(call, tmp_path, arguments, parts):
    refused(call(*arguments, "-o", "set"), *parts)
    assert not (tmp_path / "set").exists()
    assert not (tmp_path / "set.checkpoint").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("set", "--network", "LeNett"), ["LeNett", "did you mean 'LeNet'"]),
        (("set", "--networks", "0"), ["networks", "0"]),
        (("set", "--epochs", "-1"), ["epochs", "-1"]),
        (("set", "--augment", "corp"), ["corp", "did you mean 'crop'"]),
        (("set", "--weight-decay", "inf"), ["weight_decay", "inf"]),
        (("set", "--dataset", "mnits"), ["mnits", "did you mean 'mnist'"]),
        (("set", "--device", "tpu"), ["tpu"]),
        (("set", "--engine", "turbo"), ["turbo"]),
        (("set", "--network", "ConvNet:depth=6", "--epochs", "1"), ["28"]),
        (("nowhere",), ["nowhere", "dclib condense"]),
        ((".",), ["dclib condense"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_train_refuses(call, made, arguments, parts):
    refused(call("train", *arguments), *parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("crossarch",), ["crossarch", "did you mean 'cross_arch'"]),
        (("cross_arch", "--preset", "smok"), ["smok", "did you mean 'smoke'"]),
        (("cross_arch", "--preset", "best"), ["best", "smoke, cpu, paper"]),
        (("cross_arch", "--datasets", "digit"), ["digit", "did you mean 'digits'"]),
        (("cross_arch", "--networks", "MLP LeNett"), ["LeNett"]),
        (("cross_arch", "--test-networks", "ConvNet:width=0"), ["width=0"]),
        (("cross_arch", "--test-networks", "random"), ["random"]),
        (("cross_arch", "--ipc", "0"), ["ipc", "0"]),
        (("cross_arch", "--ipc", "1,two"), ["'two'", "1,10,50"]),
        (("cross_arch", "--ipc", " "), ["empty"]),
        (("cross_arch", "--for", "8"), ["'8'", "90s, 8m or 2h"]),
        (("cross_arch", "--device", "gpu"), ["gpu"]),
        (("cross_arch", "--results", "file/below"), ["file"]),
        (("cross_arch", "--workers", "0"), ["workers", "at least 1", "not 0"]),
        (("cross_arch", "--workers", "-2"), ["workers", "not -2"]),
        (("cross_arch", "--workers", "2", "--cluster", "tcp://host:8786"), ["either cluster or workers"]),
        (("cross_arch", "--cluster", "nonsense"), ["'nonsense'", "tcp://host:8786"]),
        (("cross_arch", "--cluster", "http://host:8786"), ["'http://host:8786'", "tcp://host:8786"]),
        (("cross_arch", "--cluster", "tcp://host:99999"), ["'tcp://host:99999'"]),
        (("cross_arch", "--cluster", ""), ["''", "tcp://host:8786"]),
        (("cross_arch", "--engine", "fast", "--networks", "random"), ["fast"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_run_refuses(call, tmp_path, arguments, parts):
    (tmp_path / "file").write_text("kept")
    refused(call("run", *arguments), *parts)
    assert (tmp_path / "file").read_text() == "kept"


def test_status_and_show_refuse(call, made):
    refused(call("status", "--preset", "papper"), "papper", "did you mean 'paper'")
    refused(call("status", "all"), "'all'", "cross_arch", "nas")
    refused(call("show", "nowhere"), "nowhere")
    refused(call("show", "set", "-o", "grid.xyz"), "xyz", "png")
    refused(call("show", "set", "-o", "set/grid.png"), "not a folder")


def test_a_set_is_never_replaced_by_its_picture_or_its_export(call, made, tmp_path):
    before = (tmp_path / "set").read_bytes()
    (tmp_path / "set.png").write_bytes(before)
    refused(call("show", "set.png"), "set.png is the set itself", "-o")
    refused(call("export", "set", "--to", "npz", "-o", tmp_path / "set"), "set is the set itself", "-o")
    assert (tmp_path / "set.png").read_bytes() == (tmp_path / "set").read_bytes() == before
    for command in ("condense", "select"):
        refused(call(command, "digits", "-o", "new.PNG"), "new.PNG is named as a picture", "new.safetensors")


def test_what_cannot_be_drawn_is_refused(call, made, tmp_path):
    whole = CondensedSet.load(tmp_path / "set")
    dataclasses.replace(whole, images=whole.images.repeat(2, axis=1), mean=(0.5,) * 2, std=(0.5,) * 2).save(tmp_path / "two")
    refused(call("show", "two"), "images of 2 channels cannot be drawn")
    rest = whole.labels > 0
    dataclasses.replace(whole, images=whole.images[rest], labels=whole.labels[rest]).save(tmp_path / "bare")
    refused(call("show", "bare"), "the set has no image of class 0")


def test_what_torchrun_started_for_one_process_is_refused(call, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    refused(call("train", "set"), "torchrun has started `dclib train` 2 times")
    refused(call("run", "method"), "use workers=2 instead")
    monkeypatch.delenv("RANK")  # as a cluster's scheduler may leave it
    refused(call("train", "nowhere"), "there is no condensed set nowhere")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("condens", "digits"), ["condens", "'condense'", "dclib --help"]),
        (("condense",), ["DATASET", "dclib condense --help"]),
        (("condense", "digits"), ["--output"]),
        (("condense", "digits", "-o", "set", "--ipc", "two"), ["--ipc"]),
        (("condense", "digits", "-o", "set", "--lr", "1"), ["--lr"]),
        (("condense", "digits", "mnist", "-o", "set"), ["mnist"]),
        (("train", "set", "--networks", "1.5"), ["--networks"]),
        (("status", "nas", "all"), ["all"]),
        (("--verbose",), ["--verbose"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_a_command_line_that_makes_no_sense(call, arguments, parts):
    refused(call(*arguments), *parts, status=2)


def test_no_network_and_no_files(call, monkeypatch):
    import socket
    import urllib.error
    import urllib.request

    def offline(*_, **__):
        raise urllib.error.URLError(socket.gaierror(-3, "no network"))

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    refused(call("condense", "usps", "-o", "set"), "usps.npz", "torchvision's files", "network")
    refused(call("run", "method", "--preset", "cpu", "--datasets", "usps"), "usps.npz")


# --- condense, train, show


def test_condense_then_train_then_show(call, tmp_path):
    status, out, err = call("condense", "digits", *TINY, "-o", "a folder/set.st", "--seed", "3")
    assert status == 0
    assert "condensing digits" in err
    assert "next: dclib show 'a folder/set.st'" in out
    path = tmp_path / "a folder" / "set.st"
    small = CondensedSet.load(path)
    hyper = Condensation(network=Network.parse(TINY[1]), outer_steps=2, real_batch=4).resolve()
    assert small.key == MakeSet("digits", seed=3, hyper=hyper).key
    assert (small.images.shape, small.dataset, len(small.about["losses"])) == ((10, 1, 28, 28), "digits", 2)
    assert [p.name for p in path.parent.iterdir()] == ["set.st"]

    before = path.read_bytes()
    assert "is there already" in call("condense", "digits", *TINY, "-o", path, "--seed", "3")[1]
    refused(call("condense", "digits", *TINY, "-o", path), path, "another run", "--force")
    assert path.read_bytes() == before
    assert call("condense", "digits", *TINY, "-o", path, "--force")[0] == 0
    assert CondensedSet.load(path).key != small.key

    status, out, err = call("train", path, "--network", "LeNet", "--networks", "2", "--epochs", "3")
    assert status == 0
    assert re.fullmatch(r"LeNet: \d+\.\d\d ± \d+\.\d\d % \(\d+\.\d\d, \d+\.\d\d\)\naugmentation: none\n", out)
    assert "training LeNet" in err

    assert call("show", path)[:2] == (0, f"{path.with_suffix('.png')}\n")
    with Image.open(path.with_suffix(".png")) as picture:
        assert picture.size[0] > 100
    assert call("show", path, "-o", "grid.pdf")[0] == 0
    assert (tmp_path / "grid.pdf").read_bytes().startswith(b"%PDF")


def test_what_is_no_set_is_not_replaced_unasked(call, tmp_path):
    (tmp_path / "thesis").write_text("years of work")
    refused(call("condense", "digits", *TINY, "-o", "thesis"), "thesis", "--force")
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_places_are_tried_before_the_work(call, tmp_path, monkeypatch):
    monkeypatch.setattr(sets, "condense_set", lambda *_, **__: pytest.fail("worked before the place was tried"))
    (tmp_path / "file").write_text("kept")
    refused(call("condense", "digits", "-o", "file/set"), "file is a file, not a folder")
    refused(call("condense", "digits", "-o", "."), "it is a folder")
    refused(call("condense", "digits", "-o", "/dev/null"), "no regular file")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ((), 0.1),
        (("--network", "MLP"), 0.01),
        (("--network", "MLP:width=8", "--distance", "cosine"), 0.1),
        (("--network", "MLP", "--image-lr", "0.5"), 0.5),
    ],
)
def test_the_images_learning_rate_is_the_papers(call, monkeypatch, options, rate):
    seen = []
    monkeypatch.setattr(kept, "condense_to_file", lambda run, *_, **__: seen.append(run.hyper.image_lr))
    assert call("condense", "digits", "-o", "set", *options)[0] == 0
    assert seen == [rate]


def test_a_recipe_gives_what_is_not_given(call, monkeypatch):
    seen = []
    monkeypatch.setattr(kept, "condense_to_file", lambda run, *_, **__: seen.append(run.hyper))
    fast = ("condense", "digits", "-o", "set", "--recipe", "fast")
    for options in ((), ("-K", "1000", "--real-batch", "8"), ("--image-lr", "0.1")):
        assert call(*fast, *options)[0] == 0
    whole, some, rate = seen
    assert whole == recipes.fast(Condensation()).resolve() != Condensation().resolve()
    assert some == dataclasses.replace(whole, outer_steps=1000, real_batch=8), "1000 is the default, and was asked for"
    assert rate == dataclasses.replace(whole, image_lr=0.1)
    call("condense", "digits", "-o", "set", "--recipe", "paper")
    assert seen[-1] == Condensation().resolve()
    for unknown in (("--ipc", "7"), ("--network", "MLP"), ("--network", "ConvNet:norm=batch"), ("--distance", "cosine")):
        refused(call(*fast, *unknown), "recipe 'fast' is known for a ConvNet", unknown[1])
    refused(call("condense", "digits", "-o", "set", "--recipe", "quick"), "quick", "fast")


def own_data(size=8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, size, size), dtype=np.uint8)
    y = np.arange(40) % 2
    return dict(x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])


def test_own_data_is_found_again_from_any_folder(call, tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", **own_data())
    options = ("--network", "MLP:width=4", "-K", "1", "--real-batch", "4", "-o", "set")
    assert call("condense", "mine.npz", *options)[0] == 0
    assert CondensedSet.load("set").about["dataset"] == str(tmp_path / "mine.npz")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("train", "../set", "--network", "MLP:width=4", "--epochs", "1")[0] == 0
    refused(call("train", "../set", "--dataset", "digits"), "2 classes", "10")
    np.savez(tmp_path / "mine.npz", **{name: a[::-1] if name == "x_train" else a for name, a in own_data().items()})
    monkeypatch.chdir(tmp_path)
    refused(call("condense", "mine.npz", *options), "another run")


def test_a_folder_of_images(call, tmp_path):
    data = own_data(12)
    for split in ("train", "test"):
        for i, (pixels, label) in enumerate(zip(data[f"x_{split}"], data[f"y_{split}"], strict=True)):
            folder = tmp_path / "pictures" / split / ("cats", "dogs")[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    options = ("--network", "ConvNet:width=4,depth=1", "-K", "1", "--real-batch", "4", "--image-size", "8", "--ipc", "2", "-T", "1")
    assert call("condense", "pictures", *options, "-o", "set")[0] == 0
    small = CondensedSet.load("set")
    assert (small.images.shape, small.class_names, small.ipc) == ((4, 1, 8, 8), ("cats", "dogs"), 2)
    assert call("train", "set", "--network", "MLP:width=4", "--epochs", "1")[0] == 0
    bad = tmp_path / "pictures" / "train" / "cats" / "0.png"
    bad.write_bytes(bad.read_bytes()[:50])
    refused(call("condense", "pictures", *options, "-o", "set2"), "0.png")


# --- a set and the data it is tested on


QUICK = ("--network", "MLP:width=4,depth=1", "--epochs", "1", "--engine", "eager")
MAKE = ("--network", "MLP:width=4,depth=1", "-K", "1", "--real-batch", "4", "--engine", "eager")


def write_folder(folder, classes=("cat", "dog"), seed=0):
    """Six training images of each class and two to test on, at random; the classes' images are apart."""
    rng = np.random.default_rng(seed)
    for split, count in (("train", 6), ("test", 2)):
        for c, name in enumerate(classes):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(120 * c, 120 * c + 60, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")


def rename(folder, old, new):
    for split in ("train", "test"):
        (folder / split / old).rename(folder / split / new)


@pytest.mark.parametrize("test", [("train", "set", *QUICK), ("export", "set", "--to", "npz")], ids=lambda test: test[0])
def test_a_set_is_not_tested_where_its_labels_mean_something_else(call, tmp_path, test):
    write_folder(tmp_path / "pets")
    assert call("condense", "pets", *MAKE, "-o", "set")[0] == 0
    assert call(*test)[0] == 0
    rename(tmp_path / "pets", "cat", "zcat")  # now dogs come first
    for options in ((), ("--dataset", "pets"), ("--other-data",)):
        refused(call(*test, *options), "class 0", "'cat'", "'dog'")
    rename(tmp_path / "pets", "zcat", "cot")  # the same order
    refused(call(*test), "class 0", "'cat'", "'cot'")
    rename(tmp_path / "pets", "cot", "cat")
    assert call(*test)[0] == 0


@pytest.mark.parametrize("test", [("train", "set", *QUICK), ("export", "set", "--to", "npz")], ids=lambda test: test[0])
def test_other_data_with_the_same_classes_must_be_meant(call, tmp_path, test):
    write_folder(tmp_path / "pets")
    write_folder(tmp_path / "more", seed=1)
    write_folder(tmp_path / "wild", classes=("ape", "dog"))
    assert call("condense", "pets", *MAKE, "-o", "set")[0] == 0
    refused(call(*test, "--dataset", "more"), "more is not the data", "--other-data")
    assert call(*test, "--dataset", "more", "--other-data")[0] == 0
    refused(call(*test, "--dataset", "wild", "--other-data"), "class 0", "'cat'", "'ape'")
    refused(call(*test, "--dataset", "digits", "--other-data"), "2 classes", "10")
    (tmp_path / "pets" / "train" / "cat" / "0.png").unlink()  # the set's own data has changed
    refused(call(*test), "pets is not the data", CondensedSet.load("set").data_hash)


def test_a_set_of_the_first_versions_knows_its_data_by_name(call, made, tmp_path):
    assert made.data_hash == ""
    digits = dclib.load("digits")
    arrays = {name: getattr(digits, name).numpy() for name in ("x_train", "y_train", "x_test", "y_test")}
    arrays |= {name: arrays[name][:, 0] for name in ("x_train", "x_test")}
    np.savez(tmp_path / "same.npz", **arrays)
    assert call("train", "set", *QUICK)[0] == 0
    refused(call("train", "set", *QUICK, "--dataset", "same.npz"), "that was digits", "--other-data")
    assert call("train", "set", *QUICK, "--dataset", "same.npz", "--other-data")[0] == 0


def test_a_set_knows_the_part_of_the_data_that_it_was_made_from(tmp_path):
    how = dict(network=Network.parse("MLP:width=4,depth=1"), outer_steps=1, real_batch=4)
    run = MakeSet("digits", hyper=Condensation(**how), held_out=100, image_size=8)
    small = dclib.condense_set(run, device="cpu", engine="eager")
    assert small.data_hash != dclib.load("digits", image_size=8).hash
    assert sets.load_for(small).hash == dclib.load("digits", image_size=8).hash
    with pytest.raises(DataError, match="is not the data"):
        sets.load_for(dataclasses.replace(small, about={**small.about, "held_out": 50}))


def test_a_set_of_data_made_in_python_is_tested_on_that(tmp_path):
    digits = dclib.load("digits", image_size=8)
    parts = (digits.x_train[::2], digits.y_train[::2]), (digits.x_test, digits.y_test)
    pairs = ([(x[0].numpy(), int(y)) for x, y in zip(*part, strict=True)] for part in parts)
    own = dclib.from_torchvision(*pairs, name="mnist")
    run = MakeSet("mnist", hyper=Condensation(network=Network.parse("MLP:width=4,depth=1"), outer_steps=1, real_batch=4))
    small = dclib.condense_set(run, dataset=own, device="cpu", engine="eager")
    hyper = Training(network=run.hyper.network, epochs=1)
    assert len(dclib.train_on_set(small, hyper, dataset=own)) == 1
    with pytest.raises(DataError, match="digits is not the data"):
        dclib.train_on_set(small, hyper, dataset=digits)
    assert len(dclib.train_on_set(small, hyper, dataset=digits, other_data=True)) == 1
    with pytest.raises(DataError, match="made from data given in Python"):
        dclib.train_on_set(small, hyper)
    small.save(tmp_path / "set")
    assert usual_augmentation(CondensedSet.load(tmp_path / "set").source, hyper.network) == "none"


def test_a_folder_called_mnist_is_the_users_own(call, tmp_path):
    """What is decided for MNIST, as its augmentation, is not decided for a folder of that name."""
    write_folder(tmp_path / "mnist")
    assert call("condense", "./mnist", *MAKE, "-o", "set", "--evaluate-every", "1")[0] == 0
    small = CondensedSet.load("set")
    assert (small.dataset, small.source, small.about["dataset"]) == ("mnist", *[str(tmp_path / "mnist")] * 2)
    status, out, _ = call("train", "set", *QUICK)
    assert (status, out.splitlines()[1:]) == (0, ["augmentation: none"])
    small = dataclasses.replace(small, about={k: v for k, v in small.about.items() if k != "source"})  # as made before
    small.save("set")
    assert call("train", "set", *QUICK)[1] == out


def test_a_path_means_the_same_wherever_the_command_is_given(call, tmp_path, monkeypatch):
    """Also where the data root has data of that name."""
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "pets.npz", **own_data())
    write_folder(tmp_path / "pets")
    assert call("condense", "./pets", *MAKE, "-o", "set")[0] == 0
    assert call("select", "./pets", "--method", "random", "-o", "chosen")[0] == 0
    run = MakeSet("./pets", hyper=Condensation(network=Network.parse("MLP:width=4,depth=1"), outer_steps=1, real_batch=4))
    dclib.condense_set(run, device="cpu", engine="eager").save("made")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("set", "chosen", "made"):
        small = CondensedSet.load(f"../{name}")
        assert small.about["dataset"] == small.source == str(tmp_path / "pets")
        assert call("train", f"../{name}", *QUICK)[0] == 0


def test_a_set_is_tested_with_its_own_normalisation(made):
    changed = dataclasses.replace(made, mean=(0.5,), std=(2.0,))
    assert (sets.load_for(changed).mean, sets.load_for(changed).std) == ((0.5,), (2.0,))
    coloured = dclib.load("digits", channels=3)
    with pytest.raises(DataError, match=r"the set's images have shape \(1, 28, 28\) and those of digits \(3, 28, 28\): name"):
        sets.load_for(changed, coloured)


def test_augmentation_is_the_papers_unless_named(call, made, monkeypatch):
    seen = []
    monkeypatch.setattr(sets, "train_on_set", lambda small, hyper, **_: seen.append((hyper.augment, hyper.epochs)))
    monkeypatch.setattr(sets, "load_for", lambda *_: None)
    call("train", "set")
    call("train", "set", "--augment", "flip", "--epochs", "5")
    call("train", "set", "--network", "ConvNet:norm=batch")
    call("train", "set", "--network", "AlexCifarNet")
    dataclasses.replace(made, dataset="mnist", about={"dataset": "mnist"}).save("set")
    call("train", "set")
    call("train", "set", "--network", "ConvNet:norm=batch")
    expected = [("none", 300), ("flip", 5), ("crop+noise", 1000), ("crop+scale+rotate", 1000)]
    assert seen == [*expected, ("crop+scale+rotate", 1000), ("crop+noise", 1000)]


def test_a_damaged_set_is_refused_by_every_command(call, made, tmp_path):
    whole = (tmp_path / "set").read_bytes()
    for damaged in (whole[:-100], whole[:300], b"", whole[:5000] + b"\0" + whole[5001:]):
        (tmp_path / "set").write_bytes(damaged)
        refused(call("train", "set"), "set", "damaged")
        refused(call("show", "set"), "set", "damaged")
        refused(call("condense", "digits", "-o", "set"), "no condensed set", "--force")
        assert (tmp_path / "set").read_bytes() == damaged
        assert not (tmp_path / "set.png").exists()


# --- run, status, data


@pytest.fixture
def tiny_preset(monkeypatch, shorten_smoke):
    """`smoke` with two sets of two networks, each in a few epochs."""
    return shorten_smoke(monkeypatch, outer_steps=2, sets=2, networks=2, random_sets=2)


NARROW = ("--networks", "random,LeNet", "--test-networks", "LeNet MLP:width=16")


def test_run_computes_once_and_prints_the_table(call, tiny_preset, tmp_path):
    status, out, err = call("run", "cross_arch", *NARROW)
    assert status == 0
    assert "MLP:width=16" in out.splitlines()[0]
    assert err.count("training ") == 8
    lines = (tmp_path / "results" / "smoke" / "networks.jsonl").read_text().splitlines()
    assert len(lines) == 16
    again = call("run", "cross_arch", *NARROW)
    assert again == (0, out, "")
    assert (tmp_path / "results" / "smoke" / "networks.jsonl").read_text().splitlines() == lines
    assert re.search(r"^cross_arch +Table 2 +2 of 12 +0 of 36", call("status")[1], re.M)
    assert re.search(r"^cross_arch +Table 2 +0 of 36$", call("status", "--preset", "cpu")[1], re.M)


def test_train_repeats_what_a_run_recorded(call, tiny_preset, tmp_path):
    call("run", "cross_arch", "--networks", "LeNet", "--test-networks", "LeNet")
    (cell,) = experiments.CROSS_ARCH.cells(tiny_preset, network="LeNet", test_network="LeNet")
    run, store = cell.runs()[0], Store(tmp_path / "results")
    out = call("train", store.find_set(run.set.key), "--network", "LeNet", "--networks", "2", "--epochs", "3")[1]
    recorded = store.accuracies(run.key)
    assert f"({recorded[0]:.2f}, {recorded[1]:.2f})" in out


def test_records_of_own_data_are_shown_only_as_long_as_it_is_the_same(call, tiny_preset, tmp_path):
    write_folder(tmp_path / "pets")
    tested = "MLP:width=4,depth=1"
    request = ("run", "cross_arch", "--datasets", "pets", "--networks", "random", "--test-networks", tested)
    status, out, _ = call(*request)
    assert status == 0
    assert call(*request)[:2] == (0, out)
    picture = tmp_path / "pets" / "test" / "cat" / "0.png"
    before = picture.read_bytes()
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save(picture)
    refused(call(*request), "pets", "has changed since")
    with pytest.raises(DataError, match="pets has changed since"):
        reproduce.reproduce("cross_arch", preset="smoke", datasets=["pets"], networks=["random"], test_networks=[tested])
    with pytest.raises(DataError, match="pets has changed since"):
        reproduce.reproduce("cross_arch", preset="best", datasets="./pets", networks="random")
    refused(call(*request, "--ipc", "2"), "has changed since")
    assert not (tmp_path / "results" / "smoke" / "checkpoints").exists()
    picture.write_bytes(before)
    assert call(*request)[:2] == (0, out)


def test_run_stops_when_time_is_up(call, tiny_preset, monkeypatch):
    status, _, err = call("run", "cross_arch", *NARROW, "--for", "0.001s")
    assert status == 0
    assert err == "dclib: time is up: 4 of 4 cells are left; the same command goes on from there\n"


@pytest.mark.parametrize("experiment", [*experiments.ALL.values(), *studies.ALL.values()], ids=lambda e: e.name)
def test_status_of_one_experiment_says_what_it_asks(call, experiment):
    status, out, err = call("status", experiment.name)
    assert (status, err) == (0, "")
    question, head, *rows, _ = out.splitlines()
    assert question == f"{experiment.label}: {experiment.question}"
    assert head.split() == ["preset", "purpose", "recorded"]
    for row, preset in zip(rows, experiments.PRESETS.values(), strict=True):
        assert re.fullmatch(rf"{preset.name} +{re.escape(preset.purpose)} +0 of {len(experiment.cells(preset))}", row)
    assert call("status", experiment.name, "--preset", "cpu")[1].splitlines()[2].startswith("cpu")


def test_status_says_how_many_networks_of_how_many_a_cell_in_part_has(call, tmp_path):
    """Two sets of random images with three networks are all of `cpu` and 6 of the 100 networks of `paper`."""
    cell = experiments.CORESETS.cells(experiments.CPU, dataset="fashionmnist", ipc=1, network="random")[0]
    for run in cell.runs():
        made = dict(key=run.key, kind="TrainNetworks", accuracies={"0": 50.0, "1": 51.0, "2": 52.0})
        Store(tmp_path / "results").add("cpu", made)
    _, out, _ = call("status", "coresets")
    assert re.search(r"^cpu .* 1 of 64$", out, re.M)
    assert re.search(r"^paper .* 0 of 64, 1 in part: 6 of 100 networks$", out, re.M)


def test_status_and_data_in_an_empty_folder(call, tmp_path):
    status, out, err = call("status")
    assert (status, err) == (0, "")
    assert all(f"{name} " in out for name in experiments.ALL)
    assert str(tmp_path / "results") in out
    status, out, err = call("data")
    assert (status, err) == (0, "")
    assert re.search(r"^digits +embedded +1,000 +797$", out, re.M)
    assert re.search(r"^svhn10k +downloadable +8,000 +2,000 +a stand-in$", out, re.M)
    assert "put NAME.npz" in out
    assert str(tmp_path / "data") in out


def test_data_lists_the_users_own(call, tmp_path):
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "mine.npz", **own_data())
    assert re.search(r"^mine +npz +30 +10$", call("data")[1], re.M)
    assert call("condense", "mine", "--network", "MLP:width=4", "-K", "1", "-o", "set")[0] == 0
    assert CondensedSet.load("set").about["dataset"] == "mine"


# --- the console


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("8m", 480), ("2h", 7200), ("1.5m", 90), (" 1s ", 1)])
def test_durations(text, expected):
    assert console.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "8", "m", "0s", "-1s", "1e3s", "1 m", "1d", "nan s", "²s"])
def test_what_is_no_duration(text):
    with pytest.raises(SpecError, match="90s, 8m or 2h"):
        console.seconds(text)


def test_words():
    assert console.words(None) is None
    assert console.words(["a b", "c,d"]) == ["a", "b", "c", "d"]
    assert console.words(["ConvNet:width=3,depth=2 MLP"]) == ["ConvNet:width=3,depth=2", "MLP"]
    assert console.words([""]) == []


def test_tables_align_numbers_to_the_right():
    text = console.table(("name", "n", ""), [("a", 5, "x"), ("long", 12345, "")])
    assert text.splitlines() == ["name       n", "a          5  x", "long  12,345"]


@pytest.mark.parametrize(
    ("error", "status", "part"),
    [
        (SpecError("a sentence"), 1, "dclib: a sentence\n"),
        (DataError("a sentence"), 1, "a sentence"),
        (FileError("a sentence"), 1, "a sentence"),
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
    assert out == ""
    assert part in err
    assert err.count("\n") == bool(part)


def test_an_unexpected_error_can_be_looked_into(monkeypatch):
    monkeypatch.setenv("DCLIB_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        console.guarded(lambda: 1 // 0)


def test_a_warning_is_one_line(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert console.guarded(lambda: warnings.warn("beware", stacklevel=1)) == 0
    assert capsys.readouterr().err == "dclib: warning: beware\n"


def test_a_torn_record_is_told_and_does_not_hinder(tmp_path):
    (tmp_path / "results" / "cpu").mkdir(parents=True)
    (tmp_path / "results" / "cpu" / "networks.jsonl").write_text('{"key": "k1", "ki')
    done = subprocess.run([sys.executable, "-m", "dclib", "status"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert re.fullmatch(r"dclib: warning: \S+networks.jsonl: the last line is torn and is left out\n", done.stderr)


def test_a_reader_that_has_seen_enough_is_no_error():
    with subprocess.Popen([sys.executable, "-m", "dclib", "data"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


class Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_progress_forecasts_without_the_step_that_compiled(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    with progress.Progress("working", 10) as bar:
        bar.skip(2)
        for seconds in (100, 10, 10, 10, 10, 5, 5, 5):
            clock.now += seconds
            bar.step("loss 3.0")
    assert capsys.readouterr().err.splitlines() == [
        "working: 3 of 10, 12 min left, loss 3.0",
        "working: 6 of 10, 40 s left, loss 3.0",
        "working: 10 of 10 in 3 min",
    ]


def test_progress_of_unequal_steps_forecasts_by_their_sizes(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    with progress.Uneven("working", [1, 2, 5, 2]) as bar:
        for between, seconds in ((1000, 40), (0, 80), (500, 200), (0, 80)):
            clock.now += between  # what the step waits for has a bar of its own
            bar.begin()
            clock.now += seconds
            bar.step()
    assert capsys.readouterr().err.splitlines() == [
        "working: 1 of 4, 6 min left",
        "working: 2 of 4, 5 min left",
        "working: 3 of 4, 80 s left",
        "working: 4 of 4 in 32 min",
    ]


def test_progress_of_unequal_steps_on_a_terminal_has_its_own_forecast_alone(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.Uneven("working", [1, 3]) as bar:
        clock.now += 100
        bar.step()
        bar.bar.refresh()
    said = capsys.readouterr().err
    assert re.search(r"working:  50%\|.+\| 1/2 \[00:00, 5 min left\]", said)
    assert "<" not in said, "tqdm's forecast takes all steps for equal"


def test_progress_tells_what_was_left_out(capsys):
    with progress.Progress("working", 10) as bar:
        bar.step()
    assert capsys.readouterr().err == "working: 1 of 10 in 0 s, stopped early\n"


def test_progress_says_nothing_more_when_the_work_fails(capsys):
    with pytest.raises(ZeroDivisionError), progress.Progress("working", 10):
        1 // 0  # noqa: B018
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.Progress("working", 3) as bar:
        bar.skip(1)
        bar.step("loss 3.0")
        bar.step("loss 2.0")
    assert re.search(r"working: 100%\|.+\| 3/3 .*loss 2.0", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89.0, "89 s"), (90.0, "2 min"), (5399.0, "90 min"), (5400.0, "1.5 h")]
)
def test_durations_as_people_say_them(seconds, text):
    assert progress.clock(seconds) == text


# --- the package


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, dclib; assert dclib.ConvNet(width=3); print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "False False\n"


def test_public_names_are_there_and_modules_stay_modules():
    assert {"load", "Condensation", "Training", "ConvNet", "CondensedSet", "evaluate", "condense_set"} <= set(dclib.__all__)
    assert all(getattr(dclib, name).__module__.startswith("dclib.") for name in dclib.__all__)
    assert set(dclib.__all__) <= set(dir(dclib))
    assert inspect.ismodule(dclib.core.condense)
    assert inspect.ismodule(dclib.core.train)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dclib.nothing  # noqa: B018


def test_the_example_of_the_package_runs(monkeypatch, capsys):
    example = "\n".join(line[4:] for line in dclib.__doc__.splitlines() if line.startswith("    "))
    assert "import dclib" in example
    assert len([line for line in example.splitlines() if line]) == 5
    small = example.replace("outer_steps=50, real_batch=32", "outer_steps=1, real_batch=4, network=dclib.MLP(width=4)")
    assert small != example
    exec(small.replace("network=dclib.LeNet()", "network=dclib.MLP(width=4), epochs=1"), {})
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert os.path.isfile("set.safetensors")
    assert Path("set.safetensors").stat().st_size > 10_000
