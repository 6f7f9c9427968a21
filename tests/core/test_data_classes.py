"""Dataclasses that compile their methods at the first use behave as those of the standard decorator; copies of records
with some fields replaced."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from proveout.coordinator.schedule.progress import RunProgress
from proveout.core import data_classes
from proveout.core.data_classes import replace

DECORATORS = {"standard": dataclasses.dataclass, "lazy": data_classes.dataclass}
ARGUMENTS: tuple[dict[str, bool], ...] = (
    {},
    {"slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"eq": False},
)


def made(decorator: Any, **arguments: bool) -> Any:
    @decorator(**arguments)
    class Point:
        """A place."""

        x: int
        y: float = field(default=1.5, repr=False)
        tags: list[str] = field(default_factory=list, compare=False)
        sum: float = field(init=False, default=0.0)
        KIND: ClassVar[str] = "point"

        def __post_init__(self) -> None:
            object.__setattr__(self, "sum", self.x + self.y)

    return Point


def outcome(of: Callable[[], Any]) -> Any:
    """A value, or the kind and text of an error."""
    try:
        return of()
    except Exception as error:
        return type(error), str(error).replace(made.__qualname__, "")


def observed(cls: Any) -> dict[str, Any]:
    """The behaviour of a class and of its instances."""
    one, same, other = cls(x=1), cls(x=1, tags=["a"]), cls(x=2)

    def assign(name: str) -> Callable[[], None]:
        return lambda: setattr(cls(x=1), name, 5)

    return {
        "text": repr(one),
        "equal": (one == same, one == other, one != other, one == 1),
        "hash": outcome(lambda: hash(one) == hash(same)),
        "signature": str(inspect.signature(cls)),
        "of init": str(inspect.signature(cls.__init__)),
        "fields": [(each.name, each.init, each.repr, each.compare, each.kw_only) for each in dataclasses.fields(cls)],
        "data": dataclasses.asdict(same),
        "copies": (copy.copy(one) == one, copy.deepcopy(same).tags, dataclasses.replace(one, x=2) == other),
        "parameters": repr(cls.__dataclass_params__),
        "slots": getattr(cls, "__slots__", None),
        "matched": cls.__match_args__,
        "documented": cls.__doc__,
        "names": (cls.__name__, cls.__qualname__, cls.__module__, cls.KIND),
        "missing": outcome(cls),
        "too many": outcome(lambda: cls(x=1, z=2)),
        "assigned": outcome(assign("x")),
        "new": outcome(assign("z")),
        "deleted": outcome(lambda: delattr(one, "x")),
        "state": outcome(one.__getstate__) if hasattr(cls, "__setstate__") else None,
    }


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda one: " ".join(one) or "none")
def test_a_class_is_as_one_of_the_standard_decorator(arguments: dict[str, bool]) -> None:
    standard, lazy = (observed(made(decorator, **arguments)) for decorator in DECORATORS.values())
    if arguments.get("frozen") and arguments.get("slots"):  # the standard one raises a TypeError about `super` in 3.11
        standard["new"] = (dataclasses.FrozenInstanceError, "cannot assign to field 'z'")
    assert lazy == standard


@dataclasses.dataclass(frozen=True)
class Standard(RunProgress):
    more: int = 0


def test_a_standard_dataclass_inherits_from_one_and_instances_are_pickled_and_copied() -> None:
    assert "__signature__" in vars(RunProgress)
    assert set(inspect.signature(Standard).parameters) == {*inspect.signature(RunProgress).parameters, "more"}
    assert Standard(more=1) != Standard()
    before = RunProgress(cores={"db1": 2})
    assert pickle.loads(pickle.dumps(before)) == before
    after = replace(before, without=frozenset({"db1"}))
    assert after == dataclasses.replace(before, without=frozenset({"db1"})) != before
    with pytest.raises(TypeError, match="RunProgress has no field nowhere"):
        replace(before, nowhere=1)
