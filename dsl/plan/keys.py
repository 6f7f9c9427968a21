"""The keys of a plan, as the fields of its records declare them.

A field that is made by `key` is written in plans: its type says how (`scalars`), the key its text, its name where that
is another one, and its bounds. From it come the reading with positions, the JSON Schema and the reference; the record
itself is the compiled plan's. A field without a key is made by the compiler.

Flow: `model_of(record)` is the strict pydantic model of what is written, `made(record, model)` the record with its
values. Pydantic is imported when a plan is read, and not in agents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import repeat
from types import MappingProxyType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from proveout.core.data_classes import field, record
from proveout.dsl.plan.scalars import BROKEN, Form

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

OMITTED = {"omitted": "at its default"}
"""Metadata of fields that `plan.to_data` leaves out at their default."""

Names: TypeAlias = Literal["", "workload", "system", "systems", "hosts"]
Record = TypeVar("Record")

_MODELS: dict[tuple[object, ...], type[BaseModel]] = {}


@record
class Key:
    """A key: its `text` for people, its `name` in plans where that is not the field's, and bounds as pydantic has them.

    `form`: the type of what is written, where it is not the field's. `may_be_null`: also null, for the default;
    `required`: plans write it, though the record has a default. `beyond`: values of the compiler's that are beyond the
    bounds. `of`: it names a workload, a system, systems, or hosts by a selector, which the compiler resolves.
    """

    text: str = ""
    name: str = ""
    form: Any = None
    may_be_null: bool = False
    required: bool = False
    beyond: tuple[Any, ...] = ()
    of: Names = ""
    bounds: Mapping[str, Any] = field(default_factory=dict)


def key(*default: Any, omitted: bool = False, **options: Any) -> Any:
    """A field that plans write, with the `options` of its `Key`, bounds among them; without a `default` it is required.
    `omitted`: left out of the canonical form at its default, so that plans without it keep their digest."""
    own = {name: options.pop(name) for name in Key.__dataclass_fields__ if name in options}
    return _declared(default, {"key": Key(**own, bounds=options), **(OMITTED if omitted else {})})


def keys_of(record: type, *default: Any, omitted: bool = False, **texts: str) -> Any:
    """A field that the compiler makes of keys beside those of its record: the keys of `record`. With `texts`, by field
    of `record`, each of them may be left out, and has that text."""
    return _declared(default, {"keys": (record, texts), **(OMITTED if omitted else {})})


def _declared(default: tuple[Any, ...], metadata: Mapping[str, Any]) -> Any:
    return field(default=default[0], metadata=metadata) if default else field(metadata=metadata)


class Element:
    """A record with keys; within others it is read by its model, which has the name `entry_name`."""

    __slots__ = ()
    entry_name: ClassVar[str] = ""

    @classmethod
    def of_written(cls, model: Any) -> Self:
        """The record of what is written."""
        return made(cls, model)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic import AfterValidator  # noqa: PLC0415 -- not loaded in agents

        return handler.generate_schema(Annotated[model_of(cls), AfterValidator(cls.of_written)])


def model_of(
    record: type, name: str = "", base: type[BaseModel] | None = None, more: type[BaseModel] | None = None
) -> type[BaseModel]:
    """The model of what is written for a record, with the keys of `base` before its own, and those of `more` after."""
    from pydantic import ConfigDict, create_model  # noqa: PLC0415 -- not loaded in agents

    made_of = (record, name, base, more)
    if made_of in _MODELS:
        return _MODELS[made_of]
    fields = dict(_fields(record))
    if more is not None:
        fields |= {own: (info.annotation, info) for own, info in more.model_fields.items()}
    strict = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    options: dict[str, Any] = {"__config__": strict} if base is None else {"__base__": base}
    own_name = getattr(record, "entry_name", "") or f"{record.__name__}Entry"
    model = create_model(name or own_name, __doc__=record.__doc__, **options, **fields)
    return _MODELS.setdefault(made_of, model)


def made(record: type[Record], model: BaseModel, **more: Any) -> Record:
    """The record with the values of a model, and `more`, which no key gives."""
    of_keys = {
        one.name: made(one.metadata["keys"][0], model)
        for one in dataclasses.fields(cast("type[Any]", record))
        if "keys" in one.metadata and one.name not in more
    }
    values = {one.name: getattr(model, one.name) for one in _keys(record)}
    given = {name: value for name, value in values.items() if value is not None}
    return record(**(given | of_keys | more))


def names_in(record: Any) -> Iterator[tuple[str, str, Names]]:
    """(field, key in the plan, what it names) of each key of a record that names something."""
    for one in _keys(type(record)):
        key: Key = one.metadata["key"]
        if key.of:
            yield one.name, key.name or one.name, key.of


Path: TypeAlias = tuple[str | int, ...]
Check: TypeAlias = Callable[[Any, Path], Iterator[tuple[Path, str]]]


def out_of_bounds(record: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """(path, what is wrong) of each value in a record, and in the records in it, that is beyond the bounds which its
    field declares. The default of a field that plans may leave out is within them."""
    for name, within, check in _checks(cast("Any", type(record))):
        value = getattr(record, name)
        if value not in within:
            yield from check(value, (*path, name))


@cache
def _checks(record: type) -> tuple[tuple[str, tuple[Any, ...], Check], ...]:
    """(name, values that are always within them, check) of the fields that have bounds, or records with some. Hosts are
    written by selectors, which have other bounds than their names."""
    hints = get_type_hints(record, include_extras=True)
    found = []
    for one in dataclasses.fields(record):
        key: Key = one.metadata.get("key", Key())
        check = None if key.of == "hosts" else _check(hints[one.name], key.bounds)
        if check is not None:
            default = () if key.required or one.default is dataclasses.MISSING else (one.default,)
            found.append((one.name, (*default, *key.beyond), check))
    return tuple(found)


def _check(hint: Any, bounds: Mapping[str, Any] = MappingProxyType({})) -> Check | None:
    forms = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Form)]
    limits = {name: limit for one in (*(one.bounds for one in forms), bounds) for name, limit in one.items()}
    broken = [(*BROKEN[name], limit) for name, limit in limits.items() if name in BROKEN]
    pair = next((one.pair for one in forms if one.pair is not None), None)
    plain = hint.__origin__ if get_origin(hint) is Annotated else hint
    if get_origin(plain) in (Union, UnionType):
        (plain, *others) = (one for one in get_args(plain) if one is not NoneType)
        inside = None if others else _check(plain)
    elif get_origin(plain) is tuple:
        inside = _check_items(pair, get_args(plain))
    else:
        inside = out_of_bounds if dataclasses.is_dataclass(plain) and _checks(cast("Any", plain)) else None
    if not broken and inside is None:
        return None

    def check(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
        if value is None:
            return
        wrong = next((text.format(limit) for beyond, text, limit in broken if beyond(value, limit)), "")
        wrong = wrong or ("holds a NUL" if broken and isinstance(value, str) and "\0" in value else "")
        if wrong:
            yield path, wrong
        elif inside is not None:
            yield from inside(value, path)

    return check


def _check_items(pair: Any, types: tuple[Any, ...]) -> Check | None:
    """The check of the items of a tuple of these types; `pair`: the type of items that are pairs."""
    checks = [_check(pair if pair and get_origin(one) is tuple else one) for one in types if one is not ...]
    if not any(checks):
        return None

    def check(values: Any, path: Path) -> Iterator[tuple[Path, str]]:
        each = repeat(checks[0]) if types[-1] is ... else checks
        for index, (value, one) in enumerate(zip(values, each, strict=False)):
            if one is not None:
                yield from one(value, (*path, index))

    return check


def _keys(record: type) -> Iterator[dataclasses.Field[Any]]:
    return (one for one in dataclasses.fields(record) if "key" in one.metadata)


def _fields(record: type, texts: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[str, Any]]:
    """(name, field of the model) of each key of a record, in order."""
    hints = get_type_hints(record, include_extras=True)
    for one in dataclasses.fields(record):
        if "keys" in one.metadata:
            yield from _fields(*one.metadata["keys"])
        elif "key" in one.metadata:
            key: Key = one.metadata["key"]
            if texts:
                key = dataclasses.replace(key, text=texts[one.name], may_be_null=True)
            yield one.name, _field(one, key, hints[one.name])


def _field(one: dataclasses.Field[Any], key: Key, hint: Any) -> tuple[Any, Any]:
    from pydantic import Field  # noqa: PLC0415 -- not loaded in agents

    form = hint if key.form is None else key.form
    options: dict[str, Any] = {"alias": key.name or None, "description": key.text or None}
    if isinstance(last := getattr(form, "__metadata__", (None,))[-1], Form):
        form = Annotated[(form.__origin__, *form.__metadata__[:-1], last.bounded(**key.bounds))]
    else:
        options |= key.bounds
    if key.may_be_null:
        return form | None, Field(None, **options)
    if key.required or one.default is dataclasses.MISSING:
        return form, Field(**options)
    if one.default == ():
        return form, Field(default_factory=tuple, **options)
    return form, Field(one.default, **options)
