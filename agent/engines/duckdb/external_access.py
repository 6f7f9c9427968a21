"""Confine every DuckDB connection of a plan to the file that it was opened for.

DuckDB runs inside the process that opens the file, so SQL of a plan can name other files of the host: `COPY`,
`read_csv` and similar functions, `ATTACH`, `EXPORT DATABASE`, `INSTALL`, `LOAD`, settings that hold paths; and
variables of Python as tables. `open_database` is the only place that opens a connection. It turns off external access
and extensions, and locks the configuration, so that SQL cannot turn them on again (ADR 58, ADR 73). DuckDB reads and
writes the file itself, its write-ahead log, and `<file>.tmp` for rows that do not fit into the memory limit.

Flow: `open_database(dsn, settings)` -> path and settings of the dsn -> the connection; a denied statement
raises DuckDB's PermissionException or another error of it, which the caller reports.

One process at a time has the file open for writing; several may have it open for reading. While another process has it,
`open_database` tries again until `wait_s` is over. Source: DuckDB "Securing DuckDB", "Concurrency".
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from proveout.dsl.rules import duckdb_settings

CONFINED: Final[Mapping[str, str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "lock_configuration": "true",
}
BUSY_S = 10.0
BUSY_PAUSE_S = 0.05
BUSY = ("Conflicting lock is held", "different configuration", "already attached")
"""Messages of DuckDB when another process, or this one with other settings, has the file open."""

DENIED_HINT = "a plan's SQL reaches the system's own file only: no COPY, read_csv, ATTACH, EXPORT, INSTALL, LOAD or SET"


def _mark_missing_pandas() -> None:
    """Let imports of pandas fail at once where it is not installed.

    DuckDB's client compares every argument with pandas' NaT and NA, and tries to import pandas twice for each while it
    is not there: 150 µs a value, which was most of the time of an insert of many rows. None in `sys.modules` is
    Python's own mark for a module that cannot be imported; pyarrow, which does not know it, looks for pandas once,
    before.
    """
    if "pandas" not in sys.modules and importlib.util.find_spec("pandas") is None:
        pa.array([0])
        sys.modules["pandas"] = None  # type: ignore[assignment]


def open_database(dsn: str, *, read_only: bool = False, wait_s: float = BUSY_S) -> duckdb.DuckDBPyConnection:
    """A confined connection to the file of a dsn, which is made when it is missing (not with `read_only`).

    duckdb.Error when it cannot be opened, or when another process still has it open after `wait_s`.
    """
    path, settings = duckdb_settings.split_dsn(dsn)
    if not Path(path).is_absolute():
        raise duckdb.IOException(f"{path!r} is not the absolute path of a DuckDB file")  # `md:`, `:memory:`, a URL
    for name, value in settings.items():
        if objection := duckdb_settings.objection(name, value):
            raise duckdb.InvalidInputException(objection)
    switches = {"on": "true", "off": "false"}
    plain = {name: switches.get(value, value) for name, value in settings.items()}
    config: dict[str, str | bool | int | float | list[str]] = {**plain, **CONFINED}
    _mark_missing_pandas()
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return duckdb.connect(path, read_only=read_only, config=config)
        except duckdb.Error as error:
            if time.monotonic() >= deadline or not any(words in str(error) for words in BUSY):
                raise
            time.sleep(BUSY_PAUSE_S)
