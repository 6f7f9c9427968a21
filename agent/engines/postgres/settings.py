"""The configuration of an embedded PostgreSQL: our defaults, and over them the plan's settings that
`dsl.operations.database.postgres_parameters` allows.

The defaults are those of a small, durable server that replicates:
- durability as shipped (`fsync`, `full_page_writes`, `synchronous_commit` on) unless the plan sets them otherwise;
- `wal_level = logical` with slots and workers for propagation;
- checkpoints every 15 min or 2 GB of WAL, spread over 0.9 of the interval, so that a short iteration is not cut by one
  that it did not cause (`reset` and `Checkpoint` write out before);
- `shared_buffers` 256 MB, 300 connections; unix socket only, no TLS (nothing leaves the machine);
- dynamic shared memory out of 64 MB of the main segment, and in the data directory beyond it, so that a killed server
  leaves nothing in /dev/shm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from proveout.agent.errors import TaskFault
from proveout.dsl.operations.database.postgres_parameters import WAY_OUT, objection

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
) -> str:
    """The text of our configuration file: defaults, then the plan's settings, then what is not negotiable, with
    `replication`, the settings of a server's role in its group."""
    lines = [_line(name, value) for name, value in (*DEFAULTS, *_checked(settings), *replication)]
    lines += [
        _line("listen_addresses", ""),
        _line("port", str(PORT)),
        _line("unix_socket_directories", ", ".join(socket_directories)),
        _line("unix_socket_permissions", "0770"),
        _line("logging_collector", "off"),
        _line("log_destination", "stderr"),
    ]
    return "\n".join(lines) + "\n"


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
