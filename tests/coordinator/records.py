"""Plans, events and results of loads with a default for each field that a test does not look at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proveout.coordinator.measure.load_merge import Observations
from proveout.coordinator.results.results import StageResult, climbed
from proveout.coordinator.storage.journal import plan_data
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Ladder, Search, Stage, Tool, Windows
from proveout.dsl.plan.topology import Expression, Host, System
from proveout.proto import events as e
from proveout.proto.wire.results import CaptureSample, LoadResult, Reading

WINDOWS = Windows(ramp_up_s=1, measure_s=3, ramp_down_s=1)


def plan_of(*stages: Stage, **fields: Any) -> Plan:
    """A server `s1` with a PostgreSQL `db` that proveout starts, a client `c1`, a workload `w`."""
    default: dict[str, Any] = {
        "name": "p",
        "title": "",
        "hosts": (Host(name="s1", roles=(), address="s:1"), Host(name="c1", roles=(), address="c:1")),
        "systems": (System(name="db", engine="postgres", host="s1", provision="embedded"),),
        "workloads": (Workload(name="w", kind="hlr", parameters=(("population", 100),)),),
    }
    empty = dict.fromkeys(("parameters", "secrets", "captures", "verdicts"), ())
    return Plan(**(empty | default | {"stages": stages} | fields))


def ladder_stage(id: str = "l", **fields: Any) -> Ladder:
    default = {"workload": "w", "target": "db", "clients": ("c1",), "threads": (4,), "windows": WINDOWS}
    return Ladder(id=id, **(default | fields))


def search_stage(accept: str = "errors.fraction < 0.001", **fields: Any) -> Search:
    default = {"workload": "w", "target": "db", "clients": ("c1",), "threads": 4, "rate_from": 500.0, "rate_to": 1e6}
    return Search(
        **(default | {"id": "cap", "accept": Expression(text=accept), "probe": WINDOWS, "confirm": WINDOWS} | fields)
    )


def iteration(
    stage: str, rung: int, repeat: int, metrics: Mapping[str, Any] | None = None, *, attempt: int = 1, **fields: Any
) -> e.IterationFinished:
    """A valid iteration with these metrics, or one of which only the identity matters."""
    default = {"rate": None, "measure_s": 5.0, "valid": True, "findings": (), "transactions": ()}
    identity = e.IterationId(stage=stage, rung=rung, repeat=repeat, attempt=attempt)
    return e.IterationFinished(**({"id": identity, "metrics": dict(metrics or {})} | default | fields))


def summary(name: str, **fields: Any) -> e.TransactionSummary:
    default = {"ok": 3, "logical_failures": 0, "errors": {}, "retried": 0, "missed": 0, "tps": 1.0}
    return e.TransactionSummary(name=name, **(default | {"response": {}, "service": {}} | fields))


def run_started(plan: Plan | Mapping[str, Any], run_id: str = "r", **fields: Any) -> e.RunStarted:
    """The begin of a run of a plan, or of one with these parts of a plan's data."""
    about: dict[str, Any] = {"name": "p", "title": "", "digest": "d", "plan": plan}
    if isinstance(plan, Plan):
        about = {"name": plan.name, "title": plan.title, "digest": plan.digest}
        about["plan"] = json.loads(json.dumps(plan_data(plan)))
    return e.RunStarted(**(about | {"run_id": run_id, "epoch": 1, "version": "1", "estimate_s": 1.0} | fields))


def run_finished(status: Any = "finished", exit_code: int = 0, reason: str = "", seconds: float = 2.0) -> e.RunFinished:
    return e.RunFinished(status=status, exit_code=exit_code, reason=reason, seconds=seconds)


def begun(stage: str, kind: Any = "ladder", iterations: int = 3) -> e.StageStarted:
    return e.StageStarted(stage=stage, kind=kind, iterations=iterations, estimate_s=1.0)


def ended(stage: str, metrics: Mapping[str, Any] | None = None) -> e.StageFinished:
    return e.StageFinished(stage=stage, outcome="ok", seconds=1.0, metrics=dict(metrics or {}))


def verdict(id: str, outcome: Any = "PASS", severity: Any = "fail", **fields: Any) -> e.VerdictReached:
    default = {"title": f"Title of {id}", "check": "a.tps >= 1", "evidence": "", "iterations": ()}
    return e.VerdictReached(**(default | {"id": id, "outcome": outcome, "severity": severity} | fields))


def ladder_metrics(iterations: Iterable[e.IterationFinished], block: str = "", run: str = "") -> e.Metrics:
    """The metrics of a ladder of these iterations."""
    return climbed(StageResult(id="", started=begun(""), iterations=tuple(iterations), block=block, run=run))


def whole_ladder(stage: str, iterations: Sequence[e.IterationFinished]) -> list[e.Event]:
    """The events of a ladder."""
    return [begun(stage, iterations=len(iterations)), *iterations, ended(stage, ladder_metrics(iterations))]


def load_result(**fields: Any) -> LoadResult:
    """A load of 10 s that does not strain its client."""
    default: dict[str, Any] = {
        "transactions": (),
        "ended_in_window": 0,
        "measure_start_ns": 0,
        "measure_end_ns": 10_000_000_000,
        "client_cpu_fraction": 0.1,
        "client_cpu_s": 1.0,
        "start_skew_ns": 0,
        "seconds_produced": 10,
    }
    return LoadResult(**(default | fields))


def observations(stage: Ladder | Search | Tool, rung: int = 4, repeat: int = 1, **fields: Any) -> Observations:
    """An iteration without captures, on hosts whose clocks are that of the coordinator."""
    default: dict[str, Any] = {"rate": None, "loads": {}, "seconds": {}, "t0_ns": 0, "started_unix_s": 0.0}
    default["id"] = e.IterationId(stage=stage.id, rung=rung, repeat=repeat, attempt=1)
    return Observations(**(default | {"stage": stage, "plan": fields.get("plan") or plan_of(stage)} | fields))


def samples(numbers: Mapping[float, Mapping[str, float]], capture: str = "host") -> list[CaptureSample]:
    """The samples of a capture by their time, s: the value of each `metric` or `metric[label]`."""
    found = []
    for at_s, values in numbers.items():
        parts = ((name.removesuffix("]").partition("["), value) for name, value in values.items())
        readings = tuple(Reading(metric=metric, label=label, value=value) for (metric, _, label), value in parts)
        found.append(CaptureSample(capture=capture, at_ns=round(at_s * 1e9), readings=readings))
    return found
