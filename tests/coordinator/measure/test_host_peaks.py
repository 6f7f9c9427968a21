"""Peaks of a host's metrics: the busiest second of a window whose load is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from records import samples

from proveout.coordinator.measure.captures import PIECES_MAX, Recording, Window, os_metrics


def recording(readings: Callable[[float], Mapping[str, float]], *, until_s: float, every_s: float = 1.0) -> Recording:
    """Samples from 2 s before the window to 2 s after it."""
    times = np.arange(-2.0, until_s + 2.0 + every_s / 2, every_s)
    return Recording(samples({10.0 + float(at): readings(float(at)) for at in times}))


def window(seconds: float) -> Window:
    return Window(start_ns=10 * 10**9, end_ns=round((10.0 + seconds) * 1e9))


def busy_s(at_s: float) -> float:
    """CPU of a core that is 20 % busy, 90 % from second 4 to second 6, and 100 % outside of a window of 10 s."""
    points = [(-2.0, 0.0), (0.0, 2.0), (4.0, 2.8), (6.0, 4.6), (10.0, 5.4), (12.0, 7.4)]
    return float(np.interp(at_s, *zip(*points, strict=True)))


def cpu(at_s: float) -> dict[str, float]:
    return {"cpu.user_s_total": busy_s(at_s), "cpu.idle_s_total": at_s + 2.0 - busy_s(at_s)}


@pytest.mark.parametrize("every_s", [0.5, 1.0, 2.0])
def test_the_peak_is_that_of_the_busiest_second_inside_the_window(every_s: float) -> None:
    found = os_metrics(recording(cpu, until_s=10.0, every_s=every_s), window(10.0))["cpu"]
    assert found["busy_fraction"] == pytest.approx(0.34)
    assert found["peak"]["busy_fraction"] == pytest.approx(0.9)
    assert found["peak"]["idle_fraction"] == pytest.approx(0.8)


def test_a_window_shorter_than_a_second_has_its_mean_as_peak() -> None:
    found = os_metrics(recording(cpu, until_s=10.0, every_s=0.25), window(0.5))["cpu"]
    assert found["peak"]["busy_fraction"] == pytest.approx(found["busy_fraction"]) == pytest.approx(0.2)


def test_rates_of_all_devices_together_and_levels_by_sample() -> None:
    def readings(at_s: float) -> dict[str, float]:
        used = 30.0 if 3.0 <= at_s <= 4.0 else 10.0
        return {"ours.rss_bytes": used, "memory.total_bytes": 100.0, "memory.available_bytes": 100.0 - used}

    levels = os_metrics(recording(readings, until_s=10.0), window(10.0))
    assert levels["ours"]["peak"] == {"rss_bytes": 30.0}
    assert levels["memory"]["peak"] == {"used_fraction": pytest.approx(0.3), "used_bytes": 30.0}
    reads = {
        10 + at: {"disk.reads_total[sda]": 10 * at, "disk.reads_total[sdb]": 100 * max(at - 5, 0)} for at in range(11)
    }
    assert os_metrics(Recording(samples(reads)), window(10.0))["disk"]["peak"]["reads_per_s"] == pytest.approx(110.0)


def test_a_long_window_takes_a_bounded_number_of_pieces() -> None:
    found = recording(cpu, until_s=3600.0)
    starts, ends = found.pieces(window(3600.0), 1.0, PIECES_MAX)
    assert len(starts) <= PIECES_MAX
    assert np.all(starts[1:] <= ends[:-1])  # no second is left out
    assert os_metrics(found, window(3600.0))["cpu"]["peak"]["busy_fraction"] >= 0.3


def test_a_window_shorter_than_a_piece_is_one_piece_at_any_length() -> None:
    """`end - (end - start)` is not always `start`: a rounding error left out the only piece of some windows."""
    found = recording(cpu, until_s=1.0, every_s=0.2)
    for start_ms in range(200, 1900, 7):
        end_ms = start_ms + 1 + start_ms * 7 % 990
        part = Window(start_ns=(8000 + start_ms) * 10**6, end_ns=(8000 + end_ms) * 10**6)
        starts, ends = found.pieces(part, 1.0, PIECES_MAX)
        assert len(starts) >= 1, part
        assert np.allclose(starts, start_ms / 1e3)
        assert np.allclose(ends, end_ms / 1e3)
