"""Parameters of PostgreSQL and Oracle that plans may set. No pydantic: the policy of a host uses them."""

from __future__ import annotations

import re

# The rule allows: a name passes when it belongs to a family whose parameters are numbers, switches and words (memory,
# planner, WAL, vacuum, replication limits …). What names a program, a library, a file or an address, or decides who is
# let in, is in no family; the ending of a name refuses it even within one, for parameters of releases that are not
# known here. Source: PostgreSQL 18, chapter 19.

FAMILIES = (
    # memory, disk, kernel, processes
    "shared_buffers|huge_page.*|temp_buffers|work_mem|hash_mem_multiplier|.*_work_mem|logical_decoding_work_mem|max_.*|min_.*|"
    "shared_memory_type|temp_file_limit|file_copy_method|file_extend_method|.*_buffers|"
    "vacuum_buffer_usage_limit|parallel_leader_participation|.*io_concurrency|io_.*|backend_flush_after|bgwriter_.*",
    # write-ahead log, checkpoints, archiving
    "fsync|full_page_writes|synchronous_commit|synchronous_standby_names|synchronized_standby_slots|sync_replication_slots|wal_.*|"
    "commit_delay|commit_siblings|commit_timestamp_buffers|track_commit_timestamp|checkpoint_.*|archive_mode|archive_timeout|"
    "summarize_wal|recovery_prefetch|recovery_init_sync_method|recovery_min_apply_delay|data_sync_retry|hot_standby.*|"
    "primary_slot_name|idle_replication_slot_timeout|old_snapshot_threshold",
    # planner and executor
    "enable_.*|.*_cost|geqo.*|effective_cache_size|constraint_exclusion|cursor_tuple_fraction|default_statistics_target|"
    "(from|join)_collapse_limit|plan_cache_mode|recursive_worktable_factor|jit|jit_(above|inline_above|optimize_above)_cost|"
    "jit_expressions|jit_tuple_deforming|force_parallel_mode|debug_parallel_query|gin_.*|synchronize_seqscans|compute_query_id",
    # vacuum, statistics, locks, crashes
    "autovacuum.*|vacuum_.*|track_.*|stats_fetch_consistency|deadlock_timeout|restart_after_crash|remove_temp_files_after_crash|exit_on_error",
    # session behaviour
    "(statement|lock|transaction|idle_session|idle_in_transaction_session)_timeout|default_(transaction_.*|toast_compression|tablespace|"
    "table_access_method|text_search_config|with_oids)|temp_tablespaces|search_path|session_replication_role|row_security|"
    "check_function_bodies|bytea_output|xmlbinary|xmloption|datestyle|intervalstyle|timezone|extra_float_digits|icu_validation_level|"
    "lc_(messages|monetary|numeric|time)|client_(min_messages|encoding|connection_check_interval)|tcp_.*|scram_iterations|"
    "array_nulls|backslash_quote|escape_string_warning|standard_conforming_strings|quote_all_identifiers|transform_null_equals|"
    "createrole_self_grant|lo_compat_privileges|restrict_nonsystem_relation_kind|application_name",
    # contents of the log, not its destination
    "log_(autovacuum_min_duration|checkpoints|connections|disconnections|duration|error_verbosity|hostname|line_prefix|lock_.*|"
    "parameter_max_length.*|recovery_conflict_waits|replication_commands|statement.*|temp_files|timezone|min_.*|"
    "startup_progress_interval|transaction_sample_rate|executor_stats|parser_stats|planner_stats|rotation_.*|truncate_on_rotation)|"
    "cluster_name|update_process_title|debug_(print_.*|pretty_print|discard_caches|io_direct|logical_replication_streaming|deadlocks)|"
    "trace_.*|send_abort_for_.*|backtrace_functions|(pre|post)_auth_delay",
    # extensions whose parameters are numbers, switches and words
    r"(auto_explain|hnsw|ivfflat|pg_prewarm|pg_stat_statements|plpgsql)\.[a-z0-9_]+",
)  # fmt: skip
RUNS_PROGRAMS = (
    r".*_command|.*_library|.*_libraries|.*_provider|(dynamic_library|extension_control)_path|.*_program|.*_script"
)
NAMES_FILES = (
    r".*_(file|filename|directory|directories|dir|conninfo)|config_files|include.*|log_destination|logging_collector"
)
WAY_IN = (
    r"listen_addresses|port|unix_socket_.*|ssl.*|password_encryption|allow_.*|authentication_timeout|.*reserved_connections|"
    r"event_triggers|krb_.*|gss_.*|ignore_.*|zero_damaged_pages|role|session_authorization|is_superuser"
)
ALLOWED = "|".join(FAMILIES)
REFUSED = f"{RUNS_PROGRAMS}|{NAMES_FILES}|{WAY_IN}"
"""Both as PostgreSQL's own `~` reads them too: an embedded server grants by them."""
_REFUSALS = (
    (RUNS_PROGRAMS, "makes the server run or load something"),
    (NAMES_FILES, "names a file or where the server writes"),
    (WAY_IN, "decides how the server is reached or what it trusts"),
)
WAY_OUT = "set it on a server of your own, and give the system its dsn"
"""The advice for a setting that an embedded server does not accept, of any engine."""


def objection(name: str) -> str:
    """The reason why a plan cannot set a parameter; "" when it can. Case is ignored.

    >>> objection("work_mem")
    ''
    >>> objection("archive_command")
    '`archive_command` makes the server run or load something, so no plan sets it'
    """
    for pattern, why in _REFUSALS:
        if re.fullmatch(pattern, name.lower()):
            return f"`{name}` {why}, so no plan sets it"
    return "" if re.fullmatch(ALLOWED, name.lower()) else f"`{name}` is not among the parameters that a plan may set"


# Three groups: parameters that no plan sets, because they decide the identity of the database, how it is reached or
# where it writes; parameters that the owner of the host consents to by name (hidden ones, and `CONSENT`); and all
# others. Source: Database Reference; DISPATCHERS: its syntax there, without ADDRESS, DESCRIPTION and LISTENER, which
# decide where the database is reached.

NAME = re.compile(r"_?[a-z][a-z0-9_]{0,79}")
_NEVER = (
    r"(local_|remote_)?listener.*|.*_listener|remote_login.*|remote_os.*|os_authent_prefix|os_roles|sec_.*|audit_.*|spfile|ifile|"
    r"control_files|db_name|db_unique_name|instance_name|instance_number|thread|.*_dump_dest|diagnostic_dest|o7_dictionary.*|"
    r"utl_file_dir|enable_ddl_logging|ldap_.*|wallet_root|tde_.*|dispatchers|service_names|cluster_database"
)
CONSENT = frozenset({"audit_trail", "dispatchers"})
AUDIT_TRAILS = ("none", "os", "db", "xml")
_DISPATCHERS = (
    r"(?i)\(PROTOCOL=(TCP|TCPS)\)( ?\((SERVICE=[A-Za-z][A-Za-z0-9_.$#-]{0,63}"
    r"|(DISPATCHERS|CONNECTIONS|SESSIONS|TICKS)=[0-9]{1,5}"
    r"|(POOL|MULTIPLEX)=(ON|OFF))\)){0,8}"
)
STORED_ONLY = frozenset({"dispatchers"})
"""Parameters that ALTER SYSTEM could change at once, but of which running processes keep the old value."""


def is_hidden(name: str) -> bool:
    """Whether it is a hidden parameter, which Oracle does not document."""
    return name.startswith("_")


def needs_consent(name: str) -> bool:
    """Whether the policy of the host must list it."""
    return NAME.fullmatch(name) is not None and (name in CONSENT or (is_hidden(name) and not _is_never(name)))


def _is_never(name: str) -> bool:
    return name not in CONSENT and re.fullmatch(_NEVER, name.removeprefix("_")) is not None


def name_objection(name: str) -> str:
    """The reason why no plan may set a parameter; "" where it may."""
    if not NAME.fullmatch(name):
        return f"`{name}` is not the name of an initialization parameter, as sga_target"
    if _is_never(name):
        return (
            f"`{name}` decides the identity of the database, how it is reached or what it records, so no plan sets it"
        )
    return ""


def value_objection(name: str, value: str) -> str:
    """The reason against a value of a parameter; "" where there is none."""
    if name == "audit_trail" and value.lower() not in AUDIT_TRAILS:
        return f"audit_trail is one of {', '.join(AUDIT_TRAILS)}, not {value!r}"
    if name == "dispatchers" and not re.fullmatch(_DISPATCHERS, value):
        return (
            f"dispatchers is (PROTOCOL=TCP)(SERVICE=orclXDB)(DISPATCHERS=3), without addresses and listeners: {value!r}"
        )
    return ""


def in_sql(name: str) -> str:
    """The name in a statement: a hidden one in double quotes."""
    return f'"{name}"' if is_hidden(name) else name
