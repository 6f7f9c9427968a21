"""Plain progress lines of a run: for CI, pipes, and terminals without a screen.

Data flow: stamped events -> `tui.run_view.reduce` -> a `RunView` -> lines. A single event (a stage begins, an iteration
ends, a verdict) is a line of its own; load and progress are at most one line a second, and none without a change. Lines
are never rewritten, but on a terminal: there a line of load and progress moves below a table of the ladder under way.
Colour only on a terminal and without NO_COLOR. Text from outside cannot act on the terminal (`numbers.safe`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from proveout.coordinator.report.summary import untold
from proveout.core.numbers import (
    clock,
    column,
    count_of,
    iteration_numbers,
    microseconds,
    number,
    percent,
    rate_unit,
    rung_name,
    safe,
    seconds,
    threads,
    without_notes,
)
from proveout.dsl.plan.stages import lengths_s
from proveout.proto.events import (
    AgentLost,
    AgentUp,
    FaultSeen,
    InvariantsSeen,
    IterationFinished,
    IterationId,
    IterationStarted,
    IterationVoided,
    LadderCut,
    LoadTick,
    Notice,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageProgress,
    StageStarted,
    Stamped,
    SystemUp,
    TuningSeen,
    ValuesTaken,
    VerdictForeseen,
    VerdictReached,
)
from proveout.proto.events import log_text as fault_text
from proveout.tui.run_view import RunView, StageView, reduce, values_text

LIVE_EVERY_S = 1.0
_LADDERS = ("ladder", "tool")
"""The kinds of stages that are a table of rungs."""
_COLOURS = {"PASS": "32", "FAIL": "31", "INCONCLUSIVE": "33", "error": "31", "warning": "33"}


def wants_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal that takes colour (https://no-color.org; TERM=dumb has none)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class HeadlessPrinter:
    """Print the line of each stamped event.

    Call it with the events in order; it flushes `stream`, which does not fail (`Stream` of the package `cli`).
    """

    quiet = False
    """Whether results have no summary either."""

    def __init__(self, stream: TextIO, *, colour: bool | None = None) -> None:
        self.view = RunView()
        self._stream = stream
        self._colour = wants_colour(stream) if colour is None else colour
        self._live_at_s = float("-inf")
        self._live_text = ""

    def __call__(self, stamped: Stamped) -> None:
        self.view = reduce(self.view, stamped)
        if isinstance(stamped.event, LoadTick | StageProgress):
            self._live(stamped)
            return
        if text := _line(self.view, stamped):
            self._say(stamped, text)

    def _say(self, stamped: Stamped, text: str) -> None:
        self._write(text)

    def leave(self) -> None:
        """Another text follows on the terminal: what moves stays above it."""

    def _live(self, stamped: Stamped) -> None:
        text = _tick(self.view, stamped)
        due = stamped.unix_s - self._live_at_s >= LIVE_EVERY_S or stamped.unix_s < self._live_at_s
        if due and text and text != self._live_text:
            self._live_at_s, self._live_text = stamped.unix_s, text
            self._move(text)

    def _move(self, text: str) -> None:
        self._write(text)

    def _write(self, text: str) -> None:
        self._put(f"{self._clock()} {self._paint(text)}\n".lstrip(" "))

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _clock(self) -> str:
        """Elapsed time, and the estimated remaining time: `[ 1:05, 2:10 left]`."""
        left = clock(self.view.remaining_s)
        rest = f", {left} left" if self.view.remaining_s >= 1.0 else ""
        return f"[{clock(self.view.elapsed_s):>5}{rest}]"

    def _paint(self, text: str) -> str:
        word = text.partition(" ")[0].rstrip(":")
        if not self._colour or word not in _COLOURS:
            return text
        return f"\x1b[{_COLOURS[word]}m{word}\x1b[0m{text[len(word) :]}"


class QuietPrinter(HeadlessPrinter):
    """Errors, verdicts that did not pass, and the sentence at the end, without a clock."""

    quiet = True

    def __call__(self, stamped: Stamped) -> None:
        self.view = reduce(self.view, stamped)
        event = stamped.event
        failed = isinstance(event, VerdictReached) and event.outcome != "PASS"
        wrong = isinstance(event, AgentLost) or (isinstance(event, Notice) and event.level == "error")
        if failed or wrong or isinstance(event, RunFinished):
            self._write(_line(self.view, stamped))

    def _clock(self) -> str:
        return ""


class LiveLinePrinter(HeadlessPrinter):
    """As `HeadlessPrinter` for a terminal of `size()` (columns, lines): load and progress are one line that is
    rewritten, below a table of the ladders under way, which stands for the lines of their iterations."""

    def __init__(self, stream: TextIO, *, size: Callable[[], tuple[int, int]], colour: bool | None = None) -> None:
        super().__init__(stream, colour=colour)
        self._size = size
        self._above = 0  # lines of what moves, above the one with the cursor

    def __call__(self, stamped: Stamped) -> None:
        event, before = stamped.event, self.view
        if isinstance(event, StageFinished | RunFinished):
            ends = [one for one in _ladders(before) if isinstance(event, RunFinished) or one.id == event.stage]
            self._put(self._cleared() + "".join(f"{line}\n" for stage in ends for line in _rung_table(stage)))
        super().__call__(stamped)

    def _say(self, stamped: Stamped, text: str) -> None:
        match stamped.event:
            case IterationStarted(id=found) | IterationFinished(id=found, valid=True):
                if found.stage in [stage.id for stage in _ladders(self.view)]:
                    self._draw(text)
                    return
        super()._say(stamped, text)

    def leave(self) -> None:
        """The table stays as it is, above what follows."""
        self._above = 0

    def _move(self, text: str) -> None:
        self._draw(text)

    def _write(self, text: str) -> None:
        self._put(self._cleared())
        super()._write(text)
        self._draw(None)

    def _draw(self, text: str | None) -> None:
        """The table with the line `text` after the clock, None for no line."""
        table = [line for stage in _ladders(self.view) for line in _rung_table(stage)]
        lines = [*table, *([] if text is None else [f"{self._clock()} {text}".rstrip()])]
        width, height = self._size()
        if len(lines) >= height:
            lines = lines[-1:] if text is not None else []
        cleared = self._cleared()
        self._above = max(len(lines) - 1, 0)
        self._put(cleared + "\n".join(line[: max(1, width - 1)] for line in lines))

    def _cleared(self) -> str:
        """The sequence that clears the lines that move, and leaves the cursor at their start."""
        up = f"\x1b[{self._above}A" if self._above else ""
        self._above = 0
        return f"\r{up}\x1b[J"


def _ladders(view: RunView) -> list[StageView]:
    return [stage for stage in view.stages if stage.kind in _LADDERS and stage.state == "running"]


def _rung_table(stage: StageView) -> Iterator[str]:
    """The rungs so far, each over its repeats; no line before the first."""
    found, ran = stage.throughput, stage.rungs
    if not found:
        return
    times = [
        column("_us", [_mean([getattr(one, name) for one in ran[rung]]) for rung in found])
        for name in ("p50_us", "p99_us")
    ]
    titles = ("I/O depth" if stage.kind == "tool" else "threads", rate_unit(stage.kind))
    rows = [(*titles, percent(stage.confidence), "p50", "p99", "repeats")]
    for place, (rung, rate) in enumerate(found.items()):
        of = f"{rate.n} of {stage.repeats}" if stage.repeats else f"{rate.n}"
        rows.append((f"{rung}", *rate.cells, times[0][place], times[1][place], of))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        yield f"  {safe(stage.id)}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _name(view: RunView, iteration: IterationId) -> str:
    """`baseline, 4 threads, repeat 2 of 3 (attempt 2)`; a search's iterations are probes."""
    stage = view.stage(iteration.stage)
    again = f" (attempt {iteration.attempt})" if iteration.attempt > 1 else ""
    if stage is not None and stage.kind == "search":
        return f"{safe(iteration.stage)}, {threads(iteration.rung)}, probe {iteration.repeat}{again}"
    repeats = f" of {stage.repeats}" if stage is not None and stage.repeats else ""
    rung = rung_name(stage.kind if stage is not None else "", iteration.rung)
    return f"{safe(iteration.stage)}, {rung}, repeat {iteration.repeat}{repeats}{again}"


# ---- load and progress -------------------------------------------------------------------------------------------


def _tick(view: RunView, stamped: Stamped) -> str:
    event = stamped.event
    if isinstance(event, StageProgress):
        share = f" ({percent(round(event.done / event.total, 3))})" if event.total > 0.0 else ""
        total = f" of {number(event.total)}" if event.total > 0.0 else ""
        note = f", {safe(event.note)}" if event.note else ""
        return (
            f"  {safe(event.stage)} on {safe(event.host)}: {number(event.done)}{total} {safe(event.unit)}{share}{note}"
        )
    if not isinstance(event, LoadTick):
        return ""
    errors = f", {event.errors} errors" if event.errors else ""
    window = event.window.replace("_", "-")
    # A program may report the times of the whole window only, and a system that is down answers nothing.
    times = "" if event.avg_us is None else f", avg {microseconds(event.avg_us)}, p99 {microseconds(event.p99_us)}"
    return (
        f"  {_name(view, event.id)}: {window} {event.second} s, {number(event.tps)} {view.unit(event.id.stage)}"
        f"{times}{errors}"
    )


# ---- what happens ------------------------------------------------------------------------------------------------


def _line(view: RunView, stamped: Stamped) -> str:  # noqa: PLR0911 - one arm per kind of event
    match stamped.event:
        case RunStarted() as run:
            again = f", resumed ({run.resumed})" if run.resumed else ""
            about = f", about {seconds(run.estimate_s)}" if run.estimate_s else ""
            title = f": {safe(run.title)}" if run.title else ""
            return f"run {safe(run.run_id)}{again}{title}{about}"
        case AgentUp() as agent:
            bound = f"clock ± {microseconds(agent.uncertainty_ns / 1e3)}"
            return f"agent {safe(agent.host)} is up: {agent.cores} cores, {bound}"
        case AgentLost() as lost:
            return f"error: agent {safe(lost.host)} is lost: {safe(lost.reason)}"
        case SystemUp() as system:
            version = f"{safe(system.engine)} {safe(system.version)}"
            return f"system {safe(system.system)} is up on {safe(system.host)}: {version}"
        case Notice() as notice:
            where = f" on {safe(notice.host)}" if notice.host else ""
            return f"{notice.level}{where}: {safe(notice.text)}"
        case VerdictForeseen() as verdict:
            return (
                f"provisional: {verdict.outcome} {safe(verdict.id)}: {safe('; '.join(without_notes(verdict.evidence)))}"
            )
        case VerdictReached() as verdict:
            warn = " (warning only)" if verdict.severity == "warn" and verdict.outcome != "PASS" else ""
            return f"{verdict.outcome} {safe(verdict.id)}{warn}: {safe('; '.join(without_notes(verdict.evidence)))}"
        case RunFinished() as ended:
            reason = untold(ended.reason, [one.text for one in view.notices])
            return f"{ended.status} in {seconds(ended.seconds)}: {safe(reason)} (exit code {ended.exit_code})"
        case _:
            return _stage_line(stamped) or _iteration_line(view, stamped)


def _stage_line(stamped: Stamped) -> str:  # noqa: PLR0911 - one arm per kind of event
    match stamped.event:
        case StageStarted() as stage:
            most = "up to " if stage.kind == "search" else ""
            count = f", {most}{stage.iterations} iterations" if stage.iterations else ""
            about = f", about {seconds(stage.estimate_s)}" if stage.estimate_s else ""
            return f"stage {safe(stage.stage)} ({safe(stage.kind)}) begins{count}{about}"
        case StageFinished() as stage:
            if stage.outcome == "skipped":
                return ""  # the notice before it has the reason
            word = "is done" if stage.outcome == "ok" else "failed"
            return f"stage {safe(stage.stage)} {word} after {seconds(stage.seconds)}"
        case ValuesTaken() as taken:
            numbers = values_text(taken)
            return f"  {safe(taken.stage)}, repeat {taken.repeat}: {numbers}" if numbers else ""
        case PopulateFinished() as done:
            rows, took_s = done.populated.rows, done.populated.seconds
            loaded = rows - done.populated.kept_rows
            rate = f", {number(loaded / took_s)} rows/s" if took_s else ""
            return f"  {safe(done.system)} holds {rows:,} rows after {seconds(took_s)}{rate}"
        case ProbeFinished() as probe:
            word = "accepted" if probe.accepted else "refused"
            return f"  {safe(probe.stage)} {probe.phase}: {probe.level} {word}: {safe(probe.evidence)}"
        case SearchFinished() as search:
            return f"  {safe(search.stage)}: {search.answer} in {search.probes} probes: {safe(search.reason)}"
        case LadderCut() as cut:
            skipped = ", ".join(map(str, cut.skipped))
            return f"  {safe(cut.stage)} stops at {threads(cut.at_rung)} ({safe(cut.evidence)}); not run: {skipped}"
        case TuningSeen() as tuned:
            return "\n".join(_tuning_lines(tuned))
        case FaultSeen() as seen if seen.step != "healing":  # `healed` follows, or `failed`
            return f"  {safe(seen.host)}: {safe(fault_text(seen))}"
        case InvariantsSeen(checks=checks) as seen if checks and all(check.holds for check in checks):
            return (
                f"  {safe(seen.system)} conserves what it must: {'; '.join(safe(check.evidence) for check in checks)}"
            )
        case PropagationCompared() as pair:
            different = sum(not table.same for table in pair.tables)
            same = (
                f"{different} of {len(pair.tables)} tables differ"
                if different
                else f"{count_of(len(pair.tables), 'table')} with the same rows"
            )
            drained = (
                f"drained in {seconds(pair.drain_s)}" if pair.drained else f"not drained after {seconds(pair.drain_s)}"
            )
            return f"propagation {safe(pair.source)} -> {safe(pair.sink)}: {drained}, {same}"
    return ""


_TOLD = {"would_change", "applied", "needs_restart", "refused", "failed", "drifted", "reverted", "kept", "residue"}


def _tuning_lines(tuned: TuningSeen) -> Iterator[str]:
    """A line for each tuning with a notable outcome, and the diff of applied ones."""
    for state in tuned.states:
        if state.outcome in _TOLD:
            yield f"  {safe(tuned.host)}: tuning {safe(state.name)}: {state.outcome.replace('_', ' ')}"
        if state.outcome == "applied":  # what is wrong, and why, comes as a notice
            yield from (f"    {safe(line)}" for line in state.lines)


def _iteration_line(view: RunView, stamped: Stamped) -> str:
    match stamped.event:
        case IterationStarted() as begun:
            rate = f" at {number(begun.rate)}/s" if begun.rate is not None else ""
            windows = ", ".join(f"{one.title} {length_s:g} s" for one, length_s in lengths_s(begun).items())
            if begun.passes:
                windows = f"{begun.passes} pass{'es' * (begun.passes > 1)} within {seconds(begun.measure_s)}"
            return f"  {_name(view, begun.id)}{rate}: {windows}"
        case IterationFinished() as ended:
            return f"  {_name(view, ended.id)}: {_numbers(ended, view.unit(ended.id.stage))}{_so_far(view, ended)}"
        case IterationVoided() as voided:
            again = "; it is run again" if voided.rerun else ""
            return f"warning: {_name(view, voided.id)} is void: {safe(voided.reason)}{again}"
    return ""


def _so_far(view: RunView, ended: IterationFinished) -> str:
    """The throughput over the repeats of the rung, from the second one on; probes of a search are not repeats."""
    stage = view.stage(ended.id.stage)
    rate = stage.throughput.get(ended.id.rung) if stage is not None and ended.valid else None
    if stage is None or stage.kind not in _LADDERS or rate is None or rate.n < 2:
        return ""
    mean, ends = rate.cells
    interval = f" ({percent(stage.confidence)} CI {ends})" if ends else ""
    return f"; {rate.n} repeats: {mean} {rate_unit(stage.kind)}{interval}"


def _numbers(ended: IterationFinished, unit: str) -> str:
    text = iteration_numbers(ended.metrics, unit)
    broken = [finding for finding in ended.findings if not finding.ok]
    voids = [finding for finding in broken if finding.voids]
    if voids:
        return text + "; INVALID: " + "; ".join(f"{finding.label}: {safe(finding.evidence)}" for finding in voids)
    noted = ", ".join(safe(finding.label) for finding in broken)
    return text + (f"; noted: {noted}" if noted else "")
