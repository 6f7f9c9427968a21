"""Settings of MySQL, of DuckDB and of servers by table: which names a plan may give, and their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from proveout.core.data_classes import record

# The rule allows: a name passes when it belongs to a family whose settings are numbers, switches and words. What names
# a program, a plugin, a file, a folder or an address is in no family. MySQL takes any unambiguous beginning of an
# option's name, and `loose_` before it, so a name that begins one of those is refused as well. Source: MariaDB Server
# System Variables; `mariadbd --verbose --help`.

FAMILIES = (
    # storage engines
    "innodb_.*|aria_.*|myisam_.*|key_(buffer|cache)_.*|bulk_insert_buffer_size|delay_key_write|concurrent_insert",
    # logs and replication: whether, how much and how often; where is proveout's
    "binlog_.*|log_bin|log_bin_(compress.*|trust_function_creators)|log_slave_updates|sync_.*|expire_logs_days|encrypt_(binlog|tmp_.*)|gtid_.*|"
    "server_id|rpl_semi_sync_.*|log_output|log_(queries_not_using_indexes|slow_.*|warnings)|long_query_time|slow_query_log|slow_launch_time|"
    "general_log|min_examined_row_limit",
    # memory, threads, connections
    "max_.*|table_.*|thread_.*|(sort|join|read|read_rnd|net|preload|mrr)_buffer_size|join_.*|query_.*|range_.*|rowid_.*|tmp_.*|open_files_limit|"
    "host_cache_size|stored_program_cache|back_log|large_pages|metadata_locks_.*|transaction_.*|tx_.*|tcp_.*|net_.*|.*_timeout|"
    "skip_name_resolve|local_infile|performance_schema.*|userstat|profiling_history_size",
    # optimizer and SQL
    "optimizer_.*|histogram_.*|use_stat_tables|analyze_.*|alter_algorithm|eq_range_index_dive_limit|expensive_subquery_limit|"
    "in_predicate_.*|sql_mode|sql_safe_updates|old_mode|autocommit|auto_increment_.*|big_tables|character_set_(filesystem|server)|"
    "collation_server|column_compression_.*|completion_type|deadlock_.*|default_(storage_engine|tmp_storage_engine|time_zone|regex_flags|week_format)|"
    "delayed_.*|div_precision_increment|event_scheduler|explicit_defaults_for_timestamp|flush|flush_time|"
    "ft_(boolean_syntax|max_word_len|min_word_len|query_expansion_limit)|group_concat_max_len|lc_time_names|low_priority_updates|"
    "lower_case_table_names|note_verbosity|read_only|session_track_.*|standard_compliant_cte|sysdate_is_now|system_versioning_.*|"
    "updatable_views_with_limit",
)  # fmt: skip
_ALLOWED = "|".join(FAMILIES)

OWN = frozenset(
    {
        "aria_log_dir_path", "basedir", "bind_address", "datadir", "defaults_extra_file", "defaults_file",
        "extra_port", "general_log_file",
        "innodb_buffer_pool_filename", "innodb_data_file_path", "innodb_data_home_dir", "innodb_log_group_home_dir",
        "innodb_status_file",
        "innodb_temp_data_file_path", "innodb_tmpdir", "innodb_undo_directory", "log_basename", "log_bin_basename",
        "log_bin_index",
        "log_error", "log_slow_query_file", "master_info_file", "pid_file", "port", "relay_log", "relay_log_info_file",
        "secure_file_priv",
        "server_uuid", "skip_grant_tables", "skip_networking", "slave_load_tmpdir", "slow_query_log_file", "socket",
        "symbolic_links",
        "tmpdir", "user",
    }
)  # fmt: skip
"""Where a server's files, sockets and accounts are: proveout sets them itself."""

CODE = frozenset(
    {
        "allow_suspicious_udfs", "chroot", "debug", "gdb", "init_connect", "init_file", "init_slave",
        "lc_messages_dir", "plugin_dir",
        "plugin_load", "plugin_load_add", "plugin_maturity", "wsrep_notify_cmd", "wsrep_provider", "wsrep_sst_method",
    }
)  # fmt: skip
"""Settings that run commands or load code."""

_FILES = re.compile(r".*(_file|_filename|_dir|_path|_directory|_basename|tmpdir|_url|_cmd)")
_PREFIXES = ("loose_", "maximum_", "enable_", "disable_")
_WHOLE = frozenset({"general_log", "log_bin", "log_slow_query", "slow_query_log"})
"""Names of settings that are beginnings of others."""


def mysql_objection(name: str, value: str = "") -> str | None:
    """The reason why an embedded server cannot have a setting; None when it can.

    >>> objection("innodb_buffer_pool_size", "1G")
    >>> objection("plugin_dir")
    '`plugin_dir` would run a command or load code on the server, which a plan cannot'
    """
    plain = name.lower().replace("-", "_")
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    if any(code.startswith(plain) or plain.startswith(code) for code in CODE):
        return f"`{name}` would run a command or load code on the server, which a plan cannot"
    if plain not in _WHOLE and any(own.startswith(plain) for own in OWN):
        return f"proveout sets `{name}` itself"
    if _FILES.fullmatch(plain):
        return f"`{name}` names a file or an address, which a plan cannot"
    if not re.fullmatch(_ALLOWED, plain):
        return f"`{name}` is not among the settings that a plan may give to an embedded server"
    if plain == "log_bin" and not re.fullmatch(r"\w*", value):
        return f"the value of `{name}` must be on, off or a plain name: proveout chooses the place of the log"
    return None


# `postgres_settings.json` is made of `pg_settings`, `mariadb_settings.json` of `mariadbd --verbose --help` and
# `information_schema.SYSTEM_VARIABLES`, by `PROVEOUT_UPDATE_GOLDEN=1 python -m pytest
# tests/dsl/test_settings.py`, which also compares them with the servers that are installed.

FILES = {"postgres": "postgres_settings.json", "mysql": "mariadb_settings.json"}
"""The table of each engine that has one."""


@record
class Setting:
    """One setting. `kind`: bool, int, real, enum, set or text; `low` and `high` are in `unit` where there is one."""

    kind: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()


@record
class Table:
    """The settings of a server that a plan may give, and the names of those that it may not; `server` is its name with
    the version that the table is of."""

    server: str
    settings: Mapping[str, Setting]
    refused: frozenset[str] = frozenset()


@cache
def table(engine: str) -> Table | None:
    """The table of an engine; None without one."""
    if engine not in FILES:
        return None
    return read(json.loads((Path(__file__).parent / FILES[engine]).read_text(encoding="utf-8")))


def read(document: Mapping[str, Any]) -> Table:
    """The table that a JSON document holds."""
    settings = {
        name: Setting(**entry | {"words": tuple(entry.get("words", ()))})
        for name, entry in document["settings"].items()
    }
    return Table(server=document["server"], settings=settings, refused=frozenset(document.get("refused", ())))


# DuckDB runs inside the process that opens the file, and its settings belong to that process. They are fixed when the
# file is opened; SQL cannot change them afterwards (`agent.engines.duckdb.driver`). So both kinds are written
# into the dsn: `PATH?threads=2&memory_limit=1GB` -> `split_dsn` -> the configuration of the connection.
#
# Source: DuckDB "Configuration", "Pragmas".

_COUNT = re.compile(r"[1-9]\d{0,3}")
_SIZE = re.compile(r"\d{1,12}(?:\.\d{1,3})? ?(?:[KMGT]i?B)")
_SWITCH = re.compile(r"on|off")
_METHOD = re.compile(r"auto|uncompressed|rle|dictionary|bitpacking|fsst|chimp|patas|alp|zstd")

SESSION: Mapping[str, re.Pattern[str]] = {
    "max_temp_directory_size": _SIZE,
    "memory_limit": _SIZE,
    "preserve_insertion_order": _SWITCH,
    "threads": _COUNT,
}
"""The settings of `session:`, with the pattern of their values."""

SETTINGS: Mapping[str, re.Pattern[str]] = {**SESSION, "checkpoint_threshold": _SIZE, "force_compression": _METHOD}
"""The settings of a system; `force_compression` applies to what is written, so a load cannot have it alone."""

_FORMS = {id(_COUNT): "a whole number from 1", id(_SIZE): "a size such as 512MB or 2GB", id(_SWITCH): "on or off"}
_DSN = re.compile(r"(?P<path>.*?)(?:\?(?P<settings>[a-z_]+=[^/?&=]+(?:&[a-z_]+=[^/?&=]+)*))?", re.DOTALL)


def duckdb_objection(name: str, value: str, among: Mapping[str, re.Pattern[str]] = SETTINGS) -> str | None:
    """The reason why a setting cannot be given; None when it can.

    >>> objection("threads", "all")
    'the value of `threads` is a whole number from 1'
    """
    pattern = among.get(name)
    if pattern is None:
        return f"`{name}` is not a setting of DuckDB that a plan gives; these are: {', '.join(sorted(among))}"
    if not pattern.fullmatch(value):
        form = _FORMS.get(id(pattern), f"one of {_METHOD.pattern.replace('|', ', ')}")
        return f"the value of `{name}` is {form}"
    return None


def split_dsn(dsn: str) -> tuple[str, dict[str, str]]:
    """The path of the file and the settings.

    >>> split_dsn("/data/a.duckdb?threads=2&memory_limit=1GB")
    ('/data/a.duckdb', {'threads': '2', 'memory_limit': '1GB'})
    """
    found = _DSN.fullmatch(dsn)
    assert found is not None  # noqa: S101 - every text matches
    pairs = (pair.partition("=") for pair in (found["settings"] or "").split("&") if pair)
    return found["path"], {name: value for name, _, value in pairs}


def join_dsn(path: str, settings: Iterable[tuple[str, str]]) -> str:
    """The dsn of a file with settings; a later setting of the same name replaces an earlier one."""
    text = "&".join(f"{name}={value}" for name, value in dict(settings).items())
    return f"{path}?{text}" if text else path
