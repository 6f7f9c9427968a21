"""Populations of TimesTen without a TimesTen: the loader's statements over Oracle's protocol, with PostgreSQL behind it.

The stand-in has TimesTen's view USER_TABLES and two of its built-in procedures, and no COMMENT ON TABLE. The
tests show which statements are sent, that the journal continues a load, and which tables are dropped. They do not show
that TimesTen accepts the DDL, nor anything of thick mode.
"""

from __future__ import annotations

from collections.abc import Iterator

import oracledb
import psycopg
import pytest

from proveout.agent.engines.adapter import ResumableLoader
from proveout.agent.engines.oracle.driver import parts
from proveout.agent.engines.timesten import driver as loading
from proveout.agent.engines.timesten.driver import OURS, TimesTenLoader
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate_jobs import LoadJournal
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.ddl import for_timesten
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.kinds import build

LOAD = "0123456789abcdef" * 2
TABLES = ("call_forwarding", "special_facility", "access_info", "subscriber")
STAND_IN = """
CREATE OR REPLACE VIEW oracle.user_tables AS
  SELECT upper(tablename) AS table_name FROM pg_tables WHERE schemaname = 'public';
CREATE OR REPLACE PROCEDURE public.ttoptupdatestats(text, int) LANGUAGE sql AS '';
"""


@pytest.fixture
def dsn(oracle: str, tns_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    def opened(dsn: str) -> oracledb.Connection:
        user, password, target = parts(dsn)
        return oracledb.connect(user=user, password=password, dsn=target)

    opened(oracle).close()  # the stand-in makes its views
    with psycopg.connect(tns_database, autocommit=True) as connection:
        for table in (*TABLES, OURS):  # another test may have left them
            connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())
        connection.execute(STAND_IN)
        monkeypatch.setattr(loading, "open_timesten", opened)
        yield oracle
        for table in (*TABLES, OURS):
            connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())


def population(subscribers: int = 300) -> Population:
    return build(Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=subscribers)))).population


def loaded(loader: TimesTenLoader, made: Population) -> None:
    """Load everything behind the committed ranges, with the statements after the load."""
    journal = LoadJournal(loader, made, LOAD)
    if journal.rows_kept() is None:
        journal.drop()
        loader.prepare()
        journal.create()
    there = journal.ranges()
    for table in made.tables:
        for first in (1, 151):
            if not any(begin <= first < begin + units for begin, units, _ in there.get(table.name, ())):
                loader.load(table, first, 150, lambda _: None, journal.mark(table.name, first, 150))
    for number, phase in enumerate(made.after["oracle"], 1):
        for place, statement in enumerate(phase, 1):
            journal.execute(f"after {number}.{place}", statement)
    loader.settle()
    journal.drop()


@pytest.mark.server
def test_a_load_that_was_broken_off_continues_and_its_tables_are_dropped(dsn: str, tns_database: str) -> None:
    made = population()
    first = TimesTenLoader(dsn, made)
    assert isinstance(first, ResumableLoader)
    journal = LoadJournal(first, made, LOAD)
    first.prepare()
    journal.create()
    subscriber = made.tables[0]
    first.load(subscriber, 1, 150, lambda _: None, journal.mark(subscriber.name, 1, 150))
    first.close()
    second = TimesTenLoader(dsn, made)
    assert LoadJournal(second, made, LOAD).rows_kept() == 150
    loaded(second, made)
    assert [second.count(table.name) for table in made.tables] == [len(table.rows(1, 300)[0]) for table in made.tables]
    with psycopg.connect(tns_database) as connection:
        keys = connection.execute("SELECT conname FROM pg_constraint WHERE contype IN ('p', 'f')").fetchall()
    assert {"subscriber_pk", "access_info_fk", "call_forwarding_fk"} <= {name for (name,) in keys}
    loaded(second, made)
    second.undo()
    assert not any(second.table_exists(name) for name in TABLES)
    assert second.rows(f"SELECT name FROM {OURS}") == []
    second.close()


@pytest.mark.server
@pytest.mark.parametrize("registered", [False, True])
def test_a_table_of_another_program_is_refused_also_under_a_name_of_ours(
    dsn: str, tns_database: str, registered: bool
) -> None:
    made = population()
    loader = TimesTenLoader(dsn, made)
    if registered:
        loader.prepare()
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS subscriber CASCADE")
        connection.execute("CREATE TABLE subscriber (mine int)")
        for work in (loader.prepare, loader.undo):
            with pytest.raises(TaskFault, match="subscriber that proveout did not make") as raised:
                work()
            assert raised.value.code == "refused"
        assert connection.execute("SELECT count(*) FROM subscriber").fetchone() == (0,)
    loader.close()


def test_no_statement_has_a_clause_that_timesten_lacks() -> None:
    made = population()
    texts = [*made.before["oracle"], *(text for phase in made.after["oracle"] for text in phase), *made.drop["oracle"]]
    sent = [for_timesten(text) for text in texts]
    assert not [text for text in sent if "PURGE" in text or "DBMS_" in text or "PARTITION" in text]
    assert "DROP TABLE subscriber" in sent
    assert "CALL ttOptUpdateStats('SUBSCRIBER', 1)" in sent
