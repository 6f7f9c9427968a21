"""The plan as a tree: stages, their rungs, the repeats; each with a sign for its state, its result and how long it
took.

Data flow: `RunView.stages` -> `lines` (pure) -> nodes that are added or renamed; open nodes stay open.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from proveout.core.numbers import clock, lower_bound, microseconds, number, safe, uncertainty
from proveout.tui.run_view import IterationView, RunView, StageView

SIGNS = {"waiting": "·", "running": "▶", "ok": "✓", "failed": "✗", "skipped": "–"}
STYLES = {"waiting": "dim", "running": "bold", "ok": "green", "failed": "bold red", "skipped": "dim"}
Line = tuple[tuple[str, ...], Text]


def lines(view: RunView) -> Iterator[Line]:
    """Path and label of every node, parents before children."""
    for stage in view.stages:
        yield (stage.id,), _stage(stage, view.now_unix_s)
        for rung, items in _by_rung(stage).items():
            path = (stage.id, str(rung))
            yield path, _rung(stage, rung)
            for item in items:
                yield (*path, str(item.id)), _repeat(item)
        if view.iteration is not None and view.iteration.id.stage == stage.id:
            going = view.iteration.id
            path = (stage.id, str(going.rung))
            if going.rung not in _by_rung(stage):
                yield path, Text(f"▶ {_named(stage, going.rung)}", style="bold")
            yield (*path, str(going)), Text(f"▶ #{going.repeat} running", style="bold")


def _by_rung(stage: StageView) -> dict[int, list[IterationView]]:
    found: dict[int, list[IterationView]] = {}
    for item in stage.finished:
        found.setdefault(item.id.rung, []).append(item)
    return found


def _stage(stage: StageView, now_unix_s: float) -> Text:
    text = Text(f"{SIGNS[stage.state]} {safe(stage.cell or stage.id)}", style=STYLES[stage.state])
    if safe(stage.id) != stage.kind:
        text.append(f" {safe(stage.kind)}", style="dim")
    if stage.began_unix_s and stage.state != "waiting":
        text.append(f" {clock((stage.ended_unix_s or now_unix_s) - stage.began_unix_s)}", style="dim")
    if stage.voided:
        text.append(f" {stage.voided} void", style="yellow")
    if stage.search is not None:
        text.append(f" {number(stage.search.rate)}/s")
    return text


def _rung(stage: StageView, rung: int) -> Text:
    found = stage.throughput.get(rung) if stage.kind != "search" else None
    if found is None:
        return Text(_named(stage, rung))
    half = f" ±{uncertainty(found.half, found.mean)}" if found.half is not None else ""
    return Text(f"{_named(stage, rung)} {number(found.mean, found.half)}{half}")


def _named(stage: StageView, rung: int) -> str:
    """`4 thr`; a tool's rungs are I/O depths."""
    return f"depth {rung}" if stage.kind == "tool" else f"{rung} thr"


def _repeat(item: IterationView) -> Text:
    if not item.valid:
        numbers = f"{number(item.tps)} p99 {_p99(item)}"
        return Text(f"✗ #{item.id.repeat} INVALID {numbers}: {safe(item.why)}", style="bold red")
    rate = f" at {number(item.rate)}/s" if item.rate else ""
    return Text(f"✓ #{item.id.repeat}{rate} {number(item.tps)} p99 {_p99(item)}", style="green")


def _p99(item: IterationView) -> str:
    return lower_bound(item.p99_at_least_us) if item.p99_us is None else microseconds(item.p99_us)


class PlanTree(Tree[None]):
    """The plan with the state of its stages."""

    def __init__(self, *, id: str) -> None:
        super().__init__("plan", id=id)
        self.show_root = False
        self.guide_depth = 2
        self._known: dict[tuple[str, ...], TreeNode[None]] = {}

    def show(self, view: RunView) -> None:
        """Bring the nodes up to date."""
        for path, label in lines(view):
            node = self._known.get(path)
            if node is None:
                self._known[path] = self._add(path, label)
            elif node.label != label:
                node.set_label(label)

    def _add(self, path: tuple[str, ...], label: Text) -> TreeNode[None]:
        parent = self._known[path[:-1]] if len(path) > 1 else self.root
        if len(path) == 3:
            return parent.add_leaf(label)
        return parent.add(label, expand=True)
