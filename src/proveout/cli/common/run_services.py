"""Services of the screen of a run: its result, its replay, its report, other runs to compare it with.

Data flow: a run directory -> its journal -> `RunResults` -> the selection of `coordinator.report.summary` -> the frozen
`Result` of the screen. Every call may block and is made in a thread of the screen, but for paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.core.numbers import pieces
from proveout.tui.result import model as shown
from proveout.tui.run.event_source import Pace, Replay

if TYPE_CHECKING:
    from proveout.coordinator.results.results import RunResults
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.proto.events import VerdictReached
    from proveout.tui.home.services import Comparison

NOTES_MAX = 20


class LocalRun:
    """The services of a run in a directory of this machine; `speed` is that of its replay. `report_address`: where a
    browser finds the report, "" for its path."""

    def __init__(self, directory: RunDirectory, speed: float = 10.0, *, report_address: str = "") -> None:
        self._directory, self._speed, self._report_address = directory, speed, report_address

    def result(self) -> shown.Result:
        """The result as it is recorded now. JournalFault."""
        from proveout.coordinator.results.results import load_results
        from proveout.coordinator.storage.journal import read

        return run_result(load_results(read(self._directory.path)), self._directory)

    def replay(self) -> Replay:
        """A replay from the beginning. JournalFault."""
        return replay(self._directory, self._speed)

    def report(self) -> str:
        """The path or address of the HTML report, "" while there is none."""
        path = report_path(self._directory)
        return (self._report_address or str(path)) if path.is_file() else ""

    def others(self) -> Sequence[tuple[str, str]]:
        """The other runs beside this one, newest first."""
        from proveout.coordinator.storage import run_directory

        try:
            found = run_directory.all_runs(self._directory.path.parent)
        except OSError:
            return ()
        return [(one.name, str(one.path)) for one in found if one.path != self._directory.path]

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side; "" is this run. JournalFault, or ProveoutError when one has not begun."""
        from proveout.cli.common.compared_runs import compared

        here = str(self._directory.path)
        return compared(reference or here, other or here, despite=despite)


def report_path(directory: RunDirectory) -> Path:
    """The place of the HTML report of a run."""
    return directory.path / "report.html"


def replay(directory: RunDirectory, speed: float, *, at_end: bool = False) -> Replay:
    """A replay of the run's journal and samples, from its beginning, or paused at its end. JournalFault."""
    from proveout.coordinator.live.replay import Moved
    from proveout.coordinator.storage.journal import read

    events = read(directory.path)
    return Replay(events, Pace(speed=speed), moving=Moved(events, directory.samples), at_end=at_end)


def run_result(results: RunResults, directory: RunDirectory) -> shown.Result:
    """The result of a run, finished or broken off, from its events."""
    from proveout.coordinator.report.summary.headline import headline
    from proveout.coordinator.report.summary.run_end import end_sentence, resume_command
    from proveout.coordinator.report.tables import validity_notes

    outcome, tone = end_sentence(results)
    serious = [f"{one.host}: {one.text}" if one.host else one.text for one in results.notices if one.level != "info"]
    notes = [*validity_notes(results), *serious]
    more = [f"and {len(notes) - NOTES_MAX} more in the report"] if len(notes) > NOTES_MAX else []
    return shown.Result(
        outcome=outcome,
        tone=tone,
        headline=tuple(
            shown.HeadlineNumber(
                label=one.label, value=one.value, interval=one.interval, about=one.about, tone=one.tone
            )
            for one in headline(results)
        ),
        verdicts=tuple(_verdict(one, results) for one in results.verdicts),
        notes=(*notes[:NOTES_MAX], *more),
        next_step=resume_command(results, directory.path),
    )


def _verdict(one: VerdictReached, results: RunResults) -> shown.Verdict:
    from proveout.coordinator.report.summary.claims import claims

    return shown.Verdict(
        id=one.id,
        title=one.title,
        outcome=one.outcome,
        counts=one.severity != "warn",
        claims=claims(one, results),
        evidence=tuple(pieces(one.evidence)),
        check=one.check,
        where=f"{Path(one.file).name}:{one.line}" if one.file and one.line else "",
    )
