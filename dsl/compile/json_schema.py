"""The plan format as JSON Schema, generated from the models: what editors complete and check while one types.

Three things are added to what pydantic gives: wherever a value is not free text, `${…}` may stand for it or be in it; a
number may be written `20_000` (text to the YAML 1.2 readers that editors use); and defaults are as plans write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from proveout.dsl.compile.matrix import STEPS, TAKEN_BACK
from proveout.dsl.compile.tuning import TuningEntry
from proveout.dsl.operations.table import FAULT_KEYS, OPERATIONS, TUNING_KEYS
from proveout.dsl.plan.scalars import NAME_PATTERN
from proveout.dsl.schema import models as schema
from proveout.dsl.schema import stage_models
from proveout.dsl.schema.parameters import FORMATS
from proveout.dsl.schema.stage_models import FaultEntry
from proveout.dsl.source.includes import BY_NAME, LISTED
from proveout.dsl.workloads.kinds import BUILT_IN, built_in

IDENTIFIER = "https://json-schema.org/draft/2020-12/schema"
TEMPLATE = {"type": "string", "pattern": r"\$\{.+\}", "description": "${params.name}"}
GROUPED = {"type": "string", "pattern": r"^-?\d+(_\d+)+(\.\d+)?$", "description": "a number, as 20_000"}

OTHER_KIND = {
    "type": "object",
    "properties": {"kind": {"type": "string", "not": {"enum": [*BUILT_IN]}}},
    "required": ["kind"],
    "description": "a kind of another package",
}
NOTHING = {"type": "null", "description": "drops what the plan that is extended has"}

_REFERENCE = re.compile(r'"#/\$defs/([^"]+)"')
_NOT_TEXT = ("integer", "number", "boolean", "array")


def schema_json() -> str:
    """The JSON Schema of a plan file as text, the same at every call."""
    models: list[type[BaseModel]] = [schema.Document, *stage_models.STAGES.values(), *_workloads()]
    models += [*_tunings(), *_changes(), _fault()]
    _, top = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    whole = (schema.Document.__name__, schema.Param.__name__)
    definitions = {name: _tidy(value, templates=name not in whole) for name, value in top["$defs"].items()}
    document = definitions.pop(schema.Document.__name__)
    document["properties"]["stages"]["items"] = {"anyOf": [_stage(kind) for kind in stage_models.STAGES]}
    workloads = {"anyOf": [*map(_ref, _workloads()), OTHER_KIND]}
    document["properties"]["workloads"]["patternProperties"] = {NAME_PATTERN: workloads}
    for side, kinds in (("before", (*STEPS, *TAKEN_BACK)), ("after", STEPS)):
        steps = {"anyOf": [_stage(kind) for kind in kinds]}
        _array(definitions[stage_models.LadderEntry.__name__]["properties"][side])["items"] = steps
    tunings = _one_of(_tunings())
    document["properties"]["tuning"]["items"] = tunings
    definitions[stage_models.TuneEntry.__name__]["properties"]["tuning"]["items"] = tunings
    faults = definitions[stage_models.LadderEntry.__name__]["properties"]["faults"]
    _array(faults)["items"] = _ref(_fault())
    _array(definitions[_fault().__name__]["properties"]["tuning"])["items"] = _one_of([*_tunings(), *_changes()])
    _let_drop(document["properties"], definitions[schema.Topology.__name__]["properties"])
    del document["required"]  # a file without stages is an include or an inventory
    document["if"] = {"required": ["stages"]}
    document["then"] = {"required": ["proveout", "name"]}
    found: set[str] = set()  # the definitions that the document refers to, itself or through others
    left = [json.dumps(document)]
    while left:
        for name in _REFERENCE.findall(left.pop()):
            if name not in found:
                found.add(name)
                left.append(json.dumps(definitions[name]))
    title = {"$schema": IDENTIFIER, "title": "proveout plan, format version 1"}
    definitions = {name: value for name, value in definitions.items() if name in found}
    return json.dumps({**title, **document, "$defs": definitions}, indent=2, ensure_ascii=False) + "\n"


def _let_drop(sections: dict[str, Any], topology: dict[str, Any]) -> None:
    """Let a plan that extends another drop entries of its sections by null."""
    for section in (*(sections[name] for name in BY_NAME), *topology.values()):
        section["patternProperties"] = {
            pattern: {"anyOf": [entry, NOTHING]} for pattern, entry in section["patternProperties"].items()
        }
    dropped = {"type": "object", "additionalProperties": NOTHING, "minProperties": 1}
    for name in LISTED:
        items = {"anyOf": [sections[name]["items"], {**dropped, "maxProperties": 1}]}
        sections[name] = _or(sections[name] | {"items": items}, dropped)
    for name in (*BY_NAME, "tuning", "verdicts", "published", "report", "topology"):
        sections[name] = _or(sections[name], NOTHING)


def _or(section: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The section, or something else in its place; its description stays outside."""
    kept = {key: section[key] for key in ("description",) if key in section}
    whole = {key: value for key, value in section.items() if key not in kept}
    return {**kept, "anyOf": [*(whole["anyOf"] if set(whole) == {"anyOf"} else [whole]), other]}


def _workloads() -> list[type[BaseModel]]:
    fields: dict[str, Any] = {kind: (Literal[kind], ...) for kind in BUILT_IN}
    return [
        create_model(f"{kind.capitalize()}Workload", __base__=built_in(kind).parameters, kind=fields[kind])
        for kind in BUILT_IN
    ]


def _tunings() -> list[type[BaseModel]]:
    return [_change(kind, "Tuning", TUNING_KEYS) for kind in TUNING_KEYS]


@cache
def _changes() -> list[type[BaseModel]]:
    return [_change(kind, "Fault", FAULT_KEYS) for kind, name in FAULT_KEYS.items() if OPERATIONS[name].of_fault]


def _change(kind: str, of: str, keys: Mapping[str, str]) -> type[BaseModel]:
    model: Any = OPERATIONS[keys[kind]]
    fields: dict[str, Any] = {kind: (model, ...)}
    name = "".join(word.capitalize() for word in kind.split("_"))
    return create_model(f"{name}{of}", __base__=TuningEntry, __doc__=model.__doc__, **fields)


@cache
def _fault() -> type[BaseModel]:
    """The model of a fault: its own keys, and the operations, of which it has one."""
    fields: dict[str, Any] = {kind: (OPERATIONS[name] | None, None) for kind, name in FAULT_KEYS.items()}
    return create_model("Fault", __base__=FaultEntry, __doc__=FaultEntry.__doc__, **fields)


def _array(node: dict[str, Any]) -> dict[str, Any]:
    """The option of a value that is a list."""
    found: dict[str, Any] = next(option for option in node["anyOf"] if option.get("type") == "array")
    return found


def _ref(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{model.__name__}"}


def _one_of(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    return {"anyOf": [_ref(model) for model in models]}


def _stage(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {kind: _ref(stage_models.STAGES[kind])},
        "required": [kind],
        "additionalProperties": False,
    }


def _tidy(node: Any, *, templates: bool) -> Any:
    """The schema without generated titles, closed, and with `${…}` allowed for every value that is not free text."""
    if isinstance(node, list):
        return [_tidy(item, templates=templates) for item in node]
    if not isinstance(node, dict):
        return node
    result = {
        key: _tidy(value, templates=templates)
        for key, value in node.items()
        if key not in ("properties", "title", "kind")
    }
    if isinstance(result.get("description"), str):
        result["description"] = " ".join(result["description"].split("\n"))  # a docstring's lines
    if "patternProperties" in result:
        result["additionalProperties"] = False
    if "properties" in node:
        result["properties"] = {name: _value(value, templates) for name, value in node["properties"].items()}
    if "items" in node:
        result["items"] = _value(node["items"], templates)
    if "prefixItems" in node:
        result["prefixItems"] = [_value(item, templates) for item in node["prefixItems"]]
    return result


def _value(node: Any, templates: bool) -> Any:
    """The schema of one value: ints in groups of digits, and a template in its place."""
    kind = next((one["kind"] for one in _with_items(_options(node)) if "kind" in one), "")
    node = _tidy(node, templates=templates)
    options, default = _options(node), node.get("default")
    values = default if isinstance(default, list) else [default]
    if kind and default is not None:
        values = [one if isinstance(one, str) else FORMATS[kind](one) for one in values if one is not None]
        node["default"] = values if any(option.get("type") == "array" for option in options) else values[0]
    typed = _is_typed([one for one in _with_items(options) if one not in (GROUPED, TEMPLATE)])
    if default is None or isinstance(default, dict) or (typed and not all(isinstance(one, str) for one in values)):
        node.pop("default", None)  # no default, or one that a plan cannot write
    extra = [GROUPED] if any(option.get("type") in ("integer", "number") for option in options) else []
    if templates and (
        any(option.get("type") in _NOT_TEXT or "enum" in option for option in options) or _is_typed(options)
    ):
        extra.append(TEMPLATE)
    if not extra:
        return node
    outer = {key: node[key] for key in ("description", "default") if key in node}
    inner = [{key: value for key, value in option.items() if key not in outer} for option in node.get("anyOf", [node])]
    return {**outer, "anyOf": [*inner, *extra]}


def _options(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas that a value may have, also those of a union in a union."""
    parts = node.get("anyOf") or node.get("oneOf")
    return [found for part in parts for found in _options(part)] if parts else [node]


def _with_items(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Schemas, and those of the items of lists among them."""
    return [*options, *(one for option in options for one in _options(option.get("items", {})))]


def _is_typed(options: list[dict[str, Any]]) -> bool:
    return any("pattern" in option for option in options)
