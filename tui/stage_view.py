"""View models of a stage and its iterations, and the log of events. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import field, record
from proveout.core.numbers import number, quantity, with_interval
from proveout.core.statistics import estimate, repeats_confidence
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import of_stage
from proveout.proto.events import (
    AgentLost,
    AgentUp,
    FaultSeen,
    IterationFinished,
    IterationId,
    IterationVoided,
    LadderCut,
    Notice,
    PopulateFinished,
    ProbeFinished,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageProgress,
    StageStarted,
    Stamped,
    TuningSeen,
    ValuesTaken,
    VerdictForeseen,
    VerdictReached,
)
from proveout.proto.events import log_text as fault_text
from proveout.proto.tuning_state import WRONG, log_text

_LEVELS: Mapping[str, Literal["info", "warning", "error"]] = {
    "ok": "info", "skipped": "info", "failed": "error", "finished": "info", "interrupted": "warning",
    "PASS": "info", "FAIL": "error", "INCONCLUSIVE": "warning",
}  # fmt: skip


@record
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


EARLIER_MAX = 12
"""Readings of a task's progress that its pace is taken from: some seconds."""

StageState: TypeAlias = Literal["waiting", "running", "ok", "failed", "skipped"]


@record
class Progress:
    """Progress of a host in its task of the stage; `total` is 0 when unknown.

    `earlier`: the last readings as (Unix s, done), this one included, oldest first.
    """

    done: float
    total: float
    unit: str
    note: str = ""
    earlier: tuple[tuple[float, float], ...] = ()

    @property
    def per_s(self) -> float | None:
        """Units per second over the last readings; None before there are two."""
        if len(self.earlier) < 2:
            return None
        (first_s, first), (last_s, last) = self.earlier[0], self.earlier[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the total at this pace; None when it is not known."""
        pace = self.per_s
        return (self.total - self.done) / pace if pace and self.total > self.done else None


def moved_on(before: Progress | None, event: StageProgress, unix_s: float) -> Progress:
    """The progress after an event."""
    earlier = before.earlier if before is not None and before.done <= event.done else ()
    return Progress(
        done=event.done,
        total=event.total,
        unit=event.unit,
        note=event.note,
        earlier=(*earlier, (unix_s, event.done))[-EARLIER_MAX:],
    )


@record
class LoadView:
    """One of several loads of a stage, as the plan has it: its threads (None: a share of those of the rung), its rate
    in 1/s (None: closed, or a share of the rung's), its share of both (None: it has its own)."""

    name: str
    workload: str
    target: str
    threads: int | None = None
    rate: float | None = None
    share: float | None = None

    def rate_of(self, rate: float | None) -> float | None:
        """Its intended rate in an iteration at `rate`; None for closed arrival."""
        if self.share is None:
            return self.rate
        return None if rate is None else rate * self.share


@record
class IterationView:
    """One iteration that has ended: throughput per second, response times in µs; None where nothing was measured.

    `p99_at_least_us`: a lower bound of the 99th percentile, where transactions had no answer. `loads`: the throughput
    of each of several loads.
    """

    id: IterationId
    rate: float | None
    valid: bool
    tps: float | None
    avg_us: float | None
    p50_us: float | None
    p99_us: float | None
    why: str = ""
    p99_at_least_us: float | None = None
    loads: Mapping[str, float | None] = field(default_factory=dict)


@record
class Throughput:
    """Mean throughput over `n` repeats with its confidence interval; no interval from one repeat."""

    mean: float
    n: int
    lower: float | None
    upper: float | None

    @property
    def cells(self) -> tuple[str, str]:
        """Mean and interval as in the tables of the report: `1,234`, `1,200 … 1,270`; "" without an interval."""
        mean, ends = with_interval({"mean": self.mean, "lower": self.lower, "upper": self.upper})
        return mean, ends.removeprefix("-")

    @property
    def half(self) -> str:
        """The distance from the mean to the farther end of the interval, as behind ±; "" where an end is missing or
        ± would reach below 0."""
        if self.lower is None or self.upper is None:
            return ""
        farther = max(self.upper - self.mean, self.mean - self.lower)
        return number(farther, farther) if farther < self.mean else ""


@record
class StageView:
    """A stage of the plan; `cell` is its cell of a matrix.

    `iterations` is their largest number; times are Unix seconds, 0 before the start. `planned`: the rungs; `phases` and
    `levels` (of a rate): those of the measure window; `accept`: the condition of a search; `captured`: the kinds of its
    captures; `reported`: its rungs' numbers in the results, by the name of the rung, once it has ended.
    """

    id: str
    kind: str
    cell: str = ""
    state: StageState = "waiting"
    iterations: int = 0
    repeats: int = 0
    repeat_min: int | None = None
    estimate_s: float = 0.0
    began_unix_s: float = 0.0
    ended_unix_s: float = 0.0
    finished: tuple[IterationView, ...] = ()
    voided: int = 0
    probes: tuple[ProbeFinished, ...] = ()
    search: SearchFinished | None = None
    cut: LadderCut | None = None
    progress: Mapping[str, Progress] = field(default_factory=dict)
    populated: tuple[PopulateFinished, ...] = ()
    planned: tuple[int, ...] = ()
    loads: tuple[LoadView, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    levels: tuple[Level, ...] = ()
    accept: str = ""
    captured: tuple[str, ...] = ()
    reported: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rungs(self) -> dict[int, tuple[IterationView, ...]]:
        """The valid iterations by rung, fewest threads first."""
        valid = [item for item in self.finished if item.valid]
        threads = sorted({item.id.rung for item in valid})
        return {rung: tuple(item for item in valid if item.id.rung == rung) for rung in threads}

    @property
    def confidence(self) -> float:
        """The level of its intervals."""
        ran = max((item.id.repeat for item in self.finished), default=0)
        return repeats_confidence(self.repeats, self.repeat_min, ran)

    @property
    def throughput(self) -> dict[int, Throughput]:
        """The throughput of each rung that has a valid iteration: that of the results, before it has ended the same
        estimate over the repeats so far."""
        return self.throughput_of("")

    def throughput_of(self, load: str) -> dict[int, Throughput]:
        """`throughput` of one of several loads; of all together for ""."""
        found: dict[int, Throughput] = {}
        for rung, items in self.rungs.items():
            if known := self.reported.get(str(rung)):
                estimates = known.get("loads", {}).get(load, {}) if load else known
                found |= {rung: _shown(estimates["tps"])} if "tps" in estimates else {}
                continue
            by_repeat = {item.id.repeat: item.loads.get(load) if load else item.tps for item in items}
            values = tuple(value for _, value in sorted(by_repeat.items()) if value is not None)
            if values:
                found[rung] = _throughput(values, self.confidence)
        return found


@functools.lru_cache(maxsize=1024)
def _throughput(values: tuple[float, ...], confidence: float) -> Throughput:
    return _shown(estimate(values, confidence=confidence))


def _shown(found: Mapping[str, Any]) -> Throughput:
    return Throughput(mean=found["mean"], n=found["n"], lower=found.get("lower"), upper=found.get("upper"))


def planned_view(data: Mapping[str, Any], captures: Mapping[str, str]) -> StageView:
    """The view of a stage that waits, of its data in the plan; `captures`: the kind of each capture of the plan."""
    repeats = data.get("repeat", 0)
    rungs = data.get("iodepths" if data.get("kind") == "tool" else "threads", ())
    rungs = tuple(rungs) if isinstance(rungs, (list, tuple)) else ()
    iterations = len(rungs) * repeats if data.get("kind") in ("ladder", "tool") else 0
    cell = of_stage(data)
    arrival = data.get("arrival") or {}
    levels = arrival.get("levels", ()) if arrival.get("of") == "rate" else ()
    return StageView(
        id=str(data.get("id")),
        kind=str(data.get("kind")),
        cell="" if cell is None else f"{cell.of} ({cell})",
        iterations=iterations,
        repeats=repeats,
        repeat_min=data.get("repeat_min"),
        planned=rungs,
        loads=tuple(_load(load) for load in data.get("loads", ()) if data.get("alone") in (None, "", load["name"])),
        phases=tuple((name, length) for name, length in data.get("windows", {}).get("phases", ())),
        levels=tuple(
            Level(**{**level, "values": tuple(level["values"]), "at_s": tuple(level["at_s"])}) for level in levels
        ),
        accept=str((data.get("accept") or {}).get("text", "")),
        captured=tuple(captures[name] for name in data.get("captures") or () if name in captures),
    )


def _load(data: Mapping[str, Any]) -> LoadView:
    share = data.get("share")
    return LoadView(
        name=data["name"],
        workload=data["workload"],
        target=data["target"],
        threads=data.get("threads"),
        rate=data.get("rate"),
        share=None if share is None else share[0] / share[1],
    )


def share_done(stage: StageView, now_unix_s: float) -> float:
    """The finished share of a running stage, 0 … 1: by time, within the bounds of its finished iterations."""
    by_time = (now_unix_s - stage.began_unix_s) / stage.estimate_s if stage.estimate_s > 0.0 else 1.0
    if not stage.iterations or stage.kind == "search":
        return min(max(by_time, 0.0), 1.0)
    # An invalid repeat is run again, or, when its retries are used up, left: then another one has followed it.
    slots = [(item.id.rung, item.id.repeat) for item in stage.finished]
    valid = {slot for slot, item in zip(slots, stage.finished, strict=True) if item.valid}
    ended = len(valid | {slot for slot in slots if slot != slots[-1]})
    return min(max(by_time, ended / stage.iterations, 0.0), (ended + 1) / stage.iterations, 1.0)


def ended_view(event: IterationFinished) -> IterationView:
    response = event.metrics.get("response", {})
    return IterationView(
        id=event.id,
        rate=event.rate,
        valid=event.valid,
        tps=event.metrics.get("tps"),
        avg_us=response.get("avg_us"),
        p50_us=response.get("p50_us"),
        p99_us=response.get("p99_us"),
        why=broken(event),
        loads={name: numbers.get("tps") for name, numbers in event.metrics.get("loads", {}).items()},
        p99_at_least_us=at_least_us(event, "response.p99_us"),
    )


def at_least_us(event: IterationFinished, path: str) -> float | None:
    """The lower bound of a response time that is not known, where it is given."""
    return None if path in event.not_given else event.at_least.get(path)
