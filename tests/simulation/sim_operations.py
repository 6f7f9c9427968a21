"""Tunings of a history in addition to those of the usual plan, drawn from its seed.

Data flow: `drawn(chance)` -> a plan with some of `OF_A_HOST` and `OF_A_SYSTEM` on some hosts, before the stages or in
the `tune` stage. A history has at most `EXTRAS_MAX` of them, to keep it short; ten thousand histories have each
operation more than a thousand times.
"""

from __future__ import annotations

import random
from dataclasses import replace

from sim_faults import Aims
from sim_kernel import ASM_DISKS, NEW_DISK, OLD_DISK, PLACE, PLACE_DEVICE, SPARE_ID
from sim_plan import PLAN, STORED, tuning
from sim_programs import VOLUME

from proveout.dsl.operations.table import OPERATIONS
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Tune
from proveout.dsl.plan.topology import System
from proveout.dsl.plan.tuning_step import Tuning

ORACLE_HOST = "client1"
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
    tuning(
        "multipath",
        "multipath",
        (),
        file="/etc/multipath/conf.d/array.conf",
        devices=[{"vendor": "FUSIONIO", "prio": "alua"}],
        numbered=[{"vendor": "FUSIONIO", "prefix": "fcion", "count": 2}],
    ),
    tuning("block_queue", "queues", (), devices=["sd[bc]"], scheduler=["none"], nr_requests=128, rotational=0),
    tuning("block_queue", "scheduler", (), devices=["sdc"], scheduler=["kyber"]),
    tuning("mount", "mount", (), at=PLACE, device=PLACE_DEVICE, type="xfs", options=["noatime"]),
    replace(
        tuning(
            "partition", "parts", (), device=SPARE_ID, partitions=[{"name": "redo", "size": "15GiB"}, {"name": "data"}]
        ),
        destructive=True,
    ),
    tuning("mtu", "jumbo frames", (), interfaces=["eth1"], mtu=9000),
    tuning("bond_present", "bond", (), bond="bond0", mode="802.3ad"),
    replace(
        tuning("filesystem", "filesystem", (), keep=True, device=NEW_DISK, type="ext4", label="data"), destructive=True
    ),
    replace(tuning("zero_blocks", "zeros", (), keep=True, device=OLD_DISK, size="16MiB"), destructive=True),
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


def of_system(kind: str, name: str, system: str, **fields: object) -> Tuning:
    """Return a compiled tuning of a system; `fields` are those of the operation."""
    parameters = to_values(OPERATIONS[kind].model_validate({"system": system, **fields}))
    return Tuning(
        name=name,
        operation=kind,
        hosts=("db1" if system == "db" else ORACLE_HOST,),
        system=system,
        parameters=parameters,
        destructive=OPERATIONS[kind].destructive,
    )


OF_A_SYSTEM = (
    of_system(
        "oracle_parameters", "parameters", "orcl", settings={"open_cursors": "3000", "optimizer_index_cost_adj": "10"}
    ),
    of_system("oracle_redo", "redo", "orcl", groups=4, size="15G", disk_groups=["REDO1", "REDO2"]),
    of_system("asm_disk_group", "group", "asm", disk_group="DATA2", redundancy="external", disks=list(ASM_DISKS)),
    of_system(
        "sql",
        "user",
        "orcl",
        verify={"query": "SELECT COUNT(*) FROM dba_users WHERE username = 'BENCH'", "equals": ["1"]},
        apply=["CREATE USER BENCH"],
        revert=["DROP USER IF EXISTS BENCH"],
    ),
    of_system(
        "sql",
        "role",
        "db",
        verify={"query": "SELECT count(*) FROM pg_roles WHERE rolname = 'bench'", "equals": ["1"]},
        apply=["CREATE ROLE bench"],
        revert=["DROP ROLE IF EXISTS bench"],
    ),
)


def drawn(chance: random.Random, *, stores: bool = False) -> Plan:
    """Draw a plan with some more operations and without some of the usual ones; `stores`: with a setting that is stored
    and not in effect."""
    kept = tuple(one for one in PLAN.tunings if chance.random() < 0.7)
    extras = [_placed(one, chance) for one in chance.sample((*OF_A_HOST, *OF_A_SYSTEM), chance.randint(1, EXTRAS_MAX))]
    later = tuple(one for one in extras if chance.random() < LATER_SHARE)
    now = tuple(one for one in extras if one not in later)
    names = {one.system for one in extras} - {"", "db"}
    systems = tuple(System(name=name, engine="oracle", host=ORACLE_HOST, dsn="x/x@x") for name in sorted(names))
    stages = tuple(
        replace(stage, tunings=(*stage.tunings, *later)) if isinstance(stage, Tune) else stage for stage in PLAN.stages
    )
    tunings = (*kept, *now, *((STORED,) if stores else ()))
    return replace(PLAN, tunings=tunings, systems=(*PLAN.systems, *systems), stages=stages)


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
    system = (
        (System(name=one.system, engine="oracle", host=ORACLE_HOST, dsn="x/x@x"),)
        if one.system not in ("", "db")
        else ()
    )
    hosts = one.hosts or ("db1",)
    stages = tuple(replace(stage, faults=()) if isinstance(stage, Ladder) else stage for stage in PLAN.stages)
    return replace(PLAN, tunings=(replace(one, hosts=hosts),), systems=(*PLAN.systems, *system), stages=stages)


def aims_of(plan: Plan) -> Aims:
    """Return the operations at whose steps faults strike, with their hosts: twice those that only this plan has, and
    once those of `SELDOM`, which few faults strike by chance."""
    tune = tuple(one for stage in plan.stages if isinstance(stage, Tune) for one in stage.tunings)
    usual = {one.operation for one in PLAN.tunings}
    drawn_ones = tuple((one.operation, one.hosts) for one in (*plan.tunings, *tune) if one.operation not in usual)
    seldom = tuple((one.operation, one.hosts) for one in plan.tunings if one.operation in SELDOM)
    return (*drawn_ones, *drawn_ones, *seldom)
