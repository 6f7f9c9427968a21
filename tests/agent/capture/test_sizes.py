"""Sizes of real tables in PostgreSQL, MariaDB and SQLite, before and after they grow. Oracle's query is only compared as
text, not executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from eventually import PATIENCE_S, eventually, eventually_async

from proveout.agent.capture import kinds
from proveout.agent.capture.databases import OTHERS, TABLES_MAX, SizeObserver, readings
from proveout.agent.engines.adapter import Catalogue, Tick
from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.oracle.captures import SIZES as ORACLE
from proveout.agent.engines.recording import Conversation, recording
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.coordinator.measure.captures import Recording, sizes_metrics
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureSample
from proveout.proto.wire.tasks import Endpoint, RunCapture

TICK = Tick(at_ns=1, report=True, last=False)
PAGE = {"postgres": 8_192, "mysql": 16_384, "sqlite": 4_096}
MAKE = (
    "CREATE TABLE Wide (id int PRIMARY KEY, t varchar(2000))",
    "CREATE INDEX wide_t ON Wide (t)",
    "CREATE TABLE empty (id int)",
)


def catalogue(endpoint: Endpoint) -> Catalogue:
    return adapter(endpoint.engine).size_catalogue(endpoint)


Look = Callable[[], dict[tuple[str, str, str], float]]


@pytest.fixture
def looked() -> Iterator[Callable[[Endpoint], Look]]:
    """A factory of functions that read the sizes of a system; the captures are closed at the end."""
    observers: list[SizeObserver] = []

    def made(endpoint: Endpoint) -> Look:
        observer = SizeObserver(catalogue(endpoint))
        observers.append(observer)

        def look() -> dict[tuple[str, str, str], float]:
            found = observer.look(TICK)
            assert found is not None
            return {tuple(reading.label.split("\t")): reading.value for reading in found}  # type: ignore[misc]

        return look

    yield made
    for observer in observers:
        observer.close()


def grow(execute: Callable[[str], Any]) -> None:
    rows = ", ".join(f"({n}, '{chr(97 + n % 26) * 300}{n}')" for n in range(2_000))
    execute(f"INSERT INTO Wide VALUES {rows}")


def test_postgres_has_separate_sizes_of_heap_toast_and_indexes(database: str, looked: Any) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in (*MAKE, 'CREATE SCHEMA "odd one"', 'CREATE TABLE "odd one"."T" (id int)'):
            connection.execute(statement)
        look = looked(Endpoint(system="db", engine="postgres", dsn=database))
        before = look()
        grow(connection.execute)
        connection.execute("ALTER TABLE Wide ADD big text; ALTER TABLE Wide ALTER big SET STORAGE EXTERNAL")
        connection.execute("UPDATE Wide SET big = repeat('x', 100000) WHERE id = 1")
        after = look()
        total = connection.execute("SELECT pg_total_relation_size('wide')").fetchone()
    assert ("odd one.T", "table", "odd one.T") in after
    assert before["empty", "table", "empty"] == 0
    assert after["wide", "toast", "wide"] >= 100_000
    assert {name for table, part, name in after if part == "index" and table == "wide"} == {"wide_pkey", "wide_t"}
    assert after["wide", "index", "wide_t"] > before["wide", "index", "wide_t"]
    assert total is not None
    assert sum(size for (table, _, _), size in after.items() if table == "wide") == total[0]


def test_sqlite_counts_the_pages_of_each(tmp_path: Path, looked: Any) -> None:
    file = tmp_path / "data.sqlite"
    connection = apsw.Connection(str(file))
    connection.pragma("journal_mode", "wal")
    for statement in MAKE:
        connection.execute(statement)
    look = looked(Endpoint(system="db", engine="sqlite", dsn=str(file)))
    before = look()
    grow(connection.execute)
    after = look()
    pages = connection.pragma("page_count") * connection.pragma("page_size")
    connection.close()
    assert before["empty", "table", "empty"] == 4_096
    assert after["Wide", "index", "wide_t"] > 100 * PAGE["sqlite"]
    assert sum(after.values()) + PAGE["sqlite"] == pages  # the schema's own page belongs to no table


def test_mysql_has_separate_sizes_of_tables_and_indexes(mysql_database: str, looked: Any) -> None:
    endpoint = Endpoint(system="db", engine="mysql", dsn=mysql_database)
    mysql_statements.run_all(endpoint, tuple(text.replace("2000", "700") for text in MAKE))
    sent = Conversation(engine="mysql")
    with recording(sent):
        look = looked(endpoint)
        before = look()
    assert [one.statement for one in sent.exchanges][1:] == [mysql_statements.UNCACHED, mysql_statements.SIZES]
    grow(lambda text: mysql_statements.run_all(endpoint, (text,)))
    mysql_statements.run_all(endpoint, ("ANALYZE TABLE Wide",))
    after = look()
    assert after["Wide", "table", "Wide"] > before["Wide", "table", "Wide"] >= PAGE["mysql"]
    assert after["Wide", "index", "(all)"] > before["Wide", "index", "(all)"]


def test_an_abort_does_not_wait_for_the_answer_of_mysql(mysql_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's loop calls it, and a server that hangs gives no answer."""
    monkeypatch.setattr(mysql_statements, "SIZES", "SELECT SLEEP(120)")
    endpoint = Endpoint(system="db", engine="mysql", dsn=mysql_database)
    sizes = catalogue(endpoint)
    runs = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"
    with ThreadPoolExecutor(2) as threads:
        look = threads.submit(sizes.parts)
        eventually(lambda: mysql_statements.run_all(endpoint, (runs,)) == (1,), "the statement runs")
        threads.submit(sizes.abort).result(timeout=PATIENCE_S)
        assert look.result(timeout=PATIENCE_S) is None
    sizes.close()


async def test_a_capture_samples_at_its_start_and_at_its_end(database: str, task_context: Any) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE wide (id int PRIMARY KEY, t varchar(2000))")
        capture = Capture(name="sizes", kind="sizes", every_s=86_400.0, system="db")
        spec = RunCapture(capture=capture, endpoints=(Endpoint(system="db", engine="postgres", dsn=database),))
        running = asyncio.create_task(kinds.capture(task_context, spec))
        await eventually_async(lambda: task_context.samples, "the first sample")
        grow(connection.execute)
        idle = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'proveout sizes'"
        connection.execute(idle + " AND datname = current_database()")
        task_context.end()
        result = await running
    assert (result.samples, result.lost) == (2, 0)
    tree, lines = sizes_metrics(Recording(task_context.samples), "db")
    assert tree["grown_bytes"] > 600_000
    assert tree["total_bytes"] == tree["start_bytes"] + tree["grown_bytes"] == sum(line.end_bytes for line in lines)
    assert tree["tables"]["wide"]["index_bytes"] == next(line.end_bytes for line in lines if line.part == "index")


def test_an_unreachable_system_is_a_fault_at_the_start() -> None:
    for engine, dsn in (("postgres", "host=127.0.0.1 port=1 dbname=x"), ("sqlite", "/nowhere/at-all.sqlite")):
        with pytest.raises(TaskFault) as caught:
            catalogue(Endpoint(system="db", engine=engine, dsn=dsn))
        assert caught.value.code == "unreachable"


def test_partitions_are_summed_and_surplus_tables_are_one_entry() -> None:
    rows = [("part", "table", "part", 10.0), ("part", "table", "part", 5.0), ("part", "index", "i", None)]
    assert {reading.label: reading.value for reading in readings(rows)} == {
        "part\ttable\tpart": 15.0,
        "part\tindex\ti": 0.0,
    }
    sample = CaptureSample(capture="sizes", at_ns=1, readings=tuple(readings(rows)))
    assert sizes_metrics(Recording([sample]), "db") == ({}, ()), "one sample gives no growth"
    many = [(f"t{n}", "table", f"t{n}", float(n)) for n in range(TABLES_MAX + 3)]
    found = {reading.label: reading.value for reading in readings(many)}
    assert len(found) == TABLES_MAX + 1
    assert found[f"{OTHERS}\ttable\t{OTHERS}"] == 0 + 1 + 2


def test_oracles_query_reads_only_views_open_to_every_user() -> None:
    assert {"user_segments", "user_indexes", "user_lobs"} <= set(ORACLE.replace(",", " ").split())
    assert "dba_" not in ORACLE
