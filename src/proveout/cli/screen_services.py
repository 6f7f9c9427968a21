"""Services of the screens: plans, runs, the comparison of two runs, the result and the replay of one, as plain data.
Nothing is started or written.

Data flow: folders -> `compile_plan` or a journal -> the cards and the result of `tui.services`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.cli.options import STARTERS, SUFFIXES, describe, has_key
from proveout.core.errors import PlanError, ProveoutError
from proveout.tui import services as shown
from proveout.tui.services import Replay

if TYPE_CHECKING:
    from proveout.coordinator.comparison import ComparedRuns, Row
    from proveout.coordinator.report.comparison_tables import MainNumber
    from proveout.coordinator.results.results import RunResults
    from proveout.coordinator.schedule.state import RunProgress
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.dsl.explain.timetable import Timetable
    from proveout.dsl.plan.plan import Plan


def compared(reference: str, other: str, *, despite: bool) -> shown.Comparison:
    """Run `other` against run `reference`, directories. JournalFault, or ProveoutError when one has not begun."""
    from proveout.coordinator import comparison as comparing
    from proveout.coordinator.comparability import NotComparable, differences, refuse_a_copy, unlike
    from proveout.coordinator.history.runs import earlier_runs
    from proveout.coordinator.report.comparison_document import sentence
    from proveout.coordinator.report.comparison_tables import heads, level_note, main_numbers
    from proveout.coordinator.storage.run_directory import RunDirectory

    before, after = (RunDirectory(Path(one)).results(begun=True) for one in (reference, other))
    made = partial(shown.Comparison, reference=Path(reference).name, other=Path(other).name)
    found_differences = differences(before, after, names=(comparing.REFERENCE, comparing.short_name(1)))
    differing = tuple(map(str, found_differences))
    try:
        refuse_a_copy(before, after)
    except NotComparable as fault:
        return made(refused=fault.what)
    try:
        known = earlier_runs(Path(reference).parent, (before, after))
        found = comparing.compare(before, after, known=known, despite=despite)
    except NotComparable:
        apart = unlike(before, after, found_differences)
        refused = f"The runs differ in their plan or environment{apart and f': {apart}'}."
        return made(refused=refused, differences=differing)
    numbers = main_numbers(found)
    return made(
        differences=differing,
        notes=found.notes,
        headline=sentence(found.names[1], numbers),
        level=level_note(found),
        ratios=tuple(_ratios(numbers)),
        heads=heads(found),
        parts=tuple(_parts(found)),
    )


def _ratios(numbers: Sequence[MainNumber]) -> Iterator[shown.Ratio]:
    from proveout.coordinator.report.comparison_tables import interval_text, places, ratio_text

    named = places(numbers)
    for one in numbers:
        ratio = one.row.ratio
        if ratio.get("mean", 0.0) > 0.0 and one.row.direction != "offered":
            yield shown.Ratio(
                of=named[id(one)], what=one.what, ratio=ratio["mean"], lower=ratio.get("lower"),
                upper=ratio.get("upper"), text=ratio_text(ratio), interval=interval_text(ratio),
                tone=one.row.direction,
            )  # fmt: skip


def _parts(found: ComparedRuns) -> Iterator[shown.ComparedPart]:
    from proveout.coordinator.report.comparison_tables import missing_rungs, rung_title, values_title

    for stage in found.stages:
        for rung in stage.rungs:
            yield shown.ComparedPart(head=rung_title(stage, rung), rows=tuple(_rows(rung.rows, found.names[1])))
        if stage.values:
            yield shown.ComparedPart(head=values_title(stage), rows=tuple(_rows(stage.values, found.names[1])))
        yield from (shown.ComparedPart(head=line, rows=()) for line in missing_rungs(stage))


def _rows(rows: Sequence[Row], other: str) -> Iterator[shown.ComparedRow]:
    from proveout.coordinator.report.comparison_tables import cells

    for row in rows:
        yield shown.ComparedRow(cells=cells(row, other), tone=row.direction)


def plan_files(places: Sequence[Path]) -> list[Path]:
    """The plan files among `places` and in those that are folders, each once, by name.

    Without fragments and inventories.
    """
    found: dict[Path, Path] = {}
    for place in places:
        with suppress(OSError):  # a folder is gone or cannot be read
            inside = sorted(place.iterdir()) if place.is_dir() else [place]
            for path in inside:
                if path.suffix in SUFFIXES and path.is_file() and (path == place or _is_plan(path)):
                    found.setdefault(path.resolve(), path)
    return list(found.values())


def _is_plan(path: Path) -> bool:
    """Whether a file looks like a plan; one that cannot be read counts, so that its error is shown."""
    try:
        return has_key(path, "proveout") and has_key(path, "stages", "extends", "name")
    except OSError:
        return True


class LocalServices:
    """The services of the home screen on this machine.

    `places` are files and folders with plans, `runs` the folder of the run directories.
    """

    def __init__(self, places: Sequence[Path], runs: Path, here: str) -> None:
        self._places, self._runs = [place.absolute() for place in places], runs
        self.here, self.runs_here = here, str(runs)
        self._ended: dict[str, object] = {}

    def plans(self) -> Sequence[shown.Found]:
        """The plan files. Their stamp is the last change of the file and of the files beside it."""
        files = plan_files(self._places)
        newest = {folder: _newest(folder) for folder in {file.parent for file in files}}
        return [
            shown.Found(
                path=str(file), name=_short(file), stamp=(_stamp(file), newest[file.parent]), group=_group(file)
            )
            for file in files
        ]

    def plan(self, path: str, overrides: Mapping[str, str], inventory: str) -> shown.PlanCard:
        from proveout.dsl.compile.compiler import compile_plan
        from proveout.dsl.explain.timetable import timetable

        file = Path(path)
        card = shown.PlanCard(path=path, name=_short(file), group=_group(file), state="wrong")
        try:
            plan = compile_plan(file, overrides=overrides, inventory=Path(inventory) if inventory else None)
        except PlanError as error:
            lines = (line for problem in error.problems for line in describe(problem).splitlines())
            return replace(card, lines=tuple(line.replace(f"{file.parent}/", "", 1) for line in lines))
        except ProveoutError as error:
            return replace(card, lines=tuple(str(error).splitlines()))
        table = timetable(plan)
        remote = any(not host.is_local for host in plan.hosts)
        return replace(
            card,
            group="needs a lab" if remote and card.group in ("yours", "runs here") else card.group,
            plan=plan.name,
            state="fine",
            title=plan.title or plan.name,
            lines=tuple(_lines(table)),
            seconds=table.seconds,
            iterations=sum(stage.iterations for stage in table.stages),
            remote=remote,
            tunes_here=tunes_here(plan),
        )

    def form(self, path: str) -> shown.Form:
        from proveout.dsl.schema.parameters import read_form

        return read_form(Path(path))

    def runs(self) -> Sequence[shown.Found]:
        """The runs, newest first.

        The stamp is that of the journal, and for a run that has not ended also that of its coordinator.
        """
        from proveout.coordinator.storage import run_directory
        from proveout.coordinator.storage.journal import is_driven

        try:
            found = run_directory.all_runs(self._runs)
        except ProveoutError:
            return []
        listed = []
        for directory in found:
            written = _journal_stamp(directory.path)
            ended = self._ended.get(str(directory.path)) == written
            stamp = (written, False if ended else is_driven(directory.path))
            listed.append(shown.Found(path=str(directory.path), name=directory.name, stamp=stamp))
        return listed

    def run(self, path: str) -> shown.RunCard:
        written, card = _journal_stamp(Path(path)), run_card(Path(path))
        if card.state in ("finished", "failed", "interrupted"):
            self._ended[path] = written
        return card

    compare = staticmethod(compared)


def tunes_here(plan: Plan) -> bool:
    """Whether a plan changes settings of a machine whose agent is started here."""
    from proveout.dsl.plan.plan import all_tunings

    local = {host.name for host in plan.hosts if host.is_local}
    return any(local & set(one.hosts) for one in all_tunings(plan))


def run_card(directory: Path) -> shown.RunCard:
    """A run, from its journal."""
    from proveout.coordinator.schedule.state import run_progress
    from proveout.coordinator.storage.journal import is_driven, read

    try:
        events, driven = read(directory), is_driven(directory)
    except ProveoutError as fault:
        return shown.RunCard(path=str(directory), name=directory.name, state="unreadable", reason=fault.what)
    facts = run_progress(stamped.event for stamped in events)
    began, ended = events[0].unix_s if events else 0.0, facts.ended
    state: shown.PastState = "running" if driven else ended.status if ended is not None else "crashed"
    plan = facts.started.plan if facts.started else {}
    planned = plan.get("stages", ()) if isinstance(plan, Mapping) else ()
    return shown.RunCard(
        path=str(directory),
        name=directory.name,
        state=state,
        plan=facts.started.name if facts.started else "",
        title=facts.started.title if facts.started else "",
        began_unix_s=began,
        seconds=events[-1].unix_s - began if events else 0.0,
        labels=facts.started.labels if facts.started else {},
        reason=ended.reason if ended is not None and not driven else "" if driven else "the coordinator has stopped",
        verdicts=tuple({one.id: one for one in facts.folded.verdicts}.values()),  # a resumed run reaches them again
        ladders=tuple(
            ladder for data in planned if data.get("kind") == "ladder" and (ladder := _ladder(facts, str(data["id"])))
        ),
        found=tuple(f"{name}: {one.answer}, {one.reason}" for name, one in facts.searches.items()),
    )


def _ladder(facts: RunProgress, stage: str) -> shown.Ladder | None:
    """Mean TPS by rung over the valid iterations; None when there is none."""
    values: dict[int, list[float]] = {}
    for one in facts.of_stage(stage):
        tps = one.metrics.get("tps")
        if one.valid and isinstance(tps, int | float):
            values.setdefault(one.id.rung, []).append(float(tps))
    rungs = tuple(sorted(values))
    means = tuple(sum(values[rung]) / len(values[rung]) for rung in rungs)
    return shown.Ladder(stage=stage, rungs=rungs, tps=means) if rungs else None


def _lines(table: Timetable) -> Iterator[str]:
    for system in table.systems:
        onward = f", propagates to {system.propagates_to}" if system.propagates_to else ""
        yield f"{system.name}: {system.engine} on {system.host}, {system.origin}{onward}"
    for place, stage in enumerate(table.stages, 1):
        yield f"{place}. {stage.id} ({stage.kind}): {stage.summary}"
    for name, severity, check in table.verdicts:
        yield f"{'warns' if severity == 'warn' else 'fails'} unless {name}: {check}"


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _group(file: Path) -> shown.PlanGroup:
    """The group of a plan by its place: those of the package are not the user's."""
    place = file.resolve().parent
    if place == STARTERS.resolve():
        return "starter"
    return "runs here" if place == STARTERS.resolve().parent else "yours"


def _stamp(path: Path) -> tuple[int, int]:
    """Modification time and size of a file; zeros when it is gone."""
    try:
        about = path.stat()
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_size


def _newest(folder: Path) -> int:
    """Modification time of the newest file in or directly below a folder: plans include such files."""
    try:
        return max(
            (_stamp(path)[0] for pattern in ("*.y*ml", "*/*.y*ml", "*/*.sql") for path in folder.glob(pattern)),
            default=0,
        )
    except OSError:
        return 0


def _journal_stamp(directory: Path) -> tuple[tuple[int, int], tuple[int, int]]:
    from proveout.coordinator.storage.journal import FILE

    return _stamp(directory / FILE), _stamp(directory / f"{FILE}-wal")


# ---- the screen of a run ---------------------------------------------------------------------------------------------

NOTES_MAX = 20


class LocalRun:
    """The services of a run in a directory of this machine; `speed` is that of its replay. `report_address`: where a
    browser finds the report, "" for its path."""

    def __init__(self, directory: RunDirectory, speed: float = 10.0, *, report_address: str = "") -> None:
        self._directory, self._speed, self._report_address = directory, speed, report_address

    def result(self) -> shown.Result:
        return run_result(self._directory.results(), self._directory)

    def replay(self) -> Replay:
        return replay(self._directory, self._speed)

    def report(self) -> str:
        path = report_path(self._directory)
        return (self._report_address or str(path)) if path.is_file() else ""

    def others(self) -> Sequence[tuple[str, str]]:
        from proveout.coordinator.storage import run_directory

        try:
            found = run_directory.all_runs(self._directory.path.parent)
        except ProveoutError:
            return ()
        return [(one.name, str(one.path)) for one in found if one.path != self._directory.path]

    def compare(self, reference: str, other: str, *, despite: bool) -> shown.Comparison:
        here = str(self._directory.path)
        return compared(reference or here, other or here, despite=despite)


def report_path(directory: RunDirectory) -> Path:
    return directory.path / "report.html"


def replay(directory: RunDirectory, speed: float) -> Replay:
    """A replay of the run's journal and samples. JournalFault."""
    from proveout.coordinator.live.ticks import Moved
    from proveout.coordinator.storage.journal import read

    events = read(directory.path)
    return Replay(events, speed, moving=Moved(events, directory.samples))


def run_result(results: RunResults, directory: RunDirectory) -> shown.Result:
    """The result of a run, finished or broken off, from its events."""
    from proveout.coordinator.report.summary import answer, claims, end_sentence, headline, resume_command
    from proveout.coordinator.report.tables import notices, validity_notes

    told = answer(results)
    outcome, tone = end_sentence(results, answered=told is not None)
    notes = [*validity_notes(results), *notices(results)]
    more = [f"and {len(notes) - NOTES_MAX} more in the report"] if len(notes) > NOTES_MAX else []
    return shown.Result(
        outcome=outcome,
        tone=tone,
        answer=told[0] if told else "",
        headline=headline(results),
        verdicts=tuple((one, claims(one, results)) for one in results.verdicts),
        notes=(*notes[:NOTES_MAX], *more),
        next_step=resume_command(results, directory.path),
    )
