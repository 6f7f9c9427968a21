"""The JSON Schema of `proveout.result/1`, made from the types that the document is made of.

Data flow: the events' dataclasses, by their type hints -> `$defs`; `schema` -> the whole, in the shape of
`result_json.document` -> `proveout schema --result` and docs/reference/result.schema.json.

Every `required` field is in every document. Within version 1 fields are only added, so nothing forbids further ones.
"""

from __future__ import annotations

import json

from proveout.coordinator.report.json_schemas import (
    COUNT,
    NUMBER,
    TEXT,
    Definitions,
    Schema,
    by_name,
    list_of,
    maybe,
    record,
)
from proveout.coordinator.report.result_json import FORMAT
from proveout.coordinator.results.fingerprint import Difference
from proveout.coordinator.results.node_facts import TestedNode
from proveout.coordinator.results.published_values import Reproduction
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
from proveout.proto.tuning_state import TunedHost

TREE: Schema = {
    "type": "object",
    "description": "Numbers by their names in docs/reference/metrics.md; estimates in a rung.",
}


def schema() -> Schema:
    """The schema, JSON Schema 2020-12."""
    definitions: dict[str, Schema] = {}
    made = Definitions(definitions)
    whole = record(
        format={"const": FORMAT},
        run=_run(),
        verdicts=list_of(made.of(VerdictReached)),
        published=list_of(made.of(Reproduction)),
        stages=list_of(_stage(made)),
        propagations=list_of(made.of(PropagationCompared)),
        agents=by_name(made.of(AgentUp)),
        systems=by_name(made.of(SystemUp)),
        tuning=list_of(made.of(TunedHost)),
        environment=list_of(_environment(made)),
        schemas=list_of(record(system=TEXT, stage=TEXT, digest=TEXT, objects=by_name(TEXT))),
        tested=list_of(made.of(TestedNode)),
        lost=list_of(made.of(AgentLost)),
        notices=list_of(made.of(Notice)),
    )
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "description": "All results of a proveout run. Fields are only ever added within version 1.",
    }
    return about | whole | {"$defs": dict(sorted(definitions.items()))}


def schema_json() -> str:
    """The schema as JSON text, ends with a newline."""
    return json.dumps(schema(), ensure_ascii=False, indent=2) + "\n"


# ---- parts of the document ---------------------------------------------------------------------------------------


def _run() -> Schema:
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


def _stage(made: Definitions) -> Schema:
    return record(
        id=TEXT,
        kind={"enum": ["", *STAGES]},
        cell=maybe(record(of=TEXT, labels={"type": "object", "description": "The value of each axis of the matrix."})),
        outcome=TEXT,
        seconds=NUMBER,
        metrics=TREE,
        rungs=list_of(record(threads=COUNT, metrics=TREE, iterations=list_of(TEXT), excluded=list_of(TEXT))),
        knee=maybe(_knee()),
        iterations=list_of(made.of(IterationFinished)),
        voided=list_of(made.of(IterationVoided)),
        populated=list_of(made.of(PopulateFinished)),
        probes=list_of(made.of(ProbeFinished)),
        search=maybe(made.of(SearchFinished)),
        cut=maybe(made.of(LadderCut)),
        values=list_of(made.of(ValuesTaken)),
    )


def _knee() -> Schema:
    none = record(threads={"type": "null"}, reason=TEXT)
    return {"anyOf": [record(threads=COUNT, lower=NUMBER, upper=NUMBER, distance=NUMBER), none]}


def _environment(made: Definitions) -> Schema:
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
