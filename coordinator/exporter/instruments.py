"""A run's events -> the series of a `Board`: a listener of `run` that keeps nothing but the newest values.

Data flow: stamped events, in order -> `Instruments` -> `Board`. The values of the current iteration (its rung, the
newest second, host readings) are removed when it ends, so that no scrape returns an old number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proveout.coordinator.exporter import metric_families as f
from proveout.coordinator.exporter.series import Board
from proveout.proto.events import (
    AgentLine,
    AgentLost,
    AgentsTick,
    AgentUp,
    FaultSeen,
    HostTick,
    IterationFinished,
    IterationStarted,
    IterationVoided,
    LoadTick,
    Notice,
    PopulateFinished,
    ProbeFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageProgress,
    StageStarted,
    Stamped,
    TransactionsTick,
    VerdictForeseen,
    VerdictReached,
)

_OF_ITERATION = (
    f.ITERATION_THREADS,
    f.ITERATION_REPEAT,
    f.ITERATION_ATTEMPT,
    f.ITERATION_RATE,
    f.WINDOW,
    f.FAULT,
    f.LOAD_RATE,
    f.LOAD_RESPONSE,
    f.LOAD_TRANSACTION_RATE,
    f.LOAD_TRANSACTION_RESPONSE,
    *(family for family, _ in f.READINGS.values()),
)


class Instruments:
    """Call it with each stamped event. Never waits; an event that says nothing to a scraper changes nothing."""

    def __init__(self) -> None:
        self.board = Board()
        self._kinds: dict[str, str] = {}
        self._ended_stages: set[str] = set()

    def __call__(self, stamped: Stamped) -> None:
        """Take in one event."""
        match stamped.event:
            case RunStarted() as event:
                self._started(event, stamped.unix_s)
            case AgentUp() | AgentLost() | HostTick() as event:
                self._host(event)
            case StageStarted() | StageProgress() | PopulateFinished() | StageFinished() as event:
                self._stage(event)
            case ProbeFinished() | SearchFinished() as event:
                self._search(event)
            case IterationStarted() | LoadTick() as event:
                self._under_way(event)
            case TransactionsTick() as event:
                self._by_type(event)
            case FaultSeen() as event:
                in_place = event.step not in ("healed", "failed")
                self.board.put(f.FAULT, float(in_place), event.id.stage, event.fault, event.host)
            case AgentsTick(agents=agents):
                self._agents(agents)
            case IterationFinished() | IterationVoided() as event:
                self._ended(event)
            case VerdictForeseen() as event:
                self.board.put(f.FORESEEN, event.outcome, event.id, event.severity)
            case VerdictReached() as event:
                self.board.put(f.VERDICT, event.outcome, event.id, event.severity)
            case Notice(level=level):
                self.board.add(f.NOTICES, 1.0, level)

    def _started(self, event: RunStarted, unix_s: float) -> None:
        about = (event.run_id, event.name, event.title, event.digest, event.version)
        self.board.put(f.RUN, 1.0, *about)
        self.board.put(f.RUN_START, unix_s)
        self.board.put(f.RUN_ESTIMATE, event.estimate_s)
        self.board.clear(*_OF_ITERATION)
        for stage, kind in ((str(data.get("id")), str(data.get("kind"))) for data in _entries(event.plan, "stages")):
            self._kinds[stage] = kind
            if stage not in self._ended_stages:  # a run that goes on has some behind it
                self.board.put(f.STAGE, "waiting", stage, kind)
        for data in _entries(event.plan, "verdicts"):
            self.board.put(f.VERDICT, "PENDING", data.get("id"), data.get("severity"))

    def _host(self, event: AgentUp | AgentLost | HostTick) -> None:
        board, host = self.board, event.host
        match event:
            case AgentUp():
                board.put(f.HOST_UP, 1.0, host)
                board.put(f.HOST_CORES, event.cores, host)
                board.put(f.CLOCK_OFFSET, event.offset_ns / 1e9, host)
                board.put(f.CLOCK_BOUND, event.uncertainty_ns / 1e9, host)
            case AgentLost():
                board.put(f.HOST_UP, 0.0, host)
                board.clear(*(family for family, _ in f.READINGS.values()), first=host)
            case HostTick():
                for name, value in event.readings.items():
                    self._reading(event, name, value)

    def _agents(self, agents: Sequence[AgentLine]) -> None:
        for agent in agents:
            self.board.put(f.HOST_UP, float(agent.connected), agent.host)
            self.board.put(f.CLOCK_OFFSET, agent.offset_ns / 1e9, agent.host)
            self.board.put(f.CLOCK_BOUND, agent.uncertainty_ns / 1e9, agent.host)
            self.board.put(f.HOST_SILENCE, agent.silent_s, agent.host)

    def _reading(self, tick: HostTick, name: str, value: float) -> None:
        metric, _, label = name.partition("[")
        if metric not in f.READINGS:
            return
        family, factor = f.READINGS[metric]
        more = {"capture": tick.capture, "device": label[:-1], "interface": label[:-1]}
        self.board.put(family, value * factor, tick.host, *(more[name] for name in family.labels[1:]))

    def _stage(self, event: StageStarted | StageProgress | PopulateFinished | StageFinished) -> None:
        board, stage = self.board, event.stage
        match event:
            case StageStarted():
                self._kinds[stage] = event.kind
                board.put(f.STAGE, "running", stage, event.kind)
                if event.iterations:
                    board.put(f.STAGE_ITERATIONS, event.iterations, stage)
            case StageProgress():
                if event.total > 0.0:
                    board.put(f.STAGE_PROGRESS, event.done / event.total, stage, event.host)
            case PopulateFinished():
                board.clear(f.STAGE_PROGRESS, first=stage)
            case StageFinished():
                self._ended_stages.add(stage)
                board.put(f.STAGE, event.outcome, stage, self._kinds.get(stage, ""))
                board.clear(f.STAGE_PROGRESS, first=stage)

    def _search(self, event: ProbeFinished | SearchFinished) -> None:
        if isinstance(event, ProbeFinished):
            self.board.put(f.PROBE_RATE, event.rate, event.stage)
            self.board.put(f.PROBE_ACCEPTED, float(event.accepted), event.stage)
        elif event.rate is not None:
            self.board.put(f.SEARCH_RATE, event.rate, event.stage)

    def _under_way(self, event: IterationStarted | LoadTick) -> None:
        board, stage = self.board, event.id.stage
        if isinstance(event, LoadTick):
            board.put(f.WINDOW, event.window, stage)
            board.put(f.LOAD_RATE, event.tps, stage, event.id.rung)
            board.add(f.LOAD_ERRORS, event.errors, stage)
            board.clear(f.LOAD_RESPONSE, first=stage)  # a second without answers has no response time
            for statistic, value_us in (("avg", event.avg_us), ("p50", event.p50_us), ("p99", event.p99_us)):
                if value_us is not None:
                    board.put(f.LOAD_RESPONSE, value_us / 1e6, stage, event.id.rung, statistic)
            return
        board.clear(*_OF_ITERATION)
        board.put(f.STAGE, "running", stage, self._kinds.get(stage, ""))  # a resumed stage does not start again
        board.put(f.ITERATION_THREADS, event.id.rung, stage)
        board.put(f.ITERATION_REPEAT, event.id.repeat, stage)
        board.put(f.ITERATION_ATTEMPT, event.id.attempt, stage)
        if event.rate is not None:
            board.put(f.ITERATION_RATE, event.rate, stage)

    def _by_type(self, event: TransactionsTick) -> None:
        where = (event.id.stage, event.id.rung)
        for line in event.transactions:
            self.board.put(f.LOAD_TRANSACTION_RATE, line.tps, *where, line.name)
            for statistic, value_us in (("p50", line.p50_us), ("p95", line.p95_us), ("p99", line.p99_us)):
                self.board.put(f.LOAD_TRANSACTION_RESPONSE, value_us / 1e6, *where, line.name, statistic)

    def _ended(self, event: IterationFinished | IterationVoided) -> None:
        board, stage = self.board, event.id.stage
        board.clear(*_OF_ITERATION)
        if isinstance(event, IterationVoided):
            board.add(f.ITERATIONS, 1.0, stage, "void")
            return
        board.add(f.ITERATIONS, 1.0, stage, "valid" if event.valid else "invalid")
        for item in event.transactions:
            errors = sum(item.errors.values())
            for outcome, count in (("ok", item.ok), ("logical_failure", item.logical_failures), ("error", errors)):
                board.add(f.TRANSACTIONS, count, stage, item.label, outcome)
        if event.valid:
            self._measured(event)

    def _measured(self, event: IterationFinished) -> None:
        where = (event.id.stage, event.id.rung)
        tps = event.metrics.get("tps")
        if tps is not None:
            self.board.put(f.RUNG_RATE, tps, *where)
        response = event.metrics.get("response", {})
        for statistic in f.STATISTICS:
            value_us = response.get(f"{statistic}_us")
            if value_us is not None:
                self.board.put(f.RUNG_RESPONSE, value_us / 1e6, *where, statistic)


def _entries(plan: Any, section: str) -> list[Mapping[str, Any]]:
    found = plan.get(section, ()) if isinstance(plan, Mapping) else ()
    return [data for data in found if isinstance(data, Mapping)]
