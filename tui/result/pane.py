"""The pane "Result" of a finished run: outcome, headline numbers, the verdicts with a cursor, the evidence of the one
under it, notes.

Data flow: `show_result(Result)` -> texts (`text`) -> widgets; a resize draws them again.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from proveout.tui.result import text
from proveout.tui.result.model import Result

WAITING = "The run has not ended. Its result is shown here when it has; the verdicts so far are in the pane Verdicts."
SCROLLBAR = 2


class ResultPane(Vertical):
    """Empty until `show_result`."""

    DEFAULT_CSS = """
    ResultPane { height: 1fr; padding: 0 1; }
    ResultPane Static { height: auto; }
    ResultPane #result-headline { margin: 1 0; }
    ResultPane OptionList {
        height: auto; max-height: 50%; min-height: 3; border: none; padding: 0; background: $background;
    }
    ResultPane OptionList > .option-list--option { padding: 0; }
    ResultPane OptionList > .option-list--option-highlighted,
    ResultPane OptionList:focus > .option-list--option-highlighted {
        color: $foreground; background: $panel; text-style: none;
    }
    ResultPane #result-evidence { height: 1fr; border-top: solid $foreground 70%; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._result: Result | None = None

    def compose(self) -> ComposeResult:
        """Outcome, headline numbers, verdicts, evidence with notes."""
        yield Static(WAITING, id="result-outcome")
        yield Static(id="result-headline")
        yield Static(id="result-head")
        yield OptionList(id="result-verdicts", compact=True)
        with VerticalScroll(id="result-evidence", can_focus=True):
            yield Static(id="result-details")
            yield Static(id="result-notes")

    def on_mount(self) -> None:
        """Make the texts again for another theme, because they keep the colours that they were made with."""
        self.watch(self.app, "theme", self._theme_changed, init=False)

    def _theme_changed(self) -> None:
        self.call_after_refresh(self._draw)

    def show_result(self, result: Result, *, focus: bool) -> None:
        """Show it."""
        self._result = result
        self._draw()
        if focus:
            self.query_one(OptionList).focus()

    def on_resize(self) -> None:
        """Draw in the new width."""
        self._draw()

    def _draw(self) -> None:
        result, width = self._result, self.size.width - 2
        if result is None or width <= 0:
            return
        self.query_one("#result-outcome", Static).update(text.outcome_text(result))
        self.query_one("#result-headline", Static).update(text.headline_text(result.headline, width))
        room = width - SCROLLBAR
        self.query_one("#result-head", Static).update(text.head_text(result.verdicts, room))
        options = self.query_one(OptionList)
        here = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(line) for line in text.verdict_texts(result.verdicts, room)])
        options.display = self.query_one("#result-head").display = bool(result.verdicts)
        options.highlighted = min(here, len(result.verdicts) - 1) if result.verdicts else None
        self.query_one("#result-notes", Static).update(text.notes_text(result))
        self._detail(options.highlighted)

    def _detail(self, place: int | None) -> None:
        details = self.query_one("#result-details", Static)
        if self._result is None or place is None:
            details.update("" if self._result is None or self._result.verdicts else "No verdict was reached.")
            return
        details.update(text.evidence_text(self._result.verdicts[place]))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the evidence of the verdict under the cursor."""
        self._detail(event.option_index)
