"""Peak and knee: their bounds hold for all rungs that could have been chosen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from records import iteration

from proveout.coordinator.results.results import ladder_metrics
from proveout.proto.events import IterationFinished


def climbed(values: Sequence[Sequence[float]]) -> list[IterationFinished]:
    return [
        iteration("s", rung, n, {"tps": float(tps)})
        for rung, row in enumerate(values, 1)
        for n, tps in enumerate(row, 1)
    ]


def test_a_peak_pays_only_for_rungs_that_could_have_been_the_best() -> None:
    alone = ladder_metrics(climbed([[10.0, 10.1, 9.9], [50.0, 50.5, 49.5], [100.0, 101.0, 99.0]]))
    assert "chosen_from" not in alone["peak"]["tps"]
    assert alone["peak"]["tps"] == alone["rungs"]["3"]["tps"]
    rivals = ladder_metrics(climbed([[10.0, 10.1, 9.9], [99.0, 100.0, 98.0], [100.0, 101.0, 99.0]]))
    assert rivals["peak"]["tps"]["chosen_from"] == 2
    assert rivals["peak"]["tps"]["lower"] < rivals["rungs"]["3"]["tps"]["lower"]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_throughput_that_is_not_a_number_is_left_out() -> None:
    nan = float("nan")
    found = ladder_metrics(climbed([[nan, nan, nan], [99.0, 100.0, 98.0], [100.0, 101.0, 99.0], [nan, 1.0, 1.0]]))
    assert found["peak"]["tps"] == found["rungs"]["3"]["tps"] | {
        name: found["peak"]["tps"][name] for name in ("chosen_from", "lower", "upper")
    }
    assert found["peak"]["tps"]["chosen_from"] == 2
    assert "peak" not in ladder_metrics(climbed([[nan, nan, nan]]))


def test_a_metric_that_a_repeat_lacks_is_counted() -> None:
    items = climbed([[100.0, 101.0, 99.0]])
    items[0].metrics["sizes"] = {"total_bytes": 5.0}
    items[2].metrics["sizes"] = {"total_bytes": 7.0}
    found = ladder_metrics(items)["rungs"]["1"]["sizes"]["total_bytes"]
    assert (found["n"], found["repeats"], found["missing"]) == (2, [1, 3], 1)
    assert "missing" not in ladder_metrics(items)["rungs"]["1"]["tps"]
