"""Measure the faults of an iteration: each occurrence, and the numbers of expressions. Pure.

Data flow: the streams of an iteration (`load_streams`), `FaultInjected` by (fault, host), clocks -> `measure_faults` ->
`FaultMeasured` of each occurrence, in order -> `fault_metrics` and `fault_bounds`, the numbers of an iteration under
`faults.<name>` (`dsl.metrics.FAULT`): means over the occurrences in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields

from proveout.coordinator.measure.faults.bin_series import BinSeries, series_by_host, together
from proveout.coordinator.measure.faults.effects import Effect, Span, Unanswered, effect
from proveout.coordinator.measure.faults.occurrences import HostClock, Occurrence, occurrences
from proveout.coordinator.measure.load_streams import Stream
from proveout.dsl.metrics import FAULT_NUMBERS
from proveout.dsl.plan.phases import level_at
from proveout.dsl.plan.stages import Phased, Search, Tool
from proveout.proto.events import Metrics
from proveout.proto.fault_events import FaultEffect, FaultMeasured, FaultOnLoad
from proveout.proto.wire import histogram
from proveout.proto.wire.results import FaultInjected, LoadResult


def measure_faults(
    streams: Sequence[Stream],
    injected: Mapping[tuple[str, str], FaultInjected],
    clocks: Mapping[str, HostClock],
) -> tuple[FaultMeasured, ...]:
    """The effect of all occurrences on all loads together, and on each load and host.

    `injected` by (fault, host); `clocks` by host. All loads together are those with shares, as in the other numbers of
    an iteration.
    """
    first = next(iter(streams[0].loads.items()))
    host, load = first
    found = occurrences(injected, clocks, clocks.get(host, HostClock()).to_coordinator(load.measure_start_ns))
    by_host = {stream.name: series_by_host(stream.loads, stream.seconds) for stream in streams}
    by_load = {name: together(parts.values()) for name, parts in by_host.items()}
    shares = [stream for stream in streams if not stream.beside]
    whole = _effects(
        together(by_load[stream.name] for stream in shares),
        found,
        [load for stream in shares for load in stream.loads.values()],
        _level(shares),
        is_open=_is_open(shares),
    )
    parts: list[list[FaultOnLoad]] = [[] for _ in found]
    for stream in streams:
        each = {"": (by_load[stream.name], list(stream.loads.values()))} if stream.name else {}
        each |= {host: (by_host[stream.name][host], [load]) for host, load in stream.loads.items()}
        for name, (series, loads) in each.items():
            for held, one in zip(
                parts, _effects(series, found, loads, _level([stream]), is_open=_is_open([stream])), strict=True
            ):
                held.append(FaultOnLoad(load=stream.name, host=name, **_in_seconds(one)))
    return tuple(
        FaultMeasured(
            fault=one.fault,
            number=one.number,
            begins_s=one.begins_ns / 1e9,
            in_place_s=_s(one.in_place_ns),
            healing_s=_s(one.healing_ns),
            healed_s=_s(one.healed_ns),
            error=one.error,
            residue=one.residue,
            staleness_s=one.staleness_s,
            loads=tuple(held),
            **_in_seconds(effect_of_all),
        )
        for one, effect_of_all, held in zip(found, whole, parts, strict=True)
    )


def _level(streams: Sequence[Stream]) -> Callable[[float], float] | None:
    """The level of loads together, by seconds of the window; None when it is the same all the time."""
    arrivals = [stream.stage.arrival for stream in streams if not isinstance(stream.stage, (Search, Tool))]
    changing = [arrival.levels for arrival in arrivals if isinstance(arrival, Phased)]
    return (lambda at_s: sum(level_at(levels, at_s) for levels in changing)) if changing else None


def _is_open(streams: Sequence[Stream]) -> bool:
    """Whether one of the loads has a rate of arrivals."""
    return any(stream.rate is not None for stream in streams)


def _effects(
    series: BinSeries | None,
    found: Sequence[Occurrence],
    loads: Sequence[LoadResult],
    level: Callable[[float], float] | None,
    *,
    is_open: bool,
) -> list[Effect]:
    """The effect of each occurrence on a load; of one that could not be put in place none is known."""
    if series is None:
        return [Effect() for _ in found]
    unanswered = Unanswered(
        missed=sum(item.counts.missed for load in loads for item in load.transactions),
        unfinished=sum(histogram.count(item.service_at_least) for load in loads for item in load.transactions),
    )
    disturbed: list[Span] = []
    effects: list[Effect] = []
    for number, one in enumerate(found):
        later = found[number + 1].begins_ns if number + 1 < len(found) else None
        held = effect(
            series, one, disturbed=disturbed, next_ns=later, unanswered=unanswered, level=level, is_open=is_open
        )
        disturbed.append((one.begins_ns, held.until_ns if held.until_ns is not None else one.begins_ns))
        effects.append(Effect() if one.error else held)
    return effects


def _in_seconds(one: Effect) -> Metrics:
    return {
        "detection_s": _s(one.detection_ns),
        "outage_s": _s(one.outage_ns),
        "outage_from_s": _s(one.outage_from_ns),
        "outage_usual_s": _s(one.outage_usual_ns),
        "outage_at_least": one.outage_at_least,
        "recovery_s": _s(one.recovery_ns),
        "recovery_at_least_s": _s(one.recovery_at_least_ns),
        "recovery_level": one.recovery_level,
        "tps_before": one.tps_before,
        "failed": one.failed,
    }


def _s(at_ns: int | None) -> float | None:
    return None if at_ns is None else at_ns / 1e9


# ---- the numbers of an iteration ---------------------------------------------------------------------------------


def on_load(found: Iterable[FaultMeasured], load: str) -> dict[str, list[FaultEffect]]:
    """The occurrences by fault: on all loads together (""), or on one of several loads, all its hosts."""
    by_fault: dict[str, list[FaultEffect]] = {}
    for one in found:
        parts: Sequence[FaultEffect] = [one] if not load else [p for p in one.loads if p.load == load and not p.host]
        by_fault.setdefault(one.fault, []).extend(parts)
    return by_fault


def number_of(one: FaultEffect, name: str) -> tuple[float | None, float | None]:
    """(a number of an occurrence, a lower bound of it where it is not known); None where there is none."""
    value = getattr(one, name, None)
    if name == "outage_s" and one.outage_at_least:
        return None, value
    bound = one.recovery_at_least_s if name == "recovery_s" and value is None else None
    return value, bound


def fault_metrics(found: Sequence[FaultMeasured], load: str = "") -> Metrics:
    """The numbers of each fault in an iteration: means over its occurrences, the largest in `max`. One that is not
    known of every occurrence is left out."""
    tree: Metrics = {}
    for fault, each in on_load(found, load).items():
        known = {name: [number_of(one, name)[0] for one in each] for name in FAULT_NUMBERS}
        whole = {name: [v for v in values if v is not None] for name, values in known.items() if None not in values}
        tree[fault] = {
            "occurrences": len(each),
            **{name: sum(values) / len(values) for name, values in whole.items() if values},
            "max": {name: max(values) for name, values in whole.items() if values},
        }
    return tree


def fault_bounds(found: Sequence[FaultMeasured], load: str = "") -> dict[str, float]:
    """Lower bounds of numbers that `fault_metrics` leaves out, by path below the load: of each occurrence the number,
    or its bound."""
    bounds: dict[str, float] = {}
    for fault, each in on_load(found, load).items():
        for name in FAULT_NUMBERS:
            pairs = [number_of(one, name) for one in each]
            least = [value if bound is None else bound for value, bound in pairs]
            values = [value for value in least if value is not None]
            if len(values) == len(pairs) and any(bound is not None for _, bound in pairs):
                bounds[f"faults.{fault}.{name}"] = sum(values) / len(values)
                bounds[f"faults.{fault}.max.{name}"] = max(values)
    return bounds


assert {each.name for each in fields(FaultMeasured)} >= set(FAULT_NUMBERS)  # noqa: S101
