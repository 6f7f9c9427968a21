"""Parameters of PostgreSQL that a plan may set: by `settings:`, and by the operation `postgres_settings`, in one
rule."""

from __future__ import annotations

import contextlib

from pydantic import ValidationError

from proveout.agent.engines.postgres import roles as embedded
from proveout.dsl.operations.parameter_names import objection
from proveout.dsl.operations.sql import PostgresSettings

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
    found = [way for way, written in (("rule", name), ("rule in capitals", name.upper())) if not objection(written)]
    with contextlib.suppress(ValidationError):
        PostgresSettings.model_validate({"system": "db", "settings": {name.lower(): "1"}})
        found.append("operation")
    with contextlib.suppress(embedded.TaskFault):
        assert f"{name} = '1'" in embedded.configuration([(name, "1")], ["/s"])
        found.append("agent")
    return found


def test_parameters_with_programs_files_or_addresses_are_refused_everywhere_and_ordinary_ones_accepted() -> None:
    assert {name: ways for name in REFUSED.split() if (ways := accepted(name))} == {}
    everywhere = ["rule", "rule in capitals", "operation", "agent"]
    assert {name: ways for name in ORDINARY.split() if (ways := accepted(name)) != everywhere} == {}


def test_the_reasons_describe_the_parameter() -> None:
    assert "run or load" in objection("archive_command")
    assert "names a file" in objection("log_directory")
    assert "reached" in objection("listen_addresses")
    assert "not among" in objection("work_memm")


def test_default_settings_of_an_embedded_server_pass_the_rule_or_are_reserved() -> None:
    own = {"dynamic_shared_memory_type", "password_encryption"}
    assert {name for name, _ in embedded.DEFAULTS if objection(name)} == own
