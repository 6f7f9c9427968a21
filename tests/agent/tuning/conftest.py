"""Makes `tuning_bench` importable, as pytest's importlib mode leaves this folder out; and the journal that most of
these tests need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.plan.topology import System


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UndoJournal]:
    """What has to be undone, in a file of its own."""
    journal = UndoJournal(tmp_path / "undo")
    yield journal
    journal.close()


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: the settings of the shared one are everybody's."""
    system = System(name="db", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),))
    server = Server(system, tmp_path_factory.mktemp("tuned"))
    try:
        yield server.start().dsn
    finally:
        server.close(keep_data=False)
