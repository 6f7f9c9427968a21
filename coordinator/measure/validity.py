"""Judge the validity of an iteration: findings with evidence, which void it, mark it or warn. Pure.

Data flow: `summarise` passes the observations (`Observed`) -> one finding per check -> `IterationFinished.findings`; an
iteration is invalid when a voiding finding does not hold. The reasons are in the ADR on validity:

- An iteration is *void*, and runs again, only for causes of the client, the measurement or the fabric: the client was
  the bottleneck, the clients began apart, a clock was uncertain, records were lost, a load process stood still. None of
  these depends on the number that is measured.
- What the system did is never void: a rerun would choose the iterations in which it did something else. Drift,
  variation and short stalls are *warnings*. Errors, an outage, a rate that was not held and another mix are *breaches*
  of the plan's limits: the iteration counts, it can fail a verdict, and no verdict passes on it. More logical failures
  than the workload expects make another load of it: its verdicts are undecided.
- A search's probe tests whether the system sustains a rate. Errors and a missed rate are its answer: `is_refusal` makes
  them a refusal. Only broken measurement voids a probe.
- A busy client voids an iteration only when it could be the bottleneck *instead of* the system: on a machine of its own
  under closed arrival, or when an open schedule was missed. On the server's machine both share the cores, and are busy
  together: a warning.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from proveout.coordinator.measure import outages, steady_state
from proveout.coordinator.measure.captures import Recording, Window, checked
from proveout.coordinator.measure.faults import undisturbed
from proveout.coordinator.measure.load_merge import Observed, in_passes, load_hosts, load_shares
from proveout.core.numbers import count_of, number, quantity, seconds, together
from proveout.core.statistics import POINTS_MIN
from proveout.dsl.plan.iteration_order import group
from proveout.dsl.plan.loads import servers, workloads
from proveout.dsl.plan.stages import Closed, Ladder, Search, Tool
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.kinds import transactions
from proveout.proto.events import RESTART, ValidityFinding
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import common

COVERAGE_FINE = 0.9
GAP_PERIODS_MAX = 4.0
EDGE_SHARE_MAX = 0.01
"""A sample within this share of the window counts as taken at its edge."""
CEILING_MAX = 0.9

RATE_HELD, ERRORS, LOAD = "rate-held", "errors", "load"
PAUSES = "pauses"
"""The finding that the pauses of the system are longer apart than half of a probe's window."""
GAPS_MIN = 20.0
"""The mean times between two arrivals from which on a time without an answer is a pause."""
REFUSALS = (RATE_HELD, ERRORS, LOAD)
"""The findings that a search counts as "the system does not sustain this rate"; an outage (`is_refusal`) too."""


def is_refusal(finding: ValidityFinding) -> bool:
    """Whether a finding means that the system does not sustain the rate of a search's probe."""
    return not finding.ok and (finding.check in REFUSALS or finding.check.startswith(outages.OUTAGE))


def judge(*loads: Observed) -> tuple[ValidityFinding, ...]:
    """All findings of an iteration, in a fixed order; a check without data has none.

    Each of several loads is judged by itself; machines and captures, which they share, once.
    """
    if len(loads) == 1 and not loads[0].stream.name:
        return _judge(loads[0])
    by_load = (
        replace(finding, load=seen.stream.name)
        for seen in loads
        for finding in _judge(replace(seen, recordings={}, silences={}), machines=False)
    )
    once = (*_captures(loads[0]), *outages.judge_silences(loads[0]), *outages.judge_machines(loads[0]))
    return (*by_load, *once)


RESTART_S = 2.0
"""Starts that are closer are one: a server may know its own only to the second."""


def _restarts(seen: Observed) -> Iterator[ValidityFinding]:
    """A server that was started again in the iteration or, where nothing of the plan does it, since the one before."""
    if isinstance(seen.stage, Tool) or (isinstance(seen.stage, Ladder) and seen.stage.faults):
        return
    within_ms = [at_ms for load in seen.loads.values() for at_ms in load.server_starts_ms]
    steps = any(one.before or one.after for one in seen.plan.stages if isinstance(one, Ladder))
    ours = any(server.provision for server in servers(seen.plan, seen.stage))
    before_ms = [seen.server_started_ms] if seen.server_started_ms and not (ours or steps) else []
    for when, starts_ms in (("during the iteration", within_ms), ("since the iteration before", before_ms + within_ms)):
        if starts_ms and max(starts_ms) - min(starts_ms) > RESTART_S * 1e3:
            first, last = (datetime.fromtimestamp(at(starts_ms) / 1e3, UTC).strftime("%H:%M:%S") for at in (min, max))
            text = f"the server was started again {when}, at {last} UTC (before that at {first})"
            yield checked(f"{RESTART}{seen.stage.target}", False, text)
            return


def _judge(seen: Observed, *, machines: bool = True) -> tuple[ValidityFinding, ...]:
    """The findings of one load, with those of captures and `machines`."""
    if not any(load.ended_in_window for load in seen.loads.values()):
        nothing = "no transaction ended in the measure window" + _first_errors(seen)
        down = outages.judge(seen)
        return (
            _broken(seen, LOAD, False, nothing),
            *_unanswered(seen),
            *down,
            *_errors(seen),
            *_start(seen),
            *_samples(seen),
            *outages.judge_pauses(seen),
        )
    if isinstance(seen.stage, Tool):
        return (
            *steady_state.judge(seen, "IOPS"),
            *_tool_hosts(seen, seen.stage),
            *_start(seen),
            *_errors(seen),
            *_samples(seen),
            *outages.judge_pauses(seen),
            *outages.judge(seen),
            *_captures(seen),
            *outages.judge_machines(seen),
        )
    return (
        *steady_state.judge(seen),
        *_present(seen),
        *_client(seen),
        *_handling(seen),
        *_client_hosts(seen),
        *_start(seen),
        *_unanswered(seen),
        *_passes(seen),
        *_errors(seen),
        *_samples(seen),
        *outages.judge_pauses(seen),
        *(() if in_passes(seen.stage) else outages.judge(seen)),
        *(_captures(seen) if machines else ()),
        *(outages.judge_machines(seen) if machines else ()),
        *_restarts(seen),
        *_conformance(seen),
        *_pauses(seen),
    )


def _broken(seen: Observed, check: str, ok: bool, evidence: str) -> ValidityFinding:
    """A finding on a limit that the system keeps or breaks: an iteration that breaks it counts, and no verdict passes
    on it. Of a search's probe it is part of the answer."""
    return ValidityFinding(check=check, ok=ok, evidence=evidence, voids=False, breach=not seen.is_probe)


# ---- the client --------------------------------------------------------------------------------------------------


def _tool_hosts(seen: Observed, stage: Tool) -> Iterator[ValidityFinding]:
    """Warnings for lost hosts, and for busy jobs: the program may be the bottleneck."""
    gone = sorted(set(stage.clients) - set(seen.loads))
    if gone:
        text = f"without {', '.join(gone)}, which was lost: the total is that of the other hosts"
        yield checked("clients", False, text)
    busy, limit = seen.read("client", "cpu_fraction") or 0.0, seen.limits.client_cpu_fraction_max
    text = f"a job used {_limited(busy, limit, ' of a core')}"
    text += ", the program may be the bottleneck: more jobs would show" if busy > limit else ""
    yield checked("client-cpu", busy <= limit, text)


def _present(seen: Observed) -> Iterator[ValidityFinding]:
    """A warning for lost clients: the others made their share of the load, so it was not as planned."""
    gone = sorted(set(load_shares(load_hosts(seen.load), seen.threads, seen.rate)) - set(seen.loads))
    if gone:
        text = f"without {', '.join(gone)}, which was lost: the other clients made its share of the load"
        yield checked("clients", False, text)


def _client(seen: Observed) -> Iterator[ValidityFinding]:
    held, late = True, False
    if seen.rate is not None:
        rate_finding, schedule_finding = _rate_held(seen, seen.rate), _schedule(seen)
        held = rate_finding.ok
        late = schedule_finding is not None and not schedule_finding.ok
        yield rate_finding
        if schedule_finding is not None:
            yield schedule_finding
    busy, limit = seen.read("client", "cpu_fraction") or 0.0, seen.limits.client_cpu_fraction_max
    bottleneck = (
        (not held or late) if seen.rate is not None else not outages.shares_machine(seen.plan, seen.stage, seen.boots)
    )
    text = f"busiest load worker used {_limited(busy, limit, ' of a core')}"
    if busy > limit:
        text += ", the client may be the bottleneck" if bottleneck else f", {_excuse(seen)}"
    yield checked("client-cpu", busy <= limit, text, voids=bottleneck and not seen.is_probe)
    yield from _ceiling(seen, bottleneck=bottleneck)


def _ceiling(seen: Observed, *, bottleneck: bool) -> Iterator[ValidityFinding]:
    """Throughput against the measured maximum of the clients with statements that do nothing.

    A transaction is at least one such statement: longer transactions reach a lower maximum, which the CPU shows first.
    """
    most, reached = seen.read("client", "ceiling_per_s"), seen.read("client", "ceiling_fraction")
    if most is None or reached is None:
        return
    ceiling = f"this client can do {number(most)}/s with this driver"
    text = f"{ceiling}; the run reached {_limited(reached, CEILING_MAX)}"
    ok = reached < CEILING_MAX
    if not ok:
        text += ", the client may be the bottleneck" if bottleneck else f", {_excuse(seen)}"
    yield checked("client-ceiling", ok, text, voids=bottleneck and not seen.is_probe)


def _handling(seen: Observed) -> Iterator[ValidityFinding]:
    """Judge the waits of answers in the client: a late answer makes the recorded times longer than those of the system.

    On a machine that client and system share, a warning: the system's own times contain the wait for its cores too.
    """
    fraction, limit = seen.read("client", "handling_fraction"), seen.limits.client_handling_fraction_max
    if fraction is None:
        return
    ok = fraction < limit
    part, most = together("fraction", fraction, limit)
    text = f"{_waits(seen)}, {part} of the service time (limit {most})"
    shared = outages.shares_machine(seen.plan, seen.stage, seen.boots)
    if not ok:
        text += ", client and system share a machine" if shared else ", the recorded times are longer than the system's"
    yield checked("client-handling", ok, text, voids=not shared and not seen.is_probe)


def _waits(seen: Observed) -> str:
    """The waits of answers or threads in words, with the method."""
    waited = seen.read("client", "runqueue_fraction")
    queue = "" if waited is None else f"a thread waited for a CPU for {quantity(waited, 'fraction')} of the window"
    p50, p99 = seen.read("client", "handling", "p50_us"), seen.read("client", "handling", "p99_us")
    if p50 is None or p99 is None:
        spent = quantity(seen.read("client", "runqueue_us") or 0.0, "runqueue_us")
        return f"load threads waited {spent} per transaction for a CPU, waits for the GIL are not measured ({queue})"
    whole = histogram.merge_handling([part for load in seen.loads.values() for part in load.handling])
    exact = whole is not None and whole.stamped > 0
    how = "receive time stamps of the kernel" if exact else "estimated from epoll's return and the wait for a CPU"
    typical, most = together("p50_us", p50, p99)
    text = f"answers waited {typical} (p50), {most} (p99) for the client ({how})"
    return f"{text}; {queue}" if queue else text


def _client_hosts(seen: Observed) -> Iterator[ValidityFinding]:
    """A finding for each client whose machine has all cores busy, where the target is on another machine."""
    limit = seen.limits.client_cpu_fraction_max
    if outages.shares_machine(seen.plan, seen.stage, seen.boots):
        return
    for host in seen.loads:
        busy = seen.read("hosts", host, "cpu", "busy_fraction")
        if busy is None:
            continue
        text = f"all cores of {host} {_limited(busy, limit, ' busy')}"
        held = seen.rate is not None and _rate_held(seen, seen.rate).ok
        if busy > limit:
            text += ", the rate was held all the same" if held else ", the client may be the bottleneck"
        yield checked(f"client-host:{host}", busy <= limit, text, voids=not held and not seen.is_probe)


def _excuse(seen: Observed) -> str:
    if seen.rate is not None:
        return "the schedule was held all the same"
    return "client and system share a machine: the throughput is that of both together"


def _rate_held(seen: Observed, rate: float) -> ValidityFinding:
    """Achieved over intended, of the arrivals that were due in the window: those of a backlog from before it do not
    count. The noise of counting a Poisson schedule (3 sigma) is allowed for."""
    measure_s = seen.read("measure_s") or 0.0
    stage = seen.load
    ended = sum(item.ok + item.logical_failures for item in seen.stream.summaries)
    if isinstance(stage, Ladder) and stage.versus_s:
        measure_s /= len(whole.loads) if isinstance(whole := seen.plan.stage(stage.id), Ladder) else 1
    if seen.disturbed:
        quiet = undisturbed(seen)
        measure_s, ended, rate = quiet.seconds, quiet.ended, rate * quiet.level
        if not quiet.seconds:
            return _broken(seen, RATE_HELD, True, "not judged: no second of the window is without a fault")
    arrival = stage if isinstance(stage, Search) else stage.arrival
    poisson = not isinstance(arrival, Closed) and arrival.distribution == "poisson"
    counting = 3.0 / math.sqrt(rate * measure_s) if poisson and rate * measure_s > 0.0 else 0.0
    # One transaction may fall to either side of each of the window's ends, per schedule.
    edge = 2.0 / (rate * measure_s) if rate * measure_s > 0.0 else 0.0
    per_s = ended / measure_s if measure_s > 0.0 else 0.0
    achieved = per_s / rate if rate > 0.0 else 0.0
    least = seen.limits.achieved_fraction_min
    reached, intended = together("rate", per_s, rate)
    text = f"achieved {reached} of {intended} due, {_limited(achieved, least)}{seen.of_part}"
    return _broken(seen, RATE_HELD, achieved + counting + edge >= least, text)


def _limited(share: float, limit: float, of: str = "") -> str:
    """A share beside its limit: `86.2 % of a core (limit 85 %)`."""
    text, most = together("fraction", share, limit)
    return f"{text}{of} (limit {most})"


def _schedule(seen: Observed) -> ValidityFinding | None:
    """Lateness of starts. A warning: response time counts from the intended start, so lateness is in the numbers, not
    lost."""
    late_us = seen.read("schedule", "p99_us")
    if late_us is None:
        return None
    if seen.disturbed:
        return checked("schedule", True, "not judged: an outage by a fault delays starts, in its numbers")
    limit_ms = seen.limits.schedule_p99_ms_max
    late, limit = together("p99_us", late_us, limit_ms * 1e3)
    text = f"p99 of start lateness {late} (limit {limit}), response times include it"
    return checked("schedule", late_us / 1e3 <= limit_ms, text)


def _pauses(seen: Observed) -> Iterator[ValidityFinding]:
    """A warning for pauses of the system that a probe's window does not span: seen once, or further apart than half of
    the window. Another window of that length may have none, or two."""
    window_s = seen.read("measure_s") or 0.0
    if not seen.is_probe or not seen.rate or window_s <= 0.0:
        return
    stalls = [stall for stall in common(load.stalls for load in seen.loads.values()) if stall.start_ns >= 0]
    long = [stall for stall in stalls if (stall.end_ns - stall.start_ns) / 1e9 > GAPS_MIN / seen.rate]
    if not long or all(stall.start_ns >= window_s * 1e9 for stall in long):
        return
    starts = [stall.start_ns / 1e9 for stall in long]
    apart = max((later - earlier for earlier, later in itertools.pairwise(starts)), default=window_s)
    longest_s = max((stall.end_ns - stall.start_ns) / 1e9 for stall in long)
    longest, window = quantity(longest_s, "longest_s"), quantity(window_s, "window_s")
    text = f"{count_of(len(long), 'pause')} of up to {longest} in a window of {window}"
    if apart > window_s / 2.0:
        once = "once" if len(long) == 1 else f"{quantity(apart, 'apart_s')} apart"
        text += f", {once}: measure for at least four times their distance"
    yield checked(PAUSES, apart <= window_s / 2.0, text)


def _start(seen: Observed) -> Iterator[ValidityFinding]:
    """Lateness of the load's start after T0, with the bound of the clock estimate, and of the clients against each
    other."""
    late_ms = max(load.start_skew_ns for load in seen.loads.values()) / 1e6
    uncertain_ms = max((seen.clocks.get(host, (0, 0))[1] for host in seen.loads), default=0) / 1e6
    starts = [load.measure_start_ns - seen.clocks.get(host, (0, 0))[0] for host, load in seen.loads.items()]
    apart_ms = (max(starts) - min(starts)) / 1e6
    worst, limit = max(late_ms, apart_ms) + uncertain_ms, seen.limits.start_skew_ms_max
    late, apart, uncertain, most = together("start_skew_ms", late_ms, apart_ms, uncertain_ms, limit)
    text = f"load began {late} after T0, clients {apart} apart, clock ± {uncertain} (limit {most})"
    yield checked("start-skew", worst <= limit, text, voids=True)
    early = min(starts) < seen.t0_ns - uncertain_ms * 1e6
    # the largest change of a client's offset from the start to after the window, and the largest bound then, ms
    ends = [(seen.clocks.get(host, end), end) for host, end in seen.clock_ends.items() if host in seen.loads]
    moved_ns = max((abs(end[0] - start[0]) for start, end in ends), default=0)
    moved_ms, end_ms = moved_ns / 1e6, max((end[1] for _, end in ends), default=0) / 1e6
    moved, at_end = together("start_skew_ms", moved_ms, end_ms)
    text = f"offsets of the clients' clocks are known to ± {uncertain} at the start (limit {most})"
    if seen.clock_ends:
        text += f", ± {at_end} at the end, and moved by up to {moved} in between"
    if early:
        text = "a measure window began before T0 on the coordinator's clock: the clocks differ"
    yield checked("clock", not early and max(uncertain_ms, end_ms) <= limit, text, voids=True)


# ---- what was counted --------------------------------------------------------------------------------------------


def _unanswered(seen: Observed) -> Iterator[ValidityFinding]:
    """Transactions due in the window without an answer, and terminals that hung. Warnings: the system did it."""
    missed = seen.read("missed", "count") or 0.0
    if missed:
        fraction = seen.read("missed", "fraction") or 0.0
        part, rest, _ = together("fraction", fraction, 1.0 - fraction, 1.0)  # all different: the rest is below 100 %
        text = f"{missed:,.0f} transactions ({part} of those due) never began: percentiles above {rest} are not given"
        yield checked("missed", False, text)
    unfinished = seen.read("unfinished", "count") or 0.0
    if unfinished:
        oldest_s = (seen.read("unfinished", "age_max_us") or 0.0) / 1e6
        text = f"{unfinished:,.0f} transactions had no answer within 1 s after the load; the oldest waited for "
        text += f"{quantity(oldest_s, 'oldest_s')}: percentiles among them are lower bounds"
        yield checked("unfinished", False, text)
    yield from _hangs(seen)


def _hangs(seen: Observed) -> Iterator[ValidityFinding]:
    """Terminals that ended no transaction in the window: of each host the one that waited longest."""
    for host, load in seen.loads.items():
        if not load.hangs:
            continue
        hang = load.hangs[0]
        waited = f"{hang.transaction or 'a connection'} for {quantity(hang.waited_ns / 1e9, 'waited_s')}"
        until = "until its answer" if hang.answered else "until the end of the load, without an answer"
        text = (
            f"{load.hung} of the terminals of {host} ended no transaction in the measure window; one of load worker "
            f"{hang.worker} waited for {waited}, {until}"
        )
        yield checked(f"hung:{host}", False, text)


def _passes(seen: Observed) -> Iterator[ValidityFinding]:
    """Whether every terminal ran its passes to completion."""
    passes = in_passes(seen.stage)
    if not passes:
        return
    planned = passes * seen.threads * len(transactions(seen.plan.workload(seen.load.workload)))
    ended = round(seen.read("ended", "count") or 0.0)
    text = f"{ended:,} of {planned:,} transactions of {passes} pass{'es' if passes > 1 else ''} ended"
    if ended < planned:
        text += f" within {seconds(seen.stage.windows.measure_s)}" if isinstance(seen.stage, Ladder) else ""
        text += ": give a longer `within`, or look at the errors"
    yield _broken(seen, "passes", ended >= planned, text)


def _errors(seen: Observed) -> Iterator[ValidityFinding]:
    fraction, limit = seen.read("errors", "fraction"), seen.limits.errors_fraction_max
    if fraction is None:
        return
    count = seen.read("errors", "count") or 0.0
    if seen.disturbed:
        quiet = undisturbed(seen)
        fraction, count = quiet.error_fraction, quiet.errors
    text = f"{number(count)} technical errors, {_limited(fraction, limit)}{seen.of_part}"
    yield _broken(seen, ERRORS, fraction <= limit, text + (_first_errors(seen) if count else ""))


def _first_errors(seen: Observed) -> str:
    texts = [text for load in seen.loads.values() for text in load.first_errors]
    return f", the first: {texts[0]}" if texts else ""


def _samples(seen: Observed) -> Iterator[ValidityFinding]:
    """Transactions whose record was lost void; seconds lost on the way warn: the window's totals come whole in the
    result."""
    lost = sum(load.samples_lost for load in seen.loads.values())
    text = f"{lost or 'no'} sample{'s' if lost else ''} lost at the clients"
    yield checked("samples", lost == 0, text, voids=True)
    missing = sum(max(load.seconds_produced - len(seen.seconds.get(host, ())), 0) for host, load in seen.loads.items())
    if missing:
        yield checked("seconds", False, f"{missing} per-second records did not arrive, totals are whole")


def _captures(seen: Observed) -> Iterator[ValidityFinding]:
    """Do the captures cover the measure window? A warning: a number that is missing makes its verdicts inconclusive by
    itself."""
    for (name, host), recording in seen.recordings.items():
        window = seen.on(host)
        covered, gap_s = recording.coverage(window), recording.longest_gap_s(window)
        lost = seen.lost.get((name, host), 0)
        fine = covered >= COVERAGE_FINE and gap_s <= GAP_PERIODS_MAX * seen.plan.capture(name).every_s and lost == 0
        share, _ = together("fraction", covered, 1.0)
        gap = quantity(gap_s, "gap_s")
        text = f"{share} of the window covered, longest gap {gap}, {lost} samples lost"
        if seen.plan.capture(name).kind == "os":
            text += _edges(recording, window)
        yield checked(f"capture:{name}@{host}", fine, text)
        readings = len(recording.inside("lag.seconds", window)[0])
        if seen.plan.capture(name).kind == "lag" and readings < POINTS_MIN:
            text = f"the window has {readings} readings of the lag; the bounds of its slope need {POINTS_MIN}"
            text += ": measure for longer, or lower `every` of the capture"
            yield checked(f"slope:{name}@{host}", False, text)


def _edges(recording: Recording, window: Window) -> str:
    """Whether the counters were read at the window's edges. Between samples they are interpolated, which spreads a load
    that begins or ends there over the time between two samples."""
    apart_s = recording.edge_distance_s(window)
    if apart_s <= EDGE_SHARE_MAX * window.seconds:
        return ", sampled at its edges"
    return f", no sample within {quantity(apart_s, 'gap_s')} of an edge: interpolated there"


def _conformance(seen: Observed) -> Iterator[ValidityFinding]:
    """Was the load the workload? Loads of other workloads before it may have aged the data, so their expectations count
    too."""
    counted = [
        Seen(
            name=item.name,
            ok=item.ok,
            logical_failures=item.logical_failures,
            others=sum(item.errors.values()) + item.missed + item.unfinished,
        )
        for item in seen.stream.summaries
    ]
    before = itertools.takewhile(lambda stage: stage.id != seen.stage.id, seen.plan.stages)
    whole = seen.plan.stage(seen.stage.id) if seen.stream.name else seen.stage
    turns = [*group(seen.plan, whole)] if isinstance(whole, Ladder) else [whole]
    stages = [stage for stage in (*before, *turns) if isinstance(stage, Ladder | Search)]
    names = {name for stage in stages for name in workloads(stage)} - {seen.load.workload}
    earlier = [workload for workload in seen.plan.workloads if workload.name in names]
    for finding in conform(seen.plan.workload(seen.load.workload), counted, earlier):
        # of a probe too: no rate is an answer to the question of the plan
        yield ValidityFinding(check=finding.check, ok=finding.ok, evidence=finding.evidence, voids=False, breach=True)
