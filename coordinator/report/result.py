"""The whole run as one JSON document for programs: format `proveout.result/1`.

Data flow: `RunResults` -> plain data -> JSON. Fields are only ever added within version 1; a number that is not known is left out or
null, never NaN. Top level: `format, run, verdicts, stages, propagations, agents, systems, lost, notices`. `run.plan` is the compiled
plan. A stage has `metrics` (what expressions saw), its `rungs` (trees of estimates, with the iterations they stand on and those
excluded) and all `iterations` with findings, transactions, waits and per-second series.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from proveout.coordinator.plain import to_plain
from proveout.coordinator.results import RungResult, RunResults, StageResult

FORMAT = "proveout.result/1"


def document(results: RunResults) -> dict[str, Any]:
    """The document as plain data."""
    return {
        "format": FORMAT,
        "run": _run(results),
        "verdicts": _plain(results.verdicts),
        "stages": [_stage(stage) for stage in results.stages.values()],
        "propagations": _plain(results.propagations),
        "agents": _plain(results.agents),
        "systems": _plain(results.systems),
        "lost": _plain(results.lost),
        "notices": _plain(results.notices),
    }


def to_json(results: RunResults) -> str:
    """The document as JSON text, ends with a newline."""
    return json.dumps(document(results), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def timestamp(unix_s: float) -> str | None:
    """ISO 8601 in UTC to the second; None for 0, which means that it is not known."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if unix_s else None


def _run(results: RunResults) -> dict[str, Any]:
    ended = results.ended
    about = {
        "started": timestamp(results.started_unix_s),
        "ended": timestamp(results.ended_unix_s),
        "status": ended.status if ended else "unfinished",
        "exit_code": ended.exit_code if ended else None,
        "reason": ended.reason if ended else "",
        "seconds": ended.seconds if ended else None,
    }
    if results.run is None:
        return about
    run = results.run
    named = {"id": run.run_id, "name": run.name, "title": run.title, "version": run.version, "digest": run.digest}
    return named | about | {"resumed": run.resumed, "plan": _plain(run.plan)}


def _stage(stage: StageResult) -> dict[str, Any]:
    ended = stage.finished
    return {
        "id": stage.id,
        "kind": stage.kind,
        "outcome": ended.outcome if ended else "unfinished",
        "seconds": ended.seconds if ended else None,
        "metrics": _plain(ended.metrics) if ended else {},
        "rungs": [_rung(rung) for rung in stage.rungs] if stage.kind == "ladder" else [],
        "iterations": _plain(stage.iterations),
        "voided": _plain(stage.voided),
        "populated": _plain(stage.populated),
        "probes": _plain(stage.probes),
        "search": _plain(stage.search),
        "cut": _plain(stage.cut),
    }


def _rung(rung: RungResult) -> dict[str, Any]:
    return {
        "threads": rung.threads,
        "metrics": _plain(rung.tree),
        "iterations": [str(item.id) for item in rung.iterations],
        "excluded": [str(item.id) for item in rung.excluded],
    }


def _plain(value: Any) -> Any:
    return _finite(to_plain(value))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
