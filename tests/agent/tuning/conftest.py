"""Makes `tuning_bench` importable, as pytest's importlib mode leaves this folder out; and the journal that most of these tests need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proveout.agent.tuning.undo import UndoJournal

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UndoJournal]:
    """What has to be undone, in a file of its own."""
    journal = UndoJournal(tmp_path / "undo")
    yield journal
    journal.close()
