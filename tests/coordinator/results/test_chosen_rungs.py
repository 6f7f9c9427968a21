"""Peak and knee: their bounds hold for all rungs that could have been chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from proveout.coordinator.results.results import ladder_metrics
from proveout.proto.events import IterationFinished, IterationId

TRIALS = 800


def iteration(rung: int, repeat: int, tps: float) -> IterationFinished:
    return IterationFinished(
        id=IterationId(stage="s", rung=rung, repeat=repeat, attempt=1),
        rate=None,
        measure_s=1.0,
        valid=True,
        findings=(),
        metrics={"tps": tps},
        transactions=(),
    )


def climbed(values: Sequence[Sequence[float]]) -> list[IterationFinished]:
    return [
        iteration(rung, repeat, float(tps)) for rung, row in enumerate(values, 1) for repeat, tps in enumerate(row, 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_the_lower_bound_of_the_peak_is_rarely_above_the_truth(repeats: int) -> None:
    """7 equal rungs: 2.5 % stated, 1.8 to 2.4 % real; the bound is 4 standard deviations above. Plain intervals: 11 to
    16 %."""
    samples = 100.0 * (1.0 + 0.03 * np.random.default_rng(21).standard_normal((TRIALS, 7, repeats)))
    peaks = [ladder_metrics(climbed(values))["peak"]["tps"] for values in samples]
    assert np.mean([peak["lower"] > 100.0 for peak in peaks]) <= 0.025 + 4.0 * (0.025 * 0.975 / TRIALS) ** 0.5
    assert np.mean([peak["lower"] <= 100.0 <= peak["upper"] for peak in peaks]) >= 0.95


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
