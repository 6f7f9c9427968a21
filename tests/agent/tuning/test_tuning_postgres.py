"""`postgres_settings` and `sql` on a real server: stored, in effect, waiting for a restart, and reverted."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tuning_bench import host_in, tuning

from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.plan.tuning_step import Tuning
from proveout.proto.wire.results import TuningState
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server


@pytest.fixture
def host(dsn: str, tmp_path: Path) -> Host:
    root = tmp_path / "root"
    root.mkdir()
    host = host_in(root)
    host.databases = Databases([Endpoint(system="db", engine="postgres", dsn=dsn)])
    return host


def query(dsn: str, question: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question).fetchone()  # type: ignore[arg-type]  # questions of this file
    assert row is not None
    return str(row[0])


def stored(dsn: str) -> str:
    return query(dsn, "SELECT coalesce(string_agg(name || '=' || setting, ' ' ORDER BY name), '') FROM pg_file_settings "
                      "WHERE sourcefile LIKE '%postgresql.auto.conf'")  # fmt: skip


def apply(host: Host, journal: UndoJournal, one: Tuning) -> TuningState:
    return Transaction(host=host, journal=journal, run="r").apply((one,))[-1]


def test_settings_take_effect_and_are_undone(dsn: str, host: Host, journal: UndoJournal) -> None:
    one = tuning(
        "postgres_settings", system="db", settings={"work_mem": "67MB", "jit": "off", "checkpoint_timeout": "17min"}
    )
    before = stored(dsn)
    assert query(dsn, "SHOW work_mem") != "67MB"
    assert apply(host, journal, one).outcome == "applied"
    assert (query(dsn, "SHOW work_mem"), query(dsn, "SHOW checkpoint_timeout")) == ("67MB", "17min")
    assert apply(host, journal, one).outcome == "unchanged"
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert stored(dsn) == before
    assert query(dsn, "SHOW work_mem") != "67MB"


def test_a_revert_restores_the_stored_value(dsn: str, host: Host, journal: UndoJournal) -> None:
    host.databases.run("db", "ALTER SYSTEM SET work_mem = '5MB'")
    before = stored(dsn)
    assert (
        apply(host, journal, tuning("postgres_settings", system="db", settings={"work_mem": "6MB"})).outcome
        == "applied"
    )
    revert.revert(host, journal)
    assert stored(dsn) == before
    assert query(dsn, "SHOW work_mem") == "5MB"
    host.databases.run("db", "ALTER SYSTEM RESET work_mem")


def test_a_setting_that_waits_for_a_restart_is_not_a_success(dsn: str, host: Host, journal: UndoJournal) -> None:
    running = query(dsn, "SELECT setting FROM pg_settings WHERE name = 'max_locks_per_transaction'")
    one = tuning("postgres_settings", system="db", settings={"max_locks_per_transaction": "100"})
    state = apply(host, journal, one)
    assert state.outcome == "needs_restart"
    assert (
        state.lines[-1]
        == f"max_locks_per_transaction = 100 is stored, but the server runs with {running} until it is restarted"
    )
    assert query(dsn, "SELECT pending_restart FROM pg_settings WHERE name = 'max_locks_per_transaction'") == "True"
    assert query(dsn, "SELECT setting FROM pg_settings WHERE name = 'max_locks_per_transaction'") == running
    assert apply(host, journal, one).outcome == "needs_restart"
    revert.revert(host, journal)
    assert "max_locks_per_transaction=100" not in stored(dsn)
    assert query(dsn, "SELECT pending_restart FROM pg_settings WHERE name = 'max_locks_per_transaction'") == "False"


def test_a_value_that_the_server_refuses_fails_and_the_rest_is_undone(
    dsn: str, host: Host, journal: UndoJournal
) -> None:
    before = stored(dsn)
    one = tuning("postgres_settings", system="db", settings={"jit": "off", "work_mem": "1 bit"})
    failed, *undone = Transaction(host=host, journal=journal, run="r").apply((one,))
    assert failed.outcome == "failed"
    assert "work_mem" in failed.lines[0]
    assert {state.outcome for state in undone} == {"reverted"}
    assert stored(dsn) == before


def test_statements_of_the_plan(dsn: str, host: Host, journal: UndoJournal) -> None:
    question = "SELECT count(*) FROM pg_tables WHERE tablename = 'tuned'"
    one = tuning(
        "sql",
        system="db",
        verify={"query": question, "equals": ["1"]},
        apply=["CREATE TABLE tuned (x int)", "INSERT INTO tuned VALUES (1)"],
        revert=["DROP TABLE IF EXISTS tuned"],
    )
    assert apply(host, journal, one).outcome == "applied"
    assert query(dsn, "SELECT x FROM tuned") == "1"
    assert apply(host, journal, one).outcome == "unchanged"
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert query(dsn, question) == "0"
    assert {state.outcome for state in revert.revert(host, journal)} == set()


def test_statements_without_the_promised_effect_fail_and_are_undone(dsn: str, host: Host, journal: UndoJournal) -> None:
    one = tuning(
        "sql",
        system="db",
        verify={"query": "SELECT count(*) FROM pg_tables WHERE tablename = 'promised'", "equals": ["2"]},
        apply=["CREATE TABLE promised (x int)"],
        revert=["DROP TABLE IF EXISTS promised"],
    )
    state = Transaction(host=host, journal=journal, run="r").apply((one,))[0]
    assert state.outcome == "failed"
    assert state.lines[0] == "the changes were written, but the host still differs from the plan:"
    assert query(dsn, "SELECT count(*) FROM pg_tables WHERE tablename = 'promised'") == "0"
