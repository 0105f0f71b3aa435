"""How time and memory of one outer step grow with classes, images per class and image size; dclib alone, uncompiled.

Usage: python benchmarks/bench_scaling.py [--device cuda]
"""

import contest

BASE = dict(classes=10, channels=3, size=32, network="ConvNet", ipc=1, real=16, T=1, epochs=1, steps=2)
SCALES = {
    "classes": [{"classes": n} for n in (2, 10, 50, 100)],
    "images per class": [{"ipc": n} for n in (1, 10, 50)],
    "side in pixels": [{"size": n} for n in (16, 32, 64)],
}
LARGEST = {**BASE, "classes": 100, "ipc": 50, "size": 64, "steps": 1}


def main() -> None:
    """Measure each point in a process of its own, record and print them."""
    import bench_condense

    parser = contest.parser(__doc__)
    parser.add_argument("--largest", action="store_true", help="100 classes of 50 images of 64 × 64 pixels as well: minutes")
    options = parser.parse_args()
    engine = "captured" if options.device == "cuda" else "eager"
    for axis, points in SCALES.items():
        for point in points:
            case = {**BASE, **point, "device": options.device}
            found = contest.contest(bench_condense.__file__, case, [engine], 1)
            contest.record("scaling", f"{axis}: {next(iter(point.values()))}", {**case, "axis": axis}, found)
    if options.largest:
        case = {**LARGEST, "device": options.device}
        found = contest.contest(bench_condense.__file__, case, [engine], 1)
        contest.record("scaling", "100 classes, 50 images/class, 64 × 64 pixels", {**case, "axis": "largest"}, found)


if __name__ == "__main__":
    main()
