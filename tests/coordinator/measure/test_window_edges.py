"""Counters over a measure window: samples at its edges against the samples of every second alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from records import samples

from proveout.coordinator.measure.captures import Recording, Window, os_metrics

ORIGIN_S = 1000.0
MEASURE_S = 3.0
MARGIN_S = 0.2
BUSY = 0.8
WINDOW = Window(start_ns=round(ORIGIN_S * 1e9), end_ns=round((ORIGIN_S + MEASURE_S) * 1e9))


def readings(at_s: float, busy_s: float) -> dict[str, float]:
    """A host with one core that has been busy for `busy_s` since the window's start, and idle else."""
    idle = 500.0 + at_s - busy_s
    return {"cpu.user_s_total": 50.0 + busy_s, "cpu.idle_s_total": idle, "ours.cpu_s_total": busy_s}


def busy_s(at_s: float, ramp_s: float, ramp_busy: float) -> float:
    """CPU since the load began: `ramp_busy` in the ramps before and after the window, `BUSY` in it."""
    ramp_up = min(max(at_s + ramp_s, 0.0), ramp_s)
    ramp_down = min(max(at_s - MEASURE_S, 0.0), ramp_s)
    return ramp_busy * (ramp_up + ramp_down) + BUSY * min(max(at_s, 0.0), MEASURE_S)


def recorded(phase_s: float, ramp_s: float, ramp_busy: float, edges: Iterable[float] = ()) -> Recording:
    """Samples of every second from `phase_s` on, at the capture's end, and at `edges`."""
    times = sorted([*np.arange(phase_s - 3.0, MEASURE_S + MARGIN_S, 1.0), MEASURE_S + MARGIN_S, *edges])
    busy = {float(at_s): busy_s(float(at_s), ramp_s, ramp_busy) for at_s in times}
    return Recording(samples({ORIGIN_S + at_s: readings(at_s, spent) for at_s, spent in busy.items()}))


@pytest.mark.parametrize(("ramp_s", "ramp_busy"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.4), (1.0, BUSY)])
def test_edge_samples_give_the_true_mean_at_any_phase(ramp_s: float, ramp_busy: float) -> None:
    """No ramps, idle ramps, ramps at half of the load, and a constant load. Edge samples are up to 5 ms late."""
    late = np.random.default_rng(71).uniform(0.0, 0.005, (20, 2))
    for phase_s, (start_late_s, end_late_s) in zip(np.linspace(0.0, 1.0, 20), late, strict=True):
        edges = (start_late_s, MEASURE_S + end_late_s)
        metrics = os_metrics(recorded(float(phase_s), ramp_s, ramp_busy, edges), WINDOW)
        assert metrics["cpu"]["busy_fraction"] == pytest.approx(BUSY, rel=0.01)
        assert metrics["ours"]["cpu_cores"] == pytest.approx(BUSY, rel=0.01)


def test_the_distance_of_an_edge_is_the_larger_one() -> None:
    assert recorded(0.5, 0.0, 0.0).edge_distance_s(WINDOW) == pytest.approx(0.5)
    assert recorded(0.5, 0.0, 0.0, (0.001, MEASURE_S + 0.004)).edge_distance_s(WINDOW) == pytest.approx(0.004)
    assert Recording([]).edge_distance_s(WINDOW) == MEASURE_S
