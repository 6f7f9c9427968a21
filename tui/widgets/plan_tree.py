"""The plan as a tree: stages, their rungs, the repeats; each with a sign for its state, its result and how long it
took.

Data flow: `RunView.stages` -> `lines` (pure) -> nodes that are added or renamed. The tree follows the run: the rung
under way is open and has the cursor, the other ones are folded. After a key that moves the cursor, or with a node that
is selected (`RunScreen` then limits all panes to it), the cursor stays until `follow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text
from textual.events import Key
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from proveout.core.numbers import bounds, clock, lower_bound, microseconds, number, safe
from proveout.proto.events import SearchFinished
from proveout.tui.run_view import LOAD, Path, RunView
from proveout.tui.stage_view import IterationView, LoadView, StageView, Throughput
from proveout.tui.style import ACCENT, BAD, CAUTION, GOOD, MUTED, STATES, Part, fitted

GUIDE, ICON = 2, 2
"""Cells of the indentation of a level, and of the sign of a node that can be opened."""
Line = tuple[Path, Text]


def lines(view: RunView, width: int | None = None) -> Iterator[Line]:
    """Path and label of every node, parents before children; each label fits into a tree of `width` cells."""
    for path, parts in _nodes(view, width):
        yield path, fitted(parts, _room(path, width))


def _room(path: Path, width: int | None) -> int | None:
    """The cells of a label in a tree of `width` cells."""
    return None if width is None else width - GUIDE * (len(path) - 1) - (ICON if len(path) < 3 else 0)


def _nodes(view: RunView, width: int | None) -> Iterator[tuple[Path, list[Part]]]:
    for stage in view.stages:
        yield (stage.id,), _stage(stage, view.now_unix_s)
        going = view.iteration.id if view.iteration is not None and view.iteration.id.stage == stage.id else None
        known = _by_rung(stage)
        for rung in known if going is None or going.rung in known else [*known, going.rung]:
            path = (stage.id, str(rung))
            running = going if going is not None and going.rung == rung else None
            yield path, _rung(stage, rung, _room(path, width), running=running is not None)
            for load in stage.loads if len(stage.loads) > 1 else ():
                of_load = (*path, LOAD + load.name)
                room = _room(of_load, width)
                yield of_load, _load(view, stage, load, rung, room, running=running is not None)
            for item in known.get(rung, ()):
                yield (*path, str(item.id)), _repeat(item, refused=_is_refused(stage, item))
            if running is not None:
                yield (*path, str(running)), [(f"▶ #{running.repeat} running", "bold", 0)]


def running_path(view: RunView) -> Path:
    """The path of the iteration under way, else of the stage; () before the first."""
    if view.iteration is not None:
        going = view.iteration.id
        return (going.stage, str(going.rung), str(going))
    return (view.current,) if view.current else ()


def _by_rung(stage: StageView) -> dict[int, list[IterationView]]:
    found: dict[int, list[IterationView]] = {}
    for item in stage.finished:
        found.setdefault(item.id.rung, []).append(item)
    return found


def _stage(stage: StageView, now_unix_s: float) -> list[Part]:
    sign, style = STATES[stage.state]
    parts: list[Part] = [(f"{sign} {safe(stage.cell or stage.id)}", style, 0)]
    if safe(stage.id) != stage.kind:
        parts.append((f" {safe(stage.kind)}", MUTED, 4))
    if stage.began_unix_s and stage.state != "waiting":
        parts.append((f" {clock((stage.ended_unix_s or now_unix_s) - stage.began_unix_s)}", MUTED, 3))
    if stage.voided:
        parts.append((f" {stage.voided} void", CAUTION, 2))
    if stage.search is not None:
        parts.append((f" {_answer(stage.search)}", "", 1))
    return parts


def _answer(search: SearchFinished) -> str:
    """The interval of the rate that a search has found, which begins at that rate; without confirmations the rate."""
    known = search.rate is not None and search.confirmations
    if not known or search.over != "rate":
        return search.answer.partition(" (")[0]
    return bounds(search.rate, search.upper, "rate")


def _rung(stage: StageView, rung: int, room: int | None, *, running: bool) -> list[Part]:
    name = (f"▶ {_named(stage, rung)}", "bold", 0) if running else (_named(stage, rung), "", 0)
    known = stage.throughput if stage.kind != "search" else {}
    if rung not in known:
        return [name]
    widest = max(len(one.cells[0]) for one in known.values())
    return [name, *_mean(known[rung], name, room, widest - 2 * running)]


def _mean(found: Throughput, name: Part, room: int | None, width: int = 0) -> list[Part]:
    """The mean behind a name: with the ends of its interval, else with ±, else not at all; alone only where no surface
    has an interval."""
    mean, ends = found.cells
    shown = f" {mean:>{max(width, 0)}}"
    forms = [f"{shown} ({ends})", *([f"{shown} ± {found.half}"] if found.half else [])] if ends else [shown]
    fitting = [form for form in forms if room is None or cell_len(name[0]) + cell_len(form) <= room]
    return [(form, "", 1) for form in fitting[:1]]


def _load(view: RunView, stage: StageView, load: LoadView, rung: int, room: int | None, *, running: bool) -> list[Part]:
    """One of several loads: its throughput now, else the mean over the repeats."""
    name = (safe(load.name), ACCENT, 0)
    newest = view.seconds[-1].tick if running and view.seconds else None
    now = next((line for line in newest.loads if line.name == load.name), None) if newest is not None else None
    if now is not None:
        return [name, (f" {number(round(now.tps))} now", "bold", 1)]
    found = stage.throughput_of(load.name).get(rung)
    return [name, *(_mean(found, name, room) if found is not None else [])]


def _named(stage: StageView, rung: int) -> str:
    """`4 thr`, the numbers of a stage below each other; a tool's rungs are I/O depths."""
    widest = max(map(len, map(str, (*stage.planned, rung))))
    return f"depth {rung:>{widest}}" if stage.kind == "tool" else f"{rung:>{widest}} thr"


def _is_refused(stage: StageView, item: IterationView) -> bool:
    """Whether a search did not accept this probe."""
    return any(probe.probe == item.id.repeat and not probe.accepted for probe in stage.probes)


def _repeat(item: IterationView, *, refused: bool = False) -> list[Part]:
    style = BAD if not item.valid else CAUTION if refused else GOOD
    numbers: list[Part] = [(f" {number(item.tps)}", style, 1), (f" p99 {_p99(item)}", style, 2)]
    if not item.valid:
        return [(f"✗ #{item.id.repeat} INVALID", style, 0), *numbers, (f": {safe(item.why)}", style, 3)]
    rate: list[Part] = [(f" at {number(item.rate)}/s", style, 3)] if item.rate else []
    sign = "✗" if refused else "✓"
    return [(f"{sign} #{item.id.repeat}", style, 0), *rate, *numbers]


def _p99(item: IterationView) -> str:
    return lower_bound(item.p99_at_least_us) if item.p99_us is None else microseconds(item.p99_us)


class PlanTree(Tree[Path]):
    """The plan with the state of its stages."""

    ICON_NODE, ICON_NODE_EXPANDED = "▸ ", "▾ "
    _MOVES = frozenset({"up", "down", "pageup", "pagedown", "home", "end", "shift+up", "shift+down", "shift+left"})

    def __init__(self, *, id: str) -> None:
        super().__init__("plan", id=id)
        self.show_root, self.auto_expand = False, False
        self.guide_depth = GUIDE
        self._known: dict[Path, TreeNode[Path]] = {}
        self._begun: set[str] = set()
        self._opened: TreeNode[Path] | None = None
        self._under_way: Path = ()
        self._follows = True

    def show(self, view: RunView) -> None:
        """Bring the nodes up to date, and go to the iteration under way."""
        found = dict(lines(view, self.scrollable_content_region.width or None))
        self._forget([path for path in self._known if path not in found])
        for path, label in found.items():
            node = self._known.get(path)
            if node is None:
                node = self._known[path] = self._add(path, label)
            shown = label if len(path) > 2 or node.allow_expand else Text(" " * ICON).append_text(label)
            if node.label != shown:
                node.set_label(shown)
        for stage in view.stages:
            if stage.state not in ("waiting", "skipped") and stage.id not in self._begun:
                self._begun.add(stage.id)
                self._known[stage.id,].expand()
        if (path := running_path(view)) != self._under_way:
            self._under_way = path
            self._unfold(self._known.get(path[:2]) if len(path) > 2 else None)
            self.call_after_refresh(self._go_on)

    def _forget(self, paths: Sequence[Path]) -> None:
        """Remove nodes: of iterations after the place that a replay goes back to."""
        for path in sorted(paths, key=len, reverse=True):
            node = self._known.pop(path)
            if node is self._opened:
                self._opened = None
            node.remove()

    def go(self, stage: str) -> None:
        """Select a stage, if it is there."""
        if (node := self._known.get((stage,))) is not None:
            self.stay()
            self.move_cursor(node)
            self.post_message(Tree.NodeSelected(node))

    def follow(self) -> None:
        """Go with the run again."""
        self._follows = True
        self.call_after_refresh(self._go_on)

    def stay(self) -> None:
        """Leave the cursor where it is."""
        self._follows = False

    def on_key(self, event: Key) -> None:
        """A key that moves the cursor: it stays there."""
        if event.key in self._MOVES:
            self.stay()

    def _unfold(self, rung: TreeNode[Path] | None) -> None:
        """Open the rung under way, and fold the one before it; between iterations it stays open."""
        if rung is None or rung is self._opened:
            return
        if self._opened is not None:
            self._opened.collapse()
        self._opened = rung
        rung.expand()

    def _go_on(self) -> None:
        node = self._known.get(self._under_way)
        if self._follows and node is not None:
            self.move_cursor(node)

    def _add(self, path: Path, label: Text) -> TreeNode[Path]:
        parent = self._known[path[:-1]] if len(path) > 1 else self.root
        parent.allow_expand = True
        if len(path) == 3:
            return parent.add_leaf(label, data=path)
        return parent.add(label, data=path, allow_expand=False)
