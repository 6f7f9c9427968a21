"""`session:` on real connections of PostgreSQL, MariaDB and SQLite. Oracle's statements are only compared as texts, in
tests/dsl."""

from __future__ import annotations

import contextlib
import select
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.agent.engines.table import driver
from proveout.agent.load.worker import configure
from proveout.agent.security.task_rules import objection
from proveout.dsl.workloads.base import Statement


def ask(made: Driver, session: Any, text: str) -> list[tuple[Any, ...]]:
    prepared = session.prepare(Statement(name="ask", text={made.dialect: text}, arguments=()))
    if made.waits == "blocking":
        session.execute(prepared, ())
    else:
        done = session.exchange(prepared, ())
        while not done:
            select.select([session], [], [])
            done = session.receive()
    return [tuple(map(str, row)) for row in session.rows()]


def test_postgres_has_the_settings_whatever_their_characters(database: str) -> None:
    made = driver("postgres")
    settings = (("max_parallel_workers_per_gather", "0"), ("work_mem", "7MB"), ("my.text", "it's'; DROP TABLE x; --"))
    with contextlib.closing(made.connect(database)) as session:
        configure(session, made, settings)
        for name, value in settings:
            assert ask(made, session, f"SELECT current_setting('{name}')") == [(value,)]


def test_the_error_of_a_refused_setting_names_it(database: str) -> None:
    made = driver("postgres")
    with contextlib.closing(made.connect(database)) as session:
        with pytest.raises(StatementFailure, match=r"session setting work_mem = much: .*invalid value") as caught:
            configure(session, made, (("work_mem", "much"),))
        assert caught.value.kind is FailureKind.ERROR


def test_mysql_has_the_settings(mysql_database: str) -> None:
    made = driver("mysql")
    with contextlib.closing(made.connect(mysql_database)) as session:
        configure(session, made, (("sort_buffer_size", "1048576"), ("sql_mode", "ANSI_QUOTES,NO_ZERO_DATE")))
        assert ask(made, session, "SELECT @@session.sort_buffer_size, @@session.sql_mode") == [
            ("1048576", "ANSI_QUOTES,NO_ZERO_DATE")
        ]


def test_sqlite_has_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "data.sqlite"
    apsw.Connection(str(file)).close()
    made = driver("sqlite")
    with contextlib.closing(made.connect(str(file))) as session:
        configure(session, made, (("cache_size", "-4321"), ("temp_store", "MEMORY")))
        assert ask(made, session, "PRAGMA cache_size") == [("-4321",)]
        assert ask(made, session, "PRAGMA temp_store") == [("2",)]


def test_a_load_applies_session_settings_and_an_agent_refuses_forbidden_ones(database: str, spec: Any) -> None:
    assert objection(replace(spec(database), session=(("work_mem", "4MB"),))) is None
    assert "not for a plan to set" in str(objection(replace(spec(database), session=(("role", "postgres"),))))
