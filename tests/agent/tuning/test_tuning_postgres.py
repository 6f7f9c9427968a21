"""`postgres_settings` on a real server: a stored value is in effect, but not one that waits for a restart. Any
setting, and `sql`: test_every_operation."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tuning_bench import host_in, tuning

from proveout.agent.tuning import revert
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server


def test_settings_take_effect_or_wait_for_a_restart(dsn: str, tmp_path: Path, journal: UndoJournal) -> None:
    def query(question: str) -> str:
        with psycopg.connect(dsn, autocommit=True) as connection:
            return str(connection.execute(question).fetchone()[0])  # type: ignore[arg-type,index]

    def locks(column: str) -> str:
        return query(f"SELECT {column} FROM pg_settings WHERE name = 'max_locks_per_transaction'")

    (tmp_path / "root").mkdir()
    host, running = host_in(tmp_path / "root"), locks("setting")
    host.databases = Databases([Endpoint(system="db", engine="postgres", dsn=dsn)])
    transaction = Transaction(host=host, journal=journal, run="r")
    one = tuning("postgres_settings", system="db", settings={"work_mem": "67MB", "checkpoint_timeout": "17min"})
    assert [state.outcome for state in transaction.apply((one,))] == ["applied"]
    assert (query("SHOW work_mem"), query("SHOW checkpoint_timeout")) == ("67MB", "17min")
    waits = tuning("postgres_settings", system="db", settings={"max_locks_per_transaction": "100"})
    for _ in range(2):
        (state,) = transaction.apply((waits,))
        says = f"max_locks_per_transaction = 100 is stored, but the server runs with {running} until it is restarted"
        assert (state.outcome, state.lines[-1]) == ("needs_restart", says)
    assert (locks("pending_restart"), locks("setting")) == ("True", running)
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert (locks("pending_restart"), query("SHOW work_mem") == "67MB") == ("False", False)
