"""One turn of a terminal: from a readable connection through the transactions that end on it; compiled if the extension
was built.

`turns(terminal, limit_ns)` reads the answer, sends the next statement, and records each transaction that ends. A
`restless` terminal (closed arrival without think time) starts its next transaction at once, at most SPECULATION times
in a row. Results:
- WAIT: a statement is running, and its answer has not arrived;
- NEXT: a transaction has ended at `ended_ns` and is recorded; the load loop starts the next one;
- SETTLE: the rollback of a failed transaction has ended, with `outcome`;
- TICK: a transaction has ended with `outcome`, at `limit_ns` or later, and is not recorded;
- HELD, of the compiled one: the next transaction is drawn, and its first message written, but not sent.
Raises StatementFailure.

`serve(epoll, terminals, loop)` waits for readable connections and gives each terminal (a list by descriptor) its turn,
until the load is over. Before each wait it sets the timer of `loop.schedule`; the compiled one also starts the due
transactions of `timed` terminals without a call of the loop, and ends them so. It samples how late answers are handled
(`client_delays`).

`repeat(terminal, is_over, end_ns)` runs the transactions of a restless terminal on a blocking session one after the
other, each recorded, until the load is over. `busy` is set where one has ended at `end_ns` or later, with `outcome` at
`ended_ns`, which is not recorded. `execute(terminal)` runs one that is drawn already. Both raise StatementFailure, of
that transaction.

Where `HELD_FROM` connections or more are readable at once, the compiled loop handles all their answers before a
transaction of a `restless` terminal begins: a send wakes the server, which on one core takes the CPU and the caches. So
no answer waits for the sends before it, and the code that handles answers is loaded once. Such a transaction is drawn
and written while answers are handled, and its start is the instant of its send. Statements inside a transaction are
sent at once.

After a send, the loop reads the same connection again before it waits: on one machine the server has often answered by
then, which saves half of the epoll calls. pgbench does the same without a bound. While fewer than a quarter of such
reads find an answer, the compiled loop tries after one send of 64 only.

In such a batch the compiled loop also loads what later turns need into the processor's caches: the state of hundreds of
connections is in none of them, because their servers, and the kernel for them, ran in between. For the same reason its
connections share one buffer for messages and one for answers (`wire_native`).

Inputs that are rows of arrays (`dsl.workloads.random_streams.RowSource`) go from there into the messages of a compiled
session, without a Python object for a value.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from proveout.agent.load.loop.client_delays import Sampler
from proveout.agent.load.loop.transaction_loop_python import (
    AcknowledgedTimes,
    KindState,
    Mix,
    Script,
    TerminalState,
    Times,
    again,
    first,
    repeat,
    serve,
    turns,
)

__all__ = [
    "AcknowledgedTimes",
    "KindState",
    "Mix",
    "Sampler",
    "Script",
    "TerminalState",
    "Times",
    "again",
    "first",
    "repeat",
    "serve",
    "turns",
]

if not TYPE_CHECKING and not os.environ.get("PROVEOUT_PURE_PYTHON"):
    with contextlib.suppress(ImportError, AttributeError):  # not built, or before a name was added
        from proveout.agent.load.loop import transaction_loop_native as native

        globals().update({name: getattr(native, name) for name in __all__})
