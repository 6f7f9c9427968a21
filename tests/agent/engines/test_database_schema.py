"""The schema of a database as it is read for the fingerprint: tables, indexes and constraints, on real engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import duckdb
import psycopg
import pytest
from embedded_servers import ask
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.handlers import MORE, OBJECTS_MAX, TEXT_MAX, inspect_system, objects, read_schema
from proveout.proto.wire.tasks import Endpoint, InspectSystem

DDL = (
    "CREATE TABLE parent (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))",
    "CREATE TABLE child (id INTEGER NOT NULL, parent_id INTEGER, FOREIGN KEY (parent_id) REFERENCES parent (id))",
    "CREATE INDEX by_name ON parent (name)",
    "CREATE UNIQUE INDEX by_both ON child (parent_id, id)",
)


def test_rows_of_one_object_are_joined_and_bounds_hold() -> None:
    rows = [("table", b"t", "a  int"), ("table", "t", None), ("table", "t", "b\ntext")]
    assert objects(rows) == (("table t", "a int, b text"),)
    ((_, text),) = objects([("trigger", "x on t", "y" * 10_000)])
    assert len(text) < TEXT_MAX + 100
    many = [("table", f"t{n:05}", "a int") for n in range(OBJECTS_MAX + 5)]
    *_, (name, rest) = objects(many)
    assert (name, rest.split(",")[0]) == (MORE, "5")
    assert objects(many) != objects([*many[:-1], ("table", "other", "a int")])


Found = dict[str, str]


def read(engine: str, dsn: str, *changes: str) -> tuple[Found, Found, set[str]]:
    """The schema, that after changes, and the objects that differ."""

    def run(statements: tuple[str, ...]) -> Found:
        if engine in ("postgres", "mysql"):
            ask(dsn, *statements)
        else:
            connection: Any = apsw.Connection(dsn) if engine == "sqlite" else duckdb.connect(dsn)
            connection.execute(";".join(statements))
            connection.close()
        return dict(read_schema(Endpoint(system="db", engine=engine, dsn=dsn)))

    before, after = run(DDL), run(changes)
    return before, after, {name for name, _ in before.items() ^ after.items()}


def test_sqlite(tmp_path: Path) -> None:
    changes = ("DROP INDEX by_name", "ALTER TABLE child ADD COLUMN more TEXT")
    before, _, changed = read("sqlite", str(tmp_path / "d.sqlite"), *changes)
    assert before["index by_name on parent"] == "CREATE INDEX by_name ON parent (name)"
    assert changed == {"index by_name on parent", "table child"}


def test_duckdb(tmp_path: Path) -> None:
    changes = ("DROP INDEX by_name", "CREATE TABLE other (n INTEGER)")
    before, _, changed = read("duckdb", str(tmp_path / "d.duckdb"), *changes)
    assert before["table parent"] == "id INTEGER not null, name VARCHAR"
    assert before["index by_both on child"].startswith("unique ")
    assert changed == {"index by_name on parent", "table other"}


@pytest.mark.server
def test_postgres(database: str) -> None:
    unlogged = "CREATE SCHEMA apart CREATE UNLOGGED TABLE t (n int)"
    changes = ("DROP INDEX by_name", "ALTER TABLE child SET (fillfactor = 70)", unlogged)
    before, after, changed = read("postgres", database, *changes)
    assert {name: text for name, text in before.items() if "not_null" not in name} == {
        "constraint child_parent_id_fkey on child": "FOREIGN KEY (parent_id) REFERENCES parent(id)",
        "index by_both on child": "unique btree (parent_id, id)",
        "index by_name on parent": "btree (name)",
        "index parent_pkey on parent": "unique btree (id)",
        "table child": "id integer not null, parent_id integer",
        "table parent": "id integer not null, name character varying(20)",
    }
    assert changed == {"index by_name on parent", "table child", "table apart.t"}
    assert after["table apart.t"] == "n integer, unlogged"


@pytest.mark.server
async def test_a_database_with_names_that_are_not_utf8(postgres_server: str, database: str, task_context: Any) -> None:
    name = conninfo_to_dict(database)["dbname"]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name}".encode())
        form = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(f"CREATE DATABASE {name} {form}".encode())
    with psycopg.connect(database, autocommit=True, client_encoding="LATIN1") as connection:
        connection.execute('CREATE TABLE "café" (n int)')
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    found = await inspect_system(task_context, InspectSystem(endpoint=endpoint, schema=True))
    assert found.schema == ()
    assert ("wal_level", "logical") in found.settings
    ((level, text),) = task_context.logs
    assert level == "warning"
    assert "no tables and indexes of it" in text


@pytest.mark.server
def test_mysql(mysql_database: str) -> None:
    before, _, changed = read("mysql", mysql_database, "DROP INDEX by_name ON parent")
    assert before["index by_both on child"] == "unique BTREE parent_id, id"
    assert before["index by_name on parent"] == "BTREE name"
    assert before["table parent"].startswith("id int(11) not null, name varchar(20), InnoDB")
    assert any(name.startswith("constraint ") and text == "references parent" for name, text in before.items())
    assert changed == {"index by_name on parent"}
