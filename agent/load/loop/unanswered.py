"""The transactions of a load that have no answer at its end: those under way, and the arrivals that never began."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.load.intensity import Int64s
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.transaction import ERROR
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.load.worker_messages import UNCONNECTED, Ages, Unfinished
from proveout.proto.wire import histogram


def has_answer(terminal: Terminal) -> bool:
    """Whether a cancelled statement has its answer, success or failure."""
    try:
        return bool(terminal.session.receive())
    except StatementFailure:
        return True


def under_way(terminals: Sequence[Terminal]) -> list[tuple[int, int]]:
    """The transactions that have started and not ended, as (number, start ns)."""
    return [(terminal.kind.number, terminal.started_ns) for terminal in terminals if terminal.busy]


def under_way_with_times(terminals: Sequence[Terminal], *, lent: bool = False) -> list[Unfinished]:
    """The transactions that have begun and not ended, and the terminals without a connection (`UNCONNECTED`), unless
    connections are lent.

    A failed transaction is recorded as an error before its rollback: it is not listed while it is rolled back.
    """
    found = []
    for terminal in terminals:
        if terminal.busy and not (terminal.rolling_back and terminal.outcome == ERROR):
            found.append((terminal.kind.number, terminal.intended_ns, terminal.started_ns))
        elif terminal.session is None and not lent:
            found.append((UNCONNECTED, terminal.ended_ns, terminal.ended_ns))
    return found


def never_begun(terminals: Sequence[Terminal], pacing: Pacing, timeline: Timeline, seen_ns: int) -> tuple[Ages, ...]:
    """The arrivals due in the measure window, and in each of its phases, that have not begun at `seen_ns`: their ages
    then, binned, by number.

    If the system was far below the rate, most of the schedule may be left: it is computed in bulk.
    """
    found: dict[int, list[Int64s]] = {}
    end_ns = timeline.measure_end_ns - timeline.t0_ns
    for terminal in terminals:
        if terminal.fires is None:
            continue
        due_ns = terminal.fires() if terminal.busy else terminal.pending_ns - timeline.t0_ns
        first_ns = max(due_ns, timeline.measure_start_ns - timeline.t0_ns)
        for due in pacing.due_between(terminal.number, first_ns, end_ns):
            for number, dealt in terminal.deal(seen_ns - timeline.t0_ns - due):
                found.setdefault(number, []).append(dealt)
    ages = {number: np.concatenate(parts) for number, parts in sorted(found.items())}
    spans = [(timeline.measure_start_ns, timeline.measure_end_ns), *((start, end) for _, start, end in timeline.phases)]
    return tuple(_binned(ages, seen_ns - end, seen_ns - start) for start, end in spans)


def _binned(ages: dict[int, Int64s], above_ns: int, most_ns: int) -> Ages:
    inside = ((number, each[(each > above_ns) & (each <= most_ns)]) for number, each in ages.items())
    binned = ((number, histogram.bin_ns(each)) for number, each in inside)
    return tuple((number, h.indices, h.counts, h.sum_ns, h.min_ns, h.max_ns) for number, h in binned)
