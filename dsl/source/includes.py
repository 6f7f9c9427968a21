"""Merge the files of a plan: `include` and `extends`.

Data flow: file -> nodes -> the nodes of included files and of the plan that it extends, each with its own positions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from proveout.core.data_classes import dataclass, field
from proveout.dsl.source.loader import NULL, load, read_plain
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean, listed, node_at, scalars

# Sections of names (`params`, `secrets`, `workloads`, `captures`, `pools`, and those of `topology`) go entry by entry
# and never deeper; stages, verdicts and published numbers by their id (a stage without one by its kind), tunings by
# their name: one that the base has too replaces it, a new one follows the last. Everything else is replaced as a whole.
# `name` and `title` are never inherited.
#
# `null` drops what the base has: a section (`tuning: null`), an entry of a section of names (`captures: {waits:
# null}`), an item of a list, either in it (`- faster: null`) or, where nothing else changes, in a mapping (`verdicts:
# {faster: null}`). A `null` for what the base does not have is a problem.

Entries = dict[str, tuple[Scalar, Node]]

_BY_NAME, _JOINED = ("params", "secrets", "workloads", "captures"), ("tuning", "verdicts", "published")
"""Sections of includes too: of names, and of items."""
BY_NAME, LISTED = (*_BY_NAME, "pools"), (*_JOINED, "stages")
OWN = ("proveout", "name", "title", "extends", "include")
"""Keys that are never inherited; the includes of the base are merged into it before."""


def extended(plan: Map, base: Map, problems: Problems) -> Map:
    """`plan` merged over `base`. A value of the wrong form stays as in the plan, so that the models report it."""
    result: Entries = {key.text: (key, node) for key, node in base.entries if key.text not in OWN}
    for key, node in plan.entries:
        if _is_null(node) and key.text not in OWN:
            _drop(result, key, problems)
        else:
            _, inherited = result.get(key.text, (key, None))
            result[key.text] = (key, _section(key.text, node, inherited, problems))
    return _map(result, plan)


def _is_null(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.faulty and not node.quoted and node.text == NULL


def refuse_nulls(node: Node, problems: Problems) -> None:
    """A problem for each `null` that is left, as it drops nothing."""
    _, problem, hint = read_plain(NULL)
    for _, scalar in scalars(node):
        if _is_null(scalar):
            problems.add(scalar.where, problem, hint=hint)


def _drop(entries: Entries, key: Scalar, problems: Problems) -> None:
    """Remove an inherited entry; a problem when there is none."""
    if entries.pop(key.text, None) is None:
        _not_inherited(key, entries, problems, "the base")


def _not_inherited(key: Scalar, known: Iterable[str], problems: Problems, where: str) -> None:
    message = f"`{key.text}` is dropped by null, but {where} does not have it"
    problems.add(key.where, message, key=key.text, hint=did_you_mean(key.text, known))


def _section(name: str, above: Node, inherited: Node | None, problems: Problems) -> Node:
    """A section over that of the base; where the base does not have it, nothing in it can be dropped."""
    if name in BY_NAME or name == "topology":
        return _names(above, inherited or Map(entries=(), where=above.where), problems, deeper=name == "topology")
    if name in LISTED:
        return _listed(above, inherited or Seq(items=(), where=above.where), problems, name)
    return above


def _names(above: Node, inherited: Node, problems: Problems, *, deeper: bool = False) -> Node:
    """Entry by entry, the base's order first; `deeper`: each entry is a mapping of names itself."""
    if not isinstance(above, Map) or not isinstance(inherited, Map):
        return above
    entries = _entries(inherited)
    for key, node in above.entries:
        if _is_null(node):
            _drop(entries, key, problems)
        else:
            _, known = entries.get(key.text, (key, Map(entries=(), where=node.where)))
            entries[key.text] = (key, _names(node, known, problems) if deeper else node)
    return _map(entries, above)


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
    mine: dict[str, list[Node]] = {}  # several of one id are a problem, which the models report
    for item in items:
        if _id(item) in known - gone:
            mine.setdefault(_id(item), []).append(item)
    replaces = set(mine)
    kept = [item for item in below.items if _id(item) not in gone]
    replaced = [one for item in kept for one in (mine.pop(_id(item), []) if _id(item) in replaces else [item])]
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


# Rules, all by name and never deeper than an entry: definitions of the including file replace included ones; two
# includes that define the same name are in conflict unless the including file defines it too. An include may hold
# `params`, `topology`, `secrets`, `workloads`, `captures`, `tuning`, `verdicts`, `published` and includes of its own;
# stages stay in the plan, where a reader looks for them. Of verdicts and published numbers (by id) and tunings (by
# name) includes' come first. An inventory replaces `topology.hosts` as a whole, `topology.systems` and `secrets` entry
# by entry; where it has hosts, its equipment replaces the plan's, which is connected to other hosts.
#
# An include or a base is relative to the file that names it and stays, symlinks resolved, within the plan's own folder.
#
# A plan that `extends` another is that plan with its own entries laid over it (`includes`).

FILES_MAX = 50
DEPTH_MAX = 8

FRAGMENT_KEYS = ("proveout", "include", "topology", *_BY_NAME, *_JOINED)
INVENTORY_KEYS = ("proveout", "topology", "secrets")


def read(path: Path, inventory: Path | None, problems: Problems) -> Map | None:
    """The merged document; None when the plan itself cannot be read."""
    reader = _Reader(folder=Path(os.path.realpath(path.parent)), problems=problems)
    root = reader.file(path, str(path), (), whole=True)
    if root is None or inventory is None:
        return root
    return _with_inventory(root, inventory, problems)


@dataclass(slots=True)
class _Reader:
    folder: Path
    problems: Problems
    files: int = 0
    known: dict[tuple[Path, bool], Map | None] = field(default_factory=dict)

    def file(self, path: Path, name: str, above: tuple[Path, ...], *, whole: bool = False) -> Map | None:
        """The file with its includes merged in; a file that is included twice is read once. `whole`: it is a plan."""
        real = Path(os.path.realpath(path))
        if (real, whole) not in self.known:
            root = _of_this_version(load(real, name, self.problems), self.problems)
            if root is not None and not whole:
                _refuse_unknown(root, FRAGMENT_KEYS, "an include", self.problems)
            self.known[real, whole] = None if root is None else self.merged(root, name, (*above, real))
        return self.known[real, whole]

    def merged(self, root: Map, name: str, above: tuple[Path, ...]) -> Map | None:
        """The file with those that it names; it is the last of those above them."""
        found = [self.other("include", item, name, above) for item in listed(root.get("include"))]
        fragments = [one for one in found if one is not None]
        whole = _merge(root, fragments, self.problems) if fragments else root
        named = root.get("extends")
        if named is None:
            refuse_nulls(root, self.problems)
            return whole
        base = self.other("extends", named, name, above)
        if base is None:  # half a plan has no problems worth telling
            return None
        result = extended(whole, base, self.problems)
        refuse_nulls(result, self.problems)
        return result

    def other(self, key: str, item: Node, name: str, above: tuple[Path, ...]) -> Map | None:
        """The file that an `include` or `extends` names."""
        if isinstance(item, Scalar) and item.faulty and not _is_null(item):
            return None
        if not (isinstance(item, Scalar) and isinstance(item.value, str) and item.text):
            message = "`extends` is the path of one plan" if key == "extends" else "an include is the path of a file"
            self.problems.add(item.where, message, key=key, hint="extends: base.yaml" if key == "extends" else "")
            return None
        target = Path(os.path.realpath(above[-1].parent / item.text))
        self.files += 1
        message, hint = self.objection(key, item.text, target, above)
        if message:
            self.problems.add(item.where, message, key=key, hint=hint)
            return None
        return self.file(target, str(Path(name).parent / item.text), above, whole=key == "extends")

    def objection(  # noqa: PLR0911 - one line per reason
        self, key: str, text: str, target: Path, above: tuple[Path, ...]
    ) -> tuple[str, str]:
        """(why `text` cannot be included or extended, hint); "" when it can."""
        what, does = ("a base", "extends") if key == "extends" else ("an include", "includes")
        if "://" in text:
            return f"{what} is a file beside the plan, never fetched from elsewhere", ""
        if text.startswith(("/", "~")) or "\\" in text:
            return f"{what} is a path relative to the file that names it", ""
        if not target.is_relative_to(self.folder):
            return f"`{text}` leads out of the plan's folder", ""
        if target in above:
            return f"`{text}` {does} itself: {' -> '.join(file.name for file in (*above, target))}", ""
        if self.files > FILES_MAX or len(above) > DEPTH_MAX:
            return f"more than {FILES_MAX} files, or nested deeper than {DEPTH_MAX}", ""
        if not os.path.isfile(target):  # noqa: PTH113 - Path.is_file() raises for a name that is too long
            found = target.parent.glob("*.yaml") if os.path.isdir(target.parent) else ()  # noqa: PTH112 - alike
            names = (os.path.relpath(file, above[-1].parent) for file in found)
            return f"there is no file `{text}`", did_you_mean(text, names)
        return "", ""


def _of_this_version(root: Map | None, problems: Problems) -> Map | None:
    """A file whose `proveout` is another number is a problem, and read as if it were 1."""
    entry = root.entry("proveout") if root is not None else None
    if root is None or entry is None or not isinstance(number := entry[1], Scalar) or number.faulty:
        return root
    if not isinstance(number.value, int | float) or (type(number.value) is not bool and number.value == 1):
        return root  # the models report a text
    problems.add(number.where, f"format version {number.text} is not known", key="proveout", hint="proveout: 1")
    entries = _entries(root) | {"proveout": (entry[0], number.broken)}
    return _map(entries, root)


def _refuse_unknown(root: Map, allowed: tuple[str, ...], what: str, problems: Problems) -> None:
    for key, _ in root.entries:
        if key.text not in allowed:
            hint = did_you_mean(key.text, allowed)
            problems.add(key.where, f"{what} cannot hold `{key.text}`", key=key.text, hint=hint)


def _merge(root: Map, fragments: list[Map], problems: Problems) -> Map:
    result = _entries(root)
    for section in _BY_NAME:
        _put(result, section, _merge_names([f.get(section) for f in fragments], root.get(section), problems))
    own = root.get("topology")
    rest = _entries(own)
    topologies = [node for fragment in fragments if (node := fragment.get("topology")) is not None]
    for node in topologies:
        if not isinstance(node, Map):
            problems.add(node.where, "expected a mapping of hosts, systems and equipment", key="topology")
    names = {name.text: name for node in topologies if isinstance(node, Map) for name, _ in node.entries}
    for part, name in names.items():
        found = [node_at(fragment, "topology", part) for fragment in fragments]
        if (merged := _merge_names(found, node_at(root, "topology", part), problems)) is not None:
            rest[part] = (rest.get(part, (name, merged))[0], merged)
    if rest and (own is None or isinstance(own, Map)):
        _put(result, "topology", _map(rest, own or root))
    for section in _JOINED:
        _put(result, section, _merge_listed(root, fragments, section, problems))
    return _map(result, root)


def _entries(node: Node | None) -> Entries:
    return {key.text: (key, value) for key, value in node.entries} if isinstance(node, Map) else {}


def _map(entries: Entries, at: Node) -> Map:
    return Map(entries=tuple(entries.values()), where=at.where)


def _put(entries: Entries, name: str, node: Node | None) -> None:
    if node is not None:
        key = entries[name][0] if name in entries else Scalar(value=name, text=name, where=node.where)
        entries[name] = (key, node)


def _merge_names(fragments: list[Node | None], own: Node | None, problems: Problems) -> Node | None:
    """One mapping of several; `own` wins. Anything but mappings is left for the models to complain of."""
    maps = [node for node in fragments if isinstance(node, Map)]
    for node in fragments:
        if node is not None and not isinstance(node, Map):
            problems.add(node.where, "expected a mapping of names")
    if not maps or (own is not None and not isinstance(own, Map)):
        return own
    mine, merged = _entries(own), Entries()
    for node in maps:
        for name, (key, value) in _entries(node).items():
            other = merged.get(name)
            if other is not None and name not in mine and other[0].where != key.where:
                problems.add(
                    key.where,
                    f"`{name}` is defined by two includes",
                    key=name,
                    hint=f"the other is at {other[0].where}; define it in the plan to settle it",
                )
            merged[name] = (key, value)
    return _map(merged | mine, own or maps[0])


def _merge_listed(root: Map, fragments: list[Map], section: str, problems: Problems) -> Node | None:
    """Lists joined: items of includes come first, except those whose id or name the plan's own list has too."""
    own = root.get(section)
    found = [node for f in fragments if (node := f.get(section)) is not None]
    for node in found:
        if not isinstance(node, Seq):
            problems.add(node.where, f"`{section}` must be a list", key=section)
    lists = [node for node in found if isinstance(node, Seq)]
    if not lists or (own is not None and not isinstance(own, Seq)):
        return own
    mine = own.items if own is not None else ()
    names = set(map(_id, mine))
    taken = tuple(item for node in lists for item in node.items if _id(item) not in names)
    unique = tuple(item for index, item in enumerate(taken) if item not in taken[:index])
    return Seq(items=(*unique, *mine), where=(own or lists[0]).where)


def _with_inventory(root: Map, path: Path, problems: Problems) -> Map:
    inventory = _of_this_version(load(path, str(path), problems), problems)
    if inventory is None:
        return root
    _refuse_unknown(inventory, INVENTORY_KEYS, "an inventory", problems)
    refuse_nulls(inventory, problems)
    result = _entries(root)
    topology = inventory.get("topology")
    if isinstance(topology, Map):
        merged = _entries(root.get("topology"))
        if topology.get("hosts") is not None:
            merged.pop("equipment", None)
        for key, node in topology.entries:
            below = node_at(root, "topology", "systems") if key.text == "systems" else None
            merged[key.text] = (key, _over(below, node))
        _put(result, "topology", _map(merged, topology))
    elif topology is not None:
        problems.add(topology.where, "expected a mapping of hosts and systems", key="topology")
    secrets = inventory.get("secrets")
    if secrets is not None:
        _put(result, "secrets", _over(root.get("secrets"), secrets))
    return _map(result, root)


def _over(below: Node | None, above: Node) -> Node:
    """`above` laid over `below`, entry by entry."""
    return _map(_entries(below) | _entries(above), above) if isinstance(above, Map) else above
