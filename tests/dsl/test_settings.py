"""Settings that a plan may give: of embedded servers against their tables, these against the servers that are installed;
parameters of PostgreSQL; settings of sessions, and their SQL.

`PROVEOUT_UPDATE_GOLDEN=1 python -m pytest tests/dsl/test_settings.py` writes the tables again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.postgres import roles as embedded_postgres
from proveout.agent.engines.table import adapter
from proveout.dsl.operations import parameter_names
from proveout.dsl.operations.sql import PostgresSettings
from proveout.dsl.rules import settings as tables
from proveout.dsl.rules.session_settings import expanded, objection, setting_objection, statement
from proveout.proto.wire.tasks import Endpoint

UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))
POSTGRES = """SELECT name, vartype, unit, min_val, max_val, enumvals, setting FROM pg_settings
WHERE context <> 'internal' ORDER BY name"""
MARIADB = """SELECT LOWER(VARIABLE_NAME), VARIABLE_TYPE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST
FROM information_schema.SYSTEM_VARIABLES"""
KINDS = {"bool": "bool", "integer": "int", "real": "real", "enum": "enum", "string": "text"}


def compared(engine: str, server: str, settings: dict[str, dict[str, Any]], refused: list[str]) -> None:
    path = Path(tables.__file__).parent / tables.FILES[engine]
    lines = (f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in settings.items())
    head = f'{{"server": {json.dumps(server)},\n"refused": {json.dumps(refused)},\n"settings": {{\n'
    text = head + ",\n".join(lines) + "\n}}\n"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
        tables.table.cache_clear()
    held = path.read_text(encoding="utf-8")
    if json.loads(held)["server"] != server:
        pytest.skip(f"the table is of {json.loads(held)['server']}, and this host has {server}")
    assert held == text


def limits(entry: dict[str, Any], low: str | None, high: str | None) -> dict[str, Any]:
    for key, text in (("low", low), ("high", high)):
        if text is not None:
            number = float(text)
            entry[key] = int(text) if number.is_integer() and "e" not in text.lower() and "." not in text else number
    return entry


@pytest.mark.server
def test_the_table_of_postgresql_is_that_of_the_embedded_server(postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as connection:
        major = connection.info.server_version // 10_000
        rows = connection.execute(POSTGRES).fetchall()
    found: dict[str, dict[str, Any]] = {}
    refused: list[str] = []
    for name, kind, unit, low, high, words, value in rows:
        if parameter_names.objection(name):
            refused.append(name.lower())
            continue
        entry = limits({"kind": KINDS[kind]} | ({"unit": unit} if unit else {}), low, high)
        found[name.lower()] = entry | ({"words": words} if words else {})
        known = tables.read({"server": "", "settings": {"x": found[name.lower()]}}).settings["x"]
        assert known.kind == "text" or known.low is None or float(value) >= known.low or float(value) == -1
    compared("postgres", f"PostgreSQL {major}", found, refused)


@pytest.mark.server
def test_the_table_of_mariadb_is_that_of_the_host_s_server(mysql_server: embedded_mysql.Server) -> None:
    endpoint = Endpoint(system="shared", engine="mysql", dsn=mysql_server.dsn)
    with contextlib.closing(adapter("mysql").query_session(endpoint)) as session:
        version = str(session.rows("SELECT VERSION()", 1)[1][0][0])
        _, rows = session.rows(MARIADB, 2_000)
    types = {str(name): mariadb_entry(str(kind), low, high, words) for name, kind, low, high, words in rows}
    options = sorted(set(mariadb_options()))
    allowed = [name for name in options if tables.mysql_objection(name) is None]
    found = {name: types.get(name, {"kind": "text"}) for name in allowed}
    refused = [name for name in options if name not in found]
    compared("mysql", f"MariaDB {'.'.join(version.split('.')[:2])}", found, refused)


def mariadb_options() -> list[str]:
    """The names of the options that the server takes when it starts: the table at the end of its help."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *embedded_mysql.FOLDERS))
    program = shutil.which("mariadbd", path=path)
    assert program is not None
    argv = [program, "--no-defaults", "--verbose", "--help"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    _, _, listed = text.partition("\n---")
    return [line.split()[0].replace("-", "_") for line in listed.splitlines()[1:] if re.match("[a-z][a-z0-9-]* ", line)]


def mariadb_entry(kind: str, low: Any, high: Any, words: Any) -> dict[str, Any]:
    if kind == "BOOLEAN":
        return {"kind": "bool"}
    if kind in ("ENUM", "SET", "FLAGSET"):
        return {"kind": "enum" if kind == "ENUM" else "set", "words": str(words).split(",")}
    if kind == "DOUBLE" or "INT" in kind:
        number = "real" if kind == "DOUBLE" else "int"
        return limits({"kind": number}, *(None if end is None else str(end) for end in (low, high)))
    return {"kind": "text"}


def test_settings_that_a_server_takes() -> None:
    """Those that it refuses are in tests/golden/bad/server-settings.yaml."""
    taken = {
        "postgres": """work_mem=4MB work_mem=4096 fsync=off synchronous_commit=remote_apply jit=true hnsw.x=1
            wal_writer_delay=10ms random_page_cost=1.1 Work_Mem=64kB log_min_duration_statement=-1
            synchronous_commit=on max_wal_size=4GB""",
        "mysql": """innodb_buffer_pool_size=512M innodb-flush-log-at-trx-commit=2 binlog_format=ROW autocommit=ON
            innodb_flush_method=O_DIRECT log_bin=name sql_mode=STRICT_ALL_TABLES,NO_ZERO_DATE
            optimizer_switch=index_merge=off""",
    }
    pairs = [(engine, *setting.split("=", 1)) for engine, text in taken.items() for setting in text.split()]
    pairs.append(("postgres", "cpu_tuple_cost", "0.00001"))
    pairs.append(("postgres", "shared_buffers", "1 GB"))
    assert [pair for pair in pairs if setting_objection(*pair) is not None] == []


# ---- parameters of PostgreSQL, by `settings:` and by the operation `postgres_settings`, in one rule

REFUSED = """
archive_command archive_cleanup_command restore_command recovery_end_command ssl_passphrase_command archive_library
shared_preload_libraries session_preload_libraries local_preload_libraries oauth_validator_libraries
dynamic_library_path extension_control_path jit_provider
data_directory config_file hba_file ident_file external_pid_file log_directory log_filename log_destination
logging_collector stats_temp_directory krb_server_keyfile ssl_cert_file ssl_crl_dir promote_trigger_file include
include_dir include_if_exists unix_socket_directories primary_conninfo timezone_abbreviations jit_dump_bitcode
listen_addresses port unix_socket_group unix_socket_permissions ssl password_encryption allow_alter_system
allow_system_table_mods allow_in_place_tablespaces event_triggers reserved_connections gss_accept_delegation bonjour
ignore_checksum_failure zero_damaged_pages role
work_memm plperl.on_init pltcl.start_proc some.thing wal_new_command max_new_library io_new_file track_directory
"""
"""Names of programs and libraries; of files; of ways in; and unknown names."""
ORDINARY = """
shared_buffers work_mem max_connections fsync synchronous_commit wal_level wal_compression max_wal_size
checkpoint_timeout random_page_cost enable_hashjoin jit autovacuum effective_io_concurrency io_method huge_pages
track_io_timing log_min_duration_statement log_line_prefix log_temp_files search_path DateStyle TimeZone
idle_in_transaction_session_timeout default_transaction_isolation plpgsql.extra_warnings pg_stat_statements.track
old_snapshot_threshold max_parallel_workers_per_gather commit_delay temp_file_limit cluster_name
"""


def accepted(name: str) -> list[str]:
    """The ways by which a parameter can be set: by the rule, by the operation, by an embedded server's agent."""
    ways = (("rule", name), ("rule in capitals", name.upper()))
    found = [way for way, written in ways if not parameter_names.objection(written)]
    with contextlib.suppress(ValidationError):
        PostgresSettings.model_validate({"system": "db", "settings": {name.lower(): "1"}})
        found.append("operation")
    with contextlib.suppress(embedded_postgres.TaskFault):
        assert f"{name} = '1'" in embedded_postgres.configuration([(name, "1")], ["/s"])
        found.append("agent")
    return found


def test_parameters_with_programs_files_or_addresses_are_refused_everywhere_and_ordinary_ones_accepted() -> None:
    assert {name: ways for name in REFUSED.split() if (ways := accepted(name))} == {}
    everywhere = ["rule", "rule in capitals", "operation", "agent"]
    assert {name: ways for name in ORDINARY.split() if (ways := accepted(name)) != everywhere} == {}
    own = {"dynamic_shared_memory_type", "password_encryption"}
    assert {name for name, _ in embedded_postgres.DEFAULTS if parameter_names.objection(name)} == own
    reasons = {
        "archive_command": "run or load",
        "log_directory": "names a file",
        "listen_addresses": "reached",
        "work_memm": "not among",
    }
    assert [name for name, why in reasons.items() if why not in parameter_names.objection(name)] == []


# ---- settings of sessions


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("postgres", "work_mem; DROP TABLE x", "1"),
        ("postgres", "role", "postgres"),
        ("postgres", "ROLE", "postgres"),
        ("postgres", "session_preload_libraries", "evil"),
        ("postgres", "dynamic_library_path", "x"),
        ("postgres", "work_mem", "1\n2"),
        ("mysql", "sort_buffer_size", "1'; DROP TABLE x; --"),
        ("mysql", "sql_mode", "a\\"),
        ("mysql", "@@global.x", "1"),
        ("mysql", "autocommit", "0"),
        ("sqlite", "journal_mode", "OFF"),
        ("sqlite", "cache_size", "1; DROP TABLE x"),
        ("sqlite", "writable_schema", "1"),
        ("oracle", "optimizer_mode", "'x' events '10046'"),
        ("oracle", "container", "CDB$ROOT"),
        ("oracle", "force_parallel_query", "all"),
        ("duckdb", "threads", "all"),
        ("duckdb", "temp_directory", "/etc"),
        ("duckdb", "force_compression", "zstd"),
        ("duckdb", "memory_limit", "1GB&enable_external_access=true"),
    ],
)
def test_refused_settings(engine: str, name: str, value: str) -> None:
    assert objection(engine, name, value)


@pytest.mark.parametrize(
    ("engine", "name", "value", "text"),
    [
        ("postgres", "max_parallel_workers_per_gather", "2", "SELECT set_config($1, $2, false)"),
        ("mysql", "join_buffer_size", "262144", "SET SESSION join_buffer_size = 262144"),
        ("mysql", "optimizer_switch", "mrr=on,mrr_cost_based=off", "SET SESSION optimizer_switch = "
        "'mrr=on,mrr_cost_based=off'"),
        ("sqlite", "mmap_size", "268435456", "PRAGMA mmap_size = 268435456"),
        ("oracle", "optimizer_mode", "ALL_ROWS", "ALTER SESSION SET optimizer_mode = ALL_ROWS"),
        ("oracle", "nls_date_format", "YYYY-MM-DD", "ALTER SESSION SET nls_date_format = 'YYYY-MM-DD'"),
        ("oracle", "force_parallel_query", "32", "ALTER SESSION FORCE PARALLEL QUERY PARALLEL 32"),
        ("oracle", "force_parallel_query", "0", "ALTER SESSION DISABLE PARALLEL QUERY"),
        ("timesten", "isolation", "1", "ALTER SESSION SET isolation = 1"),
    ],
)  # fmt: skip
def test_statements_of_a_setting(engine: str, name: str, value: str, text: str) -> None:
    assert objection(engine, name, value) == ""
    dialect = "oracle" if engine == "timesten" else engine
    made, arguments = statement(dialect, name, value)  # type: ignore[arg-type]
    assert made.text[dialect] == text  # type: ignore[index]
    assert arguments == ((name, value) if engine == "postgres" else ())


@pytest.mark.parametrize(
    ("engine", "own"),
    [
        ("postgres", {"max_parallel_workers_per_gather": "3"}),
        ("duckdb", {"threads": "4"}),
        ("oracle", {"force_parallel_query": "4"}),
    ],
)
def test_a_degree_of_parallelism_is_the_engines_own_setting(engine: str, own: dict[str, str]) -> None:
    assert objection(engine, "degree", "4") == ""
    assert expanded(engine, {"degree": "4"}) == own
    assert all(objection(engine, name, value) == "" for name, value in own.items())


@pytest.mark.parametrize(("engine", "value"), [("sqlite", "2"), ("mysql", "2"), ("postgres", "0"), ("duckdb", "all")])
def test_an_impossible_degree_is_refused_and_left_as_it_is(engine: str, value: str) -> None:
    assert "degree" in objection(engine, "degree", value)
    assert expanded(engine, {"degree": value}) == {"degree": value}
