"""A timetable as text for people: what runs, in order, with how long it takes and what each host does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from proveout.dsl.describe import StageLine, Timetable
from proveout.dsl.plan import Value
from proveout.dsl.units import format_duration


def render(table: Timetable) -> str:
    """The timetable in at most about 110 columns, without a newline at the end."""
    return "\n".join(line.rstrip() for line in _lines(table))


def _lines(table: Timetable) -> Iterator[str]:
    yield f"{table.name}: {table.title}" if table.title else table.name
    yield f"{table.digest}"
    total = sum(stage.iterations for stage in table.stages)
    yield f"about {_span(table.seconds_min, table.seconds)}, at most {_plural(total, 'iteration')}"
    if table.on_loss != "rerun":
        yield _LOSS[table.on_loss]
    if table.parameters:
        yield ""
        yield "parameters (-p name=value)"
        width = max(len(parameter.name) for parameter in table.parameters)
        for parameter in table.parameters:
            about = f"  ({parameter.help})" if parameter.help else ""
            yield f"  {parameter.name:<{width}}  {_value(parameter.type, parameter.value)}{about}"
    yield from _hosts(table)
    yield from _systems(table)
    yield from _tunings(table)
    yield ""
    yield "stages"
    for number, stage in enumerate(table.stages, 1):
        yield from _stage(number, stage)
    yield from _verdicts(table)


def _hosts(table: Timetable) -> Iterator[str]:
    yield ""
    yield "hosts"
    width = max(len(host.name) for host in table.hosts)
    for host in table.hosts:
        roles = ", ".join(host.roles) or "no role"
        yield f"  {host.name:<{width}}  {host.address} ({roles}); privileges: {host.privileges}"


def _systems(table: Timetable) -> Iterator[str]:
    if not table.systems:
        return
    yield ""
    yield "systems"
    width = max(len(system.name) for system in table.systems)
    for system in table.systems:
        onward = f", propagates to {system.propagates_to}" if system.propagates_to else ""
        yield f"  {system.name:<{width}}  {system.engine} on {system.host}, {system.origin}{onward}"
        for name, value in system.settings:
            yield f"  {'':<{width}}    {name} = {value}"


def _tunings(table: Timetable) -> Iterator[str]:
    """Every change on every host; the ones of a stage say so."""
    if not table.tunings:
        return
    yield ""
    yield "tuning, as far as it can be told without asking the hosts"
    for host in dict.fromkeys(line.host for line in table.tunings):
        yield f"  {host}"
        for line in (line for line in table.tunings if line.host == host):
            yield f"    {line.name} ({line.operation}{''.join(f', {word}' for word in line.words)})"
            for wanted in line.wanted:
                yield f"      {wanted}"


def _stage(number: int, stage: StageLine) -> Iterator[str]:
    count = f", {_plural(stage.iterations, 'iteration')}" if stage.iterations else ""
    yield f"  {number}. {stage.id} ({stage.kind}): {stage.summary}"
    yield f"       about {_span(stage.seconds_min, stage.seconds)}{count}"
    for line in stage.detail:
        yield f"       {line}"
    for part in stage.hosts:
        yield f"       {part.host}: {'; '.join(part.tasks)}"


def _verdicts(table: Timetable) -> Iterator[str]:
    if not table.verdicts:
        return
    yield ""
    yield "verdicts"
    width = max(len(name) for name, _, _ in table.verdicts)
    for name, severity, check in table.verdicts:
        yield f"  {name:<{width}}  {'(warn) ' if severity == 'warn' else ''}{check}"


def _value(kind: str, value: Value) -> str:
    """A parameter's value as a plan writes it."""
    if isinstance(value, tuple):
        return ", ".join(_value(kind.removeprefix("list[").removesuffix("]"), item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,} bytes" if kind == "size" else f"{value:,}"
    return _FORMATS.get(kind, str)(value) if isinstance(value, float) else str(value)


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "duration": format_duration,
    "rate": lambda rate: f"{rate:,.6g}/s",
    "percentage": lambda fraction: f"{fraction * 100:.6g}%",
    "float": lambda number: f"{number:g}",
}


_LOSS: Mapping[str, str] = {
    "continue": "a host that is lost is done without where it only made load or was observed",
    "stop": "a host that is lost ends the run",
}


def _span(shortest_s: float, longest_s: float) -> str:
    """One duration, or `6m to 20m` when the run may end early."""
    longest = format_duration(longest_s)
    return longest if shortest_s >= longest_s else f"{format_duration(shortest_s)} to {longest}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
