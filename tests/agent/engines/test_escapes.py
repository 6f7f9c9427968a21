"""SQL of a plan cannot leave its database: every case of `escapes` in `sql` stages; tunings and transactions of a
workload have the same role."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from escapes import CANARY, MYSQL, POSTGRES, Escape

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.mysql import dsn as mysql_dsn
from proveout.agent.engines.mysql.provision import Server as MysqlServer
from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.engines.postgres.provision import Server as PostgresServer
from proveout.agent.engines.sessions import execute
from proveout.agent.engines.table import driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.agent.sandbox import helper
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.parameter_names import objection
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.sql import Custom
from proveout.proto.wire.tasks import Checkpoint, Endpoint, LinkSystems, PopulateSystem, RunSql, StartSystem

pytestmark = pytest.mark.server

on_postgres = pytest.mark.parametrize("server", ["postgres"], indirect=True)
TABLES = ("CREATE TABLE loot (line text)", "CREATE TABLE reached (name varchar(80))")
DANGEROUS = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files", "pg_create_subscription")


class World:
    """An embedded server, a world-writable folder beside it, and the checks after a case."""

    def __init__(self, endpoint: Endpoint, outside: Path) -> None:
        self.endpoint, self.outside = endpoint, outside
        self.secret = outside / "secret"
        self.secret.write_text(f"{CANARY}\n")
        self.secret.chmod(0o644)
        socket = endpoint.dsn.partition("host=")[2].partition(" ")[0]
        self.words = {"outside": str(outside), "secret": str(self.secret), "socket": socket}

    def ask(self, *queries: str) -> list[Any]:
        """The first column of all rows."""
        dsn, rows = self.endpoint.dsn, list[Any]()
        connection: Any = (
            mysql_dsn.connect(mysql_dsn.parse(dsn))
            if self.endpoint.engine == "mysql"
            else psycopg.connect(dsn, autocommit=True)
        )
        with closing(connection), connection.cursor() as cursor:
            for query in queries:
                cursor.execute(query)
                rows += [row[0] for row in cursor.fetchall()]
        return rows

    def escaped(self, cases: tuple[Escape, ...]) -> list[str]:
        """Descriptions of the successful escapes; [] when all were contained."""
        found = [f"file {path.name}" for path in self.outside.iterdir() if path != self.secret]
        found += ["secret was changed"] if self.secret.read_text() != f"{CANARY}\n" else []
        queries = ["SELECT line FROM loot", "SELECT name FROM reached"]
        if self.endpoint.engine == "postgres":
            held = " OR ".join(f"pg_has_role('{role}', 'MEMBER')" for role in DANGEROUS)
            queries.append(f"SELECT rolsuper OR {held} FROM pg_roles WHERE rolname = current_user")
        must_fail = {case.name for case in cases if case.sign == "done"}
        for row in self.ask(*queries):
            found += ["the canary was read"] if CANARY in str(row) else []
            found += [f"{row} was accepted"] if row in must_fail else []
            found += ["powers"] if row is True else []
        return found


@pytest.fixture(scope="module", params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """An embedded server for the module, with the tables of the cases."""
    if request.param == "mysql":
        request.getfixturevalue("mariadb")  # skips where there is none
    make: Any = {"postgres": PostgresServer, "mysql": MysqlServer}[request.param]
    settings = (
        (("fsync", "off"),)
        if request.param == "postgres"
        else (("innodb_flush_log_at_trx_commit", "0"), ("innodb_log_file_size", "8M"))
    )
    system = System(name="db", engine=request.param, host="h", provision="embedded", settings=settings)
    started = make(system, tmp_path_factory.mktemp(f"escapes-{request.param}"))
    try:
        yield started.start()
    finally:
        started.close(keep_data=False)


@pytest.fixture
async def world(server: Endpoint, task_context: Any, package_folder: Path) -> World:
    """The server, as the tests share it, and a folder of the host that all may write to."""
    package_folder.chmod(0o777)
    drop = tuple(f"DROP TABLE IF EXISTS {table.split()[2]}" for table in TABLES)
    await helper.run_in_helper(task_context, RunSql(endpoint=server, statements=(*drop, *TABLES)))
    return World(server, package_folder)


def cases_of(world: World) -> tuple[Escape, ...]:
    return POSTGRES if world.endpoint.engine == "postgres" else MYSQL


@pytest.mark.escape
async def test_escapes_by_sql_stages(
    task_context: Any, world: World, record_property: Callable[[str, object], None]
) -> None:
    record_property("escapes", len(cases_of(world)))
    for case in cases_of(world):
        with suppress(TaskFault):
            await helper.run_in_helper(
                task_context, RunSql(endpoint=world.endpoint, statements=case.filled(world.words))
            )
        assert world.escaped((case,)) == [], case.name


def test_tunings_and_transactions_have_the_same_role(world: World) -> None:
    """The cases above try the privileges of this role."""
    end = world.endpoint
    query = "SELECT current_user" + ("()" if end.engine == "mysql" else "")
    (role,) = world.ask(query)
    assert role in {"proveout", "proveout@localhost"}
    if end.engine == "postgres":  # systems of engine mysql cannot be tuned
        assert Databases({("", "db"): end}).rows("db", query) == ((role,),)
    engine = driver(end.engine)
    session = engine.connect(end.dsn)
    look = Statement(name="look", text={engine.dialect: query}, arguments=(), columns=(str,))
    execute(session, engine, session.prepare(look), ())
    assert session.rows() == [(role,)]
    session.close()


async def test_escapes_by_the_tables_of_a_workload(task_context: Any, world: World) -> None:
    """Statements `after` of a table, on the connections of a population: those may send rows by MySQL's LOAD DATA
    LOCAL."""
    case = next(one for one in cases_of(world) if one.name in {"postgres_copy_to_program", "mysql_load_data_local"})
    table = {"rows": 1, "create": "CREATE TABLE x (id integer PRIMARY KEY)", "columns": {"id": {"sequence": 1}}}
    after = "; ".join(case.filled(world.words)[:1])
    transactions = {"Look": {"statements": {"s": "SELECT id FROM x"}}}
    model = Custom.model_validate({"tables": {"x": {**table, "after": after}}, "transactions": transactions})
    workload = Workload(name="w", kind="sql", parameters=to_values(model))
    with pytest.raises(TaskFault):
        await populate(task_context, PopulateSystem(workload=workload, endpoint=world.endpoint, workers=1))
    assert world.escaped((case,)) == []


async def test_ordinary_statements_of_the_role_work(task_context: Any, world: World) -> None:
    """Check of the role: ordinary statements work, so the cases above are refused for their targets."""
    own = {
        "postgres": (
            "CREATE SCHEMA s", "CREATE TABLE s.t (a int PRIMARY KEY, b text)", "INSERT INTO s.t SELECT n, 'x' FROM generate_series(1, 100) n",
            "CREATE FUNCTION f(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN n + 1; END $$", "SELECT f(a) FROM s.t",
            "CREATE VIEW v AS SELECT * FROM s.t", "VACUUM (ANALYZE) s.t", "VACUUM", "REINDEX TABLE s.t", "CHECKPOINT", "SET work_mem = '8MB'",
            "SET track_io_timing = on", "ALTER SYSTEM SET work_mem = '9MB'", "SELECT pg_reload_conf()", "ALTER SYSTEM RESET work_mem",
            "SELECT * FROM pg_stat_activity", "SELECT pg_stat_reset()", "CREATE PUBLICATION p FOR TABLE s.t", "DROP PUBLICATION p",
            "ALTER DATABASE postgres SET work_mem = '9MB'", "INSERT INTO reached VALUES ('all')",
        ),
        "mysql": (
            "CREATE TABLE t (a int PRIMARY KEY, b text)", "INSERT INTO t SELECT seq, 'x' FROM seq_1_to_100", "ANALYZE TABLE t", "OPTIMIZE TABLE t",
            "CREATE FUNCTION f(n int) RETURNS int DETERMINISTIC RETURN n + 1", "SELECT f(a) FROM t", "CREATE VIEW v AS SELECT * FROM t",
            "CREATE PROCEDURE p() UPDATE t SET b = 'y'", "CALL p()", "SET SESSION sort_buffer_size = 1000000", "FLUSH TABLES", "SHOW ENGINE INNODB STATUS",
            "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.b = 'z'", "SET SESSION sql_log_bin = 0", "INSERT INTO reached VALUES ('all')",
        ),
    }  # fmt: skip
    await helper.run_in_helper(task_context, RunSql(endpoint=world.endpoint, statements=own[world.endpoint.engine]))
    assert world.ask("SELECT name FROM reached") == ["all"]
    await helper.run_in_helper(task_context, Checkpoint(endpoint=world.endpoint))


@on_postgres
async def test_a_refusal_names_the_alternative(task_context: Any, world: World) -> None:
    with pytest.raises(TaskFault) as caught:
        await helper.run_in_helper(
            task_context, RunSql(endpoint=world.endpoint, statements=("COPY loot FROM PROGRAM 'id'",))
        )
    assert "postgres_settings" in caught.value.way_out
    assert "dsn" in caught.value.way_out


@on_postgres
def test_the_server_grants_the_parameters_that_the_compiler_lets_through(world: World) -> None:
    names = world.ask("SELECT name FROM pg_settings WHERE context <> 'internal'")
    granted = world.ask(
        "SELECT name FROM pg_settings WHERE context <> 'internal' AND has_parameter_privilege(name, 'SET, ALTER SYSTEM')"
        " AND has_parameter_privilege(name, 'ALTER SYSTEM')"
    )
    assert sorted(granted) == sorted(name for name in names if not objection(name))
    assert len(granted) > 250


@on_postgres
def test_the_passwords_of_other_roles_are_not_visible(world: World) -> None:
    """While the administrator's session is open, as during linking, no view of the plan's role shows its statements."""
    with psycopg.connect(postgres_roles.administration(world.endpoint), autocommit=True) as administrator:
        administrator.execute(
            f"CREATE SUBSCRIPTION s CONNECTION 'host=/nowhere password={CANARY}' PUBLICATION p WITH (connect = false, slot_name = NONE)".encode()
        )
        for view in (
            "pg_stat_activity",
            "pg_stat_subscription",
            "pg_settings",
            "pg_stat_replication",
            "pg_replication_slots",
        ):
            assert CANARY not in str(world.ask(f"SELECT x::text FROM {view} x")), view
        seen = world.ask("SELECT query FROM pg_stat_activity WHERE usename = 'proveout_administrator'")
        assert set(seen) == {""}
        administrator.execute("DROP SUBSCRIPTION s")


@on_postgres
def test_each_role_requires_its_password(world: World) -> None:
    """SCRAM for every role on the socket, the only way in; and no physical replication, which would copy all files."""
    assert world.ask("SHOW listen_addresses") == [""]
    for role in (postgres_roles.ADMINISTRATOR, postgres_roles.REPLICATION, "postgres"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(world.endpoint.dsn, user=role)
    with pytest.raises(psycopg.OperationalError, match=r"rejects|no pg_hba.conf entry"):
        psycopg.connect(postgres_roles.replication(world.endpoint), replication="true")


@on_postgres
def test_passwords_are_read_only_from_folders_of_the_agent(world: World, tmp_path: Path) -> None:
    """An endpoint may name any folder: files of other users there are not read, and no connection is opened."""
    assert postgres_roles.administration(world.endpoint)
    session = Path(world.words["socket"]).parent
    copy = tmp_path / f"{data_store.SESSION_PREFIX}copy"
    copy.mkdir()
    (copy / data_store.POINTER).write_text((session / data_store.POINTER).read_text())
    moved = replace(world.endpoint, dsn=world.endpoint.dsn.replace(str(session), str(copy)))
    assert postgres_roles.administration(moved)
    other = replace(world.endpoint, dsn=world.endpoint.dsn.replace(str(session), str(tmp_path / "elsewhere")))
    link = tmp_path / f"{data_store.SESSION_PREFIX}link"
    link.symlink_to(copy)
    led = replace(world.endpoint, dsn=world.endpoint.dsn.replace(str(session), str(link)))
    for wrong in (other, led):
        with pytest.raises(TaskFault, match="is not a running embedded PostgreSQL"):
            postgres_roles.administration(wrong)
    copy.chmod(0o777)
    with pytest.raises(TaskFault, match="is not a running embedded PostgreSQL"):
        postgres_roles.administration(moved)


def test_a_key_sent_by_a_coordinator_is_not_used() -> None:
    end = Endpoint(system="theirs", engine="postgres", dsn="host=db1 dbname=x")
    workload = Workload(name="w", kind="hlr", parameters=())
    spec = LinkSystems(
        source=end, sink=end, workload=workload, copy_data=False, source_key="host=evil", sink_key="host=evil"
    )
    filled = postgres_roles.with_keys(spec)
    assert (filled.source_key, filled.sink_key) == ("", "")


async def test_data_of_an_older_release_is_refused(task_context: Any, tmp_path: Path) -> None:
    """Data of an older release lacks the role; its run can only continue with the release that made it."""
    folder = data_store.home(tmp_path, "db")
    (folder / data_store.FILE).write_text(
        json.dumps({"store": str(folder / "store"), "password": "x", "uid": None, "generation": 0, "format": 1})
    )
    system = System(name="db", engine="postgres", host="h", provision="embedded")
    with pytest.raises(TaskFault, match="made by another version") as caught:
        await helper.start_system(task_context, StartSystem(system=system, data_root=str(tmp_path)))
    assert "remove that folder" in caught.value.way_out
