"""Everything wrong at once: real databases with real users, and plans that do not fit them, by `check --connect`; a run
that stops before it changes anything; a statement that only fails later.

Nothing is changed: the databases are compared before and after.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from whole_run import proveout, run, written

from proveout.agent.engines.mysql import sql as mysql_statements
from proveout.agent.engines.postgres.sql import PostgresQueries
from proveout.agent.system_check import check_system
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import CheckedLoad, CheckedText, CheckSystem, Endpoint

WORKLOAD = """
workloads:
  own:
    kind: sql
    tables:
      account:
        rows: 100
        create: CREATE TABLE account (id int PRIMARY KEY, owner varchar(20), cents int)
        columns: {id: {sequence: 1}, owner: {text: [6, 20]}, cents: {uniform: [0, 100]}}
      entry:
        rows: 100
        create: CREATE TABLE entry (id int)
        columns: {id: {sequence: 1}}
    binds: {id: {uniform: [1, 100]}}
    transactions:
      Look:
        statements:
          find: SELECT cents FROM account WHERE id = :id
          wrong: |
            SELECT cents
            FORM account WHERE id = :id
"""
LADDER = "workload: own, target: db, threads: [1], ramp_up: 0s, measure: 2s, ramp_down: 0s, repeat: 2"
SQLITE = "    db: {engine: sqlite, host: here, provision: embedded}\n"
SOUND = WORKLOAD.partition("          wrong:")[0]

MANY = '"${params.many}"'
TUNING = """
tuning:
  - name: made
    sql:
      system: db
      verify: {query: SELECT count(*) FROM pg_tables WHERE tablename = 'made', equals: 1}
      apply: CREATE TABLE made (id int)
      revert: DROP TABLE IF EXISTS made
  - name: wrong
    sql:
      system: db
      verify: {query: SELECT count(*) FROM pg_tables WHERE tablename = 'other', equals: 1}
      apply:
        - CREATE TABLE other (id int)
        - |
          ALTER TABLE other
          %s
      revert: [DROP TABLE IF EXISTS other]
"""

pytestmark = pytest.mark.server


def plan(systems: str, stages: str, rest: str = "", workload: str = WORKLOAD) -> str:
    host = "here: {roles: [client, server], address: local}"
    return f"""proveout: 1
name: wrong
topology:
  hosts: {{{host}}}
  systems:
{systems}
secrets: {{db: {{env: PROVEOUT_TEST_PASSWORD}}, other: {{env: PROVEOUT_TEST_OTHER}}}}
{workload}
{rest}
stages:
{stages}
"""


def checked(folder: Path, text: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the problems of `check --connect --json`."""
    written(folder, text)
    done = proveout(folder, "check", "--connect", "--json", *words, "plan.yaml")
    assert done.out.startswith("{"), done.err
    document = json.loads(done.out)
    assert document["exit_code"] == done.code
    return done.code, document["plans"][0]["problems"]


def with_secret(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dsn for a plan, whose password is in the environment."""
    parts = {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value}
    monkeypatch.setenv("PROVEOUT_TEST_PASSWORD", parts.pop("password"))
    return " ".join(f"{key}={value}" for key, value in parts.items()) + " password=${secrets.db}"


def line_of(text: str, words: str) -> int:
    return text[: text.index(words)].count("\n") + 1


def found(problems: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    return {(one["code"], one["system"], one["line"]) for one in problems}


@pytest.fixture
def poor(database: str) -> Any:
    """The conninfo of a user who may log in to a database, and nothing else."""
    name = f"poor_{conninfo_to_dict(database)['dbname']}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' NOSUPERUSER")
        connection.execute("CREATE TABLE account (id int PRIMARY KEY, owner int)")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM public")
        yield make_conninfo(database, user=name, password="x")
        connection.execute(f"DROP OWNED BY {name}")
        connection.execute(f"DROP ROLE {name}")


def test_everything_wrong_with_a_postgres_is_reported_at_once(
    poor: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = with_secret(poor, monkeypatch)
    text = plan(
        f"    db: {{engine: postgres, host: here, dsn: {dsn!r}}}\n"
        f"    unknown: {{engine: postgres, host: here, dsn: {dsn.replace('user=', 'user=no_')!r}}}\n"
        "    down: {engine: postgres, host: here, dsn: 'host=127.0.0.1 port=1 user=x dbname=x'}\n",
        f"  - ladder: {{id: a, capture: [waits, rows], {LADDER}, session: {{work_mem: lots}}}}\n"
        "  - reset: {id: again, systems: [db], restore: false}\n"
        "  - sql: {id: later, system: db, statements: [SELEC 1]}\n",
        "captures:\n  waits: {kind: waits, system: db}\n"
        "  rows: {kind: sql, system: db, query: SELECT n FROM nowhere, metrics: {n: {}}}\n"
        "tuning:\n  - {name: memory, postgres_settings: {system: db, work_mem: 64 potatoes}}\n",
    )
    code, problems = checked(tmp_path, text)
    assert code == 2, problems  # the plan has wrong statements: another attempt cannot help
    assert found(problems) >= {
        ("table", "db", line_of(text, "  own:")),  # the column cents and the table entry are missing
        ("statement", "db", line_of(text, "FORM account")),
        ("statement", "db", line_of(text, "SELEC 1")),
        ("statement", "db", line_of(text, "nowhere")),
        ("setting", "db", line_of(text, "session: {")),
        ("rights", "db", line_of(text, "  waits: {")),
        ("rights", "db", line_of(text, "    db: {")),  # CHECKPOINT
        ("login", "unknown", line_of(text, "    unknown: {")),
        ("unreachable", "down", line_of(text, "    down: {")),
        ("tuning", "", line_of(text, "  - {name: memory")),
    }, problems
    messages = "\n".join(one["message"] for one in problems)
    assert "has no column cents; it has id, owner" in messages
    assert "has no table entry" in messages
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (1,)


def test_rights_on_tables_and_missing_rows_are_reported(
    poor: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE account")
        connection.execute(
            "CREATE TABLE account AS SELECT i AS id, 'n'::text AS owner, 1 AS cents FROM generate_series(1, 30) i"
        )
        connection.execute("CREATE TABLE entry AS SELECT i AS id FROM generate_series(1, 90) i")
        user = conninfo_to_dict(poor)["user"]
        connection.execute(f"GRANT SELECT ON entry TO {user}")
    systems = f"    db: {{engine: postgres, host: here, dsn: {with_secret(poor, monkeypatch)!r}}}\n"
    text = plan(systems, f"  - ladder: {{{LADDER}}}\n", workload=SOUND)
    code, problems = checked(tmp_path, text)
    assert code == 4
    assert ("rights", "db", line_of(text, "          find:")) in found(problems), problems
    few = [one for one in problems if one["code"] == "rows"]
    assert [(one["severity"], one["message"].partition(" has ")[2]) for one in few] == [
        ("warning", "90 rows; 100 are expected")
    ], problems


READS = """
workloads:
  own:
    kind: sql
    binds: {id: {uniform: [1, 100]}, known: {uniform: [1, 20]}}
    transactions:
      Miss: {statements: {find: {sql: "SELECT cents FROM account WHERE id = :id", expect_rows: 1}}}
      Find: {statements: {find: {sql: "SELECT cents FROM account WHERE id = :known", expect_rows: 1}}}
      Often:
        logical_failures: [50%, 90%]
        statements: {find: {sql: "SELECT cents FROM account WHERE id = :id", expect_rows: 1}}
      Change:
        binds: {cents: {from: first.cents}}
        statements:
          first: {sql: "SELECT cents FROM account WHERE id = :known", expect_rows: 1}
          second: {sql: "SELECT cents FROM account WHERE id = :id AND cents = :cents", expect_rows: some}
          change: {sql: "UPDATE account SET cents = 0 WHERE id = :known", expect_rows: 1}
"""


async def test_reads_with_keys_that_do_not_exist_are_reported(database: str, task_context: Any, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE account (id int PRIMARY KEY, cents int)")
        connection.execute("INSERT INTO account SELECT n, 5 FROM generate_series(1, 20) AS n")
    compiled = compile_plan(written(tmp_path, plan(SQLITE, f"  - ladder: {{{LADDER}}}\n", workload=READS)))
    load = CheckedLoad(subject="stages.a", workload=compiled.workload("own"), settled=True)
    spec = CheckSystem(endpoint=Endpoint(system="db", engine="postgres", dsn=database), loads=(load,))
    result = await check_system(task_context, spec)
    found = [one for one in result.findings if one.code == "rows"]
    assert [(one.subject, one.warns) for one in found] == [
        ("workloads.own.statements.Miss.find", True),
        ("workloads.own.statements.Change.second", True),
    ], result
    first, second = (one.message for one in found)
    assert re.fullmatch(r"statement Miss.find expects 1 row, and found no rows in \d+ of \d+ executions .*", first)
    assert second.startswith("statement Change.second expects 1 or more rows, and found no rows in ")
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT sum(cents) FROM account").fetchone() == (100,), "nothing was changed"


def test_too_many_connections_are_reported_for_each_limit(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of the server and of the user; the stage with the most connections has the line."""
    name = f"few_{conninfo_to_dict(database)['dbname']}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' NOSUPERUSER CONNECTION LIMIT 7")
        most, kept = (
            int(connection.execute(f"SHOW {setting}").fetchone()[0])  # type: ignore[index]
            for setting in ("max_connections", "superuser_reserved_connections")
        )
    user = with_secret(make_conninfo(database, user=name, password="x"), monkeypatch)
    text = plan(
        f"    db: {{engine: postgres, host: here, dsn: {user!r}}}\n",
        f"  - ladder: {{id: few, {LADDER.replace('[1]', '[2, 7]')}}}\n"
        f"  - ladder: {{id: many, {LADDER.replace('[1]', MANY)}}}\n",
        'params: {many: {type: "list[int]", default: [8, 900]}}',
        workload=SOUND,
    )
    code, problems = checked(tmp_path, text)
    assert code == 2
    found = [one for one in problems if one["code"] == "connections"]
    words = "the largest rung needs 900 connections; system 'db' has"
    assert [(one["severity"], one["line"], re.sub(r" \d+ free|, others .*", "", one["message"])) for one in found] == [
        ("error", line_of(text, "id: many"), f"{words} (the server accepts {most - kept}"),
        ("error", line_of(text, "id: many"), f"{words} (its user accepts 7"),
    ], problems
    assert [one["way_out"] for one in found] == [
        "raise the limit, use a `pool`, or only the rungs that fit: 8; the rungs are -p many=…",
        "raise the limit, use a `pool`; the rungs are -p many=…",
    ]


async def test_behind_a_pooler_too_many_connections_are_a_warning(
    task_context: Any, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A pooler gives the connection another number than the server: here a session that has been given one."""
    end = Endpoint(system="db", engine="postgres", dsn=database)
    spec = CheckSystem(endpoint=end, connections=(("stages.many", 900),))
    assert [one.warns for one in (await check_system(task_context, spec)).findings] == [False]
    opened = PostgresQueries.__init__

    def through(session: PostgresQueries, endpoint: Endpoint) -> None:
        opened(session, endpoint)
        session.number = 1

    monkeypatch.setattr(PostgresQueries, "__init__", through)
    assert [one.warns for one in (await check_system(task_context, spec)).findings] == [True]


def test_a_failed_preflight_is_shown_once(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password: one line with its place and where the password is from; nothing to resume, no empty tables."""
    dsn = with_secret(database, monkeypatch)
    monkeypatch.setenv("PROVEOUT_TEST_PASSWORD", "wrong")
    systems = f"    db: {{engine: postgres, host: here, dsn: {dsn!r}}}\n"
    done = run(tmp_path, plan(systems, f"  - ladder: {{{LADDER}}}\n")).ended(4)
    for words in (
        "cannot log in to system 'db' (", "wrong password, or no user ", "its secret is from PROVEOUT_TEST_PASSWORD",
        "the preflight found 1 problem, and no host or system was changed (exit code 4)",
        "Check it again: proveout check --connect plan.yaml",
    ):  # fmt: skip
        assert done.said.count(words) == 1, done.said
    for words in ("resume", "Validity", "No verdict", "Evidence", "the first:"):
        assert words not in done.said
    assert "; the first: plan.yaml:" in done.result["run"]["reason"], "for surfaces that show the reason alone"
    report = proveout(tmp_path, "report", str(done.directory), "--text", "-").words
    assert report.count("cannot log in to system 'db' (") == 1
    assert "resume" not in report and "No verdict" not in report


def test_programs_that_the_policy_does_not_list_are_found_before_servers_start(tmp_path: Path) -> None:
    text = """proveout: 1
name: programs
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: postgres, host: h, provision: embedded}}
workloads:
  bench: {kind: program, argv: [pgbench, "--client={threads}", "--time={seconds}", --log], output: pgbench}
captures:
  disk: {kind: command, on: h, argv: [df, -k, /], output: pairs, metrics: {free: {}}}
stages:
  - command: {id: size, on: h, argv: [cat, /proc/meminfo], output: pairs, metrics: {free: {}}}
  - ladder: {workload: bench, target: db, threads: [1, 2], ramp_up: 0s, measure: 2s, ramp_down: 0s, capture: disk}
"""
    code, problems = checked(tmp_path, text)
    assert code == 4
    assert {(one["code"], one["line"], one["message"].partition(" is not")[0]) for one in problems} == {
        ("rights", line_of(text, "  bench:"), "the command pgbench --client={count} --time={count} --log"),
        ("rights", line_of(text, "  disk:"), "the command df -k /"),
        ("rights", line_of(text, "  - command:"), "the command cat /proc/meminfo"),
    }
    assert "system db is up" not in run(tmp_path, text).ended(4).said
    lines = [re.search(r"`- (\{.*\})` under", one["way_out"]) for one in problems]
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: 1\ncommands:\n" + "".join(f"  - {line[1]}\n" for line in lines if line))
    policy.chmod(0o644)
    assert checked(tmp_path, text, "--policy", str(policy)) == (0, []), "the lines of the refusals are enough"
    policy.write_text(policy.read_text().replace("--client={count}", "--client=2").replace("--time", "--seconds"))
    code, problems = checked(tmp_path, text, "--policy", str(policy))
    assert code == 4 and [one["line"] for one in problems] == [line_of(text, "  bench:")]
    assert "the argument '--time={count}' of the command pgbench" in problems[0]["message"]
    policy.write_text("policy: 1\ncommands: [{path: /usr/bin/gone-away}, {path: /bin/sh, i_know: why not}]\n")
    said = run(tmp_path, text, "--policy", "policy.yaml").ended(2).said
    assert "policy.yaml:2:47: `/bin/sh` runs any program that it is given" in said, "what, where and why"


def test_a_run_stops_before_it_changes_anything_and_without_a_preflight_when_it_prepares_the_load(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = plan(
        f"    db: {{engine: postgres, host: here, dsn: {with_secret(database, monkeypatch)!r}}}\n",
        f"  - sql: {{id: make, system: db, statements: [CREATE TABLE made (id int)]}}\n  - ladder: {{{LADDER}}}\n",
    )

    def made() -> bool:
        with psycopg.connect(database) as connection:
            return connection.execute("SELECT to_regclass('made')").fetchone() != (None,)

    said = run(tmp_path, text).ended(2).said
    assert f"plan.yaml:{line_of(text, 'FORM account')}:" in said
    assert "no host or system was changed" in said
    assert not made()
    said = run(tmp_path, text, "--no-preflight").ended(2).said
    assert f"plan.yaml:{line_of(text, '          find:')}:" in said
    assert made()


def test_everything_wrong_with_a_mysql_is_reported_at_once(
    mysql_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVEOUT_TEST_PASSWORD", "x")
    monkeypatch.setenv("PROVEOUT_TEST_OTHER", "y")
    end = Endpoint(system="db", engine="mysql", dsn=mysql_database)
    user = f"poor{os.getpid()}"
    name = mysql_database.partition("?")[0].rpartition("/")[2]
    statements = (
        "CREATE TABLE account (id int PRIMARY KEY, owner int)",
        f"CREATE USER {user}@localhost IDENTIFIED BY 'x'",
        f"GRANT SELECT ON {name}.* TO {user}@localhost",
    )
    mysql_statements.run_all(end, statements)
    try:
        rest = mysql_database.partition("@")[2]
        systems = (
            f"    db: {{engine: mysql, host: here, dsn: 'mysql://{user}:${{secrets.db}}@{rest}'}}\n"
            f"    wrong: {{engine: mysql, host: here, dsn: 'mysql://{user}:${{secrets.other}}@{rest}'}}\n"
        )
        workload = WORKLOAD + "          change: UPDATE account SET owner = 1 WHERE id = :id\n"
        text = plan(
            systems,
            f"  - ladder: {{{LADDER.replace('[1]', '[5000]')}, session: {{sort_buffer: 1}}}}\n"
            "  - populate: {workload: own, into: [wrong]}\n",
            workload=workload,
        )
        code, problems = checked(tmp_path, text)
        assert code == 2
        assert found(problems) >= {
            ("table", "db", line_of(text, "  own:")),
            ("statement", "db", line_of(text, "FORM account")),
            ("rights", "db", line_of(text, "          change:")),
            ("setting", "db", line_of(text, "session: {")),
            ("connections", "db", line_of(text, "  - ladder")),
            ("login", "wrong", line_of(text, "    wrong: {")),
        }, problems
    finally:
        mysql_statements.run_all(end, (f"DROP USER {user}@localhost",))


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
async def test_everything_wrong_with_a_file_is_reported_at_once(engine: str, task_context: Any, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with {"sqlite": sqlite3, "duckdb": duckdb}[engine].connect(str(path)) as connection:  # type: ignore[attr-defined]
        connection.execute("CREATE TABLE account (id int, owner varchar)")
    text = plan(SQLITE, f"  - populate: {{workload: own, into: [db]}}\n  - ladder: {{{LADDER}}}\n")
    workload = compile_plan(written(tmp_path, text)).workload("own")
    before = path.read_bytes()
    load = CheckedLoad(subject="stages.a", workload=workload, settled=True, expected=True)
    texts = (
        CheckedText(subject="ddl", text="CREATE TABLE made (id int)", settled=True),
        CheckedText(subject="later", text="SELECT 1 FROM made"),
        CheckedText(subject="gone", text="SELECT 1\nFROM gone", settled=True),
    )
    end = Endpoint(system="db", engine=engine, dsn=str(path))
    result = await check_system(task_context, CheckSystem(endpoint=end, loads=(load,), texts=texts))
    assert {(one.code, one.subject) for one in result.findings} == {
        ("table", "workloads.own.tables.account"),
        ("table", "workloads.own.tables.entry"),
        ("statement", "workloads.own.statements.Look.wrong"),
        ("statement", "gone"),
    }, result
    assert path.read_bytes() == before  # its journal mode too
    missing = Endpoint(system="db", engine=engine, dsn=str(tmp_path / "missing.db"))
    result = await check_system(task_context, CheckSystem(endpoint=missing, loads=(load,), texts=texts))
    assert [one.code for one in result.findings] == ["unreachable"]
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
@pytest.mark.parametrize("kind", ["tpcb", "tprocc", "tproch"])
@pytest.mark.parametrize("letters", [str, str.upper])
async def test_tables_that_proveout_makes_have_the_types_of_their_workload(
    kind: str, engine: Any, letters: Any, task_context: Any, tmp_path: Path
) -> None:
    """Here without rows, which is another finding. SQLite has no type for times: they are texts. Names of any letters
    are the same ones."""
    path = tmp_path / "file.db"
    workload = Workload(name="own", kind=kind, parameters=())
    with {"sqlite": sqlite3, "duckdb": duckdb}[engine].connect(str(path)) as connection:
        for statement in build(workload).population.before[engine]:
            connection.execute(letters(statement))
    load = CheckedLoad(subject="stages.a", workload=workload, settled=True, expected=True)
    end = Endpoint(system="db", engine=engine, dsn=str(path))
    result = await check_system(task_context, CheckSystem(endpoint=end, loads=(load,)))
    assert {one.code for one in result.findings if not one.warns} == {"rows"}, result


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_file_that_the_user_may_not_write_is_reported(task_context: Any, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE account (id int)")
    path.chmod(0o400)
    end = Endpoint(system="db", engine="sqlite", dsn=str(path))
    result = await check_system(task_context, CheckSystem(endpoint=end, uses=("populate",)))
    assert [one.code for one in result.findings] == ["rights"]


def test_wrong_statements_of_late_stages_are_found_before_the_first_measurement(tmp_path: Path) -> None:
    late = SOUND.replace("  own:", "  late:").replace("workloads:\n", "").replace("cents FROM", "nothing FROM")
    text = plan(
        SQLITE,
        "  - populate: {workload: own, into: [db]}\n"
        f"  - ladder: {{id: first, {LADDER}}}\n"
        f"  - ladder: {{id: last, {LADDER.replace('workload: own', 'workload: late')}}}\n"
        "  - sql:\n      system: db\n      statements:\n        - CREATE TABLE t (id int)\n"
        "        - |\n          INSERT INTO t\n          VALEUS (1)\n",
        workload=SOUND + late,
    )
    said = run(tmp_path, text).ended(2).said
    assert f"plan.yaml:{line_of(text, 'SELECT nothing')}:" in said
    assert f"plan.yaml:{line_of(text, 'INSERT INTO') + 1}:" in said
    assert "nothing was measured" in said
    assert "stage first (ladder)" not in said


def test_a_wrong_statement_of_a_tuning_has_its_line(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A syntax error, which a check finds, and one that only fails when it is executed: the tuning
    before it is reverted."""
    systems = f"    db: {{engine: postgres, host: here, dsn: {with_secret(database, monkeypatch)!r}}}\n"
    stages = "  - sql: {id: one, system: db, statements: [SELECT 1]}\n"
    text = plan(systems, stages, TUNING % "ADD COLUM CONSTRAINT x", workload="")
    code, problems = checked(tmp_path, text)
    assert (code, [one["line"] for one in problems]) == (2, [line_of(text, "ADD COLUM")])
    text = plan(systems, stages, TUNING % "DROP COLUMN gone", workload="")
    said = run(tmp_path, text).ended(2).said
    assert f"plan.yaml:{line_of(text, 'ALTER TABLE other')}:11: " in said
    assert "tuning made: reverted" in said
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('made'), to_regclass('other')").fetchone() == (None, None)


def test_an_agent_that_cannot_be_reached_is_one_problem_among_others(tmp_path: Path) -> None:
    text = plan(
        "    gone: {engine: postgres, host: here, dsn: 'host=127.0.0.1 port=1 user=x dbname=x'}\n",
        f"  - ladder: {{{LADDER.replace('target: db', 'target: gone')}, from: [here]}}\n",
    ).replace("address: local}}", "address: local}, far: {roles: [client], address: '127.0.0.1:1'}}")
    code, problems = checked(tmp_path, text)
    assert code == 4
    assert {(one["code"], tuple(one["hosts"])) for one in problems} >= {("login", ("far",)), ("unreachable", ("here",))}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_a_disk_without_room_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(small)], check=True)
    try:
        system = SQLITE.replace("sqlite", "postgres")
        text = plan(system, "  - pause: {duration: 1s}\n", workload="")
        code, problems = checked(tmp_path, text, "--runs-dir", str(small))
        assert (code, [one["code"] for one in problems]) == (4, ["space"])
        assert "8 MiB" in problems[0]["message"]
    finally:
        subprocess.run(["umount", str(small)], check=True)
