"""The pane "Result" of a finished run: outcome, headline numbers, the verdicts with a cursor, the evidence, notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from proveout.core.numbers import safe
from proveout.proto.events import Claim, HeadlineNumber
from proveout.tui.services import Result, Verdict
from proveout.tui.style import ACCENT, MUTED

# `├──●──┤` is the interval with the value, `┃` the limit, `░` the side on which the claim does not hold; an interval
# without an end there goes to `◀` or `▶`. The axis is logarithmic where the numbers span more than `LOG_FROM`.

LOG_FROM = 8.0
MARGIN = 0.08
POINT, LIMIT, BOTH, REFUSED = "●", "┃", "╋", "░"
_REFUSED_ABOVE, _REFUSED_BELOW = ("<", "<="), (">", ">=")


def axis(numbers: Sequence[float], width: int) -> Callable[[float], int]:
    """The cell of a number on an axis of `width` cells that shows all of `numbers`; those outside are at its ends."""
    low, high = min(numbers), max(numbers)
    is_log = low > 0.0 and high / low > LOG_FROM
    scale: Callable[[float], float] = (lambda value: math.log(max(value, low / 1e3))) if is_log else float
    start, end = scale(low), scale(high)
    spread = (end - start) * MARGIN or abs(end) * 0.5 or 1.0
    start, end = start - spread, end + spread

    def cell(value: float) -> int:
        if math.isinf(value):
            return width - 1 if value > 0 else 0
        return min(max(round((scale(value) - start) / (end - start) * (width - 1)), 0), width - 1)

    return cell


def interval_bar(claim: Claim, width: int, *, style: str = "", muted: str = "") -> Text:
    """The claim as a line of `width` cells; blank where there is no value or no limit."""
    known = [value for value in (claim.mean, claim.lower, claim.upper, claim.bound) if _finite(value)]
    if claim.mean is None or claim.bound is None or not _finite(claim.mean):
        return Text(" " * width)
    cell = axis([float(value) for value in known if value is not None], width)
    limit = cell(claim.bound)
    cells: list[tuple[str, str]] = [(_ground(claim.operator, at, limit), muted) for at in range(width)]
    if claim.lower is not None or claim.upper is not None:
        left = 0 if claim.lower is None else cell(claim.lower)
        right = width - 1 if claim.upper is None else cell(claim.upper)
        for at in range(left, right + 1):
            cells[at] = ("─", style)
        cells[left] = ("◀" if claim.lower is None else "├", style)
        cells[right] = ("▶" if claim.upper is None else "┤", style)
    point = cell(claim.mean)
    cells[limit] = (LIMIT, "bold")
    cells[point] = (BOTH if point == limit else POINT, f"bold {style}".strip())
    return Text.assemble(*cells, no_wrap=True)


def _ground(operator: str, at: int, limit: int) -> str:
    above = operator in _REFUSED_ABOVE and at > limit
    below = operator in _REFUSED_BELOW and at < limit
    return REFUSED if above or below else " "


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


SIGNS = {"PASS": ("✓", "good"), "FAIL": ("✗", "bad"), "INCONCLUSIVE": ("?", "warn")}
STATES = {"good": "✓", "bad": "✗", "warn": "■", "": "▶"}
TILES_FROM = 100
"""Cells from which the headline numbers are beside each other."""
BAR, BAR_WIDE = 18, 60
KEYS = ("● value  ├┤ interval  ┃ limit  ░ beyond it", "●├┤ value  ┃ limit", "┃ limit")
STYLES: Mapping[str, str] = {"": "", "good": "green", "bad": "red", "warn": "yellow"}


def outcome_text(result: Result) -> Text:
    """The answer in words, then the sentence of the run's end with the number of verdicts by outcome."""
    text = Text(no_wrap=False, overflow="fold")
    if result.answer:
        text.append(f"{safe(result.answer)}\n", style="bold")
    text.append(f"{STATES[result.tone]} {safe(result.outcome)}", style=f"bold {STYLES[result.tone]}".strip())
    return text


# ---- headline numbers --------------------------------------------------------------------------------------------


def headline_text(numbers: Sequence[HeadlineNumber], width: int) -> Text:
    """The headline numbers: beside each other in a wide room, below each other in a narrow one."""
    if not numbers:
        return Text.assemble(("No headline number: nothing valid was measured.", MUTED))
    return _tiles(numbers, width) if width >= TILES_FROM else _rows(numbers, width)


def _tiles(numbers: Sequence[HeadlineNumber], width: int) -> Text:
    room = max(width // len(numbers) - 3, 16)
    lines = []
    for part in ("label", "value", "interval", "about"):
        line = Text(no_wrap=True)
        for place, one in enumerate(numbers):
            line.append("   " if place else "")
            line.append("▌", style=STYLES[one.tone] or ACCENT)
            style = {"label": "", "value": f"bold {STYLES[one.tone]}".strip()}.get(part, MUTED)
            written = _fitted(one.interval, room - 1) if part == "interval" else safe(getattr(one, part))
            line.append_text(_padded(written, room - 1, style))
        lines.append(line)
    return Text("\n").join(lines)


def _rows(numbers: Sequence[HeadlineNumber], width: int) -> Text:
    values = max(cell_len(one.value) for one in numbers)
    lines = []
    for one in numbers:
        line = Text(no_wrap=True)
        line.append(f"{safe(one.value):>{values}}  ", style=f"bold {STYLES[one.tone]}".strip())
        line.append(safe(one.label))
        for more in (one.interval, one.about):
            if more and line.cell_len + 2 + cell_len(more) <= width:
                line.append(f"  {safe(more)}", style=MUTED)
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Text("\n").join(lines)


def _fitted(interval: str, room: int) -> str:
    """An interval in at most `room` cells: without the parts behind its ends, last first, then without its level."""
    parts = safe(interval).split(", ")
    shorter = [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((text for text in (*shorter, parts[0].partition(" CI ")[2]) if cell_len(text) <= room), "")


def _padded(text: str, room: int, style: str) -> Text:
    """The text in exactly `room` cells; one that is too long ends in `…`."""
    part = Text(text, style=style, no_wrap=True)
    part.truncate(room, overflow="ellipsis", pad=True)
    return part


# ---- verdicts ----------------------------------------------------------------------------------------------------


def verdict_texts(verdicts: Sequence[Verdict], width: int) -> list[Text]:
    """One text for each verdict, a line for each of its claims: outcome, title, value, limit, interval with limit."""
    columns = _Columns(verdicts, width)
    return [Text("\n").join(_lines(one, columns)) for one in verdicts]


def head_text(verdicts: Sequence[Verdict], width: int) -> Text:
    """The heads over the lines of `verdict_texts`."""
    columns = _Columns(verdicts, width)
    text = Text(no_wrap=True)
    text.append_text(_padded("verdict", columns.outcome + 1 + columns.title, ""))
    text.append(f" {'value':>{columns.value}} {'limit':<{columns.limit}} ")
    text.append(next((key for key in KEYS if cell_len(key) <= columns.bar), ""))
    text.stylize(MUTED)
    return text


class _Columns:
    """The widths of the columns in a room of `width` cells."""

    def __init__(self, verdicts: Sequence[Verdict], width: int) -> None:
        claims = [claim for one in verdicts for claim in one.claims]
        self.words = width >= TILES_FROM
        self.outcome = max((cell_len(outcome(one, words=self.words)) for one in verdicts), default=1)
        self.value = max((cell_len(claim.value) for claim in claims), default=5)
        self.limit = max((cell_len(claim.limit) for claim in claims), default=5)
        left = width - self.outcome - self.value - self.limit - 4
        titles = max((cell_len(safe(one.title or one.id)) for one in verdicts), default=8) + 1
        least = BAR if left > 2 * BAR else max(left - 20, 0)
        self.title = max(min(titles, left - least), 8)
        self.bar = max(min(left - self.title, BAR_WIDE), 0)


def outcome(verdict: Verdict, *, words: bool) -> str:
    """`✗ FAIL, warning only`; without words `✗`, `✗ warn`."""
    sign = SIGNS[verdict.outcome][0]
    warns = not verdict.counts and verdict.outcome != "PASS"
    if words:
        return f"{sign} {verdict.outcome}{', warning only' if warns else ''}"
    return f"{sign} warn" if warns else sign


def tone_of(verdict: Verdict) -> str:
    """The tone of an outcome; one that does not count is a warning."""
    return SIGNS[verdict.outcome][1] if verdict.counts or verdict.outcome == "PASS" else "warn"


def _lines(verdict: Verdict, columns: _Columns) -> Iterator[Text]:
    style = STYLES[tone_of(verdict)]
    for place, claim in enumerate(verdict.claims or (Claim(of="", value=""),)):
        line = Text(no_wrap=True)
        word = outcome(verdict, words=columns.words) if place == 0 else ""
        line.append_text(_padded(word, columns.outcome + 1, f"bold {style}".strip()))
        title = safe(verdict.title or verdict.id) if place == 0 else f"  {safe(claim.of)}"
        line.append_text(_padded(title, columns.title, "" if place == 0 else MUTED))
        line.append(f" {safe(claim.value):>{columns.value}} ", style="bold")
        line.append(f"{safe(claim.limit):<{columns.limit}} ")
        line.append_text(interval_bar(claim, columns.bar, style=style, muted=MUTED))
        yield line


def evidence_text(verdict: Verdict) -> Text:
    """The title in full, the check with its place in the plan, and the evidence, a line for each sentence."""
    text = Text(overflow="fold")
    text.append(f"{outcome(verdict, words=True)} ", style=f"bold {STYLES[tone_of(verdict)]}".strip())
    text.append(safe(verdict.id), style="bold")
    text.append(f"  {safe(verdict.title)}\n")
    if verdict.check:
        text.append(f"{safe(verdict.check)}{f'  ({safe(verdict.where)})' if verdict.where else ''}\n",
                    style=MUTED)  # fmt: skip
    for piece in verdict.evidence:
        text.append(f"· {safe(piece)}\n")
    return text


def notes_text(result: Result) -> Text:
    """The notes of the run, and the command that continues it."""
    text = Text(overflow="fold")
    if result.notes:
        text.append("Notes of the run\n", style="bold")
    for note in result.notes:
        text.append("! ", style=STYLES["warn"])
        text.append(f"{safe(note)}\n")
    if result.next_step:
        text.append(f"Continue with: {safe(result.next_step)}\n", style="bold")
    return text


WAITING = "The run has not ended. Its result is shown here when it has; the verdicts so far are in the pane Verdicts."
SCROLLBAR = 2


class ResultPane(VerticalScroll, can_focus=False):
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
    ResultPane #result-evidence { height: 1fr; min-height: 9; border-top: solid $foreground 70%; }
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
        self.query_one("#result-outcome", Static).update(outcome_text(result))
        self.query_one("#result-headline", Static).update(headline_text(result.headline, width))
        room = width - SCROLLBAR
        self.query_one("#result-head", Static).update(head_text(result.verdicts, room))
        options = self.query_one(OptionList)
        here = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(line) for line in verdict_texts(result.verdicts, room)])
        options.display = self.query_one("#result-head").display = bool(result.verdicts)
        options.highlighted = min(here, len(result.verdicts) - 1) if result.verdicts else None
        self.query_one("#result-notes", Static).update(notes_text(result))
        self._detail(options.highlighted)

    def _detail(self, place: int | None) -> None:
        details = self.query_one("#result-details", Static)
        if self._result is None or place is None:
            details.update("" if self._result is None or self._result.verdicts else "No verdict was reached.")
            return
        details.update(evidence_text(self._result.verdicts[place]))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the evidence of the verdict under the cursor."""
        self._detail(event.option_index)
