"""The whole run as one JSON document for programs: format `proveout.result/1`.

Data flow: `RunResults` -> plain data -> JSON. Fields are only ever added within version 1; an unknown number is left
out or null, never NaN. Top level: `format, run, verdicts, published, stages, propagations, agents, systems, tuning,
environment, tested, lost, notices`. `run.plan` is the compiled plan. `environment` has the facts, their digest and the
drift of each host, system and piece of equipment; `tested` their declared, measured and expected facts as text. A
ladder's `knee` has the rung, or null with the reason. A stage has `metrics` (the scope of expressions), its `rungs`
(trees of estimates, with the iterations that they are made of and those excluded) and all `iterations` with findings,
transactions, waits and per-second series.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from proveout.coordinator.measure.knee import NoKnee
from proveout.coordinator.report.tables import cell_of
from proveout.coordinator.results.fingerprint import Fingerprint, fingerprints
from proveout.coordinator.results.node_facts import nodes
from proveout.coordinator.results.published_values import reproductions
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.coordinator.results.schemas import Schema, schemas
from proveout.core.json_data import to_plain
from proveout.proto.tuning_state import tuned

FORMAT = "proveout.result/1"


def document(results: RunResults) -> dict[str, Any]:
    """The document as plain data."""
    whole = {
        "format": FORMAT,
        "run": _run(results),
        "verdicts": to_plain(results.verdicts),
        "published": [to_plain(one) for one in reproductions(results)],
        "stages": [_stage(results, stage) for stage in results.stages.values()],
        "propagations": to_plain(results.propagations),
        "agents": to_plain(results.agents),
        "systems": to_plain(results.systems),
        "tuning": [to_plain(found) for found in tuned(results.tunings)],
        "environment": [_environment(found) for found in fingerprints(results)],
        "schemas": [_schema(one) for one in schemas(results)],
        "tested": to_plain(nodes(results)),
        "lost": to_plain(results.lost),
        "notices": to_plain(results.notices),
    }
    return {name: _finite(part) for name, part in whole.items()}


def to_json(results: RunResults) -> str:
    """The document as JSON text, ends with a newline."""
    return json.dumps(document(results), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def timestamp(unix_s: float) -> str | None:
    """ISO 8601 in UTC to the second; None for 0, an unknown time."""
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
    return named | about | {"resumed": run.resumed, "labels": dict(run.labels), "plan": to_plain(run.plan)}


def _stage(results: RunResults, stage: StageResult) -> dict[str, Any]:
    ended, cell = stage.finished, cell_of(results, stage.id)
    return {
        "id": stage.id,
        "kind": stage.kind,
        "cell": None if cell is None else {"of": cell.of, "labels": dict(cell.labels)},
        "outcome": ended.outcome if ended else "unfinished",
        "seconds": ended.seconds if ended else None,
        "metrics": to_plain(ended.metrics) if ended else {},
        "rungs": [_rung(rung) for rung in stage.rungs] if stage.climbs else [],
        "knee": _knee(stage),
        "iterations": to_plain(stage.iterations),
        "voided": to_plain(stage.voided),
        "populated": to_plain(stage.populated),
        "probes": to_plain(stage.probes),
        "search": to_plain(stage.search),
        "cut": to_plain(stage.cut),
        "values": to_plain(stage.values),
    }


def _knee(stage: StageResult) -> dict[str, Any] | None:
    """The knee; `threads` is null with the reason when there is none; null for other kinds of stages."""
    if not stage.climbs:
        return None
    knee = stage.knee
    if isinstance(knee, NoKnee):
        return {"threads": None, "reason": knee.reason}
    return {"threads": knee.threads, "lower": knee.lower, "upper": knee.upper, "distance": knee.distance}


def _rung(rung: RungResult) -> dict[str, Any]:
    return {
        "threads": rung.threads,
        "metrics": to_plain(rung.tree),
        "iterations": [str(item.id) for item in rung.iterations],
        "excluded": [str(item.id) for item in rung.excluded],
    }


def _schema(one: Schema) -> dict[str, Any]:
    return {"system": one.system, "stage": one.stage, "digest": one.digest, "objects": dict(one.objects)}


def _environment(found: Fingerprint) -> dict[str, Any]:
    return {
        "host": found.host,
        "system": found.system or None,
        "equipment": found.equipment or None,
        "digest": found.digest,
        "facts": to_plain(dict(found.facts)),
        "declared": to_plain(dict(found.declared)),
        "installed": to_plain(dict(found.installed)),
        "drift": [to_plain(change) for change in found.drift],
        "whole": found.whole,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
