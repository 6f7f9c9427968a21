"""The place in the plan's files of what a database or a host refuses. Pure.

A *subject* is a path in the plan: `stages.load.statements.0`, `stages.load.session.work_mem`, `captures.size.query`,
`workloads.own.statements.pay.find` (the statement `pay.find` of a workload), `systems.db`, `hosts.a`, `tuning.mem`,
`tuning.fast.sql.apply.0`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from proveout.core.errors import NOWHERE, Where
from proveout.dsl.plan.stages import Tune

if TYPE_CHECKING:
    from proveout.dsl.plan.plan import Plan
    from proveout.dsl.plan.tuning_step import Tuning


def position(plan: Plan, subject: str, engine: str = "", line: int = 0) -> Where:
    """Where a subject is, of a text the `line` in it, from 1; where it has no place of its own, that of its stage,
    workload, capture, system, host or tuning."""
    path = _path(plan, subject)
    alone = path.removesuffix(".0")  # the only one of a list may stand without it
    forms = (f"{path}.sql.{engine}", f"{path}.{engine}", f"{path}.sql.any", f"{path}.any", f"{path}.sql", path, alone)
    for tried in forms:
        for found in plan.positions:
            if found.path == tried:
                return _lower(found.where, line - 1) if line > 1 and found.literal else found.where
    return _whole(plan, path)


def _path(plan: Plan, subject: str) -> str:
    section, _, rest = subject.partition(".")
    name, _, below = rest.partition(".statements.")
    if section != "workloads" or not below:
        return subject
    transaction, _, statement = below.partition(".")
    return f"workloads.{name}.transactions.{transaction}.statements.{statement}"


def _whole(plan: Plan, path: str) -> Where:
    section, _, rest = path.partition(".")
    places = _places(plan, section)
    names = [name for name in places if rest == name or rest.startswith(f"{name}.")]
    return places[max(names, key=len)] if names else NOWHERE


def _places(plan: Plan, section: str) -> Mapping[str, Where]:
    """The places of the things of a section, by name."""
    if section == "stages":
        return {stage.id: stage.where for stage in plan.stages}
    if section == "tuning":
        return {one.name: one.where for one in all_tunings(plan)}
    if section == "workloads":
        return {one.name: one.where for one in plan.workloads}
    if section == "captures":
        return {one.name: one.where for one in plan.captures}
    if section == "systems":
        return {one.name: one.where for one in plan.systems}
    return {one.name: one.where for one in plan.hosts} if section == "hosts" else {}


def all_tunings(plan: Plan) -> Iterator[Tuning]:
    """The tunings of the run and of its `tune` stages."""
    yield from plan.tunings
    for stage in plan.stages:
        if isinstance(stage, Tune):
            yield from stage.tunings


def _lower(where: Where, lines: int) -> Where:
    return Where(file=where.file, line=where.line + lines, column=where.column)
