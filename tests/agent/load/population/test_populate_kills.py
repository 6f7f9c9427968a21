"""A population whose worker is killed (SIGKILL) while it creates the tables, at every statement: the next `prepare`
succeeds.

A child process runs `prepare` with real connections and kills itself before statement k, for every k until it completes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import oracledb
import psycopg
import pymysql
import pytest
import thorough

from proveout.agent.engines.mysql.populate import MysqlLoader
from proveout.agent.engines.oracle.populate import OracleLoader
from proveout.agent.engines.postgres.populate import PostgresLoader
from proveout.agent.engines.sqlite.populate import SqliteLoader
from proveout.agent.engines.table_marker import intention_of
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.kinds import build

pytestmark = pytest.mark.server

STATEMENTS_MAX = 100
SURVIVED = 0

Connect = Callable[[Population], Any]


def population() -> Population:
    return build(Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=100)))).population


def killed_before(statement: int, connect: Connect, work: str = "prepare") -> bool:
    """Run `work` of a loader in a child that is killed before its n-th statement; return whether it got that far."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loader = connect(population())
            kill_at(loader, statement)
            getattr(loader, work)()
            status = SURVIVED
        finally:
            os._exit(status)
    how = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert how in {-signal.SIGKILL, SURVIVED}
    return how != SURVIVED


def kill_at(loader: Any, statement: int) -> None:
    left = statement

    def step(*_: Any) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    if isinstance(loader, SqliteLoader):
        loader._connection.exec_trace = step
        return
    owner = {
        PostgresLoader: psycopg.Connection,
        MysqlLoader: pymysql.cursors.Cursor,
        OracleLoader: oracledb.Cursor,
    }[type(loader)]
    execute = owner.execute

    def counted(*arguments: Any, **options: Any) -> Any:
        step()
        return execute(*arguments, **options)

    owner.execute = counted


@pytest.fixture(params=["postgres", "mysql", "oracle", "sqlite"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """A new loader on an empty database of each engine."""
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "x.db"
        path.touch()
        return lambda made: SqliteLoader(str(path), made)
    if request.param == "oracle":
        dsn, behind = request.getfixturevalue("oracle"), request.getfixturevalue("tns_database")

        def clean() -> None:
            with psycopg.connect(behind, autocommit=True) as connection:
                for name in (*(table.name for table in population().tables), intention_of(population())):
                    connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE")

        request.addfinalizer(clean)
        return lambda made: OracleLoader(dsn, made)
    if request.param == "mysql":
        dsn = request.getfixturevalue("mysql_database")
        return lambda made: MysqlLoader(dsn, made)
    dsn = request.getfixturevalue("database")
    return lambda made: PostgresLoader(dsn, made)


def has(loader: Any, table: str) -> bool:
    try:
        loader.count(table)
    except TaskFault:
        return False
    return True


def prepared(connect: Connect) -> None:
    """Check that `prepare` succeeds: its tables exist, are empty and marked as ours, and the record of intent is removed."""
    made = population()
    loader = connect(made)
    try:
        loader.prepare()
        assert [loader.count(table.name) for table in made.tables] == [0] * len(made.tables)
        assert not has(loader, intention_of(made))
        loader.load(made.tables[0], 1, 10, lambda _: None)
    finally:
        loader.close()


@pytest.mark.parametrize("work", ["prepare", "undo"])
def test_prepare_succeeds_after_a_kill_at_any_statement(connect: Connect, work: str) -> None:
    if work == "undo":
        prepared(connect)
    kills = 0
    while killed_before(kills, connect, work):
        prepared(connect)
        kills += 1
        assert kills < STATEMENTS_MAX
    assert kills >= len(population().tables)
    if work == "prepare":
        prepared(connect)


def test_prepare_succeeds_after_two_kills_in_a_row(connect: Connect) -> None:
    """No repair between the kills: the second child starts from the state that the first has left."""
    kills = 0
    while killed_before(kills, connect):
        kills += 3
        assert kills < STATEMENTS_MAX
    prepared(connect)


@pytest.mark.thorough
@pytest.mark.parametrize("connect", ["postgres", "mysql", "oracle"], indirect=True)
@pytest.mark.parametrize(
    ("definition", "rows"),
    [("(mine int)", 0), ("(s_id int, sub_nbr char(15))", 0), ("copy", 1)],
    ids=["empty, of another form", "empty, with some columns", "of the same form, with a row"],
)
def test_a_table_of_others_is_refused_also_after_a_kill(connect: Connect, definition: str, rows: int) -> None:
    """Between the kill and the next `prepare` another program creates a table of the same name. At every point of the
    kill it is refused and unchanged."""
    name = population().tables[0].name
    step = 1 if thorough.THOROUGH else 3
    kills, refusals = 0, 0
    while killed_before(kills, connect):
        kills += step
        foreign(connect, name, definition)
        loader = connect(population())
        try:
            for work in (loader.prepare, loader.undo):
                with pytest.raises(TaskFault, match=f"table {name} that proveout did not make"):
                    work()
            refusals += 1
            assert loader.count(name) == rows
            loader.execute(f"DROP TABLE {name}")
        finally:
            loader.close()
    assert refusals * step == kills > 0


def foreign(connect: Connect, name: str, definition: str) -> None:
    """Create a table of another program in the place of one of ours, without our mark; `copy` has the same columns, and
    a row."""
    made = population()
    loader = connect(made)
    dialect = {PostgresLoader: "postgres", MysqlLoader: "mysql", OracleLoader: "oracle"}[type(loader)]
    try:
        for statement in reversed([f"DROP TABLE {table.name}" for table in made.tables]):
            try:
                loader.execute(statement)
            except TaskFault:  # the kill came before the table was created
                continue
        if definition == "copy":
            loader.execute(made.before[dialect][0])
            loader.load(made.tables[0], 1, 1, lambda _: None)
        else:
            loader.execute(
                f"CREATE TABLE {name} {definition.replace('int', 'NUMBER(5)') if dialect == 'oracle' else definition}"
            )
    finally:
        loader.close()
