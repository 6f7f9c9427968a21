"""Settings of embedded servers against their tables, and the tables against the servers that are installed.

`PROVEOUT_UPDATE_GOLDEN=1 python -m pytest tests/dsl/rules/test_server_settings.py` writes the tables again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.table import adapter
from proveout.dsl.operations import parameter_names
from proveout.dsl.rules import settings as rules_settings
from proveout.dsl.rules import settings as tables
from proveout.dsl.rules.session_settings import setting_objection
from proveout.proto.wire.tasks import Endpoint

UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))
ROWS_MAX = 2_000
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
    session = adapter("mysql").query_session(endpoint)
    try:
        version = str(session.rows("SELECT VERSION()", 1)[1][0][0])
        _, rows = session.rows(MARIADB, ROWS_MAX)
    finally:
        session.close()
    types = {str(name): mariadb_entry(str(kind), low, high, words) for name, kind, low, high, words in rows}
    options = sorted(set(mariadb_options()))
    allowed = [name for name in options if rules_settings.mysql_objection(name) is None]
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
    assert [
        pair for pair in (*pairs, ("postgres", "shared_buffers", "1 GB")) if setting_objection(*pair) is not None
    ] == []
