"""The usual plan of histories: a database, two clients, a ladder of two rungs with two repeats; about 32 s without
faults."""

from __future__ import annotations

import random
from dataclasses import replace

from sim_faults import HOSTS
from sim_machine import VOLUME

from proveout.dsl.operations.table import OPERATIONS
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Check, Plan, Workload
from proveout.dsl.plan.stages import Fault as PlannedFault
from proveout.dsl.plan.stages import Ladder, Populate, Sql, Tune, Tuning, Windows
from proveout.dsl.plan.topology import Capture, Expression, Host, System

LEASE_S = 10.0


def tuning(
    kind: str, name: str, hosts: tuple[str, ...], *, keep: bool = False, restart: str = "", **fields: object
) -> Tuning:
    """Return a compiled tuning; `fields` are those of the operation."""
    parameters = to_values(OPERATIONS[kind].model_validate(fields))
    return Tuning(name=name, operation=kind, hosts=hosts, parameters=parameters, keep=keep, restart=restart)


TUNINGS = (
    tuning(
        "sysctl",
        "kernel",
        ("db1", "client1"),
        settings={"vm.swappiness": "10", "vm.dirty_ratio": "5"},
        file="/etc/sysctl.d/90-app.conf",
    ),
    tuning(
        "file",
        "app",
        ("db1",),
        path="/etc/app/app.conf",
        content="port = 2\nthreads = 8\n",
        validator="check",
        restart="app.service",
    ),
    tuning("file", "kept", ("db1", "client1"), keep=True, path="/etc/app/kept.conf", content="new\n", mode=0o600),
    tuning("sysctl", "kept_too", ("client1",), keep=True, settings={"net.core.somaxconn": "4096"}),
    tuning("service", "quiet", ("db1",), unit="tuned.service", state="stopped", enabled=False),
)
DATABASE = Tuning(
    name="memory",
    operation="postgres_settings",
    hosts=("db1",),
    system="db",
    parameters=to_values(
        OPERATIONS["postgres_settings"].model_validate({"system": "db", "settings": {"work_mem": "8192"}})
    ),
)
STORED = replace(
    DATABASE,
    name="stored",
    parameters=to_values(
        OPERATIONS["postgres_settings"].model_validate({"system": "db", "settings": {"max_connections": "200"}})
    ),
)
"""Takes effect only after a restart of the server, and no step of the plan restarts it."""
LATER = (
    tuning("sysctl", "again", ("client1",), settings={"vm.swappiness": "1"}),
    tuning("file", "more", ("db1",), path="/etc/app/more.conf", content="x = 1\n"),
    tuning("file", "another", ("db1",), path="/etc/app/app.conf", content="port = 3\n"),
)
FAULTS = (
    PlannedFault(
        name="press",
        tunings=(
            tuning("sysctl", "pressed", ("db1", "client1"), settings={"vm.min_free_kbytes": "1"}),
            tuning("file", "blocked", ("db1",), path="/etc/app/blocked.conf", content="blocked\n"),
        ),
        for_s=0.5,
        between_s=(0.5, 3.0),
        times=2,
        apart_s=0.3,
    ),
    PlannedFault(
        name="volume",
        tunings=(
            tuning(
                "command",
                "volume of a fault",
                ("db1",),
                verify={"run": [VOLUME, "show", "of_fault"]},
                apply=[[VOLUME, "create", "of_fault"]],
                revert=[[VOLUME, "remove", "of_fault"]],
            ),
        ),
        for_s=0.5,
        at_s=1.0,
    ),
    PlannedFault(
        name="spill",
        tunings=(tuning("sysctl", "spilled", ("client1", "client2"), settings={"vm.laptop_mode": "5"}),),
        for_s=0.4,
        when=Expression(text="live.tps == 0.0"),
        times=2,
        apart_s=0.2,
    ),
)
"""The faults of the load: at random instants, and whenever a second of the window has no transactions, as all have."""
IN_PLACE = {
    "press": {"/proc/sys/vm/min_free_kbytes": "1", "/etc/app/blocked.conf": b"blocked\n"},
    "volume": {VOLUME: frozenset({"of_fault"})},
    "spill": {"/proc/sys/vm/laptop_mode": "5"},
}
"""The state of a host in which a fault is in place, by its name: subject -> value that only the fault sets."""
RIVALS = (
    tuning("sysctl", "theirs", HOSTS, settings={"vm.swappiness": "33"}, file="/etc/sysctl.d/95-theirs.conf"),
    tuning("file", "theirs_too", HOSTS, path="/etc/app/kept.conf", content="theirs\n"),
)
"""The tunings of another run."""
PLAN = Plan(
    name="p",
    title="t",
    parameters=(),
    hosts=tuple(Host(name=name, roles=("any",), address=f"{name}:7443") for name in HOSTS),
    systems=(System(name="db", engine="postgres", host="db1", provision="embedded"),),
    secrets=(),
    workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 1000), ("seed", 7))),),
    captures=(
        Capture(name="os", kind="os", every_s=2.0, hosts=HOSTS),
        Capture(name="waits", kind="waits", every_s=2.0, system="db"),
    ),
    tunings=(*TUNINGS, DATABASE),
    stages=(
        Tune(id="more", tunings=LATER),
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
            faults=FAULTS,
        ),
        Sql(id="after", system="db", statements=("analyze",)),
    ),
    verdicts=(Check(id="v", check=Expression(text="true")),),
)
STORING = replace(PLAN, tunings=(*PLAN.tunings, STORED))
"""The usual plan with a setting that is stored and not in effect: no history of it finishes, unless a fault restarts
the server."""


def drawn(chance: random.Random, plan: Plan) -> Plan:
    """The plan without some of its tunings."""
    return replace(plan, tunings=tuple(one for one in plan.tunings if one is STORED or chance.random() < 0.7))


SLOTS = frozenset((rung, repeat) for rung in (2, 4) for repeat in (1, 2))
