"""Compile a plan with errors as far as possible: misspelled keys read as meant, broken stages kept as drafts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from proveout.core.data_classes import dataclass
from proveout.dsl.plan.stages import WINDOWS, Cell, Stage
from proveout.dsl.rules.bounds import ID_PATTERN
from proveout.dsl.schema.models import CaptureEntry, HostEntry, SystemEntry
from proveout.dsl.schema.scalar_types import RESERVED_IDS
from proveout.dsl.schema.stage_models import STAGES
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A stage entry of the document: kind, body and the id it has or gets; `stage` is None when it did not compile.

    `step_of` and `side` as in `matrix.Place`. `sketch` is what is known of a stage that did not compile, where the keys
    that are not valid, its `doubts`, do not decide the names of its results.
    """

    id: str
    kind: str
    body: Map
    stage: Stage | None
    sketch: Stage | None = None
    doubts: frozenset[str] = frozenset()
    cell: Cell | None = None
    step_of: str = ""
    side: str = ""

    @property
    def known(self) -> Stage | None:
        """The stage, or what is known of it."""
        return self.stage or self.sketch

    @property
    def is_doubtful(self) -> bool:
        """Whether its results may have numbers that those of the sketch have not."""
        return bool(self.doubts - PLAIN)


SHAPING = frozenset(
    {"commits", "id", "interference", "iodepth", "loads", "matrix", "metrics", "phases", "processes", "query"}
    | {"target", "threads", "wait_until", "workload"}
)
"""The keys that decide which numbers a stage has; also `faults` and `capture`, which are known as far as they go."""


PLAIN = frozenset(
    {"", "from", "limits", "needs", "order", "pool", "repeat", "retries", "seed", "stop_when", "title", "when", "with"}
    | {"workers", *(one.name for one in WINDOWS)}
)
"""The keys that decide no names of numbers."""


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


CHANGING = frozenset({"into", "restore", "system", "systems", "tune", "tuning"})
"""The keys that decide what a stage changes."""
HARMLESS = frozenset({"command", "ladder", "pause", "restart", "revert", "search", "tool", "tune"})
"""The kinds of stages that change no tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stage of which nothing is known but its kind: it may have changed the tables of `systems`; None: of any."""

    kind: str
    systems: frozenset[str] | None


def gap(draft: Draft, systems: frozenset[str]) -> Gap:
    """The effect that a broken stage may have; `systems` are those of the plan that compiled."""
    if draft.kind in HARMLESS:
        return Gap(kind=draft.kind, systems=frozenset())
    nodes = [draft.body.get(key) for key in ("into", "system", "systems")]
    names = [item for node in nodes for item in (node.items if isinstance(node, Seq) else (node,))]
    texts = frozenset(item.text for item in names if isinstance(item, Scalar))
    return Gap(kind=draft.kind, systems=None if not draft.kind else texts if texts <= systems else texts | systems)


def sequence(drafts: Sequence[Draft], stages: Sequence[Stage], systems: frozenset[str]) -> list[Stage | Gap]:
    """The stages in order, with gaps for the drafts that are broken; `stages` are the drafts' stages, completed."""
    done = {stage.id: stage for stage in stages}
    return [
        gap(draft, systems) if draft.known is None or draft.doubts & CHANGING else done[draft.id] for draft in drafts
    ]


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
