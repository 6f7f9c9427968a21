"""A run and a comparison as JSON documents for programs, and their schemas: `proveout.result/1`,
`proveout.compare/1`.

A field is declared once, in a `Record`: its schema, and the function that makes its value. Documents and schemas are
both made from the records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from proveout.coordinator.comparability import Difference as RunDifference
from proveout.coordinator.comparison import ComparedRuns, Direction, Family, Judgement, OfferedRates, exit_code
from proveout.coordinator.measure.steady_state import NoKnee
from proveout.coordinator.report.comparison_document import run_answer
from proveout.coordinator.report.comparison_tables import across_rungs, main_numbers
from proveout.coordinator.report.summary import answer
from proveout.coordinator.report.tables import cell_of
from proveout.coordinator.results.fingerprint import Difference, TestedNode, fingerprints, nodes, schemas
from proveout.coordinator.results.published import Reproduction, reproductions
from proveout.coordinator.results.results import RunResults, StageResult
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
"""A JSON Schema, in which a `Record` or a dataclass may stand for a schema."""
Make: TypeAlias = Callable[[Any, Any], Any]
"""(what a record is of, the subject that it is in: the results or the runs compared) -> the value of a field."""

TEXT: JsonSchema = {"type": "string"}
NUMBER: JsonSchema = {"type": ["number", "null"]}
"""A number that is unknown or not finite is null."""
COUNT: JsonSchema = {"type": "integer", "minimum": 0}
NULL: JsonSchema = {"type": "null"}


def _attribute(name: str) -> Make:
    return lambda source, _: getattr(source, name)


class Record:
    """An object of a document, of which all fields are there.

    A field is its schema, or (schema, `Make`); without the function its value is the attribute of that name.
    """

    def __init__(self, about: str = "", /, **fields: Any) -> None:
        self.about = {"description": about} if about else {}
        self.fields: dict[str, tuple[Any, Make]] = {
            name: field if isinstance(field, tuple) else (field, _attribute(name)) for name, field in fields.items()
        }

    def of(self, source: Any, whole: Any) -> dict[str, Any]:
        """The object as plain data, made of `source` in the document of `whole`."""
        return {name: written(schema, make(source, whole), whole) for name, (schema, make) in self.fields.items()}

    def schema(self) -> JsonSchema:
        properties = {name: schema for name, (schema, _) in self.fields.items()}
        return {"type": "object", "properties": properties, "required": list(properties)} | self.about


class Subject(Record):
    """A record that is the subject of the part of the document in it."""

    def of(self, source: Any, whole: Any = None) -> dict[str, Any]:
        """The object as plain data, made of `source`."""
        return super().of(source, source)


def list_of(item: Any, count: int | None = None) -> JsonSchema:
    """An array, of `count` items where that is given."""
    return {"type": "array", "items": item} | ({} if count is None else {"minItems": count, "maxItems": count})


def by_name(item: Any) -> JsonSchema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": item}


def maybe(schema: Any) -> JsonSchema:
    """The schema, or null."""
    return {"anyOf": [schema, NULL]}


def written(schema: Any, value: Any, whole: Any) -> Any:
    """The value as plain data, its records as the schema has them; a number that is not finite is null."""
    if isinstance(schema, Record):
        return schema.of(value, whole)
    if isinstance(schema, dict) and "items" in schema:
        return [written(schema["items"], item, whole) for item in value]
    if isinstance(schema, dict) and value is not None and NULL in schema.get("anyOf", ()):
        return written(schema["anyOf"][0], value, whole)
    return to_plain(value, finite=True)


def _encoded(document: Record, source: Any, whole: Any) -> bytes:
    """A document as JSON in UTF-8: a line for each field, and for each item of its lists; one item at a time is plain
    data. Only text without indentation is encoded in C."""
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    parts: list[bytes] = []
    for name, (schema, make) in document.fields.items():
        value = make(source, whole)
        parts.append(f"{',' if parts else '{'}\n {encode(name)}: ".encode())
        if isinstance(schema, dict) and "items" in schema:
            before = "[\n  "
            for item in value:
                parts.append(f"{before}{encode(written(schema['items'], item, whole))}".encode())
                before = ",\n  "
            parts.append(b"\n ]" if before.startswith(",") else b"[]")
        else:
            parts.append(encode(written(schema, value, whole)).encode())
    return b"".join([*parts, b"\n}\n"])


# ---- schemas -----------------------------------------------------------------------------------------------------


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


def _resolved(schema: Any, definitions: dict[str, JsonSchema]) -> Any:
    """The schema with the schemas of its records, and with references to those of its dataclasses, which become
    `definitions`."""
    if isinstance(schema, type):
        made = TypeAdapter(schema).json_schema(mode="serialization", schema_generator=_Generator)
        definitions.update(made.pop("$defs", {}))
        definitions[schema.__name__] = made
        return {"$ref": f"#/$defs/{schema.__name__}"}
    if isinstance(schema, Record):
        return _resolved(schema.schema(), definitions)
    if isinstance(schema, dict):
        return {name: _resolved(item, definitions) for name, item in schema.items()}
    return [_resolved(item, definitions) for item in schema] if isinstance(schema, list) else schema


def _document_schema(whole: Record, title: str, about: str) -> JsonSchema:
    """The schema of a document, JSON Schema 2020-12. Within version 1 fields are only added, so nothing forbids further
    ones."""
    definitions: dict[str, JsonSchema] = {}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "description": about}
    made: JsonSchema = _resolved(whole, definitions)
    return head | made | {"$defs": dict(sorted(definitions.items()))}


# ---- a run -------------------------------------------------------------------------------------------------------

RESULT_FORMAT = "proveout.result/1"
TREE: JsonSchema = {
    "type": "object",
    "description": "Numbers by their names in docs/reference/metrics.md; estimates in a rung.",
}
TIME = maybe({"type": "string", "format": "date-time"})


def timestamp(unix_s: float) -> str | None:
    """ISO 8601 in UTC to the second; None for 0, an unknown time."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if unix_s else None


def _ended(name: str, otherwise: Any = None) -> Make:
    """A field of the end of a run or, by its `finished`, of a stage; `otherwise` where it has not ended."""

    def make(of: RunResults | StageResult, _: Any) -> Any:
        end = of.ended if isinstance(of, RunResults) else of.finished
        return getattr(end, name) if end else otherwise

    return make


_RUN_NAMES = Record(id=(TEXT, lambda run, _: run.run_id), name=TEXT, title=TEXT, version=TEXT, digest=TEXT)
_RUN_PLAN = Record(resumed=COUNT, labels=by_name(TEXT), plan={"description": "The compiled plan."})
_RUN_END = Record(
    started=(TIME, lambda results, _: timestamp(results.started_unix_s)),
    ended=(TIME, lambda results, _: timestamp(results.ended_unix_s)),
    status=({"enum": ["finished", "failed", "interrupted", "unfinished"]}, _ended("status", "unfinished")),
    exit_code=(maybe({"type": "integer"}), _ended("exit_code")),
    reason=(TEXT, _ended("reason", "")),
    seconds=(NUMBER, _ended("seconds")),
)
_RUN = _RUN_END.schema() | {
    "properties": {**_RUN_NAMES.schema()["properties"], **_RUN_PLAN.schema()["properties"],
                   **_RUN_END.schema()["properties"]}
}  # fmt: skip


def _run(results: RunResults, _: Any) -> dict[str, Any]:
    end = _RUN_END.of(results, results)
    if results.run is None:
        return end
    return _RUN_NAMES.of(results.run, results) | end | _RUN_PLAN.of(results.run, results)


_KNEE = Record(threads=COUNT, lower=NUMBER, upper=NUMBER, distance=NUMBER)
_NO_KNEE = Record(threads=(NULL, lambda _, __: None), reason=TEXT)


def _knee(stage: StageResult, results: RunResults) -> dict[str, Any] | None:
    """The knee; `threads` is null with the reason when there is none; null for other kinds of stages."""
    if not stage.climbs:
        return None
    return (_NO_KNEE if isinstance(stage.knee, NoKnee) else _KNEE).of(stage.knee, results)


_LABELS = {"type": "object", "description": "The value of each axis of the matrix."}
_RUNG = Record(
    threads=COUNT,
    metrics=(TREE, lambda rung, _: rung.tree),
    iterations=(list_of(TEXT), lambda rung, _: [str(item.id) for item in rung.iterations]),
    excluded=(list_of(TEXT), lambda rung, _: [str(item.id) for item in rung.excluded]),
)
_STAGE = Record(
    id=TEXT,
    kind={"enum": ["", *STAGES]},
    cell=(
        maybe(Record(of=TEXT, labels=(_LABELS, lambda cell, _: dict(cell.labels)))),
        lambda stage, results: cell_of(results, stage.id),
    ),
    outcome=(TEXT, _ended("outcome", "unfinished")),
    seconds=(NUMBER, _ended("seconds")),
    metrics=(TREE, _ended("metrics", {})),
    rungs=(list_of(_RUNG), lambda stage, _: stage.rungs if stage.climbs else []),
    knee=(maybe({"anyOf": [_KNEE, _NO_KNEE]}), _knee),
    iterations=list_of(IterationFinished),
    voided=list_of(IterationVoided),
    populated=list_of(PopulateFinished),
    probes=list_of(ProbeFinished),
    search=maybe(SearchFinished),
    cut=maybe(LadderCut),
    values=list_of(ValuesTaken),
)
_FACTS = {"type": "object"}
_ENVIRONMENT = Record(
    host=TEXT,
    system=(maybe(TEXT), lambda found, _: found.system or None),
    equipment=(maybe(TEXT), lambda found, _: found.equipment or None),
    digest=TEXT,
    facts=_FACTS,
    declared=_FACTS,
    installed=_FACTS,
    drift=list_of(Difference),
    whole={"type": "boolean"},
)
_RESULT = Subject(
    format=({"const": RESULT_FORMAT}, lambda _, __: RESULT_FORMAT),
    run=(_RUN, _run),
    answer=(
        TEXT | {"description": "The answer in words, with which reports begin; empty where there is none."},
        lambda results, _: (answer(results) or ("",))[0],
    ),
    verdicts=list_of(VerdictReached),
    published=(list_of(Reproduction), lambda results, _: reproductions(results)),
    stages=(list_of(_STAGE), lambda results, _: results.stages.values()),
    propagations=list_of(PropagationCompared),
    agents=by_name(AgentUp),
    systems=by_name(SystemUp),
    tuning=(list_of(TunedHost), lambda results, _: tuned(results.tunings)),
    environment=(list_of(_ENVIRONMENT), lambda results, _: fingerprints(results)),
    schemas=(
        list_of(Record(system=TEXT, stage=TEXT, digest=TEXT, objects=by_name(TEXT))),
        lambda results, _: schemas(results),
    ),
    tested=(list_of(TestedNode), lambda results, _: nodes(results)),
    lost=list_of(AgentLost),
    notices=list_of(Notice),
)


def result_to_json(results: RunResults) -> bytes:
    """The document as JSON, ends with a newline."""
    return _encoded(_RESULT, results, results)


def result_schema() -> JsonSchema:
    about = "All results of a proveout run. Fields are only ever added within version 1."
    return _document_schema(_RESULT, RESULT_FORMAT, about)


# ---- a comparison ------------------------------------------------------------------------------------------------

# Notes, answer and evidence have the short `names` of the runs. An unknown number is null.

COMPARISON_FORMAT = "proveout.compare/1"
_SHOWN: tuple[Direction, ...] = ("better", "worse", "changed", "same")
_ENDS = "`mean`, and `lower` and `upper` where there is an interval."


def _estimate(about: str) -> JsonSchema:
    values = by_name({"type": ["number", "string", "null"]})
    return values | {"description": f"{about}: {_ENDS}"}


def _intervals(row: Any, _: Any) -> list[Mapping[str, Any] | None]:
    """The interval of each run's own number; an end that is not known is null."""
    return [side if isinstance(side, Mapping) and side.keys() & {"lower", "upper"} else None for side in row.estimates]


_INTERVAL = Record(**{
    name: (NUMBER, lambda side, _, name=name: side.get(name)) for name in ("lower", "upper", "confidence")
})  # fmt: skip
_ROW = Record(
    metric=(TEXT, lambda row, _: ".".join(row.path)),
    base=NUMBER,
    other=NUMBER,
    ratio=_estimate("other over base"),
    change=_estimate("The relative change, other over base - 1"),
    direction={"enum": list(get_args(Direction))},
    reason=(
        TEXT | {"description": "The reason for which the number is not judged; empty where it is judged."},
        lambda row, compared: row.reason(compared.names[1]),
    ),
    intervals=(list_of(maybe(_INTERVAL), 2), _intervals),
)
_RUNG_PAIR = Record(threads=COUNT, repeats=list_of(COUNT, 2), rows=list_of(_ROW), offered=maybe(OfferedRates))
_MISSING = Record(
    threads=(COUNT, lambda missing, _: missing[0]),
    run=(TEXT, lambda missing, compared: {run.name: run.run_id for run in compared.runs}[missing[1]]),
)
_STAGE_PAIR = Record(id=TEXT, kind=TEXT, rungs=list_of(_RUNG_PAIR), missing=list_of(_MISSING), values=list_of(_ROW))
_ACROSS = Record(
    "The rungs at which a main number is better, worse, … or undecided.",
    stage=(TEXT, lambda across, _: across.first.stage),
    load=(TEXT, lambda across, _: across.first.load),
    family=({"enum": list(get_args(Family))}, lambda across, _: across.first.family),
    **{
        name: (list_of(COUNT), lambda across, _, name=name: [one.threads for one in across.of(name)])
        for name in _SHOWN
    },
    undecided=(list_of(COUNT), lambda across, _: [one.threads for one in across.undecided]),
)  # fmt: skip
_JUDGED = "The main and the other numbers that the two levels are corrected over."
_COMPARED = Subject(
    other=(TEXT, lambda one, _: one.runs[1].run_id),
    names=list_of(TEXT, 2),
    confidence=(
        NUMBER | {"description": "The level of the intervals of the main numbers."},
        lambda one, _: one.levels[0],
    ),
    confidence_others=(
        NUMBER | {"description": "The level of the intervals of all other numbers."},
        lambda one, _: one.levels[1],
    ),
    judged=list_of(COUNT, 2) | {"description": _JUDGED},
    answer=(TEXT, lambda one, _: run_answer(one)),
    over_rungs=(list_of(_ACROSS), lambda one, _: across_rungs(main_numbers(one))),
    band=NUMBER,
    differences=list_of(RunDifference),
    notes=list_of(TEXT),
    stages=list_of(_STAGE_PAIR),
)
_COMPARISON = Record(
    format=({"const": COMPARISON_FORMAT}, lambda _, __: COMPARISON_FORMAT),
    reference=(TEXT, lambda whole, _: whole[0][0].runs[0].run_id),
    comparisons=(list_of(_COMPARED), lambda whole, _: whole[0]),
    conditions=(list_of(Judgement), lambda whole, _: whole[1]),
    exit_code=({"enum": [0, 1, 3]}, lambda whole, _: exit_code(whole[1])),
)


def comparison_to_json(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> bytes:
    """The comparison as JSON, ends with a newline."""
    return _encoded(_COMPARISON, (compared, judged), None)


def comparison_schema() -> JsonSchema:
    about = "Runs of proveout compared with one of them. Fields are only ever added within version 1."
    return _document_schema(_COMPARISON, COMPARISON_FORMAT, about)
