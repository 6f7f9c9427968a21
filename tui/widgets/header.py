"""Header of the screen: the run, its state, its progress, and alerts.

Data flow: `RunView` -> `headline`, `progress`, `alert` (pure) -> `Top` and `Alert`.
"""

from __future__ import annotations

import itertools
from collections import Counter

from rich.text import Text
from textual.widgets import Static

from proveout.core.numbers import clock, number, percent, safe, seconds
from proveout.proto.events import IterationStarted
from proveout.proto.fault_events import FaultSeen
from proveout.tui.run_view import RunView, is_silent

STATES = {
    "starting": ("…", "dim"),
    "running": ("▶", "bold"),
    "finished": ("✓", "bold green"),
    "failed": ("✗", "bold red"),
    "interrupted": ("■", "bold yellow"),
}
OUTCOMES = {"PASS": ("✓", "green"), "FAIL": ("✗", "bold red"), "INCONCLUSIVE": ("?", "bold yellow")}
PROVISIONAL = "~"
"""Before the sign of a verdict that may still change."""
_LABEL = 26
STANDSTILL_S = 2
"""Whole seconds without the end of a transaction from which the screen shows it as a problem."""


def headline(view: RunView, note: str = "") -> Text:
    """Name, state, time, verdicts; `note` marks a replay, or a lost feed."""
    sign, style = STATES[view.state]
    text = Text(f"{safe(view.run_id or 'waiting for the run')} ", style="bold", no_wrap=True)
    text.append(f"{sign} {view.state} ", style=style)
    if note:  # before what a narrow terminal cuts off
        text.append(f"[{note}] ", style="bold reverse")
    text.append(clock(view.elapsed_s))
    if view.state == "running":
        text.append(f", {clock(view.remaining_s)} left")
    counted = Counter[str](verdict.outcome for verdict in view.verdicts)
    for outcome, (mark, colour) in OUTCOMES.items():
        if counted[outcome]:
            text.append(f"  {mark} {counted[outcome]} {outcome}", style=colour)
    early = Counter[str](verdict.outcome for verdict in view.foreseen)
    for outcome, (mark, colour) in OUTCOMES.items():
        if early[outcome]:
            text.append(f"  {PROVISIONAL}{mark} {early[outcome]}", style=colour)
    if waiting := len(set(view.planned_verdicts) - view.judged_ids):
        text.append(f"  · {waiting} undecided", style="dim")
    return text


def window(started: IterationStarted, gone_s: float) -> tuple[str, float, float]:
    """The window that an iteration is in after `gone_s` seconds: name, seconds into it, its length."""
    if gone_s < 0.0:
        return "starts", 0.0, 0.0
    for name, length in (("ramp-up", started.ramp_up_s), ("measure", started.measure_s)):
        if gone_s < length:
            return name, gone_s, length
        gone_s -= length
    return "ramp-down", min(gone_s, started.ramp_down_s), started.ramp_down_s


def progress(view: RunView, width: int) -> Text:
    """Two bars: the window (or a stage's task), and the run."""
    label, share, rest = _inner(view)
    first = Text(safe(f"{label}  {rest}"), no_wrap=True) if share is None else _bar(label, share, rest, width)
    done = 1.0 if view.ended else view.elapsed_s / max(view.elapsed_s + view.remaining_s, 1e-9)
    run_rest = "ended" if view.ended else f"{percent(round(done, 2))}, {clock(view.remaining_s)} left"
    rows = [first, _bar("whole run", done, run_rest, width)]
    return Text("\n", no_wrap=True).join(rows)


def _inner(view: RunView) -> tuple[str, float | None, str]:
    """The current task, its finished share (None when unknown), and the rest as text."""
    if view.ended is not None:
        return view.ended.status, None, view.ended.reason
    if view.iteration is not None:
        started = view.iteration
        name, into, length = window(started, view.now_unix_s - view.iteration_began_unix_s)
        at = f"{number(started.rate)}/s" if started.rate else f"{started.id.rung} thr"
        if started.passes and name != "starts":  # the length is the limit only
            many = f"{started.passes} pass{'es' if started.passes > 1 else ''}"
            return f"{many} {at} #{started.id.repeat}", None, f"for {into:.0f} s, at most {seconds(started.measure_s)}"
        return f"{name} {at} #{started.id.repeat}", into / length if length else 0.0, f"{into:.0f} of {length:g} s"
    for stage in view.stages:
        for host, task in stage.progress.items():
            share = task.done / task.total if task.total > 0.0 else 0.0
            of = f" of {number(task.total)}" if task.total > 0.0 else ""
            return f"{safe(stage.id)} {safe(host)}", share, f"{number(task.done)}{of} {safe(task.unit)}"
    return "between iterations", None, ""


def bar(share: float, width: int) -> str:
    """A bar of `width` cells that is readable without colour."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def _bar(label: str, share: float, rest: str, width: int) -> Text:
    room = max(width - _LABEL - 22, 8)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{label[: _LABEL - 1]:<{_LABEL}}")
    text.append(bar(share, room), style="cyan")
    return text.append(f" {rest}")


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
    parts += faults_in_place(view)
    if standstill := _standstill(view):
        parts.append(standstill)
    bad = [line for line in view.log if line.iteration and line.level != "info"]
    if bad:
        more = f" ({len(bad)} in all)" if len(bad) > 1 else ""
        parts.append(f"{safe(bad[-1].text)}{more}")
    left = [one for one in view.tunings.values() if one.end == "residue"]
    parts += [f"host {safe(one.host)}: tuning {safe(one.name)} NOT reverted" for one in left[:1]]
    if view.ended is not None and view.ended.status != "finished":
        parts.append(f"run {view.ended.status}: {safe(view.ended.reason)}")
    return Text("! " + "\n! ".join(parts), style="bold") if parts else None


def faults_in_place(view: RunView) -> list[str]:
    """The faults that have begun in the iteration under way and are not healed yet, with the time since then."""
    if view.iteration is None:
        return []
    since_s = view.now_unix_s - view.iteration_began_unix_s - view.iteration.ramp_up_s
    begun: dict[tuple[str, int], FaultSeen] = {}
    for seen in view.faults:
        if seen.step == "begins":
            begun.setdefault((seen.fault, seen.number), seen)
        elif seen.step == "healed":
            begun.pop((seen.fault, seen.number), None)
    return [
        f"fault {safe(seen.fault)}{f' ({seen.number} of {seen.times})' if seen.times > 1 else ''}, for "
        f"{max(since_s - seen.at_s, 0.0):.0f} s so far"
        for seen in begun.values()
    ]


def _standstill(view: RunView) -> str:
    """The time for which no transaction has ended in the iteration under way; "" below `STANDSTILL_S`, and once one has
    ended again."""
    if view.iteration is None:
        return ""
    after = [tick for tick in view.ticks if tick.id == view.iteration.id]
    silent = list(itertools.takewhile(lambda tick: tick.tps <= 0.0, reversed(after)))
    if len(silent) < STANDSTILL_S or len(silent) == len(after):
        return ""
    errors = sum(tick.errors for tick in silent)
    return f"no transaction has ended for {len(silent)} s" + (f", {number(errors)} errors" if errors else "")


class Top(Static):
    """Headline and bars."""

    def show(self, view: RunView, note: str) -> None:
        """Draw the three lines."""
        self.update(
            Text("\n", no_wrap=True, overflow="ellipsis").join(
                [headline(view, note), progress(view, self.size.width or 80)]
            )
        )


class Alert(Static):
    """There only when something has gone wrong."""

    def show(self, view: RunView) -> None:
        """Say it, or go away."""
        text = alert(view)
        self.display = text is not None
        if text is not None:
            self.update(text)
