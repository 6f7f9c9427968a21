"""A program's workload for the coordinator: one transaction, and no population."""

from __future__ import annotations

from typing import Any, NoReturn

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.base import Invariant, Population, TransactionType
from proveout.dsl.workloads.program.parameters import TRANSACTION, Program


def _body(_: Any) -> NoReturn:
    raise AssertionError  # the program runs its own transactions


_NOTHING = Population(units=0, tables=(), before={}, after={}, drop={}, expected={})


@dataclass(frozen=True)
class ProgramWorkload:
    """A `base.WorkloadKind` whose load an outside program makes."""

    parameters: Program
    transactions: tuple[TransactionType, ...] = (
        TransactionType(name=TRANSACTION, weight=1.0, body=_body, statements=()),
    )
    population: Population = _NOTHING
    invariants: tuple[Invariant, ...] = ()

    def keys(self, stream: int) -> None:
        """The program draws its own keys."""


def build(parameters: Program) -> ProgramWorkload:
    """The workload of these parameters."""
    return ProgramWorkload(parameters)
