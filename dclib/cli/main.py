"""The command `dclib`: condense · train · show · select · export · run · verify · status · merge · data.

Each command checks what it was asked before it loads what computes, so that `--help`, `status`, `data` and every refusal answer
at once. Results go to stdout, progress to stderr; whatever goes wrong is one sentence on stderr and a non-zero exit status.
"""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Interrupted, SpecError
from ..spec import AUGMENTATIONS, DISTANCES, Condensation, MakeSet, Network, Training, recipes
from ..spec.checks import usual_augmentation
from ..support.console import guarded, say, summary, table
from ..support.provenance import launched
from . import on_records, on_sets
from .options import DataSet, Device, Engine, Network_, OtherData, Precision, Seed, SetFile, examples, option

app = typer.Typer(
    help="Dataset condensation with gradient matching: learn a few images that train a network almost as the whole data set does.",
    epilog="A data set is a name (`dclib data` lists them), an .npz file, or a folder with train/<class>/ and test/<class>/.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command(
    epilog=examples(
        "dclib condense mnist --recipe fast -o set.safetensors",
        "dclib condense digits -o set.safetensors -K 50 --real-batch 32",
        "dclib condense mnist --ipc 10 --network ConvNet:norm=batch -o set.safetensors",
        "dclib condense path/to/folder --image-size 32 --init real -o set.safetensors",
        "dclib condense path/to/folder+onblack --image-size 32 -o set.safetensors",
    )
)
def condense(
    dataset: DataSet,
    output: Annotated[Path, option("the set's file", "--output", "-o")],
    ipc: Annotated[int, option("images per class")] = Condensation.ipc,
    network: Network_ = "ConvNet",
    recipe: Annotated[str, option("values of the options that are not given: paper, or fast (minutes on two cores)")] = "paper",
    outer_steps: Annotated[int | None, option("K, each with a fresh network  [default: 1000]", "--outer-steps", "-K")] = None,
    inner_steps: Annotated[int, option("T; 0: the paper's for this many images", "--inner-steps", "-T")] = 0,
    image_steps: Annotated[int, option("ς_S")] = Condensation.image_steps,
    image_lr: Annotated[float | None, option("η_S  [default: 0.1; with MLP 0.01, if the distance is layerwise]")] = None,
    image_lr_end: Annotated[float | None, option("where η_S ends, by half a cosine over K; 0: constant  [default: 0]")] = None,
    image_momentum: Annotated[float, option("of the images' optimiser")] = Condensation.image_momentum,
    network_epochs: Annotated[int, option("ς_θ; 0: the paper's for this many images")] = 0,
    network_lr: Annotated[float, option("η_θ")] = Condensation.network_lr,
    network_momentum: Annotated[float, option("of the network's optimiser")] = Condensation.network_momentum,
    network_batch: Annotated[int, option("images in a batch of the network's training")] = Condensation.network_batch,
    real_batch: Annotated[int | None, option("real images of each class in a step  [default: 256]")] = None,
    distance: Annotated[str, option(f"D: {', '.join(DISTANCES)}")] = Condensation.distance,
    init: Annotated[str, option("start from noise or from real images")] = Condensation.init,
    batches: Annotated[str, option("match each class's gradient, separate, or that of all classes, mixed")] = Condensation.batches,
    bn: Annotated[str, option("batch norm's statistics: code: the authors' estimate; true: the real images'")] = Condensation.bn,
    patience: Annotated[int, option("stop when the loss has not fallen for so many outer steps; 0: never")] = 0,
    precision: Precision = Condensation.precision,
    image_size: Annotated[int, option("resize to this square size first; 0: leave it")] = 0,
    storage: Annotated[str, option("float16 rounds the images, so that the file is half as large")] = MakeSet.storage,
    seed: Seed = 0,
    device: Device = "auto",
    engine: Engine = "auto",
    snapshots: Annotated[int, option("write a picture to OUTPUT.snapshots/ after each so many outer steps; 0: none")] = 0,
    evaluate_every: Annotated[int, option("test a network trained on the set so far after each so many; 0: never")] = 0,
    force: Annotated[bool, option("replace another set in that file", "--force")] = False,
) -> None:
    """Learn a small set of images (Algorithm 1).

    Stopped in any way, even killed, the same command goes on from OUTPUT.checkpoint to the same images. So does one with another K,
    unless η_S decays.
    """
    named = Network.parse(network)
    options = locals() | {"network": named}
    given = {f.name: options[f.name] for f in dataclasses.fields(Condensation) if options[f.name] is not None}
    usual = {"image_lr": 0.01 if named.family == "MLP" and distance == "layerwise" else 0.1}
    hyper = Condensation(**usual | given)
    hyper = dataclasses.replace(hyper, **recipes.changes(recipe, hyper) | given).resolve()
    from ..data.sources import spelled

    run = MakeSet(spelled(dataset), "condense", seed, hyper, image_size, storage=storage)
    if not _condense(run, named, output, device, engine, force, {"snapshots": snapshots, "evaluate_every": evaluate_every}):
        return
    file = shlex.quote(str(output))
    print(f"next: dclib show {file} -o {shlex.quote(str(output.with_suffix('.png')))}")
    print(f"      dclib train {file} --network {shlex.quote(network)} --networks 5")


def _condense(run: MakeSet, network: Network, output: Path, device: str, engine: str, force: bool, watched: dict[str, int]) -> bool:
    """Make the set, with the other processes if `torchrun` has started several; True in the one that speaks for all."""
    from ..support.files import check_output

    check_output(output)
    if bad := [name for name, steps in watched.items() if steps < 0]:
        raise SpecError(f"{bad[0]} must be a whole number of at least 0, not {watched[bad[0]]}")
    from ..core import ranks
    from ..run import kept, sets
    from ..support.stopping import stopping

    with ranks.joined(device) as (me, device):
        sets.load_of(run)  # before signals are caught, so that Ctrl-C ends a download at once
        there = me.share(me.rank == 0 and not force and kept.is_there(run, output))
        if not there:
            looks = _looks(run, network, output, device, **watched) if me.rank == 0 else ()
            with stopping() as should_stop:
                kept.condense_to_file(run, output, device=device, engine=engine, should_stop=should_stop, ranks=me, looks=looks)
        if me.rank == 0:
            print(f"{output} is {'there already' if there else 'made'} ({run.words})")
            kept.remove_checkpoint(output)
    return me.rank == 0


def _looks(run: MakeSet, network: Network, output: Path, device: str, snapshots: int, evaluate_every: int) -> list:
    """What is looked at between outer steps; the network is the one that was named, in neither stage's form."""
    if not snapshots and not evaluate_every:
        return []
    from ..run import callbacks as watch
    from ..run import sets

    dataset, looks = sets.load_of(run), []
    if snapshots:
        looks.append(watch.every(snapshots, watch.snapshots(run, dataset, output.with_name(f"{output.name}.snapshots"))))
    if evaluate_every:
        early = watch.early_accuracy(run, network, dataset, say, device=device, engine="eager")
        looks.append(watch.every(evaluate_every, early))
    return looks


@app.command(
    epilog=examples("dclib train set.safetensors --network LeNet --networks 5", "dclib train set.safetensors --augment crop+flip")
)
def train(
    file: SetFile,
    network: Network_ = "ConvNet",
    networks: Annotated[int, option("how many are trained, each from its own weights")] = 1,
    dataset: Annotated[str, option("whose test images are classified  [default: the set's own]")] = "",
    other_data: OtherData = False,
    epochs: Annotated[int, option("E, of 0 … E; 0: 300, or 1000 with augmentation")] = 0,
    lr: Annotated[float, option("learning rate, a tenth of it from half-way on")] = Training.lr,
    momentum: Annotated[float, option("momentum")] = Training.momentum,
    weight_decay: Annotated[float, option("weight decay")] = Training.weight_decay,
    batch: Annotated[int, option("images in a batch")] = Training.batch,
    augment: Annotated[str, option(f"none, or of {', '.join(AUGMENTATIONS)}, with + between; auto: the paper's")] = "auto",
    precision: Precision = Training.precision,
    seed: Seed = 0,
    device: Device = "auto",
    engine: Engine = "auto",
) -> None:
    """Train networks on a set, test them on real images (stage T)."""
    options = locals() | {"network": Network.parse(network), "augment": "none" if augment == "auto" else augment}
    hyper = Training(**{f.name: options[f.name] for f in dataclasses.fields(Training)})
    if networks < 1:
        raise SpecError(f"networks must be a whole number of at least 1, not {networks}")
    from ..results import CondensedSet

    made = CondensedSet.load(file)
    if augment == "auto":
        hyper = dataclasses.replace(hyper, augment=usual_augmentation(made.source, hyper.network))
    how = dict(networks=networks, seed=seed, dataset=dataset, other_data=other_data, device=device, engine=engine)
    _train(made, hyper.resolve(), **how)


def _train(made: Any, hyper: Training, networks: int, **how: Any) -> None:
    from ..run.sets import load_for, train_on_set
    from ..support.stopping import stopping

    load_for(made, how["dataset"], how["other_data"])  # as in `condense`
    accuracies: list[float] = []
    try:
        with stopping() as should_stop:
            train_on_set(made, hyper, networks=networks, on_network=accuracies.append, should_stop=should_stop, **how)
    except Interrupted:
        raise Interrupted(f"stopped after {len(accuracies)} of {networks} networks") from None
    finally:
        if accuracies:
            print(f"{hyper.network}: {summary(accuracies)}")
            print(f"augmentation: {hyper.augment}")


@app.command()
def show(file: SetFile, output: Annotated[Path | None, option("a picture  [default: SET.png]", "--output", "-o")] = None) -> None:
    """Draw a set: a row for each class."""
    from ..report.figures import save_grid
    from ..results import CondensedSet
    from ..support.files import check_apart

    output = output or file.with_suffix(".png")
    check_apart(file, output)
    save_grid(CondensedSet.load(file), output)
    print(output)


app.command(epilog=on_sets.SELECT_EXAMPLES)(on_sets.select)
app.command(epilog=on_sets.EXPORT_EXAMPLES)(on_sets.export)
app.command(epilog=on_records.RUN_EXAMPLES)(on_records.run)
app.command(epilog=on_records.VERIFY_EXAMPLES)(on_records.verify)
app.command()(on_records.status)
app.command(epilog=on_records.MERGE_EXAMPLES)(on_records.merge)


@app.command()
def data() -> None:
    """List the data sets, and how to get those not here."""
    from ..data.formats import ARRAYS
    from ..data.sources import available, data_root

    rows = available()
    print(table(("data set", "found", "training", "test", ""), ((r.name, r.where, r.train, r.test, r.note) for r in rows)))
    print(f"data root: {data_root()} (or $DCLIB_DATA)")
    if any(row.where == "downloadable" for row in rows):
        print(f"downloadable: fetched on first use; or put NAME.npz (with {', '.join(ARRAYS)}) or torchvision's files there")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]

    def command() -> int | None:
        if launched() > 1 and arguments[0] not in ("condense", "run"):  # `run` has a way of its own, and says so
            raise SpecError(f"torchrun has started `dclib {arguments[0]}` {launched()} times: it is for one process")
        return typer.main.get_command(app)(arguments, prog_name="dclib", standalone_mode=False)

    return guarded(command)
