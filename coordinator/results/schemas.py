"""The schema of each loaded system at each stage that measures it: digest, changes between the stages. Pure.

Data flow: `FactsTaken` events of stages -> `schemas(results)` -> the report's environment, `compare.comparability`, and
`changes(results)`: the objects that are new, gone or altered since the stage before, such as an index that a reset
has removed.

The facts of a system at a stage are its settings (`synchronous_commit`) and its objects (`index by_name on t`), which
the agent reads (`agent/engines/database_schema.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proveout.coordinator.results.results import RunResults
from proveout.core import json_data
from proveout.core.data_classes import dataclass

KINDS = ("table", "index", "constraint", "trigger", "statistics", "further")
"""The first words of the names of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A system before the first iteration of a stage. `objects`: by name, with their definitions; `digest`:
    `sha256:<hex>` of them. `facts`: with the settings."""

    system: str
    stage: str
    objects: Mapping[str, str]
    facts: Mapping[str, Any]
    digest: str

    @property
    def outline(self) -> str:
        """`9 tables, 12 indexes`."""
        counts = {kind: sum(name.startswith(f"{kind} ") for name in self.objects) for kind in ("table", "index")}
        plural = {"table": "tables", "index": "indexes"}
        return ", ".join(f"{n} {kind if n == 1 else plural[kind]}" for kind, n in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """The objects that are `added`, `gone` and `altered` at a stage, since the stage `since`."""

    system: str
    since: str
    stage: str
    added: tuple[str, ...]
    gone: tuple[str, ...]
    altered: tuple[str, ...]

    def __str__(self) -> str:
        """`db at b, against a: index i on t is gone`."""
        parts = [("is new", "are new", self.added), ("is gone", "are gone", self.gone)]
        parts += [("is altered", "are altered", self.altered)]
        words = [f"{_listed(names)} {one if len(names) == 1 else many}" for one, many, names in parts if names]
        return f"{self.system} at {self.stage}, against {self.since}: {'; '.join(words)}"


def schemas(results: RunResults) -> tuple[Schema, ...]:
    """The schemas in the order in which they were read."""
    return tuple(
        _schema(one.system, one.stage, one.facts)
        for one in {(one.stage, one.system): one for one in results.taken if one.when == "stage"}.values()
    )


def changes(results: RunResults) -> tuple[SchemaChange, ...]:
    """The changes of each system's schema from one stage that measured it to the next."""
    last: dict[str, Schema] = {}
    found: list[SchemaChange] = []
    for now in schemas(results):
        before = last.get(now.system)
        last[now.system] = now
        if before is not None and before.objects != now.objects:
            found.append(_change(before, now))
    return tuple(found)


def first_of_each(read: Sequence[Schema]) -> tuple[Schema, ...]:
    """The first schema of each system."""
    return tuple({one.system: one for one in reversed(read)}.values())[::-1]


def _schema(system: str, stage: str, facts: Mapping[str, Any]) -> Schema:
    objects = {name: str(text) for name, text in facts.items() if name.split(" ")[0] in KINDS and " " in name}
    return Schema(system=system, stage=stage, objects=objects, facts=facts, digest=json_data.digest(objects))


def _change(before: Schema, now: Schema) -> SchemaChange:
    both = before.objects.keys() & now.objects.keys()
    return SchemaChange(
        system=now.system,
        since=before.stage,
        stage=now.stage,
        added=tuple(name for name in now.objects if name not in both),
        gone=tuple(name for name in before.objects if name not in both),
        altered=tuple(name for name in now.objects if name in both and now.objects[name] != before.objects[name]),
    )


SHOWN_MAX = 6


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
