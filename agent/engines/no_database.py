"""The parts of systems that proveout does not connect to: a storage, or a service that only the load's program knows.

Nothing of it can fail, so that such a system is always up.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.agent.engines.adapter import Settings
from proveout.agent.engines.driver_contract import Driver
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint


def driver() -> Driver:
    """Refuse it. TaskFault."""
    raise TaskFault("invalid", "a system of engine none has no driver", way_out="a workload of kind program")


def settings(endpoint: Endpoint) -> Settings:
    """Return an empty version."""
    del endpoint
    return (("version", ""),)


def run_sql(endpoint: Endpoint, statements: Sequence[str]) -> tuple[int, ...]:
    """Refuse them. TaskFault."""
    raise TaskFault("invalid", f"system {endpoint.system!r} is not a database, so that it runs no SQL")
