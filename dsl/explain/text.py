"""A timetable as text for people: what runs, in order, with how long it takes and what each host does."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from proveout.core.units import format_duration
from proveout.dsl.explain.host_parts import HostPart
from proveout.dsl.explain.timetable import StageLine, Timetable
from proveout.dsl.explain.tuning import TuningSum
from proveout.dsl.plan.values import Value

WIDTH = 110
"""Columns; only what cannot be broken (rules, checks, statements' words) is longer."""


def render(table: Timetable) -> str:
    """The timetable in at most about 110 columns, names of things that are longer apart, without a newline at the
    end."""
    return "\n".join(line.rstrip() for line in _lines(table))


def _lines(table: Timetable) -> Iterator[str]:
    yield f"{table.name}: {table.title}" if table.title else table.name
    yield f"{table.digest}"
    total = sum(stage.iterations for stage in table.stages)
    more = f", and as long as {_some(table.untimed)} may take" if table.untimed else ""
    yield f"about {_span(table.seconds_min, table.seconds)}{more}; at most {_plural(total, 'iteration')}"
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
    yield from _equipment(table)
    yield from _tunings(table)
    yield ""
    yield "stages"
    for number, stage in enumerate(table.stages, 1):
        yield from _stage(number, stage)
    yield from _verdicts(table)


def _some(names: Sequence[str]) -> str:
    """The names, of many the first two and the number of the others."""
    shown = names if len(names) <= 4 else (*names[:2], f"{len(names) - 2} more stages")
    return " and ".join(shown)


def _hosts(table: Timetable) -> Iterator[str]:
    yield ""
    yield "hosts"
    width = max(len(host.name) for host in table.hosts)
    for host in table.hosts:
        roles = ", ".join(host.roles) or "no role"
        needed = "; ".join(_gathered(host.privileges)) or "none"
        yield from _wrapped(f"  {host.name:<{width}}  ", f"{host.address} ({roles}); privileges: {needed}")
        yield from _declared(table, "host", host.name, width)


def _gathered(privileges: Iterable[str]) -> Iterator[str]:
    """`root: a` and `root: b; as c: d` as `root: a, b` and `as c: d`."""
    found: dict[str, list[str]] = {}
    for one in (one for privilege in privileges for one in privilege.split("; ")):
        who, colon, what = one.partition(": ")
        found.setdefault(who + colon, []).append(what)
    return (f"{who}{', '.join(what)}" for who, what in found.items())


def _wrapped(first: str, text: str) -> Iterator[str]:
    """Lines of a text behind `first`, the later ones below where it begins; words stay whole."""
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


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
        yield from _declared(table, "system", system.name, width)


def _equipment(table: Timetable) -> Iterator[str]:
    found = [one for one in table.declared if one.kind not in ("host", "system")]
    if not found:
        return
    yield ""
    yield "equipment without an agent"
    width = max(len(one.name) for one in found)
    for one in found:
        about = f", {one.description}" if one.description else ""
        connected = f", connects {', '.join(one.connects)}" if one.connects else ""
        yield from _wrapped(f"  {one.name:<{width}}  ", f"{one.kind}{about}{connected}")
        yield from _declared(table, one.kind, one.name, width)


def _declared(table: Timetable, kind: str, name: str, width: int) -> Iterator[str]:
    """The facts that are declared of a host, a system or a piece of equipment, and those that are expected."""
    found = next((one for one in table.declared if (one.kind, one.name) == (kind, name)), None)
    if found is None:
        return
    for word, pairs, sign in (("facts", found.facts, " = "), ("expects", found.expect, " ")):
        if pairs:
            text = "; ".join(f"{fact}{sign}{value}" for fact, value in pairs)
            yield from _wrapped(f"  {'':<{width}}    {word}: ", text)


def _tunings(table: Timetable) -> Iterator[str]:
    """The wanted state of each host, then every change on every host; those of a stage are marked."""
    if not table.tunings:
        return
    yield ""
    yield "tuning: changed where a host is not so already; `proveout explain --facts` asks the hosts"
    width = max(len(one.host) for one in table.tuning_sums)
    for one in table.tuning_sums:
        yield f"  {one.host:<{width}}  {_summed(one)}"
    for host in dict.fromkeys(line.host for line in table.tunings):
        yield ""
        yield f"  {host}"
        mine = [line for line in table.tunings if line.host == host]
        for number, line in enumerate(mine, 1):
            yield f"  {number:>3}. {line.name} ({line.operation}{''.join(f', {word}' for word in line.words)})"
            for wanted in line.wanted:
                yield f"       {wanted}"


def _summed(one: TuningSum) -> str:
    parts = [
        f"{count} {what}"
        for count, what in (
            (one.kept, "kept after the run"),
            (one.set_back, "set back after the run"),
            (one.looked_at, "looked at only"),
        )
        if count
    ]
    destroyed = f"; DESTROYS DATA in {one.destructive} of them" if one.destructive else ""
    return (", ".join(parts) or "nothing is changed") + destroyed


def _stage(number: int, stage: StageLine) -> Iterator[str]:
    count = f", {_plural(stage.iterations, 'iteration')}" if stage.iterations else ""
    yield f"  {number}. {stage.id} ({stage.kind}): {stage.summary}"
    yield f"       about {_span(stage.seconds_min, stage.seconds)}{count}"
    for line in stage.detail:
        yield from _wrapped("       ", line) if len(line) > WIDTH else (f"       {line}",)
    for hosts, tasks in _together(stage.hosts):
        yield from _wrapped("       ", f"{', '.join(hosts)}: {'; '.join(tasks)}")


def _together(parts: Iterable[HostPart]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Hosts that do the same in one line, where the first of them stands."""
    found: dict[tuple[str, ...], list[str]] = {}
    for part in parts:
        found.setdefault(part.tasks, []).append(part.host)
    return ((tuple(hosts), tasks) for tasks, hosts in found.items())


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
