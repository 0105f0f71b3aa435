"""A campaign of mistakes: requests that make no sense, and files with random bytes changed, lost or added.

Each request must end in one sentence on stderr and a status that is not 0, or, where a file was damaged, in the very result
that the file gives when it is whole; no file that was there before may change. `campaign.py --inputs` runs it.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

TINY = ("-K", "2", "--real-batch", "4", "--network", "MLP:width=4,depth=1", "--engine", "eager", "--device", "cpu")
NOTEBOOKS = {
    "preset": ["", "bestt", 3, None, ["smoke"]],
    "recompute": ["yes", 2, None],
    "device": ["gpu", "", 0],
    "datasets": ["digit", "", [], 3],
    "ipc": [0, -1, "x", [], 1.5],
    "networks": ["LeNett", "", [], 7],
    "test_networks": ["random", "", "MLP:width=0"],
    "variants": ["K=3", "init=nois"],
    "dataset": ["digits"],
}


class Case(NamedTuple):
    """What was tried, and what came of it: "refused", "harmless" (the result is that of the whole file), or what went wrong.

    A record, which has no checksum, may also be "unnoticed": it is read, and says something else.
    """

    kind: str
    what: str
    came: str


def furnish(place: Path) -> None:
    """Put into a folder, which becomes the current one, what the requests name."""
    from PIL import Image

    from dclib.cli.main import main

    os.chdir(place)
    with silent():
        assert main(["condense", "digits", "-o", "set", *TINY]) == 0
        assert main(["export", "set", "--to", "npz", "-o", "whole.npz"]) == 0
    Path("bad.py").write_text("1 / 0\n")
    head = "from torch import nn\ndef Net(channels, classes, size):\n    return nn.Sequential(nn.Flatten(), "
    Path("good.py").write_text(head + "nn.Linear(channels * size[0] * size[1], classes))\n")
    Path("dropping.py").write_text(head + "nn.Linear(channels * size[0] * size[1], classes), nn.Dropout())\n")
    pixels = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    good = {"x_train": pixels, "y_train": np.arange(3), "x_test": pixels, "y_test": np.arange(3)}
    wrong = {
        "floats": {"x_train": pixels * 1.5}, "labels": {"y_train": np.array([0, 1, 5])}, "short": {"y_train": np.arange(2)},
        "flat": {"x_train": pixels.reshape(3, 16)}, "constant": {"x_train": pixels * 0},
        "negative": {"y_train": np.array([-1, 0, 1])}, "pickled": {"x_train": np.array([{}, {}, {}], dtype=object)}, "no_test": {},
    }  # fmt: skip
    for name, change in wrong.items():
        arrays = {**good, **change}
        np.savez(f"{name}.npz", **{key: value for key, value in arrays.items() if name != "no_test" or "test" not in key})
    for name, file in {"hollow": "", "stray": "x.png", **dict.fromkeys(("lonely", "oblong", "text", "one"), "a/x.png")}.items():
        for split in ("train", "test") if name != "lonely" else ("train",):
            target = Path(name, split, file)
            (target if not file else target.parent).mkdir(parents=True, exist_ok=True)
            if file and name == "text":
                target.write_text("no picture")
            elif file:
                Image.fromarray(pixels[0][: 3 if name == "oblong" else 4]).save(target)
    Path("empty").mkdir()


@contextlib.contextmanager
def silent() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Keep what is printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def state(place: Path) -> dict[str, str]:
    """Every file in a folder, and a hash of its content."""
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.rglob("*")) if path.is_file()}


def called(arguments: tuple[str, ...], place: Path) -> tuple[int, str, str, str]:
    """Status, output, errors, and what is wrong with the way that the command behaved, if anything."""
    from dclib.cli.main import main

    before = state(place)
    with silent() as (out, err), warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user
        try:
            status = main(list(arguments))
        except BaseException as error:  # an interpreter's exit, too
            return -1, "", "", f"raised {type(error).__name__}"
    after, said = state(place), [line for line in err.getvalue().splitlines() if line.startswith("dclib: ")]
    lost = [path for path, content in before.items() if after.get(path) != content]
    if lost:
        return status, out.getvalue(), err.getvalue(), f"changed {lost[0]}"
    if status != 0 and (len([line for line in said if "warning" not in line]) != 1 or "Traceback" in err.getvalue()):
        return status, out.getvalue(), err.getvalue(), f"said {err.getvalue()[-200:]!r}"
    if "dclib: unexpected " in err.getvalue():
        return status, out.getvalue(), err.getvalue(), f"did not expect it: {said[0]}"
    return status, out.getvalue(), err.getvalue(), ""


def listed() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The requests of `mishaps.txt`, each with its kind."""
    kind = ""
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line.startswith("## "):
            kind = line[3:]
        elif line and not line.startswith("#"):
            words = shlex.split(line)
            yield kind, tuple(w for word in words for w in (TINY if word == "TINY" else (word,)))


def requests(place: Path) -> Iterator[Case]:
    """Requests that make no sense."""
    for kind, arguments in listed():
        status, _, _, wrong = called(arguments, place)
        yield Case(kind, shlex.join(arguments), wrong or ("refused" if status else "was done"))


def notebooks() -> Iterator[Case]:
    """Parameters of notebooks that make no sense."""
    from dclib.errors import DclibError
    from dclib.reproduce import reproduce

    for name, values in NOTEBOOKS.items():
        for value in values:
            try:
                with silent():
                    reproduce("cross_arch", **{name: value})
                came = "was done"
            except DclibError as error:
                came = "refused" if "\n" not in str(error) else f"said {str(error)!r}"
            except Exception as error:
                came = f"raised {type(error).__name__}: {error}"
            yield Case("notebook parameters", f"{name} = {value!r}", came)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A file's content with a few bytes changed, cut off, lost, doubled or added."""
    at, length = draw.randrange(len(content)), draw.randrange(1, 40)
    how = draw.choice(("change", "change", "cut", "lose", "double", "add"))
    if how == "change":
        changed = bytearray(content)
        for i in (draw.randrange(len(content)) for _ in range(draw.choice((1, 1, 8)))):
            changed[i] ^= draw.randrange(1, 256)
        return bytes(changed)
    if how == "cut":
        return content[:at]
    between = {"lose": b"", "double": content[at : at + length] * 2, "add": draw.randbytes(length)}[how]
    return content[:at] + between + content[at + length :]


def damaged(place: Path, count: int, draw: random.Random) -> Iterator[Case]:
    """Files of each kind with random mutations, `count` of each."""
    kinds: dict[str, tuple[str, tuple[str, ...], Callable[[], object]]] = {
        "data (.npz)": ("whole.npz", ("condense", "hurt.npz", "-o", "made", *TINY), _images),
        "sets (.safetensors)": ("set", ("show", "hurt", "-o", "made.png"), lambda: Path("made.png").read_bytes()),
        "checkpoints": ("state", ("condense", "digits", "-o", "made", *TINY), _images),
        "pictures (.png)": ("picture.png", ("condense", "./hurt", "--image-size", "8", "-o", "made", *TINY), _images),
        "records (.jsonl)": ("records", ("status", "--results", "hurt"), _accuracies),
    }
    _keep_originals()
    for kind, (source, arguments, result) in kinds.items():
        original, expected = Path(source).read_bytes(), None
        for i in range(-1, count):  # first the whole file
            _place(kind, original if i < 0 else mutated(original, draw))
            status, _, err, wrong = called(arguments, Path("kept"))
            came = "refused" if status else result()
            if i < 0:
                assert not status, f"{kind}: {err}"
                expected = came
            else:
                right = "harmless" if came == expected else "unnoticed" if "records" in kind else "gave another result"
                yield Case(f"damaged {kind}", f"mutation {i}", wrong or ("refused" if status else right))
            _clear()


def _keep_originals() -> None:
    """Make a checkpoint, a picture and records, and remember in `kept` what no mutation may change."""
    from PIL import Image

    import dclib.core.resume
    from dclib.cli.main import main
    from dclib.core.condense import Condenser
    from dclib.errors import Interrupted

    Path("kept").mkdir()
    Path("kept", "set").write_bytes(Path("set").read_bytes())
    finished, dclib.core.resume.CHECKPOINT_SECONDS = Condenser.finished, -1.0

    def stopped(state: Condenser) -> bool:
        if state.k:
            raise Interrupted("stopped")
        return finished(state)

    Condenser.finished = stopped
    with silent():
        assert main(["condense", "digits", "-o", "made", *TINY]) == 130
    Condenser.finished, dclib.core.resume.CHECKPOINT_SECONDS = finished, 20.0
    os.replace("made.checkpoint", "state")
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save("picture.png")
    line = {"key": "0123456789abcdef", "kind": "TrainNetworks", "accuracies": {"0": 90.5}, "run": {}, "seconds": 1.5}
    Path("records").write_text("".join(json.dumps({**line, "accuracies": {str(j): 90.5 + j}}) + "\n" for j in range(9)))


def _place(kind: str, content: bytes) -> None:
    """Put a damaged file where the request looks for it."""
    from PIL import Image

    from dclib.run import sets

    sets.load.cache_clear()
    if "npz" in kind:
        Path("hurt.npz").write_bytes(content)
    elif "sets" in kind:
        Path("hurt").write_bytes(content)
    elif "checkpoints" in kind:
        Path("made.checkpoint").write_bytes(content)
    elif "png" in kind:
        for split in ("train", "test"):
            for c in "ab":
                Path("hurt", split, c).mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.full((8, 8), 40 * (c == "a"), np.uint8)).save(Path("hurt", split, c, "0.png"))
        Path("hurt", "train", "b", "1.png").write_bytes(content)
    else:
        shutil.rmtree("hurt", ignore_errors=True)
        Path("hurt", "smoke").mkdir(parents=True)
        Path("hurt", "smoke", "networks.jsonl").write_bytes(content)


def _clear() -> None:
    for path in (*Path().glob("made*"), *Path().glob("hurt*"), *Path().glob(".made*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _accuracies() -> dict[int, float]:
    from dclib.results import Store

    return Store("hurt").accuracies("0123456789abcdef")


def _images() -> bytes:
    from dclib.results import CondensedSet

    return CondensedSet.load("made").images.tobytes()


def campaign(place: Path, count: int, seed: int = 0) -> list[Case]:
    """Try all requests and parameters, and so many mutations of a file of each kind."""
    back = Path.cwd()
    try:
        furnish(place)
        return [*requests(place), *notebooks(), *damaged(place, count, random.Random(seed))]
    finally:
        os.chdir(back)


def summary(cases: list[Case]) -> dict[str, dict[str, int]]:
    """For each kind how many were tried, refused, harmless and wrong."""
    found: dict[str, dict[str, int]] = {}
    for case in cases:
        row = found.setdefault(case.kind, dict.fromkeys(("tried", "refused", "harmless", "unnoticed", "wrong"), 0))
        row["tried"] += 1
        row[case.came if case.came in row else "wrong"] += 1
    return found


def wrong(cases: list[Case]) -> list[str]:
    """What did not end as it must, a line each."""
    return [f"{case.kind}: {case.what}: {case.came}" for case in cases if case.came not in ("refused", "harmless", "unnoticed")]
