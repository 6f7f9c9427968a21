"""A terminal's turn: from a readable connection through the transactions that end on it, compiled where that was built.

`turns(terminal, limit_ns)` reads the answer, sends the next statement, records what ends, and begins the next
transaction of a `restless` terminal (closed arrival, no thinking) at once, at most SPECULATION times in a row. It returns
- WAIT: a statement is under way, and its answer is not there yet;
- NEXT: a transaction has ended at `ended_ns` and is recorded; the next one is the engine's to begin;
- SETTLE: a failed transaction's rollback has ended, with `outcome`;
- TICK: a transaction has ended with `outcome`, at `limit_ns` or later, and is not recorded.
Raises StatementFailure.

`serve(epoll, terminals, loop)` waits, and gives every terminal (by its descriptor) that is readable its turn, until the load is over.

After a send it reads the same connection again before anyone waits: on one machine the server has often answered by then,
and half of the epoll calls go. pgbench does the same without a bound.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from proveout.agent.load.loop.transaction_loop_python import (
    KindState,
    Script,
    TerminalState,
    Times,
    again,
    first,
    serve,
    turns,
)
from proveout.agent.load.loop.turn_ends import NEXT, SETTLE, SPECULATION, TICK, WAIT

if not TYPE_CHECKING and not os.environ.get("PROVEOUT_PURE_PYTHON"):
    with contextlib.suppress(ImportError):
        from proveout.agent.load.loop.transaction_loop_native import (
            KindState,
            Script,
            TerminalState,
            Times,
            serve,
            turns,
        )

__all__ = [
    "NEXT",
    "SETTLE",
    "SPECULATION",
    "TICK",
    "WAIT",
    "KindState",
    "Script",
    "TerminalState",
    "Times",
    "again",
    "first",
    "serve",
    "turns",
]
