"""JSON Schemas from types: what the schemas of results and of comparisons are put together from.

Data flow: a type hint -> `Definitions.of` -> the schema of its value as `plain.to_plain` gives it; dataclasses are collected as `$defs`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "null"]}
"""A number that is not known, or not finite, is null."""
COUNT: Schema = {"type": "integer", "minimum": 0}
_SCALARS: Mapping[Any, Schema] = {str: TEXT, bool: {"type": "boolean"}, int: {"type": "integer"}, float: NUMBER}


def closed(schema: Any) -> Any:
    """The schema with every record closed to fields that it does not know: holds writers to it."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: closed(item) for name, item in schema.items()}
    return inside | ({"additionalProperties": False} if "required" in schema else {})


def record(**fields: Schema) -> Schema:
    """An object of which all these fields are there."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def list_of(item: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": item}


def by_name(item: Schema) -> Schema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": item}


def maybe(schema: Schema) -> Schema:
    """That, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


# ---- types -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Definitions:
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
            return list_of(self.of(inside[0]))
        if origin is tuple:
            exact = {"minItems": len(inside), "maxItems": len(inside)}
            return {"type": "array", "prefixItems": [self.of(one) for one in inside]} | exact
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return by_name(self.of(inside[1]))
        raise TypeError(f"{hint} has no JSON Schema")

    def _reference(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.found:
            self.found[name] = {}
            hints = get_type_hints(kind)
            made = record(**{field.name: self.of(hints[field.name]) for field in dataclasses.fields(kind)})
            first = (kind.__doc__ or "").strip().split("\n\n")[0]
            self.found[name] = {"description": " ".join(first.split())} | made
        return {"$ref": f"#/$defs/{name}"}
