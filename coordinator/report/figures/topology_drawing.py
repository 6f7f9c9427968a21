"""The topology as an SVG drawing: machines as boxes with their systems in them, load as arrows in, propagation and
streams to standbys as arrows across; equipment without an agent below, with a dashed border, each box with the names
that it is connected to. Pure.

Data flow: the recorded plan (plain data) -> boxes in a grid -> SVG text. Clients stand on the left, servers on the
right; every text from the plan is escaped. An SVG of its own makes no request and needs no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from proveout.coordinator.results.results import RunResults
from proveout.core.data_classes import dataclass
from proveout.core.numbers import safe

_BOX, _ROW, _PAD, _GAP = 300, 34, 14, 26
_LEFT, _RIGHT = 10, 450
_WIDTH = _RIGHT + _BOX + 60
_EQUIPMENT = 70
_LETTERS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A host's box: where it is, px; and its systems with the height of each one's middle."""

    name: str
    x: int
    y: int
    height: int
    systems: Mapping[str, int]


def topology(results: RunResults) -> str:
    """The drawing as an `<svg>` element; "" when the run has no plan with hosts."""
    plan = results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}
    hosts, systems = list(plan.get("hosts", ())), list(plan.get("systems", ()))
    if not hosts:
        return ""
    at = {host["name"]: [one for one in systems if one.get("host") == host["name"]] for host in hosts}
    left = [host for host in hosts if not at[host["name"]]]
    right = [host for host in hosts if at[host["name"]]]
    boxes = {box.name: box for box in (*_column(left, at, _LEFT), *_column(right, at, _RIGHT if left else _LEFT))}
    equipment = [one for one in plan.get("declared", ()) if one["kind"] not in ("host", "system")]
    below = max(box.y + box.height for box in boxes.values()) + _GAP
    rows = -(-len(equipment) // 2)
    height = below - _GAP + 12 + rows * (_EQUIPMENT + _GAP)
    parts = [
        *(piece for host in hosts for piece in _host(host, at, boxes[host["name"]], results)),
        *_links(plan, boxes),
        *(piece for index, one in enumerate(equipment) for piece in _equipment(one, index, below)),
    ]
    label = "Hosts, the systems on them, where load goes and what propagates; equipment without an agent"
    return (
        f'<svg class="topology" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse">'
        '<path d="M0 0 L8 4 L0 8 z" class="tip"/></marker></defs>' + "".join(parts) + "</svg>"
    )


def _column(hosts: Sequence[Mapping[str, Any]], at: Mapping[str, Sequence[Any]], x: int) -> Iterator[_Drawn]:
    y = 12
    for host in hosts:
        inner = at[host["name"]]
        height = 50 + len(inner) * (_ROW + 8) + (6 if inner else 0)
        middles = {one["name"]: y + 50 + row * (_ROW + 8) + _ROW // 2 for row, one in enumerate(inner)}
        yield _Drawn(name=host["name"], x=x, y=y, height=height, systems=middles)
        y += height + _GAP


def _host(
    host: Mapping[str, Any], at: Mapping[str, Sequence[Mapping[str, Any]]], box: _Drawn, results: RunResults
) -> Iterator[str]:
    agent = results.agents.get(host["name"])
    cores = f", {agent.cores} cores" if agent else ""
    about = f"{', '.join(host.get('roles', ()))} · {host.get('address', '')}{cores}"
    yield f'<rect class="host" x="{box.x}" y="{box.y}" width="{_BOX}" height="{box.height}" rx="8"/>'
    yield _text(box.x + _PAD, box.y + 21, "name", host["name"])
    yield _text(box.x + _PAD, box.y + 39, "about", about)
    for one in at[host["name"]]:
        middle = box.systems[one["name"]]
        up = results.systems.get(one["name"])
        version = f"{one.get('engine', '')} {up.version if up else ''}".strip()
        if one.get("standby_of"):
            version += f", {'synchronous' if one.get('synchronous') else 'asynchronous'} standby"
        if one.get("in_front_of"):
            version += f", in front of {one['in_front_of']}"
        place = f'x="{box.x + 10}" y="{middle - _ROW // 2}" width="{_BOX - 20}" height="{_ROW}"'
        yield f'<rect class="system" {place} rx="5"/>'
        yield _text(box.x + 20, middle + 5, "label", f"{one['name']}: {version}")


def _equipment(one: Mapping[str, Any], index: int, top: int) -> Iterator[str]:
    """The box of a piece of equipment: two in a row, from `top` on."""
    x, y = (_LEFT, _RIGHT)[index % 2], top + index // 2 * (_EQUIPMENT + _GAP)
    place = f'x="{x}" y="{y}" width="{_BOX}" height="{_EQUIPMENT}"'
    yield f'<rect class="host equipment" stroke-dasharray="5 4" {place} rx="8"/>'
    yield _text(x + _PAD, y + 21, "name", one["name"])
    about = f"{one['kind']}, no agent" + (f" · {one['description']}" if one.get("description") else "")
    yield _text(x + _PAD, y + 39, "about", about)
    connected = f"connects {', '.join(one['connects'])}" if one.get("connects") else "no connection is declared"
    yield _text(x + _PAD, y + 57, "about", connected)


def _links(plan: Mapping[str, Any], boxes: Mapping[str, _Drawn]) -> Iterator[str]:
    homes = {name: box for box in boxes.values() for name in box.systems}
    loads = {
        (client, load["target"])
        for stage in plan.get("stages", ())
        if stage.get("kind") in ("ladder", "search")
        for load in stage.get("loads") or [stage]
        for client in load.get("clients", ())
    }
    for client, target in sorted(loads):
        source, home = boxes.get(client), homes.get(target)
        if source is not None and home is not None and source.x < home.x:
            y1, y2 = source.y + source.height // 2, home.systems[target]
            x1, x2 = source.x + _BOX, home.x
            curve = f"M{x1} {y1} C{x1 + 70} {y1} {x2 - 70} {y2} {x2 + 8} {y2}"
            yield f'<path class="load" marker-end="url(#tip)" d="{curve}"/>'
    for system in plan.get("systems", ()):
        yield from _arrow(homes, system["name"], system.get("propagates_to"))
        yield from _arrow(homes, system.get("standby_of"), system["name"])


def _arrow(homes: Mapping[str, _Drawn], source: str | None, sink: str | None) -> Iterator[str]:
    """The way of a system's changes to another; nothing when there is none."""
    if source is not None and sink is not None and source in homes and sink in homes:
        home, to = homes[source], homes[sink]
        y1, y2, edge = home.systems[source], to.systems[sink], home.x + _BOX - 8
        curve = f"M{edge} {y1} C{edge + 60} {y1} {edge + 60} {y2} {edge} {y2}"
        yield f'<path class="propagates" marker-end="url(#tip)" d="{curve}"/>'


def _text(x: int, y: int, kind: str, text: str) -> str:
    shown = safe(text)
    cut = shown if len(shown) <= _LETTERS else shown[: _LETTERS - 1] + "…"
    whole = f"<title>{escape(shown)}</title>" if cut != shown else ""
    return f'<text class="{kind}" x="{x}" y="{y}">{whole}{escape(cut)}</text>'
