"""The commands on single sets: condense · train · test · judge · show · select · export · import.

Each checks what it was asked before it loads what computes.
"""

import glob
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import api
from ..errors import DataError, FileError, Interrupted, SpecError, one_of
from ..spec import Condensation, MakeSet, Network, Training, full, variants
from ..support.console import say, seconds, summary, words
from ..support.files import PICTURES, check_writable
from ..support.progress import stopping
from . import options as opt
from .options import examples, option

EXAMPLES = {
    "condense": examples(
        "dclib condense mnist --recipe fast -o set.safetensors",
        "dclib condense cifar10 --recipe beyond -o set.safetensors",
        "dclib condense digits -o set.safetensors -K 50 --real-batch 32",
        "dclib condense mnist --ipc 10 --network ConvNet:norm=batch -o set.safetensors",
        "dclib condense path/to/folder --image-size 32 --init real -o set.safetensors",
        "dclib condense path/to/folder+onblack --image-size 32 -o set.safetensors",
        "dclib condense mnist --ipc 10 --start set.safetensors --init real -o larger.safetensors",
        'dclib condense path/to/classes --hold-out 0.2 --classes "cat dog" --image-size 32 -o set.safetensors',
    ),
    "train": examples(
        "dclib train set.safetensors --network LeNet --networks 5",
        "dclib train set.safetensors --augment crop+flip",
        "dclib train set.safetensors --save network.safetensors --confusion confusion.png",
    ),
    "judge": examples(
        'dclib judge set.safetensors --networks "ConvNet MLP LeNet"',
        "dclib judge set.safetensors --augment 'none dsa' --repeats 10 --record judged.jsonl",
    ),
    "test": examples("dclib test network.safetensors", "dclib test network.safetensors path/to/folder --confusion confusion.png"),
    "select": examples(
        "dclib select mnist --method herding --ipc 10 -o set.safetensors",
        "dclib select path/to/folder --image-size 32 --method random -o set.safetensors",
    ),
    "export": examples(
        "dclib export set.safetensors --to npz -o set.npz",
        "dclib export set.safetensors --to png -o folder",
        "dclib export set.safetensors --to imagefolder -o folder",
    ),
    "import": examples(
        "dclib import res_DC_MNIST_ConvNet_1ipc.pt --dataset mnist --index 4 -o set.safetensors",
        "dclib import images_best.pt --labels labels_best.pt --dataset cifar10 -o set.safetensors",
        "dclib import data_best.pt --dataset cifar10 --factor 2 -o set.safetensors",
    ),
}
RECIPE = "values of the options that are not given: paper; fast, minutes on two cores; or beyond, what came after the paper"


@opt.hyper_options(Condensation)
def condense(
    dataset: opt.DataSet,
    output: opt.Output,
    recipe: Annotated[str, option(RECIPE)] = "paper",
    image_size: opt.Size = 0,
    classes: opt.Classes = "",
    hold_out: opt.HoldOut = 0.0,
    storage: Annotated[str, option("float16 rounds the images, so that the file is half as large")] = MakeSet.storage,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    engine: opt.Engine = "auto",
    snapshots: Annotated[int, option("write a picture to OUTPUT.snapshots/ after each so many outer steps; 0: none")] = 0,
    evaluate_every: Annotated[int, option("test a network trained on the set so far after each so many; 0: never")] = 0,
    start: Annotated[
        Path | None, option("start from the images of this set; those of a class that it lacks, as --init says")
    ] = None,
    keep_state: Annotated[bool, option("keep OUTPUT.checkpoint at the end, from which a larger K goes on", "--keep-state")] = False,
    limit: opt.Limit = "",
    force: opt.Force = False,
    **hyper: Any,
) -> None:
    """Learn a small set of images (Algorithm 1).

    If it is stopped, even killed, the same command continues from OUTPUT.checkpoint to the same images. So does a command with
    another K, unless η_S decays; if the set was finished with --keep-state, one with a larger K replaces it.
    """
    hyper = opt.given(hyper)
    if Path(given := hyper.get("init", "")).is_file():
        raise SpecError(f"init is noise or real, not the file {given}: start from a set's images with --start {given}")
    time_limit = seconds(limit) if limit else None
    network, parameters = Network.parse(hyper.get("network", "ConvNet")), variants.recipe(recipe, **hyper)
    for name, steps in {"snapshots": snapshots, "evaluate_every": evaluate_every}.items():
        if steps < 0:
            raise SpecError(f"{name} must be a whole number of at least 0, not {steps}")
    from ..results import CondensedSet

    first = CondensedSet.load(start) if start else None
    made_from = dict(start=first.hash if first else "", storage=storage)
    run = MakeSet(opt.source(dataset, classes, hold_out), "condense", seed, parameters, image_size, **made_from)

    def looks(dataset: Any, device: str, should_stop: Callable[[], bool]) -> list[Any]:
        from ..run import callbacks

        tested = dict(device=device, engine="eager", should_stop=should_stop)
        found = [callbacks.snapshots(run, dataset, Path(f"{output}.snapshots"), snapshots)] if snapshots else []
        if evaluate_every:  # the network as it was named, in neither stage's form
            found.append(callbacks.early_accuracy(run, network, dataset, evaluate_every, say, **tested))
        return found

    more = dict(start=first) | (dict(longest=parameters.outer_steps) if keep_state else {})
    if _make(run, output, device, engine, force, looks, time_limit, **more):
        file = shlex.quote(str(output))
        print(f"next: dclib show {file} -o {shlex.quote(str(output.with_suffix('.png')))}")
        print(f"      dclib train {file} --network {shlex.quote(hyper.get('network', 'ConvNet'))} --networks 5")


def _make(
    run: MakeSet,
    output: Path,
    device: str,
    engine: str,
    force: bool,
    looks: Callable[[Any, str, Callable[[], bool]], list[Any]] = lambda dataset, device, should_stop: [],
    time_limit: float | None = None,
    **more: Any,
) -> bool:
    """Make a set's file unless it is there; stopped or killed, the same command continues from the checkpoint beside the file.

    If `torchrun` has started several processes, the first writes, and returns True. `more` is for `make_set`; with `longest` the
    checkpoint is kept.
    """
    if output.suffix.lower().removeprefix(".") in PICTURES:
        raise FileError(f"{output} is named as a picture and a set is none: name it {output.with_suffix('.safetensors')}")
    check_writable(output)
    from ..core import ranks
    from ..run.loading import load_of
    from ..run.sets import make_set

    checkpoint = output.with_name(f"{output.name}.checkpoint")
    with ranks.joined(device) as (me, device):
        dataset = load_of(run)  # before signals are caught, so that Ctrl-C ends a download at once
        for line in dataset.understood if me.rank == 0 else ():
            print(f"{dataset.name}: {line}", file=sys.stderr)
        there = me.share(me.rank == 0 and not force and _is_there(run, output, dataset, checkpoint))
        if not there:
            with stopping(time_limit) as should_stop:
                how = dict(engine=engine, checkpoint=checkpoint, should_stop=should_stop, **more)
                seen = looks(dataset, device, should_stop) if me.rank == 0 else []
                made = make_set(run, dataset=dataset, looks=seen, device=device, ranks=me, **how)
                if me.rank == 0:
                    made.save(output)
        if me.rank == 0:
            print(f"{output} is {'there already' if there else 'made'} ({run.words})")
            if "longest" not in more:
                checkpoint.unlink(missing_ok=True)
            for left in output.parent.glob(f".{glob.escape(output.name)}.*"):  # of a killed process, half written
                left.unlink(missing_ok=True)
    return me.rank == 0


def _is_there(run: MakeSet, output: Path, dataset: Any, checkpoint: Path) -> bool:
    """Whether a file holds the set of that run; not where it holds its set after fewer outer steps, and the state to go on from.

    Raises:
        FileError: it holds anything else.
    """
    if not output.exists():
        return False
    from ..results import CondensedSet

    try:
        found = CondensedSet.load(output)
    except FileError:
        raise FileError(f"{output} exists and is no condensed set: choose another name, or replace it with --force") from None
    if (found.key, found.data_hash, found.class_names) != (run.key, dataset.hash, dataset.class_names):
        if K := _fewer_steps(run, found, dataset):
            if run.hyper.image_lr_end:
                raise FileError(f"in {output} η_S decayed over K = {K} outer steps: {_start(output)}")
            if not checkpoint.exists():
                raise FileError(f"{output} holds the set of K = {K}, whose state was not kept: {_start(output)}")
            return False
        raise FileError(f"{output} holds the set of another run: choose another name, or replace it with --force")
    return True


def _fewer_steps(run: MakeSet, found: Any, dataset: Any) -> int:
    """The outer steps of a set that differs from a run's only in having fewer of them; else 0."""
    told, asked = found.about.get("hyper", {}), full(run.hyper)
    K = told.get("outer_steps", run.hyper.outer_steps)
    same = asked | told | {"outer_steps": run.hyper.outer_steps} == asked
    same &= (found.about.get("seed"), found.about.get("start", ""), found.data_hash) == (run.seed, run.start, dataset.hash)
    return K if same and found.about.get("method") == run.method == "condense" and run.hyper.outer_steps > K else 0


def _start(output: Path) -> str:
    return f"start from its images with --start {shlex.quote(str(output))} and another --output, or replace it with --force"


def _check_apart(file: Path, output: Path) -> None:
    if file.resolve() == output.resolve():
        raise FileError(f"{file} is the set itself: name the place to write to with -o")


@opt.hyper_options(Training, augment="auto")
def train(
    file: opt.SetFile,
    networks: Annotated[int, option("how many are trained, each from its own weights")] = 1,
    save: Annotated[Path | None, option("a file to keep the network in, for `dclib test`; of one network")] = None,
    confusion: opt.Confusion = None,
    dataset: opt.TestData = "",
    other_data: opt.OtherData = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    engine: opt.Engine = "auto",
    **hyper: Any,
) -> None:
    """Train networks on a set, test them on real images (stage T)."""
    hyper = opt.given(hyper)
    variants.stage_t("", **hyper)  # refuses what is out of range before anything is loaded
    api.check_networks(networks)
    if networks > 1 and save:
        raise SpecError(f"save keeps one network, not {networks}: train one, or leave --save out")
    _check_places(file, save, confusion)
    from ..results import CondensedSet

    made = CondensedSet.load(file)
    from ..core.train import confusion as count
    from ..run.sets import load_for

    load_for(made, dataset, other_data)  # before signals are caught, so that Ctrl-C ends a download at once
    training, accuracies, counts = variants.stage_t(made.source, **hyper), [], []
    look = (lambda network, tested: counts.append(count(network, tested))) if confusion else lambda network, tested: None
    how = dict(networks=networks, seed=seed, dataset=dataset, other_data=other_data, device=device, engine=engine)
    try:
        with stopping() as should_stop:
            api.train(made, on_network=accuracies.append, should_stop=should_stop, look=look, save=save, **how, **hyper)
    except Interrupted:
        raise Interrupted(f"stopped after {len(accuracies)} of {networks} networks") from None
    finally:
        if accuracies:
            print(f"{training.network}: {summary(accuracies)}")
            print(f"augmentation: {training.augment}")
        if counts:
            _show_classes(sum(counts).numpy(), made.class_names, confusion)
    if save:
        print(f"{save} holds the network; next: dclib test {shlex.quote(str(save))}")


def _check_places(file: Path, save: Path | None, picture: Path | None) -> None:
    """Refuse, before long work, places that a network or a picture cannot be written to."""
    from ..report.figures import picture_format

    for place in filter(None, (save, picture)):
        _check_apart(file, place)
        check_writable(place)
    if picture:
        picture_format(picture)


def _show_classes(counts: Any, names: Sequence[str], picture: Path | None) -> None:
    """Print the accuracy of each class, from how many of its images are taken for which class, and draw these numbers."""
    from ..report.figures import confusion_map, save_picture

    for c, name in enumerate(names):
        total = int(counts[c].sum())
        print(f"  {name}: " + (f"{100 * counts[c, c] / total:.1f} % of {total:,}" if total else "no test image"))
    if picture:
        save_picture(confusion_map(counts, names), picture)
        print(picture)


def test(
    file: Annotated[Path, typer.Argument(metavar="NETWORK", help="a network's file, made by `dclib train --save`")],
    dataset: Annotated[str, typer.Argument(metavar="[DATASET]", help="whose test images; left out: the data of its set")] = "",
    confusion: opt.Confusion = None,
    device: opt.Device = "auto",
) -> None:
    """Test a saved network on real images, class by class."""
    _check_places(file, None, confusion)
    found = api.test(file, dataset, device=device)
    print(f"{found.network} on {len(found.labels):,} test images of {found.dataset}: {found.accuracy:.2f} %")
    _show_classes(found.confusion, found.class_names, confusion)


def judge(
    file: opt.SetFile,
    networks: Annotated[list[str] | None, option("kinds that are trained; several in quotes  [default: ConvNet]")] = None,
    augment: Annotated[list[str] | None, option("none, auto (stage T's), crop …; several in quotes  [default: each]")] = None,
    repeats: Annotated[int, option("how many networks of each kind are trained on each")] = 5,
    epochs: Annotated[int, option("E of stage T; 0: 300, or 1000 with augmentation, as in the paper")] = 300,
    guide_epochs: Annotated[int, option("of the network by whose features herding chooses real images; 0: ten")] = 0,
    record: Annotated[Path | None, option("a file that keeps each accuracy, so that none is computed again")] = None,
    dataset: opt.TestData = "",
    other_data: opt.OtherData = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    engine: opt.Engine = "auto",
) -> None:
    """Compare a set with as many random and herded real images.

    Networks are trained on each by one protocol (stage T), with each augmentation and without any. The table has means with their
    95 % intervals, by how much the set lies above the real images, and how much the augmentation adds.
    """
    kinds, augment = ["ConvNet"] if networks is None else words(networks), words(augment)
    api.trainings(kinds, augment, epochs)  # refuses what is out of range before anything is loaded
    from .. import report
    from ..results import CondensedSet, judged

    made, found = CondensedSet.load(file), {}
    from ..run.sets import load_for

    tested = load_for(made, dataset, other_data)  # before signals are caught, so that Ctrl-C ends a download at once
    checkpoint = file.with_name(f"{file.name}.herding.checkpoint")
    how = dict(epochs=epochs, guide_epochs=guide_epochs, dataset=tested, other_data=other_data, seed=seed, record=record)
    how |= dict(device=device, engine=engine, checkpoint=checkpoint)
    try:
        with stopping() as should_stop:
            told = lambda place, accuracy: found.setdefault(place, []).append(accuracy)  # noqa: E731
            api.judge(made, kinds, augment, repeats, on_network=told, should_stop=should_stop, **how)
        checkpoint.unlink(missing_ok=True)
    finally:
        if found:
            print(f"{len(made.labels)} images of {made.dataset}; {repeats} networks each; E = {epochs or '300, 1000 if augmented'}")
            print(report.judged_table(judged.frame(found)))


def show(file: opt.SetFile, output: opt.Picture = None) -> None:
    """Draw a set: a row for each class."""
    from ..report.figures import save_grid
    from ..results import CondensedSet

    output = output or file.with_suffix(".png")
    _check_apart(file, output)
    save_grid(CondensedSet.load(file), output)
    print(output)


def select(
    dataset: opt.DataSet,
    output: opt.Output,
    method: Annotated[str, option("random, herding, k-center or forgetting")] = "herding",
    ipc: Annotated[int, option("images per class")] = 1,
    network: opt.Network_ = "",
    epochs: Annotated[int, option("of the network's training on the whole set, by which images are chosen; 0: ten")] = 0,
    image_size: opt.Size = 0,
    classes: opt.Classes = "",
    hold_out: opt.HoldOut = 0.0,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    engine: opt.Engine = "auto",
    force: opt.Force = False,
) -> None:
    """Choose real images in place of learning some (coresets).

    If it is stopped, even killed, the same command continues from OUTPUT.checkpoint to the same images.
    """
    run = variants.selection(opt.source(dataset, classes, hold_out), method, ipc, network, epochs, seed, image_size)
    _make(run, output, device, engine, force)


def export(
    file: opt.SetFile,
    to: Annotated[str, option("npz, png, or imagefolder: png with a card for the common hubs", "--to")],
    output: Annotated[Path | None, option("the file or the folder  [default: SET.npz, or SET]", "--output", "-o")] = None,
    test: Annotated[bool | None, option("with test images, so that dclib can read it  [default: npz]")] = None,
    dataset: opt.TestData = "",
    other_data: opt.OtherData = False,
) -> None:
    """Write a set for other programs: an .npz, or PNG files.

    Images are in data colours, what lies outside of them clamped; the .npz has the exact values as well. `imagefolder` is the PNG
    files with README.md, the card of a data set.
    """
    from ..results import CondensedSet
    from ..results import export as forms

    one_of("form", to, forms.FORMS)
    output = output or (file.with_suffix(".npz") if to == "npz" else file.with_suffix(""))
    _check_apart(file, output)
    made = CondensedSet.load(file)
    tested = _test_images(made, dataset, other_data) if (to == "npz" if test is None else test) else None
    made.export(output, to, tested)
    print(f"{output} is made ({len(made.labels)} images{f', {len(tested.y)} test images' if tested else ''})")
    if share := forms.clamped(made):
        exact = "; `images` in it has them as they are" if to == "npz" else ""
        print(f"{share:.1f} % of the values lie outside of the data's colours and are clamped{exact}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="what torch.save wrote, an .npz, or a folder of pictures by class")],
    dataset: Annotated[str, option(f"what it stands for: {opt.DATASET}")],
    output: opt.Output,
    labels: Annotated[Path | None, option("the file of the labels, where FILE has images alone")] = None,
    index: Annotated[int, option("which experiment, where FILE has several: 0, 1, …")] = 0,
    pixels: Annotated[str, option("standardised, unit (in [0, 1]), bytes (0 to 255), or auto, by their range")] = "auto",
    mean: Annotated[str, option("by which pixels were standardised, by channel, as 0.5,0.5,0.5  [default: the data set's]")] = "",
    std: Annotated[str, option("likewise")] = "",
    logits: Annotated[bool, option("the labels are logits", "--logits")] = False,
    factor: Annotated[int, option("each image holds factor × factor smaller ones, as IDC's do")] = 1,
    force: opt.Force = False,
) -> None:
    """Read a set that others published; no code of its file is run."""
    if output.exists() and not force:
        raise FileError(f"{output} exists: choose another name, or replace it with --force")
    check_writable(output)
    how = dict(labels=labels, index=index, pixels=pixels, logits=logits, factor=factor)
    made = api.import_set(file, dataset, mean=_floats("mean", mean), std=_floats("std", std), **how)
    made.save(output)
    found, (_, channels, height, width) = made.about["imported"], made.images.shape
    print(f"{output} is made ({len(made.labels)} images of {dataset}, {channels}×{height}×{width}; {found['form']})")
    print(f"pixels: {found['pixels']}\nlabels: {found['labels']}")


def _floats(name: str, text: str) -> list[float] | None:
    """Numbers with commas between, or None where there is no text."""
    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError:
        raise SpecError(f"{name} is {text!r}: give a number for each channel, as 0.5,0.5,0.5") from None


def _test_images(made: Any, dataset: str, other_data: bool) -> Any:
    from ..results.export import Tested
    from ..run.sets import load_for

    try:
        found = load_for(made, dataset, other_data)
    except DataError as error:
        raise DataError(f"{error}; or leave the test images out with --no-test") from None
    x = found.x_test.permute(0, 2, 3, 1).numpy()
    return Tested(x[..., 0] if x.shape[3] == 1 else x, found.y_test.numpy())
