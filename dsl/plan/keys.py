"""The keys of a plan, as the fields of its records declare them.

A field that is made by `key` is written in plans: its type says how (`scalars`), the key its text, its name where that
is another one, and its bounds. From it come the reading with positions, the JSON Schema and the reference; the record
itself is the compiled plan's. A field without a key is made by the compiler.

Flow: `model_of(record)` is the strict pydantic model of what is written, `made(record, model)` the record with its
values. Pydantic is imported when a plan is read, and not in agents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.scalars import Form

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

OMITTED = {"omitted": "at its default"}
"""Metadata of fields that `plan.to_data` leaves out at their default."""

Names: TypeAlias = Literal["", "workload", "system", "systems", "hosts"]
Record = TypeVar("Record")

_MODELS: dict[tuple[object, ...], type[BaseModel]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key: its `text` for people, its `name` in plans where that is not the field's, and bounds as pydantic has them.

    `form`: the type of what is written, where it is not the field's. `may_be_null`: also null, for the default. `of`:
    it names a workload, a system, systems, or hosts by a selector, which the compiler resolves.
    """

    text: str = ""
    name: str = ""
    form: Any = None
    may_be_null: bool = False
    of: Names = ""
    bounds: Mapping[str, Any] = field(default_factory=dict)


def key(
    *default: Any,
    text: str = "",
    name: str = "",
    form: Any = None,
    may_be_null: bool = False,
    of: Names = "",
    omitted: bool = False,
    **bounds: Any,
) -> Any:
    """A field that plans write; without a `default` it is required. `omitted`: left out of the canonical form at its
    default, so that plans without it keep their digest."""
    made_key = Key(text=text, name=name, form=form, may_be_null=may_be_null, of=of, bounds=bounds)
    metadata = {"key": made_key, **(OMITTED if omitted else {})}
    return field(default=default[0], metadata=metadata) if default else field(metadata=metadata)


class Element:
    """A record with keys; within others it is read by its model."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic import AfterValidator  # noqa: PLC0415 -- not loaded in agents

        return handler.generate_schema(Annotated[model_of(cls), AfterValidator(lambda model: made(cls, model))])


def model_of(
    record: type, name: str = "", base: type[BaseModel] | None = None, more: type[BaseModel] | None = None
) -> type[BaseModel]:
    """The model of what is written for a record, with the keys of `base` before its own, and those of `more` after."""
    from pydantic import ConfigDict, create_model  # noqa: PLC0415 -- not loaded in agents

    made_of = (record, name, base, more)
    if made_of in _MODELS:
        return _MODELS[made_of]
    hints = get_type_hints(record, include_extras=True)
    fields: dict[str, Any] = {one.name: _field(one, hints[one.name]) for one in _keys(record)}
    if more is not None:
        fields |= {own: (info.annotation, info) for own, info in more.model_fields.items()}
    strict = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    options: dict[str, Any] = {"__config__": strict} if base is None else {"__base__": base}
    model = create_model(name or f"{record.__name__}Entry", __doc__=record.__doc__, **options, **fields)
    return _MODELS.setdefault(made_of, model)


def made(record: type[Record], model: BaseModel, **more: Any) -> Record:
    """The record with the values of a model, and `more`, which no key gives."""
    values = {one.name: getattr(model, one.name) for one in _keys(record)}
    given = {name: value for name, value in values.items() if value is not None}
    return record(**(given | more))


def names_in(record: Any) -> Iterator[tuple[str, str, Names]]:
    """(field, key in the plan, what it names) of each key of a record that names something."""
    for one in _keys(type(record)):
        key: Key = one.metadata["key"]
        if key.of:
            yield one.name, key.name or one.name, key.of


def _keys(record: type) -> Iterator[dataclasses.Field[Any]]:
    return (one for one in dataclasses.fields(record) if "key" in one.metadata)


def _field(one: dataclasses.Field[Any], hint: Any) -> tuple[Any, Any]:
    from pydantic import Field  # noqa: PLC0415 -- not loaded in agents

    key: Key = one.metadata["key"]
    form = hint if key.form is None else key.form
    options: dict[str, Any] = {"alias": key.name or None, "description": key.text or None}
    if isinstance(last := getattr(form, "__metadata__", (None,))[-1], Form):
        form = Annotated[(form.__origin__, *form.__metadata__[:-1], last.bounded(**key.bounds))]
    else:
        options |= key.bounds
    if key.may_be_null:
        return form | None, Field(None, **options)
    if one.default is dataclasses.MISSING:
        return form, Field(**options)
    if one.default == ():
        return form, Field(default_factory=tuple, **options)
    return form, Field(one.default, **options)
