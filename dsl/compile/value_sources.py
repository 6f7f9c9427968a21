"""Stages and captures of kind sql and command, and the `metrics:` of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from proveout.core.errors import Where
from proveout.dsl import engines
from proveout.dsl.compile.prometheus_captures import one_host
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.plan.commands import Command, OutputRows
from proveout.dsl.plan.measured_values import NO_WAIT, MeasuredValue, WaitUntil
from proveout.dsl.plan.stages import CommandRun, Sql
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.dsl.rules import value_rules
from proveout.dsl.rules.command_rules import command_problems
from proveout.dsl.rules.value_rules import STAGE_NUMBERS
from proveout.dsl.schema.models import CaptureEntry, OutputEntry, ValueEntry
from proveout.dsl.schema.stage_models import CommandEntry, SqlEntry, WaitEntry
from proveout.dsl.source.nodes import Map, Scalar

Report: TypeAlias = Callable[..., None]
"""`problem(message, *path, hint=…)` at a key of the stage or the capture."""


def measured_values(
    entries: Mapping[str, ValueEntry], problem: Report, *, sampled: bool, taken: Sequence[str] = ()
) -> tuple[MeasuredValue, ...] | None:
    """The values of `metrics:`; None when one is wrong. `sampled`: of a capture; `taken`: names that are not free."""
    found = [_value(name, entry) for name, entry in entries.items()]
    wrong = False
    for value, entry in zip(found, entries.values(), strict=True):
        for objection in value_rules.value_problems(value, taken):
            problem(objection.message, "metrics", value.name, *objection.at, hint=objection.way_out)
            wrong = True
        if not sampled and "as_" in entry.model_fields_set:
            message = "`as` is of captures: a stage reads each number once a repeat"
            problem(message, "metrics", value.name, "as", hint="leave it away")
            wrong = True
    return None if wrong else tuple(found)


def _value(name: str, entry: ValueEntry) -> MeasuredValue:
    return MeasuredValue(
        name=name,
        column=entry.column or name,
        where=tuple(sorted(entry.where.items())),
        kind=entry.as_,
        take=entry.take,
    )


def query_capture(
    scope: Scope, named: tuple[Scalar, Map], entry: CaptureEntry, path: str, system: str
) -> Capture | None:
    """A capture of kind sql of a system; `named` is its name and its body."""
    key, node = named

    def problem(message: str, *at: str | int, hint: str = "") -> None:
        where: Where = where_of(node, *at) if node.get(str(at[0])) is not None else key.where
        scope.problems.add(where, message, key=".".join([path, *map(str, at)]), hint=hint)

    if entry.query is None:
        problem("an sql capture needs a `query`", "query", hint="query: SELECT count(*) AS sessions FROM …")
    if not isinstance(entry.metrics, dict):
        problem("an sql capture needs `metrics`, by name", "metrics", hint="metrics: {sessions: {column: 1}}")
        return None
    values = measured_values(entry.metrics, problem, sampled=True)
    if values is None or entry.query is None:
        return None
    return Capture(
        name=key.text,
        kind="sql",
        every_s=entry.every,
        system=system,
        query=entry.query,
        values=values,
        where=key.where,
    )


def sql_stage(entry: SqlEntry, stage_id: str, body: Map, system: System | None, problem: Report) -> Sql | None:
    """The compiled stage; None when its system or its metrics do not compile."""
    if not (entry.statements or entry.wait_until or entry.query):
        problem("this sql stage does nothing", hint="give it `statements`, `wait_until`, or `query` and `metrics`")
    if (entry.query is None) != (entry.metrics is None):
        lacking = "metrics" if entry.metrics is None else "query"
        problem(
            f"`query` and `metrics` belong together; `{lacking}` is missing", hint="metrics: {max_iops: {column: 1}}"
        )
    if system is None:
        return None
    if system.engine == engines.NO_DATABASE:
        problem(
            f"`{system.name}` is not a database, so that it runs no SQL",
            "system",
            hint="a command stage, or another system",
        )
    if (entry.query or entry.wait_until) and not engines.of(system.engine).queries:
        able = engines.named(found for found in engines.ENGINES.values() if found.queries)
        problem(f"queries of {system.engine} are not read in this release", hint=f"systems of {able}")
    values = measured_values(entry.metrics or {}, problem, sampled=False, taken=STAGE_NUMBERS)
    if values is None:
        return None
    return Sql(
        id=stage_id,
        system=system.name,
        statements=tuple(entry.statements or ()),
        repeatable=entry.repeatable,
        wait_until=NO_WAIT if entry.wait_until is None else _wait(entry.wait_until),
        query=entry.query or "",
        values=values,
        repeat=entry.repeat,
        where=body.where,
    )


def _wait(entry: WaitEntry) -> WaitUntil:
    equals = str(entry.equals).lower() if isinstance(entry.equals, bool) else str(entry.equals)
    return WaitUntil(query=entry.query, equals=equals, every_s=entry.every, within_s=entry.within)


# ---- commands --------------------------------------------------------------------------------------------------------

SAMPLE_S = 5.0
"""The longest run of the program of a capture, where the plan gives none."""


def output_rows(entry: OutputEntry | None) -> OutputRows:
    """The form of an output."""
    if entry is None:
        return OutputRows()
    return OutputRows(
        format=entry.format or ("pattern" if entry.pattern else "pairs"),
        rows=entry.rows or "",
        separator=entry.separator,
        header=entry.header,
        pattern=entry.pattern or "",
    )


def checked_command(
    argv: Sequence[str],
    output: OutputEntry | None,
    within_s: float,
    exit_codes: Sequence[int],
    problem: Report,
) -> Command | None:
    """A command; None when an agent would refuse it."""
    command = Command(
        argv=tuple(argv), output=output_rows(output), within_s=within_s, exit_codes=tuple(dict.fromkeys(exit_codes))
    )
    objections = list(command_problems(command))
    for objection in objections:
        problem(objection.message, *objection.at, hint=objection.way_out)
    return None if objections else command


def command_stage(
    entry: CommandEntry, stage_id: str, body: Map, host: Host | None, problem: Report
) -> CommandRun | None:
    """The compiled stage; None when its host, its command or its metrics do not compile."""
    command = checked_command(entry.argv, entry.output, entry.within, entry.exit_codes, problem)
    values = measured_values(entry.metrics, problem, sampled=False, taken=STAGE_NUMBERS)
    if host is None or command is None or values is None:
        return None
    return CommandRun(
        id=stage_id, host=host.name, command=command, values=values, repeat=entry.repeat, where=body.where
    )


def command_capture(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of kind command: the numbers of a program's output, each time it is run."""

    def problem(message: str, *at: str | int, hint: str = "") -> None:
        where: Where = where_of(node, *at) if at and node.get(str(at[0])) is not None else key.where
        scope.problems.add(where, message, key=".".join([path, *map(str, at)]), hint=hint)

    if entry.system is not None:
        problem("a command capture is of a host, not of a system", "system", hint="on: db1")
    host = one_host(scope, node, entry, path)
    if not isinstance(entry.metrics, dict):
        problem("a command capture needs `metrics`, by name", "metrics", hint="metrics: {queue: {column: 1}}")
        return None
    within_s = SAMPLE_S if entry.within is None else entry.within
    command = checked_command(entry.argv or (), entry.output, within_s, entry.exit_codes or (0,), problem)
    values = measured_values(entry.metrics, problem, sampled=True)
    for value in values or ():
        if value.kind == "age":
            problem("`as: age` is of sql captures", "metrics", value.name, "as", hint="as: level")
    if host is None or command is None or values is None:
        return None
    return Capture(
        name=key.text,
        kind="command",
        every_s=entry.every,
        hosts=(host,),
        values=values,
        command=command,
        where=key.where,
    )
