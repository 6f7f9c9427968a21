"""View model of the home screen as one frozen value, and its texts. Pure; no clock, no terminal.

Data flow: messages of `home.app` -> `found_plans`, `read_plan`, … -> `HomeView` -> rows and texts (below) -> the lists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from datetime import datetime

from rich.text import Text

from proveout.core.data_classes import dataclass
from proveout.core.numbers import clock, number, safe
from proveout.tui.colours import MUTED
from proveout.tui.home.services import Found, Ladder, PlanCard, RunCard
from proveout.tui.widgets.header import OUTCOMES

PLAN_STATES = {"checking": ("…", MUTED), "fine": ("✓", "green"), "wrong": ("✗", "bold red")}
RUN_STATES = {
    "reading": ("…", MUTED),
    "running": ("▶", "bold"),
    "finished": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "interrupted": ("■", "yellow"),
    "crashed": ("✗", "bold red"),
    "unreadable": ("✗", "bold red"),
}
REFERENCE = "◆"
BLOCKS = "▁▂▃▄▅▆▇█"
SPARK_MAX = 24
SHOWN_MAX = 500
"""Runs that are listed; the filter looks at all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeView:
    """Plans and runs by path, in the order to show them. `plans_scanned`: the folders have been read once."""

    plans: dict[str, PlanCard] = field(default_factory=dict)
    runs: dict[str, RunCard] = field(default_factory=dict)
    plan_stamps: dict[str, object] = field(default_factory=dict)
    run_stamps: dict[str, object] = field(default_factory=dict)
    plans_scanned: bool = False
    runs_scanned: bool = False
    reference: str = ""
    """The path of the run that the next one is compared with."""


def found_plans(view: HomeView, found: Sequence[Found]) -> HomeView:
    """The view with exactly these plans; their cards stay until they are read again."""
    plans = {one.path: view.plans.get(one.path) or PlanCard(path=one.path, name=one.name) for one in found}
    stamps = {path: stamp for path, stamp in view.plan_stamps.items() if path in plans}
    return replace(view, plans=plans, plan_stamps=stamps, plans_scanned=True)


def read_plan(view: HomeView, card: PlanCard, stamp: object) -> HomeView:
    """The view with the card of a plan; a plan that was removed meanwhile is not added again."""
    if card.path not in view.plans:
        return view
    return replace(view, plans={**view.plans, card.path: card}, plan_stamps={**view.plan_stamps, card.path: stamp})


def found_runs(view: HomeView, found: Sequence[Found]) -> HomeView:
    """The view with exactly these runs."""
    runs = {one.path: view.runs.get(one.path) or RunCard(path=one.path, name=one.name) for one in found}
    stamps = {path: stamp for path, stamp in view.run_stamps.items() if path in runs}
    reference = view.reference if view.reference in runs else ""
    return replace(view, runs=runs, run_stamps=stamps, runs_scanned=True, reference=reference)


def read_run(view: HomeView, card: RunCard, stamp: object) -> HomeView:
    """The view with the card of a run."""
    if card.path not in view.runs:
        return view
    return replace(view, runs={**view.runs, card.path: card}, run_stamps={**view.run_stamps, card.path: stamp})


# ---- words -------------------------------------------------------------------------------------------------------


def matches(wanted: str, *texts: str) -> bool:
    """Whether every word of the filter is in one of the texts, in any case."""
    held = " ".join(texts).casefold()
    return all(word in held for word in wanted.casefold().split())


def spark(values: Sequence[float]) -> str:
    """A line of blocks from 0 to the highest value; of very many values the highest of each group."""
    if not values:
        return ""
    step = -(-len(values) // SPARK_MAX)
    shown = [max(values[at : at + step]) for at in range(0, len(values), step)]
    top = max(shown)
    if not (top > 0.0 and math.isfinite(top)):
        return BLOCKS[0] * len(shown)
    return "".join(BLOCKS[min(int(max(value, 0.0) / top * len(BLOCKS)), len(BLOCKS) - 1)] for value in shown)


def sparks(ladders: Sequence[Ladder]) -> str:
    """The ladders' lines, each scaled by itself."""
    return " ".join(spark(one.tps) for one in ladders)


def best(ladders: Sequence[Ladder]) -> str:
    """The highest rung of all; "" without one."""
    values = [value for one in ladders for value in one.tps]
    return number(max(values)) if values else ""


def outcomes(card: RunCard) -> Text:
    """`✓2 ✗1 ?1`."""
    counted = Counter(verdict.outcome for verdict in card.verdicts)
    text = Text(no_wrap=True)
    for outcome, (sign, style) in OUTCOMES.items():
        if counted[outcome]:  # type: ignore[index]
            text.append(f"{sign}{counted[outcome]} ", style=style)  # type: ignore[index]
    return text if text else Text("-")


def when(unix_s: float) -> str:
    """`2026-01-14 10:15` in local time."""
    return f"{datetime.fromtimestamp(unix_s).astimezone():%Y-%m-%d %H:%M}" if unix_s else "-"


def plan_row(card: PlanCard) -> tuple[Text, ...]:
    """State, file, estimated time and title of a plan."""
    sign, style = PLAN_STATES[card.state]
    told = card.title if card.state != "wrong" or card.title else (card.lines[0] if card.lines else "")
    about = clock(card.seconds) if card.state == "fine" else ""
    return (
        Text(f"{sign} {safe(card.name)}", style=style, no_wrap=True),
        Text(about, justify="right", no_wrap=True),
        Text(safe(told), no_wrap=True),
    )


def run_row(card: RunCard, reference: str) -> tuple[Text, ...]:
    """State, start, plan, verdicts and ladders of a run."""
    sign, style = RUN_STATES[card.state]
    mark = f"{REFERENCE} " if card.path == reference else ""
    return (
        Text(f"{mark}{sign} {card.state}", style=style, no_wrap=True),
        Text(when(card.began_unix_s), no_wrap=True),
        Text(safe(card.plan or card.name), no_wrap=True),
        outcomes(card),
        Text(best(card.ladders), justify="right", no_wrap=True),
        Text(sparks(card.ladders), no_wrap=True),
    )


def plan_detail(card: PlanCard) -> Text:
    """A plan in a few lines: its stages, or its problems."""
    sign, style = PLAN_STATES[card.state]
    text = Text().append(f"{sign} {safe(card.name)}", style=style)
    if card.state == "fine":
        text.append(f"  about {clock(card.seconds)}, {number(float(card.iterations))} iterations", style=MUTED)
    if card.title:
        text.append(f"\n{safe(card.title)}", style="bold")
    for line in card.lines:
        text.append(f"\n{safe(line)}")
    return text


def run_detail(card: RunCard) -> Text:
    """A run in a few lines: its end, its verdicts with their evidence, its ladders rung by rung."""
    sign, style = RUN_STATES[card.state]
    text = Text().append(safe(card.name), style="bold")
    text.append(f"  {sign} {card.state}", style=style)
    text.append(f" {clock(card.seconds)}" if card.seconds else "", style=MUTED)
    text.append(f"\n{safe(card.title)}" if card.title else "")
    text.append(f"\n{safe(card.reason)}" if card.reason else "")
    for verdict in card.verdicts:
        mark, colour = OUTCOMES[verdict.outcome]
        text.append(f"\n{mark} {verdict.outcome} ", style=colour)
        text.append(safe(verdict.title or verdict.id))
        text.append(f"\n    {safe(verdict.evidence)}", style=MUTED)
    for ladder in card.ladders:
        text.append(f"\n{safe(ladder.stage)}, TPS by threads: ")
        text.append(spark(ladder.tps))
        points = (f"{rung}: {number(tps)}" for rung, tps in zip(ladder.rungs, ladder.tps, strict=True))
        text.append(f"  {'  '.join(points)}", style=MUTED)
    for answer in card.found:
        text.append(f"\n{safe(answer)}")
    return text
