"""A run and a comparison as JSON documents for programs, and their schemas: `proveout.result/1`,
`proveout.compare/1`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from proveout.coordinator.comparability import Difference as RunDifference
from proveout.coordinator.comparison import (
    ComparedRuns,
    Direction,
    Family,
    Judgement,
    OfferedRates,
    Row,
    RungPair,
    StagePair,
    exit_code,
)
from proveout.coordinator.measure.steady_state import NoKnee
from proveout.coordinator.report.comparison_document import run_answer
from proveout.coordinator.report.comparison_tables import AcrossRungs, across_rungs, main_numbers
from proveout.coordinator.report.tables import cell_of
from proveout.coordinator.results.fingerprint import (
    Difference,
    Fingerprint,
    Schema,
    TestedNode,
    fingerprints,
    nodes,
    schemas,
)
from proveout.coordinator.results.published import Reproduction, reproductions
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.json_data import to_plain
from proveout.dsl.schema.stage_models import STAGES
from proveout.proto.events import (
    AgentLost,
    AgentUp,
    IterationFinished,
    IterationVoided,
    LadderCut,
    Notice,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    SearchFinished,
    SystemUp,
    ValuesTaken,
    VerdictReached,
)
from proveout.proto.tuning_state import TunedHost, tuned

JsonSchema: TypeAlias = dict[str, Any]

TEXT: JsonSchema = {"type": "string"}
NUMBER: JsonSchema = {"type": ["number", "null"]}
"""A number that is unknown or not finite is null."""
COUNT: JsonSchema = {"type": "integer", "minimum": 0}


def closed(schema: Any) -> Any:
    """The schema with every record closed to further fields, so that a test finds a field that is not in the schema."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: closed(item) for name, item in schema.items()}
    return inside | ({"additionalProperties": False} if "required" in schema else {})


def record(**fields: JsonSchema) -> JsonSchema:
    """An object of which all these fields are there."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def list_of(item: JsonSchema) -> JsonSchema:
    """An array."""
    return {"type": "array", "items": item}


def by_name(item: JsonSchema) -> JsonSchema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": item}


def maybe(schema: JsonSchema) -> JsonSchema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


# ---- types -------------------------------------------------------------------------------------------------------


class _Generator(GenerateJsonSchema):
    """pydantic's schemas for values as `json_data.to_plain` gives them: every field is there, and a number that is not
    finite is null.
    """

    def float_schema(self, schema: Any) -> JsonSchema:
        return dict(NUMBER)

    def default_schema(self, schema: Any) -> JsonSchema:
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def dataclass_schema(self, schema: Any) -> JsonSchema:
        made = super().dataclass_schema(schema)
        first = (schema["cls"].__doc__ or "").strip().split("\n\n")[0]
        return {"description": " ".join(first.split())} | {
            name: value for name, value in made.items() if name not in ("title", "description")
        }


@dataclass(frozen=True, slots=True)
class Definitions:
    """Schemas of types; those of dataclasses are collected in `found` and referred to."""

    found: dict[str, JsonSchema]

    def of(self, kind: type) -> JsonSchema:
        """A reference to the schema of a dataclass."""
        made = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Generator)
        self.found.update(made.pop("$defs", {}))
        self.found[kind.__name__] = made
        return {"$ref": f"#/$defs/{kind.__name__}"}


RESULT_FORMAT = "proveout.result/1"


def result_document(results: RunResults) -> dict[str, Any]:
    """The document as plain data."""
    whole = {
        "format": RESULT_FORMAT,
        "run": _run(results),
        "verdicts": to_plain(results.verdicts),
        "published": [to_plain(one) for one in reproductions(results)],
        "stages": [_result_stage(results, stage) for stage in results.stages.values()],
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
    return {name: _result_finite(part) for name, part in whole.items()}


def result_to_json(results: RunResults) -> str:
    """The document as JSON text, ends with a newline."""
    return json.dumps(result_document(results), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


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


def _result_stage(results: RunResults, stage: StageResult) -> dict[str, Any]:
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


def _result_finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _result_finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_result_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Every `required` field is in every document. Within version 1 fields are only added, so nothing forbids further ones.

TREE: JsonSchema = {
    "type": "object",
    "description": "Numbers by their names in docs/reference/metrics.md; estimates in a rung.",
}


def result_schema() -> JsonSchema:
    """The schema, JSON Schema 2020-12."""
    definitions: dict[str, JsonSchema] = {}
    made = Definitions(definitions)
    whole = record(
        format={"const": RESULT_FORMAT},
        run=_schema_run(),
        verdicts=list_of(made.of(VerdictReached)),
        published=list_of(made.of(Reproduction)),
        stages=list_of(_schema_stage(made)),
        propagations=list_of(made.of(PropagationCompared)),
        agents=by_name(made.of(AgentUp)),
        systems=by_name(made.of(SystemUp)),
        tuning=list_of(made.of(TunedHost)),
        environment=list_of(_schema_environment(made)),
        schemas=list_of(record(system=TEXT, stage=TEXT, digest=TEXT, objects=by_name(TEXT))),
        tested=list_of(made.of(TestedNode)),
        lost=list_of(made.of(AgentLost)),
        notices=list_of(made.of(Notice)),
    )
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": RESULT_FORMAT,
        "description": "All results of a proveout run. Fields are only ever added within version 1.",
    }
    return about | whole | {"$defs": dict(sorted(definitions.items()))}


def result_schema_json() -> str:
    """The schema as JSON text, ends with a newline."""
    return json.dumps(result_schema(), ensure_ascii=False, indent=2) + "\n"


# ---- parts of the document ---------------------------------------------------------------------------------------


def _schema_run() -> JsonSchema:
    ended = record(
        started=maybe({"type": "string", "format": "date-time"}),
        ended=maybe({"type": "string", "format": "date-time"}),
        status={"enum": ["finished", "failed", "interrupted", "unfinished"]},
        exit_code=maybe({"type": "integer"}),
        reason=TEXT,
        seconds=NUMBER,
    )
    named = dict.fromkeys(("id", "name", "title", "version", "digest"), TEXT)
    known = named | {"resumed": COUNT, "labels": by_name(TEXT), "plan": {"description": "The compiled plan."}}
    return ended | {"properties": {**known, **ended["properties"]}}


def _schema_stage(made: Definitions) -> JsonSchema:
    return record(
        id=TEXT,
        kind={"enum": ["", *STAGES]},
        cell=maybe(record(of=TEXT, labels={"type": "object", "description": "The value of each axis of the matrix."})),
        outcome=TEXT,
        seconds=NUMBER,
        metrics=TREE,
        rungs=list_of(record(threads=COUNT, metrics=TREE, iterations=list_of(TEXT), excluded=list_of(TEXT))),
        knee=maybe(_schema_knee()),
        iterations=list_of(made.of(IterationFinished)),
        voided=list_of(made.of(IterationVoided)),
        populated=list_of(made.of(PopulateFinished)),
        probes=list_of(made.of(ProbeFinished)),
        search=maybe(made.of(SearchFinished)),
        cut=maybe(made.of(LadderCut)),
        values=list_of(made.of(ValuesTaken)),
    )


def _schema_knee() -> JsonSchema:
    none = record(threads={"type": "null"}, reason=TEXT)
    return {"anyOf": [record(threads=COUNT, lower=NUMBER, upper=NUMBER, distance=NUMBER), none]}


def _schema_environment(made: Definitions) -> JsonSchema:
    return record(
        host=TEXT,
        system=maybe(TEXT),
        equipment=maybe(TEXT),
        digest=TEXT,
        facts={"type": "object"},
        declared={"type": "object"},
        installed={"type": "object"},
        drift=list_of(made.of(Difference)),
        whole={"type": "boolean"},
    )


# A document has `format, reference, comparisons, conditions, exit_code`; a comparison has `other, names, confidence,
# confidence_others, judged, answer, over_rungs, band, differences, notes, stages`, a stage its `rungs` (rows with
# `metric, base, other, ratio, change, direction, reason`) and `missing`. Notes, answer and evidence have the short
# `names`. An unknown number is null.

COMPARISON_FORMAT = "proveout.compare/1"
_SHOWN: tuple[Direction, ...] = ("better", "worse", "changed", "same")


def comparison_to_json(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> str:
    """The comparison as JSON text, ends with a newline."""
    return json.dumps(comparison_document(compared, judged), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def comparison_document(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> dict[str, Any]:
    """The comparison as JSON's data; its schema is `schema`."""
    made: dict[str, Any] = {
        "format": COMPARISON_FORMAT,
        "reference": compared[0].runs[0].run_id,
        "comparisons": [_comparison(one) for one in compared],
        "conditions": [to_plain(one) for one in judged],
        "exit_code": exit_code(judged),
    }
    return {name: _finite(value) for name, value in made.items()}


def _comparison(one: ComparedRuns) -> dict[str, Any]:
    return {
        "other": one.runs[1].run_id,
        "names": list(one.names),
        "confidence": one.levels[0],
        "confidence_others": one.levels[1],
        "judged": list(one.judged),
        "answer": run_answer(one),
        "over_rungs": [_across(across) for across in across_rungs(main_numbers(one))],
        "band": one.band,
        "differences": to_plain(one.differences),
        "notes": list(one.notes),
        "stages": [_stage(stage, one) for stage in one.stages],
    }


def _across(across: AcrossRungs) -> dict[str, Any]:
    first = across.first
    return {
        "stage": first.stage,
        "load": first.load,
        "family": first.family,
        **{direction: [one.threads for one in across.of(direction)] for direction in _SHOWN},
        "undecided": [one.threads for one in across.undecided],
    }


def _stage(stage: StagePair, one: ComparedRuns) -> dict[str, Any]:
    ids = {run.name: run.run_id for run in one.runs}
    other = one.names[1]
    return {
        "id": stage.id,
        "kind": stage.kind,
        "rungs": [_rung_data(rung, other) for rung in stage.rungs],
        "missing": [{"threads": count, "run": ids[run]} for count, run in stage.missing],
        "values": [_row_data(row, other) for row in stage.values],
    }


def _rung_data(rung: RungPair, other: str) -> dict[str, Any]:
    return {
        "threads": rung.threads,
        "repeats": list(rung.repeats),
        "rows": [_row_data(row, other) for row in rung.rows],
        "offered": to_plain(rung.offered),
    }


def _row_data(row: Row, other: str) -> dict[str, Any]:
    return {
        "metric": ".".join(row.path),
        "base": row.base,
        "other": row.other,
        "ratio": to_plain(row.ratio),
        "change": to_plain(row.change),
        "direction": row.direction,
        "reason": row.reason(other),
        "intervals": [_interval(side) for side in row.estimates],
    }


def _interval(side: Any) -> dict[str, Any] | None:
    """The interval of one run's own number; an end that is not known is null."""
    if not isinstance(side, Mapping) or not ("lower" in side or "upper" in side):
        return None
    return {name: side.get(name) for name in ("lower", "upper", "confidence")}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- schema ------------------------------------------------------------------------------------------------------


def comparison_schema() -> JsonSchema:
    """The schema, JSON Schema 2020-12."""
    definitions: dict[str, JsonSchema] = {}
    made = Definitions(definitions)
    comparison = record(
        other=TEXT,
        names={"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2},
        confidence=NUMBER | {"description": "The level of the intervals of the main numbers."},
        confidence_others=NUMBER | {"description": "The level of the intervals of all other numbers."},
        judged={
            "type": "array",
            "items": COUNT,
            "minItems": 2,
            "maxItems": 2,
            "description": "The main and the other numbers that the two levels are corrected over.",
        },
        answer=TEXT,
        over_rungs=list_of(
            record(
                stage=TEXT,
                load=TEXT,
                family={"enum": list(get_args(Family))},
                **{name: list_of(COUNT) for name in (*_SHOWN, "undecided")},
            )
            | {"description": "The rungs at which a main number is better, worse, … or undecided."}
        ),
        band=NUMBER,
        differences=list_of(made.of(RunDifference)),
        notes=list_of(TEXT),
        stages=list_of(_stage_schema(made)),
    )
    whole = record(
        format={"const": COMPARISON_FORMAT},
        reference=TEXT,
        comparisons=list_of(comparison),
        conditions=list_of(made.of(Judgement)),
        exit_code={"enum": [0, 1, 3]},
    )
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": COMPARISON_FORMAT,
        "description": "Runs of proveout compared with one of them. Fields are only ever added within version 1.",
    }
    return about | whole | {"$defs": dict(sorted(definitions.items()))}


def comparison_schema_json() -> str:
    """The schema as JSON text, ends with a newline."""
    return json.dumps(comparison_schema(), ensure_ascii=False, indent=2) + "\n"


def _stage_schema(made: Definitions) -> JsonSchema:
    estimate = {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
    ends = "`mean`, and `lower` and `upper` where there is an interval."
    interval = maybe(record(lower=NUMBER, upper=NUMBER, confidence=NUMBER))
    row = record(
        metric=TEXT,
        base=NUMBER,
        other=NUMBER,
        ratio=estimate | {"description": f"other over base: {ends}"},
        change=estimate | {"description": f"The relative change, other over base - 1: {ends}"},
        direction={"enum": list(get_args(Direction))},
        reason={
            "type": "string",
            "description": "The reason for which the number is not judged; empty where it is judged.",
        },
        intervals={"type": "array", "items": interval, "minItems": 2, "maxItems": 2},
    )
    rung = record(
        threads=COUNT,
        repeats={"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2},
        rows=list_of(row),
        offered=maybe(made.of(OfferedRates)),
    )
    return record(
        id=TEXT, kind=TEXT, rungs=list_of(rung), missing=list_of(record(threads=COUNT, run=TEXT)), values=list_of(row)
    )
