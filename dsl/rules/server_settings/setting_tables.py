"""The settings of an embedded server as data: type, unit, limits and words of each.

`postgres.json` is made of `pg_settings`, `mariadb.json` of `mariadbd --verbose --help` and
`information_schema.SYSTEM_VARIABLES`, by `PROVEOUT_UPDATE_GOLDEN=1 python -m pytest
tests/dsl/rules/test_server_settings.py`, which also compares them with the servers that are installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from proveout.core.data_classes import dataclass

FILES = {"postgres": "postgres.json", "mysql": "mariadb.json"}
"""The table of each engine that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `kind`: bool, int, real, enum, set or text; `low` and `high` are in `unit` where there is one."""

    kind: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The settings of a server that a plan may give, and the names of those that it may not; `server` is its name with
    the version that the table is of."""

    server: str
    settings: Mapping[str, Setting]
    refused: frozenset[str] = frozenset()


@cache
def table(engine: str) -> Table | None:
    """The table of an engine; None without one."""
    if engine not in FILES:
        return None
    return read(json.loads((Path(__file__).parent / FILES[engine]).read_text(encoding="utf-8")))


def read(document: Mapping[str, Any]) -> Table:
    """The table that a JSON document holds."""
    settings = {
        name: Setting(
            kind=entry["kind"],
            unit=entry.get("unit", ""),
            low=entry.get("low"),
            high=entry.get("high"),
            words=tuple(entry.get("words", ())),
        )
        for name, entry in document["settings"].items()
    }
    return Table(server=document["server"], settings=settings, refused=frozenset(document.get("refused", ())))
