"""Tunings of a history in addition to those of the usual plan, drawn from its seed.

Data flow: `drawn(chance)` -> a plan with some of `OF_A_HOST` and `OF_A_SYSTEM` on some hosts, before the stages or in
the `tune` stage. A history has at most `EXTRAS_MAX` of them, to keep it short; ten thousand histories have each
operation more than a thousand times.
"""

from __future__ import annotations

import random
from dataclasses import replace

from sim_faults import Aims
from sim_kernel import PLACE, PLACE_DEVICE
from sim_plan import PLAN, STORED, tuning
from sim_programs import VOLUME

from proveout.dsl.operations.table import OPERATIONS
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Tune, Tuning

EXTRAS_MAX = 4
LATER_SHARE = 0.3
"""The share of the drawn operations that are in the `tune` stage."""
SELDOM = ("service", "postgres_settings")
OF_A_HOST = (
    tuning("huge_pages", "pages", (), pages=512),
    tuning("package_present", "packages", (), packages=["tuned"]),
    tuning("cpu_governor", "governor", (), governor="performance"),
    tuning("thp", "thp", (), enabled="never", defrag="never"),
    tuning("limits", "limits", (), file="/etc/security/limits.d/90-app.conf", users={"app": {"memlock": "unlimited"}}),
    tuning(
        "udev_rules",
        "udev",
        (),
        file="/etc/udev/rules.d/66-disks.rules",
        rules=[{"match": {"KERNEL": "sd*"}, "assign": {"OWNER": "app", "MODE": "0660"}}],
        validator="check",
    ),
    tuning("mount", "mount", (), at=PLACE, device=PLACE_DEVICE, type="xfs", options=["noatime"]),
    tuning("mtu", "jumbo frames", (), interfaces=["eth1"], mtu=9000),
    tuning(
        "command",
        "volume",
        (),
        verify={"run": [VOLUME, "show", "v1"]},
        apply=[[VOLUME, "create", "v1"]],
        revert=[[VOLUME, "remove", "v1"]],
    ),
    tuning("ini_section", "dsn", (), file="/etc/app/sys.odbc.ini", section="hlr", set={"PermSize": 620, "New": "x"}),
)


OF_A_SYSTEM = (
    Tuning(
        name="role",
        operation="sql",
        hosts=("db1",),
        system="db",
        parameters=to_values(
            OPERATIONS["sql"].model_validate(
                {
                    "system": "db",
                    "verify": {"query": "SELECT count(*) FROM pg_roles WHERE rolname = 'bench'", "equals": ["1"]},
                    "apply": ["CREATE ROLE bench"],
                    "revert": ["DROP ROLE IF EXISTS bench"],
                }
            )
        ),
    ),
)
SIMULATED = frozenset(one.operation for one in (*OF_A_HOST, *OF_A_SYSTEM, *PLAN.tunings))
"""The operations whose machine is simulated. The others change what these change, by the same kinds of changes: each is
killed at every step in tests/agent/tuning/test_every_operation.py."""


def drawn(chance: random.Random, *, stores: bool = False) -> Plan:
    """Draw a plan with some more operations and without some of the usual ones; `stores`: with a setting that is stored
    and not in effect."""
    kept = tuple(one for one in PLAN.tunings if chance.random() < 0.7)
    extras = [_placed(one, chance) for one in chance.sample((*OF_A_HOST, *OF_A_SYSTEM), chance.randint(1, EXTRAS_MAX))]
    later = tuple(one for one in extras if chance.random() < LATER_SHARE)
    now = tuple(one for one in extras if one not in later)
    stages = tuple(
        replace(stage, tunings=(*stage.tunings, *later)) if isinstance(stage, Tune) else stage for stage in PLAN.stages
    )
    tunings = (*kept, *now, *((STORED,) if stores else ()))
    return replace(PLAN, tunings=tunings, stages=stages)


def _placed(one: Tuning, chance: random.Random) -> Tuning:
    if one.system:
        return one
    return replace(one, hosts=chance.choice((("db1",), ("client1",), ("db1", "client1"))))


def having(*operations: str) -> Plan:
    """Return the usual plan with these operations on db1 as well."""
    more = tuple(replace(one, hosts=("db1",)) for one in OF_A_HOST if one.operation in operations)
    return replace(PLAN, tunings=(*PLAN.tunings, *more))


def alone(one: Tuning) -> Plan:
    """Return the usual stages, without faults, with one operation as the only tuning before them."""
    hosts = one.hosts or ("db1",)
    stages = tuple(replace(stage, faults=()) if isinstance(stage, Ladder) else stage for stage in PLAN.stages)
    return replace(PLAN, tunings=(replace(one, hosts=hosts),), stages=stages)


def aims_of(plan: Plan) -> Aims:
    """Return the operations at whose steps faults strike, with their hosts: twice those that only this plan has, and
    once those of `SELDOM`, which few faults strike by chance."""
    tune = tuple(one for stage in plan.stages if isinstance(stage, Tune) for one in stage.tunings)
    usual = {one.operation for one in PLAN.tunings}
    drawn_ones = tuple((one.operation, one.hosts) for one in (*plan.tunings, *tune) if one.operation not in usual)
    seldom = tuple((one.operation, one.hosts) for one in plan.tunings if one.operation in SELDOM)
    return (*drawn_ones, *drawn_ones, *seldom)
