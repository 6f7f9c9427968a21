"""The JSON Schema of `proveout.result/1`, made from the types that the document is made of.

Data flow: the events' dataclasses, by their type hints -> `$defs`; `document` -> the whole, in the shape that `report.result` writes ->
`proveout schema --result` and docs/reference/result.schema.json.

Readers may rely on every field that is `required`. Within version 1 fields are only added, so nothing forbids further ones;
`closed` gives the schema that does, which holds writers to it.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from proveout.coordinator.fingerprint import Difference
from proveout.coordinator.report.result import FORMAT
from proveout.coordinator.tunings import TunedHost
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
    VerdictReached,
)

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "null"]}
"""A number that is not known, or not finite, is null."""
COUNT: Schema = {"type": "integer", "minimum": 0}
TREE: Schema = {
    "type": "object",
    "description": "Numbers by their names in docs/reference/metrics.md; estimates in a rung.",
}
_SCALARS: Mapping[Any, Schema] = {str: TEXT, bool: {"type": "boolean"}, int: {"type": "integer"}, float: NUMBER}


def document() -> Schema:
    """The schema, JSON Schema 2020-12."""
    definitions: dict[str, Schema] = {}
    made = _Definitions(definitions)
    whole = _record(
        format={"const": FORMAT},
        run=_run(),
        verdicts=_list(made.of(VerdictReached)),
        stages=_list(_stage(made)),
        propagations=_list(made.of(PropagationCompared)),
        agents=_by_name(made.of(AgentUp)),
        systems=_by_name(made.of(SystemUp)),
        tuning=_list(made.of(TunedHost)),
        environment=_list(_environment(made)),
        lost=_list(made.of(AgentLost)),
        notices=_list(made.of(Notice)),
    )
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "description": "All results of a proveout run. Fields are only ever added within version 1.",
    }
    return about | whole | {"$defs": dict(sorted(definitions.items()))}


def schema_json() -> str:
    """The schema as JSON text, ends with a newline."""
    return json.dumps(document(), ensure_ascii=False, indent=2) + "\n"


def closed(schema: Any) -> Any:
    """The schema with every record closed to fields that it does not know."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: closed(item) for name, item in schema.items()}
    return inside | ({"additionalProperties": False} if "required" in schema else {})


# ---- the parts that `result` puts together -----------------------------------------------------------------------


def _run() -> Schema:
    ended = _record(
        started=_maybe({"type": "string", "format": "date-time"}),
        ended=_maybe({"type": "string", "format": "date-time"}),
        status={"enum": ["finished", "failed", "interrupted", "unfinished"]},
        exit_code=_maybe({"type": "integer"}),
        reason=TEXT,
        seconds=NUMBER,
    )
    named = dict.fromkeys(("id", "name", "title", "version", "digest"), TEXT)
    known = named | {"resumed": COUNT, "plan": {"description": "The compiled plan."}}
    return ended | {"properties": {**known, **ended["properties"]}}


def _stage(made: _Definitions) -> Schema:
    return _record(
        id=TEXT,
        kind={"enum": ["", "populate", "ladder", "search", "sql", "reset", "pause"]},
        outcome=TEXT,
        seconds=NUMBER,
        metrics=TREE,
        rungs=_list(_record(threads=COUNT, metrics=TREE, iterations=_list(TEXT), excluded=_list(TEXT))),
        knee=_maybe(_knee()),
        iterations=_list(made.of(IterationFinished)),
        voided=_list(made.of(IterationVoided)),
        populated=_list(made.of(PopulateFinished)),
        probes=_list(made.of(ProbeFinished)),
        search=_maybe(made.of(SearchFinished)),
        cut=_maybe(made.of(LadderCut)),
    )


def _knee() -> Schema:
    none = _record(threads={"type": "null"}, reason=TEXT)
    return {"anyOf": [_record(threads=COUNT, lower=NUMBER, upper=NUMBER, distance=NUMBER), none]}


def _environment(made: _Definitions) -> Schema:
    return _record(
        host=TEXT,
        system=_maybe(TEXT),
        digest=TEXT,
        facts={"type": "object"},
        drift=_list(made.of(Difference)),
        whole={"type": "boolean"},
    )


def _record(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _by_name(item: Schema) -> Schema:
    return {"type": "object", "additionalProperties": item}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


# ---- types -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Definitions:
    """Schemas of types; those of dataclasses are collected in `found` and referred to."""

    found: dict[str, Schema]

    def of(self, hint: Any) -> Schema:
        """The schema of a value as `plain.to_plain` gives it. TypeError for a type that it does not know."""
        if hint is Any:
            return {}
        if hint in _SCALARS:
            return _SCALARS[hint]
        if hint is types.NoneType:
            return {"type": "null"}
        if dataclasses.is_dataclass(hint):
            return self._reference(hint)  # type: ignore[arg-type]
        return self._made_of(get_origin(hint), get_args(hint), hint)

    def _made_of(self, origin: Any, inside: tuple[Any, ...], hint: Any) -> Schema:
        if origin is Literal:
            return {"enum": list(inside)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in inside]}
        if origin in (tuple, list) and (origin is list or inside[1:] == (Ellipsis,)):
            return _list(self.of(inside[0]))
        if origin is tuple:
            exact = {"minItems": len(inside), "maxItems": len(inside)}
            return {"type": "array", "prefixItems": [self.of(one) for one in inside]} | exact
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return _by_name(self.of(inside[1]))
        raise TypeError(f"{hint} has no JSON Schema")

    def _reference(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.found:
            self.found[name] = {}
            hints = get_type_hints(kind)
            record = _record(**{field.name: self.of(hints[field.name]) for field in dataclasses.fields(kind)})
            first = (kind.__doc__ or "").strip().split("\n\n")[0]
            self.found[name] = {"description": " ".join(first.split())} | record
        return {"$ref": f"#/$defs/{name}"}
