"""Strict models as the plain tuples of the compiled plan, and back.

Data flow: a validated model -> `to_values` -> `(name, value)` pairs in `plan.Workload.parameters` and
`plan.Tuning.parameters`, which cross the wire and are in the digest -> `from_values` -> an equal model.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from proveout.dsl.plan.topology import Value

Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """No conversions, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def to_values(model: BaseModel) -> tuple[tuple[str, Value], ...]:
    """A validated model as pairs: every field, defaults too, sorted; mappings as (name, value) pairs."""
    return tuple(sorted((name, _value(getattr(model, name))) for name in type(model).model_fields))


def from_values(model: type[Model], values: tuple[tuple[str, Value], ...]) -> Model:
    """The model whose values `to_values` gave. Raises pydantic.ValidationError for other values."""
    return model.model_validate({name: _read(_annotation(model, name), value) for name, value in values})


def _value(value: Any) -> Value:
    if isinstance(value, BaseModel):
        fields = [(field.alias or name, getattr(value, name)) for name, field in type(value).model_fields.items()]
        return tuple((name, _value(item)) for name, item in fields if item is not None)
    if isinstance(value, Mapping):
        return tuple((name, _value(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_value(item) for item in value)
    plain: Value = value
    return plain


def _annotation(model: type[BaseModel], name: str) -> Any:
    """The declared type of a field (by its alias); Any for an unknown field, which the model refuses."""
    fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return fields.get(name, Any)


def _read(annotation: Any, value: Any) -> Any:
    """A value as a plan would give it: mappings and models come back from their pairs, lists from tuples and tuples
    from lists."""
    if get_origin(annotation) is Annotated:
        return _read(get_args(annotation)[0], value)
    if get_origin(annotation) in (Union, UnionType):
        options = [_plain(option) for option in get_args(annotation) if option is not type(None)]
        models = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        of = options if len(options) == 1 else models
        return _read(of[0], value) if len(of) == 1 and (of is options or isinstance(value, (list, tuple))) else value
    if not isinstance(value, (list, tuple)):
        return value
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {pair[0]: _read(_annotation(annotation, pair[0]), pair[1]) for pair in value}
    return _read_many(get_origin(annotation), get_args(annotation), value)


def _plain(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _read_many(origin: Any, of: tuple[Any, ...], value: list[Any] | tuple[Any, ...]) -> Any:
    if origin is dict:
        return {pair[0]: _read(of[1], pair[1]) for pair in value}
    if origin is list:
        return [_read(of[0], item) for item in value]
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)
