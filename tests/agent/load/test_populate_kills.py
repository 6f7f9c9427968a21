"""A population whose worker is killed (SIGKILL) while it creates or drops the tables, at every statement: the next
`prepare` succeeds.

A child process runs `prepare` with real connections and kills itself before statement k, for every k until it completes.
PostgreSQL undoes what was not committed; a statement of MySQL that creates a table commits itself. MySQL by day, both in
`make soak`.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any

import psycopg
import pymysql
import pytest
import thorough

from proveout.agent.engines.table import adapter, intention_of
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build

from .conftest import workload_of

SURVIVED = 0
STEP = thorough.count(1, 2)
"""By day the worker is killed at every second statement."""
POPULATION: Population = build(workload_of("hlr", population=100)).population
FIRST = POPULATION.tables[0]
Connect = Callable[[], AbstractContextManager[Any]]
pytestmark = [
    pytest.mark.server,
    pytest.mark.parametrize("engine", ["mysql", pytest.param("postgres", marks=pytest.mark.soak)]),
]


@pytest.fixture
def connect(engine: str, request: pytest.FixtureRequest) -> Connect:
    """Makes a loader on an empty database, closed at the end of the block."""
    dsn = request.getfixturevalue("mysql_database" if engine == "mysql" else "database")
    made: Any = adapter(engine)
    return lambda: closing(made.loader(dsn, POPULATION))


def killed_before(statement: int, connect: Connect, work: str = "prepare") -> bool:
    """Run `work` of a loader in a child that is killed before its n-th statement; return whether it got that far."""
    child = os.fork()
    if child == 0:
        try:
            loader = connect().__enter__()
            kill_at(statement)
            getattr(loader, work)()
            os._exit(SURVIVED)
        finally:
            os._exit(1)
    how = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert how in {-signal.SIGKILL, SURVIVED}
    return how != SURVIVED


def kill_at(statement: int) -> None:
    """Kill this process before its n-th statement."""
    statements = itertools.count()

    def counted(execute: Callable[..., Any]) -> Any:
        def executed(*arguments: Any, **options: Any) -> Any:
            if next(statements) == statement:
                os.kill(os.getpid(), signal.SIGKILL)
            return execute(*arguments, **options)

        return executed

    owner: Any
    for owner in (psycopg.Connection, pymysql.cursors.Cursor):
        owner.execute = counted(owner.execute)


def has(loader: Any, table: str) -> bool:
    try:
        loader.count(table)
    except TaskFault:
        return False
    return True


def prepared(connect: Connect) -> None:
    """Check that `prepare` succeeds: its tables exist, are empty and marked as ours, and the record of intent is removed."""
    with connect() as loader:
        loader.prepare()
        assert [loader.count(table.name) for table in POPULATION.tables] == [0] * len(POPULATION.tables)
        assert not has(loader, intention_of(POPULATION))
        loader.load(FIRST, 1, 10, lambda _: None)


@pytest.mark.parametrize("work", ["prepare", "undo"])
def test_prepare_succeeds_after_a_kill_at_any_statement(connect: Connect, work: str) -> None:
    if work == "undo":
        prepared(connect)
    kills = 0
    while killed_before(kills, connect, work):
        prepared(connect)
        kills += STEP
    assert kills >= len(POPULATION.tables)


def test_prepare_succeeds_after_kills_without_a_repair_between(connect: Connect) -> None:
    """Each starts from the state that the one before has left."""
    kills = 0
    while killed_before(kills, connect):
        kills += 3 * STEP
    assert kills > 0
    prepared(connect)


@pytest.mark.parametrize(
    "has_our_form",
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["empty, of another form", "of our form, with a row"],
)
def test_a_table_of_others_is_refused_also_after_a_kill(connect: Connect, engine: str, has_our_form: bool) -> None:
    """Between the kill and the next `prepare` another program creates a table of the same name. At every point of the
    kill it is refused and unchanged."""
    kills = 0
    while killed_before(kills, connect):
        with connect() as loader:
            for table in reversed(POPULATION.tables):
                if has(loader, table.name):  # the kill came after it was created
                    loader.execute(f"DROP TABLE {table.name}")
            if has_our_form:
                loader.execute(POPULATION.before[engine][0])
                loader.load(FIRST, 1, 1, lambda _: None)
            else:
                loader.execute(f"CREATE TABLE {FIRST.name} (mine int)")
        with connect() as loader:
            for work in (loader.prepare, loader.undo):
                with pytest.raises(TaskFault, match=f"table {FIRST.name} that proveout did not make"):
                    work()
            assert loader.count(FIRST.name) == has_our_form
            loader.execute(f"DROP TABLE {FIRST.name}")
        kills += 1
    assert kills > 0
