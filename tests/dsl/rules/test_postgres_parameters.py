"""Parameters of PostgreSQL that a plan may set: by `settings:`, and by the operation `postgres_settings`, in one
rule."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proveout.agent.engines.postgres import settings as embedded
from proveout.dsl.operations.database.postgres_parameters import objection
from proveout.dsl.operations.database.postgres_settings import PostgresSettings

PROGRAMS_AND_LIBRARIES = (
    "archive_command", "archive_cleanup_command", "restore_command", "recovery_end_command", "ssl_passphrase_command",
    "archive_library",
    "shared_preload_libraries", "session_preload_libraries", "local_preload_libraries", "oauth_validator_libraries",
    "dynamic_library_path",
    "extension_control_path", "jit_provider",
)  # fmt: skip
FILES = (
    "data_directory", "config_file", "hba_file", "ident_file", "external_pid_file", "log_directory", "log_filename",
    "log_destination",
    "logging_collector", "stats_temp_directory", "krb_server_keyfile", "ssl_cert_file", "ssl_crl_dir",
    "promote_trigger_file", "include",
    "include_dir", "include_if_exists", "unix_socket_directories", "primary_conninfo", "timezone_abbreviations",
    "jit_dump_bitcode",
)  # fmt: skip
WAY_IN = (
    "listen_addresses", "port", "unix_socket_group", "unix_socket_permissions", "ssl", "password_encryption",
    "allow_alter_system",
    "allow_system_table_mods", "allow_in_place_tablespaces", "event_triggers", "reserved_connections",
    "gss_accept_delegation", "bonjour",
    "ignore_checksum_failure", "zero_damaged_pages", "role",
)  # fmt: skip
UNKNOWN = (
    "work_memm",
    "plperl.on_init",
    "pltcl.start_proc",
    "some.thing",
    "wal_new_command",
    "max_new_library",
    "io_new_file",
    "track_directory",
)
ORDINARY = (
    "shared_buffers", "work_mem", "max_connections", "fsync", "synchronous_commit", "wal_level", "wal_compression",
    "max_wal_size",
    "checkpoint_timeout", "random_page_cost", "enable_hashjoin", "jit", "autovacuum", "effective_io_concurrency",
    "io_method", "huge_pages",
    "track_io_timing", "log_min_duration_statement", "log_line_prefix", "log_temp_files", "search_path", "DateStyle",
    "TimeZone",
    "idle_in_transaction_session_timeout", "default_transaction_isolation", "plpgsql.extra_warnings",
    "pg_stat_statements.track",
    "old_snapshot_threshold", "max_parallel_workers_per_gather", "commit_delay", "temp_file_limit", "cluster_name",
)  # fmt: skip


@pytest.mark.parametrize("name", [*PROGRAMS_AND_LIBRARIES, *FILES, *WAY_IN, *UNKNOWN])
def test_parameters_with_programs_files_or_addresses_are_refused_everywhere(name: str) -> None:
    assert objection(name)
    assert objection(name.upper())
    with pytest.raises(ValidationError):
        PostgresSettings.model_validate({"system": "db", "settings": {name: "x"}})
    with pytest.raises(embedded.TaskFault):
        embedded.configuration([(name, "x")], ["/s"])


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_parameters_are_accepted_everywhere(name: str) -> None:
    assert objection(name) == ""
    PostgresSettings.model_validate({"system": "db", "settings": {name.lower(): "1"}})
    assert f"{name} = '1'" in embedded.configuration([(name, "1")], ["/s"])


def test_the_reasons_describe_the_parameter() -> None:
    assert "run or load" in objection("archive_command")
    assert "names a file" in objection("log_directory")
    assert "reached" in objection("listen_addresses")
    assert "not among" in objection("work_memm")


def test_default_settings_of_an_embedded_server_pass_the_rule_or_are_reserved() -> None:
    own = {"dynamic_shared_memory_type", "password_encryption"}
    assert {name for name, _ in embedded.DEFAULTS if objection(name)} == own
