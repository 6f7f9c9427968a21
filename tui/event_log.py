"""Event log of a run: one line for each event that a person should see. Pure.

Data flow: a stamped event -> `log_line` -> a `LogLine`, or nothing, for `RunView.log`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from proveout.core.data_classes import dataclass
from proveout.core.numbers import quantity
from proveout.proto.events import (
    AgentLost,
    AgentUp,
    FaultSeen,
    IterationFinished,
    IterationVoided,
    Notice,
    RunFinished,
    RunStarted,
    StageFinished,
    StageStarted,
    Stamped,
    TuningSeen,
    ValuesTaken,
    VerdictForeseen,
    VerdictReached,
)
from proveout.proto.fault_events import log_text as fault_text
from proveout.proto.tuning_state import WRONG, log_text

_LEVELS: Mapping[str, Literal["info", "warning", "error"]] = {
    "ok": "info", "skipped": "info", "failed": "error", "finished": "info", "interrupted": "warning",
    "PASS": "info", "FAIL": "error", "INCONCLUSIVE": "warning",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of the log. `unix_s` in Unix seconds; `host` is "" for the coordinator; `iteration` is "" for none."""

    unix_s: float
    level: Literal["info", "warning", "error"]
    host: str
    text: str
    iteration: str = ""


def broken(ended: IterationFinished) -> str:
    """The findings that void an iteration; "" for a valid one."""
    return "; ".join(finding.evidence for finding in ended.findings if not finding.ok and finding.voids)


TIMES = ("elapsed_s", "wait_s")
"""The times that every repeat of a stage has."""


def values_text(taken: ValuesTaken) -> str:
    """The metrics of a repeat of a stage; "" when it has only its times."""
    if taken.values.keys() <= {*TIMES}:
        return ""
    return ", ".join(f"{name} {quantity(value, name)}" for name, value in taken.values.items() if name not in TIMES)


def log_line(stamped: Stamped) -> LogLine | None:  # noqa: PLR0911, PLR0912 - one arm per kind of event
    """The line of an event; None for an event without one."""
    now = stamped.unix_s
    match stamped.event:
        case RunStarted(run_id=name, resumed=resumed):
            return LogLine(
                unix_s=now, level="info", host="", text=f"run {name} {'is resumed' if resumed else 'begins'}"
            )
        case AgentUp(host=host, cores=cores):
            return LogLine(unix_s=now, level="info", host=host, text=f"agent is up, {cores} cores")
        case AgentLost(host=host, reason=reason):
            return LogLine(unix_s=now, level="error", host=host, text=f"host {host} is lost: {reason}")
        case StageStarted(stage=stage, kind=kind):
            return LogLine(unix_s=now, level="info", host="", text=f"stage {stage} ({kind}) begins")
        case StageFinished(stage=stage, outcome=outcome):
            return LogLine(unix_s=now, level=_LEVELS[outcome], host="", text=f"stage {stage}: {outcome}")
        case ValuesTaken(stage=stage, repeat=repeat) as taken if numbers := values_text(taken):
            return LogLine(unix_s=now, level="info", host="", text=f"{stage}, repeat {repeat}: {numbers}")
        case IterationFinished(valid=False) as ended:
            text = f"{ended.id} is invalid: {broken(ended)}"
            return LogLine(unix_s=now, level="warning", host="", text=text, iteration=str(ended.id))
        case IterationVoided(id=identity, reason=reason):
            text = f"{identity} is void: {reason}"
            return LogLine(unix_s=now, level="warning", host="", text=text, iteration=str(identity))
        case VerdictForeseen(id=name, outcome=verdict):
            return LogLine(unix_s=now, level=_LEVELS[verdict], host="", text=f"verdict {name}: {verdict} so far")
        case VerdictReached(id=name, outcome=verdict):
            return LogLine(unix_s=now, level=_LEVELS[verdict], host="", text=f"verdict {name}: {verdict}")
        case TuningSeen() as tuned if text := log_text(tuned):
            wrong = any(state.outcome in WRONG for state in tuned.states)
            return LogLine(unix_s=now, level="error" if wrong else "info", host=tuned.host, text=text)
        case FaultSeen() as seen if seen.step != "healing":  # `healed` follows, or `failed`
            return LogLine(
                unix_s=now,
                level="error" if seen.step == "failed" else "info",  # it is in the plan
                host=seen.host,
                text=fault_text(seen),
                iteration=str(seen.id),
            )
        case Notice(level=level, host=host, text=text):
            return LogLine(unix_s=now, level=level, host=host, text=text)
        case RunFinished(status=status, reason=reason):
            return LogLine(unix_s=now, level=_LEVELS[status], host="", text=f"run {status}: {reason}")
    return None
