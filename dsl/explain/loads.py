"""The loads of a stage in words, for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from proveout.core.numbers import percent, threads_by_rung
from proveout.core.numbers import threads as counted
from proveout.core.units import format_duration
from proveout.dsl.explain.host_parts import length
from proveout.dsl.plan.loads import Part, parts, workloads
from proveout.dsl.plan.phases import Level, edges_s, mean_level, recovers
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Arrival, Closed, Ladder, Open, Phased, Search, Sessions, Think
from proveout.dsl.plan.values import Expression
from proveout.dsl.workloads import pipelines


def title(stage: Ladder | Search) -> str:
    """Each load with its target: `hlr on pg1 + hlr on pg2`."""
    return " + ".join(f"{part.stage.workload} on {part.stage.target}" for part in parts(stage))


def details(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the connections, whether commits are tracked, and a line for each of several loads."""
    if not stage.loads:
        return (*_session(stage), *_commits(stage))
    why: tuple[str, ...] = ()
    if isinstance(stage, Ladder) and stage.alone:
        why = (f"load {stage.alone} alone, for its interference with the others of {stage.interleaved_with}",)
    return why + tuple(line for part in parts(stage) for line in _lines(stage, part))


def pipelined(plan: Plan, stage: Ladder | Search) -> Iterator[str]:
    """A line for each workload whose statements travel together."""
    for name in workloads(stage):
        if pipelines.asked_for(plan.workload(name)):
            yield f"{name}: {pipelines.TEXT} (pipeline)"


def phase_lines(stage: Ladder) -> Iterator[str]:
    """A line for each phase, and the arrivals of all of them."""
    arrival, phases = stage.arrival, edges_s(stage.windows.phases)
    if not isinstance(arrival, Phased) or not phases:
        return
    for number, ((name, begin, end), level) in enumerate(zip(phases, arrival.levels, strict=True)):
        count = f", {counted_of(level.area, 'arrival')}" if arrival.of == "rate" else ""
        line = f"phase {name}: {length(begin)} to {length(end)}, {_level(level, arrival.of)}{count}"
        reason = recovers(arrival.levels, number)
        yield line if reason else f"{line}; its recovery within {percent(stage.recovered_within)} is measured"
    if arrival.of == "rate":
        total = counted_of(sum(level.area for level in arrival.levels), "arrival")
        yield f"{total} in {counted_of(len(phases), 'phase')}, {rate_text(mean_level(arrival.levels))} on average"


def _level(level: Level, of: Literal["rate", "threads"]) -> str:
    def text(value: float) -> str:
        return rate_text(value) if of == "rate" else f"{value:,.6g}"

    unit = "" if of == "rate" else " active threads"
    if level.amplitude:
        swing = f"{text(level.first)} ± {text(level.amplitude)}{unit}"
        return f"{swing} in a sine of {format_duration(level.period_s)}"
    if level.is_constant:
        return f"{text(level.first)}{unit}"
    if len(level.values) == 2:
        return f"from {text(level.first)} to {text(level.values[-1])}{unit}"
    low, high = (text(bound) for bound in (level.lowest, level.highest))
    between = "in steps" if level.steps else "in straight lines"
    return f"{len(level.values):,} rows from {low} to {high}{unit}, {between}"


def counted_of(number: float, what: str) -> str:
    """`1 arrival`, `2,000 arrivals`."""
    return f"{number:,.6g} {what}" if number == 1.0 else f"{number:,.0f} {what}s"


def _lines(stage: Ladder | Search, part: Part) -> Iterator[str]:
    rungs = stage.threads if isinstance(stage, Ladder) else (stage.threads,)
    if part.own is not None:
        how = f"beside them, {counted(part.threads(rungs[0]))} at every rung"
    else:
        share = "all" if part.share == 1 else str(part.share)
        how = f"{share} of them: {threads_by_rung([part.threads(rung) for rung in rungs])}"
    arrival = arrival_text(part.arrival) if part.own or isinstance(stage, Ladder) else "its share of the rate"
    yield f"load {part.name}: {part.stage.workload} on {part.stage.target} from {', '.join(part.stage.clients)}"
    yield f"  {how}; {arrival}"
    yield from (f"  {line}" for line in (*_session(part.stage), *_commits(part.stage)))


def _session(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the load's connections."""
    settings = ", ".join(f"{name} = {value}" for name, value in stage.session)
    own = ", ".join(sessions_text(stage.sessions))
    return (*((f"connections with {settings}",) if settings else ()), *((own,) if own else ()))


def sessions_text(sessions: Sessions) -> Iterator[str]:
    """The rules for connections, in words, where they are not the default."""
    if sessions.pool:
        yield f"a pool of {sessions.pool} connections in total"
    if sessions.connect_every == 1:
        yield "a new connection for each transaction"
    elif sessions.connect_every:
        yield f"a new connection after {sessions.connect_every} transactions"
    if sessions.access:
        which = {"any": "any", "read_write": "the writable", "read_only": "a read-only"}[sessions.access]
        yield f"to {which} member"
    if sessions.on_disconnect != "reconnect":
        what = {"retry": "runs its transaction again", "fail": "ends the load"}[sessions.on_disconnect]
        yield f"a lost connection {what}"


def _commits(stage: Ladder | Search) -> tuple[str, ...]:
    """The statement that tracking adds."""
    text = "commits are tracked: one more statement, an UPDATE, in each transaction that changes rows"
    if stage.checked:
        text += "; one that had committed without an answer is not run again"
    return (text,) if stage.tracked else ()


def arrival_text(arrival: Arrival) -> str:
    """An arrival in words."""
    match arrival:
        case Closed(think=Think(mean_s=mean_s, distribution=distribution)):
            return f"closed arrival with {distribution} think times of {format_duration(mean_s)}"
        case Closed():
            return "closed arrival"
        case Phased(of="threads", think=think):
            return f"{arrival_text(Closed(think=think))} of the threads that are active"
        case Phased(levels=(level,), distribution=distribution):
            ends = f"from {rate_text(level.first)} to {rate_text(level.last)}"
            return f"{distribution} arrival {ends} over the measure window"
        case Phased(distribution=distribution):
            return f"{distribution} arrival in phases"
        case Open(rate=rate, distribution=distribution):
            return f"{distribution} arrival at {rate_text(rate)}"


def rate_text(rate: float | Expression) -> str:
    """A rate, or the expression that it waits for."""
    if not isinstance(rate, Expression):
        return f"{rate:,.6g}/s"
    known = f", known when {' and '.join(rate.needs)} has ended" if rate.needs else ""
    return f"${{{rate.text}}}{known}"
