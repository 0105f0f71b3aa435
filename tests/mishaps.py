"""Mistakes that a user may make (`mishaps.txt` lists them), and files with random bytes changed, lost or added.

Each mistake must end in one sentence on stderr that names what is wrong, and a status that is not 0. A damaged file must be
refused so, too, or give the result that it gives when it is whole. No file that was there before may change.
`campaign.py --inputs` tries all of it.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

TINY = ("-K", "2", "--real-batch", "4", "--network", "MLP:width=4,depth=1", "--engine", "eager", "--device", "cpu")
# a user's network; built for the LEFT-th time (three trials, then each step) it sends a SIGNAL so many TIMES
NET = """
import os
from torch import nn
def Net(channels, classes, size):
    os.environ["LEFT"] = str(int(os.environ.get("LEFT", 0)) - 1)
    for _ in range(int(os.environ.get("TIMES", 1)) * (os.environ["LEFT"] == "0")):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size[0] * size[1], 8), nn.ReLU(), nn.Linear(8, classes){})
"""


class Case(NamedTuple):
    """What was tried, and what came of it: "refused", "harmless" (the result is that of the whole file), or what went wrong.

    A record, which has no checksum, may also be "unnoticed": it is read, and says something else.
    """

    kind: str
    what: str
    came: str


def furnish(place: Path) -> None:
    """Put into a folder, which becomes the current one, what the mistakes name."""
    import torch
    from PIL import Image

    from dclib.cli.main import main

    os.chdir(place)
    with silent():
        assert main(["condense", "digits", "-o", "set", *TINY]) == 0
        assert main(["export", "set", "--to", "npz", "-o", "whole.npz"]) == 0
    Path("bad.py").write_text("1 / 0\n")
    Path("good.py").write_text(NET.format(""))
    Path("dropping.py").write_text(NET.format(", nn.Dropout()"))
    pixels = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    good = {"x_train": pixels, "y_train": np.arange(3), "x_test": pixels, "y_test": np.arange(3)}
    wrong = {
        "floats": {"x_train": pixels * 1.5}, "labels": {"y_train": np.array([0, 1, 5])}, "short": {"y_train": np.arange(2)},
        "flat": {"x_train": pixels.reshape(3, 16)}, "constant": {"x_train": pixels * 0},
        "negative": {"y_train": np.array([-1, 0, 1])}, "pickled": {"x_train": np.array([{}, {}, {}], dtype=object)}, "no_test": {},
        "scaled": {"x_train": pixels / 23.5 - 1, "x_test": pixels / 23.5 - 1}, "twice": {"X_train": pixels},
        "bits": {"x_train": pixels.astype(np.uint16) * 87, "x_test": pixels.astype(np.uint16) * 86},
        "either": {"x_train": np.zeros((3, 3, 9, 3), np.uint8)}, "mixed": {"y_test": np.array(["a", "b", "c"])},
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
    for split in ("train", "test"):
        shutil.copytree(f"one/{split}/a", f"oblong/{split}/b")
    Path("empty").mkdir()
    images = torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64)
    torch.save({"data": [images, images]}, "two.pt")
    torch.save(images[0], "images.pt")
    torch.save({"data": Path("x")}, "code.pt")
    shutil.copytree("one", "deep")
    Image.fromarray(np.full((4, 4), 900, np.uint16)).save("deep/train/a/x.png")


def furnish_for_damage() -> None:
    """Put into the current folder a whole file of each kind that `damaged` damages, and in `kept` a set that none may change."""
    from PIL import Image

    Path("kept").mkdir()
    for name in ("kept/set", "hurt"):
        shutil.copy("set", name)
    shutil.copy("whole.npz", "hurt.npz")
    os.environ.update(LEFT="5", SIGNAL=str(int(signal.SIGINT)))  # at the second of two steps
    status, err = called(["condense", "digits", "-o", "made", *TINY, "--network", "good.py:Net"])
    assert status == 130, err
    for split, c, shade in (("train", "a", 40), ("train", "b", 0), ("test", "a", 40), ("test", "b", 0)):
        Path("pictures", split, c).mkdir(parents=True)
        Image.fromarray(np.full((8, 8), shade, np.uint8)).save(f"pictures/{split}/{c}/0.png")
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save("pictures/train/b/1.png")
    line = {"key": "0123456789abcdef", "kind": "TrainNetworks", "run": {}, "seconds": 1.5}
    Path("records/smoke").mkdir(parents=True)
    lines = (json.dumps({**line, "accuracies": {str(i): 90.5 + i}}) + "\n" for i in range(9))
    Path("records/smoke/networks.jsonl").write_text("".join(lines))


@contextlib.contextmanager
def silent() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Keep what is printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def state(place: Path) -> dict[str, str]:
    """Every file in a folder, and a hash of its content."""
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.rglob("*")) if path.is_file()}


def called(arguments: list[str]) -> tuple[int, str]:
    """The status of a command, and what it says on stderr."""
    from dclib.cli.main import main

    with silent() as (_, err), warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user
        return main(arguments), err.getvalue()


def evaluated(call: str) -> tuple[int, str]:
    """The same of a call in Python."""
    from dclib.errors import DclibError
    from dclib.reproduce import reproduce

    try:
        with silent():
            eval(call, {"reproduce": reproduce})
    except DclibError as error:
        return 1, f"dclib: {error}"
    return 0, ""


def outcome(place: Path, act: Callable[[], tuple[int, str]], *words: str) -> str:
    """What comes of an act: "refused", "was done", or what is wrong with the way that it ended."""
    before = state(place)
    try:
        status, err = act()
    except BaseException as error:  # an interpreter's exit, too
        return f"raised {type(error).__name__}: {error}"
    after, said = state(place), [line for line in err.splitlines() if line.startswith("dclib: ") and "warning" not in line]
    if lost := [path for path, content in before.items() if after.get(path) != content]:
        return f"changed {lost[0]}"
    if not status:
        return "was done"
    if len(said) != 1 or "Traceback" in err or "dclib: unexpected " in err:
        return f"said {err[-200:]!r}"
    return "refused" if all(word in said[0] for word in words) else f"said {said[0]!r}, without one of {words}"


def listed() -> Iterator[tuple[str, str, list[str]]]:
    """Every mistake of `mishaps.txt`: its kind, the command or the call, and the words that the sentence must name."""
    kind = ""
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line.startswith("## "):
            kind = line[3:]
        elif line and not line.startswith("#"):
            request, *words = line.split(" | ")
            values = re.search(r"\{(.*)\}", request)
            for value in re.findall(r"'.*?'|\S+", values[1]) if values else [""]:
                yield kind, re.sub(r"\{.*\}", lambda _, value=value: value, request), [*words, value.strip("[]'\"")]


def mistakes(place: Path) -> Iterator[Case]:
    """Make every mistake of the list."""
    for kind, request, words in listed():
        if "(" in request:
            came = outcome(place, lambda call=request: evaluated(call), *words)
        else:
            arguments = shlex.split(request.replace("TINY", shlex.join(TINY)))
            came = outcome(place, lambda arguments=arguments: called(arguments), *words)
        yield Case(kind, request, came)


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


def damaged(count: int, draw: random.Random) -> Iterator[Case]:
    """Files of each kind with random mutations, `count` of each."""
    from dclib.run import loading

    condense = ["condense", "-o", "made", *TINY]
    kinds: dict[str, tuple[str, list[str], Callable[[], object]]] = {
        "data (.npz)": ("hurt.npz", [*condense, "hurt.npz"], _images),
        "sets (.safetensors)": ("hurt", ["show", "hurt", "-o", "made.png"], lambda: Path("made.png").read_bytes()),
        "checkpoints": ("made.checkpoint", [*condense, "digits", "--network", "good.py:Net"], _images),
        "pictures (.png)": ("pictures/train/b/1.png", [*condense, "./pictures", "--image-size", "8"], _images),
        "records (.jsonl)": ("records/smoke/networks.jsonl", ["status", "method", "--results", "records"], _accuracies),
    }
    furnish_for_damage()
    whole = {kind: Path(path).read_bytes() for kind, (path, *_) in kinds.items()}
    for kind, (path, arguments, result) in kinds.items():
        for i in range(-1, count):  # first the whole file
            loading.load.cache_clear()
            for left in Path().glob("*made*"):
                left.unlink()
            Path(path).write_bytes(whole[kind] if i < 0 else mutated(whole[kind], draw))
            came = outcome(Path("kept"), lambda arguments=arguments: called(arguments))
            found = result() if came == "was done" else None
            if i < 0:
                assert came == "was done", f"{kind}: {came}"
                expected = found
                continue
            if came == "was done":
                came = "harmless" if found == expected else "unnoticed" if "records" in kind else "gave another result"
            yield Case(f"damaged {kind}", f"mutation {i}", came)


def _accuracies() -> dict[int, float]:
    from dclib.results import Store

    return Store("records").accuracies("0123456789abcdef")


def _images() -> bytes:
    from dclib.results import CondensedSet

    return CondensedSet.load("made").images.tobytes()


def campaign(place: Path, count: int, seed: int = 0) -> list[Case]:
    """Make every mistake, and so many mutations of a file of each kind."""
    back = Path.cwd()
    try:
        furnish(place)
        return [*mistakes(place), *damaged(count, random.Random(seed))]
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
