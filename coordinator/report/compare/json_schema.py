"""The JSON Schema of `proveout.compare/1`, in the shape that `report.compared` writes.

Data flow: the types of differences and conditions -> `$defs`; `document` -> the whole -> `proveout schema --compare` and
docs/reference/compare.schema.json. Within version 1 fields are only added.
"""

from __future__ import annotations

import json

from proveout.coordinator.compare.comparability import Difference
from proveout.coordinator.compare.fail_if import Judgement
from proveout.coordinator.report.compare.document import FORMAT, SAID
from proveout.coordinator.report.json_schemas import COUNT, NUMBER, TEXT, Definitions, Schema, list_of, record


def document() -> Schema:
    """The schema, JSON Schema 2020-12."""
    definitions: dict[str, Schema] = {}
    made = Definitions(definitions)
    comparison = record(
        other=TEXT,
        confidence=NUMBER,
        differences=list_of(made.of(Difference)),
        notes=list_of(TEXT),
        stages=list_of(_stage()),
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
    return json.dumps(document(), ensure_ascii=False, indent=2) + "\n"


def _stage() -> Schema:
    change = {
        "type": "object",
        "description": "The relative change, other over base - 1: `mean`, and `lower` and `upper` where there is an interval.",
        "additionalProperties": {"type": ["number", "string", "null"]},
    }
    row = record(metric=TEXT, base=NUMBER, other=NUMBER, change=change, direction={"enum": list(SAID)})
    rung = record(
        threads=COUNT, repeats={"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}, rows=list_of(row)
    )
    return record(id=TEXT, kind=TEXT, rungs=list_of(rung), missing=list_of(record(threads=COUNT, run=TEXT)))
