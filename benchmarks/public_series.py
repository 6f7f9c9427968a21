"""The end of a warm-up and change points on series that others have labelled: `python benchmarks/public_series.py
[--steady FOLDER] [--tcpd FOLDER] [--otava FOLDER]`, each the folder of a checkout, of which nothing is kept here.

- `--steady`: github.com/MartinBeseda/steady-state, 407 series of 3,000 times of a Java benchmark in which five people
  marked where the steady state begins. `ours` is the rule of `ramp_up: auto(…)` with means of 10 times as seconds,
  windows of 500 times and the limits of the drift that are stated; `MSER-5` (White 1997) the truncation of the whole
  series with the least standard error of the mean; `CP-SSD` (Traini et al. 2022) the repository's classification of
  the same series. Printed: the median distance to each labeller, in times, with the share of series within 100 of it;
  the series in which none was found, which count as 3,000; and the error that is left, of the median of the 500 times
  from the mark on against that of the last 1,000, where both are apart: the median and the 90th percentile over the
  series.
- `--tcpd`: github.com/alan-turing-institute/TCPD, change points that several people marked in series of many fields;
  the one-dimensional ones that lie in the checkout. Precision, recall and F1 as in its paper (van den Burg & Williams,
  arXiv:2003.06222): margin 5, recall as the mean over annotators, the first point counted as one.
- `--otava`: github.com/apache/otava, the series of its tests with the change points that these expect.

`ours` is `proveout trend`, which decides run by run and needs 8 runs before a change. With
apache-otava on the path (`pip install --no-deps --target FOLDER apache-otava`, `PYTHONPATH=FOLDER`) its columns show
what it finds with its defaults, from the whole series at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

# `statistics.py` of this folder has the name of a module of the standard library, which others import.
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]

import argparse  # noqa: E402
import ast  # noqa: E402
import json  # noqa: E402
from collections.abc import Callable, Iterator, Mapping, Sequence  # noqa: E402
from concurrent.futures import ProcessPoolExecutor  # noqa: E402
from functools import partial  # noqa: E402

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from proveout.coordinator.history import metric_history  # noqa: E402
from proveout.coordinator.measure.steady_state import steady_from  # noqa: E402
from proveout.dsl.plan.stages import Windows  # noqa: E402

Detect = Callable[[Sequence[float]], Sequence[int]]
"""A series -> the places at which something else begins."""

# ---- the end of a warm-up ----------------------------------------------------------------------------------------

LABELLERS = ("daniele", "luca", "martin", "michele", "vittorio")
WINDOW, NEAR, BATCH, TENS = 500, 100, 5, 10
WINDOWS = Windows(ramp_up_s=250.0, ramp_up_least_s=0.0, measure_s=WINDOW / TENS, ramp_down_s=0.0)


def ours(limit: float, series: Sequence[float]) -> int:
    """The mark of `ramp_up: auto` with means of `TENS` values as seconds; the length of the series without one."""
    found = steady_from(np.asarray(series).reshape(-1, TENS).mean(axis=1), WINDOWS, limit)
    return len(series) if found is None else found * TENS


def mser(series: Sequence[float]) -> int:
    """The truncation of means of `BATCH` values, not of the last five means, with the least s² / n of what is left."""
    means = np.asarray(series[: len(series) // BATCH * BATCH]).reshape(-1, BATCH).mean(axis=1)[::-1]
    left = np.arange(1, len(means) + 1)
    error = ((means**2).cumsum() - means.cumsum() ** 2 / left) / left**2
    return int(np.argmin(error[:4:-1])) * BATCH


MARKS: Mapping[str, Callable[[Sequence[float]], int]] = {
    **{f"ours, {limit:.1%}": partial(ours, limit) for limit in (0.1, 0.01, 0.002)},
    "MSER-5": mser,
    "always 0": lambda series: 0,
}


def marks(series: Sequence[float]) -> list[int]:
    return [mark(series) for mark in MARKS.values()]


def left_over(series: npt.NDArray[np.float64], at: int) -> float | None:
    """The relative error that the warm-up leaves in a window from a mark on."""
    if at + WINDOW > len(series) - 1000:
        return None
    return abs(float(np.median(series[at : at + WINDOW]) / np.median(series[-1000:])) - 1.0)


def steady(folder: Path) -> None:
    """Print the table of the steady-state series."""
    data = folder / "analysis-v2" / "man_steady_indices"
    read = {
        name: json.loads((data / f"benchmark_database_steady_indices_{name}.json").read_text()) for name in LABELLERS
    }
    found = {name: {one["keyname"]: int(one["value"]) for one in labels["main"]} for name, labels in read.items()}
    keys = sorted(set.intersection(*(set(labels) for labels in found.values())))
    named = [key.rsplit("_", 2) for key in keys]
    series = [json.loads((data / "data_st" / f"{name}_{fork}").read_text()) for name, fork, _ in named]
    starts = [json.loads((folder / "data" / "classification" / file).read_text()) for file, _, _ in named]
    places = [one["steady_state_starts"][int(fork)] for one, (_, fork, _) in zip(starts, named, strict=True)]
    found["CP-SSD"] = {
        key: len(one) if at is None or at < 0 else at for key, at, one in zip(keys, places, series, strict=True)
    }
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(marks, series, chunksize=8))
    for number, name in enumerate(MARKS):
        found[name] = {key: row[number] for key, row in zip(keys, rows, strict=True)}
    print(f"{len(keys)} series: distance to the labeller, times (share within {NEAR}); error left")
    print(f"{'':12}" + "".join(f"{name:>14}" for name in LABELLERS) + f"{'none':>6}{'error':>9}{'p90':>7}")
    arrays = [np.asarray(one) for one in series]
    for name, labels in found.items():
        cells = []
        for labeller in LABELLERS:
            apart = [abs(labels[key] - found[labeller][key]) for key in keys]
            text = f"{np.median(apart):.0f} ({np.mean(np.asarray(apart) <= NEAR):.0%})"
            cells.append("-" if name == labeller else text)
        none = sum(labels[key] >= len(one) for key, one in zip(keys, series, strict=True))
        errors = [left_over(one, labels[key]) for key, one in zip(keys, arrays, strict=True)]
        known = [error for error in errors if error is not None]
        print(
            f"{name:12}"
            + "".join(f"{cell:>14}" for cell in cells)
            + f"{none:>6}{np.median(known):>9.2%}{np.quantile(known, 0.9):>7.1%}"
        )


# ---- change points -----------------------------------------------------------------------------------------------

MARGIN = 5
WIDTHS = (10, 9, 6, 6, 10, 6, 6, 9)


def trend(series: Sequence[float]) -> list[int]:
    """The changes of level of `proveout trend`, of values that are not above zero without their logarithms."""
    points = [metric_history.point([value]) for value in series]
    known = [one for one in points if one is not None]
    if len(known) < len(points):
        known = [metric_history.Point(value, None, 1) for value in series]
    return [one.index for one in metric_history.detect(known).changes]


def otava() -> Detect | None:
    """Otava's detection; None where it is not on the path."""
    try:
        from otava.analysis import compute_change_points
    except ImportError:
        return None
    return lambda series: [int(one.index) for one in compute_change_points(list(map(float, series)))[0]]


def matched(true: set[int], found: set[int]) -> int:
    """The number of true points with a found one within the margin, each found one used once, the closest."""
    left, count = set(found), 0
    for at in sorted(true):
        near = [one for one in left if abs(one - at) <= MARGIN]
        if near:
            left.discard(min(near, key=lambda one: abs(one - at)))
            count += 1
    return count


def scores(annotations: Sequence[Sequence[int]], found: Sequence[int]) -> tuple[float, float, float]:
    """Precision, recall and F1 of the paper."""
    places = {0, *found}
    people = [{0, *points} for points in annotations]
    precision = matched(set.union(*people), places) / len(places)
    recall = float(np.mean([matched(one, places) / len(one) for one in people]))
    return precision, recall, 2.0 * precision * recall / (precision + recall)


def one_dimensional(folder: Path) -> Iterator[tuple[str, list[float], list[list[int]]]]:
    """The series of the data set that are there, with the points of each annotator."""
    for name, people in sorted(json.loads((folder / "annotations.json").read_text()).items()):
        file = folder / "datasets" / name / f"{name}.json"
        if not file.is_file():
            print(f"{name:22} is not in the checkout")
            continue
        whole = json.loads(file.read_text())
        if whole["n_dim"] == 1:
            raw = whole["series"][0]["raw"]
            kept = [number for number, value in enumerate(raw) if value is not None]
            places = {number: at for at, number in enumerate(kept)}
            points = [[places[at] for at in one if at in places] for one in people.values()]
            yield name, [float(raw[number]) for number in kept], points


def tcpd(folder: Path, peer: Detect | None) -> None:
    """Print F1 of each series, of each annotator against the others, and of no change point at all."""
    heads = zip(("people F1", "ours F1", "P", "R", "otava F1", "P", "R", "none F1"), WIDTHS, strict=True)
    print(f"\n{'':22}{'points':>7}" + "".join(f"{head:>{width}}" for head, width in heads))
    table = []
    for name, series, people in one_dimensional(folder):
        others = [
            scores([one for other, one in enumerate(people) if other != number], points)[2]
            for number, points in enumerate(people)
        ]
        row = [float(np.mean(others)), *_ordered(scores(people, trend(series)))]
        row += _ordered(scores(people, peer(series))) if peer else [np.nan] * 3
        row.append(scores(people, ())[2])
        table.append(row)
        print(f"{name:22}{len(series):>7}{_cells(row)}")
    print(f"{'mean':22}{len(table):>7}{_cells(np.mean(table, axis=0))}")


def _ordered(found: tuple[float, float, float]) -> list[float]:
    precision, recall, f1 = found
    return [f1, precision, recall]


def _cells(row: Sequence[float]) -> str:
    return "".join(f"{value:>{width}.2f}" for value, width in zip(row, WIDTHS, strict=True))


EXPECTED = {
    ("analysis_test.py", "test_single_series", 0): [10],
    ("series_test.py", "test_change_point_detection", 0): [6],
    ("series_test.py", "test_change_point_detection", 1): [4],
    ("change_point_divisive_test.py", "", 0): [5, 8],
    ("tigerbeetle_test.py", "_get_series", 0): [15, 71],
}
"""File, function and number of the series in it -> what the test expects, of the last with changes of 5 % and more."""


def literals(file: Path, function: str) -> list[list[float]]:
    """The lists of ten numbers and more that are written in a function of a file, or outside of functions."""
    tree = ast.parse(file.read_text())
    bodies = [node for node in tree.body if getattr(node, "name", "") == function]
    lists = [node for body in bodies for node in ast.walk(body) if isinstance(node, ast.List)]
    values = []
    for node in lists:
        try:
            values.append([float(value) for value in ast.literal_eval(node)])
        except (ValueError, TypeError):
            continue
    return [one for one in values if len(one) >= 10]


def tests_of_otava(folder: Path, peer: Detect | None) -> None:
    """Print what each program finds in the series of Otava's tests."""
    print(f"\n{'':46}{'runs':>5}  {'expected':12}{'ours':36} otava")
    for (file, function, number), expected in EXPECTED.items():
        series = literals(folder / "tests" / file, function)[number]
        print(
            f"{f'{file} {function} {number + 1}':46}{len(series):>5}  {expected!s:12}{trend(series)!s:36} "
            f"{list(peer(series)) if peer else '-'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("steady", "tcpd", "otava"):
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.steady:
        steady(arguments.steady)
    peer = otava()
    if arguments.tcpd:
        tcpd(arguments.tcpd, peer)
    if arguments.otava:
        tests_of_otava(arguments.otava, peer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
