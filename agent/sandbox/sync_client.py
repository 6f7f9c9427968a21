"""Blocking client of helper processes, for code that runs in a thread.

Flow: `SyncClient()` in the agent's event loop -> a thread calls `call` -> the event loop sends the call to a helper
process, which starts with the first call -> the thread gets the result. An agent that is not root runs the call in the
thread itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from proveout.agent.sandbox.helper import Helper
from proveout.agent.sandbox.privileges import Privileges
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.tuning.sql_access import call_here
from proveout.dsl import engines
from proveout.proto.wire.tasks import Endpoint


class SyncClient:
    """Calls of one thread at a time. Create and close it in the event loop."""

    def __init__(self, policy: Policy = NOTHING) -> None:
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self._helpers: dict[str, Helper] = {}

    def call(self, name: str, endpoint: Endpoint, statement: str) -> Any:
        """Call the function `name` of `sql_access`, from a thread. TaskFault as the function raises it."""
        privileges = Privileges.for_endpoint(endpoint, self._policy)
        if privileges.inherited:
            return call_here(name, endpoint, statement)
        result = asyncio.run_coroutine_threadsafe(self._call(privileges, name, endpoint, statement), self._loop)
        return result.result()

    async def close(self) -> None:
        """End the helper processes."""
        for helper in self._helpers.values():
            await helper.close(keep_data=True)
        self._helpers = {}

    async def _call(self, privileges: Privileges, name: str, endpoint: Endpoint, statement: str) -> Any:
        kind = f"{privileges.to_argument()}:{endpoint.engine if engines.of(endpoint.engine).own_process else ''}"
        helper = self._helpers.get(kind)
        if helper is None:
            helper = self._helpers[kind] = Helper(privileges, endpoint.engine)
        return await helper.call(name, endpoint, statement=statement)
