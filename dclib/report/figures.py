"""Figures of images: a set's, several sets' side by side, and images emerging from noise with their losses.

Each function returns a `Picture`, which a notebook shows and `save_grid` writes; no global state of matplotlib is touched, and
it is imported only when something is drawn. Letters are sized for a screen as narrow as a phone's. The ground is transparent,
and letters and lines have a tone that shows on a light and on a dark page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, one_of
from ..results.sets import CondensedSet, check_drawable
from ..support.files import PICTURES, write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches
DPI = 150
INK = "#757c87"  # as far from white as from a dark page, a contrast of 4.2 to either
NAMED = 100  # classes of which each has room for its name


@dataclass(frozen=True)
class Picture:
    """A figure that a notebook shows as PNG.

    Args:
        figure: matplotlib's, to be changed at will.
        about: what is to be seen, in words.
    """

    figure: "Figure"
    about: str

    def render(self, kind: str = "png") -> bytes:
        """Draw it as a file of that format, as large as it needs to be for a legend that is wider than the figure."""
        from matplotlib.transforms import Bbox

        file = BytesIO()
        _draw_in_ink(self.figure)
        self.figure.draw_without_rendering()  # the layout of images needs two rounds
        box = Bbox.union([self.figure.get_tightbbox(), Bbox.from_bounds(0, 0, *self.figure.get_size_inches())])
        self.figure.savefig(file, format=kind, dpi=DPI, transparent=True, bbox_inches=box)
        return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.render()

    def __repr__(self) -> str:
        return self.about


def _draw_in_ink(figure: "Figure") -> None:
    """Give letters, ticks and frames the tone `INK`, where no colour of their own was chosen."""
    from matplotlib.text import Text

    for panel in figure.axes:
        panel.tick_params(which="both", color=INK, labelcolor=INK)
        panel.spines[:].set_color(INK)
    for text in figure.findobj(Text):
        if text.get_color() == "black":  # matplotlib's default
            text.set_color(INK)


def new_figure(height: float, width: float = WIDTH) -> "Figure":
    """An empty figure of so many inches' height and width."""
    from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def nothing() -> Picture:
    """A figure that says that there is nothing to draw."""
    figure = new_figure(1.0)
    figure.text(0.5, 0.5, "nothing is recorded yet", ha="center", va="center", fontsize=14)
    return Picture(figure, "nothing is recorded yet")


def plain(panel: "Axes", size: int = 12) -> None:
    """Give a panel a light grid, letters of that size, and no frame above and to the right."""
    panel.tick_params(labelsize=size)
    panel.grid(color=INK, alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)


def image_grid(made: CondensedSet) -> Picture:
    """Draw a set in data colours: at one image per class each under its class's name, else a row for each class.

    More than a hundred classes are drawn without names.
    """
    width, height = _grid_size(made)
    figure = new_figure(height, width)
    _draw_grid(figure, made)
    counted = f"{made.ipc} image{'' if made.ipc == 1 else 's'} for each of {len(made.class_names)} classes"
    return Picture(figure, f"{made.dataset}: {counted}")


def image_grids(sets: Mapping[str, CondensedSet]) -> Picture:
    """Draw several sets as `image_grid` does, two beside one another, or below one another at one image per class.

    Args:
        sets: by the name that stands above; none gives a figure that says so.
    """
    if not sets:
        return nothing()
    across = 2 if len(sets) > 1 and all(made.ipc > 1 for made in sets.values()) else 1
    lines = [list(sets.items())[i : i + across] for i in range(0, len(sets), across)]
    tall = [max(_grid_size(made, WIDTH / across)[1] for _, made in line) + 0.5 for line in lines]
    figure = new_figure(sum(tall))
    places = figure.subfigures(len(lines), across, height_ratios=tall, squeeze=False)
    for line, row in zip(lines, places, strict=True):
        for place, (name, made) in zip(row, line, strict=False):
            _draw_grid(place, made, 14 if across == 1 else 10)
            place.suptitle(name if across == 1 else fill(name, 38), fontsize=14 if across == 1 else 13)
    return Picture(figure, f"images of {', '.join(sets)}")


def _grid_shape(made: CondensedSet) -> tuple[int, int]:
    """Lines, and classes on each: five or ten where each has one image, one where it has more; of very many, about a square."""
    classes = len(made.class_names)
    if classes > NAMED:
        across = math.ceil((classes / made.ipc) ** 0.5)
    else:
        across = 1 if made.ipc > 1 else min(classes, 5 if classes <= 10 else 10)
    return -(-classes // across), across


def _grid(made: CondensedSet) -> tuple[np.ndarray, int]:
    """All images in one array, a transparent line between them, and the height of the room above each for its class's name."""
    (lines, across), strips = _grid_shape(made), [_strip(pixels) for pixels in _by_class(made)]
    height, width = strips[0].shape[:2]
    above = round(0.25 * height) if across > 1 and len(strips) <= NAMED else 0
    whole = np.zeros((lines * (height + above + 1) - 1, across * (width + 1) - 1, 4), np.uint8)
    for i, strip in enumerate(strips):
        top, left = i // across * (height + above + 1) + above, i % across * (width + 1)
        whole[top : top + height, left : left + width] = strip
    return whole, above


def _grid_size(made: CondensedSet, width: float = WIDTH) -> tuple[float, float]:
    """Width and height of a grid in inches, wider where its images would have less than a pixel for each of theirs."""
    high, wide = _grid(made)[0].shape[:2]
    width = max(width, wide / DPI)
    beside = 0.85 if _grid_shape(made)[1] == 1 else 1.0  # the rest of the width is for names
    return width, max(1.0, beside * width * high / wide)


def _draw_grid(place: Any, made: CondensedSet, size: int = 14) -> None:
    """Draw a set into a figure or a part of one, its classes' names in letters of that size where there is room for them."""
    (whole, above), (lines, across) = _grid(made), _grid_shape(made)
    panel, each = place.subplots(), (whole.shape[0] + 1) / lines
    _show(panel, whole)
    names = made.class_names if len(made.class_names) <= NAMED else ()
    if across == 1:
        panel.set_yticks([(i + 0.5) * each - 0.5 for i in range(len(names))], names, fontsize=size)
        panel.tick_params(length=0)
        return
    for i, name in enumerate(names):
        x, y = (i % across + 0.5) * (whole.shape[1] + 1) / across, i // across * each + above - 1
        panel.text(x, y, name, ha="center", va="bottom", fontsize=size if across <= 5 else 9)


def save_grid(made: CondensedSet, path: Path | str) -> None:
    """Write the picture of `image_grid`; the name's ending chooses the format.

    Raises:
        SpecError: no such format.
        FileError: the place cannot be written.
    """
    picture_format(path)  # before it is drawn
    save_picture(image_grid(made), path)


def confusion_map(counts: np.ndarray, names: Sequence[str]) -> Picture:
    """Draw how many test images of each class (row) were taken for each class (column), in percent of the row.

    Args:
        counts: whole numbers (classes, classes).
        names: of the classes; more than thirty are not written.
    """
    share = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure = new_figure(WIDTH)
    panel = figure.subplots()
    panel.imshow(share, vmin=0, vmax=100, cmap="viridis")
    panel.set_xlabel("taken for", fontsize=14)
    panel.set_ylabel("class", fontsize=14)
    if len(names) <= 30:
        panel.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=11)
        panel.set_yticks(range(len(names)), names, fontsize=11)
        for (i, j), value in np.ndenumerate(share):
            tone = "#222222" if value > 60 else "#eeeeee"
            panel.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=110 / max(len(names), 10), color=tone)
    return Picture(figure, f"what the test images of {len(names)} classes are taken for, in percent")


def save_picture(picture: Picture, path: Path | str) -> None:
    """Write a picture; the name's ending chooses the format.

    Raises:
        SpecError: no such format.
        FileError: the place cannot be written.
    """
    write_atomic(path, picture.render(picture_format(path)))


def picture_format(path: Path | str) -> str:
    """Return the format that a name's ending chooses, or refuse the name."""
    return str(one_of("picture format", Path(path).suffix.removeprefix(".").lower(), PICTURES))


def image_rows(sets: Mapping[str, CondensedSet], losses: Sequence[float] = ()) -> Picture:
    """Draw one image for each of the first ten classes of several sets, a row for each set.

    Args:
        sets: by the name that stands beside the row.
        losses: of each outer step; where they are given, their curve is drawn below.
    """
    strips = {name: _strip(np.stack([pixels[0] for pixels in _by_class(made)[:10]])) for name, made in sets.items()}
    tall = [strip.shape[0] / strip.shape[1] * (WIDTH - 1) for strip in strips.values()]  # inches
    below = [2.4] if losses else []
    figure = new_figure(sum(tall) + 0.12 * len(strips) + sum(below))
    panels = figure.subplots(len(strips) + len(below), 1, height_ratios=[*tall, *below], squeeze=False).ravel()
    for panel, (name, strip) in zip(panels, strips.items(), strict=False):
        _show(panel, strip)
        panel.set_ylabel(name.replace(", ", ",\n"), rotation=0, ha="right", va="center", fontsize=14)
    if losses:
        curve = panels[-1]
        curve.plot(range(1, len(losses) + 1), losses, color="C0", linewidth=2)
        curve.set_xlabel("outer step k", fontsize=14)
        curve.set_ylabel("distance", fontsize=14)
        curve.set_ylim(bottom=0)
        plain(curve, 13)
        curve.grid(False)
    return Picture(figure, f"images of {', '.join(strips)}" + f", and the distance of {len(losses)} steps" * bool(losses))


def _by_class(made: CondensedSet) -> list[np.ndarray]:
    """The pixels of each class, red, green, blue and opaque."""
    check_drawable(made.images.shape[1])
    if bare := set(range(len(made.class_names))) - set(made.labels.tolist()):
        raise DataError(f"the set has no image of class {made.class_names[min(bare)]}: it cannot be drawn")
    pixels = made.pixels()
    pixels = np.broadcast_to(pixels[..., None], (*pixels.shape, 3)) if pixels.ndim == 3 else pixels
    pixels = np.pad(pixels, [(0, 0)] * 3 + [(0, 1)], constant_values=255)
    return [pixels[made.labels == c] for c in range(len(made.class_names))]


def _strip(pixels: np.ndarray) -> np.ndarray:
    """Images side by side, with a transparent line between them."""
    return np.concatenate(list(np.pad(pixels, [(0, 0), (0, 0), (0, 1), (0, 0)])), axis=1)[:, :-1]


def _show(panel: "Axes", image: np.ndarray) -> None:
    """Draw an image without ticks and without a frame."""
    panel.imshow(image, interpolation="nearest")
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
