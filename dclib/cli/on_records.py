"""The commands on experiments, their records and their data: run · verify · status · merge · data.

Each checks what it was asked before it loads what computes.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SpecError
from ..support.console import say, seconds, table, words
from ..support.progress import stopping
from .options import (
    DATASET,
    Classes,
    Datasets,
    Device,
    Engine,
    HoldOut,
    Ipc,
    Limit,
    Networks,
    Preset_,
    Results,
    Size,
    TestNetworks,
    Variants,
    examples,
    option,
    source,
)

EXAMPLES = {
    "run": examples(
        "dclib run cross_arch",
        'dclib run cross_arch --preset cpu --networks "ConvNet LeNet" --for 2h',
        "dclib run cross_arch --preset cpu --workers 4",
        'dclib run nas --space "width=8 depth=1"',
        "dclib run cross_arch --preset paper --cluster tcp://host:8786",
    ),
    "verify": examples("dclib verify cross_arch", "dclib verify --datasets mnist --networks-each 1"),
    "merge": examples("dclib merge fetched/results"),
    "data": examples("dclib data", "dclib data path/to/folder", "dclib data images.npz --hold-out 0.2"),
}
Words = list[str] | None


def run(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="a table or figure; `dclib status` lists them")],
    preset: Preset_ = "smoke",
    datasets: Datasets = None,
    networks: Networks = None,
    test_networks: TestNetworks = None,
    memories: Annotated[list[str] | None, option("continual: only memories filled by random, herding or condense")] = None,
    space: Annotated[str, option("nas: only architectures with these options, as in 'width=32,64 norm=instance'")] = "",
    variants: Variants = None,
    ipc: Ipc = None,
    device: Device = "auto",
    engine: Engine = "auto",
    results: Results = None,
    limit: Limit = "",
    workers: Annotated[int | None, option("so many processes on this machine, each with its share of the cores")] = None,
    cluster: Annotated[str | None, option("a Dask scheduler's address, as tcp://host:8786: its workers compute")] = None,
) -> None:
    """Compute what is missing of a table, record and print it."""
    from .. import experiments
    from ..reproduce import check, check_records, narrowed
    from ..results import Store
    from ..results.studied import read
    from ..run.cluster import check_request

    time_limit, budget = seconds(limit) if limit else None, experiments.find_preset(preset)
    check_request(cluster, workers)
    check(preset, False, device, () if cluster else words(datasets) or ())  # on a cluster it is the workers that have the data
    declared = experiments.find(experiment)
    options = dict(datasets=datasets, networks=networks, test_networks=test_networks, variants=variants, ipc=ipc, memories=memories)
    given = narrowed(experiment, declared.narrowed_by, **_listed(**options, space=[space] if space else None))
    store, cells = Store(results, preset=preset), declared.cells(budget, **given)
    check_records(given.get("dataset"), store)
    if left := store.incomplete(cells):
        from ..run.compute import compute

        where = dict(device=device, engine=engine, cluster=cluster, workers=workers)
        left = compute(left, store, preset, seconds=time_limit, **where)
    for text in filter(None, _shown(experiment, preset, read(experiment, preset, store, **given), given)):
        print(text)
    if left:
        say(f"time is up: {len(left)} of {len(cells)} cells are left; the same command goes on from there")


def _listed(**options: Words) -> dict[str, Words]:
    """The options with each of their values apart."""
    return {name: words(values) for name, values in options.items()}


def _shown(experiment: str, preset: str, found: Any, given: dict[str, Any]) -> tuple[str, ...]:
    """What is recorded of an experiment as tables and lines of facts."""
    from .. import report
    from ..experiments import OPTIONS
    from ..report import application_report as applications
    from ..results.outcomes import varying

    narrow = {option: given[axis] for option, axis in OPTIONS.items() if axis in given}
    if experiment == "continual":
        about = applications.gain_sentence(found), applications.continual_missing(found, preset, **narrow)
        return applications.continual_table(found), *about
    if experiment == "nas":
        about = applications.found_sentence(found), applications.search_missing(found, preset, **narrow)
        return applications.search_table(found), *about
    crossed = {"network", "test_network"} <= set(varying(found))
    return (report.matrix_table if crossed else report.list_table)(found), report.missing_sentence(found, preset)


def verify(
    experiment: Annotated[str, typer.Argument(metavar="[EXPERIMENT]", help="a table or figure; left out: all of them")] = "",
    preset: Preset_ = "cpu",
    networks_each: Annotated[int, option("so many networks are trained again on each set")] = 2,
    datasets: Datasets = None,
    networks: Networks = None,
    test_networks: TestNetworks = None,
    variants: Variants = None,
    ipc: Ipc = None,
    device: Device = "auto",
    engine: Engine = "auto",
    results: Results = None,
) -> int:
    """Train networks again on the recorded sets and compare.

    The exit status is 1 if anything differs, or nothing could be compared.
    """
    from .. import experiments
    from ..reproduce import check, narrowed
    from ..results import Store
    from ..run import verify as verifying

    experiments.find_preset(preset)
    check(preset, False, device, words(datasets) or ())
    names = [experiments.find(experiment).name] if experiment else list(experiments.ALL)
    store = Store(results, preset=preset)
    options = _listed(datasets=datasets, networks=networks, test_networks=test_networks, variants=variants, ipc=ipc)
    runs = verifying.recorded_runs(names, preset, store, **narrowed(experiment, experiments.AXES, **options))
    with stopping() as should_stop:
        how = dict(device=device, engine=engine, should_stop=should_stop)
        checked = verifying.verify(runs, store, networks=networks_each, **how)
    print(verifying.report(checked))
    return int(verifying.failed(checked))


def status(
    experiment: Annotated[str, typer.Argument(metavar="[EXPERIMENT]", help="a table or figure: what it asks; left out: all")] = "",
    preset: Annotated[str, option("only this one: smoke, cpu or paper")] = "",
    results: Results = None,
) -> None:
    """Tell how many cells of each table are recorded."""
    from .. import experiments
    from ..results import Store

    presets = [experiments.find_preset(preset)] if preset else list(experiments.PRESETS.values())
    found = {p.name: Store(results, preset=p.name) for p in presets}
    read = {store.root: store for store in found.values()}  # presets that share a folder read it once
    stores = {name: read[store.root] for name, store in found.items()}
    if experiment:
        asked = experiments.find(experiment)
        print(f"{asked.label}: {asked.question}")
        print(table(("preset", "purpose", "recorded"), [(p.name, p.purpose, _recorded(asked, p, stores[p.name])) for p in presets]))
    else:
        rows = [(e.name, e.label, *(_recorded(e, p, stores[p.name]) for p in presets)) for e in experiments.ALL.values()]
        print(table(("experiment", "in the paper", *(p.name for p in presets)), rows))
    print(f"records: {', '.join(map(str, read))}")


def _recorded(experiment: Any, preset: Any, store: Any) -> str:
    """How many of an experiment's cells are recorded at a preset, and how many networks of those that are in part."""
    counts = [[(run.networks - len(store.missing(run)), run.networks) for run in cell.runs()] for cell in experiment.cells(preset)]
    cells = [tuple(map(sum, zip(*one, strict=True))) for one in counts]  # networks recorded, and in all
    begun = [(done, n) for done, n in cells if 0 < done < n]
    part = f", {len(begun)} in part: {sum(done for done, _ in begun)} of {sum(n for _, n in begun):,} networks" if begun else ""
    return f"{sum(done == n for done, n in cells)} of {len(cells)}{part}"


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="folders filled by `dclib run --results DIR`")],
    results: Results = None,
) -> int:
    """Bring records and sets of other results folders into this one."""
    from ..results import Store
    from ..results.merge import merge_into

    merged = merge_into(Store(results), folders)
    for line in merged.differences:
        print(line)
    print(merged.sentence())
    for line in merged.refused:
        say(line)
    return 1 if merged.refused else 0


def data(
    dataset: Annotated[str, typer.Argument(metavar="[DATASET]", help=f"{DATASET}; left out: all names")] = "",
    image_size: Size = 0,
    classes: Classes = "",
    hold_out: HoldOut = 0.0,
) -> None:
    """List the data sets, or tell how one is understood."""
    from ..data.formats import ARRAYS
    from ..data.sources import available, data_root

    if dataset:
        from ..data.dataset import load

        print(load(source(dataset, classes, hold_out), image_size=image_size).describe())
        return
    if image_size or classes or hold_out:
        raise SpecError("image_size, classes and hold_out say how one data set is read: name it, or leave them out")
    rows = available()
    print(table(("data set", "found", "training", "test", ""), ((r.name, r.where, r.train, r.test, r.note) for r in rows)))
    print(f"data root: {data_root()} (or $DCLIB_DATA)")
    if any(row.where == "downloadable" for row in rows):
        print(f"downloadable: fetched on first use; or put NAME.npz (with {', '.join(ARRAYS)}) or torchvision's files there")
