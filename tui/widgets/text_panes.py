"""Text panes: verdicts with their evidence, tunings with their diffs, and the log of events with a filter.

Data flow: `RunView.verdicts`, `.tunings`, `.log` -> text (pure) -> scrolling panes.
"""

from __future__ import annotations

from datetime import datetime

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Static

from proveout.core.numbers import safe
from proveout.tui.colours import MUTED
from proveout.tui.event_log import LogLine
from proveout.tui.run_view import RunView
from proveout.tui.widgets.header import OUTCOMES, PROVISIONAL

LEVELS = {"info": (" ", ""), "warning": ("!", "yellow"), "error": ("✗", "bold red")}
SIGNS = {"✓": "green", "!": "bold yellow", "✗": "bold red"}
DIFF = {"+": "green", "-": "red"}
SHOWN_MAX = 400


def verdict_text(view: RunView) -> Text:
    """Reached verdicts, then provisional ones, then those that are undecided."""
    text = Text()
    for verdict in view.verdicts:
        sign, style = OUTCOMES[verdict.outcome]
        text.append(f"{sign} {verdict.outcome} ", style=style)
        text.append(safe(verdict.id), style="bold")
        text.append(f"  {safe(verdict.title)}\n")
        text.append(f"    {safe(verdict.evidence)}\n", style=MUTED)
    for early in view.foreseen:
        sign, style = OUTCOMES[early.outcome]
        text.append(f"{PROVISIONAL}{sign} {early.outcome} so far ", style=style)
        text.append(safe(early.id), style="bold")
        text.append(f"  {safe(early.title)}\n")
        text.append(f"    provisional: {safe(early.evidence)}\n", style=MUTED)
    for name in view.planned_verdicts:
        if name not in view.judged_ids:
            text.append(f"· {safe(name)}  undecided\n", style=MUTED)
    return text if text else Text("This plan has no verdicts yet.")


def tuning_text(view: RunView) -> Text:
    """Every tuning on every host with its state and its diff."""
    text = Text()
    for one in view.tunings.values():
        text.append(f"{one.sign} ", style=SIGNS[one.sign])
        text.append(f"{safe(one.host)}: {safe(one.name)}", style="bold")
        text.append(f" ({safe(one.operation)})  ", style=MUTED)
        text.append(f"{one.describe(ended=view.ended is not None)}\n", style=SIGNS[one.sign])
        for line in one.lines:
            text.append(f"    {safe(line)}\n", style=DIFF.get(line.lstrip()[:1], MUTED))
    return text if text else Text("No host has been tuned." if view.run_id else "")


def matches(line: LogLine, wanted: str) -> bool:
    """Whether every word of the filter is in the line: its text, its host or its level, in any case."""
    held = f"{line.level} {line.host} {line.text}".casefold()
    return all(word in held for word in wanted.casefold().split())


def log_text(view: RunView, wanted: str) -> Text:
    """The lines that match, newest first."""
    lines = [line for line in reversed(view.log) if matches(line, wanted)][:SHOWN_MAX]
    text = Text()
    for line in lines:
        sign, style = LEVELS[line.level]
        text.append(f"{datetime.fromtimestamp(line.unix_s).astimezone():%H:%M:%S} ", style=MUTED)
        text.append(f"{sign} ", style=style)
        text.append(f"{safe(line.host)}: " if line.host else "")
        text.append(f"{safe(line.text)}\n", style=style)
    return text if text else Text("No event matches." if wanted else "Nothing has happened yet.")


class Verdicts(VerticalScroll):
    """All verdicts of the plan."""

    _drawn: object = None

    def compose(self) -> ComposeResult:
        """One block of text."""
        yield Static()

    def show(self, view: RunView) -> None:
        """Bring the text up to date."""
        now = (view.verdicts, view.foreseen, view.planned_verdicts)
        if now == self._drawn:
            return
        self._drawn = now
        self.query_one(Static).update(verdict_text(view))


class Tunings(VerticalScroll):
    """All tunings of the run."""

    _drawn: object = None

    def compose(self) -> ComposeResult:
        """One block of text."""
        yield Static()

    def show(self, view: RunView) -> None:
        """Bring the text up to date."""
        if self._drawn is view.tunings:
            return
        self._drawn = view.tunings
        self.query_one(Static).update(tuning_text(view))


class Events(Vertical):
    """The log, newest first, with a filter above."""

    def __init__(self, *, id: str, filtered: bool = True) -> None:
        super().__init__(id=id)
        self._filtered = filtered
        self._view = RunView()
        self._drawn: tuple[tuple[LogLine, ...], str] | None = None

    def compose(self) -> ComposeResult:
        """Filter and lines."""
        if self._filtered:
            yield Input(placeholder="filter: words that must be there (a host, error, a stage …)", compact=True)
        with VerticalScroll():
            yield Static()

    def on_input_changed(self) -> None:
        """Filter again."""
        self.show(self._view)

    def show(self, view: RunView) -> None:
        """Bring the lines up to date."""
        self._view = view
        wanted = self.query_one(Input).value if self._filtered else ""
        if self._drawn is None or self._drawn[0] is not view.log or self._drawn[1] != wanted:
            self._drawn = (view.log, wanted)
            self.query_one(Static).update(log_text(view, wanted))
