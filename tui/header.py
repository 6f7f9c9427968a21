"""Header of the screen: the run, its state, its progress, and alerts."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime

from rich.text import Text
from textual.widgets import Static

from proveout.core.numbers import clock, number, rung_name, safe, seconds, whole
from proveout.dsl.plan.stages import MEASURE, lengths_s, measured_from_s
from proveout.proto.events import FaultSeen, IterationStarted
from proveout.tui import charts, live_load
from proveout.tui.live_load import phase_at, window
from proveout.tui.run_view import RunView, is_silent
from proveout.tui.style import (
    ACCENT,
    BAD,
    CAUTION,
    MUTED,
    OUTCOMES,
    PROVISIONAL,
    RUN_STATES,
    Part,
    fitted,
    justified,
    text_line,
)


def bar(share: float, width: int) -> str:
    """A bar of `width` cells."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def iteration_bar(started: IterationStarted, gone_s: float, width: int) -> Text:
    """Ramp-up, measure and ramp-down as one bar, `▒▒│█████░░░░│░`: ramps are lighter, and none is left out."""
    lengths = {one.name: length_s for one, length_s in lengths_s(started).items()}
    total = max(sum(lengths.values()), 1e-9)
    text, before_s = text_line(), 0.0
    kept = [name for name, length in lengths.items() if length > 0.0]
    room = width - max(len(kept) - 1, 0)
    cells = {name: max(1, round(lengths[name] / total * room)) for name in kept}
    if kept:
        longest = max(kept, key=lambda name: lengths[name])
        cells[longest] = max(1, cells[longest] + room - sum(cells.values()))
    for name in kept:
        if text:
            text.append("│", style=MUTED)
        share = (gone_s - before_s) / lengths[name]
        drawn = bar(share, cells[name])
        text.append(drawn if name == MEASURE else drawn.replace("█", "▒"), style=ACCENT if name == MEASURE else MUTED)
        before_s += lengths[name]
    return text


BAR_MAX, _BAR_LEAST = 60, 8
LARGE_FROM = (110, 36)
"""Columns and rows of a terminal that has room for large digits."""
STANDSTILL_S = 2
"""Whole seconds without the end of a transaction from which the screen shows it as a problem."""


def headline(view: RunView, note: str, width: int) -> Text:
    """Name, state, time; at the right the verdicts. `note` marks a replay, or a lost feed, in place of "running"."""
    sign, style = RUN_STATES[view.state]
    left: list[Part] = [(safe(view.name or view.run_id or "waiting for the run"), "bold", 0)]
    running = view.state == "running" and not note
    if running or view.state != "running":
        left.append((f"  {sign} {view.state}", f"bold {style}", 1))
    if note:
        left += [(" ", "", 1), (f"[{note}]", "bold reverse", 0)]
    if view.shown:
        left += [(" ", "", 1), (f"[only {view.shown}; Esc: all]", "bold reverse", 1)]
    left.append((f"  {clock(view.elapsed_s)}", "", 2))
    if running:
        left.append((f", {clock(view.remaining_s)} left", "", 3))
        ends = datetime.fromtimestamp(view.now_unix_s + view.remaining_s).astimezone()
        left.append((f", ends {ends:%H:%M}", MUTED, 5))
    if view.resumed:
        left.append((f"  resumed {view.resumed}×", MUTED, 4))
    left.append((f"  {safe(view.title)}", MUTED, 6))
    return justified(left, verdict_counts(view), width)


def verdict_counts(view: RunView) -> list[Part]:
    """`✓3 ✗1(warn) ?2`, with `~` those that are provisional, with `·` those that are undecided."""
    found: list[Part] = []
    for early, verdicts in (("", view.verdicts), (PROVISIONAL, view.foreseen)):
        counted = Counter[tuple[str, str]](
            (verdict.outcome, "(warn)" if verdict.severity == "warn" and verdict.outcome != "PASS" else "")
            for verdict in verdicts
        )
        for outcome, (mark, style) in OUTCOMES.items():
            for only in ("", "(warn)"):
                if count := counted[outcome, only]:
                    found.append((f" {early}{mark}{count}{only}", CAUTION if only else style, 0))
    if waiting := len(set(view.planned_verdicts) - view.judged_ids):
        found.append((f" ·{waiting}", MUTED, 0))
    return found


def progress(view: RunView, width: int) -> Text:
    """The stage, rung, repeat, attempt, phase and fault; at the right the bar of the iteration, or of a task."""
    if view.ended is not None:
        return fitted([(f"run {view.ended.status}", "bold", 0), (f": {safe(view.ended.reason)}", "", 0)], width)
    if view.iteration is not None:
        return _of_iteration(view, view.iteration, width)
    for stage in view.stages:
        for host, task in stage.progress.items():
            left: list[Part] = [(safe(stage.id), "bold", 0), (f" · {safe(host)}", "", 1)]
            left += [(f" · {safe(task.note)}", CAUTION, 2)] if task.note else []
            return justified(left, [(bar(task.share, max(width // 3, 8)), ACCENT, 3)], width)
    current = view.stage(view.current)
    if current is not None and current.state == "running":
        between = ", between iterations" if current.iterations else ""
        return fitted([(safe(current.id), "bold", 0), (f" · {safe(current.kind)}{between}", "", 1)], width)
    return fitted([("between stages" if view.stages else "starting", "", 0)], width)


def _of_iteration(view: RunView, started: IterationStarted, width: int) -> Text:
    identity, stage, kind = started.id, view.stage(started.id.stage), view.kind(started.id.stage)
    left: list[Part] = [(safe(identity.stage), "bold", 0)]
    if kind == "search":
        left.append((f" · probe {identity.repeat}", "", 1))
        left.append((f" · {rung_name(kind, identity.rung)}", "", 5))
    else:
        left.append((f" · {rung_name(kind, identity.rung)}", "", 1))
        of = f" of {stage.repeats}" if stage is not None and stage.repeats else ""
        left.append((f" · repeat {identity.repeat}{of}", "", 3))
    if identity.attempt > 1:
        left.append((f" · attempt {identity.attempt}", CAUTION, 2))
    if started.rate and not (stage is not None and stage.levels):
        left.append((f" · {whole(started.rate)}/s", "", 3))
    gone_s = view.now_unix_s - view.iteration_began_unix_s
    if phase := phase_at(stage, gone_s - measured_from_s(started)):
        name, into_s, length_s = phase
        left.append((f" · phase {safe(name)}", "bold", 1))
        left.append((f" {into_s:.0f} of {length_s:g} s", "", 3))
    left += [(f" · fault {safe(name)} {since_s:.0f} s", BAD, 2) for name, _, since_s in _in_place(view)]
    name, into, length = window(started, gone_s)
    if started.passes and name != "starts":  # the length is the limit only
        many = f"{started.passes} pass{'es' if started.passes > 1 else ''}"
        return justified(left, [(f"{many}, {into:.0f} s, at most {seconds(started.measure_s)}", "", 1)], width)
    rest = f" {name} {into:.0f} of {length:g} s" if length else f" {name}"
    line = justified(left, [(rest, "", 1)], max(width - max(width // 4, 10) - 1, 20))
    before = line.plain.removesuffix(rest)
    text = line[: len(before.rstrip())]
    room = width - text.cell_len - len(rest) - 2
    drawn = iteration_bar(started, gone_s, min(max(room, 0), BAR_MAX)) if room >= _BAR_LEAST else text_line()
    text.append(" " * max(width - text.cell_len - drawn.cell_len - len(rest), 1))
    return text.append_text(drawn).append(rest)


def alert(view: RunView) -> Text | None:
    """The alerts: lost hosts, a system that answers nothing, the newest invalid iteration, a failed run."""
    parts = [f"host {safe(host.name)} LOST: {safe(host.lost)}" for host in view.hosts.values() if host.lost]
    if len(parts) > 3:
        parts = [f"{len(parts)} hosts LOST, first {parts[0]}"]
    up = [host for host in view.hosts.values() if host.up and view.ended is None]
    silent = [host for host in up if is_silent(host, view.beat_s)]
    if silent:
        most = max(silent, key=lambda host: host.silent_s)
        more = f" ({len(silent)} in all)" if len(silent) > 1 else ""
        parts.append(f"host {safe(most.name)} silent for {most.silent_s:.0f} s, lost after {view.lease_s:.0f} s{more}")
    for name, seen, since_s in _in_place(view):
        place = f" ({seen.number} of {seen.times})" if seen.times > 1 else ""
        parts.append(f"fault {safe(name)}{place}, for {since_s:.0f} s so far")
    if standstill := _standstill(view):
        parts.append(standstill)
    bad = [line for line in view.log if line.iteration and line.level != "info" and not _is_over(view, line.iteration)]
    if bad:
        more = f" ({len(bad)} in all)" if len(bad) > 1 else ""
        parts.append(f"{safe(bad[-1].text)}{more}")
    left = [one for one in view.tunings.values() if one.end == "residue"]
    parts += [f"host {safe(one.host)}: tuning {safe(one.name)} NOT reverted" for one in left[:1]]
    if view.ended is not None and view.ended.status != "finished":
        parts.append(f"run {view.ended.status}: {safe(view.ended.reason)}")
    return Text("! " + "\n! ".join(parts), style="bold") if parts else None


def _is_over(view: RunView, iteration: str) -> bool:
    """Whether an iteration that was invalid has been run again with success, or its stage has ended."""
    stage_id, rung, repeat, _ = iteration.rsplit("/", 3)
    stage = view.stage(stage_id)
    if stage is None or stage.state in ("ok", "skipped") or view.ended is not None:
        return True
    return any(item.valid and (str(item.id.rung), str(item.id.repeat)) == (rung, repeat) for item in stage.finished)


def _in_place(view: RunView) -> list[tuple[str, FaultSeen, float]]:
    """Name, begin, and seconds since then of each fault that has begun in the iteration under way and is not healed
    yet on all of its hosts."""
    if view.iteration is None:
        return []
    since_s = view.now_unix_s - view.iteration_began_unix_s - measured_from_s(view.iteration)
    begun: dict[tuple[str, int], dict[str, FaultSeen]] = {}  # by host
    for seen in (mark.seen for mark in view.fault_marks if mark.seen.id == view.iteration.id):
        hosts = begun.setdefault((seen.fault, seen.number), {})
        if seen.step == "begins":
            hosts.setdefault(seen.host, seen)
        else:
            hosts.pop(seen.host, None)
    first = (next(iter(hosts.values())) for hosts in begun.values() if hosts)
    return [(seen.fault, seen, max(since_s - seen.at_s, 0.0)) for seen in first]


def _standstill(view: RunView) -> str:
    """The time for which no transaction has ended in the iteration under way; "" below `STANDSTILL_S`, and once one has
    ended again."""
    if view.iteration is None:
        return ""
    after = [one.tick for one in view.seconds if one.tick.id == view.iteration.id]
    silent = list(itertools.takewhile(lambda tick: tick.tps <= 0.0, reversed(after)))
    if len(silent) < STANDSTILL_S or len(silent) == len(after):
        return ""
    errors = sum(tick.errors for tick in silent)
    return f"no transaction has ended for {len(silent)} s" + (f", {number(errors)} errors" if errors else "")


class Top(Static):
    """The run, where it is, and the numbers of the newest second: in large digits where there is room, else a line."""

    def show(self, view: RunView, note: str) -> None:
        width = self.content_size.width or 78
        room = self.app.size
        large = view.ended is None and room.width >= LARGE_FROM[0] and room.height >= LARGE_FROM[1]
        self.set_class(large, "-large")
        figures = charts.draw_numbers(live_load.figures(view), width) if large else []
        numbers = figures or [fitted(live_load.parts(view), width)]
        rows = [headline(view, note, width), progress(view, width), *numbers]
        self.update(text_line("\n").join(rows))


class Alert(Static):
    """There only when something has gone wrong."""

    def show(self, view: RunView) -> None:
        text = alert(view)
        self.display = text is not None
        if text is not None:
            self.update(text)
