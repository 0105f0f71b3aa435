"""The book's first page and the README: their numbers are the records', each link leads somewhere, the verdicts are as told."""

import re
from itertools import chain
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from cells import committed
from pages import rows

from dclib import results
from dclib.report import front, scoreboard
from dclib.report.decisions import OURS
from dclib.results import Store

ROOT = Path(__file__).resolve().parents[1]
INTRO, README = ((ROOT / name).read_text() for name in ("book/intro.md", "README.md"))
LINK = re.compile(r"\]\((\.\./notebooks/[\w.]+|[\w./]+\.md|[\w/]+\.(?:png|cff))\)")


@pytest.fixture(scope="module")
def lines():
    return scoreboard.scoreboard(committed())


def table(*arguments, **narrowed):
    return results.table(*arguments, store=committed(), **narrowed)


def accuracy(row):
    """Mean and deviation of the recorded accuracies."""
    every = list(chain(*row.accuracies))
    return f"{fmean(every):.1f}" + (f" ± {pstdev(every):.1f}" if len(every) > 1 else "")


# --- the first page


@pytest.fixture(scope="module")
def headline():
    return {row[0]: row[1:] for row in rows(front.headline_table(front.headline(committed())))}


def test_the_headline_is_the_recipes_accuracy_where_it_is_recorded_else_the_tables(headline):
    titles = {"mnist": "MNIST", "fashionmnist": "FashionMNIST", "cifar10": "CIFAR10", "svhn10k": "SVHN-10k, a stand-in"}
    assert headline.keys() == {*titles.values()}
    recipe = {(o.dataset, o.ipc): o for o in table("recipe_test").itertuples() if o.sets}
    for o in table("coresets", network=(OURS,), ipc=front.IPC).itertuples():
        if o.dataset in titles:
            behind, how = recipe.get((o.dataset, o.ipc), o), "recipe" if (o.dataset, o.ipc) in recipe else o.preset
            place = 2 * front.IPC.index(o.ipc)
            ours, theirs = headline[titles[o.dataset]][place : place + 2]
            networks = len(behind.accuracies[0]) if behind.sets else 0
            assert ours == (f"{accuracy(behind)}<br><small>{how}, {behind.sets} × {networks}</small>" if behind.sets else "—")
            assert theirs == (f"{o.paper:.1f} ± {o.paper_std:.1f}" if o.paper == o.paper else "—")
    assert {dataset for dataset, ipc in recipe if ipc == 1} == titles.keys()
    assert front.not_recorded(front.headline(committed())) == "Not recorded yet: SVHN, CIFAR100."


def test_a_recipe_that_is_not_recorded_leaves_the_tables_number(tmp_path):
    found = front.headline(Store(tmp_path))
    assert not any(entry.recipe for entries in found.values() for entry in entries.values())
    assert rows(front.headline_table(found)) == []


def test_every_decimal_of_the_first_pages_prose_is_recorded(headline):
    prose = re.sub(r"```.*?```", "", INTRO, flags=re.S)
    compared = table("coresets", dataset="mnist", ipc=1, network=("random", OURS)).itertuples()
    known = {headline["MNIST"][0][:4], headline["MNIST"][4][:4], *(f"{row.ours:.1f}" for row in compared)}
    assert set(re.findall(r"\d+\.\d+", prose.partition("\n---\n")[2])) == known


def test_the_first_page_shows_what_the_package_makes_and_its_digits_are_recorded():
    for call in ("front.headline_table(found)", "scoreboard.scoreboard_table(lines)", "scoreboard.undecidable(lines)"):
        assert call in INTRO
    (made,) = table("recipe_test", dataset="mnist").itertuples()
    assert any(r["kind"] == "MakeSet" and committed().find_set(r["key"]) for r in made.records)


@pytest.mark.parametrize("page", ["book/intro.md", "README.md"])
def test_each_link_leads_somewhere(page):
    found = LINK.findall((ROOT / page).read_text())
    assert found
    assert not [target for target in found if not ((ROOT / page).parent / target).is_file()]


# --- the scoreboard

VERDICTS = {
    "Condensed images train a network better than random real images.": "**holds** 2, not decided 5",
    "Our recipe for two cores reaches the paper's accuracy at one image per class, within one point.": "**holds** 1, not decided 2",
    "In training, instance norm is best; no norm and batch norm are worst.": "**holds**",
    "A ConvNet of one block is the worst, in training and while condensing.": "**holds** 1, not decided 1",
    "Condensed images are better than those of Dataset Distillation (DD), on MNIST even one than ten of DD's.": (
        "**holds** 2, not decided 2"
    ),
    "DD's memory grows with the network's training steps, that of condensation does not.": "**holds**",
    "Condensed images find a better architecture than random images or herding.": "**refuted**",
    "On CIFAR100 condensed images are better than chosen ones.": "",
    "The accuracy hardly depends on the numbers of steps near K = 1000 and T = 10.": "",
}


def test_the_verdicts(lines):
    """All others are not decided. When one changes, its page does."""
    assert len(lines) == len(scoreboard.STATEMENTS) == 24
    found = {line.statement.claim: scoreboard.verdict(line.verdicts) if line.verdicts else "" for line in lines}
    assert found.keys() >= VERDICTS.keys()
    assert found == dict.fromkeys(found, "not decided") | VERDICTS


def test_the_scoreboards_numbers_are_the_records(lines):
    found = {(line.statement.page, line.statement.shown.partition(";")[2]): (line.ours, line.theirs) for line in lines}
    place = dict(dataset="mnist", ipc=(1, 10))
    for rival in ("random", "herding"):
        cells = {(o.ipc, o.network): o for o in table("coresets", **place, network=(OURS, rival)).itertuples()}
        pairs = [[cells[ipc, network] for network in (OURS, rival)] for ipc in (1, 10)]
        assert found["coresets", f" condensed : {rival}"] == tuple(
            ", ".join(" : ".join(f"{getattr(o, kind):.1f}" for o in pair) for pair in pairs) for kind in ("ours", "paper")
        )
    matrix = {(o.network, o.test_network): o for o in table("cross_arch").itertuples()}
    others = {trained for _, trained in matrix} - {OURS}
    means = [[fmean(getattr(matrix[made or t, t], kind) for t in others) for made in (OURS, "")] for kind in ("ours", "paper")]
    assert found["cross_arch", " the ConvNet's images : own"] == tuple(" : ".join(f"{x:.1f}" for x in two) for two in means)
    recipe = {o.dataset: o for o in table("recipe_test").itertuples()}
    three = [recipe[dataset] for dataset in ("mnist", "fashionmnist", "cifar10")]
    assert found["recipe", ""] == tuple(", ".join(f"{getattr(o, kind):.1f}" for o in three) for kind in ("ours", "paper"))
    assert found["nas", " condensed : random : herding"] == ("57.7 : 64.8 : 64.8", "84.5 : 76.2 : 76.2")
    assert found["distillation", " minutes of condensation : DD"] == ("134 : 92", "46 : 160")
    assert found["distillation", " MB of condensation : DD"] == ("747 : 894", "653 : 785")
    assert found["continual", ""] == ("−0.7", "+2.3")


def test_every_page_of_the_paper_has_a_claim_or_shows_none(lines):
    declared = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    named = {line.statement.page for line in lines}
    assert declared - named == {"after", "condensed_images", "costs", "datasets", "judge", "method", "own_data", "speed"}
    assert named <= declared


def test_the_table_has_a_row_for_each_claim_with_a_record_and_a_line_names_the_others(lines):
    shown, rest = rows(scoreboard.scoreboard_table(lines)), scoreboard.undecidable(lines)
    assert len(shown) == sum(bool(line.verdicts) for line in lines)
    assert shown[0][0] == "[Table 1](../notebooks/coresets.ipynb)"
    assert shown[0][2] == "**holds** 2<br>not decided 5"
    for line in lines:
        assert (line.statement.claim.rstrip(".") in rest) == (not line.verdicts)
        assert any(row[1].startswith(line.statement.claim) for row in shown) == bool(line.verdicts)


@pytest.mark.slow
def test_without_records_nothing_is_claimed(tmp_path):
    empty = scoreboard.scoreboard(Store(tmp_path))
    assert {(line.ours, len(line.verdicts)) for line in empty} == {("—", 0)}
    assert rows(scoreboard.scoreboard_table(empty)) == []
    assert scoreboard.undecidable(empty).count("](../notebooks/") == len(empty)


# --- README


def test_the_readmes_table_is_the_records(headline):
    found = [row for row in rows(README) if row and row[0] in headline]
    assert [row[0] for row in found] == ["MNIST", "FashionMNIST", "CIFAR10"]
    for name, ours, theirs, behind in found:
        recorded, printed = headline[name][:2]
        assert f"{ours}<br><small>recipe, {behind}</small>" == recorded
        assert theirs == printed
