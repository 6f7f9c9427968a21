"""The loads of a stage in words, for `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from proveout.core.numbers import threads as counted
from proveout.core.numbers import threads_by_rung
from proveout.core.units import format_duration
from proveout.dsl.plan.loads import Part, parts
from proveout.dsl.plan.stages import Arrival, Closed, Ladder, Open, Ramp, Search, Sessions, Think
from proveout.dsl.plan.values import Expression


def title(stage: Ladder | Search) -> str:
    """Each load with its target: `hlr on pg1 + hlr on pg2`."""
    return " + ".join(f"{part.stage.workload} on {part.stage.target}" for part in parts(stage))


def details(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the connections, and a line for each of several loads."""
    if not stage.loads:
        return _session(stage)
    why: tuple[str, ...] = ()
    if isinstance(stage, Ladder) and stage.alone:
        why = (f"load {stage.alone} alone, for its interference with the others of {stage.interleaved_with}",)
    return why + tuple(line for part in parts(stage) for line in _lines(stage, part))


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
    yield from (f"  {line}" for line in _session(part.stage))


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
    if not sessions.prepared:
        yield "statements not prepared"
    if sessions.on_disconnect != "reconnect":
        what = {"retry": "runs its transaction again", "fail": "ends the load"}[sessions.on_disconnect]
        yield f"a lost connection {what}"


def arrival_text(arrival: Arrival) -> str:
    """An arrival in words."""
    match arrival:
        case Closed(think=Think(mean_s=mean_s, distribution=distribution)):
            return f"closed arrival with {distribution} think times of {format_duration(mean_s)}"
        case Closed():
            return "closed arrival"
        case Ramp(rate_from=low, rate_to=high, distribution=distribution):
            return f"{distribution} arrival from {rate_text(low)} to {rate_text(high)} over the measure window"
        case Open(rate=rate, distribution=distribution):
            return f"{distribution} arrival at {rate_text(rate)}"


def rate_text(rate: float | Expression) -> str:
    """A rate, or the expression that it waits for."""
    if not isinstance(rate, Expression):
        return f"{rate:,.6g}/s"
    known = f", known when {' and '.join(rate.needs)} has ended" if rate.needs else ""
    return f"${{{rate.text}}}{known}"
