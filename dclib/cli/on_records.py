"""The commands on experiments, their records and their data: run · verify · status · merge · data.

Each checks what it was asked before it loads what computes.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SpecError, one_of
from ..support.console import say, seconds, table, whole, words
from ..support.progress import stopping
from .options import Datasets, Device, Engine, Ipc, Networks, Preset_, Results, TestNetworks, Variants, examples, option

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
}
Words = list[str] | None
OPTION_OF = {"network": "networks", "test_network": "test_networks", "variant": "variants"}


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
    limit: Annotated[str, option("stop after 90s, 8m or 2h, at a point from which the same command goes on", "--for")] = "",
    workers: Annotated[int | None, option("so many processes on this machine, each with its share of the cores")] = None,
    cluster: Annotated[str | None, option("a Dask scheduler's address, as tcp://host:8786: its workers compute")] = None,
) -> None:
    """Compute what is missing of a table, record and print it."""
    from .. import experiments, report
    from ..experiments import studies
    from ..reproduce import check, check_records
    from ..results import Store
    from ..results import table as look_up
    from ..results.outcomes import varying
    from ..run.cluster import check_request

    time_limit, budget = seconds(limit) if limit else None, experiments.find_preset(preset)
    check_request(cluster, workers)
    check(preset, False, device, () if cluster else words(datasets) or ())  # on a cluster it is the workers that have the data
    narrow = _narrow(datasets, networks, test_networks, variants, ipc)
    applied = {"datasets": narrow["dataset"], "memories": words(memories), "space": space or None}
    one_of("experiment", experiment, (*experiments.ALL, *studies.ALL))
    store, of_study = Store(results, preset=preset), experiment in studies.ALL
    if of_study:
        cells, applied = _cases(experiment, budget, applied, narrow)
    else:
        _refuse(experiment, {name: applied[name] for name in ("memories", "space")})
        cells = experiments.find(experiment).cells(budget, **narrow)
    check_records(narrow["dataset"], store)
    if left := store.incomplete(cells):
        from ..run.compute import compute

        where = dict(device=device, engine=engine, cluster=cluster, workers=workers)
        left = compute(left, store, preset, seconds=time_limit, **where)
    if of_study:
        _print_study(experiment, preset, store, applied)
    else:
        found = look_up(experiment, preset, store, **narrow)
        crossed = {"network", "test_network"} <= set(varying(found))
        print(report.matrix_table(found) if crossed else report.list_table(found))
        print(report.missing_sentence(found, preset))
    if left:
        say(f"time is up: {len(left)} of {len(cells)} cells are left; the same command goes on from there")


def _narrow(datasets: Words, networks: Words, test_networks: Words, variants: Words, ipc: Words) -> dict[str, list | None]:
    """The values given for each axis of a grid; a path in full, so that it means the same in any folder."""
    from ..reproduce import in_full

    given = dict(dataset=in_full(words(datasets)), network=words(networks), test_network=words(test_networks))
    return {**given, "ipc": whole(words(ipc)), "variant": words(variants)}


def _cases(name: str, budget: Any, applied: dict[str, Any], narrow: dict[str, Any]) -> tuple[list, dict[str, Any]]:
    """The cases of an application, and which of the options narrow it."""
    from ..experiments.studies import ALL

    mine = ("datasets", "memories") if name == "continual" else ("datasets", "space")
    _refuse(name, {n: v for n, v in applied.items() if n not in mine} | {n: v for n, v in narrow.items() if n != "dataset"})
    given = {n: applied[n] for n in mine if applied[n] is not None}
    return ALL[name].cells(budget, **given), given


def _refuse(name: str, options: dict[str, Any]) -> None:
    """Refuse options that do not narrow that experiment."""
    for option_, value in options.items():
        if value is not None:
            raise SpecError(f"{name} cannot be narrowed by {OPTION_OF.get(option_, option_)}: leave it out")


def _print_study(name: str, preset: str, store: Any, given: dict[str, Any]) -> None:
    from ..report import application_report as report
    from ..results import studied

    found = studied.learned(preset, store, **given) if name == "continual" else studied.searched(preset, store, **given)
    parts = (report.continual_table, report.gain_sentence) if name == "continual" else (report.search_table, report.found_sentence)
    for text in (*(part(found) for part in parts), report.missing_sentence(found, preset, **given)):
        if text:
            print(text)


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
    from ..reproduce import check
    from ..results import Store
    from ..run import verify as verifying

    experiments.find_preset(preset)
    check(preset, False, device, words(datasets) or ())
    names = [str(one_of("experiment", experiment, experiments.ALL))] if experiment else list(experiments.ALL)
    store = Store(results, preset=preset)
    runs = verifying.recorded_runs(names, preset, store, **_narrow(datasets, networks, test_networks, variants, ipc))
    with stopping() as should_stop:
        how = dict(device=device, engine=engine, should_stop=should_stop)
        checked = verifying.verify(runs, store, networks=networks_each, **how)
    print(verifying.report(checked))
    return int(any(one.differs for one in checked) or all(one.left_out for one in checked))


def status(
    experiment: Annotated[str, typer.Argument(metavar="[EXPERIMENT]", help="a table or figure: what it asks; left out: all")] = "",
    preset: Annotated[str, option("only this one: smoke, cpu or paper")] = "",
    results: Results = None,
) -> None:
    """Tell how many cells of each table are recorded."""
    from .. import experiments
    from ..experiments import studies
    from ..results import Store

    presets = [experiments.find_preset(preset)] if preset else list(experiments.PRESETS.values())
    stores, every = {p.name: Store(results, preset=p.name) for p in presets}, {**experiments.ALL, **studies.ALL}
    if experiment:
        asked = every[str(one_of("experiment", experiment, every))]
        print(f"{asked.label}: {asked.question}")
        print(table(("preset", "purpose", "recorded"), [(p.name, p.purpose, _recorded(asked, p, stores[p.name])) for p in presets]))
    else:
        rows = [(e.name, e.label, *(_recorded(e, p, stores[p.name]) for p in presets)) for e in every.values()]
        print(table(("experiment", "in the paper", *(p.name for p in presets)), rows))
    print(f"records: {', '.join(dict.fromkeys(str(store.root) for store in stores.values()))}")


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


def data() -> None:
    """List the data sets, and how to get those not here."""
    from ..data.formats import ARRAYS
    from ..data.sources import available, data_root

    rows = available()
    print(table(("data set", "found", "training", "test", ""), ((r.name, r.where, r.train, r.test, r.note) for r in rows)))
    print(f"data root: {data_root()} (or $DCLIB_DATA)")
    if any(row.where == "downloadable" for row in rows):
        print(f"downloadable: fetched on first use; or put NAME.npz (with {', '.join(ARRAYS)}) or torchvision's files there")
