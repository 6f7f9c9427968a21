"""The pane "Result" of a finished run: outcome, headline numbers, the verdicts with a cursor, the evidence, notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from proveout.core.numbers import pieces, safe
from proveout.proto.events import Claim, HeadlineNumber, VerdictReached
from proveout.tui.charts import interval
from proveout.tui.services import Judged, Result
from proveout.tui.style import ACCENT, MUTED, OUTCOMES, text_line

# `├──●──┤` is the interval with the value, `┃` the limit, `░` the side on which the claim does not hold; an interval
# without an end there goes to `◀` or `▶`. The axis is logarithmic where the numbers span more than `LOG_FROM`.

LOG_FROM = 8.0
MARGIN = 0.08
POINT, LIMIT, BOTH, REFUSED = "●", "┃", "╋", "░"
TILES_FROM = 100
"""Cells from which the headline numbers are beside each other."""
BAR, BAR_WIDE = 18, 60
KEYS = ("● value  ├┤ interval  ┃ limit  ░ beyond it", "●├┤ value  ┃ limit", "┃ limit")
STATES = {"good": "✓", "bad": "✗", "warn": "■", "": "▶"}
STYLES: Mapping[str, str] = {
    "": "", "good": "green", "bad": "red", "warn": "yellow", "PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow",
}  # fmt: skip
"""The colour of a tone, and of an outcome."""


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


def interval_bar(claim: Claim, width: int, style: str = "") -> Text:
    """The claim as a line of `width` cells; blank where there is no value or no limit."""
    if not width or claim.mean is None or claim.bound is None or not math.isfinite(claim.mean):
        return Text(" " * width)
    ends = (claim.mean, claim.lower, claim.upper, claim.bound)
    cell = axis([value for value in ends if value is not None and math.isfinite(value)], width)
    limit, point = cell(claim.bound), cell(claim.mean)
    refused = range(limit + 1, width) if claim.operator[:1] == "<" else range(limit if claim.operator[:1] == ">" else 0)
    cells = [(REFUSED if at in refused else " ", MUTED) for at in range(width)]
    if claim.lower is not None or claim.upper is not None:
        left = 0 if claim.lower is None else cell(claim.lower)
        right = width - 1 if claim.upper is None else cell(claim.upper)
        interval(
            cells, left, right, ("◀" if claim.lower is None else "├") + ("▶" if claim.upper is None else "┤"), style
        )
    cells[limit] = (LIMIT, "bold")
    cells[point] = (BOTH if point == limit else POINT, f"bold {style}".strip())
    return Text.assemble(*cells, no_wrap=True)


def outcome_text(result: Result) -> Text:
    """The answer in words, then the sentence of the run's end with the number of verdicts by outcome."""
    end = (f"{STATES[result.tone]} {safe(result.outcome)}", f"bold {STYLES[result.tone]}".strip())
    return Text.assemble((f"{safe(result.answer)}\n" if result.answer else "", "bold"), end, overflow="fold")


# ---- headline numbers --------------------------------------------------------------------------------------------


def headline_text(numbers: Sequence[HeadlineNumber], width: int) -> Text:
    """The headline numbers: beside each other in a wide room, below each other in a narrow one."""
    if not numbers:
        return Text.assemble(("No headline number: nothing valid was measured.", MUTED))
    return Text("\n").join(_tiles(numbers, width) if width >= TILES_FROM else _rows(numbers, width))


def _tiles(numbers: Sequence[HeadlineNumber], width: int) -> Iterator[Text]:
    room = max(width // len(numbers) - 3, 16)
    for part in ("label", "value", "interval", "about"):
        line = text_line()
        for place, one in enumerate(numbers):
            line.append("   " if place else "")
            line.append("▌", style=STYLES[one.tone] or ACCENT)
            style = {"label": "", "value": f"bold {STYLES[one.tone]}".strip()}.get(part, MUTED)
            written = _fitted(one.interval, room - 1) if part == "interval" else safe(getattr(one, part))
            line.append_text(_padded(written, room - 1, style))
        yield line


def _rows(numbers: Sequence[HeadlineNumber], width: int) -> Iterator[Text]:
    values = max(cell_len(one.value) for one in numbers)
    for one in numbers:
        line = text_line()
        line.append(f"{safe(one.value):>{values}}  ", style=f"bold {STYLES[one.tone]}".strip())
        line.append(safe(one.label))
        for more in (one.interval, one.about):
            if more and line.cell_len + 2 + cell_len(more) <= width:
                line.append(f"  {safe(more)}", style=MUTED)
        line.truncate(width, overflow="ellipsis")
        yield line


def _fitted(interval: str, room: int) -> str:
    """An interval in at most `room` cells: without the parts behind its ends, last first, then without its level."""
    parts = safe(interval).split(", ")
    shorter = [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((text for text in (*shorter, parts[0].partition(" CI ")[2]) if cell_len(text) <= room), "")


def _padded(text: str, room: int, style: str) -> Text:
    """The text in exactly `room` cells; one that is too long ends in `…`."""
    part = text_line(text, style)
    part.truncate(room, overflow="ellipsis", pad=True)
    return part


# ---- verdicts ----------------------------------------------------------------------------------------------------


def verdict_texts(verdicts: Sequence[Judged], width: int) -> list[Text]:
    """One text for each verdict, a line for each of its claims: outcome, title, value, limit, interval with limit."""
    columns = _Columns(verdicts, width)
    return [Text("\n").join(_lines(*one, columns)) for one in verdicts]


def head_text(verdicts: Sequence[Judged], width: int) -> Text:
    """The heads over the lines of `verdict_texts`."""
    columns = _Columns(verdicts, width)
    key = next((key for key in KEYS if cell_len(key) <= columns.bar), "")
    text = _padded("verdict", columns.outcome + 1 + columns.title, "")
    text.append(f" {'value':>{columns.value}} {'limit':<{columns.limit}} {key}").stylize(MUTED)
    return text


class _Columns:
    """The widths of the columns in a room of `width` cells."""

    def __init__(self, verdicts: Sequence[Judged], width: int) -> None:
        claims = [claim for _, of_verdict in verdicts for claim in of_verdict]
        self.words = width >= TILES_FROM
        self.outcome = max((cell_len(_outcome(one, words=self.words)) for one, _ in verdicts), default=1)
        self.value = max((cell_len(claim.value) for claim in claims), default=5)
        self.limit = max((cell_len(claim.limit) for claim in claims), default=5)
        left = width - self.outcome - self.value - self.limit - 4
        titles = max((cell_len(_title(one)) for one, _ in verdicts), default=8) + 1
        least = BAR if left > 2 * BAR else max(left - 20, 0)
        self.title = max(min(titles, left - least), 8)
        self.bar = max(min(left - self.title, BAR_WIDE), 0)


def _title(verdict: VerdictReached) -> str:
    return safe(verdict.title or verdict.id)


def _warns(verdict: VerdictReached) -> bool:
    """Whether it has failed and does not count."""
    return verdict.severity == "warn" and verdict.outcome != "PASS"


def _outcome(verdict: VerdictReached, *, words: bool) -> str:
    """`✗ FAIL, warning only`; without words `✗`, `✗ warn`."""
    sign = OUTCOMES[verdict.outcome][0]
    if words:
        return f"{sign} {verdict.outcome}{', warning only' if _warns(verdict) else ''}"
    return f"{sign} warn" if _warns(verdict) else sign


def _style(verdict: VerdictReached) -> str:
    return STYLES["warn" if _warns(verdict) else verdict.outcome]


def _lines(verdict: VerdictReached, claims: Sequence[Claim], columns: _Columns) -> Iterator[Text]:
    style = _style(verdict)
    for place, claim in enumerate(claims or (Claim(of="", value=""),)):
        line = text_line()
        word = _outcome(verdict, words=columns.words) if place == 0 else ""
        line.append_text(_padded(word, columns.outcome + 1, f"bold {style}"))
        title = _title(verdict) if place == 0 else f"  {safe(claim.of)}"
        line.append_text(_padded(title, columns.title, "" if place == 0 else MUTED))
        line.append(f" {safe(claim.value):>{columns.value}} ", style="bold")
        line.append(f"{safe(claim.limit):<{columns.limit}} ")
        yield line.append_text(interval_bar(claim, columns.bar, style))


def evidence_text(verdict: VerdictReached) -> Text:
    """The title in full, the check with its place in the plan, and the evidence, a line for each sentence."""
    where = f"  ({safe(Path(verdict.file).name)}:{verdict.line})" if verdict.file and verdict.line else ""
    return Text.assemble(
        (f"{_outcome(verdict, words=True)} ", f"bold {_style(verdict)}"),
        (safe(verdict.id), "bold"),
        f"  {safe(verdict.title)}\n",
        (f"{safe(verdict.check)}{where}\n" if verdict.check else "", MUTED),
        *(f"· {safe(piece)}\n" for piece in pieces(verdict.evidence)),
        overflow="fold",
    )


def notes_text(result: Result) -> Text:
    """The notes of the run, and the command that continues it."""
    notes = [part for note in result.notes for part in (("! ", STYLES["warn"]), f"{safe(note)}\n")]
    next_step = f"Continue with: {safe(result.next_step)}\n" if result.next_step else ""
    return Text.assemble(("Notes of the run\n" if notes else "", "bold"), *notes, (next_step, "bold"), overflow="fold")


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

    _result: Result | None = None

    def compose(self) -> ComposeResult:
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
        self._draw()

    def _draw(self) -> None:
        result, width = self._result, self.size.width - 2
        if result is None or width <= 0:
            return
        verdicts, room = result.verdicts, width - SCROLLBAR
        for part, text in {
            "outcome": outcome_text(result),
            "headline": headline_text(result.headline, width),
            "head": head_text(verdicts, room),
            "notes": notes_text(result),
        }.items():
            self.query_one(f"#result-{part}", Static).update(text)
        options = self.query_one(OptionList)
        here = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(line) for line in verdict_texts(verdicts, room)])
        options.display = self.query_one("#result-head").display = bool(verdicts)
        options.highlighted = min(here, len(verdicts) - 1) if verdicts else None
        self._detail(options.highlighted)

    def _detail(self, place: int | None) -> None:
        if self._result is not None:
            shown = "" if self._result.verdicts else "No verdict was reached."
            text = shown if place is None else evidence_text(self._result.verdicts[place][0])
            self.query_one("#result-details", Static).update(text)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the evidence of the verdict under the cursor."""
        self._detail(event.option_index)
