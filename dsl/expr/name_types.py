"""The types of the names that expressions can read: numbers, estimates, booleans, and groups of names.

Data flow: `compile.result_names` makes `Group` trees of a plan's stages -> `expr.checking` resolves and types an
expression in them, and `sample` makes data of the same shape for a trial evaluation. `Group.absent` holds names that a
stage would have if it captured more, with the reason, so that a message can say "no lag capture" instead of "unknown
name".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from proveout.core.data_classes import dataclass, field
from proveout.dsl import metrics
from proveout.dsl.expr.evaluation import RUNGS
from proveout.dsl.plan.matrix_labels import Label


@dataclass(frozen=True, slots=True)
class Number:
    """A plain number."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over repeats, with its interval."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Names and their types; `absent` are names that do not exist here, with (reason, way out); `rungs` makes it a
    ladder.

    `axes` makes it a matrix: the labels to choose by, and `cells` the (stage id, its shape) of each combination of
    labels. `other` is the type of every name that is not among the members: names that the plan does not know.
    `broken` are names that exist and whose types are not known, because what they name has a problem of its own;
    `doubtful` those (and "", of the names themselves) that may have what is in `absent`.
    """

    what: str
    members: Mapping[str, Shape]
    absent: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    rungs: tuple[int, ...] = ()
    rung: Group | None = None
    axes: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    cells: Mapping[tuple[tuple[str, Label], ...], tuple[str, Shape]] = field(default_factory=dict)
    other: Shape | None = None
    broken: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()


Shape: TypeAlias = Number | Estimate | Boolean | Group

NUMBER, ESTIMATE, BOOLEAN = Number(), Estimate(), Boolean()

ESTIMATE_MEMBERS: Mapping[str, Shape] = dict.fromkeys(metrics.ESTIMATE, NUMBER)


def sample(shape: Shape, path: str = "") -> Any:
    """Data of that shape, made as it is read. All numbers differ a little, so that no difference of two of them is
    zero."""
    match shape:
        case Number():
            return 1.0 + zlib.crc32(path.encode()) / 2**34
        case Boolean():
            return True
        case Estimate():
            return {name: sample(NUMBER, f"{path}.{name}") for name in metrics.ESTIMATE}
        case Group():
            return _Sample(shape, path)


class _Sample(Mapping[str, Any]):
    """A group as the mapping that an expression would find."""

    def __init__(self, group: Group, path: str) -> None:
        self._members: dict[str, Shape] = dict(group.members)
        self._path = path
        self._other = group.other
        if group.rung is not None:
            rungs = dict.fromkeys((str(threads) for threads in group.rungs), group.rung)
            self._members[RUNGS] = Group(what="rungs", members=rungs)

    def __getitem__(self, name: str) -> Any:
        return sample(self._members.get(name, self._other) or self._members[name], f"{self._path}.{name}")

    def __contains__(self, name: object) -> bool:
        return name in self._members or self._other is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
