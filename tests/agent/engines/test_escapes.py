"""SQL of a plan cannot leave its server: every case of `escapes` in `sql` stages; tunings and transactions of a workload
have the same role."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from embedded_servers import ask, embedded, system, value
from escapes import CANARY, MYSQL, POSTGRES, Escape

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.engines.sessions import execute
from proveout.agent.engines.table import driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.agent.sandbox import helper
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.parameter_names import objection
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.sql import Custom
from proveout.proto.wire.tasks import Checkpoint, Endpoint, LinkSystems, PopulateSystem, RunSql, StartSystem

pytestmark = pytest.mark.server

on_postgres = pytest.mark.parametrize("server", ["postgres"], indirect=True)
TABLES = {"loot": "line text", "reached": "name varchar(80)"}
DANGEROUS = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files", "pg_create_subscription")


class World:
    """An embedded server, a world-writable folder beside it, and the checks after a case."""

    def __init__(self, context: Any, endpoint: Endpoint, outside: Path) -> None:
        self.context, self.endpoint, self.outside, self.dsn = context, endpoint, outside, endpoint.dsn
        self.cases = POSTGRES if endpoint.engine == "postgres" else MYSQL
        self.secret = outside / "secret"
        self.secret.write_text(f"{CANARY}\n")
        self.secret.chmod(0o644)
        socket = endpoint.dsn.partition("host=")[2].partition(" ")[0]
        self.words = {"outside": outside, "secret": self.secret, "socket": socket}

    async def run(self, *statements: str) -> None:
        """As a `sql` stage does."""
        await helper.run_in_helper(self.context, RunSql(endpoint=self.endpoint, statements=statements))

    def ask(self, query: str) -> list[Any]:
        """The first column."""
        return [row[0] for row in ask(self.dsn, query)]

    def escaped(self, case: Escape) -> list[str]:
        """Descriptions of a successful escape; [] when it was contained."""
        found = [f"file {path.name}" for path in self.outside.iterdir() if path != self.secret]
        found += ["secret was changed"] if self.secret.read_text() != f"{CANARY}\n" else []
        found += ["the canary was read"] if CANARY in str(self.ask("SELECT line FROM loot")) else []
        if case.sign == "done" and case.name in self.ask("SELECT name FROM reached"):
            found.append("it was accepted")
        if self.endpoint.engine == "postgres":
            held = " OR ".join(f"pg_has_role('{role}', 'MEMBER')" for role in DANGEROUS)
            if self.ask(f"SELECT rolsuper OR {held} FROM pg_roles WHERE rolname = current_user") != [False]:
                found.append("powers")
        return found


@pytest.fixture(scope="module", params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    if request.param == "mysql":
        request.getfixturevalue("mariadb")  # skips where there is none
    with embedded(tmp_path_factory.mktemp("escapes"), of=system(request.param)) as started:
        yield started.start()


@pytest.fixture
async def world(server: Endpoint, task_context: Any, package_folder: Path) -> World:
    """The server, as the tests share it, with new tables, and a folder of the host that all may write to."""
    package_folder.chmod(0o777)
    made = World(task_context, server, package_folder)
    for table, columns in TABLES.items():
        await made.run(f"DROP TABLE IF EXISTS {table}", f"CREATE TABLE {table} ({columns})")
    return made


@pytest.mark.escape
async def test_escapes_by_sql_stages(world: World, record_property: Callable[[str, object], None]) -> None:
    record_property("escapes", len(world.cases))
    for case in world.cases:
        with suppress(TaskFault):
            await world.run(*case.filled(world.words), f"INSERT INTO reached VALUES ('{case.name}')")
        assert world.escaped(case) == [], case.name


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


async def test_escapes_by_the_tables_of_a_workload(world: World) -> None:
    """Statements `after` of a table, on the connections of a population: those may send rows by MySQL's LOAD DATA
    LOCAL."""
    case = next(one for one in world.cases if one.name in {"postgres_copy_to_program", "mysql_load_data_local"})
    table = {"rows": 1, "create": "CREATE TABLE x (id integer PRIMARY KEY)", "columns": {"id": {"sequence": 1}}}
    after = case.filled(world.words)[0]
    transactions = {"Look": {"statements": {"s": "SELECT id FROM x"}}}
    model = Custom.model_validate({"tables": {"x": {**table, "after": after}}, "transactions": transactions})
    workload = Workload(name="w", kind="sql", parameters=to_values(model))
    with pytest.raises(TaskFault):
        await populate(world.context, PopulateSystem(workload=workload, endpoint=world.endpoint, workers=1))
    assert world.escaped(case) == []


async def test_ordinary_statements_of_the_role_work(world: World) -> None:
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
    await world.run(*own[world.endpoint.engine])
    assert world.ask("SELECT name FROM reached") == ["all"]
    await helper.run_in_helper(world.context, Checkpoint(endpoint=world.endpoint))


@on_postgres
async def test_a_refusal_names_the_alternative(world: World) -> None:
    with pytest.raises(TaskFault) as caught:
        await world.run("COPY loot FROM PROGRAM 'id'")
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
    subscription = f"CREATE SUBSCRIPTION s CONNECTION 'host=/nowhere password={CANARY}' PUBLICATION p"
    with psycopg.connect(postgres_roles.administration(world.endpoint), autocommit=True) as administrator:
        administrator.execute(f"{subscription} WITH (connect = false, slot_name = NONE)".encode())
        for view in ("activity", "subscription", "replication"):
            assert CANARY not in str(world.ask(f"SELECT x::text FROM pg_stat_{view} x")), view
        for view in ("pg_settings", "pg_replication_slots"):
            assert CANARY not in str(world.ask(f"SELECT x::text FROM {view} x")), view
        seen = world.ask("SELECT query FROM pg_stat_activity WHERE usename = 'proveout_administrator'")
        assert set(seen) == {""}
        administrator.execute("DROP SUBSCRIPTION s")


@on_postgres
def test_each_role_requires_its_password(world: World) -> None:
    """SCRAM for every role on the socket, the only way in; and no physical replication, which would copy all files."""
    assert value(world.dsn, "SHOW listen_addresses") == ""
    for role in (postgres_roles.ADMINISTRATOR, postgres_roles.REPLICATION, "postgres"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(world.dsn, user=role)
    with pytest.raises(psycopg.OperationalError, match=r"rejects|no pg_hba.conf entry"):
        psycopg.connect(postgres_roles.replication(world.endpoint), replication="true")


@on_postgres
def test_passwords_are_read_only_from_folders_of_the_agent(world: World, tmp_path: Path) -> None:
    """An endpoint may name any folder: files of other users there are not read, and no connection is opened."""
    session = Path(world.words["socket"]).parent
    copy, link = (tmp_path / f"{data_store.SESSION_PREFIX}{name}" for name in ("copy", "link"))
    copy.mkdir()
    (copy / data_store.POINTER).write_text((session / data_store.POINTER).read_text())
    link.symlink_to(copy)

    def administration(folder: Path) -> str:
        dsn = world.dsn.replace(str(session), str(folder))
        return postgres_roles.administration(replace(world.endpoint, dsn=dsn))

    assert administration(session) and administration(copy)
    for wrong in (tmp_path / "elsewhere", link, copy):
        copy.chmod(0o777 if wrong == copy else 0o700)
        with pytest.raises(TaskFault, match="is not a running embedded PostgreSQL"):
            administration(wrong)


def test_a_key_sent_by_a_coordinator_is_not_used() -> None:
    end = Endpoint(system="theirs", engine="postgres", dsn="host=db1 dbname=x")
    keys = {"source_key": "host=evil", "sink_key": "host=evil"}
    workload = Workload(name="w", kind="hlr", parameters=())
    filled = postgres_roles.with_keys(LinkSystems(source=end, sink=end, workload=workload, copy_data=False, **keys))
    assert (filled.source_key, filled.sink_key) == ("", "")


async def test_data_of_an_older_release_is_refused(task_context: Any, tmp_path: Path) -> None:
    """Data of an older release lacks the role; its run can only continue with the release that made it."""
    folder = data_store.home(tmp_path, "db")
    older = {"store": str(folder / "store"), "password": "x", "uid": None, "generation": 0, "format": 1}
    (folder / data_store.FILE).write_text(json.dumps(older))
    with pytest.raises(TaskFault, match="made by another version") as caught:
        await helper.start_system(task_context, StartSystem(system=system(), data_root=str(tmp_path)))
    assert "remove that folder" in caught.value.way_out
