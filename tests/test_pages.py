"""Pages run without a kernel on made-up measurements, data and no records: what they tabulate and draw, what they refuse."""

import json

import numpy as np
import pytest
from pages import shown
from PIL import Image

import dclib
from dclib import report
from dclib.errors import DataError, SpecError
from dclib.experiments.paper import TABLE_T1

ABOUT = {"machine": "a machine", "device": "cpu", "versions": {"torch": "2.14.1"}}
TABLES = ["cross_arch", "condensed_images", "recipe", "ablation_depth", "ablation_distance", "ablation_loops", "choices"]
LARGE = ["coresets", "images_per_class", "more_baselines", "cifar100"]


@pytest.fixture(autouse=True)
def written(tmp_path, monkeypatch):
    """Write lines to a file of measurements, among results that hold nothing else."""
    monkeypatch.setenv("DCLIB_RESULTS", str(tmp_path))
    monkeypatch.setenv("DCLIB_DATA", str(tmp_path))

    def write(name, *lines):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(ABOUT | line) + "\n" for line in lines))

    return write


@pytest.mark.parametrize("name", [*TABLES, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_a_page_of_tables_without_records_shows_dashes_and_empty_figures(name):
    values = shown(name, leave_out="tracking").values()  # which trains
    pictures = [value for value in values if hasattr(value, "_repr_png_")]
    assert pictures
    assert all(picture._repr_png_().startswith(b"\x89PNG") for picture in pictures)
    tables = [value for value in values if isinstance(value, list)]
    assert any("—" in text for table in tables for row in table for text in row)


# --- speed


def contest(bench="condense", title="a case", case=None, **changes):
    contestants = {"compiled/bfloat16": {"seconds": [2.0, 2.0], "peak_mb": 1000}, "tuned": {"seconds": [4.0], "peak_mb": 1900}}
    contestants |= {"plain": {"seconds": [4.0, 6.0, 5.0], "peak_mb": 2000}}
    line = {"bench": bench, "title": title, "case": case or {"device": "cpu"}, "contestants": contestants}
    return line | {"gflop": 100.0, "peak_gflops": 50.0} | changes


def test_speed_has_medians_ratios_and_shares_of_the_peak(written):
    written("speed", contest(gflop=1.0), contest())  # the later one counts
    page = shown("speed")
    assert page["table"] == [
        ["a case", "the literal loop", "1.00", "0.80", "40", "5.00", "4.00 … 6.00", "2,000"],
        ["", "the same, allocator set", "1.25", "1.00", "50", "4.00", "4.00 … 4.00", "1,900"],
        ["", "dclib, compiled, bfloat16", "2.50", "2.00", "100", "2.00", "2.00 … 2.00", "1,000"],
    ]
    (panel,) = page["ratios"].figure.axes
    assert [bar.get_width() for bar in panel.patches] == [2.5, 1.25, 1.0]


def test_speed_tells_machines_apart(written):
    one = {"eager": {"seconds": [2.0], "peak_mb": 1000}}
    points = [contest("scaling", f"side: {n}", {"axis": "side"}, contestants=one) for n in (16, 8)]
    written("speed", contest(), contest(machine="another"), *points, *(point | {"machine": "another"} for point in points))
    page = shown("speed")
    assert [row[0] for row in page["table"]] == ["**a machine**", "a case", "", "", "**another**", "a case", "", ""]
    for name in ("ratios", "scaling"):
        assert [text.get_text() for text in page[name].figure.legends[0].get_texts()] == ["a machine", "another"]
    assert [line.get_xydata().tolist() for line in page["scaling"].figure.axes[0].lines] == [[[8, 2.0], [16, 2.0]]] * 2


@pytest.mark.parametrize(("given", "gflop"), [({"preset": "cpu"}, 100), ({"preset": "paper"}, 50), ({"device": "cuda"}, 50)])
def test_speed_of_one_kind_of_device(written, given, gflop):
    profile = {"bench": "profile", "heavy": 0.5, "contestants": {"compiled": {"seconds": [4.0], "peak_mb": 1}}}
    written("speed", contest() | profile, contest(device="a GPU", case={"device": "cuda"}, gflop=50.0) | profile)
    floor = gflop / 50
    assert shown("speed", **given)["machines"] == [
        ["a case", "4000", "50", f"{1000 * floor:.0f}", f"{4 / floor:.2f}", f"{gflop:.1f}", f"{gflop / 4:.0f}"]
    ]


# --- memory


def memory_of(dataset="mnist", timed=True, **changes):
    def entry(seconds, peak):
        return {"seconds": seconds if timed else [], "peak_mb": peak, "allocated_mb": peak - 300.0}

    contestants = {"unrolled/10": entry([1.0], 500), "unrolled/30": entry([2.0, 3.0, 4.0], 900), "reverse/30": entry([4.0], 480)}
    contestants |= {"condense/0": entry([0.5], 700), "condense/50": entry([1.5], 700)}
    return {"case": {"dataset": dataset}, "contestants": contestants} | changes


def table_11():
    return shown("distillation", "table-11", "memory", report=report)


def test_memory_and_time_beside_the_papers(written):
    written("memory", memory_of(timed=False), memory_of())
    page = table_11()
    assert page["table-11"] == [  # 10 updates and 9 trainings of 1.5 - 2 · 0.5 seconds in an outer step; 1000 of these
        ["MNIST", "DD", "900", "600", "20.0", "3.00", "23,600", "1,180", "785", "160"],
        ["", "condensation", "700", "400", "0.0", "9.50", "1,000", "158", "653", "46"],
        ["", "ratio", "1.29", "1.50", "", "", "", "7.45", "1.20", "3.48"],
    ]
    (panel,) = page["memory"].figure.axes
    assert sorted(list(line.get_xdata()) for line in panel.lines) == [[0, 50], [10, 30], [30]]
    written("memory", memory_of(timed=False), memory_of("cifar10", device="a GPU"))
    rows = table_11()["table-11"]
    assert [row[0] for row in rows] == ["MNIST, cpu", "", "", "CIFAR10, a GPU", "", ""]
    assert [(row[5], row[7]) for row in rows[:3]] == [("—", "—"), ("—", "—"), ("", "—")], "without times"


def test_measurements_that_are_not_there_are_dashes():
    page = shown("speed") | table_11()
    assert (page["table"], page["table-11"]) == ([["—"] * 8], [["—"] * 10])
    assert all(page[name].render().startswith(b"\x89PNG") for name in ("ratios", "scaling", "memory"))


# --- data sets


def test_datasets_that_are_not_here_have_their_row(monkeypatch, tmp_path):
    monkeypatch.setattr("dclib.data.sources.DEBIAN", tmp_path)
    page = shown("datasets")
    assert [row[0] for row in page["here"]] == ["digits"]
    assert [[int(n.replace(",", "")) for n in row[3:]] for row in page["table"]][: len(TABLE_T1)] == [*map(list, TABLE_T1.values())]
    assert shown("datasets", preset="smoke")["here"] == [["digits", "embedded", "1 × 28 × 28", "1,000", "797", "—"]]


def test_datasets_whose_counts_are_not_the_papers(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (80, 16, 16), np.uint8)
    labels = np.arange(80) % 10
    np.savez(tmp_path / "usps.npz", x_train=images[:60], x_test=images[60:], y_train=labels[:60], y_test=labels[60:])
    page = shown("datasets", datasets="usps")
    assert page["here"] == [["USPS", "npz", "1 × 16 × 16", "60", "20", "-7,231, -1,987"]]
    assert page["figure"].render().startswith(b"\x89PNG")


# --- a folder of one's own images


def write(place, classes, channels=1):
    """Classes of one and two images, each of another shape."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for c in range(classes):
            (place / split / f"{c:03d}").mkdir(parents=True)
            for i in range(1 + c % 2):
                image = rng.integers(0, 256, (4 + i, 6, channels)).astype(np.uint8)
                Image.fromarray(image[..., 0] if channels == 1 else image).save(place / split / f"{c:03d}" / f"{i}.png")


@pytest.mark.parametrize(("classes", "channels"), [(2, 3), (200, 1)])
def test_from_two_to_two_hundred_classes_grey_or_in_colour(classes, channels, tmp_path):
    """Images of any shape, which need a size."""
    write(tmp_path, classes, channels)
    tiny, how = dclib.MLP(width=4, depth=1), dict(device="cpu", engine="eager")
    small = dclib.condense(tmp_path, network=tiny, outer_steps=1, real_batch=2, image_size=8, **how)
    assert small.images.shape == (classes, channels, 8, 8)
    assert len(small.class_names) == classes
    assert len(dclib.train(small, network=tiny, epochs=1, **how)) == 1
    with pytest.raises(DataError, match="give an image size"):
        dclib.load(tmp_path)


def test_the_page_makes_an_uneven_folder_and_counts_it():
    rows = shown("own_data", "example", "585fc850")["585fc850"]
    assert rows[1] == ["1-one", "16", "12"]
    assert [row[1:] for row in rows] == [[str(12 + 4 * c), "12"] for c in range(10)]


# --- refusals


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("speed", {"datasets": "digits"}, "no data sets"),
        ("speed", {"recompute": True, "preset": "cpu"}, "bench"),
        ("speed", {"preset": "smok"}, "smok"),
        ("speed", {"device": "cpo"}, "cpo"),
        ("own_data", {"images": "x"}, "images"),
        ("own_data", {"ipc": 0}, "ipc must be a whole number of at least 1, not 0"),
        ("own_data", {"image_size": -3}, "-3"),
        ("own_data", {"folder": "/none/such"}, "there is no folder"),
        ("own_data", {"preset": "big"}, "unknown preset 'big'"),
    ],
)
def test_what_a_page_cannot_use_is_a_sentence(name, given, words):
    with pytest.raises((SpecError, DataError), match=words):
        shown(name, **given)
