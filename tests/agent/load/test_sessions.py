"""Sessions of a load: the instance of a system that each is connected to, and its settings; a load whose instances have
parts of the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.agent.engines.mysql.driver import MysqlDriver
from proveout.agent.engines.postgres.driver import PostgresDriver
from proveout.agent.engines.postgres.sql import PostgresQueries
from proveout.agent.engines.sessions import Members, execute
from proveout.agent.engines.table import driver
from proveout.agent.load.worker import configure
from proveout.agent.security.task_rules import objection
from proveout.dsl.workloads.base import Statement
from proveout.proto.wire.tasks import Endpoint

from .conftest import LoadContext, load_task, populated, run_until, workload_of

pytestmark = pytest.mark.server

CUSTOMERS = 60
MEMBERS = 2


@pytest.fixture
def members(postgres_server: str) -> Iterator[tuple[str, ...]]:
    """The conninfo of a database for each member, dropped after the test."""
    names = [f"member_{number}" for number in range(MEMBERS)]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield tuple(make_conninfo(postgres_server, dbname=name) for name in names)
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_each_member_receives_the_customers_that_it_has(
    context: LoadContext, postgres_server: str, members: tuple[str, ...]
) -> None:
    size = CUSTOMERS // MEMBERS
    mix = {"CheckBalance": 1.0, "UpdateProfile": 1.0}
    prepaid = workload_of("prepaid", population=CUSTOMERS, accounts_per_customer=2, weights=mix)
    endpoint = Endpoint(system="grid", engine="postgres", dsn=members[0])
    await populated(context, endpoint, prepaid)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for dsn in members[1:]:
            connection.execute(f"DROP DATABASE {name_of(dsn)}".encode())
            connection.execute(f"CREATE DATABASE {name_of(dsn)} TEMPLATE {name_of(members[0])}".encode())
    for number, dsn in enumerate(members):
        with psycopg.connect(dsn, autocommit=True) as connection:
            for table in ("accounts", "customers"):
                keep = (number * size + 1, (number + 1) * size)
                connection.execute(f"DELETE FROM {table} WHERE cust_id NOT BETWEEN %s AND %s", keep)
    task = load_task(members[0], workload=prepaid, terminals=4, windows=(0.0, 0.3, 0.0))
    task = replace(task, endpoint=replace(task.endpoint, instances=members))
    result = await run_until(
        lambda result: all(t.counts.ok > 10 for t in result.transactions if t.counts.name in mix), context, task
    )
    for load in result.transactions:
        assert load.counts.logical_failures == load.counts.error_count == 0, load.counts.name
    for dsn in members:
        with psycopg.connect(dsn) as connection:
            versions = connection.execute("SELECT count(DISTINCT xmin::text) FROM customers").fetchone()
            assert versions is not None and versions[0] > 1, "every member has work"


# ---- access --------------------------------------------------------------------------------------------------------


def reached(session: Any) -> str:
    """The database that a session of PostgreSQL is connected to; closes it."""
    found = str(session._libpq._conn.db.decode())
    session.close()
    return found


def name_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def test_the_member_with_the_access_is_found_and_tried_first_from_then_on(
    members: tuple[str, ...], postgres_server: str
) -> None:
    """The second one accepts no changes, as a standby does not."""
    database, read_only = members
    nobody = make_conninfo(database, host="/nowhere")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        off = f"ALTER DATABASE {name_of(read_only)} SET default_transaction_read_only = on"
        connection.execute(off.encode())
    tried: list[str] = []

    class Noted(PostgresDriver):
        def open(self, dsn: str, *, access: str, within_s: float | None) -> Any:
            tried.append(dsn)
            return super().open(dsn, access=access, within_s=within_s)

    for access, wanted, first in (("read_write", database, 3), ("read_only", read_only, 2)):
        one_of = Members(Noted(), (nobody, read_only, database), access)
        for expected in (first, 1 if access == "read_write" else first):
            tried.clear()
            assert reached(one_of.connect(0)) == name_of(wanted)
            assert len(tried) == expected

    in_turn = Members(PostgresDriver(), (read_only, database), "any")
    found = [reached(in_turn.connect(number)) for number in range(4)]
    assert found == [name_of(read_only), name_of(database)] * 2

    none = Members(PostgresDriver(), (read_only, make_conninfo(read_only, host="/nowhere")), "read_write")
    with pytest.raises(
        StatementFailure, match=r"none of 2 members .* read-write: .*read-only.*; .*/nowhere"
    ) as failure:
        none.connect(0)
    assert failure.value.kind is FailureKind.LOST


def test_the_hosts_of_a_dsn_are_members(database: str) -> None:
    host = conninfo_to_dict(database)["host"]
    several = make_conninfo(database, host=f"/nowhere,{host}", target_session_attrs="read-write")
    assert reached(PostgresDriver().connect(several)) == name_of(database)
    with pytest.raises(StatementFailure, match="could not match 2 port numbers to 1 hosts"):
        PostgresDriver().connect("host=a,b,c port=1,2 dbname=x")
    parts = PostgresDriver().members("host=a,b port=1,2 target_session_attrs=prefer-standby dbname=x")
    found = [conninfo_to_dict(part) for part in parts]
    assert [(one["host"], one["port"], one["target_session_attrs"]) for one in found] == [
        ("a", "1", "standby"),
        ("b", "2", "standby"),
        ("a", "1", "any"),
        ("b", "2", "any"),
    ]


def test_the_read_only_mode_of_a_server_of_mysql_decides(mysql_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = MysqlDriver()
    driver.open(mysql_database, access="read_write", within_s=5.0).close()
    with pytest.raises(StatementFailure, match="the server is not read-only"):
        driver.open(mysql_database, access="read_only", within_s=5.0)
    execute = pymysql.cursors.Cursor.execute
    monkeypatch.setattr(  # the server is shared: it only seems to be read-only
        pymysql.cursors.Cursor,
        "execute",
        lambda cursor, query, values=None: execute(cursor, query.replace("@@global.read_only", "1"), values),
    )
    driver.open(mysql_database, access="read_only", within_s=5.0).close()
    with pytest.raises(StatementFailure, match=r"none of 2 members .*read-only"):
        Members(driver, (mysql_database, mysql_database), "read_write").connect(0)


# ---- settings of sessions --------------------------------------------------------------------------------------------


def asked(made: Driver, session: Any, text: str) -> list[tuple[Any, ...]]:
    statement = Statement(name="ask", text={made.dialect: text}, arguments=())
    execute(session, made, session.prepare(statement), ())
    return [tuple(map(str, row)) for row in session.rows()]


def test_postgres_has_the_settings_whatever_their_characters_and_names_the_one_that_it_refuses(database: str) -> None:
    made = driver("postgres")
    settings = (("max_parallel_workers_per_gather", "0"), ("work_mem", "7MB"), ("my.text", "it's'; DROP TABLE x; --"))
    with contextlib.closing(made.connect(database)) as session:
        configure(session, made, settings)
        for name, value in settings:
            assert asked(made, session, f"SELECT current_setting('{name}')") == [(value,)]
        with pytest.raises(StatementFailure, match=r"session setting work_mem = much: .*invalid value") as caught:
            configure(session, made, (("work_mem", "much"),))
        assert caught.value.kind is FailureKind.ERROR


def test_a_database_of_another_encoding_has_the_characters_of_the_plan(postgres_server: str, database: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name_of(database)}".encode())
        form = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(f"CREATE DATABASE {name_of(database)} {form}".encode())
    made, text = driver("postgres"), "SELECT 'é', length('é')"
    with contextlib.closing(made.connect(database)) as session:
        assert asked(made, session, text) == [("é", "1")]
    with contextlib.closing(PostgresQueries(Endpoint(system="db", engine="postgres", dsn=database))) as queries:
        assert queries.rows(text, 1)[1] == [("é", 1)]


def test_mysql_has_the_settings(mysql_database: str) -> None:
    made = driver("mysql")
    with contextlib.closing(made.connect(mysql_database)) as session:
        configure(session, made, (("sort_buffer_size", "1048576"), ("sql_mode", "ANSI_QUOTES,NO_ZERO_DATE")))
        assert asked(made, session, "SELECT @@session.sort_buffer_size, @@session.sql_mode") == [
            ("1048576", "ANSI_QUOTES,NO_ZERO_DATE")
        ]


def test_an_agent_refuses_forbidden_settings() -> None:
    load = load_task("host=db1 dbname=hlr")
    assert objection(replace(load, session=(("work_mem", "4MB"),))) is None
    assert "not for a plan to set" in str(objection(replace(load, session=(("role", "postgres"),))))
