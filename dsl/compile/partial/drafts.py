"""The stages of a plan while it compiles, the broken ones with what is known of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from proveout.core.data_classes import dataclass
from proveout.dsl.plan.matrix_labels import Cell
from proveout.dsl.plan.stages import Stage
from proveout.dsl.rules.bounds import ID_PATTERN
from proveout.dsl.schema.scalar_types import RESERVED_IDS
from proveout.dsl.schema.stage_models import STAGES
from proveout.dsl.source.nodes import Map, Node, Scalar, Seq


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
    {"", "from", "limits", "measure", "needs", "order", "pool", "ramp_down", "ramp_up", "repeat", "retries", "seed"}
    | {"stop_when", "title", "when", "with", "workers"}
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
