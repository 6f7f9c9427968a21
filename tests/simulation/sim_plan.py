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
    Tune,
    Tuning,
    Windows,
    Workload,
)
from proveout.dsl.tuning.table import OPERATIONS
from proveout.dsl.values import to_values

LEASE_S = 10.0


def tuning(
    kind: str, name: str, hosts: tuple[str, ...], *, keep: bool = False, restart: str = "", **fields: object
) -> Tuning:
    """A compiled tuning; `fields` are the operation's."""
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
LATER = (
    tuning("sysctl", "again", ("client1",), settings={"vm.swappiness": "1"}),
    tuning("file", "more", ("db1",), path="/etc/app/more.conf", content="x = 1\n"),
    tuning("file", "another", ("db1",), path="/etc/app/app.conf", content="port = 3\n"),
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
    tunings=TUNINGS,
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
        ),
        Sql(id="after", system="db", statements=("analyze",)),
    ),
    verdicts=(Check(id="v", check=Expression(text="true")),),
)
SLOTS = frozenset((rung, repeat) for rung in (2, 4) for repeat in (1, 2))
