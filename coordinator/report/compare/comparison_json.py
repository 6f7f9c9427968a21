"""Comparisons of runs as JSON documents of the format `proveout.compare/1`, and the JSON Schema of that format.

Data flow: `ComparedRuns`, judged conditions -> `document` -> `to_json`; the types of differences and conditions ->
`schema` -> `proveout schema --compare` and docs/reference/compare.schema.json. Within version 1 fields are only added.

A document has `format, reference, comparisons, conditions, exit_code`; a comparison has `other, names, confidence,
confidence_others, judged, answer, over_rungs, band, differences, notes, stages`, a stage its `rungs` (rows with
`metric, base, other, ratio, change, direction, reason`) and `missing`. Notes, answer and evidence have the short
`names`. An unknown number is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from proveout.coordinator.compare.comparability import Difference
from proveout.coordinator.compare.comparison import ComparedRuns, Direction, Family, Row, RungPair, StagePair
from proveout.coordinator.compare.fail_if import Judgement, exit_code
from proveout.coordinator.compare.offered_rates import OfferedRates
from proveout.coordinator.report.compare.comparison_headline import run_answer
from proveout.coordinator.report.compare.main_numbers import AcrossRungs, across_rungs, main_numbers
from proveout.coordinator.report.json_schemas import COUNT, NUMBER, TEXT, Definitions, Schema, list_of, maybe, record
from proveout.core.json_data import to_plain

FORMAT = "proveout.compare/1"
_SHOWN: tuple[Direction, ...] = ("better", "worse", "changed", "same")


def to_json(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> str:
    """The comparison as JSON text, ends with a newline."""
    return json.dumps(document(compared, judged), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def document(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> dict[str, Any]:
    """The comparison as JSON's data; its schema is `schema`."""
    made: dict[str, Any] = {
        "format": FORMAT,
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


def schema() -> Schema:
    """The schema, JSON Schema 2020-12."""
    definitions: dict[str, Schema] = {}
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
        differences=list_of(made.of(Difference)),
        notes=list_of(TEXT),
        stages=list_of(_stage_schema(made)),
    )
    whole = record(
        format={"const": FORMAT},
        reference=TEXT,
        comparisons=list_of(comparison),
        conditions=list_of(made.of(Judgement)),
        exit_code={"enum": [0, 1, 3]},
    )
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "description": "Runs of proveout compared with one of them. Fields are only ever added within version 1.",
    }
    return about | whole | {"$defs": dict(sorted(definitions.items()))}


def schema_json() -> str:
    """The schema as JSON text, ends with a newline."""
    return json.dumps(schema(), ensure_ascii=False, indent=2) + "\n"


def _stage_schema(made: Definitions) -> Schema:
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
