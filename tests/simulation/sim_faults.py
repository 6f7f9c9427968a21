"""The faults of a history, drawn from its seed: pure data, printed with a failing seed.

Each fault is repaired after its time: held messages are delivered, stopped processes continue, killed ones are started
again (an agent as systemd does, a coordinator as a user does by `proveout resume`), a full disk has space again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

HOSTS = ("db1", "client1", "client2")
TUNED = ("db1", "client1")
STEPS = 60
"""About the number of steps in which a host applies and reverts the tunings of the plan."""
STEPPED = 0.5
"""The share of faults that strike at a step of a tuning."""
WITHIN_S = 40.0
"""Faults strike within this time from the start; without faults the plan takes about 32 s."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at an instant (true seconds) that lasts `for_s`; `host` "" is the coordinator.

    With `step` it counts, from that instant on, the steps of tuning on the host (on all hosts when `host` is ""), and
    strikes during step number `step`; with fewer steps it never strikes. With `at`, only steps of that operation count.
    """

    at_s: float
    kind: str
    host: str = ""
    for_s: float = 0.0
    step: int = 0
    at: str = ""

    def __str__(self) -> str:
        lasting = f" for {self.for_s:.2f} s" if self.for_s else ""
        step = f" at step {self.step} of {self.at or 'tuning'} from then on" if self.step else ""
        return f"{self.at_s:7.2f} s {self.kind} {self.host or 'coordinator'}{lasting}{step}"


ON_A_LINK = ("cut", "half_open", "hold", "deaf", "slow", "repeat", "lossy", "intrude", "thief")
ON_AN_AGENT = ("kill", "stop", "fill", "wall")
ON_A_MACHINE = ("power", "hand", "hang", "fail", "rival")
ON_THE_COORDINATOR = ("kill", "stop", "fill", "wall", "interrupt", "ghost")

_LONGEST_S = {
    "hold": 25.0,
    "half_open": 8.0,
    "deaf": 4.0,
    "slow": 10.0,
    "lossy": 20.0,
    "kill": 14.0,
    "power": 14.0,
    "fail": 14.0,
    "stop": 25.0,
    "fill": 20.0,
}


def draw(chance: random.Random) -> tuple[Fault, ...]:
    """Draw the faults of one history, in order of time."""
    faults = [_one(chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4, 6)))]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _one(chance: random.Random) -> Fault:
    at_s = chance.uniform(0.0, WITHIN_S)
    kinds, host = chance.choices(
        (
            (ON_A_LINK, chance.choice(HOSTS)),
            (ON_AN_AGENT, chance.choice(HOSTS)),
            (ON_A_MACHINE, chance.choice(TUNED)),
            (ON_THE_COORDINATOR, ""),
        ),
        weights=(5, 4, 3, 2),
    )[0]
    kind = chance.choice(kinds)
    longest_s = _LONGEST_S.get(kind, 0.0)
    for_s = chance.choice((chance.uniform(0.0, 2.0), chance.uniform(0.0, longest_s))) if longest_s else 0.0
    fault = Fault(at_s, kind, host, min(for_s, longest_s))
    if chance.random() >= STEPPED:
        return fault
    host = chance.choice(TUNED) if fault.host else ""
    return replace(fault, at_s=chance.choice((0.0, fault.at_s)), host=host, step=chance.randint(1, STEPS))
