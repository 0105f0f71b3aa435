"""dclib.report: `findings` and `drawings` on made outcomes: orders and ranks, accuracy by steps, choices beside their default."""

import numpy as np
import pytest

from dclib import experiments, report
from dclib.experiments import ablations, paper
from dclib.results import Store
from dclib.results.outcomes import Outcome, labels, varying
from dclib.spec import variants

NORMS = ("none", "batch", "instance")
NAMES = {norm: "ConvNet" if norm == "instance" else f"ConvNet:norm={norm}" for norm in NORMS}


def outcome(accuracies=(), *, paper=None, records=(), keys=None, **place):
    place = dict(dataset="mnist", ipc=1, network="ConvNet", test_network="ConvNet", variant="") | place
    sets = tuple(map(tuple, accuracies))
    keys = tuple(str(place) for _ in sets) if keys is None else keys
    return Outcome("x", place, "cpu" if sets else "", sets, keys, paper=paper, records=tuple(records))


def matrix(means, theirs=None):
    """A matrix of norms; C goes down."""
    cells = [(c, t, i, j) for i, c in enumerate(NORMS) for j, t in enumerate(NORMS)]
    numbers = [(means[i][j], theirs and (theirs[i][j], 1.0)) for _, _, i, j in cells]
    places = [dict(network=NAMES[c], test_network=NAMES[t]) for c, t, _, _ in cells]
    return [outcome([[m]] if m else (), paper=p, **place) for place, (m, p) in zip(places, numbers, strict=True)]


THEIRS = [[79.0, 80.8, 90.7], [78.6, 80.7, 90.9], [72.9, 56.7, 91.7]]


def test_the_rank_agreement_is_spearmans():
    assert "ρ = 1.00 (p < 0.001" in report.rank_sentence(matrix(THEIRS, THEIRS))
    upside_down = [[100 - x for x in row] for row in THEIRS]
    assert "ρ = −1.00" in report.rank_sentence(matrix(upside_down, THEIRS))
    swapped = [[80.8, 79.0, 90.7], *THEIRS[1:]]  # two neighbours among nine: 1 - 6·2 / (9·80), unless others lie between
    flat = [[x for row in m for x in row] for m in (swapped, THEIRS)]
    ranks = [[sorted(m).index(x) for x in m] for m in flat]
    rho = np.corrcoef(ranks)[0, 1]
    assert 0.8 < rho < 0.99
    text = report.rank_sentence(matrix(swapped, THEIRS))
    assert text.startswith(f"Over 9 of 9 cells, the order of our accuracies agrees with the paper's at Spearman's ρ = {rho:.2f} (")


def test_few_cells_or_equal_ones_have_no_rank():
    few = [[90.0, 80.0, 70.0], [None] * 3, [None] * 3]
    assert "cannot be compared yet" in report.rank_sentence(matrix(few, THEIRS))
    assert "no order" in report.rank_sentence(matrix([[90.0] * 3] * 3, THEIRS))


def test_the_order_of_both_sides():
    text = report.order_sentence(matrix([[70.0, 80.0, 90.0], [70.0, 80.0, 90.0], [73.0, 83.0, 93.0]], THEIRS))
    assert "(stage C): ours instance 83.0 > none 80.0 > batch 80.0; the paper's none 83.5 > batch 83.4 > instance 73.8." in text
    assert "(stage T): ours instance 91.0 > batch 81.0 > none 71.0; the paper's instance 91.1 > none 76.8 > batch 72.7." in text


def test_only_what_is_complete_is_ordered():
    assert report.order_sentence(matrix([[None, 80.0, 90.0], [70.0, None, 90.0], [70.0, 80.0, None]], THEIRS)) == ""
    text = report.order_sentence(matrix([[None, 80.0, 90.0], [70.0, 81.0, 91.0], [70.0, 82.0, 92.0]], THEIRS))
    assert "In the mean (over 2 of 3) by what condensed (stage C): ours instance 87.0 > batch 86.0 > none 85.0; the paper's" in text
    assert "(stage T): ours instance 91.5 > batch 81.5 > none 70.0; the paper's" in text
    part = report.order_sentence(matrix([[70.0, 80.0, 90.0], [70.0, 80.0, 90.0], [73.0, 83.0, 93.0]]))
    assert "paper" not in part


def test_networks_that_differ_in_one_option_are_named_by_it():
    rows = matrix(THEIRS, THEIRS)
    assert list(labels(rows, "network").values()) == list(NORMS)
    two = [outcome(network="ConvNet:width=8"), outcome(network="ConvNet:depth=2")]
    assert list(labels(two, "network").values()) == ["ConvNet:width=8", "ConvNet:depth=2"]
    assert list(labels([outcome(network="random"), outcome()], "network").values()) == ["random real images", "ConvNet"]
    head = report.matrix_table(rows).splitlines()[0]
    assert [cell.strip() for cell in head.split("|")[3:-1]] == list(NORMS)
    ticks = [t.get_text() for t in report.heatmap(rows).figure.axes[0].get_xticklabels()]
    assert ticks == list(NORMS)


def test_on_the_diagonal_the_trained_network_is_no_axis():
    own = [outcome(network=name, test_network=name, variant=v) for name in ("MLP", "LeNet") for v in ("", "distance=cosine")]
    assert varying(own) == ["network", "variant"]
    text = report.matrix_table(own, rows="variant", columns="network").splitlines()
    assert [cell.strip() for cell in text[0].split("|")[1:-1]] == ["variant", "MLP", "LeNet"]
    assert len(text) == 4


def loops(**accuracies):
    rows = [(K, T) for T in (1, 5) for K in (1, 20)]
    return [outcome(accuracies.get(f"K{K}T{T}", ()), ipc=10, variant=variants.steps((K,), (T,))[0]) for K, T in rows]


def test_accuracy_by_steps():
    rows = loops(K1T1=[[50.0, 52.0]], K20T1=[[90.0]], K20T5=[[95.0]])
    head, body = report.steps_rows(rows)
    assert head == ["data set", "T", "K = 1", "K = 20"]
    assert body == [["MNIST", "1", "51.0 ± 1.0", "90.0"], ["MNIST", "5", "—", "95.0"]]
    (panel,) = report.step_curves(rows).figure.axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert drawn == {"T = 1": [[1.0, 51.0], [20.0, 90.0]], "T = 5": [[20.0, 95.0]]}


def test_choices_are_set_against_what_they_depart_from():
    made = dict(kind="MakeSet", losses=[3.0, 2.0])
    rows = [
        outcome([[90.0, 92.0], [90.0, 90.0]], records=[made]),
        outcome([[88.0, 88.0], [86.0, 90.0]], variant="init=real"),
        outcome([[80.0]], network="ConvNet:norm=batch"),
        outcome([[70.0]], network="ConvNet:norm=batch", variant="bn=true"),
        outcome(network="ResNet18"),
        outcome([[60.0]], network="ResNet18:downsampling=stride"),
    ]
    rows.append(outcome(rows[0].sets, keys=rows[0].keys, variant="real_batch=64"))
    _, body = report.choices_rows(rows)
    differences = [row[5] for row in body]
    assert differences == ["—", "−2.5", "−10.5", "−10.0", "—", "—", "the same"]
    # by networks: std² / (n - 1) = 0.75 / 3 and 2 / 3; by sets: variance of the means / 2 = 0.25 and 0
    assert body[1][6] == f"{-2.5 / (0.25 + 2 / 3) ** 0.5:+.1f}".replace("-", "−")
    assert [row[7] for row in body] == ["2", "—", "—", "—", "—", "—", "—"]
    (panel,) = report.ladder(rows).figure.axes
    assert [bar.lines[0].get_xdata()[0] for bar in panel.containers] == [90.5, 88.0, 80.0, 70.0, 60.0, 90.5]


def test_what_is_missing_and_left_to_the_paper_s_budget_is_told(tmp_path):
    for name, *numbers in (("ablation_distance", 12, 12), ("ablation_loops", 8, 88)):
        text = report.missing_sentence(report.look_up(name, store=Store(tmp_path)))
        presets = zip(("cpu", "paper"), numbers, strict=True)
        commands = [f"`dclib run {name} --preset {preset}` computes {n} of them" for preset, n in presets]
        assert text.endswith(", ".join(commands) + ".")
    crossed = report.missing_sentence(report.look_up("ablation_width", store=Store(tmp_path)))
    assert crossed.endswith("`dclib run ablation_width --preset cpu` computes them.")


@pytest.mark.parametrize("draw", [report.step_curves, report.ladder])
def test_nothing_recorded_says_so(draw):
    picture = draw(loops())
    assert [t.get_text() for t in picture.figure.texts] == ["nothing is recorded yet"]
    assert picture.render().startswith(b"\x89PNG")


def test_tracks_are_drawn_step_by_step():
    above, below = report.tracks({"learned": ([0.1, 0.2], [0.5, 0.4])}).figure.axes
    assert above.lines[0].get_xydata().tolist() == [[1.0, 0.1], [2.0, 0.2]]
    assert below.lines[0].get_ydata().tolist() == [0.5, 0.4]


def test_the_printed_matrices_rank_as_themselves():
    """Every ablation's own numbers, cell by cell: a table read in the wrong direction would not be in its order."""
    for name in paper.ABLATIONS:
        cells = [cell for cell in experiments.find(name).cells(experiments.PAPER) if cell.variant != ablations.OWN_RATE]
        found = [paper.find(name, cell.place) for cell in cells]
        rows = [outcome([[p[0]]], paper=p, **cell.place) for cell, p in zip(cells, found, strict=True)]
        assert "ρ = 1.00" in report.rank_sentence(rows)
