"""The plan that histories run: a database, two clients, a ladder of two rungs, twice; about 32 s when nothing goes wrong."""

from __future__ import annotations

from sim_faults import HOSTS

from proveout.dsl.plan import (
    Capture,
    Check,
    Expression,
    Host,
    Ladder,
    Plan,
    Populate,
    Sql,
    System,
    Windows,
    Workload,
)

PLAN = Plan(
    name="p",
    title="t",
    parameters=(),
    hosts=tuple(Host(name=name, roles=("any",), address=f"{name}:7443") for name in HOSTS),
    systems=(System(name="db", engine="postgres", host="db1", provision="embedded"),),
    secrets=(),
    workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 1000), ("seed", 7))),),
    captures=(
        Capture(name="os", kind="os", every_s=1.0, hosts=HOSTS),
        Capture(name="waits", kind="waits", every_s=1.0, system="db"),
    ),
    stages=(
        Populate(id="load", workload="hlr", into=("db",), clients=("client1", "client2")),
        Ladder(
            id="climb",
            workload="hlr",
            target="db",
            clients=("client1", "client2"),
            threads=(2, 4),
            windows=Windows(ramp_up_s=1, measure_s=4, ramp_down_s=1),
            repeat=2,
            captures=("os", "waits"),
        ),
        Sql(id="after", system="db", statements=("analyze",)),
    ),
    verdicts=(Check(id="v", check=Expression(text="true")),),
)
SLOTS = frozenset((rung, repeat) for rung in (2, 4) for repeat in (1, 2))
