"""Did something stand still in an iteration? A load process, the system under it, an agent: findings with evidence. Pure.

Data flow: `validity.Observed` -> the longest pause of each kind -> a finding for each that was long enough to be told. Pauses have causes
that no other number shows: a process that is stopped, a virtual machine that is moved, a disk or a lock that everybody waits for.

- Short ones (`TOLD_S` and more) are tolerated and told: the iteration stands, unless its own limits (variation, errors, rate) say no.
- From the stage's limit `pause` on (10 s unless the plan says otherwise, as long as a lease) the measure window was not one: void.
- An agent that is silent for a lease is lost, which voids by itself; a shorter silence touches the load only when its workers stood
  still too, which they tell themselves: a warning.
- A search's probe takes a system that stands still as its answer (the rate is not held); a client that does cannot answer at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from proveout.dsl.plan import Tool
from proveout.proto.events import ValidityFinding

if TYPE_CHECKING:
    from proveout.coordinator.validity import Observed

TOLD_S = 2.0
SILENCE_TOLD_S = 4.5
"""Two beats and what a busy machine may add: without any pause an answer comes every 2 s."""
EXPECTED_MIN = 20.0
"""Transactions that were to end in a pause of the system, at the rate of the other seconds: with fewer it may be chance."""


def judge(seen: Observed) -> Iterator[ValidityFinding]:
    """A finding for each pause worth telling; none where nothing stood still."""
    limit_s = seen.limits.pause_s_max
    for host, load in seen.loads.items():
        paused_s = load.pause_longest_ns / 1e9
        if paused_s >= min(TOLD_S, limit_s):
            text = f"a load process of {host} did not run for {paused_s:.3g} s (limit {limit_s:g} s)"
            yield ValidityFinding(check=f"pause:load@{host}", ok=False, evidence=text, voids=paused_s >= limit_s)
    yield from _system(seen, limit_s)
    for host, silent_s in seen.silences.items():
        if silent_s >= SILENCE_TOLD_S:
            text = f"no answer from {host} for {silent_s:.3g} s: its agent, the network or this coordinator stood still"
            yield ValidityFinding(check=f"pause:agent@{host}", ok=False, evidence=text, voids=False)


def _system(seen: Observed, limit_s: float) -> Iterator[ValidityFinding]:
    """Whole seconds without a transaction, one after the other, in which the load processes ran."""
    began, seconds = longest_silence(seen.tps_per_second)
    ended = sum(seen.tps_per_second)
    others = len(seen.tps_per_second) - seconds
    expected = seconds * ended / others if others else 0.0
    ran = all(load.pause_longest_ns / 1e9 < seconds / 2 for load in seen.loads.values())
    if seconds < min(TOLD_S, limit_s) or expected < EXPECTED_MIN or not ran:
        return
    where, what = (seen.stage.id, "I/O") if isinstance(seen.stage, Tool) else (seen.stage.target, "transaction")
    text = f"no {what} ended for {seconds} s, from second {began + 1} of the measure window on (limit {limit_s:g} s)"
    voids = seconds >= limit_s and not seen.is_probe
    yield ValidityFinding(check=f"pause:{where}", ok=False, evidence=text, voids=voids)


def longest_silence(per_second: Sequence[float]) -> tuple[int, int]:
    """The longest run of zeros: the index of its first, and how many; (0, 0) when there is none."""
    best, began = (0, 0), 0
    for index, value in enumerate((*per_second, 1.0)):
        if value > 0.0:
            if index - began > best[1]:
                best = (began, index - began)
            began = index + 1
    return best
