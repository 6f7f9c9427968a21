"""A population whose worker is killed (SIGKILL) while it creates or drops the tables, at every statement: the next
`prepare` succeeds.

A child process runs `prepare` with real connections and kills itself before statement k, for every k until it completes.
PostgreSQL undoes what was not committed; a statement of MySQL that creates a table commits itself. MySQL by day, both in
`make soak`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest
import thorough

from proveout.agent.engines.mysql.populate import MysqlLoader
from proveout.agent.engines.postgres.populate import PostgresLoader
from proveout.agent.engines.table import intention_of
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build
from tests.agent.load.conftest import workload_of

pytestmark = pytest.mark.server

SURVIVED = 0
STEP = thorough.count(1, 2)
"""By day the worker is killed at every second statement."""
POPULATION: Population = build(workload_of("hlr", population=100)).population
Connect = Callable[[], Any]


def killed_before(statement: int, connect: Connect, work: str = "prepare") -> bool:
    """Run `work` of a loader in a child that is killed before its n-th statement; return whether it got that far."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loader = connect()
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

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    owner = psycopg.Connection if isinstance(loader, PostgresLoader) else pymysql.cursors.Cursor
    execute = owner.execute

    def counted(*arguments: Any, **options: Any) -> Any:
        step()
        return execute(*arguments, **options)

    owner.execute = counted


@pytest.fixture
def connect(engine: str, request: pytest.FixtureRequest) -> Connect:
    """Makes a loader on an empty database."""
    if engine == "mysql":
        dsn = request.getfixturevalue("mysql_database")
        return lambda: MysqlLoader(dsn, POPULATION)
    dsn = request.getfixturevalue("database")
    return lambda: PostgresLoader(dsn, POPULATION)


def has(loader: Any, table: str) -> bool:
    try:
        loader.count(table)
    except TaskFault:
        return False
    return True


def prepared(connect: Connect) -> None:
    """Check that `prepare` succeeds: its tables exist, are empty and marked as ours, and the record of intent is removed."""
    loader = connect()
    try:
        loader.prepare()
        assert [loader.count(table.name) for table in POPULATION.tables] == [0] * len(POPULATION.tables)
        assert not has(loader, intention_of(POPULATION))
        loader.load(POPULATION.tables[0], 1, 10, lambda _: None)
    finally:
        loader.close()


SOAK = pytest.mark.soak
ENGINES = ["mysql", pytest.param("postgres", marks=SOAK)]


@pytest.mark.parametrize("work", ["prepare", "undo"])
@pytest.mark.parametrize("engine", ENGINES)
def test_prepare_succeeds_after_a_kill_at_any_statement(connect: Connect, work: str) -> None:
    if work == "undo":
        prepared(connect)
    kills = 0
    while killed_before(kills, connect, work):
        prepared(connect)
        kills += STEP
    assert kills >= len(POPULATION.tables)
    if work == "undo":
        return
    loader = connect()
    loader.undo()
    loader.close()
    kills = 0
    while killed_before(kills, connect):  # no repair between: each starts from the state that the one before has left
        kills += 3 * STEP
    prepared(connect)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "has_our_form",
    [pytest.param(False, marks=SOAK), True],
    ids=["empty, of another form", "of our form, with a row"],
)
def test_a_table_of_others_is_refused_also_after_a_kill(connect: Connect, engine: str, has_our_form: bool) -> None:
    """Between the kill and the next `prepare` another program creates a table of the same name. At every point of the
    kill it is refused and unchanged."""
    name = POPULATION.tables[0].name
    kills = 0
    while killed_before(kills, connect):
        loader = connect()
        try:
            for table in reversed(POPULATION.tables):
                if has(loader, table.name):  # the kill came after it was created
                    loader.execute(f"DROP TABLE {table.name}")
            if has_our_form:
                loader.execute(POPULATION.before[engine][0])
                loader.load(POPULATION.tables[0], 1, 1, lambda _: None)
            else:
                loader.execute(f"CREATE TABLE {name} (mine int)")
        finally:
            loader.close()
        loader = connect()
        try:
            for work in (loader.prepare, loader.undo):
                with pytest.raises(TaskFault, match=f"table {name} that proveout did not make"):
                    work()
            assert loader.count(name) == has_our_form
            loader.execute(f"DROP TABLE {name}")
        finally:
            loader.close()
        kills += 1
    assert kills > 0
