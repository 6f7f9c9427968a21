"""What moves while a run runs, made from samples for people to look at: nothing here is journalled or judged.

Data flow: `CaptureSample`s of one capture on one host -> `HostMeter` -> `HostTick` with gauges as they are, cumulative
counters as rates since the sample before (`x_total` -> `x_per_s`), and CPU as a fraction of all cores.
"""

from __future__ import annotations

from proveout.proto.events import HostTick
from proveout.proto.messages import CaptureSample

_CPU = ("cpu.user_s_total", "cpu.system_s_total", "cpu.iowait_s_total", "cpu.idle_s_total", "cpu.steal_s_total")
_IDLE = ("cpu.iowait_s_total", "cpu.idle_s_total")


class HostMeter:
    """The newest readings of a capture on a host. Remembers one sample."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._at_ns = 0
        self._before: dict[str, float] | None = None

    def tick(self, sample: CaptureSample) -> HostTick | None:
        """What to show after `sample`; None for the first one, which has nothing to be compared with."""
        earlier, now = self._before, _named(sample)
        seconds = (sample.at_ns - self._at_ns) / 1e9
        self._before, self._at_ns = now, sample.at_ns
        if earlier is None or seconds <= 0.0:
            return None
        readings: dict[str, float] = {}
        for name, value in now.items():
            metric, bracket, label = name.partition("[")
            if not metric.endswith("_total"):
                readings[name] = value
            elif name in earlier:
                rate = metric.removesuffix("_total") + "_per_s" + bracket + label
                readings[rate] = (value - earlier[name]) / seconds
        readings.update(_busy(earlier, now))
        return HostTick(host=self._host, capture=sample.capture, readings=readings)


def _named(sample: CaptureSample) -> dict[str, float]:
    return {f"{r.metric}[{r.label}]" if r.label else r.metric: float(r.value) for r in sample.readings}


def _busy(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    if any(name not in before or name not in after for name in _CPU):
        return {}
    spent = {name: after[name] - before[name] for name in _CPU}
    total = sum(spent.values())
    return {"cpu.busy_fraction": 1.0 - sum(spent[name] for name in _IDLE) / total} if total > 0.0 else {}
