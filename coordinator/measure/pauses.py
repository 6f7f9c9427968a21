"""Did a load process or an agent stand still in an iteration? Findings with evidence. Pure. The system itself: `outages`.

Data flow: `validity.Observed` -> the longest pause of each kind -> a finding for each that was long enough to be told. Pauses have causes
that no other number shows: a process that is stopped, a virtual machine that is moved, a machine without CPU to spare.

- Short ones (`TOLD_S` and more) are tolerated and told: the iteration stands, unless its own limits (variation, errors, rate) say no.
- From the stage's limit `pause` on (10 s unless the plan says otherwise, as long as a lease) the iteration is void: of a load process also
  for a search's probe, which then cannot answer.
- An agent that is silent for a lease is lost, which voids by itself; a shorter silence touches the load only when its workers stood
  still too, which they tell themselves: a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proveout.coordinator.measure.outages import TOLD_S
from proveout.proto.events import ValidityFinding

if TYPE_CHECKING:
    from proveout.coordinator.measure.validity import Observed

SILENCE_TOLD_S = 4.5
"""Two beats and what a busy machine may add: without any pause an answer comes every 2 s."""


def judge(seen: Observed) -> Iterator[ValidityFinding]:
    """A finding for each pause worth telling; none where nothing stood still."""
    limit_s = seen.limits.pause_s_max
    for host, load in seen.loads.items():
        paused_s = load.pause_longest_ns / 1e9
        if paused_s >= min(TOLD_S, limit_s):
            text = f"a load process of {host} did not run for {paused_s:.3g} s (limit {limit_s:g} s)"
            yield ValidityFinding(check=f"pause:load@{host}", ok=False, evidence=text, voids=paused_s >= limit_s)
    for host, silent_s in seen.silences.items():
        if silent_s >= SILENCE_TOLD_S:
            text = f"no answer from {host} for {silent_s:.3g} s: its agent, the network or this coordinator stood still"
            yield ValidityFinding(check=f"pause:agent@{host}", ok=False, evidence=text, voids=False)
