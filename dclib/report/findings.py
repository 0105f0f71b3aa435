"""What the records of an ablation say: orders and ranks beside the paper's, accuracy by steps, and choices against the default."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ..results.outcomes import DASH, Outcome, error_between, labels, title, varying
from ..spec import Network, variants
from .sentences import signed
from .tables import counts, figure

SIDES = {"network": "by what condensed (stage C)", "test_network": "by what was trained (stage T)", "variant": "by distance"}


def rank_sentence(outcomes: Sequence[Outcome]) -> str:
    """How far the order of our accuracies is the paper's: Spearman's ρ over the matrix, with its p-value."""
    both = [o for o in outcomes if o.shown and o.paper]
    if len(both) < 4:
        return "Fewer than four cells have a number of ours beside one of the paper's, so that their orders cannot be compared yet."
    from scipy.stats import spearmanr

    ours, theirs = [o.mean for o in both], [o.paper[0] for o in both]
    if len(set(ours)) == 1 or len(set(theirs)) == 1:
        return "All accuracies are the same, so that there is no order to compare."
    rho, p = spearmanr(ours, theirs)
    size = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    rho = f"{rho:.2f}".replace("-", "−")
    return (
        f"Over {len(both)} of {len(outcomes)} cells, the order of our accuracies agrees with the paper's at Spearman's "
        f"ρ = {rho} ({size}, reckoned as if cells were independent, which those that share a set are not)."
    )


def order_sentence(outcomes: Sequence[Outcome]) -> str:
    """The values of each side in the order of their mean accuracy over the other side, ours and the paper's; maybe empty.

    Of the other side only those values count for which every cell has a number of ours.
    """
    sides, said = [("network", "test_network"), ("test_network", "network")], []
    if "variant" in varying(outcomes):
        sides = [("variant", "network")]
    for axis, other in sides:
        across = list(dict.fromkeys(o.place[other] for o in outcomes))
        complete = [value for value in across if all(o.shown for o in outcomes if o.place[other] == value)]
        cells = [o for o in outcomes if o.place[other] in complete]
        if cells:
            part = "" if complete == across else f" (over {len(complete)} of {len(across)})"
            printed = [o for o in cells if all(p.paper for p in cells if p.place[axis] == o.place[axis])]
            theirs = printed and _order(printed, axis, [o.paper[0] for o in printed])
            ours = _order(cells, axis, [o.mean for o in cells])
            said.append(f"In the mean{part} {SIDES[axis]}: ours {ours}" + (f"; the paper's {theirs}." if theirs else "."))
    return " ".join(said)


def _order(outcomes: Sequence[Outcome], axis: str, means: Sequence[float]) -> str:
    """The values of an axis with the means of their cells, the highest first."""
    of = {
        name: fmean(m for o, m in zip(outcomes, means, strict=True) if o.place[axis] == value)
        for value, name in labels(outcomes, axis).items()
    }
    return " > ".join(f"{name} {of[name]:.1f}" for name in sorted(of, key=of.get, reverse=True))


def loops_of(outcome: Outcome) -> tuple[int, int]:
    """K and T of an outcome whose variant names both."""
    changes = variants.parse(outcome.place["variant"])
    return changes["outer_steps"], changes["inner_steps"]


def steps_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table of accuracy by K (across) and T (down), for `report.pipe_table`."""
    columns = sorted({loops_of(o)[0] for o in outcomes})
    lines: dict[tuple[str, int], dict[int, str]] = {}
    for o in outcomes:
        K, T = loops_of(o)
        lines.setdefault((title(o.place["dataset"]), T), {})[K] = figure(o, "ours")
    rows = [[name, f"{T}", *(found.get(K, "") for K in columns)] for (name, T), found in lines.items()]
    return ["data set", "T", *(f"K = {K}" for K in columns)], rows


def choices_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table of choices, each with its difference from what it departs from, for `report.pipe_table`."""
    places = {tuple(o.place.values()): o for o in outcomes}
    rows = []
    for o in outcomes:
        base = places.get(tuple(_base(o).values()))
        shown = o.shown and base is not None and base is not o and base.shown
        difference = o.mean - base.mean if shown else None
        error = error_between(o, base) if shown else None
        same = shown and o.keys == base.keys
        words = [title(o.place["dataset"]), str(o.place["ipc"]), o.place["network"], title(o.place["variant"])]
        numbers = [figure(o, "ours"), "the same" if same else signed(difference) if shown else DASH]
        numbers += [signed(difference / error) if error and not same else DASH, _steps_done(o)]
        rows.append([*words, *numbers, f"{o.preset} {counts(o)}" if o.sets else DASH])
    head = ["data set", "images/class", "condensed with", "changed", "accuracy", "difference", "in std. errors", "outer steps"]
    return [*head, "preset; sets × networks"], rows


def _base(outcome: Outcome) -> dict[str, Any]:
    """Where that stands from which a choice departs: without its variant, or else without its network's options."""
    place = dict(outcome.place)
    if place["variant"]:
        return place | {"variant": ""}
    return place | {"network": Network.parse(place["network"]).family}


def _steps_done(o: Outcome) -> str:
    """How many outer steps each set took, which is fewer than K where it stopped early."""
    done = sorted({len(r["losses"]) for r in o.records if r["kind"] == "MakeSet" and "losses" in r})
    return " … ".join(map(str, dict.fromkeys([done[0], done[-1]]))) if done else DASH
