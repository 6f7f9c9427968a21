"""Values that every part of a compiled plan uses: plan values, positions in a plan file, expressions, and workloads.

`Where` fields hold the file, line and column of a part, for messages; the digest of a plan leaves them out, so that
moving a plan to another folder or adding a comment does not change its digest.
"""

from __future__ import annotations

from typing import TypeAlias

from proveout.core.data_classes import dataclass
from proveout.core.errors import NOWHERE, Where

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A CEL expression that waits for results; `needs` are the ids of the stages whose results it reads."""

    text: str
    needs: tuple[str, ...] = ()
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: a kind of `dsl.workloads` with its validated parameters, sorted by name."""

    name: str
    kind: str
    parameters: tuple[tuple[str, Value], ...]
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPosition:
    """Where a text begins that a database judges, such as a statement: its `path` in the plan.

    `literal`: the lines of the text are lines of the file.
    """

    path: str
    where: Where
    literal: bool = False
