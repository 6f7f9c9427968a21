"""The schema of a database as it is read for the fingerprint: tables, indexes and constraints, on real engines."""

from __future__ import annotations

from pathlib import Path

import apsw
import duckdb
import psycopg
import pytest

from proveout.agent.engines import handlers as schema
from proveout.agent.engines.handlers import MORE, OBJECTS_MAX, TEXT_MAX, objects, read_schema
from proveout.agent.engines.mysql.sql import run_all
from proveout.proto.wire.tasks import Endpoint

DDL = (
    "CREATE TABLE parent (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))",
    "CREATE TABLE child (id INTEGER NOT NULL, parent_id INTEGER, FOREIGN KEY (parent_id) REFERENCES parent (id))",
    "CREATE INDEX by_name ON parent (name)",
    "CREATE UNIQUE INDEX by_both ON child (parent_id, id)",
)


def changed(before: schema.Schema, after: schema.Schema) -> set[str]:
    return {name for name, _ in set(before) ^ set(after)}


def test_rows_of_one_object_are_joined_and_bounds_hold() -> None:
    rows = [("table", b"t", "a  int"), ("table", "t", None), ("table", "t", "b\ntext")]
    assert objects(rows) == (("table t", "a int, b text"),)
    ((_, text),) = objects([("trigger", "x on t", "y" * 10_000)])
    assert len(text) < TEXT_MAX + 100
    many = [("table", f"t{n:05}", "a int") for n in range(OBJECTS_MAX + 5)]
    *_, (name, rest) = objects(many)
    assert (name, rest.split(",")[0]) == (MORE, "5")
    assert objects(many) != objects([*many[:-1], ("table", "other", "a int")])


def test_sqlite(tmp_path: Path) -> None:
    path = str(tmp_path / "d.sqlite")
    connection = apsw.Connection(path)
    for statement in DDL:
        connection.execute(statement)
    end = Endpoint(system="db", engine="sqlite", dsn=path)
    before = read_schema(end)
    assert dict(before)["index by_name on parent"] == "CREATE INDEX by_name ON parent (name)"
    connection.execute("DROP INDEX by_name")
    connection.execute("ALTER TABLE child ADD COLUMN more TEXT")
    assert changed(before, read_schema(end)) == {"index by_name on parent", "table child"}
    connection.close()


def test_duckdb(tmp_path: Path) -> None:
    path = str(tmp_path / "d.duckdb")

    def run(*statements: str) -> None:
        with duckdb.connect(path) as connection:
            for statement in statements:
                connection.execute(statement)

    run(*DDL)
    end = Endpoint(system="db", engine="duckdb", dsn=path)
    before = read_schema(end)
    assert dict(before)["table parent"] == "id INTEGER not null, name VARCHAR"
    assert dict(before)["index by_both on child"].startswith("unique ")
    run("DROP INDEX by_name", "CREATE TABLE other (n INTEGER)")
    assert changed(before, read_schema(end)) == {"index by_name on parent", "table other"}


@pytest.mark.server
def test_postgres(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in DDL:
            connection.execute(statement.encode())
        end = Endpoint(system="db", engine="postgres", dsn=database)
        before = read_schema(end)
        assert dict(before) == {
            "constraint child_parent_id_fkey on child": "FOREIGN KEY (parent_id) REFERENCES parent(id)",
            "index by_both on child": "unique btree (parent_id, id)",
            "index by_name on parent": "btree (name)",
            "index parent_pkey on parent": "unique btree (id)",
            "table child": "id integer not null, parent_id integer",
            "table parent": "id integer not null, name character varying(20)",
        } | {name: text for name, text in before if name.startswith("constraint") and "not_null" in name}
        connection.execute("DROP INDEX by_name")
        connection.execute("ALTER TABLE child SET (fillfactor = 70)")
        connection.execute("CREATE SCHEMA apart CREATE UNLOGGED TABLE t (n int)")
        after = read_schema(end)
    assert changed(before, after) == {"index by_name on parent", "table child", "table apart.t"}
    assert dict(after)["table apart.t"] == "n integer, unlogged"


@pytest.mark.server
def test_mysql(mysql_database: str) -> None:
    end = Endpoint(system="db", engine="mysql", dsn=mysql_database)
    run_all(end, DDL)
    before = read_schema(end)
    found = dict(before)
    assert found["index by_both on child"] == "unique BTREE parent_id, id"
    assert found["index by_name on parent"] == "BTREE name"
    assert found["table parent"].startswith("id int(11) not null, name varchar(20), InnoDB")
    assert any(name.startswith("constraint ") and text == "references parent" for name, text in before)
    run_all(end, ("DROP INDEX by_name ON parent",))
    assert changed(before, read_schema(end)) == {"index by_name on parent"}
