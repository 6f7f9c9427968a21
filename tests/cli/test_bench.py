"""`proveout bench` and `proveout new own`: addresses, the plans that are written, ten mistakes with their messages, and
short benches of real databases."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import duckdb
import psycopg
import pytest
import recorded_runs
import typer
from distribution_postgres import distribution_postgres
from psycopg.conninfo import make_conninfo
from recorded_runs import record
from whole_run import Done, proveout

from proveout.agent.engines import adapter
from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.postgres import installation
from proveout.cli import bench, execute, own_workload, plan_writer, prove, run
from proveout.cli.bench import (
    Asked,
    chosen,
    clean_up,
    composed,
    per_second,
    prepared,
    rungs,
    timing_of,
)
from proveout.cli.database_address import Database, opened, parse
from proveout.cli.options import Unusable
from proveout.cli.own_workload import Script
from proveout.cli.plan_writer import Draft, Load, Target, Timing
from proveout.coordinator.storage.journal import Journal
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.core import units
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.stages import Sql

if TYPE_CHECKING:
    from proveout.agent.engines.adapter import QuerySession

SHOP = """
CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40));
CREATE TABLE purchase (id integer PRIMARY KEY, customer_id integer REFERENCES customer (id), amount numeric(8, 2));
INSERT INTO customer VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO purchase VALUES (10, 1, 1.50), (20, 2, 2.50), (40, 3, 9.00);
"""
ORACLE_COLUMNS = """
CREATE VIEW oracle.all_tab_columns AS SELECT '1' AS owner, upper(table_name) AS table_name,
  upper(column_name) AS column_name, upper(data_type) AS data_type, 0 AS data_length
FROM information_schema.columns WHERE table_schema = 'public'
"""
"""The view of Oracle that tables are looked up in."""
SHORT = ("--headless", "--threads", "1", "--time", "25s")


@pytest.fixture(autouse=True)
def no_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DB_PASSWORD", "DB2_PASSWORD", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    """A PostgreSQL of a user with a password and few rights, who owns the tables: a conninfo."""
    with psycopg.connect(database, autocommit=True) as connection:
        user = f"{connection.info.dbname}_user"
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret' CONNECTION LIMIT 20")
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {user}")
    conninfo = make_conninfo(database, user=user, password="secret")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(SHOP)
    yield conninfo
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {user} CASCADE")
        connection.execute(f"DROP ROLE {user}")


@pytest.fixture
def sqlite_shop(sqlite_file: Path) -> Path:
    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.executescript(SHOP)
    return sqlite_file


@pytest.fixture
def duckdb_shop(database_folder: Path) -> Path:
    path = database_folder / "shop.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(SHOP)
    owner = database_folder.stat()
    os.chown(path, owner.st_uid, owner.st_gid)
    return path


# ---- addresses -------------------------------------------------------------------------------------------------------


def test_an_address_is_the_dsn_of_a_plan_without_its_password(sqlite_shop: Path) -> None:
    mark = "${secrets.db}"
    found = {
        text: (one := parse(text)).engine + " " + ("" if one.is_embedded else one.dsn(one.password and mark, "own"))
        for text in (
            "",
            "mariadb",
            "postgresql://bench:pw@db1:5433/shop",
            "host=db1 dbname=shop user=bench",
            "mysql://bench:p%40w@db1/shop?ssl_mode=required",
            str(sqlite_shop),
            f"sqlite:///{sqlite_shop}",
            "oracle://hlr:pw@db1:1521/HLR",
            "hlr/pw@//db1:1521/HLR",
            "hlr/pw@cache1/hlrcache:timesten_client",
        )
    }
    assert list(found.values()) == [
        "postgres ",
        "mysql ",
        "postgres user=bench dbname=shop host=db1 port=5433 password=${secrets.db} options=-csearch_path=own",
        "postgres user=bench dbname=shop host=db1 options=-csearch_path=own",
        "mysql mysql://bench:${secrets.db}@db1/shop?ssl_mode=required",
        f"sqlite {sqlite_shop}",
        f"sqlite {sqlite_shop}",
        "oracle hlr/${secrets.db}@//db1:1521/HLR",
        "oracle hlr/${secrets.db}@//db1:1521/HLR",
        "timesten hlr/${secrets.db}@cache1/hlrcache:timesten_client",
    ]


def test_a_file_is_a_file_whatever_its_name(sqlite_shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sqlite_shop.parent)
    Path("me@home.db").symlink_to(sqlite_shop)
    assert parse("me@home.db").engine == "sqlite"
    with pytest.raises(Unusable, match="is not the address"):
        parse("x" * 300)
    with pytest.raises(Unusable, match="is not UTF-8"):
        parse("s\udcff.db")


def test_a_user_without_an_account_is_named_in_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 5)
    assert parse("postgresql://bench@db1/shop").name == "shop"
    for address in ("postgresql://db1/shop", "mysql://db1/shop"):
        with pytest.raises(Unusable, match="names no user"):
            parse(address)
    assert "shop" in prove._words("host=db1 dbname=shop")


def test_without_server_and_client_the_extra_that_brings_both_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_installed", lambda: iter(()))
    monkeypatch.setattr(adapter, "find_spec", lambda _: None)
    with pytest.raises(Unusable, match="the embedded PostgreSQL is not installed"), opened(parse("postgres"), 0):
        pass


# ---- what fits -------------------------------------------------------------------------------------------------------


def test_a_rate_keeps_its_digits_and_has_no_exponent() -> None:
    assert [per_second(text) for text in ("500/s", "1234567/s", "90/m")] == ["500/s", "1234567/s", "1.5/s"]


def test_rungs_are_a_list_or_the_powers_of_two_of_a_range() -> None:
    assert [rungs(text) for text in ("1,4,16", "1-64", "3-20", "8")] == [
        (1, 4, 16), (1, 2, 4, 8, 16, 32, 64), (3, 4, 8, 16, 20), (8,),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("left_s", "rungs", "found"),
    [(90.0, 5, (4.0, 3)), (300.0, 5, (10.0, 5)), (16.0, 1, (3.0, 3)), (10.0, 1, (1.0, 3))],
)
def test_windows_and_repeats_follow_from_the_time(left_s: float, rungs: int, found: tuple[float, int]) -> None:
    timing = timing_of(Asked(), left_s, rungs)
    assert (timing.measure_s, timing.repeats) == found


def test_a_time_that_is_too_short_is_refused_with_one_that_is_not() -> None:
    with pytest.raises(Unusable, match=r"--time 20s is too short for 5 rungs") as refused:
        timing_of(Asked(budget_s=20.0), 8.0, 5)
    assert "--time 1m2s and more" in refused.value.way_out


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "mysql", "duckdb"])
def test_the_time_that_is_said_to_be_enough_is(engine: str, tmp_path: Path) -> None:
    side = Database(address=parse(engine))
    for budget_s in (15.0, 21.0, 26.0, 30.0, 33.0):
        asked = Asked(budget_s=budget_s)
        with pytest.raises(Unusable) as refused:
            composed(asked, [side], *prepared(asked, [side], tmp_path))
        said = units.duration_s(refused.value.way_out.split()[1])
        asked = Asked(budget_s=said)
        assert composed(asked, [side], *prepared(asked, [side], tmp_path)).about_s < 1.1 * said


def test_tables_of_one_side_do_not_make_the_load_where_proveout_starts_the_other(
    sqlite_shop: Path, tmp_path: Path
) -> None:
    with opened(parse(str(sqlite_shop)), 0) as first:
        sides = [first, Database(address=parse("sqlite"), place=1)]
        assert chosen(Asked(), sides[:1], tmp_path)[0].title == "reads by key"
        assert chosen(Asked(), sides, tmp_path)[0].title.startswith("tpcb")
        for asked in (Asked(workload="own"), Asked(sql=["SELECT * FROM product WHERE id = :id"])):
            with pytest.raises(Unusable, match="tables of"):
                chosen(asked, sides, tmp_path)


def test_statements_and_scripts_are_both_in_the_title(sqlite_shop: Path, tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1 FROM purchase WHERE id = 1;")
    asked = Asked(sql=["SELECT * FROM purchase WHERE id = :id"], pgbench=[str(script), str(script)])
    with opened(parse(str(sqlite_shop)), 0) as side:
        assert chosen(asked, [side], tmp_path)[0].title == "1 statement and 2 scripts of yours"


def test_a_system_that_runs_nowhere_yet_has_no_limit_of_connections_but_that_of_the_plan() -> None:
    for engine in ("sqlite", "postgres"):
        side = Database(address=parse(engine))
        assert bench._rungs(Asked(rungs=(1, 100)), [side], 60.0, populates=True) == (1, 100)


def test_the_default_scale_is_that_of_the_threads_so_that_the_first_number_comes_soon(tmp_path: Path) -> None:
    side = Database(address=parse("postgres"))
    assert prepared(Asked(workload="tpcb", budget_s=120.0), [side], tmp_path)[0].title == "tpcb, scale 16"


def test_writes_on_duckdb_have_fewer_threads_than_branches_so_that_no_transaction_fails_at_all_retries(
    tmp_path: Path,
) -> None:
    side = Database(address=parse("duckdb"))
    load, rows = prepared(asked := Asked(budget_s=60.0), [side], tmp_path)
    assert (load.title, composed(asked, [side], load, rows).threads) == ("tpcb, scale 4", (1, 2))


@pytest.mark.parametrize(("scale", "least_or_most"), [(0, "greater than or equal to 1"), (10**9, "less than or equal")])
def test_a_scale_outside_of_a_workloads_range_is_refused_with_the_range(
    scale: int, least_or_most: str, tmp_path: Path
) -> None:
    side = Database(address=parse("postgres"))
    with pytest.raises(typer.BadParameter, match=least_or_most):
        prepared(Asked(scale=scale), [side], tmp_path)


TIMING = Timing(ramp_up_s=0.5, measure_s=69.0, ramp_down_s=0.2, repeats=3)
ORACLE = Target(
    name="db", engine="oracle", dsn="hlr/${secrets.db}@//db1:1521/HLR", secret="DB_PASSWORD", to=("db1:1521",)
)
OWN_SCHEMA = Target(name="db", engine="postgres", dsn="host=db1 dbname=shop", schema="proveout_bench")
OTHER = Target(name="other", engine="mysql")


@pytest.mark.parametrize(
    ("targets", "rate", "keep", "stages"),
    [
        ((ORACLE,), "", False, ["tables", "ladder", "removal_from_db"]),
        ((OWN_SCHEMA,), per_second("1_234_567/s"), False, ["schema_of_db", "tables", "ladder", "removal_from_db"]),
        ((OWN_SCHEMA,), "", True, ["schema_of_db", "tables", "ladder"]),
        ((OWN_SCHEMA, OTHER), "", False, ["schema_of_db", "tables", "on_db", "on_other", "removal_from_db"]),
    ],
)
def test_the_plan_compiles_and_removes_what_it_makes(
    targets: tuple[Target, ...], rate: str, keep: bool, stages: list[str], tmp_path: Path
) -> None:
    unknown = ["public.a\nstages: [] is text: no values are drawn"]
    load = Load(title="tpcb", lines=("kind: tpcb", "scale: 2"), populates=True, unknown=unknown)
    draft = Draft(
        name="bench-shop", title="tpcb", head=["Written."], targets=targets, load=load, threads=(1, 4), timing=TIMING,
        rate=rate, keep=keep,
    )  # fmt: skip
    path = tmp_path / "plan.yaml"
    path.write_text(plan_writer.text(draft))
    plan = compile_plan(path)
    assert [stage.id for stage in plan.stages] == stages
    assert ".mean" not in path.read_text()
    assert path.read_text().count("\n\n") == 6 + any(target.secret for target in targets), "sections are apart"


# ---- scripts of pgbench ----------------------------------------------------------------------------------------------

SCRIPT = r"""
-- of an account
\set naccounts (200001 / 2) * :scale
\set aid random_zipfian(1, :naccounts, 1.1)
\set low -010001 / 2
\set delta random(:low, 0.29 * 100 + 4971)
BEGIN;
UPDATE pgbench_accounts SET abalance =  abalance + :delta
  WHERE aid = :aid; SELECT abalance -:low, '; -- ' FROM pgbench_accounts WHERE aid = :aid;
END;
\set delta random(1, 2)
SELECT bbalance FROM pgbench_branches WHERE bid = :delta
"""


def test_a_script_is_a_transaction(tmp_path: Path) -> None:
    path = tmp_path / "own.sql"
    path.write_text(SCRIPT)
    script = Script.read(f"{path}@3")
    one = script.transaction(1, scale=4)
    assert (one.weight, script.is_on_tables_of_pgbench) == (3.0, True)
    delta = {"delta": {"uniform": [-5000, 5000]}, "delta_2": {"uniform": [1, 2]}}
    assert one.binds == {"aid": {"zipf": [1, 400_000], "theta": 1.1}} | delta
    assert one.sql == [
        "UPDATE pgbench_accounts SET abalance =  abalance + :delta WHERE aid = :aid",
        "SELECT abalance -(-5000), '; -- ' FROM pgbench_accounts WHERE aid = :aid",
        "SELECT bbalance FROM pgbench_branches WHERE bid = :delta_2",
    ]


def test_each_line_that_is_not_carried_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.sql"
    path.write_text(
        "\\set x random(1, 9)\n\\sleep 10 ms\nSELECT :y;\n\\set g random_gaussian(1, 10, 2.5)\nSELECT :x;\n"
        "\\set z 1 / 0\n"
    )
    with pytest.raises(Unusable) as refused:
        Script.read(str(path)).transaction(1, 1)
    assert refused.value.what.splitlines()[1:] == [
        rf"{path}:2: plans have no such command: \sleep 10 ms",
        f"{path}:3: :y has no value here: SELECT :y",
        rf"{path}:4: this value is not known before the run: \set g random_gaussian(1, 10, 2.5)",
        rf"{path}:6: this expression is not arithmetic: \set z 1 / 0",
    ]


# ---- a database of one's own -----------------------------------------------------------------------------------------


def test_without_statistics_the_load_is_reads_by_key(sqlite_shop: Path, tmp_path: Path) -> None:
    done = proveout(tmp_path, "new", "own", "shop.yaml", "--from", str(sqlite_shop)).ended(0)
    plan = compile_plan(tmp_path / "shop.yaml")
    text = (tmp_path / "shop.yaml").read_text()
    assert plan.name == "shop"
    assert "a run needs the database" in done.out
    assert '{sql: "SELECT * FROM customer WHERE id = :id", expect_rows: 1}' in text  # 1 … 3, all there
    assert '{sql: "SELECT * FROM purchase WHERE id = :id"}' in text  # 10 … 40, with gaps
    assert "customer_id: {uniform: [1, 3]}" in text
    assert "# Not known:\n#   - how often the statements run" in text


@pytest.mark.server
def test_the_mix_is_that_of_the_server(tmp_path: Path) -> None:
    with distribution_postgres("shared_preload_libraries=pg_stat_statements", "listen_addresses=") as (folder, port):
        conninfo = f"host={folder} port={port} user=tester dbname=postgres"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute(SHOP)
            connection.execute("SELECT pg_stat_statements_reset()")
            for number in range(9):
                connection.execute(f"SELECT amount FROM purchase p WHERE p.id = {number} AND amount BETWEEN 1 AND 9")
            for _ in range(3):
                connection.execute("SELECT name FROM customer WHERE id IN (1, 2) LIMIT 5")
            connection.execute("UPDATE purchase SET amount = amount + 1.5 WHERE customer_id = 2")
            connection.execute("SELECT * FROM customer WHERE name = 'a'")
            connection.execute("SELECT name FROM customer WHERE id = 1 FOR NO KEY UPDATE")
        proveout(tmp_path, "new", "own", "shop.yaml", "--from", conninfo, "--write").ended(0)
        proveout(tmp_path, "new", "own", "reads.yaml", "--from", conninfo).ended(0)
    text, reads = (tmp_path / "shop.yaml").read_text(), (tmp_path / "reads.yaml").read_text()
    compile_plan(tmp_path / "shop.yaml")
    assert (
        "weight: 9\n        binds:\n          id: {uniform: [10, 40]}\n          amount: {uniform: [1.5, 9.0]" in text
    )
    assert "FROM purchase p WHERE p.id = :id AND amount BETWEEN :amount AND :amount_2" in text
    assert "WHERE id IN (:id, :id_2) LIMIT :limit" in text
    assert "SET amount = amount + :amount WHERE customer_id = :customer_id" in text
    assert "1 call of SELECT * FROM customer WHERE name = $1: the values of name are not known" in text
    assert "UPDATE purchase" not in reads.partition("workloads:")[2]
    assert reads.count("it changes rows or locks them (--write)") == 2


SERIES = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT i, i FROM n"


def scans(dsn: str) -> list[str]:
    """The marks of a read by a key and of one without an index."""
    with opened(parse(dsn), 0) as side:
        tables = own_workload.Tables(side)
        texts = ("SELECT one.a FROM mine one WHERE id = :id", "SELECT one.a FROM mine one WHERE a = :a")
        return [tables.marked(own_workload.of_statement(tables, text, 1, 1)).scan for text in texts]


def test_a_statement_that_reads_a_table_of_many_rows_whole_is_marked(
    database: str, mysql_database: str, sqlite_file: Path
) -> None:
    from proveout.agent.engines.mysql import sql as statements
    from proveout.proto.wire.tasks import Endpoint

    made = ("CREATE TABLE mine (id int PRIMARY KEY, a int)", f"INSERT INTO mine {SERIES}")
    with psycopg.connect(database, autocommit=True) as connection:
        for text in (*made, "ANALYZE mine"):
            connection.execute(text)
    end = Endpoint(system="db", engine="mysql", dsn=mysql_database)
    statements.run_all(end, ("SET max_recursive_iterations = 10000", *made, "ANALYZE TABLE mine"))
    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.executescript(";".join(made))
    for dsn in (database, mysql_database, str(sqlite_file)):
        assert scans(dsn) == ["", "mine (10,000 rows)"]


VALUES: dict[str, tuple[list[str], own_workload.Generator]] = {
    "bigint": (["1", "9"], {"uniform": [1, 9]}),
    "bigint, of 19 digits": (["1790000000000000000"], {"uniform": [1790000000000000000, 1790000000000000000]}),
    "numeric, of 20 digits": (["17900000000000000000"], {}),
    "numeric": (["1.25", "'NaN'"], {}),
    "interval": (["'1 day'"], {}),
    "int4range": (["'[1, 5)'"], {}),
    "int[]": (["'{1, 2}'"], {}),
    "date": (["'2024-01-01'"], {"timestamp": ["2024-01-01", "2024-01-01"]}),
    "date[]": (["'{2024-01-01}'"], {}),
    "timestamp": (["'2024-01-01'", "'infinity'"], {}),
}
"""Type -> values, and their generator."""


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_a_plan_cannot_draw_are_not_known(kind: str, database: str) -> None:
    values, generator = VALUES[kind]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE mine (a {kind.partition(',')[0]})")
        connection.execute(f"INSERT INTO mine VALUES {', '.join(f'({value})' for value in values)}")
    with opened(parse(database), 0) as side:
        found = own_workload.of_statement(own_workload.Tables(side), "SELECT 1 FROM mine WHERE a = :a", 1, 1)
    assert found.binds == {"a": generator or own_workload.UNKNOWN_RANGE}


def test_a_file_needs_no_password_and_a_text_among_its_numbers_has_no_range(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "of another database")
    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.executescript("CREATE TABLE mine (a int); INSERT INTO mine VALUES (1), ('x')")
    with opened(parse(str(sqlite_file)), 0) as side:
        assert side.target(populates=False).secret == ""
        found = own_workload.of_statement(own_workload.Tables(side), "SELECT 1 FROM mine WHERE a = :a", 1, 1)
    assert found.binds == {"a": own_workload.UNKNOWN_RANGE}


def test_the_mix_of_a_mariadb_is_that_of_its_digests(counting: str, tmp_path: Path) -> None:

    with mysql_dsn.connect(mysql_dsn.parse(counting), timeout_s=10.0) as connection, connection.cursor() as cursor:
        for text in SHOP.split(";")[:-1]:
            cursor.execute(text)
        for number in range(9):
            cursor.execute(f"SELECT amount FROM purchase p WHERE p.id = {number}")
        for text in (
            "SELECT COUNT(*), MAX(amount) FROM purchase WHERE customer_id IN (1, 2)",
            "INSERT INTO purchase VALUES (50, 1, 2.5), (60, 1, 2.5)",
            "EXPLAIN SELECT * FROM customer WHERE id = 1",
        ):
            cursor.execute(text)
        connection.commit()
    for _ in range(2):  # the queries of the first are among the digests of the second
        (tmp_path / "shop.yaml").unlink(missing_ok=True)
        proveout(tmp_path, "new", "own", "shop.yaml", "--from", counting, "--write").ended(0)
    text = (tmp_path / "shop.yaml").read_text()
    compile_plan(tmp_path / "shop.yaml")
    assert text.count("sql: ") == 3
    assert "weight: 9\n        binds:\n          id: {uniform: [10, 60]}" in text
    assert "SELECT COUNT( * ) , MAX( `amount` ) FROM `purchase` WHERE `customer_id` IN (:customer_id)" in text
    assert "INSERT INTO `purchase` (id, customer_id, amount) VALUES (:id, :customer_id, :amount)" in text
    assert "the number of values in the list of select_purchase_" in text


def test_the_mix_of_an_oracle_is_that_of_its_shared_sql(
    oracle: str, tns_database: str, tns_views: str, tmp_path: Path
) -> None:
    """The protocol of Oracle, PostgreSQL behind it: JDBC names binds by numbers."""
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute(tns_views.encode())
        connection.execute(ORACLE_COLUMNS)
        connection.execute(SHOP)
        connection.execute(
            "INSERT INTO oracle.v$sqlarea VALUES "
            "(40, 'SELECT amount FROM purchase WHERE id = :1 AND amount > :2', 3, '1'),"
            " (9, 'SELECT /* proveout */ 2 FROM purchase', 3, '1'), (9, 'SELECT 1 FROM purchase', 3, 'SYS')"
        )
        proveout(tmp_path, "new", "own", "shop.yaml", "--from", oracle).ended(0)
        connection.execute(
            "TRUNCATE oracle.v$sqlarea; DROP VIEW oracle.all_tab_columns; DROP TABLE purchase; DROP TABLE customer"
        )
    text = (tmp_path / "shop.yaml").read_text()
    assert text.count("sql: ") == 1
    assert "weight: 40\n        binds:\n          p1: {uniform: [10, 40]}\n          p2: {uniform: [1.5, 9.0]" in text


# ---- mistakes --------------------------------------------------------------------------------------------------------


def _of(conninfo: str, **parts: str) -> str:
    return make_conninfo(conninfo, **parts)


MISTAKES: dict[str, tuple[Callable[[str], tuple[str, ...]], str, str]] = {
    "a wrong password": (lambda shop: (_of(shop, password="other"),), "cannot log in", "wrong password"),
    "no password": (lambda shop: (_of(shop, password=""),), "the server requires a password", "DB_PASSWORD"),
    "a closed port": (lambda _: ("postgresql://u:p@127.0.0.1:1/shop",), "cannot be reached", "is the server running"),
    "an unknown scheme": (lambda _: ("mongodb://db1/shop",), "there is no engine 'mongodb'", "postgresql://user@host"),
    "an open bracket": (lambda _: ("mysql://[::1/shop",), "the address is not one of MySQL", "mysql://user@host"),
    "no address": (lambda _: ("shop",), "'shop' is not the address of a database", "postgresql://user@host"),
    "no database": (lambda shop: (_of(shop, dbname="absent"),), 'database "absent" does not exist', "check user"),
    "no file": (lambda _: ("absent.db",), "there is no file absent.db", "proveout bench sqlite"),
    "no right to create": (lambda shop: (shop, "--workload", "tpcb"), "may not make a schema", "GRANT CREATE ON DATABASE"),
    "no rate": (lambda _: ("sqlite", "--rate", "0/s"), "0/s: a rate is over 0/s", "--rate"),
    "no threads": (lambda _: ("--threads", "0"), "a load has at least 1 thread", "--threads"),
    "threads that fall": (lambda _: ("--threads", "4,1"), "each rung once, rising", "--threads"),
    "no SQLite file": (lambda _: ("other.db",), "other.db is not a file of SQLite or DuckDB", "Give one of"),
    "too many threads": (lambda shop: (shop, "--threads", "1,4,64"), "64 threads need 64 connections", "--threads 1,4"),
    "no space": (lambda _: ("sqlite", "--scale", "90000"), "the tables need about", "Give a smaller --scale"),
    "too little time": (lambda _: ("sqlite", "--time", "5s"), "is too short", "--time"),
    "no such table": (lambda shop: (shop, "--sql", "SELECT 1 FROM absent"), "has no table absent", "Check the name"),
    "statements without a database": (lambda _: ("--sql", "SELECT 1 FROM t"), "name its DSN", "proveout bench DSN"),
    "no weight": (lambda shop: (shop, "--sql", "0:SELECT 1 FROM customer"), "never runs: its weight is 0", "Leave it out"),
    "a scale of tables that are there": (lambda shop: (shop, "--scale", "3"), "--scale: your tables are read", "tpcb"),
    "a workload beside statements": (
        lambda shop: (shop, "--sql", "SELECT 1 FROM customer", "--workload", "tpcb"), "--workload: ", "in place of"
    ),
    "no bench before": (lambda _: ("--again",), "has no run of a bench yet", "proveout bench DSN"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_its_message_and_a_way_out(mistake: str, shop: str, tmp_path: Path) -> None:
    words, what, way_out = MISTAKES[mistake]
    (tmp_path / "other.db").write_text("no database at all")
    done = proveout(tmp_path, "bench", *words(shop), "--headless").ended(2)
    assert what in done.words
    assert way_out in done.words
    assert "secret" not in done.said
    assert not list(tmp_path.glob("*.yaml"))


def test_tables_of_the_user_are_refused(mysql_database: str, tmp_path: Path) -> None:
    from proveout.agent.engines.mysql import sql as statements
    from proveout.proto.wire.tasks import Endpoint

    end = Endpoint(system="db", engine="mysql", dsn=mysql_database)
    statements.run_all(end, ("CREATE TABLE pgbench_tellers (id int)",))
    done = proveout(tmp_path, "bench", mysql_database, "--workload", "tpcb", "--headless").ended(2)
    assert "has a table pgbench_tellers already" in done.words
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.parametrize("keep", [True, False])
def test_the_schema_of_a_killed_bench_is_removed_and_one_that_is_kept_is_refused(
    database: str, tmp_path: Path, *, keep: bool
) -> None:
    """One of the user is as one that is kept: without the comment."""
    load = Load(title="tpcb", lines=("kind: tpcb", "scale: 1"), populates=True)
    target = Target(name="db", engine="postgres", dsn="postgresql://h/d", schema="proveout_bench")
    draft = Draft(name="b", title="t", head=[], targets=[target], load=load, threads=(1,), timing=TIMING, keep=keep)
    (tmp_path / "b.yaml").write_text(plan_writer.text(draft))
    made = next(stage for stage in compile_plan(tmp_path / "b.yaml").stages if isinstance(stage, Sql))
    with psycopg.connect(database, autocommit=True) as connection, opened(parse(database), 0) as side:
        for statement in made.statements:
            connection.execute(statement.encode())
        if keep:
            with pytest.raises(Unusable, match="of yours or kept by --keep"):
                bench.guard(side, ())
        else:
            assert "of an earlier bench" in bench.guard(side, ())


def test_a_disk_without_room_for_the_smallest_tables_needs_no_smaller_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000))
    with pytest.raises(Unusable, match="the tables need about") as refused:
        bench.prepared(bench.Asked(), [Database(address=parse("sqlite"))], tmp_path)
    assert refused.value.way_out.startswith("Free some space")


def test_both_databases_are_cleaned_up_where_one_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def gone(side: object, _: Path) -> None:
        asked.append(side)
        raise Unusable("the server is gone")

    monkeypatch.setattr(bench, "clean_up", gone)
    monkeypatch.setattr(run, "run", lambda *_, **__: None)
    sides = [Database(address=parse("sqlite"), place=place) for place in (0, 1)]
    with pytest.raises(Unusable):
        bench.carried_out(tmp_path / "x.yaml", sides, headless=True, runs=tmp_path, keep=False)
    assert len(asked) == 2


@pytest.mark.parametrize("keep", [True, False])
def test_of_a_bench_that_continues_the_removal_is_printed_where_it_made_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, keep: bool
) -> None:
    """`keep` is also of one that reads tables of the user."""
    directory = RunDirectory(tmp_path / record(tmp_path, {1: [9.0, 9.1]}, ended=False))
    monkeypatch.setattr(run, "run", lambda *_, **__: None)
    monkeypatch.setattr(bench, "runs_of", lambda *_: [directory])
    directory.write_command(replace(directory.command(), removes=not keep))
    sides = [Database(address=parse("sqlite"), session=cast("QuerySession", object()))]
    with Journal(directory.path):
        bench.carried_out(tmp_path / "x.yaml", sides, headless=True, runs=tmp_path, keep=keep)
    assert ("remove the tables" in capsys.readouterr().out) is not keep
    assert not directory.command().removes, "where it is broken off from now on, its tables stay, and it can be resumed"


def test_a_bench_that_fails_leaves_the_tables_of_another_one_with_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two that were started together."""
    other, _ = (RunDirectory(tmp_path / record(tmp_path, {1: [9.0, 9.1]}, day=day, ended=False)) for day in (0.0, 1.0))
    other.write_command(replace(other.command(), removes=True))
    monkeypatch.setattr(run, "run", lambda *_, **__: None)
    monkeypatch.setattr(bench, "clean_up", lambda *_: pytest.fail("the other one is at work in them"))
    sides = [Database(address=parse("sqlite"), session=cast("QuerySession", object()))]
    with Journal(other.path):
        bench.carried_out(recorded_runs.SMOKE, sides, headless=True, runs=tmp_path, keep=False)
    assert other.command().removes


def test_a_bench_whose_run_was_killed_under_its_screen_is_not_resumed_without_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = RunDirectory(tmp_path / record(tmp_path, {1: [9.0, 9.1]}, ended=False))
    directory.write_command(replace(directory.command(), removes=True))

    def killed(*_: object, **__: object) -> None:
        raise run.RunKilled("ended by signal 9", where=str(directory.path), way_out="`proveout resume` continues it.")

    removed: list[object] = []
    monkeypatch.setattr(run, "run", killed)
    newer = RunDirectory(tmp_path / record(tmp_path, {1: [9.0, 9.1]}, day=1.0))  # of another bench with its plan
    monkeypatch.setattr(bench, "runs_of", lambda *_: [newer, directory])
    monkeypatch.setattr(bench, "clean_up", lambda *side: removed.append(side))
    sides = [Database(address=parse("sqlite"), session=cast("QuerySession", object()))]
    with pytest.raises(run.RunKilled, match="run it again from the start"):
        bench.carried_out(tmp_path / "x.yaml", sides, headless=False, runs=tmp_path, keep=False)
    assert len(removed) == 1
    assert execute(["resume", directory.name, "--runs-dir", str(tmp_path)]) == 2
    assert "were removed when it was broken off" in capsys.readouterr().err


def test_the_last_bench_is_found_beside_a_run_without_its_command(tmp_path: Path) -> None:
    older, newer = (tmp_path / record(tmp_path, {1: [9.0, 9.1]}, day=day) for day in (0.0, 1.0))
    (newer / "command.json").unlink()
    assert [one.path for one in bench.runs_of(tmp_path, recorded_runs.SMOKE)] == [older]


def test_the_exit_code_of_a_bench_that_is_run_again_is_that_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is compared with the last one that finished."""
    for day in (0.0, 1.0):
        record(tmp_path, {1: [9.0 + day, 9.5]}, day=day, ended=day == 0.0)
    monkeypatch.setattr(bench, "PREFIX", recorded_runs.SMOKE.stem)
    monkeypatch.setattr(bench, "carried_out", lambda *_, **__: 3 * bool(record(tmp_path, {1: [9.0, 9.4]}, day=2.0)))
    monkeypatch.setattr(bench, "guard", lambda *_: pytest.fail("its plan drops no tables, and may find them"))
    assert execute(["bench", "--again", "--runs-dir", str(tmp_path)]) == 3
    out = capsys.readouterr().out
    assert "smoke-20260101" in out and "smoke-20260103" in out and "smoke-20260102" not in out


@pytest.mark.parametrize("schema", ["proveout_bench", ""])
@pytest.mark.parametrize("keep", [True, False])
def test_a_bench_that_is_run_again_removes_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str, *, keep: bool
) -> None:
    """In a schema of its own on PostgreSQL, by name elsewhere."""
    path, asked = tmp_path / "bench-db.yaml", []
    target = Target(name="db", engine="postgres", dsn="host=h dbname=d user=u", schema=schema)
    load = Load(title="tpcb", lines=("kind: tpcb", "scale: 1"), populates=True)
    draft = Draft(name="b", title="t", head=[], targets=[target], load=load, threads=(1,), timing=TIMING, keep=keep)
    path.write_text(plan_writer.text(draft))
    directory = RunDirectory(tmp_path / record(tmp_path, {1: [9.0, 9.5]}))
    directory.write_command(replace(directory.command(), plan=str(path)))
    monkeypatch.setattr(bench, "opened", lambda address, place: nullcontext(Database(address=address, place=place)))
    monkeypatch.setattr(bench, "carried_out", lambda *_, **of: asked.append(of["keep"]) or 0)
    assert execute(["bench", "--again", "--runs-dir", str(tmp_path)]) == 0
    assert asked == [keep]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = proveout(Path("/proc"), "bench", "sqlite", "--headless", "--runs-dir", str(tmp_path)).ended(2)
    assert "bench-sqlite.yaml cannot be written" in done.words


# ---- benches ---------------------------------------------------------------------------------------------------------


def _ended(done: Done) -> None:
    """It reached its verdicts, whatever the machine did meanwhile, and named plan and report."""
    done.ended(0, 3)
    outcomes = {one["id"]: one["outcome"] for one in done.result["verdicts"]}
    assert outcomes["no-errors"] != "FAIL"
    assert "report.html" in done.out
    assert "edit it and run it again: proveout run bench-" in done.out


@pytest.mark.server
def test_a_bench_of_a_sqlite_file_reads_it_and_says_which_statement_has_no_index(
    sqlite_file: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.executescript(f"CREATE TABLE mine (id int PRIMARY KEY, a int); INSERT INTO mine {SERIES}")
    before = sqlite_file.read_bytes()
    sql = ("--sql", "SELECT id FROM mine WHERE a = :a", "--sql", "SELECT a FROM mine WHERE id = :id")
    done = proveout(tmp_path, "bench", str(sqlite_file), *sql, *SHORT)
    _ended(done)
    assert "! statement_1 reads all of mine (10,000 rows): no index is used.\n" in done.out
    assert done.out.count("no index") == 1
    assert sqlite_file.read_bytes() == before
    assert "# 50 %, ! no index: reads all of mine (10,000 rows)" in next(tmp_path.glob("bench-*.yaml")).read_text()


@pytest.mark.server
def test_a_bench_of_a_duckdb_file_reads_it(duckdb_shop: Path, tmp_path: Path) -> None:
    before = duckdb_shop.read_bytes()
    _ended(proveout(tmp_path, "bench", str(duckdb_shop), *SHORT))
    assert duckdb_shop.read_bytes() == before


@pytest.mark.server
def test_a_bench_of_postgresql_has_a_schema_of_its_own_and_removes_it(shop: str, database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {connection.info.dbname}_user")
    done = proveout(tmp_path, "bench", shop, "--workload", "hlr", "--scale", "1", *SHORT)
    _ended(done)
    assert 'secret"' not in next(tmp_path.glob("bench-*.yaml")).read_text()
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'proveout%'").fetchall()
    assert rows == []


@pytest.mark.soak
def test_a_bench_of_oracle_makes_its_tables_and_removes_them(
    oracle: str, tns_database: str, tns_views: str, tmp_path: Path
) -> None:
    """The protocol of Oracle, PostgreSQL behind it."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute(tns_views.encode())
        connection.execute(ORACLE_COLUMNS)
        before = connection.execute(tables).fetchall()
        _ended(proveout(tmp_path, "bench", oracle, "--workload", "hlr", "--scale", "1", *SHORT[:3], "--time", "30s"))
        assert connection.execute(tables).fetchall() == before
        connection.execute("DROP VIEW oracle.all_tab_columns")


@pytest.mark.server
def test_what_a_killed_bench_has_left_is_removed(mysql_database: str, tmp_path: Path) -> None:
    """`clean_up` after a populate that was broken off: its tables, its journal and its mark go."""
    from proveout.agent.engines.mysql import sql as statements
    from proveout.agent.engines.table import adapter
    from proveout.agent.load.populate_jobs import LoadJournal
    from proveout.dsl.workloads.kinds import build
    from proveout.proto.wire.tasks import Endpoint

    load = Load(title="tpcb", lines=("kind: tpcb", "scale: 1"), populates=True)
    target = Target(name="db", engine="mysql", dsn="mysql://u@h/d")
    draft = Draft(name="b", title="t", head=[], targets=[target], load=load, threads=(1,), timing=TIMING)
    path = tmp_path / "b.yaml"
    path.write_text(plan_writer.text(draft))
    population = build(compile_plan(path).workload("load")).population
    loader = adapter("mysql").loader(mysql_database, population)
    loader.prepare()
    LoadJournal(loader, population, "x").create()  # type: ignore[arg-type]  # MySQL's can
    loader.close()
    with opened(parse(mysql_database), 0) as side:
        clean_up(side, path)
        assert side.rows("SHOW TABLES") == ()
    statements.run_all(Endpoint(system="db", engine="mysql", dsn=mysql_database), ("SELECT 1",))
