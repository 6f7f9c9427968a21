"""Compile a plan with errors as far as possible: misspelled keys read as meant, broken stages kept as drafts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from proveout.core.data_classes import record
from proveout.dsl.plan.bounds import ID_PATTERN, RESERVED_IDS
from proveout.dsl.plan.stages import Cell, Stage
from proveout.dsl.schema.models import CaptureEntry, HostEntry, SystemEntry
from proveout.dsl.schema.stage_models import STAGES
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean


@record
class Draft:
    """A stage entry of the document: kind, body and the id it has or gets; `stage` is None when it did not compile.

    `step_of` and `side` as in `matrix.Place`.
    """

    id: str
    kind: str
    body: Map
    stage: Stage | None
    cell: Cell | None = None
    step_of: str = ""
    side: str = ""


def declared(section: Node | None) -> frozenset[str]:
    """The names that stages have in expressions, as the document gives them: also of entries that do not compile."""
    items = section.items if isinstance(section, Seq) else ()
    return frozenset(name for item in items if isinstance(item, Map) for name in _names_of(item))


def _names_of(item: Map) -> Iterator[str]:
    for key, body in item.entries:
        named = body.get("id") if isinstance(body, Map) else None
        if isinstance(named, Scalar):
            yield named.text
        if not isinstance(named, Scalar) or not re.fullmatch(ID_PATTERN, named.text) or named.text in RESERVED_IDS:
            yield from (key.text, *get_close_matches(key.text, STAGES, n=1))


# A misspelled kind of stage, and settings that are not indented deeper than the name that they belong to:
#
#     - ladder:              workloads:
#       workload: hlr          hlr:
#       target: db             kind: hlr
#
# YAML reads `ladder` and `workload` as two keys of one mapping. Data flow: entries of a mapping -> `nested` -> the same
# entries, those after an empty name inside it, as far as they are its settings.

_SECTIONS: Mapping[tuple[str, ...], Collection[str]] = {
    ("topology", "hosts"): frozenset(HostEntry.model_fields),
    ("topology", "systems"): frozenset(SystemEntry.model_fields),
    ("captures",): frozenset(CaptureEntry.model_fields),
    ("workloads",): frozenset({"kind", "population", "seed", "tables", "transactions"}),
}
_STAGES = {
    kind: frozenset(field.alias or name for name, field in model.model_fields.items()) for kind, model in STAGES.items()
}


def as_meant(document: Map, problems: Problems) -> Map:
    """The document with the kinds of stages, and the settings of all that has a name inside it."""
    for path, known in _SECTIONS.items():
        document = _below(document, path, known, problems)
    section = document.get("stages")
    if not isinstance(section, Seq):
        return document
    items = tuple(_stage(_kind(item, index, problems), problems) for index, item in enumerate(section.items))
    return _put(document, "stages", Seq(items=items, where=section.where))


def _put(node: Map, name: str, value: Node) -> Map:
    entries = tuple((key, value if key.text == name else old) for key, old in node.entries)
    return Map(entries=entries, where=node.where)


def _below(node: Map, path: tuple[str, ...], known: Collection[str], problems: Problems) -> Map:
    below = node.get(path[0])
    if not isinstance(below, Map):
        return node
    inner = _below(below, path[1:], known, problems) if path[1:] else nested(below, known, problems)
    return _put(node, path[0], inner)


def _kind(item: Node, index: int, problems: Problems) -> Node:
    """A stage with the kind that was probably meant."""
    key = item.entries[0][0] if isinstance(item, Map) and item.entries else None
    close = get_close_matches(key.text.lower(), STAGES, n=1) if key is not None else []
    if not isinstance(item, Map) or key is None or key.text in STAGES or not close:
        return item
    hint = did_you_mean(key.text, STAGES)
    problems.add(key.where, f"unknown stage `{key.text}`", key=f"stages.{index}", hint=hint)
    meant = dataclasses.replace(key, value=close[0], text=close[0])
    return Map(entries=((meant, item.entries[0][1]), *item.entries[1:]), where=item.where)


def _stage(item: Node, problems: Problems) -> Node:
    if not isinstance(item, Map) or len(item.entries) < 2:
        return item
    known = _STAGES.get(item.entries[0][0].text)
    whole = known is not None and any(key in known for key in item.keys()[1:])
    return nested(item, item.keys()[1:], problems) if whole else item


def nested(node: Map, known: Collection[str], problems: Problems) -> Map:
    """A mapping of names, with the entries that follow an empty one inside it, as far as their keys are `known`."""
    entries: list[tuple[Scalar, Node]] = []
    left = list(node.entries)
    while left:
        name, value = left.pop(0)
        inside: list[tuple[Scalar, Node]] = []
        while _is_empty(value) and left and left[0][0].text in known:
            inside.append(left.pop(0))
        if inside:
            first = inside[0][0]
            message = f"`{first.text}` is not deeper than `{name.text}:`, so it is not one of its settings"
            hint = f"begin the settings of `{name.text}` in column {name.where.column + 2}, under its name"
            problems.add(first.where, message, key=name.text, hint=hint)
            value = Map(entries=tuple(inside), where=first.where)
        entries.append((name, value))
    return Map(entries=tuple(entries), where=node.where)


def _is_empty(value: Node) -> bool:
    return isinstance(value, Scalar) and value.value is None and not value.text
