"""The start of the server of a load, as it reports it: two answers, before and after the load, tell a restart.

PostgreSQL, and MariaDB and MySQL where the user may read their status; of any other no answer.
"""

from __future__ import annotations

from contextlib import suppress

from proveout.agent.load.commit_log import Connect, Waits, asked
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Statement

_UPTIME = "SELECT CAST((UNIX_TIMESTAMP() - variable_value) * 1000 AS SIGNED) FROM {} WHERE variable_name = 'Uptime'"
_TEXTS: tuple[dict[Dialect, str], ...] = (
    {"postgres": "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint"},
    {"mysql": _UPTIME.format("information_schema.global_status")},
    {"mysql": _UPTIME.format("performance_schema.global_status")},
)
_STARTED = tuple(
    Statement(name=f"proveout_server_start_{number}", text=text, arguments=(), columns=(int,), rows_max=1)
    for number, text in enumerate(_TEXTS)
)


def server_start_ms(connect: Connect, waits: Waits, dialect: Dialect) -> int | None:
    """The Unix time of the server's start on its own clock, ms; None when it gives no answer."""
    for statement in _STARTED:
        if dialect in statement.text:
            with suppress(ProveoutError):  # the connection too may fail
                if rows := asked(connect, waits, statement):
                    return int(rows[0][0])
    return None
