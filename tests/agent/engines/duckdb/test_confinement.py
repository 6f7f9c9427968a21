"""DuckDB is not built in as an engine yet. Its answers to the questions that SQLite raised, held by the library itself
(ADR 58).

`CONFINED` is how an adapter for DuckDB must open its file. Each attack is tried with it, and without it, where most of
them work.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

pytestmark = pytest.mark.server

CONFINED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "lock_configuration": "true",
}
CANARY = "CANARY"

ATTACKS = {
    "COPY TO": "COPY item TO '{outside}'",
    "COPY FROM": "CREATE TABLE t (w VARCHAR); COPY t FROM '{secret}'; SELECT * FROM t",
    "read_csv": "SELECT * FROM read_csv('{secret}', header = false)",
    "read_text": "SELECT content FROM read_text('{secret}')",
    "read_blob": "SELECT content FROM read_blob('{secret}')",
    "file as a table": "SELECT * FROM '{secret}'",
    "glob": "SELECT * FROM glob('{folder}/*')",
    "sniff_csv": "SELECT * FROM sniff_csv('{secret}')",
    "ATTACH": "ATTACH '{outside}' AS other; CREATE TABLE other.t (a INTEGER); CHECKPOINT other",
    "EXPORT DATABASE": "EXPORT DATABASE '{outside}'",
    "IMPORT DATABASE": "IMPORT DATABASE '{folder}'",
    "INSTALL": "INSTALL httpfs",
    "LOAD by path": "LOAD '{secret}'",
    "httpfs": "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    "temporary files elsewhere": "SET temp_directory = '{folder}/elsewhere'",
    "external access again": "SET enable_external_access = true; COPY item TO '{outside}'",
    "more allowed folders": "SET allowed_directories = ['{folder}']; COPY item TO '{outside}'",
    "configuration unlocked": "SET lock_configuration = false; COPY item TO '{outside}'",
    "log to a file": "CALL enable_logging(storage = 'file', storage_config = {{'path': '{outside}'}}); SELECT 1",
    "profile to a file": "PRAGMA enable_profiling; SET profiling_output = '{outside}'; SELECT 1",
    "secret kept on disk": "CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')",
}


TRY = """
import contextlib, json, sys, duckdb
path, config, statements = json.loads(sys.argv[1])
with duckdb.connect(path, config=config) as connection:
    connection.execute("CREATE TABLE item (id INTEGER, word VARCHAR)")
    for statement in statements:
        with contextlib.suppress(duckdb.Error):
            print(connection.execute(statement).fetchall(), flush=True)
"""


def reached(config: dict[str, str], attack: str, folder: Path) -> bool:
    """Whether the attack has written a file, or has read one. In a process of its own: one of them aborts it (DuckDB
    1.5.5)."""
    secret, outside = folder / "secret.csv", folder / "outside"
    secret.write_text(f"{CANARY}\n")
    statements = attack.format(secret=secret, outside=outside, folder=folder).split("; ")
    (folder / "own").mkdir()
    told = json.dumps([str(folder / "own" / "a.duckdb"), config, statements])
    done = subprocess.run(
        [sys.executable, "-I", "-c", TRY, told], check=False, capture_output=True, text=True, timeout=60
    )
    return CANARY in done.stdout or str(secret) in done.stdout or outside.exists()


@pytest.mark.escape
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_reaches_nothing(attack: str, tmp_path: Path) -> None:
    assert not reached(CONFINED, attack, tmp_path)


def test_most_attacks_work_without_it(tmp_path: Path) -> None:
    worked = 0
    for number, attack in enumerate(ATTACKS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        worked += reached({}, attack, folder)
    assert worked >= 10


def test_a_confined_file_works_and_is_kept(tmp_path: Path) -> None:
    """The file itself, its write-ahead log and a checkpoint need no access to anything else."""
    for _ in range(2):
        with duckdb.connect(tmp_path / "a.duckdb", config=CONFINED) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS item AS SELECT range AS id FROM range(100000)")
            connection.execute("INSERT INTO item VALUES (1)")
            connection.execute("CHECKPOINT")
    with duckdb.connect(tmp_path / "a.duckdb", config=CONFINED) as connection:
        assert connection.execute("SELECT count(*) FROM item").fetchall() == [(100_002,)]
