"""The journals of agents and of the coordinator as SQLite databases in memory, because no test reads their files.

Data flow: `agent.daemon.task_journal` and `coordinator.storage.journal` open a connection of `sqlite3` ->
`Store.module` in place of it -> one database for each path, until the end of the history. When a connection is closed,
or its process is killed, uncommitted changes are rolled back.

The durability of a commit on a real disk is SQLite's and not tested here. That no change precedes the commit of its
undo entry is checked in `sim_machine`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit


class _Kept(sqlite3.Connection):
    """A connection that stays open after `close`."""

    def close(self) -> None:
        if self.in_transaction:
            self.rollback()

    def end(self) -> None:
        super().close()


class Store:
    """The databases of one history."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    @property
    def module(self) -> SimpleNamespace:
        """The replacement of the module `sqlite3`."""
        return SimpleNamespace(connect=self._connect, Error=sqlite3.Error, Connection=sqlite3.Connection)

    def _connect(self, where: Path | str, **_more: Any) -> sqlite3.Connection:
        path = unquote(urlsplit(where).path) if isinstance(where, str) else str(where)
        if path not in self._kept:
            Path(path).touch()
            self._kept[path] = sqlite3.connect(":memory:", isolation_level=None, factory=_Kept)
        return self._kept[path]

    def close(self) -> None:
        """Close all databases at the end of the history."""
        for kept in self._kept.values():
            kept.end()
        self._kept.clear()
