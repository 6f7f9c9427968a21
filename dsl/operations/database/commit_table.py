"""The tuning of a run with tracked commits: the table in each system that such a load runs on, made before the first
stage and removed at the end, by the undo journal of the system's host in any case."""

from __future__ import annotations

from proveout.dsl import engines
from proveout.dsl.operations.database.sql import Sql
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search
from proveout.dsl.plan.tuning_step import Tuning
from proveout.dsl.workloads.commits import table_operation


def commit_tables(plan: Plan) -> tuple[Tuning, ...]:
    """A tuning for each system with a load whose commits are tracked, in the order of the stages."""
    found: dict[str, Tuning] = {}
    for stage in plan.stages:
        for part in parts(stage) if isinstance(stage, Ladder | Search) else ():
            system = plan.system(part.stage.target)
            dialect = engines.of(system.engine).dialect
            if not part.stage.tracked or system.name in found or dialect is None:
                continue
            found[system.name] = Tuning(
                name=f"the table of tracked commits in {system.name}",
                operation="sql",
                hosts=(system.host,),
                parameters=to_values(Sql.model_validate(table_operation(system.name, dialect))),
                system=system.name,
                where=stage.where,
            )
    return tuple(found.values())
