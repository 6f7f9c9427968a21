"""Build the document of a comparison of runs: the answer, what is compared, what differs, conditions, ratios, all
numbers.

Data flow: `ComparedRuns`, judged conditions -> `Document`. With the runs' results it is that of a page: tiles, the
forest plot and the figures of a run, overlaid; the tables of the rungs are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from proveout.coordinator.compare.comparability import SHOWN_MAX
from proveout.coordinator.compare.comparison import REFERENCE, ComparedRun, ComparedRuns
from proveout.coordinator.compare.fail_if import RESULTS, Judgement, told
from proveout.coordinator.report.compare.change_tables import (
    LAYOUT,
    change_table,
    heads,
    level_note,
    missing_rungs,
    rung_title,
    table_row,
    values_table,
    values_title,
)
from proveout.coordinator.report.compare.comparison_headline import answer, run_answer, tiles
from proveout.coordinator.report.compare.forest_figure import forest
from proveout.coordinator.report.compare.main_numbers import MainNumber, lead, main_numbers, places
from proveout.coordinator.report.compare.overlaid_figures import overlaid_figures
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Notes,
    Outcome,
    Outcomes,
    Paragraph,
    Section,
    Table,
    Tiles,
    Tone,
    Value,
)
from proveout.coordinator.results.results import RunResults

ROWS_MAX = 30
"""Rows of the main numbers in the short form; where there are more, those at the lead rung of each stage and those that
are better or worse."""

_TONES: Mapping[str, Tone] = {"PASS": "bad", "FAIL": "good", "INCONCLUSIVE": "warn"}
"""A condition that holds fails the job."""


def comparison_document(
    compared: Sequence[ComparedRuns], judged: Sequence[Judgement], runs: Sequence[RunResults] = ()
) -> Document:
    """The comparison; `runs` has the results of the reference first, for the figures of a page, or nothing for text."""
    is_page = bool(runs)
    figures = tuple(overlaid_figures(runs)) if runs else ()
    others = ", ".join(one.names[1] for one in compared)
    sections = (
        _overview(compared),
        *_differences(compared, is_page=is_page),
        *_conditions(judged),
        _ratios(compared, is_page=is_page),
        *([Section(title="Throughput and latency", blocks=figures, anchor="figures")] if figures else ()),
        *_numbers(compared, is_page=is_page),
    )
    return Document(
        title=f"{compared[0].runs[0].plan or 'Comparison'}: {others} against {REFERENCE}",
        about=f"Every ratio is that of a run over the reference {REFERENCE}: {compared[0].names[1]} / {REFERENCE}.",
        answer=answer(compared, judged),
        sections=sections,
    )


# ---- runs --------------------------------------------------------------------------------------------------------


def _overview(compared: Sequence[ComparedRuns]) -> Section:
    """The tiles, and the runs behind the short names."""
    runs = [compared[0].runs[0], *(one.runs[1] for one in compared)]
    notes = tuple(dict.fromkeys(note for one in compared for note in one.notes))
    alike = len({one.environment for one in runs}) == 1
    where = Paragraph(f"All on {'; '.join(runs[0].environment)}.", "dim") if alike and runs[0].environment else None
    blocks: list[Block | None] = [
        Tiles(numbers) if (numbers := tiles(compared)) else None,
        _legend(runs, with_environment=not alike),
        where,
        Notes(notes, "warn") if notes else None,
    ]
    return Section(title="Overview", blocks=tuple(block for block in blocks if block is not None), anchor="overview")


def _legend(runs: Sequence[ComparedRun], *, with_environment: bool) -> Table:
    labelled = any(one.labels for one in runs)
    columns = ("", "run", "started", "plan", "proveout", *(["labels"] if labelled else []))
    rows = [
        (
            one.name,
            one.run_id,
            _when(one.started_unix_s),
            one.plan or "-",
            one.version or "-",
            *([", ".join(f"{name}={value}" for name, value in one.labels.items()) or "-"] if labelled else []),
            *([tuple(one.environment) or "-"] if with_environment else []),
        )
        for one in runs
    ]
    columns += ("environment",) if with_environment else ()
    return Table(heads=columns, rows=tuple(rows), layout="l" * len(columns))


def _when(unix_s: float) -> str:
    """`2026-01-14 10:15 UTC`."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC") if unix_s else "-"


# ---- differences -------------------------------------------------------------------------------------------------


def _differences(compared: Sequence[ComparedRuns], *, is_page: bool) -> Iterator[Section]:
    """A column for each run, a row for each fact or value of the plan in which one differs from the reference."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    bases: dict[tuple[str, str], str] = {}
    for one in compared:
        for difference in one.differences:
            key = difference.where, difference.name
            lacking = "missing" if difference.missing_in else "none"
            bases[key] = difference.before or lacking
            found.setdefault(key, {})[one.names[1]] = difference.after or lacking
    if not found:  # the answer has it
        return
    names = [one.names[1] for one in compared]
    rows = [
        (
            f"{where}: {name}" if where else name,
            bases[where, name],
            *(Cell(others[run], "warn") if run in others else bases[where, name] for run in names),
        )
        for (where, name), others in found.items()
    ]
    columns = ("", REFERENCE, *names)
    first, rest = (
        Table(heads=columns, rows=tuple(part), layout="l" * len(columns))
        for part in (rows[:SHOWN_MAX], rows[SHOWN_MAX:])
    )
    more = f"{len(rest.rows)} more differences"
    whole: tuple[Block, ...] = (first,)
    if rest.rows:
        whole = (first, Details(title=more, blocks=(rest,))) if is_page else (first, rest)
    brief: tuple[Block, ...] = (first, *([Paragraph(f"and {more}")] if rest.rows else []))
    yield Section(title="Differences", blocks=whole, anchor="differences", brief=brief)


def _conditions(judged: Sequence[Judgement]) -> Iterator[Section]:
    if judged:
        conditions = Outcomes(tuple(map(_condition, judged)), head="Condition")
        yield Section(title="Conditions", blocks=(conditions,), anchor="conditions")


def _condition(one: Judgement) -> Outcome:
    return Outcome(
        outcome=RESULTS[one.outcome],
        tone=_TONES[one.outcome],
        title=told(one),
        evidence=one.evidence,
        brief=one.evidence,
    )


# ---- numbers -----------------------------------------------------------------------------------------------------


def _ratios(compared: Sequence[ComparedRuns], *, is_page: bool) -> Section:
    """The forest plot and the main numbers of each run."""
    drawn = tuple(forest(compared)) if is_page else ()
    whole, short = ([part for one in compared for part in _main(one, several, short=short, is_page=is_page)]
                    for several in [len(compared) > 1] for short in (False, True))  # fmt: skip
    return Section(title="Ratios", blocks=(*drawn, *whole), anchor="ratios", brief=tuple(short))


def _main(one: ComparedRuns, several: bool, *, short: bool, is_page: bool) -> Iterator[Block]:
    numbers = main_numbers(one)
    shown = _short(numbers) if short else numbers
    blocks: list[Block] = [_main_table(one, numbers, shown)] if shown else []
    if len(shown) < len(numbers):
        blocks.append(Paragraph(f"{len(numbers) - len(shown)} more main numbers are not shown.", "dim"))
    if not one.stages:
        blocks.append(Paragraph("No stage was run in both.", "warn"))
    elif not numbers:
        blocks.append(Paragraph("No rung was measured in both.", "warn"))
    if any(one.judged) and not is_page:  # the caption of the figure has it
        blocks.append(Paragraph(level_note(one), "dim"))
    if several:
        yield Section(title=f"{one.names[1]} against {REFERENCE}", blocks=(Paragraph(run_answer(one)), *blocks))
    else:
        yield from blocks


def _main_table(one: ComparedRuns, numbers: Sequence[MainNumber], shown: Sequence[MainNumber]) -> Table:
    named = places(numbers)
    rows: list[tuple[Value, ...]] = [
        table_row(f"{named[id(number)]}: {number.what}", number.row, one.names[1]) for number in shown
    ]
    return Table(heads=heads(one, main=True), rows=tuple(rows), layout=LAYOUT)


def _short(numbers: Sequence[MainNumber]) -> Sequence[MainNumber]:
    """At most `ROWS_MAX` numbers: of searches, at the lead rung of each stage, then those that are better or worse."""
    if len(numbers) <= ROWS_MAX:
        return numbers
    leads = [
        lead([one for one in numbers if one.stage == stage]) for stage in dict.fromkeys(one.stage for one in numbers)
    ]
    rungs = {one.rung for one in leads if one is not None}
    ranked = sorted(numbers, key=lambda one: (one.place != "search", one.rung not in rungs, not _moved(one)))
    kept = {id(one) for one in ranked[:ROWS_MAX] if one.place == "search" or one.rung in rungs or _moved(one)}
    return [one for one in numbers if id(one) in kept]


def _moved(one: MainNumber) -> bool:
    return one.row.direction in ("better", "worse", "changed")


def _numbers(compared: Sequence[ComparedRuns], *, is_page: bool) -> Iterator[Section]:
    """All numbers of every rung, folded on a page and left out of the short form."""
    several = len(compared) > 1
    blocks: list[Block] = []
    missing: list[str] = []
    for one in compared:
        of = f"{one.names[1]} against {REFERENCE}: " if several else ""
        for stage in one.stages:
            tables = [(rung_title(stage, rung), change_table(one, rung.rows)) for rung in stage.rungs]
            tables += [(values_title(stage), values_table(one, stage))] if stage.values else []
            for title, table in tables:
                whole = Details if is_page else Section
                blocks.append(whole(title=f"{of}{title}", blocks=(table,)))
            missing += [f"{of}{line}" for line in missing_rungs(stage)]
    notes = (Notes(tuple(missing), "warn"),) if missing else ()
    if blocks or notes:
        yield Section(title="All numbers", blocks=(*notes, *blocks), anchor="numbers", brief=notes)
