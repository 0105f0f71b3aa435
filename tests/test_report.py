"""Outcomes, report and figures on made records: what counts, what is shown, and how it is written."""

import dataclasses
import json
import re

import numpy as np
import pytest

from dclib import experiments, report
from dclib.errors import FileError, SpecError
from dclib.experiments import CORESETS, CPU, CROSS_ARCH, METHOD, PAPER, RANDOM, SMOKE
from dclib.report.tables import counts
from dclib.results import CondensedSet, Store
from dclib.results.outcomes import Outcome, error_between, look_up


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def only(experiment, preset, **place):
    """The cell of an experiment at a place."""
    return next(c for c in experiment.cells(preset, dataset=place.pop("dataset", None)) if c.place.items() >= place.items())


def record(store, cell, *accuracies, seed=0, first=0, preset=None, **other):
    """Record networks first, first + 1 … of one set of a cell, as a run does."""
    run = cell.runs([seed])[0]
    for j, accuracy in enumerate(accuracies, first):
        made = dict(device="cpu", machine="a machine, 2 cores", commit="abcdef123456", dirty=False, peak_memory_mb=1500)
        made |= dict(kind="TrainNetworks", key=run.key, seconds=30.0, started=f"2026-01-0{j + 1}T00:00:00Z", run={})
        store.add(preset or cell.preset.name, made | {"accuracies": {str(j): accuracy}} | other)


def record_set(store, cell, seed=0, **other):
    made = dict(device="cpu", machine="a machine, 2 cores", commit="abcdef123456", dirty=False, peak_memory_mb=2000, run={})
    made |= dict(kind="MakeSet", key=cell.make_set(seed).key, seconds=7200.0, started="2026-01-01T00:00:00Z", losses=[1.0])
    store.add(cell.preset.name, made | other)


MNIST = dict(dataset="mnist", ipc=1, network="ConvNet", test_network="ConvNet", variant="")


def method(store, preset="best", **narrow):
    return look_up("method", preset, store, **{"dataset": "mnist"} | narrow)[0]


# --- what counts


def test_nothing_recorded_is_a_dash_beside_the_papers_number(store):
    outcome = method(store)
    assert (outcome.sets, outcome.preset, outcome.mean, outcome.shown, outcome.paper) == ((), "", None, False, (91.7, 0.5))
    line = report.list_table([outcome]).splitlines()[2]
    assert "91.7 ± 0.5" in line
    assert line.count("—") == 5


def test_the_mean_is_over_all_networks_of_all_recorded_sets(store):
    cell = only(METHOD, CPU, dataset="mnist")
    record(store, cell, 90.0, 92.0, seed=0)
    record(store, cell, 88.0, seed=4)
    outcome = method(store)
    assert outcome.sets == ((90.0, 92.0), (88.0,))
    assert outcome.mean == pytest.approx(90.0)
    assert outcome.std == pytest.approx(np.std([90.0, 92.0, 88.0]))
    assert outcome.keys == (cell.runs([0])[0].key, cell.runs([4])[0].key)


def test_sets_beyond_the_fifth_do_not_count(store):
    record(store, only(METHOD, CPU, dataset="mnist"), 90.0, seed=5)
    assert method(store).sets == ()


def test_best_is_the_most_faithful_preset_and_not_the_highest_number(store):
    record(store, only(METHOD, CPU, dataset="mnist"), 95.0)
    assert method(store).preset == "cpu"
    record(store, only(METHOD, PAPER, dataset="mnist"), 91.0)
    outcome = method(store)
    assert (outcome.preset, outcome.mean) == ("paper", 91.0)
    assert method(store, "cpu").mean == 95.0


def test_best_never_shows_smoke(store):
    for network, accuracy in (("ConvNet", 90.0), (RANDOM, 70.0)):
        record(store, dataclasses.replace(only(METHOD, SMOKE), network=network), accuracy)
    assert method(store, "smoke", dataset="digits").mean == 90.0
    assert method(store, "best", dataset="digits").sets == ()


def test_a_preset_reads_its_own_hyper_parameters_wherever_they_are_recorded(store):
    record(store, only(METHOD, CPU, dataset="mnist"), 90.0, preset="paper")
    assert method(store, "cpu").preset == "cpu"
    assert method(store, "paper").sets == ()


def test_a_run_that_another_table_recorded_fills_every_cell_that_it_answers(store):
    """T8's grid at `cpu` has MNIST at one image alone, and T7's three networks; what Table 1 and Table 2 record counts there."""
    cell = only(CORESETS, CPU, dataset="cifar10", ipc=10, network="ConvNet")
    record(store, cell, 39.0, 40.0, 41.0)
    record(store, only(CROSS_ARCH, CPU, network="VGG11", test_network="VGG11"), 60.0)
    (t8,) = look_up("more_baselines", store=store, dataset="cifar10", ipc=10, network="ConvNet")
    assert (t8.preset, t8.mean, t8.complete) == ("cpu", 40.0, True)
    assert [o.mean for o in look_up("more_baselines", store=store) if o.sets] == [40.0], "not narrowed, the same"
    whole = only(CORESETS, CPU, dataset="cifar10", network="whole")
    record(store, whole, 82.0, kind="WholeTraining")
    (bound,) = look_up("images_per_class", store=store, dataset="cifar10", network="whole")
    assert (bound.planned, bound.complete) == ((1, 1), True), "a whole set's run is one network"
    (t7,) = [o for o in look_up("ablation_distance", store=store) if o.sets]
    assert (t7.place["network"], t7.mean, t7.planned, t7.complete) == ("VGG11", 60.0, (2, 3), False)
    assert [o for o in look_up("more_baselines", "cpu", store) if o.sets] == [], "a preset's own table is its grid"


def test_a_cell_is_at_a_preset_with_its_number_of_sets_and_networks_and_else_says_how_many_of_how_many(store):
    """Random images of FashionMNIST are trained on alike at `cpu` and `paper`: 2 × 3 are all of the one and few of the other."""
    cell = only(CORESETS, PAPER, dataset="fashionmnist", ipc=1, network=RANDOM)
    assert cell.runs([0])[0].key == only(CORESETS, CPU, dataset="fashionmnist", ipc=1, network=RANDOM).runs([0])[0].key
    place = dict(dataset="fashionmnist", ipc=1, network=RANDOM)
    record(store, cell, 50.0, 51.0, 52.0)
    (begun,) = look_up("coresets", store=store, **place)
    assert (begun.preset, counts(begun)) == ("cpu", "1 × 3 of 2 × 3")
    record(store, cell, 50.0, 51.0, 52.0, seed=1)
    (whole,) = look_up("coresets", store=store, **place)
    assert (whole.preset, whole.complete, counts(whole)) == ("cpu", True, "2 × 3")
    (asked,) = look_up("coresets", "paper", store, **place)
    assert (asked.preset, asked.complete, counts(asked)) == ("paper", False, "2 × 3 of 5 × 20")
    assert "of fewer than the preset has for 1 of 1" in report.budget([asked])
    assert "(paper, in part)" in report.matrix_table([asked, outcome((1.0,))])
    for seed in range(5):
        record(store, cell, *map(float, range(20)), seed=seed)
    (full,) = look_up("coresets", store=store, **place)
    assert (full.preset, full.complete) == ("paper", True)


def test_every_number_is_printed_and_an_arrow_marks_what_random_images_beat(store):
    """At smoke as elsewhere: nothing is left out because it lost."""
    for network, value in (("MLP", 80.1), ("LeNet", 79.9)):
        record(store, only(CROSS_ARCH, SMOKE, network=network, test_network="LeNet"), value)
        record(store, only(CROSS_ARCH, SMOKE, network=network, test_network="MLP"), 50.0)
    for seed, value in enumerate((75.0, 85.0)):
        record(store, only(CROSS_ARCH, SMOKE, network=RANDOM, test_network="LeNet"), value, seed=seed)
    found = look_up("cross_arch", "smoke", store, network=("MLP", "LeNet", RANDOM), test_network=("LeNet", "MLP"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.matrix_table(found).splitlines()[2:]]
    assert rows[:2] == [["MLP", "80.1", "50.0"], ["LeNet", "79.9 ↓", "50.0"]]
    assert rows[2][1:] == ["80.0 ± 5.0", "—"]
    assert rows[2][0].startswith("random real images")


@pytest.mark.parametrize(
    ("name", "preset", "narrow", "words"),
    [
        ("cross_arhc", "best", {}, "cross_arch"),
        ("method", "cup", {}, "best, smoke, cpu, paper"),
        ("method", "best", {"netwrok": "MLP"}, "network"),
        ("method", "best", {"network": "ConvNex"}, "ConvNet"),
        ("method", "best", {"ipc": []}, "empty"),
    ],
)
def test_wrong_names_are_refused(store, name, preset, narrow, words):
    with pytest.raises(SpecError, match=words):
        look_up(name, preset, store, **narrow)


# --- differences


def outcome(*sets, paper=(90.0, 1.0), **other):
    given = dict(experiment="cross_arch", place=MNIST, preset="cpu", keys=("k",) * len(sets), paper=paper)
    return Outcome(**given | other, sets=sets)


def test_the_difference_is_ours_minus_the_papers():
    assert outcome((88.0, 90.0)).difference == pytest.approx(-1.0)


def test_the_standard_error_takes_the_networks_spread_but_not_less_than_the_papers():
    assert outcome((88.0, 92.0), (88.0, 92.0)).standard_error == pytest.approx((4 / 3 + 1 / 5) ** 0.5)  # the sample's variance
    assert outcome((90.0, 90.0), (90.0, 90.0)).standard_error == pytest.approx((1 / 4 + 1 / 5) ** 0.5)


def test_a_single_set_has_no_standard_error_and_nothing_is_said_to_lie_within_it():
    one = outcome((96.0, 97.0, 98.0))
    assert (one.difference, one.squared_error, one.standard_error, one.standard_errors) == (7.0, None, None, None)
    assert error_between(one, outcome((90.0,), (91.0,))) is None
    assert "lie 0 of 1; 1 with a single set have no" in report.agreement_sentence([one, outcome((80.0,), (80.0,))])
    cells = [cell.strip() for cell in report.list_table([one]).splitlines()[2].split("|")]
    assert (cells[4], cells[5]) == ("+7.0", "—")


def test_the_standard_error_takes_the_spread_of_sets_where_it_is_larger():
    apart = outcome((80.0,) * 5, (90.0,) * 5)
    assert apart.standard_error == pytest.approx((50 / 2 + 1 / 5) ** 0.5)
    assert apart.standard_errors == pytest.approx(-5.0 / apart.standard_error)


def test_there_is_no_difference_without_two_numbers():
    found = outcome((88.0,), paper=None)
    assert (found.difference, found.standard_error, found.standard_errors) == (None, None, None)


def test_agreement_counts_and_names_the_farthest():
    names = ("MLP", "ConvNet", "LeNet")
    cells = [outcome((m,) * 20, (m,) * 20, place=MNIST | {"network": n}) for n, m in zip(names, (90.1, 89.0, 80.0), strict=True)]
    assert report.agreement_sentence(cells) == (
        "Within two standard errors of the paper's number lie 1 of 3; the median difference is −1.0 points, "
        "the largest −10.0 (condensed with LeNet)."
    )
    assert "no number" in report.agreement_sentence([outcome()])
    assert report.agreement_sentence([outcome((90.0,), paper=None)]) == ""


# --- tables


def table(*lines):
    return "\n".join(lines)


def test_matrix_table():
    two = [
        outcome((90.0, 92.0), place=MNIST | {"network": "MLP"}),
        outcome(place=MNIST | {"network": "MLP", "test_network": "LeNet"}, paper=None),
        outcome((80.04,), place=MNIST),
    ]
    assert report.matrix_table(two) == table(
        "| condensed with |            |    ConvNet | LeNet |",
        "|----------------|------------|-----------:|------:|",
        "| MLP            | ours       | 91.0 ± 1.0 |     — |",
        "|                | paper      | 90.0 ± 1.0 |     — |",
        "|                | difference |       +1.0 |     — |",
        "| ConvNet        | ours       |       80.0 |       |",
        "|                | paper      | 90.0 ± 1.0 |       |",
        "|                | difference |     −10.0 |       |".replace("     −10.0", "      −10.0"),
    )


def test_matrix_table_without_any_number_of_the_paper_has_one_line_each():
    one = outcome((90.0,), paper=None, place=MNIST | {"network": RANDOM})
    assert report.matrix_table([one]) == table(
        "| condensed with     | ConvNet |", "|--------------------|--------:|", "| random real images |    90.0 |"
    )


def test_matrix_table_names_presets_where_they_differ():
    text = report.matrix_table([outcome((90.0,)), outcome((91.0,), preset="paper", place=MNIST | {"network": "MLP"})])
    assert "90.0 (cpu)" in text
    assert "91.0 (paper)" in text


def test_matrix_table_keeps_apart_what_differs_on_a_third_axis():
    text = report.matrix_table([outcome((90.0,)), outcome((70.0,), place=MNIST | {"dataset": "usps"})])
    assert re.search(r"MNIST +\| ConvNet +\| ours +\| +90.0", text)
    assert re.search(r"USPS +\| ConvNet +\| ours +\| +70.0", text)


def test_list_table():
    rows = [outcome((90.0, 92.0), (90.0, 92.0)), outcome(place=MNIST | {"dataset": "svhn10k"}, paper=None, preset="")]
    assert report.list_table(rows) == table(
        "| data set             |       ours |      paper | difference | in std. errors | sets × networks | preset |",
        "|----------------------|-----------:|-----------:|-----------:|---------------:|----------------:|-------:|",
        "| MNIST                | 91.0 ± 1.0 | 90.0 ± 1.0 |       +1.0 |           +1.4 |           2 × 2 |    cpu |",
        "| SVHN-10k, a stand-in |          — |          — |          — |              — |               — |      — |",
    )


def test_a_numbered_table_is_a_directive_as_markdown_and_bare_as_text():
    shown = report.numbered_table("| a |\n|---|", "One\n line", "tab-a")
    assert shown._repr_markdown_() == ":::{table} One line\n:name: tab-a\n\n| a |\n|---|\n:::"
    assert repr(shown) == "One line\n\n| a |\n|---|"


def test_a_listing_is_the_functions_source():
    shown = report.listing([report.budget, report.title], "Two", "code-a")
    assert shown._repr_markdown_().startswith(":::{code-block} python\n:caption: Two\n:name: code-a\n\ndef budget(")
    assert "def title(" in repr(shown)


# --- sentences


def test_budget():
    assert report.budget([outcome((1.0, 2.0), (3.0, 4.0))]) == "preset cpu; 2 sets × 2 networks for each number"
    mixed = [outcome((1.0,)), outcome((1.0, 2.0), (3.0,), preset="paper"), outcome()]
    assert report.budget(mixed) == "presets paper and cpu; 1 to 2 sets × 1 to 2 networks for each number"
    assert report.budget([outcome()]) == "nothing recorded yet"


def test_missing_cells_come_with_the_command_that_fills_them(store):
    cells = look_up("cross_arch", "best", store)
    assert report.missing_sentence(cells).startswith("36 of 36 cells are not recorded yet")
    assert "`dclib run cross_arch --preset cpu`" in report.missing_sentence(cells)
    assert report.missing_sentence([outcome((1.0,))]) == ""


def test_cost_counts_each_record_once(store):
    for name in ("MLP", "ConvNet"):
        record(store, only(CROSS_ARCH, CPU, network="ConvNet", test_network=name), 90.0, 91.0)
    record_set(store, only(CROSS_ARCH, CPU, network="ConvNet", test_network="MLP"))
    assert report.cost_sentence(look_up("cross_arch", "best", store)) == (
        "At preset cpu, 1 set took 2.0 h and 4 trained networks took 2 min on a machine, 2 cores, with at most 2.0 GB of memory; "
        "code at commit abcdef1."
    )


def test_cost_names_devices_and_changed_code(store):
    cell = only(METHOD, CPU, dataset="mnist")
    record(store, cell, 90.0, device="A GPU")
    record(store, cell, 91.0, first=1, dirty=True, commit="1234567890ab")
    text = report.cost_sentence([method(store)])
    assert "on A GPU (a machine, 2 cores) and a machine, 2 cores," in text
    assert "commits abcdef1, 1234567 (partly with changes not committed)" in text


def test_many_commits_are_told_by_their_ends(store):
    cell = only(METHOD, CPU, dataset="mnist")
    for j in range(5):
        record(store, cell, 90.0, first=j, commit=f"{j}" * 12)
    assert "5 commits from 0000000 to 4444444." in report.cost_sentence([method(store)])


def test_no_cost_without_records(store):
    assert "No run" in report.cost_sentence([method(store)])


# --- figures


def texts(panel):
    return [t.get_text() for t in panel.texts]


def test_heatmap_has_ours_and_the_papers_on_one_scale():
    cells = [outcome((95.4,)), outcome(place=MNIST | {"test_network": "LeNet"}, paper=(50.0, 1.0))]
    ours, theirs = report.heatmap(cells).figure.axes
    assert (texts(ours), texts(theirs)) == (["95", "—"], ["90", "50"])
    assert (ours.get_title(), theirs.get_title()) == ("ours", "paper")
    assert ours.images[0].get_clim() == theirs.images[0].get_clim() == (50.0, 95.4)
    assert [p.get_hatch() for p in ours.patches] == ["//"]
    assert [t.get_text() for t in ours.get_xticklabels()] == ["ConvNet", "LeNet"]


def test_heatmap_leaves_out_a_paper_without_numbers():
    (ours,) = report.heatmap([outcome((95.0,), paper=None)]).figure.axes
    assert texts(ours) == ["95"]


def a_set(ipc=1, channels=1, classes=3):
    images = np.linspace(-1, 1, classes * ipc * channels * 16, dtype=np.float32).reshape(-1, channels, 4, 4)
    labels = np.repeat(np.arange(classes), ipc)
    return CondensedSet(images, labels, "made", tuple("abcdefghijkl"[:classes]), (0.5,) * channels, (0.5,) * channels)


def test_image_grid_of_one_image_each_names_each():
    made = a_set(classes=12)
    (panel,) = report.image_grid(made).figure.axes
    assert texts(panel) == list("abcdefghijkl")
    whole = np.asarray(panel.images[0].get_array())
    assert whole.shape == (2 * 6 - 1, 10 * 5 - 1), "two lines of ten, with room for names"
    for i, (top, left) in {0: (1, 0), 1: (1, 5), 11: (7, 5)}.items():
        np.testing.assert_array_equal(whole[top : top + 4, left : left + 4], made.pixels()[i])


@pytest.mark.parametrize("channels", [1, 3])
def test_image_grid_of_several_images_has_a_row_for_each_class(channels):
    made = a_set(ipc=2, channels=channels)
    (panel,) = report.image_grid(made).figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "b", "c"]
    strip = np.asarray(panel.images[0].get_array())[10:14]
    np.testing.assert_array_equal(strip[:, :4], made.pixels()[4])
    np.testing.assert_array_equal(strip[:, 5:], made.pixels()[5])
    assert (strip[:, 4] == 255).all()


@pytest.mark.parametrize("ipc", [1, 3])
def test_a_set_of_very_many_classes_is_one_picture_of_all_its_images(ipc):
    """Of as many objects as any other: drawing a panel for each of 1,500 classes took minutes."""
    images = np.random.default_rng(0).uniform(-1, 1, (1500 * ipc, 1, 8, 8)).astype(np.float32)
    made = CondensedSet(images, np.arange(1500).repeat(ipc), "made", tuple(map(str, range(1500))), (0.5,), (0.5,))
    shown = report.image_grid(made)
    (panel,) = shown.figure.axes
    assert not texts(panel)
    whole = np.asarray(panel.images[0].get_array())
    assert 0.5 < whole.shape[0] / whole.shape[1] < 2
    for i in (0, 1499):
        wanted = made.pixels()[i * ipc]
        assert (np.lib.stride_tricks.sliding_window_view(whole, (8, 8)) == wanted).all((2, 3)).any()
    assert shown.render().startswith(b"\x89PNG")


def test_emergence_has_a_row_for_each_snapshot_and_the_curve():
    *rows, curve = report.emergence({0: a_set(), 5: a_set()}, [3.0, 2.0, 1.0]).figure.axes
    assert [r.get_ylabel() for r in rows] == ["k = 0", "k = 5"]
    np.testing.assert_array_equal(curve.lines[0].get_xydata(), [[1, 3.0], [2, 2.0], [3, 1.0]])
    assert curve.get_ylim()[0] == 0


def test_image_rows_has_a_row_for_each_set_and_at_most_ten_classes():
    rows = report.image_rows({"one": a_set(), "two, a stand-in": a_set(ipc=2, classes=12)}).figure.axes
    assert [r.get_ylabel() for r in rows] == ["one", "two,\na stand-in"]
    strip = np.asarray(rows[1].images[0].get_array())
    assert strip.shape == (4, 10 * 5 - 1)
    np.testing.assert_array_equal(strip[:, 5:9], a_set(ipc=2, classes=12).pixels()[2])


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("PDF", b"%PDF"), ("svg", b"<?xml"), ("jpg", b"\xff\xd8")])
def test_save_grid_writes_the_format_of_the_name(tmp_path, ending, start):
    report.save_grid(a_set(), tmp_path / f"grid.{ending}")
    assert (tmp_path / f"grid.{ending}").read_bytes().startswith(start)


def test_save_grid_refuses_an_unknown_format_and_an_unwritable_place(tmp_path):
    with pytest.raises(SpecError, match=r"picture format 'bmp'.*png, jpg, pdf, svg"):
        report.save_grid(a_set(), tmp_path / "grid.bmp")
    with pytest.raises(SpecError, match="picture format"):
        report.save_grid(a_set(), tmp_path / "grid")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file"):
        report.save_grid(a_set(), tmp_path / "file" / "grid.png")


def test_a_picture_shows_itself_as_png():
    shown = report.image_grid(a_set())
    assert shown._repr_png_().startswith(b"\x89PNG")
    assert repr(shown) == "made: 1 image for each of 3 classes"


def test_records_are_read_from_lines_as_they_are_kept(store, tmp_path):
    record(store, only(METHOD, CPU, dataset="mnist"), 90.0, 92.0)
    lines = [json.loads(line) for line in (tmp_path / "cpu/networks.jsonl").read_text().splitlines()]
    assert [line["accuracies"] for line in lines] == [{"0": 90.0}, {"1": 92.0}]
    assert method(Store(tmp_path)).accuracies == [90.0, 92.0]


# --- real images in place of condensed ones


def _record(store, run, accuracies, **more):
    about = {"key": run.key, "kind": type(run).__name__, "started": "2026-01-01T00:00:00Z", "seconds": 60.0, "device": "cpu"}
    more |= {"machine": "a machine", "peak_memory_mb": 1000, "commit": "abcdef012345", "dirty": False}
    store.add("cpu", {**about, **more, "accuracies": {str(i): a for i, a in enumerate(accuracies)}})


def test_the_whole_sets_number_is_its_trainings(store):
    (cell,) = experiments.find("coresets").cells(CPU, dataset="mnist", network="whole")
    _record(store, cell.runs()[0], [99.2])
    (outcome,) = look_up("coresets", "best", store, dataset="mnist", network="whole")
    assert (outcome.mean, outcome.preset, outcome.paper, outcome.place["ipc"]) == (99.2, "cpu", (99.6, 0.0), 1)
    assert "1 training on a whole set took 60 s" in report.cost_sentence([outcome])


def test_the_cost_of_a_guided_choice_has_the_training_that_guides_it(store):
    (cell,) = experiments.find("coresets").cells(CPU, dataset="mnist", network="herding", ipc=1)
    (run,) = cell.runs()
    _record(store, run.set.whole, [99.2])
    _record(store, run, [88.0, 89.0])
    (outcome,) = look_up("coresets", "cpu", store, dataset="mnist", network="herding", ipc=1)
    assert outcome.accuracies == [88.0, 89.0]
    assert "1 training on a whole set took 60 s and 2 trained networks took 60 s" in report.cost_sentence([outcome])


def test_optimal_random_selection_keeps_the_best_once_all_are_there(store):
    place = dict(dataset="mnist", ipc=1)
    cells = {c.network: c for c in experiments.find("more_baselines").cells(CPU, **place)}
    runs = cells["ors"].runs()
    for i, run in enumerate(runs[:-1]):
        _record(store, run, [float(i * 37 % 100)])
    names = list(experiments.ORS)
    assert [len(o.sets) for o in look_up("more_baselines", "cpu", store, network=names, **place)] == [99, 0, 0]
    _record(store, runs[-1], [float(99 * 37 % 100)])
    found = look_up("more_baselines", "cpu", store, network=names, **place)
    assert [(o.mean, len(o.sets)) for o in found] == [(49.5, 100), (94.5, 10), (99.0, 1)]
    assert [o.paper for o in found] == [(64.3, 6.1), (74.4, 1.8), (78.2, 1.7)]
    assert "100 trained networks" in report.cost_sentence(found[1:])
