"""The roles and the configuration of an embedded PostgreSQL."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import ENVIRONMENT, USER
from proveout.agent.errors import TaskFault
from proveout.dsl.operations.parameter_names import ALLOWED, REFUSED, WAY_OUT, objection
from proveout.proto.wire.tasks import Endpoint, LinkSystems

# The defaults are those of a small, durable server that replicates:
# - durability as shipped (`fsync`, `full_page_writes`, `synchronous_commit` on) unless the plan sets them otherwise;
# - `wal_level = logical` with slots and workers for propagation;
# - checkpoints every 15 min or 2 GB of WAL, spread over 0.9 of the interval, so that a short iteration is not cut by
#   one that it did not cause (`reset` and `Checkpoint` write out before);
# - `shared_buffers` 256 MB, 300 connections; unix socket only, no TLS (nothing leaves the machine);
# - dynamic shared memory out of 64 MB of the main segment, and in the data directory beyond it, so that a killed server
#   leaves nothing in /dev/shm.

PORT = 5432
NAME = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_$]*)*", re.IGNORECASE)

DEFAULTS: tuple[tuple[str, str], ...] = (
    ("shared_buffers", "256MB"),
    ("max_connections", "300"),
    ("wal_level", "logical"),
    ("max_wal_senders", "10"),
    ("max_replication_slots", "10"),
    ("max_worker_processes", "16"),
    ("max_logical_replication_workers", "8"),
    ("max_sync_workers_per_subscription", "4"),
    ("wal_receiver_status_interval", "1s"),
    ("wal_retrieve_retry_interval", "500ms"),
    ("max_wal_size", "2GB"),
    ("min_wal_size", "256MB"),
    ("checkpoint_timeout", "15min"),
    ("checkpoint_completion_target", "0.9"),
    ("dynamic_shared_memory_type", "mmap"),
    ("min_dynamic_shared_memory", "64MB"),
    ("password_encryption", "scram-sha-256"),
    ("scram_iterations", "1"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("lc_messages", "C"),
    ("log_line_prefix", "%m [%p] %b "),
)


def configuration(
    settings: Iterable[tuple[str, str]],
    socket_directories: Iterable[str],
    replication: Iterable[tuple[str, str]] = (),
    version: int | None = None,
) -> str:
    """The text of our configuration file: defaults, then the plan's settings, then what is not negotiable, with
    `replication`, the settings of a server's role in its group."""
    defaults = [one for one in DEFAULTS if one[0] != "scram_iterations" or has_iterations(version)]
    lines = [_line(name, value) for name, value in (*defaults, *_checked(settings), *replication)]
    lines += [
        _line("listen_addresses", ""),
        _line("port", str(PORT)),
        _line("unix_socket_directories", ", ".join(socket_directories)),
        _line("unix_socket_permissions", "0770"),
        _line("logging_collector", "off"),
        _line("log_destination", "stderr"),
    ]
    return "\n".join(lines) + "\n"


def has_iterations(version: int | None) -> bool:
    """Whether a major version has `scram_iterations`, and an initdb that takes settings; None for that of the wheel."""
    return version is None or version >= 16


def _checked(settings: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for name, value in settings:
        if not NAME.fullmatch(name):
            raise TaskFault(
                "invalid", f"{name!r} is not a PostgreSQL setting", way_out="setting names look like work_mem"
            )
        if reason := objection(name):
            raise TaskFault(
                "refused",
                f"setting {name!r} of an embedded server: {reason}",
                way_out=f"remove it from the plan, or {WAY_OUT}",
            )
        if any(ord(character) < 32 for character in value):
            raise TaskFault("invalid", f"setting {name!r} has a control character in its value")
        yield name, value


def _line(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"{name} = '{escaped}'"


# | role | may | used by |
# |---|---|---|
# | `proveout` | own the database and its schema; pg_monitor; checkpoint; set plans' parameters | SQL of plans |
# | `proveout_replication` | replicate; read tables that the plan's role grants | links, standbys |
# | `proveout_administrator` | everything (superuser) | fixed statements about the link's subscription |
#
# A plan's role is not a superuser and is a member of none of pg_execute_server_program, pg_read_server_files,
# pg_write_server_files, pg_create_subscription, and it cannot replicate (a replication slot loads the library that its
# plugin names): it starts no program, reads and writes no file of the host, loads no library, and connects nowhere.

DATABASE = "postgres"
ADMINISTRATOR = "proveout_administrator"
REPLICATION = "proveout_replication"
MAKE_S = 60.0

QUIET = (
    "search_path=pg_catalog,pg_temp", "track_activities=off", "log_statement=none", "log_duration=off",
    "log_min_duration_statement=-1", "log_min_duration_sample=-1", "log_min_error_statement=panic",
    "debug_print_parse=off", "debug_print_rewritten=off", "debug_print_plan=off",
)  # fmt: skip
"""The settings of an administrator's session: no name means an object of the plan's, and no view or log shows the text
of a statement, which may hold a password."""

_QUIETLY = "options='{}'".format(" ".join(f"-c{setting}" for setting in QUIET))

SEEN = {
    "pg_file_settings": "pg_show_all_file_settings()",
    "pg_replication_origin_status": "pg_show_replication_origin_status()",
}
"""Views that only superusers see unless they are granted, and their functions: what ALTER SYSTEM has stored, and what a
sink has applied."""
FUNCTIONS = ("pg_reload_conf()", "pg_stat_reset()", "pg_stat_reset_shared(text)")

GRANT_PARAMETERS = (
    "DO $$ DECLARE parameter text; BEGIN FOR parameter IN SELECT name FROM pg_settings WHERE context <> 'internal'"  # noqa: S608 - patterns of ours
    f" AND lower(name) ~ '^(?:{ALLOWED})$' AND lower(name) !~ '^(?:{REFUSED})$'"
    f" LOOP EXECUTE format('GRANT SET, ALTER SYSTEM ON PARAMETER %I TO {USER}', parameter); END LOOP; END $$"
)


def statements(state: data_store.State) -> tuple[str, ...]:
    """Return the statements that make the roles in a database cluster that has the administrator alone."""
    limits = "NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS"
    return (
        f"CREATE ROLE {USER} LOGIN {limits} NOREPLICATION PASSWORD '{state.password}'",
        f"CREATE ROLE {REPLICATION} LOGIN {limits} REPLICATION PASSWORD '{state.replication}'",
        # Whatever the owner of the database sets for it: no name means an object of the plan's, and no policy of its
        # tables is run.
        f"ALTER ROLE {REPLICATION} SET search_path = pg_catalog, pg_temp",
        f"ALTER ROLE {REPLICATION} SET row_security = off",
        f"GRANT pg_monitor, pg_checkpoint TO {USER}",
        f"ALTER DATABASE {DATABASE} OWNER TO {USER}",
        f"ALTER SCHEMA public OWNER TO {USER}",
        *(f"GRANT SELECT ON pg_catalog.{view} TO {USER}" for view in SEEN),
        *(f"GRANT EXECUTE ON FUNCTION pg_catalog.{name} TO {USER}" for name in (*SEEN.values(), *FUNCTIONS)),
        GRANT_PARAMETERS,
    )


def make_roles(server: Path, data: Path, state: data_store.State, identity: tuple[int, int] | None) -> None:
    """Run `statements` on data that no server runs on, by PostgreSQL's single-user mode: nothing listens meanwhile.
    TaskFault.

    `identity`: the user, which must have a name, and the group that own the data; None for the agent's. The passwords
    go in by the standard input; a message quotes the program's output without them.
    """
    uid, gid = identity or ("-", "-")
    argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("single_user.py")), str(uid), str(gid)]
    argv += [str(server), "--single", "-F", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic"]
    text = "".join(f"{statement}\n" for statement in statements(state))
    try:
        done = subprocess.run(
            [*argv, "-D", str(data), DATABASE],
            input=text,
            capture_output=True,
            text=True,
            timeout=MAKE_S,
            check=False,
            env=ENVIRONMENT,
        )
    except subprocess.TimeoutExpired:
        raise TaskFault("timeout", f"the roles of {data.parent} were not made within {MAKE_S:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        errors = "; ".join([line for line in lines if "ERROR" in line or "FATAL" in line] or lines)
        for secret in (state.password, state.replication, state.administrator):
            errors = errors.replace(secret, "****")
        raise TaskFault(
            "fault", f"the roles of {data.parent} could not be made (exit code {done.returncode}): {errors}"
        )


# ---- passwords -------------------------------------------------------------------------------------------------------


def administration(endpoint: Endpoint) -> str:
    """Connection string of the administrator of an embedded server of this agent's user. TaskFault when it is none."""
    session, _, state = found(endpoint)
    return f"{conninfo(session, ADMINISTRATOR, state.administrator)} {_QUIETLY}"


def administrator_conninfo(session: Path, passwords: Path) -> str:
    """The same without the password, which is in a file."""
    return f"host={session}/socket port={PORT} user={ADMINISTRATOR} dbname={DATABASE} passfile={passwords} {_QUIETLY}"


def replication(endpoint: Endpoint) -> str:
    """The same of the role that replicates."""
    session, _, state = found(endpoint)
    return conninfo(session, REPLICATION, state.replication)


def with_keys(spec: LinkSystems) -> LinkSystems:
    """The task with what its embedded ends need; whatever a coordinator has put there is replaced."""
    return replace(
        spec,
        source_key=replication(spec.source) if spec.source.provisioned else "",
        sink_key=administration(spec.sink) if spec.sink.provisioned else "",
    )


def conninfo(session: Path, role: str, password: str) -> str:
    """Connection string of a role by the socket of a session; holds its password."""
    return f"host={session}/socket port={PORT} user={role} dbname={DATABASE} password={password}"


def found(endpoint: Endpoint) -> tuple[Path, Path, data_store.State]:
    """The session, the system's own folder and the state of a server that this agent's user has started. TaskFault."""
    words: Mapping[str, str] = dict(word.partition("=")[::2] for word in endpoint.dsn.split())
    return data_store.find(Path(words.get("host", "")).parent, f"system {endpoint.system!r}", "PostgreSQL")
