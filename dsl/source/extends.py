"""`extends`: a plan merged over the plan that it extends; nodes in, nodes out, each with its own file and line.

Sections of names (`params`, `secrets`, `workloads`, `captures`, `pools`, `topology.hosts`, `topology.systems`) are laid
over each other entry by entry and never deeper. Stages and verdicts go by their id (a stage without one by its kind),
tunings by their name: one that the base has too replaces it, a new one follows the last. Everything else the
extending plan replaces as a whole.
"""

from __future__ import annotations

from proveout.dsl.source.nodes import Map, Node, Scalar, Seq

BY_NAME = ("params", "secrets", "workloads", "captures", "pools")
OWN = ("proveout", "name", "title", "extends", "include")
"""Keys that are never inherited; the includes of the base are merged into it before."""

Entries = dict[str, tuple[Scalar, Node]]


def extended(plan: Map, base: Map) -> Map:
    """`plan` merged over `base`. A value of the wrong form stays as in the plan, so that the models report it."""
    result: Entries = {key.text: (key, node) for key, node in base.entries if key.text not in OWN}
    for key, node in plan.entries:
        below = result.get(key.text)
        if below is None:
            result[key.text] = (key, node)
        elif key.text in BY_NAME:
            result[key.text] = (key, _names(node, below[1]))
        elif key.text == "topology":
            result[key.text] = (key, _topology(node, below[1]))
        elif key.text in ("stages", "tuning", "verdicts"):
            result[key.text] = (key, _listed(node, below[1]))
        else:
            result[key.text] = (key, node)
    return Map(entries=tuple(result.values()), where=plan.where)


def _names(above: Node, below: Node) -> Node:
    """Entry by entry, the base's order first."""
    if not isinstance(above, Map) or not isinstance(below, Map):
        return above
    entries: Entries = {key.text: (key, node) for key, node in below.entries}
    entries |= {key.text: (key, node) for key, node in above.entries}
    return Map(entries=tuple(entries.values()), where=above.where)


def _topology(above: Node, below: Node) -> Node:
    if not isinstance(above, Map) or not isinstance(below, Map):
        return above
    entries: Entries = {key.text: (key, node) for key, node in below.entries}
    for key, node in above.entries:
        inherited = below.get(key.text)
        entries[key.text] = (key, node if inherited is None else _names(node, inherited))
    return Map(entries=tuple(entries.values()), where=above.where)


def _listed(above: Node, below: Node) -> Node:
    """Items by id: in the place of the base's, or after the last."""
    if not isinstance(above, Seq) or not isinstance(below, Seq):
        return above
    mine = {_id(item): item for item in above.items}
    known = {_id(item) for item in below.items}
    replaced = [mine.get(_id(item), item) if _id(item) else item for item in below.items]
    added = [item for item in above.items if not _id(item) or _id(item) not in known]
    return Seq(items=(*replaced, *added), where=above.where)


def _id(item: Node) -> str:
    """The id of a verdict, the name of a tuning, or the id of a stage: its own, or its kind; "" for other entries."""
    if not isinstance(item, Map):
        return ""
    named = item.get("id") or item.get("name")
    if isinstance(named, Scalar):
        return named.text
    if len(item.entries) != 1:
        return ""
    kind, body = item.entries[0]
    named = body.get("id") if isinstance(body, Map) else None
    return named.text if isinstance(named, Scalar) else kind.text
