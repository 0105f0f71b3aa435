"""The commands on single sets besides learning and testing them: select · export.

As in `cli`, which gathers all commands, each checks what it was asked before it loads what computes.
"""

from pathlib import Path
from typing import Annotated, Any

from ..errors import DataError, one_of
from .options import DataSet, Device, Engine, Network_, OtherData, Seed, SetFile, examples, option

SELECT_EXAMPLES = examples(
    "dclib select mnist --method herding --ipc 10 -o set.safetensors",
    "dclib select path/to/folder --image-size 32 --method random -o set.safetensors",
)
EXPORT_EXAMPLES = examples("dclib export set.safetensors --to npz -o set.npz", "dclib export set.safetensors --to png -o folder")


def select(
    dataset: DataSet,
    output: Annotated[Path, option("the set's file", "--output", "-o")],
    method: Annotated[str, option("random, herding, k-center or forgetting")] = "herding",
    ipc: Annotated[int, option("images per class")] = 1,
    network: Network_ = "",
    epochs: Annotated[int, option("of the network's training on the whole set, by which images are chosen; 0: ten")] = 0,
    image_size: Annotated[int, option("resize to this square size first; 0: leave it")] = 0,
    seed: Seed = 0,
    device: Device = "auto",
    engine: Engine = "auto",
    force: Annotated[bool, option("replace another set in that file", "--force")] = False,
) -> None:
    """Choose real images in place of learning some (coresets).

    Stopped in any way, even killed, the same command goes on from OUTPUT.checkpoint to the same images.
    """
    from ..data.sources import spelled
    from ..run.kept import checkpoint_of, is_there, remove_checkpoint
    from ..run.selecting import select_set, selection
    from ..run.sets import load_of
    from ..spec import Network
    from ..support.files import check_output
    from ..support.stopping import stopping

    run = selection(spelled(dataset), method, ipc, Network.parse(network) if network else None, epochs, seed, image_size)
    check_output(output)
    load_of(run)  # before signals are caught, so that Ctrl-C ends a download at once
    there = not force and is_there(run, output)
    if not there:
        with stopping() as should_stop:
            made = select_set(run, device=device, engine=engine, checkpoint=checkpoint_of(output), should_stop=should_stop)
        made.save(output)
    print(f"{output} is {'there already' if there else 'made'} ({run.words})")
    remove_checkpoint(output)


def export(
    file: SetFile,
    to: Annotated[str, option("npz or png", "--to")],
    output: Annotated[Path | None, option("the file or the folder  [default: SET.npz, or SET]", "--output", "-o")] = None,
    test: Annotated[bool | None, option("with test images, so that dclib can read it  [default: npz]")] = None,
    dataset: Annotated[str, option("whose test images  [default: the set's own]")] = "",
    other_data: OtherData = False,
) -> None:
    """Write a set for other programs: an .npz, or PNG files.

    Images are in data colours, what lies outside of them clamped; the .npz has the exact values as well.
    """
    from ..results import CondensedSet
    from ..results import export as forms
    from ..support.files import check_apart

    one_of("form", to, forms.FORMS)
    output = output or (file.with_suffix(".npz") if to == "npz" else file.with_suffix(""))
    check_apart(file, output)
    made = CondensedSet.load(file)
    tested = _test_images(made, dataset, other_data) if (to == "npz" if test is None else test) else None
    (forms.to_npz if to == "npz" else forms.to_png)(made, output, tested)
    print(f"{output} is made ({len(made.labels)} images{f', {len(tested.y)} test images' if tested else ''})")
    if share := forms.clamped(made):
        exact = "; `images` in it has them as they are" if to == "npz" else ""
        print(f"{share:.1f} % of the values lie outside of the data's colours and are clamped{exact}")


def _test_images(made: Any, dataset: str, other_data: bool) -> Any:
    from ..results.export import Tested
    from ..run.sets import load_for

    try:
        found = load_for(made, dataset, other_data)
    except DataError as error:
        raise DataError(f"{error}; or leave the test images out with --no-test") from None
    x = found.x_test.permute(0, 2, 3, 1).numpy()
    return Tested(x[..., 0] if x.shape[3] == 1 else x, found.y_test.numpy())
