"""The summary of one run: labels, digests, and the estimates of each rung of each stage. Pure.

Data flow: `RunResults` -> `summarise` -> `RunSummary`, which is plain data (`core.json_data`) and is cached as JSON by
`run_folder` -> the table of runs (`run_table`) and the history of metrics (`metric_history`).

`study` and `environment` are digests that say which runs can be compared without a look at their journals: equal
digests, equal plans and facts. `study` is taken over the parts of the plan that numbers depend on, without the number
of repeats, which changes the width of an interval and not its centre.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.compare.comparability import MEASURED
from proveout.coordinator.results.fingerprint import fingerprints
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.coordinator.results.schemas import schemas
from proveout.coordinator.storage.event_codec import JournalFault, recorded_plan
from proveout.core.data_classes import dataclass, field
from proveout.core.json_data import digest
from proveout.dsl.plan.plan import Plan, to_data

REPEATS = ("repeat", "repeat_min")
"""Keys of a stage that do not change what its numbers are."""
STATISTICS = ("mean", "lower", "upper", "median", "cv", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class RungSummary:
    """One rung of one stage: `numbers` has its estimates by their dotted names, with their `values`; `threads` is None
    for a stage without rungs (a search, a populate …), whose numbers have a `mean` alone.

    `repeats` counts the valid ones, `excluded` those without a valid iteration.
    """

    stage: str
    kind: str
    workload: str
    target: str
    threads: int | None
    rate: float | None
    repeats: int
    excluded: int
    numbers: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run. `started_unix_s` is 0 when it has not begun; `status` is `unfinished` while it runs or was killed."""

    run: str
    started_unix_s: float
    status: str
    exit_code: int | None
    name: str
    title: str
    version: str
    digest: str
    study: str
    environment: str
    labels: dict[str, str] = field(default_factory=dict)
    rungs: tuple[RungSummary, ...] = ()


def summarise(results: RunResults, name: str) -> RunSummary:
    """The summary of the run in the directory `name`."""
    run, ended = results.run, results.ended
    return RunSummary(
        run=run.run_id if run else name,
        started_unix_s=results.started_unix_s,
        status=ended.status if ended else "unfinished",
        exit_code=ended.exit_code if ended else None,
        name=run.name if run else "",
        title=run.title if run else "",
        version=run.version if run else "",
        digest=run.digest if run else "",
        study=_recorded_study(results),
        environment=environment_digest(results),
        labels=dict(run.labels) if run else {},
        rungs=tuple(rung for stage in results.stages.values() for rung in _rungs(results, stage)),
    )


def study_digest(plan: Plan) -> str:
    """`sha256:<hex>` of the parts of a plan that numbers depend on, without repeats."""
    data = to_data(plan)
    measured = {part: data[part] for part in MEASURED}
    measured["stages"] = [{key: stage[key] for key in stage if key not in REPEATS} for stage in data["stages"]]
    return digest(measured)


def _recorded_study(results: RunResults) -> str:
    """The study digest of the recorded plan; "" when this version cannot read the plan."""
    if results.run is None:
        return ""
    try:
        return study_digest(recorded_plan(results.run.plan))
    except JournalFault:
        return ""


def environment_digest(results: RunResults) -> str:
    """`sha256:<hex>` of the fingerprints of all hosts and systems, and of the schemas and settings at the stages;
    "" when none was taken."""
    found: list[tuple[str, ...]] = [
        (one.host or one.equipment, one.system, one.digest) for one in fingerprints(results)
    ]
    found += [(one.stage, one.system, digest(dict(one.facts))) for one in schemas(results)]
    return digest(found) if found else ""


# ---- rungs -------------------------------------------------------------------------------------------------------


def _rungs(results: RunResults, stage: StageResult) -> Iterator[RungSummary]:
    if stage.climbs:
        yield from (_rung(results, stage, rung) for rung in stage.rungs if rung.tree)
    elif stage.finished is not None and stage.finished.metrics:
        numbers = dict(flat(stage.finished.metrics))
        rate = numbers.get("rate", {}).get("mean")
        yield _of_stage(results, stage, threads=None, rate=rate, repeats=0, excluded=0, numbers=numbers)


def _rung(results: RunResults, stage: StageResult, rung: RungResult) -> RungSummary:
    rates = [item.rate for item in rung.iterations if item.rate is not None]
    return _of_stage(
        results,
        stage,
        threads=rung.threads,
        rate=rates[0] if rates else None,
        repeats=len(rung.iterations),
        excluded=len(rung.excluded),
        numbers=dict(flat(rung.tree)),
    )


def _of_stage(results: RunResults, stage: StageResult, **rung: Any) -> RungSummary:
    planned = results.plan_stage(stage.id)
    named: dict[str, Any] = {name: str(planned.get(name) or "") for name in ("workload", "target")}
    return RungSummary(stage=stage.id, kind=stage.kind, **named, **rung)


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The numbers of a tree by their dotted names: an estimate with its statistics and values, a plain number as
    `mean`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            if "mean" in value:
                kept = {key: value[key] for key in (*STATISTICS, "values") if key in value}
                yield prefix + name, {**kept, "values": list(kept.get("values", ()))}
            else:
                yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, {"mean": float(value)}
