"""Peaks of a host's metrics in the measure window: the largest mean of a rate over a second, the largest sample of a
level. Pure.

Data flow: a `Recording` of an `os` capture and the window -> pieces of the window of `metrics.PEAK_S` seconds that
begin or end at a sample (longer ones in windows of more than five minutes) -> the rates in all pieces at once -> their
maximum, under the names of `metrics.OS_HOST`. In a window shorter than a piece the peak is the mean.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from proveout.coordinator.measure.timeseries import Recording, Values, Window
from proveout.dsl import metrics

PIECES_MAX = 600
CPU_STATES = ("user", "system", "iowait", "idle", "steal")
OURS = {"cpu_cores": "cpu_s_total", "servers_cores": "servers_cpu_s_total", "load_cores": "load_cpu_s_total"}
SUMS = {
    "disk": ("read_bytes", "write_bytes", "reads", "writes"),
    "network": ("received_bytes", "sent_bytes"),
}

Peaks = Mapping[str, Mapping[str, float | None]]


def host_peaks(recording: Recording, window: Window) -> Peaks:
    """The largest values, by group and name; None where one is not known."""
    pieces = recording.pieces(window, metrics.PEAK_S, PIECES_MAX)
    if not len(pieces[0]):
        return {}

    def rate(metric: str) -> Values | None:
        return recording.rates(metric, window, pieces)

    def total(group: str, name: str) -> Values | None:
        return recording.sum_rates(f"{group}.{name}_total", window, pieces)

    ours = {name: _largest(rate(f"ours.{metric}")) for name, metric in OURS.items()}
    stalled = {name: rate(f"pressure.{name}_us_total") for name in ("cpu", "io", "memory")}
    return {
        "cpu": _cpu({state: found for state in CPU_STATES if (found := rate(f"cpu.{state}_s_total")) is not None}),
        "ours": {**ours, "rss_bytes": _largest_sample(recording, window, "ours.rss_bytes")},
        "memory": _memory(recording, window),
        **{group: {f"{name}_per_s": _largest(total(group, name)) for name in names} for group, names in SUMS.items()},
        "pressure": {
            f"{name}_fraction": None if found is None else float(found.max()) / 1e6 for name, found in stalled.items()
        },
    }


def _largest(values: Values | None) -> float | None:
    return None if values is None else float(values.max())


def _largest_sample(recording: Recording, window: Window, metric: str) -> float | None:
    values = recording.inside(metric, window)[1]
    return max(values) if values else recording.mean(metric, window)


def _cpu(spent: Mapping[str, Values]) -> dict[str, float | None]:
    if "idle" not in spent:
        return {}
    total = np.sum(list(spent.values()), axis=0)
    known = total > 0.0
    if not bool(known.any()):
        return {}
    shares = {state: seconds[known] / total[known] for state, seconds in spent.items()}
    shares["busy"] = 1.0 - shares["idle"] - shares.get("iowait", np.zeros_like(shares["idle"]))
    return {f"{state}_fraction": float(share.max()) for state, share in shares.items()}


def _memory(recording: Recording, window: Window) -> dict[str, float | None]:
    total = recording.mean("memory.total_bytes", window)
    mean = recording.mean("memory.available_bytes", window)
    if not total or mean is None:
        return {}
    least = min([*recording.inside("memory.available_bytes", window)[1]] or [mean])
    return {"used_fraction": 1.0 - least / total, "used_bytes": total - least}
