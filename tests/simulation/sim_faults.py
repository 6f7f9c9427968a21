"""What goes wrong in a history, drawn from its seed: pure data, printed with a failing seed.

A fault has its healing: what is held is let go, what is stopped goes on, what is killed is started again (an agent as systemd
would, a coordinator as a person would by `proveout resume`), a full disk gets room.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

HOSTS = ("db1", "client1", "client2")
TUNED = ("db1", "client1")
STEPS = 60
"""A tuning of the plan on a host takes about so many, with what it takes to undo it."""
WITHIN_S = 40.0
"""Faults strike in the first seconds of a history; the plan takes about 32 s when nothing does."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens at an instant (true seconds); `host` "" is the coordinator; it lasts `for_s`.

    With a `step` it waits, from that instant on, for as many steps of tuning that the host's agent (any agent) takes, and strikes in the
    midst of the last one; if there are not so many it never strikes.
    """

    at_s: float
    kind: str
    host: str = ""
    for_s: float = 0.0
    step: int = 0

    def __str__(self) -> str:
        lasting = f" for {self.for_s:.2f} s" if self.for_s else ""
        step = f" at step {self.step} of tuning from then on" if self.step else ""
        return f"{self.at_s:7.2f} s {self.kind} {self.host or 'coordinator'}{lasting}{step}"


ON_A_LINK = ("cut", "half_open", "hold", "deaf", "slow", "repeat", "lossy")
ON_AN_AGENT = ("kill", "stop", "fill", "wall")
ON_A_MACHINE = ("power", "hand", "hang", "fail")
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
    """The faults of one history, in order of time."""
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
    step = chance.randint(1, STEPS) if chance.random() < 0.4 else 0
    if step:
        at_s, host = chance.choice((0.0, at_s)), chance.choice(TUNED) if host else ""
    return Fault(at_s, kind, host, min(for_s, longest_s), step)
