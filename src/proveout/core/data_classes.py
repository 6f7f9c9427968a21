"""Dataclasses that are cheaper to define and to copy.

`dataclass` compiles the methods of a class at their first use. The standard decorator compiles up to seven functions
when the class is defined, some 0.5 ms of CPU time: that was a third of the start of each process.

Flow: `dataclass(…)(cls)` lets the standard decorator collect the fields and make the slots, and adds `__repr__`,
`__eq__`, `__hash__`, `__setattr__` and `__delattr__` as closures over the names of the fields. `__init__` is a function
that puts the one of the standard decorator into its place when the first instance is made: later instances cost the
same as those of any dataclass.

A class that inherits from a dataclass, and one with an argument that is not below, is the standard decorator's alone.
`record` is the dataclass of most values: frozen, with slots, its fields given by name.

`dataclasses.fields`, `replace` and `asdict` work as for any dataclass, and a standard one may inherit from one of
these. Type checkers see the standard decorator.

`replace` copies frozen instances with some fields replaced, for states that change with each message.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

__all__ = ("dataclass", "field", "record", "replace")

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
    def record(cls: type[T]) -> type[T]: ...

else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, **more):
        """The decorator, with the arguments and the effects of `dataclasses.dataclass`."""

        def decorate(cls):
            if more or any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__):
                return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, **more)(cls)
            return _made(cls, frozen=frozen, slots=slots, kw_only=kw_only)

        return decorate if cls is None else decorate(cls)

    record = dataclass(frozen=True, slots=True, kw_only=True)


_KEPT = ("__annotations__", "__doc__", "__module__", "__post_init__")
"""The attributes of a class that its `__init__` depends on, beside the values of its fields."""


def _made(cls: Any, *, frozen: bool, slots: bool, kw_only: bool) -> type:
    """The class with its methods."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # without it the standard decorator takes one of the signature
    own = dict(cls.__dict__)
    skeleton = {name: own[name] for name in (*own.get("__annotations__", ()), *_KEPT) if name in own}
    skeleton |= {name: copy.copy(value) for name, value in skeleton.items() if isinstance(value, dataclasses.Field)}
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    parameters = cls.__dataclass_params__
    parameters.init = parameters.repr = parameters.eq = True
    parameters.frozen = frozen  # what classes that inherit from this one must be
    methods: dict[str, Any] = {"__repr__": _repr, **_comparisons(cls, own, frozen=frozen)}
    if frozen:
        methods |= _refusals(cls)
    if frozen and slots:
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if "__init__" not in own:
        methods["__init__"] = _first_init(cls, skeleton, {"frozen": frozen, "slots": slots, "kw_only": kw_only})
    for name, method in methods.items():
        if name not in own or name == "__hash__":
            setattr(cls, name, method)
    return cls  # type: ignore[no-any-return]


def _first_init(cls: type, skeleton: Mapping[str, Any], arguments: Mapping[str, bool]) -> Callable[..., None]:
    """The `__init__` for the first instance: that of the standard decorator, from a class with the same fields, takes
    its place."""

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        standard = dataclasses.dataclass(repr=False, eq=False, **arguments)
        made: Any = standard(type(cls.__name__, (), {**skeleton, "__qualname__": cls.__qualname__}))
        type.__setattr__(cls, "__init__", made.__init__)
        made.__init__(self, *args, **kwargs)

    return __init__


def _comparisons(cls: Any, own: Mapping[str, Any], *, frozen: bool) -> dict[str, Any]:
    """`__eq__` and `__hash__` by the values of the fields, in their order; no `__hash__` where instances change."""
    compared = [one for one in dataclasses.fields(cls) if one.compare]
    values = _values(tuple(one.name for one in compared))
    hashed = _values(
        tuple(one.name for one in dataclasses.fields(cls) if (one.compare if one.hash is None else one.hash))
    )

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    if "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own):
        return {"__eq__": __eq__}
    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _values(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _refusals(cls: Any) -> dict[str, Any]:
    """`__setattr__` and `__delattr__` of a frozen class."""
    names = frozenset(one.name for one in dataclasses.fields(cls))

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


def replace(record: T, /, **changes: Any) -> T:
    """`dataclasses.replace` for classes without `slots` and `__post_init__`: it copies the fields in one step, without
    `__init__`, in a fifth of the time for twenty fields. TypeError for a field that the class does not have.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int
    >>> replace(Point(1, 2), y=3)
    Point(x=1, y=3)
    """
    kind, values = type(record), vars(record)
    if not changes.keys() <= values.keys():
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(changes.keys() - values.keys()))}")
    made: T = object.__new__(kind)
    vars(made).update(values, **changes)
    return made
