"""The SQLite driver on a real file: values, counts, failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.sqlite import driver as sqlite
from proveout.agent.engines.sqlite.driver import SqliteDriver, SqliteSession, placeholders
from proveout.agent.engines.table import driver
from proveout.core.errors import ProveoutError
from proveout.dsl.workloads.base import Statement


def statement(text: str, *arguments: Any, reads: bool = True, logical: frozenset[str] = frozenset()) -> Statement:
    return Statement(name="tried", text={"sqlite": text}, arguments=arguments, reads=reads, logical_errors=logical)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "a.db")
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, word TEXT)")
    connection.execute("INSERT INTO item VALUES (1, 'one'), (2, 'two')")
    connection.close()
    return path


@pytest.fixture
def session(path: str) -> Iterator[SqliteSession]:
    session = SqliteDriver().connect(path)
    yield session
    session.close()


def execute(session: SqliteSession, of: Statement, *arguments: Any) -> SqliteSession:
    session.execute(session.prepare(of), arguments)
    return session


def test_values_and_counts(session: SqliteSession) -> None:
    find = execute(session, statement("SELECT id, word FROM item WHERE word = $2 AND id = $1", int, str), 1, "one")
    assert (find.count, find.rows()) == (1, [(1, "one")])
    assert execute(session, statement("SELECT id FROM item WHERE id = $1", int), 9).count == 0
    assert execute(session, statement("UPDATE item SET word = $1", str, reads=False), "x").count == 2
    assert execute(session, statement("DELETE FROM item WHERE id = $1", int, reads=False), 9).count == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = $1 AND b = $12", "a = ?1 AND b = ?12"),
        ("a = '$1' AND b = $2", "a = '$1' AND b = ?2"),
        ("a = 'it''s $1' OR \"$3\" = $1", "a = 'it''s $1' OR \"$3\" = ?1"),
    ],
)
def test_placeholders(text: str, expected: str) -> None:
    assert placeholders(text) == expected


def test_a_logical_error(session: SqliteSession) -> None:
    insert = statement(
        "INSERT INTO item VALUES ($1, 'z')", int, reads=False, logical=frozenset({"SQLITE_CONSTRAINT_PRIMARYKEY"})
    )
    with pytest.raises(StatementFailure) as raised:
        execute(session, insert, 1)
    assert (raised.value.code, raised.value.kind) == ("SQLITE_CONSTRAINT_PRIMARYKEY", FailureKind.LOGICAL)
    assert execute(session, insert, 3).count == 1


def test_a_locked_database_is_retryable(session: SqliteSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 10)
    other = SqliteDriver().connect(path)
    try:
        execute(session, statement("BEGIN IMMEDIATE", reads=False))
        with pytest.raises(StatementFailure) as raised:
            execute(other, statement("BEGIN IMMEDIATE", reads=False))
        assert (raised.value.code, raised.value.kind) == ("SQLITE_BUSY", FailureKind.RETRYABLE)
    finally:
        other.close()


def test_a_statement_that_sqlite_refuses(session: SqliteSession) -> None:
    with pytest.raises(StatementFailure, match=r"statement tried: .*nowhere"):
        session.prepare(statement("SELECT * FROM nowhere"))


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StatementFailure) as raised:
        SqliteDriver().connect(str(tmp_path / "none.db"))
    assert raised.value.kind is FailureKind.LOST
    assert not (tmp_path / "none.db").exists()


def test_the_table_of_drivers() -> None:
    assert isinstance(driver("sqlite"), SqliteDriver)
    with pytest.raises(ProveoutError, match="no driver for engine 'nosuch'") as raised:
        driver("nosuch")
    assert "postgres" in raised.value.way_out
