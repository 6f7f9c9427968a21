"""A timetable as text for people: what runs, in order, how long it takes, what each host does, the cells of a
matrix.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from proveout.core.data_classes import record
from proveout.core.numbers import count_of
from proveout.core.units import format_duration
from proveout.dsl.explain.timetable import CellLine, HostPart, StageLine, Timetable, TuningLine, TuningSum
from proveout.dsl.plan.topology import Value
from proveout.dsl.schema.parameters import FORMATS


@record
class CellStages:
    """The stages of a cell with their numbers in the plan."""

    cell: CellLine
    stages: tuple[tuple[int, StageLine], ...]

    @property
    def numbers(self) -> str:
        """`3`, `3-6`."""
        first, last = self.stages[0][0], self.stages[-1][0]
        return str(first) if first == last else f"{first}-{last}"

    @property
    def iterations(self) -> int:
        """The most iterations of all its stages."""
        return sum(stage.iterations for _, stage in self.stages)

    @property
    def seconds(self) -> tuple[float, float]:
        """The shortest and the longest time of all its stages."""
        return sum(stage.seconds_min for _, stage in self.stages), sum(stage.seconds for _, stage in self.stages)

    def order(self) -> tuple[str, ...]:
        """The order of its iterations, and of the cells among each other."""
        return next((stage.order for _, stage in self.stages if stage.order), ())

    def parts(self) -> dict[str, StageLine]:
        """The stages by what follows the cell's id in theirs: `before_1`; "" for its ladder."""
        return {stage.id.removeprefix(self.cell.id).removeprefix("__"): stage for _, stage in self.stages}


def alike(line: str, other: str, cell: CellLine, of: CellLine) -> bool:
    """Whether a line of a cell is the other line of the cell `of`, but for the labels of the two."""
    if line == other:
        return True
    words: dict[str, list[str]] = {}
    for word, made in _words(cell, of):
        words.setdefault(word, [word]).append(made)
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    found = re.split(rf"(?<![A-Za-z0-9])({'|'.join(longest_first)})(?![A-Za-z0-9])", line)
    pattern = "".join(
        f"(?:{'|'.join(map(re.escape, words[text]))})" if number % 2 else re.escape(text)
        for number, text in enumerate(found)
    )
    return re.fullmatch(pattern, other) is not None


def _words(cell: CellLine, of: CellLine) -> Iterator[tuple[str, str]]:
    """(what the labels of a cell may have made in a line, the same of the other cell)."""
    yield cell.id, of.id
    for (_, label), (_, other) in zip(cell.labels, of.labels, strict=True):
        yield label, other
        yield _in_a_name(label), _in_a_name(other)
        if label.isdecimal() and other.isdecimal():
            yield f"{int(label):,}", f"{int(other):,}"


def _in_a_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")


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
    yield f"about {_span(table.seconds_min, table.seconds)}{more}; at most {count_of(total, 'iteration')}"
    if table.on_loss != "rerun":
        yield _LOSS[table.on_loss]
    yield from _table(
        "parameters (-p name=value)",
        [(one.name, _value(one.type, one.value) + (f"  ({one.help})" if one.help else "")) for one in table.parameters],
    )
    yield from _hosts(table)
    yield from _systems(table)
    yield from _equipment(table)
    yield from _tunings(table)
    yield ""
    yield "stages"
    numbered = enumerate(table.stages, 1)
    for of, found in groupby(numbered, key=lambda item: "" if item[1].cell is None else item[1].cell.of):
        stages = list(found)  # of a matrix, or outside of any
        grouped = groupby(stages, key=lambda item: item[1].cell)
        every = [CellStages(cell=cell, stages=tuple(one)) for cell, one in grouped if cell is not None]
        if len(every) > 1:
            yield from _matrix(of, every)
        else:
            for number, stage in stages:
                yield from _stage(number, stage, stage.order)
    checks = [(name, f"{'(warn) ' if severity == 'warn' else ''}{check}") for name, severity, check in table.verdicts]
    yield from _table("verdicts", checks)
    yield from _table("charts of the report", table.charts)


def _table(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A section of names and texts; none without rows."""
    if rows:
        yield from ("", title)
        width = max(len(name) for name, _ in rows)
        yield from (f"  {name:<{width}}  {text}" for name, text in rows)


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
    first = next(one for one in table.declared if one.facts == found.facts)
    for word, pairs, sign in (("facts", found.facts, " = "), ("expects", found.expect, " ")):
        if pairs:
            alike = word == "facts" and first is not found and len(pairs) > 2
            text = f"those of {first.name}" if alike else "; ".join(f"{fact}{sign}{value}" for fact, value in pairs)
            yield from _wrapped(f"  {'':<{width}}    {word}: ", text)


def _tunings(table: Timetable) -> Iterator[str]:
    """The wanted state of each host, then every change on every host; those of a stage are marked. Lines that a tuning
    before has too, all but the first one, are not repeated."""
    if not table.tunings:
        return
    title = "tuning: changed where a host is not so already; `proveout explain --facts` asks the hosts"
    yield from _table(title, [(one.host, _summed(one)) for one in table.tuning_sums])
    shown: dict[tuple[str, ...], tuple[str, int]] = {}
    for host in dict.fromkeys(line.host for line in table.tunings):
        yield ""
        yield f"  {host}"
        mine = [line for line in table.tunings if line.host == host]
        for number, line, more in _of_all_cells(mine, {stage.id: stage.cell for stage in table.stages}):
            words = ", ".join((line.operation, *line.words)).removeprefix(", ")
            of, at = shown.setdefault((line.operation, *line.wanted[1:]), (host, number))
            again = len(line.wanted) > 1 and (of, at) != (host, number)
            rest = f"; the rest as {at}{'' if of == host else f' of {of}'}" if again else ""
            yield f"  {number:>3}. {line.name} ({words}{more}{rest})"
            for wanted in line.wanted[:1] if again else line.wanted:
                yield f"       {wanted}"


def _of_all_cells(
    lines: Sequence[TuningLine], cells: Mapping[str, CellLine | None]
) -> Iterator[tuple[int, TuningLine, str]]:
    """(number, tuning, in how many cells of a matrix it is beside the first): one tuning for those of all cells that
    differ in nothing but the labels."""
    found: dict[int, tuple[TuningLine, CellLine | None, int]] = {}
    for number, line in enumerate(lines, 1):
        cell = cells.get(line.stage)
        for known, (first, of, count) in found.items():
            if cell is not None and of is not None and of.of == cell.of and _same_tuning(first, line, of, cell):
                found[known] = (first, of, count + 1)
                break
        else:
            found[number] = (line, cell, 0)
    for number, (line, cell, count) in found.items():
        matrix = cell.of if cell is not None else ""
        yield number, line, f"; likewise in {count_of(count, 'other cell')} of {matrix}" if count else ""


def _same_tuning(one: TuningLine, other: TuningLine, cell: CellLine, of: CellLine) -> bool:
    texts = [(line.name, line.operation, *line.words, *line.wanted) for line in (one, other)]
    return len(texts[0]) == len(texts[1]) and all(
        alike(text, found, cell, of) for text, found in zip(*texts, strict=True)
    )


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


def _stage(number: int, stage: StageLine, order: Sequence[str]) -> Iterator[str]:
    yield f"  {number}. {stage.id} ({stage.kind}): {stage.summary}"
    yield f"       {_about(stage.seconds_min, stage.seconds, stage.iterations)}"
    yield from _indented((*stage.detail, *order))
    for line in _on_hosts(stage):
        yield from _wrapped("       ", line)


def _indented(lines: Iterable[str], width: int = 7) -> Iterator[str]:
    for line in lines:
        yield from _wrapped(" " * width, line) if len(line) > WIDTH else (f"{'':{width}}{line}",)


def _on_hosts(stage: StageLine) -> Iterator[str]:
    """The tasks of each host; hosts with the same tasks in one line."""
    return (f"{', '.join(hosts)}: {'; '.join(tasks)}" for hosts, tasks in _together(stage.hosts))


def _matrix(of: str, every: Sequence[CellStages]) -> Iterator[str]:
    """The sum of a matrix, one of its cells in full, and a table of the others with what is different in them."""
    seconds = [one.seconds for one in every]
    count = sum(one.iterations for one in every)
    axes: dict[str, dict[str, None]] = {}  # with their labels in the plan's order
    for axis, label in (pair for one in every for pair in one.cell.labels):
        axes.setdefault(axis, {})[label] = None
    labels = "; ".join(f"{axis} {', '.join(found)}" for axis, found in axes.items())
    first, full = every[0], max(every, key=lambda one: len(one.stages))
    yield f"  {first.stages[0][0]}-{every[-1].stages[-1][0]}. {of} (matrix): {len(every)} cells"
    yield from _wrapped("       ", labels)
    yield f"       {_about(sum(least for least, _ in seconds), sum(most for _, most in seconds), count)}"
    yield from _indented(first.order())
    yield f"       one cell in full, {', '.join(f'{axis} {label}' for axis, label in full.cell.labels)}:"
    for number, stage in full.stages:
        yield from _stage(number, stage, ())
    yield f"  {of}, the other cells and what is different in them apart from their labels:"
    yield from _cell_rows(every, full)


def _cell_rows(every: Sequence[CellStages], full: CellStages) -> Iterator[str]:
    first = every[0]
    rows = [("stages", "cell", *(axis for axis, _ in first.cell.labels), "about", "iterations")]
    for one in every:
        least, most = one.seconds
        labels = (label for _, label in one.cell.labels)
        rows.append((one.numbers, one.cell.id, *labels, _span(least, most), str(one.iterations)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, cell in zip(rows, (None, *every), strict=True):
        if cell is full:
            continue
        yield "       " + "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
        if cell is not None:
            yield from _indented(_different(cell, full, first), 9)


def _different(one: CellStages, full: CellStages, first: CellStages) -> Iterator[str]:
    """The lines of a cell that are neither those of the cell in full nor, of their order, those of the first cell."""
    own, shown = one.parts(), full.parts()
    if missing := [part or "the ladder" for part in shown if part not in own]:
        yield f"without {', '.join(missing)}"
    for part in (*(part for part in shown if part in own), *(part for part in own if part not in shown)):
        head, rest, found = part and f"{part}: ", _said(shown.get(part)), _said(own[part])
        fewer = len(found) < len(rest)
        for line in found:
            match = next((each for each in rest if alike(each, line, full.cell, one.cell)), None)
            if match is None:
                yield head + line
            else:
                rest.remove(match)
        yield from (f"{head}without: {line}" for line in rest if fewer)
    follows = f"takes turns with {first.cell.id}; "
    for line in one.order():
        known = any(alike(each, line, first.cell, one.cell) for each in first.order())
        if not known and not line.startswith(follows):
            yield line


def _said(stage: StageLine | None) -> list[str]:
    return [] if stage is None else [stage.summary, *stage.detail, *_on_hosts(stage)]


def _about(shortest_s: float, longest_s: float, iterations: int) -> str:
    """`about 22s, 2 iterations`."""
    count = f", {count_of(iterations, 'iteration')}" if iterations else ""
    return f"about {_span(shortest_s, longest_s)}{count}"


def _together(parts: Iterable[HostPart]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Hosts that do the same in one line, where the first of them stands."""
    found: dict[tuple[str, ...], list[str]] = {}
    for part in parts:
        found.setdefault(part.tasks, []).append(part.host)
    return ((tuple(hosts), tasks) for tasks, hosts in found.items())


def _value(kind: str, value: Value) -> str:
    """A parameter's value as a plan writes it."""
    if isinstance(value, tuple):
        return ", ".join(_value(kind.removeprefix("list[").removesuffix("]"), item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,} bytes" if kind == "size" else f"{value:,}"
    return FORMATS.get(kind, str)(value) if isinstance(value, float) else str(value)


_LOSS: Mapping[str, str] = {
    "continue": "a host that is lost is done without where it only made load or was observed",
    "stop": "a host that is lost ends the run",
}


def _span(shortest_s: float, longest_s: float) -> str:
    """One duration, or `6m to 20m` when the run may end early."""
    shortest, longest = format_duration(shortest_s), format_duration(longest_s)
    return longest if shortest_s >= longest_s or shortest == longest else f"{shortest} to {longest}"
