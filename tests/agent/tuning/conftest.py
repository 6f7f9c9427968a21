"""Make `tuning_bench` importable, as pytest's importlib mode excludes this folder; fixtures for the undo journal and a
server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.plan.topology import System


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UndoJournal]:
    """An undo journal in a separate folder."""
    journal = UndoJournal(tmp_path / "undo")
    yield journal
    journal.close()


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A separate server, as changed settings of the shared one would affect other tests."""
    system = System(name="db", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),))
    server = Server(system, tmp_path_factory.mktemp("tuned"))
    try:
        yield server.start().dsn
    finally:
        server.close(keep_data=False)
