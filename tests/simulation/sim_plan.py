"""The usual plan of histories: a database, two clients, a ladder of two rungs with two repeats; about 32 s without
faults. Its own faults come at random instants, and whenever a second of the window has no transactions, as all have."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from sim_machine import VOLUME

from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Tune
from proveout.dsl.plan.topology import Expression

LEASE_S = 10.0
IN_PLACE = {
    "press": {"/proc/sys/vm/min_free_kbytes": "1", "/etc/app/blocked.conf": b"blocked\n"},
    "volume": {VOLUME: frozenset({"of_fault"})},
    "spill": {"/proc/sys/vm/laptop_mode": "5"},
}
"""The state of a host in which a fault is in place, by its name: subject -> value that only the fault sets."""


COMPILED = compile_plan(Path(__file__).with_name("plan.yaml"))
DATABASE = replace(COMPILED.systems[0], dsn=None, provision="embedded")  # the compiler requires a local host for it
STORING = replace(COMPILED, systems=(DATABASE,), verdicts=(Check(id="v", check=Expression(text="true")),))
RIVALS = STORING.stages[0].tunings if isinstance(STORING.stages[0], Tune) else ()
"""The tunings of another run."""
STORING = replace(STORING, stages=STORING.stages[1:])
"""The usual plan with a setting that is stored and not in effect until the server restarts, as it never does: no history
of it finishes, unless a fault restarts the server."""
STORED = STORING.tunings[-1]
PLAN = replace(STORING, tunings=STORING.tunings[:-1])


def drawn(chance: random.Random, plan: Plan) -> Plan:
    """The plan without some of its tunings."""
    return replace(plan, tunings=tuple(one for one in plan.tunings if one is STORED or chance.random() < 0.7))


SLOTS = frozenset((rung, repeat) for rung in (2, 4) for repeat in (1, 2))
