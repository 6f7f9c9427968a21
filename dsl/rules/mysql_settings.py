"""MySQL settings that a plan may give to a server that proveout starts. Pure; the compiler and agents apply the same
rule.

The rule allows: a name passes when it belongs to a family whose settings are numbers, switches and words. What names a
program, a plugin, a file, a folder or an address is in no family. MySQL takes any unambiguous beginning of an option's
name, and `loose_` before it, so a name that begins one of those is refused as well. Source: MariaDB Server System
Variables; `mariadbd --verbose --help`.
"""

from __future__ import annotations

import re

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
_ALLOWED = re.compile("|".join(FAMILIES))

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


def objection(name: str, value: str = "") -> str | None:
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
    if not _ALLOWED.fullmatch(plain):
        return f"`{name}` is not among the settings that a plan may give to an embedded server"
    if plain == "log_bin" and not re.fullmatch(r"\w*", value):
        return f"the value of `{name}` must be on, off or a plain name: proveout chooses the place of the log"
    return None
