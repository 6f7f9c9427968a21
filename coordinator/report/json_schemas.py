"""Parts of JSON Schemas, and schemas of dataclasses by pydantic, for the schemas of results and of comparisons.

Data flow: a dataclass -> `Definitions.of` -> the schema of its value as `json_data.to_plain` gives it; dataclasses are
collected as `$defs`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from proveout.core.data_classes import dataclass

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "null"]}
"""A number that is unknown or not finite is null."""
COUNT: Schema = {"type": "integer", "minimum": 0}


def closed(schema: Any) -> Any:
    """The schema with every record closed to further fields, so that a test finds a field that is not in the schema."""
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
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


# ---- types -------------------------------------------------------------------------------------------------------


class _Generator(GenerateJsonSchema):
    """pydantic's schemas for values as `json_data.to_plain` gives them: every field is there, and a number that is not
    finite is null.
    """

    def float_schema(self, schema: Any) -> Schema:
        return dict(NUMBER)

    def default_schema(self, schema: Any) -> Schema:
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def dataclass_schema(self, schema: Any) -> Schema:
        made = super().dataclass_schema(schema)
        first = (schema["cls"].__doc__ or "").strip().split("\n\n")[0]
        return {"description": " ".join(first.split())} | {
            name: value for name, value in made.items() if name not in ("title", "description")
        }


@dataclass(frozen=True, slots=True)
class Definitions:
    """Schemas of types; those of dataclasses are collected in `found` and referred to."""

    found: dict[str, Schema]

    def of(self, kind: type) -> Schema:
        """A reference to the schema of a dataclass."""
        made = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Generator)
        self.found.update(made.pop("$defs", {}))
        self.found[kind.__name__] = made
        return {"$ref": f"#/$defs/{kind.__name__}"}
