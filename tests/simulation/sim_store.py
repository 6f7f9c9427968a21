"""The journals of agents and of the coordinator, in memory: SQLite as it is, without a disk that nobody looks at.

Data flow: `agent.daemon.task_journal` and `coordinator.storage.journal` ask their module `sqlite3` for a connection ->
`Store.module` in place of it -> one database for each path, for as long as the history lasts. Whoever closes a
connection, or is killed with one, loses what was not committed.

What a commit on a real disk promises is SQLite's. Of the undo journal it is held that nothing is changed before one:
`sim_machine`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit


class _Kept(sqlite3.Connection):
    """A connection that outlives those who use it."""

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
        """In place of the module `sqlite3`."""
        return SimpleNamespace(connect=self._connect, Error=sqlite3.Error, Connection=sqlite3.Connection)

    def _connect(self, where: Path | str, **_more: Any) -> sqlite3.Connection:
        path = unquote(urlsplit(where).path) if isinstance(where, str) else str(where)
        if path not in self._kept:
            Path(path).touch()
            self._kept[path] = sqlite3.connect(":memory:", isolation_level=None, factory=_Kept)
        return self._kept[path]

    def close(self) -> None:
        """The history is over."""
        for kept in self._kept.values():
            kept.end()
        self._kept.clear()
