"""The top statements of each ladder as a section of a report: a table by time, and the plans, folded. Pure.

Data flow: `IterationFinished.statements` of the valid repeats of the peak rung -> sums over the repeats, by system and
id -> a table; the plans of the newest iteration; and the findings of all iterations on plans that changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proveout.coordinator.report import tables
from proveout.coordinator.report.document import Block, Details, Notes, Preformatted, Section, Table
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.numbers import column, number, percent, rung_name, seconds
from proveout.proto.statement_events import StatementLine

HEADS = ("statement", "time", "share", "calls", "mean", "rows", "id")
PLAN_CHECK = "plan:"
TEXT_SHOWN = 100


def statement_section(results: RunResults) -> Iterator[Section]:
    """The statements of the ladders that have some."""
    found = tuple(
        Section(title=tables.titled(results, stage.id), blocks=tuple(blocks))
        for stage in tables.ladders(results)
        if (blocks := list(_ladder(stage)))
    )
    if found:
        yield Section(title="Top statements", blocks=found, anchor="statements")


def _ladder(stage: StageResult) -> Iterator[Block]:
    rung = stage.highest
    if rung is None or not any(item.statements for item in rung.iterations):
        return
    systems = dict.fromkeys(line.system for item in rung.iterations for line in item.statements)
    at = rung_name(stage.kind, rung.threads)
    for system in systems:
        rows = top_statements(rung, system)
        means = column("_us", [row.avg_us for row in rows])
        yield Table(
            title=f"Top statements of {system}, {at}, all valid repeats",
            heads=HEADS,
            rows=tuple(
                (
                    row.text[:TEXT_SHOWN] or "(not visible to this user)",
                    seconds(row.seconds),
                    percent(row.time_fraction),
                    number(row.calls),
                    mean,
                    number(row.rows),
                    row.id,
                )
                for row, mean in zip(rows, means, strict=True)
            ),
            layout="lrrrrrl",
        )
        if changes := tuple(_changes(stage, system)):
            yield Notes(changes, "warn")
        yield Details(title=f"Plans of {system}, {at}", blocks=tuple(_plans(rows)))


def top_statements(rung: RungResult, system: str) -> list[StatementLine]:
    """The statements of a system at a rung, those with the most time first: counts added over the repeats, shares of
    their sum."""
    sums: dict[str, _Sum] = {}
    for item in rung.iterations:
        for line in item.statements:
            if line.system == system:
                sums.setdefault(line.id, _Sum()).add(line)
    whole = sum(one.all_s for one in sums.values())
    lines = [one.line(whole) for one in sums.values()]
    return sorted(lines, key=lambda line: (-line.seconds, line.id))


@dataclass(slots=True)
class _Sum:
    """A statement over several iterations; `all_s` its time."""

    newest: StatementLine | None = None
    calls: float = 0.0
    all_s: float = 0.0
    rows: float = 0.0

    def add(self, line: StatementLine) -> None:
        self.newest = line
        self.calls += line.calls
        self.all_s += line.seconds
        self.rows += line.rows

    def line(self, whole_s: float) -> StatementLine:
        assert self.newest is not None  # noqa: S101 - it has one at least
        return replace(
            self.newest,
            calls=self.calls,
            seconds=self.all_s,
            rows=self.rows,
            avg_us=self.all_s / self.calls * 1e6 if self.calls else 0.0,
            time_fraction=self.all_s / whole_s if whole_s > 0.0 else 0.0,
        )


def _changes(stage: StageResult, system: str) -> Iterator[str]:
    for item in stage.iterations:
        for finding in item.findings:
            if finding.check.startswith(f"{PLAN_CHECK}{system}:") and not finding.ok:
                yield f"{item.id}: {finding.evidence}"


def _plans(rows: list[StatementLine]) -> Iterator[Block]:
    """Each statement with its plan, or the reason why it has none."""
    for row in rows:
        plan = row.plan or f"no plan: {row.no_plan or 'not known'}"
        yield Preformatted(f"{row.text}\n\n{plan}")
