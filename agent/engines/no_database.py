"""The adapter of systems that proveout does not connect to: a storage, or a service that only the load's program knows.

Nothing of it can fail, so that such a system is always up.
"""

from __future__ import annotations

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import EngineAdapter, Settings
from proveout.agent.engines.driver_contract import Driver
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint


class NoDatabaseAdapter(EngineAdapter):
    """See `adapter` for the protocols, of which it implements no optional one."""

    requirement = ""
    disk_full_codes: frozenset[str] = frozenset()
    reports_effects = False

    def driver(self) -> Driver:
        """Refuse it. TaskFault."""
        raise TaskFault("invalid", "a system of engine none has no driver", way_out="a workload of kind program")

    async def settings(self, endpoint: Endpoint) -> Settings:
        """Return an empty version."""
        del endpoint
        return (("version", ""),)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        """Refuse them. TaskFault."""
        raise TaskFault("invalid", f"system {endpoint.system!r} is not a database, so that it runs no SQL")
