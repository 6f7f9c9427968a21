"""The capture `statements`: whether a system that proveout starts has it, and the names `statements.…` of a stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proveout.dsl import engines, metrics
from proveout.dsl.expr.name_types import Estimate, Group, Number, Shape
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.host_rules import Objection


def provisioned_problems(kind: str, system: System) -> Iterator[Objection]:
    """A capture of statements of a server that proveout starts, which needs the view and its setting."""
    found = engines.of(system.engine)
    if kind != "statements" or not found.statements or system.provision is None:
        return
    if found.statement_setting is None:
        message = f"the {found.title} that proveout starts has no {found.statements}"
        yield Objection(message=message, way_out="a system with a dsn, whose server has it")
    elif dict(system.settings).get(found.statement_setting[0], "").lower() not in ("on", "1"):
        name, value = found.statement_setting
        message = f"{found.statements} of `{system.name}` is off"
        yield Objection(message=message, way_out=f'settings of the system: {{{name}: "{value}"}}')


def statements(leaf: Number | Estimate) -> Group:
    """The group `statements`: the numbers of all statements, and those of each, which the plan does not know."""
    total: Mapping[str, Shape] = dict.fromkeys(metrics.STATEMENTS, leaf)
    one = Group(what="a statement", members=dict.fromkeys(metrics.STATEMENT, leaf))
    return Group(what="the statements", members={"total": Group(what="all statements", members=total)}, other=one)
