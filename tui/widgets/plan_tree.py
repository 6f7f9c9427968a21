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
from proveout.tui.fitting import Part, fitted
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import IterationView, StageView

SIGNS = {"waiting": "·", "running": "▶", "ok": "✓", "failed": "✗", "skipped": "–"}
STYLES = {"waiting": "dim", "running": "bold", "ok": "green", "failed": "bold red", "skipped": "dim"}
GUIDE, ICON = 2, 2
"""Cells of the indentation of a level, and of the sign of a node that can be opened."""
Line = tuple[tuple[str, ...], Text]


def lines(view: RunView, width: int | None = None) -> Iterator[Line]:
    """Path and label of every node, parents before children; each label fits into a tree of `width` cells."""
    for path, parts in _nodes(view):
        indent = GUIDE * (len(path) - 1) + (ICON if len(path) < 3 else 0)
        yield path, fitted(parts, None if width is None else width - indent)


def _nodes(view: RunView) -> Iterator[tuple[tuple[str, ...], list[Part]]]:
    for stage in view.stages:
        yield (stage.id,), _stage(stage, view.now_unix_s)
        for rung, items in _by_rung(stage).items():
            path = (stage.id, str(rung))
            yield path, _rung(stage, rung)
            for item in items:
                yield (*path, str(item.id)), _repeat(item, refused=_is_refused(stage, item))
        if view.iteration is not None and view.iteration.id.stage == stage.id:
            going = view.iteration.id
            path = (stage.id, str(going.rung))
            if going.rung not in _by_rung(stage):
                yield path, [(f"▶ {_named(stage, going.rung)}", "bold", 0)]
            yield (*path, str(going)), [(f"▶ #{going.repeat} running", "bold", 0)]


def _by_rung(stage: StageView) -> dict[int, list[IterationView]]:
    found: dict[int, list[IterationView]] = {}
    for item in stage.finished:
        found.setdefault(item.id.rung, []).append(item)
    return found


def _stage(stage: StageView, now_unix_s: float) -> list[Part]:
    parts: list[Part] = [(f"{SIGNS[stage.state]} {safe(stage.cell or stage.id)}", STYLES[stage.state], 0)]
    if safe(stage.id) != stage.kind:
        parts.append((f" {safe(stage.kind)}", "dim", 4))
    if stage.began_unix_s and stage.state != "waiting":
        parts.append((f" {clock((stage.ended_unix_s or now_unix_s) - stage.began_unix_s)}", "dim", 3))
    if stage.voided:
        parts.append((f" {stage.voided} void", "yellow", 2))
    if stage.search is not None:
        parts.append((f" {number(stage.search.rate)}/s", "", 1))
    return parts


def _rung(stage: StageView, rung: int) -> list[Part]:
    found = stage.throughput.get(rung) if stage.kind != "search" else None
    if found is None:
        return [(_named(stage, rung), "", 0)]
    half = [(f" ±{uncertainty(found.half, found.mean)}", "", 2)] if found.half is not None else []
    return [(_named(stage, rung), "", 0), (f" {number(found.mean, found.half)}", "", 1), *half]


def _named(stage: StageView, rung: int) -> str:
    """`4 thr`; a tool's rungs are I/O depths."""
    return f"depth {rung}" if stage.kind == "tool" else f"{rung} thr"


def _is_refused(stage: StageView, item: IterationView) -> bool:
    """Whether a search did not accept this probe."""
    return any(probe.probe == item.id.repeat and not probe.accepted for probe in stage.probes)


def _repeat(item: IterationView, *, refused: bool = False) -> list[Part]:
    style = "bold red" if not item.valid else "yellow" if refused else "green"
    numbers: list[Part] = [(f" {number(item.tps)}", style, 1), (f" p99 {_p99(item)}", style, 2)]
    if not item.valid:
        return [(f"✗ #{item.id.repeat} INVALID", style, 0), *numbers, (f": {safe(item.why)}", style, 3)]
    rate: list[Part] = [(f" at {number(item.rate)}/s", style, 3)] if item.rate else []
    sign = "✗" if refused else "✓"
    return [(f"{sign} #{item.id.repeat}", style, 0), *rate, *numbers]


def _p99(item: IterationView) -> str:
    return lower_bound(item.p99_at_least_us) if item.p99_us is None else microseconds(item.p99_us)


class PlanTree(Tree[None]):
    """The plan with the state of its stages."""

    def __init__(self, *, id: str) -> None:
        super().__init__("plan", id=id)
        self.show_root = False
        self.guide_depth = GUIDE
        self._known: dict[tuple[str, ...], TreeNode[None]] = {}

    def show(self, view: RunView) -> None:
        """Bring the nodes up to date."""
        for path, label in lines(view, self.scrollable_content_region.width or None):
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
