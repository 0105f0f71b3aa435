"""What the tests share: small made data, the records that git holds, and the slow processes that run beside the tests."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dclib import experiments
from dclib.core import lanes
from dclib.data.dataset import Dataset
from dclib.results import Store
from dclib.run import compute as run
from dclib.run import loading

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config):
    """Tests that leave the device open are a CPU's, wherever they run: a GPU is seen by `pytest -m cuda` alone.

    The records under test are those that git holds, so that nothing depends on what a user has run.
    """
    config.committed = tempfile.TemporaryDirectory()
    os.environ["DCLIB_RESULTS"] = str(committed_results(Path(config.committed.name)))
    if config.option.markexpr != "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_unconfigure(config):
    """Remove the copy of the records."""
    config.committed.cleanup()


def committed_results(folder: Path) -> Path:
    """Write what git's index has below results/ into a folder and return it; without git, return the checkout's own."""
    listed = subprocess.run(["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        return ROOT / "results"
    command = ["git", "checkout-index", "-z", "--stdin", f"--prefix={folder}/"]
    subprocess.run(command, cwd=ROOT, input=listed.stdout, check=True)
    return folder / "results"


# --- processes beside the tests


def pytest_collection_modifyitems(items):
    """Put the tests that wait for a process beside the tests at the end."""
    items.sort(key=lambda item: bool({"html", "nbval"} & set(item.fixturenames)))


@pytest.fixture(scope="session", autouse=True)
def beside(request, tmp_path_factory):
    """The book's build and nbval take minutes, so they start before the first test if a test asks for them.

    Returns for each its process and the folder that it writes to.
    """
    asked, started = {name for item in request.session.items for name in item.fixturenames}, {}
    for name, command in {"html": build_book, "nbval": run_nbval}.items():
        if name in asked:
            folder = tmp_path_factory.mktemp(name)
            with (folder / "output.txt").open("w") as output:
                process = subprocess.Popen(command(folder), stdout=output, stderr=subprocess.STDOUT, cwd=folder)
            started[name] = process, folder
    yield started
    for process, _ in started.values():
        process.kill()
        process.wait()


def build_book(folder: Path) -> list[str]:
    """The command that `make book` gives: every warning an error, every reference resolved, every notebook executed."""
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ROOT, "--path-output", folder]
    return [*map(str, command), "--all", "-W", "-n", "--keep-going"]


def run_nbval(folder: Path) -> list[str]:
    """The command that executes the notebooks and compares their kept tables, with a copy of one whose table is wrong."""
    text = (ROOT / "notebooks/datasets.ipynb").read_text()
    assert "73,257 |" in text
    (folder / "wrong.ipynb").write_text(text.replace("73,257 |", "73,258 |"))
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-v", "-c", os.devnull]
    return [*command, f"--rootdir={folder}", str(ROOT / "notebooks"), str(folder)]


@pytest.fixture(scope="session")
def html(beside) -> Path:
    """The book, built."""
    process, folder = beside["html"]
    assert process.wait() == 0, (folder / "output.txt").read_text()[-6000:]
    return folder / "_build/html"


@pytest.fixture(scope="session")
def nbval(beside) -> str:
    """What nbval says of every notebook."""
    process, folder = beside["nbval"]
    process.wait()
    return (folder / "output.txt").read_text()


# --- data and runs


@pytest.fixture(scope="session")
def make_dataset():
    """Return a function that makes a data set of random pixels, with so many training images of each class."""

    def make(*counts: int, channels: int = 1, size: int = 8, seed: int = 0) -> Dataset:
        y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        draw = torch.Generator().manual_seed(seed)
        x = torch.randint(256, (len(y), channels, size, size), dtype=torch.uint8, generator=draw)
        names = tuple("abcdefgh"[: len(counts)])
        return Dataset("made", x, y, x[::2], y[::2], (0.5,) * channels, (0.3,) * channels, names)

    return make


@pytest.fixture(scope="session")
def made(make_dataset):
    """Three classes of 5, 9 and 9 images of 8 × 8 pixels."""
    return make_dataset(5, 9, 9)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Return the command, in an empty folder with records and data of its own: it gives exit status, output and complaints."""
    from dclib.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("DCLIB_DEBUG", raising=False)

    def command(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        return status, *capsys.readouterr()

    return command


@pytest.fixture(scope="session")
def refused():
    """Return a check that a command was refused: status 1, nothing on stdout, and one sentence that names what it must."""

    def check(result: tuple[int, str, str], *parts: object) -> None:
        status, out, err = result
        assert (status, out) == (1, ""), err
        assert [line[:7] for line in err.splitlines() if "warning" not in line] == ["dclib: "], err
        assert not [part for part in parts if str(part) not in err], err

    return check


@pytest.fixture(scope="session")
def save_own():
    """Return a function that writes data of one's own, an .npz of three classes of ten random images, from a seed."""

    def save(path: Path, seed: int = 0) -> None:
        draw, y = np.random.default_rng(seed), np.repeat(np.arange(3), 10)
        x = draw.integers(0, 256, (30, 8, 8), dtype=np.uint8)
        path.parent.mkdir(exist_ok=True)
        np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)

    return save


@pytest.fixture
def own(save_own, tmp_path, monkeypatch) -> Dataset:
    """Data of one's own that is called `made`: three classes of ten random images."""
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path / "data"))
    save_own(tmp_path / "data" / "made.npz")
    return loading.load("made")


@pytest.fixture(scope="session")
def new_runner():
    """Return a function that makes what does runs, with the records of a folder, as a process of its own would."""
    return lambda folder, preset="smoke": run.Runner(Store(folder), preset, device="cpu", engine="eager")


@pytest.fixture
def runner(own, tmp_path, new_runner):
    """Does runs on these images and records them in a new folder."""
    return new_runner(tmp_path / "here")


@pytest.fixture
def one_lane(monkeypatch):
    """Nothing is done side by side, however many threads there are, for tests that count calls one after another."""
    monkeypatch.setattr(lanes, "count", lambda device: 1)


@pytest.fixture(scope="session")
def shorten_smoke():
    """Return a function that puts a preset of few steps and epochs in the place of `smoke`."""

    def shorten(monkeypatch, outer_steps: int, **more: Any) -> experiments.Preset:
        smoke = experiments.SMOKE
        short = dataclasses.replace(
            smoke,
            condensation=lambda cell: dataclasses.replace(smoke.condensation(cell), outer_steps=outer_steps, real_batch=4),
            training=lambda cell: dataclasses.replace(smoke.training(cell), epochs=3),
            **more,
        )
        monkeypatch.setitem(experiments.PRESETS, "smoke", short)
        monkeypatch.setattr(experiments, "SMOKE", short)
        return short

    return shorten
