"""`database_copy`: let a run work on a copy of the data of a system that runs already, and put the original back at its
end. The compiler adds it for each system with `restore`; plans cannot name it.

Data flow: the compiled plan -> `copies_before` and `copies_after` (tunings that are applied before the first stage, or
after the populate of the system) -> the undo journal of the system's host, so that the original is put back however the
run ends -> `RestoreCopy` of a reset makes the copy again in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from proveout.dsl.operations.change import CopyData
from proveout.dsl.operations.database.sql_literals import SystemOperation
from proveout.dsl.operations.facts import CopyQuery, Facts, Query
from proveout.dsl.operations.operation import Step
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Populate
from proveout.dsl.plan.topology import System
from proveout.dsl.plan.tuning_step import Tuning

NAME = "database_copy"
LONGEST_S = 4 * 3600.0


class DatabaseCopy(SystemOperation):
    """Work on a copy of the database of a system: `{system: db}`."""

    implied: ClassVar[bool] = True
    privileges = (
        "in the database: CREATEDB, the ownership of the copied database, a connection to the database postgres or "
        "template1"
    )

    @property
    def longest_s(self) -> float:
        """The time limit of the copying of a large database."""
        return LONGEST_S

    def targets(self) -> Mapping[str, str]:
        """The copy of the system."""
        return {f"the data of {self.system}": "a copy"}

    def wanted(self) -> tuple[str, ...]:
        """The copy, and the original beside it."""
        return (
            f"{self.system}: its database is a copy, with owner, privileges and settings of the original",
            "  the original has the name NAME_proveout meanwhile; the copy takes as much disk as it does",
            "  no other sessions in the database; how long the copying takes is not known before the run",
        )

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """Whether the data can be copied."""
        return (CopyQuery(self.system),)

    def changes(self, facts: Facts) -> Step:
        """The copy, if there is none yet."""
        found = facts.copy(self.system)
        if found.made:
            return Step()
        if found.objections:
            return Step(refusals=found.objections)
        return Step(changes=(CopyData(system=self.system, text=found.text),))


def copies_before(plan: Plan) -> tuple[Tuning, ...]:
    """The copies that are made before the first stage: of systems that no stage populates."""
    return tuple(_tuning(system) for system in _copied(plan) if _populate_of(plan, system) is None)


def copies_after(plan: Plan, stage: Populate) -> tuple[Tuning, ...]:
    """The copies that are made after a populate, with the rows that it has loaded."""
    return tuple(_tuning(system) for system in _copied(plan) if _populate_of(plan, system) == stage)


def _copied(plan: Plan) -> tuple[System, ...]:
    return tuple(system for system in plan.systems if system.restore)


def _populate_of(plan: Plan, system: System) -> Populate | None:
    populates = (stage for stage in plan.stages if isinstance(stage, Populate) and system.name in stage.into)
    return next(populates, None)


def _tuning(system: System) -> Tuning:
    return Tuning(
        name=f"the copy of {system.name}",
        operation=NAME,
        hosts=(system.host,),
        parameters=to_values(DatabaseCopy(system=system.name)),
        system=system.name,
        where=system.where,
    )
