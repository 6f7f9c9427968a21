"""Plain progress lines of a run: for CI, pipes, and terminals without a screen.

Data flow: stamped events -> `tui.run_view.reduce` -> a `RunView` -> lines. A single event (a stage begins, an iteration
ends, a verdict) is a line of its own; load and progress are at most one line a second, and none without a change. Lines
are never rewritten. Colour only on a terminal and without NO_COLOR. Text from outside cannot act on the terminal
(`numbers.safe`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TextIO

from proveout.coordinator.report.summary import untold
from proveout.core.numbers import (
    clock,
    iteration_numbers,
    microseconds,
    number,
    percent,
    rate_unit,
    rung_name,
    safe,
    seconds,
    threads,
)
from proveout.dsl.plan.stages import stated_s
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
from proveout.tui.run_view import RunView, reduce
from proveout.tui.stage_view import values_text

LIVE_EVERY_S = 1.0
_CLEAR = "\r\x1b[K"
_COLOURS = {"PASS": "32", "FAIL": "31", "INCONCLUSIVE": "33", "error": "31", "warning": "33"}


def wants_colour(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Whether the stream is a terminal that takes colour (https://no-color.org; TERM=dumb has none)."""
    env = os.environ if environment is None else environment
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


class HeadlessPrinter:
    """Print the line of each stamped event.

    Call it with the events in order; it flushes `stream`, and stops writing to a closed one.
    """

    quiet = False
    """Whether results have no summary either."""

    def __init__(self, stream: TextIO, *, colour: bool | None = None) -> None:
        self.view = RunView()
        self._stream = stream
        self._colour = wants_colour(stream) if colour is None else colour
        self._live_at_s = float("-inf")
        self._live_text = ""
        self._gone = False

    def __call__(self, stamped: Stamped) -> None:
        """Add one event to the view and print its line."""
        self.view = reduce(self.view, stamped)
        if isinstance(stamped.event, LoadTick | StageProgress):
            self._live(stamped)
            return
        text = _line(self.view, stamped)
        if text:
            self._write(text)

    def _live(self, stamped: Stamped) -> None:
        text = _tick(self.view, stamped)
        due = stamped.unix_s - self._live_at_s >= LIVE_EVERY_S or stamped.unix_s < self._live_at_s
        if due and text and text != self._live_text:
            self._live_at_s, self._live_text = stamped.unix_s, text
            self._write(text)

    def _write(self, text: str) -> None:
        self._put(f"{self._clock()} {self._paint(text)}\n".lstrip(" "))

    def _put(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            # The reader has closed the pipe; the run continues without output.
            self._gone = True

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
        """Add one event to the view, and print its line when it is an error or the end."""
        self.view = reduce(self.view, stamped)
        event = stamped.event
        failed = isinstance(event, VerdictReached) and event.outcome != "PASS"
        wrong = isinstance(event, AgentLost) or (isinstance(event, Notice) and event.level == "error")
        if failed or wrong or isinstance(event, RunFinished):
            self._write(_line(self.view, stamped))

    def _clock(self) -> str:
        return ""


class LiveLinePrinter(HeadlessPrinter):
    """As `HeadlessPrinter` for a terminal of `width` columns: load and progress are one line that is rewritten."""

    def __init__(self, stream: TextIO, *, width: int, colour: bool | None = None) -> None:
        super().__init__(stream, colour=colour)
        self._width = width
        self._moving = False

    def _live(self, stamped: Stamped) -> None:
        self._moving = True
        super()._live(stamped)
        self._moving = False

    def _write(self, text: str) -> None:
        if self._moving:
            line = f"{self._clock()} {text}"
            self._put(_CLEAR + line[: max(1, self._width - 1)])
        else:
            self._put(_CLEAR)
            super()._write(text)


def _name(view: RunView, iteration: IterationId) -> str:
    """`baseline, 4 threads, repeat 2 of 3 (attempt 2)`; a search's iterations are probes."""
    stage = view.stage(iteration.stage)
    again = f" (attempt {iteration.attempt})" if iteration.attempt > 1 else ""
    if stage is not None and stage.kind == "search":
        return f"{safe(iteration.stage)}, {threads(iteration.rung)}, probe {iteration.repeat}{again}"
    repeats = f" of {stage.repeats}" if stage is not None and stage.repeats else ""
    rung = rung_name(stage.kind if stage is not None else "", iteration.rung)
    return f"{safe(iteration.stage)}, {rung}, repeat {iteration.repeat}{repeats}{again}"


def _unit(view: RunView, iteration: IterationId) -> str:
    stage = view.stage(iteration.stage)
    return rate_unit(stage.kind if stage is not None else "")


# ---- load and progress -------------------------------------------------------------------------------------------


def _tick(view: RunView, stamped: Stamped) -> str:
    event = stamped.event
    if isinstance(event, StageProgress):
        share = f" ({percent(event.done / event.total)})" if event.total > 0.0 else ""
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
        f"  {_name(view, event.id)}: {window} {event.second} s, {number(event.tps)} {_unit(view, event.id)}"
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
            return f"provisional: {verdict.outcome} {safe(verdict.id)}: {safe(verdict.evidence)}"
        case VerdictReached() as verdict:
            warn = " (warning only)" if verdict.severity == "warn" and verdict.outcome != "PASS" else ""
            return f"{verdict.outcome} {safe(verdict.id)}{warn}: {safe(verdict.evidence)}"
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
                else f"{len(pair.tables)} tables are the same"
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
            windows = ", ".join(f"{one.title} {length_s:g} s" for one, length_s in stated_s(begun).items())
            if begun.passes:
                windows = f"{begun.passes} pass{'es' * (begun.passes > 1)} within {seconds(begun.measure_s)}"
            return f"  {_name(view, begun.id)}{rate}: {windows}"
        case IterationFinished() as ended:
            return f"  {_name(view, ended.id)}: {_numbers(ended, _unit(view, ended.id))}"
        case IterationVoided() as voided:
            again = "; it is run again" if voided.rerun else ""
            return f"warning: {_name(view, voided.id)} is void: {safe(voided.reason)}{again}"
    return ""


def _numbers(ended: IterationFinished, unit: str) -> str:
    text = iteration_numbers(ended.metrics, unit)
    broken = [finding for finding in ended.findings if not finding.ok]
    voids = [finding for finding in broken if finding.voids]
    if voids:
        return text + "; INVALID: " + "; ".join(f"{finding.label}: {safe(finding.evidence)}" for finding in voids)
    noted = ", ".join(safe(finding.label) for finding in broken)
    return text + (f"; noted: {noted}" if noted else "")
