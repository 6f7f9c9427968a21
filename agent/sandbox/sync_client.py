"""An aide for a thread that blocks: started by its first question, ended with the work that asks them.

Flow: `Asker()` in the agent's loop -> a thread calls `ask` -> the loop has the question put to an
aide -> the thread has its answer. An agent that has no privileges to give up answers in the thread itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.helper import Aide
from proveout.agent.tuning.database_access import ask_here
from proveout.dsl import engines
from proveout.proto.wire.tasks import Endpoint


class Asker:
    """Questions of one thread at a time; made, and ended, in the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._aides: dict[str, Aide] = {}

    def ask(self, question: str, endpoint: Endpoint, statement: str) -> Any:
        """See `databases.Ask`; called in a thread."""
        told = privileges.argument(endpoint.engine)
        if told == "-":
            return ask_here(question, endpoint, statement)
        asked = asyncio.run_coroutine_threadsafe(self._asked(told, question, endpoint, statement), self._loop)
        return asked.result()

    async def end(self) -> None:
        """End the processes."""
        for aide in self._aides.values():
            await aide.close(keep_data=True)
        self._aides = {}

    async def _asked(self, told: str, question: str, endpoint: Endpoint, statement: str) -> Any:
        kind = endpoint.engine if engines.of(endpoint.engine).own_process else ""
        aide = self._aides.get(kind)
        if aide is None:
            aide = self._aides[kind] = Aide(told, endpoint.engine)
        return await aide.call(question, endpoint, statement=statement)
