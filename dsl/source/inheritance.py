"""A plan that `extends` another: that plan with its own entries laid over it, without those that it drops.

Sections of names (`params`, `secrets`, `workloads`, `captures`, `pools`, and those of `topology`) go entry by entry and
never deeper; stages, verdicts and published numbers by their id (a stage without one by its kind), tunings by their
name: one that the base has too replaces it, a new one follows the last. Everything else is replaced as a whole. `name`
and `title` are never inherited.

`null` drops what the base has: a section (`tuning: null`), an entry of a section of names (`captures: {waits: null}`),
an item of a list, either in it (`- faster: null`) or, where nothing else changes, in a mapping (`verdicts: {faster:
null}`). A `null` for what the base does not have is a problem.
"""

from __future__ import annotations

from collections.abc import Iterable

from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean
from proveout.dsl.source.scalars import NULL, read_plain

Entries = dict[str, tuple[Scalar, Node]]

BY_NAME = ("params", "secrets", "workloads", "captures", "pools")
LISTED = ("stages", "tuning", "verdicts", "published")
OWN = ("proveout", "name", "title", "extends", "include")
"""Keys that are never inherited; the includes of the base are merged into it before."""


def extended(plan: Map, base: Map, problems: Problems) -> Map:
    """`plan` merged over `base`. A value of the wrong form stays as in the plan, so that the models report it."""
    result: Entries = {key.text: (key, node) for key, node in base.entries if key.text not in OWN}
    for key, node in plan.entries:
        below = result.get(key.text)
        if _is_null(node) and key.text not in OWN:
            _drop(result, key, problems, "the base")
        elif below is None:
            result[key.text] = (key, _without_drops(key.text, node, problems))
        elif key.text in BY_NAME:
            result[key.text] = (key, _names(node, below[1], problems))
        elif key.text == "topology":
            result[key.text] = (key, _topology(node, below[1], problems))
        elif key.text in LISTED:
            result[key.text] = (key, _listed(node, below[1], problems, key.text))
        else:
            result[key.text] = (key, node)
    return Map(entries=tuple(result.values()), where=plan.where)


def _is_null(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.faulty and not node.quoted and node.text == NULL


def refuse_nulls(node: Node, problems: Problems) -> None:
    """A problem for each `null` that is left, as it drops nothing."""
    if isinstance(node, Map):
        for _, value in node.entries:
            refuse_nulls(value, problems)
    elif isinstance(node, Seq):
        for item in node.items:
            refuse_nulls(item, problems)
    elif _is_null(node):
        _, problem, hint = read_plain(NULL)
        problems.add(node.where, problem, hint=hint)


def _drop(entries: Entries, key: Scalar, problems: Problems, where: str) -> None:
    """Remove an inherited entry; a problem when there is none."""
    if entries.pop(key.text, None) is None:
        _not_inherited(key, entries, problems, where)


def _not_inherited(key: Scalar, known: Iterable[str], problems: Problems, where: str) -> None:
    message = f"`{key.text}` is dropped by null, but {where} does not have it"
    problems.add(key.where, message, key=key.text, hint=did_you_mean(key.text, known))


def _without_drops(section: str, node: Node, problems: Problems) -> Node:
    """A section that the base does not have: nothing in it can be dropped."""
    if section == "topology":
        return _topology(node, Map(entries=(), where=node.where), problems)
    if section in BY_NAME:
        return _names(node, Map(entries=(), where=node.where), problems)
    if section in LISTED:
        return _listed(node, Seq(items=(), where=node.where), problems, section)
    return node


def _names(above: Node, below: Node, problems: Problems) -> Node:
    """Entry by entry, the base's order first."""
    if not isinstance(above, Map) or not isinstance(below, Map):
        return above
    entries: Entries = {key.text: (key, node) for key, node in below.entries}
    for key, node in above.entries:
        if _is_null(node):
            _drop(entries, key, problems, "the base")
        else:
            entries[key.text] = (key, node)
    return Map(entries=tuple(entries.values()), where=above.where)


def _topology(above: Node, below: Node, problems: Problems) -> Node:
    if not isinstance(above, Map) or not isinstance(below, Map):
        return above
    entries: Entries = {key.text: (key, node) for key, node in below.entries}
    for key, node in above.entries:
        inherited = below.get(key.text)
        if _is_null(node):
            _drop(entries, key, problems, "the base")
        else:
            known = inherited if inherited is not None else Map(entries=(), where=node.where)
            entries[key.text] = (key, _names(node, known, problems))
    return Map(entries=tuple(entries.values()), where=above.where)


def _listed(above: Node, below: Node, problems: Problems, section: str) -> Node:
    """Items by id: in the place of the base's, or after the last; without those that are dropped."""
    if not isinstance(below, Seq):
        return above
    known = {_id(item) for item in below.items} - {""}
    parted = _parted(above, problems, section)
    if parted is None:
        return above
    dropped, items = parted
    for key in dropped:
        if key.text not in known:
            _not_inherited(key, known, problems, f"`{section}` of the base")
    gone = {key.text for key in dropped}
    mine = {_id(item): item for item in items}
    kept = [item for item in below.items if _id(item) not in gone]
    replaced = [mine.get(_id(item), item) if _id(item) else item for item in kept]
    added = [item for item in items if not _id(item) or _id(item) not in known - gone]
    return Seq(items=(*replaced, *added), where=above.where)


def _parted(above: Node, problems: Problems, section: str) -> tuple[list[Scalar], list[Node]] | None:
    """The ids to drop and the items of a list, or of `verdicts: {faster: null}`; None for a value of another form,
    which the models report."""
    if isinstance(above, Seq):
        found = [(_dropped(item), item) for item in above.items]
        return [key for key, _ in found if key is not None], [item for key, item in found if key is None]
    if not isinstance(above, Map) or not any(_is_null(node) for _, node in above.entries):
        return None
    for key, node in above.entries:
        if not _is_null(node):
            hint = f"{section} as a list, with `- NAME: null` for those to drop"
            problems.add(key.where, f"`{section}` as a mapping drops entries, by null only", key=key.text, hint=hint)
    return [key for key, node in above.entries if _is_null(node)], []


def _dropped(item: Node) -> Scalar | None:
    """The id of `- faster: null`; None for another item."""
    if isinstance(item, Map) and len(item.entries) == 1 and _is_null(item.entries[0][1]):
        return item.entries[0][0]
    return None


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
