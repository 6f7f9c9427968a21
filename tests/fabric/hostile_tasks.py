"""Hostile tasks as data: tasks that a coordinator with a valid certificate can send without the plan compiler, for each
kind of task.

`HONEST` has a task of each kind that breaks no rule; `ATTEMPTS` are variations of them. Both are plain data: a test
checks them, sends them to agents, and a soak command can do the same. An attempt has succeeded when an agent does
anything else than refuse it with `invalid` and the text of `says`, that is, when its handler was called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from proveout.dsl.operations.disks import Partition
from proveout.dsl.operations.kernel import Sysctl
from proveout.dsl.plan.commands import Command, FioJob, MeasuredValue, OutputRows
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Tuning, Windows
from proveout.dsl.plan.topology import Capture, Scrape, System
from proveout.dsl.workloads.sql import Custom
from proveout.proto.wire import tasks
from proveout.proto.wire.tasks import Endpoint, TaskSpec

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Attempt:
    """`says`: part of the message with which an agent refuses it as `invalid`."""

    name: str
    spec: TaskSpec
    says: str


DB = Endpoint(system="db", engine="postgres", dsn="host=127.0.0.1 port=1 dbname=x user=y")
ORACLE = replace(DB, engine="oracle", dsn="hlr/secret@//db1:1521/HLR")
FILE = Endpoint(system="db", engine="sqlite", dsn="/var/tmp/proveout-store-x/files/db.sqlite", provisioned=True)
EXPORTER = Endpoint(system="capture:node", engine="prometheus", dsn="http://127.0.0.1:1/metrics")
EMBEDDED = System(name="db", engine="postgres", host="db1", provision="embedded")
HLR = Workload(name="hlr", kind="hlr", parameters=())
WINDOWS = Windows(ramp_up_s=0.0, measure_s=1.0, ramp_down_s=0.0)
SECRETS = tasks.ClusterSecrets(token="t" * 64, authority="a", authority_key="k")
JOB = FioJob(random=True, block_bytes=4096, read_fraction=1.0, jobs=1, size_bytes=1 << 20)
DEVICE = "/dev/disk/by-id/wwn-0x600a098038304437415d4b6a59676d51"
SYSCTL = Tuning(
    name="swap",
    operation="sysctl",
    hosts=("db1",),
    parameters=to_values(Sysctl.model_validate({"settings": {"vm.swappiness": 1}})),
)
PARTITION = Partition.model_validate({"device": DEVICE, "partitions": [{"name": "data"}]})
CAPTURE = Capture(name="os", kind="os", every_s=1.0, hosts=("db1",))
SCRAPE = Scrape(alias="load1", metric="node_load1")
NODE = replace(CAPTURE, name="node", kind="prometheus", scrapes=(SCRAPE,))

HONEST: dict[type, Any] = {
    tasks.StartSystem: tasks.StartSystem(system=EMBEDDED, data_root="/tmp/run/systems"),
    tasks.StopSystem: tasks.StopSystem(system="db", data_root="/tmp/run/systems", remove=True),
    tasks.InspectSystem: tasks.InspectSystem(endpoint=DB),
    tasks.SnapshotSystem: tasks.SnapshotSystem(system=EMBEDDED, data_root="/tmp/run/systems", action="save"),
    tasks.PopulateSystem: tasks.PopulateSystem(workload=HLR, endpoint=DB, workers=1),
    tasks.LinkSystems: tasks.LinkSystems(source=DB, sink=replace(DB, system="other"), workload=HLR, copy_data=True),
    tasks.CompareSystems: tasks.CompareSystems(
        source=DB, sink=replace(DB, system="other"), workload=HLR, drain_timeout_s=60.0
    ),
    tasks.ReadFacts: tasks.ReadFacts(directories=(("db", "/tmp/run/systems"),), tools=("fio",)),
    tasks.CheckInvariants: tasks.CheckInvariants(workload=HLR, endpoint=DB),
    tasks.CheckSystem: tasks.CheckSystem(
        endpoint=DB,
        loads=(tasks.CheckedLoad(subject="stages.climb", workload=HLR),),
        texts=(tasks.CheckedText(subject="stages.make.statements.0", text="SELECT 1"),),
        uses=("populate",),
    ),
    tasks.CheckHost: tasks.CheckHost(systems=(EMBEDDED,), data_root="/tmp/run/systems", tools=("fio",)),
    tasks.RunSql: tasks.RunSql(endpoint=DB, statements=("SELECT 1",)),
    tasks.Checkpoint: tasks.Checkpoint(endpoint=DB),
    tasks.RestoreCopy: tasks.RestoreCopy(endpoint=DB),
    tasks.ApplyTuning: tasks.ApplyTuning(tunings=(SYSCTL,), endpoints=(DB,)),
    tasks.InjectFault: tasks.InjectFault(
        fault="less_swap", tunings=(SYSCTL,), for_s=1.0, begins_s=(1.0,), windows=WINDOWS, label="climb/1/1/1"
    ),
    tasks.VerifyTuning: tasks.VerifyTuning(),
    tasks.RebootHost: tasks.RebootHost(hold_s=600.0),
    tasks.RevertTuning: tasks.RevertTuning(),
    tasks.FormPool: tasks.FormPool(head="db1:6379", address="10.0.0.1", cpus=1, secrets=SECRETS, towards="[::1]:7443"),
    tasks.RunLoad: tasks.RunLoad(
        workload=HLR,
        endpoint=DB,
        share=tasks.LoadShare(first=0, count=1, total=1),
        windows=WINDOWS,
        workers=1,
        seed=1,
        label="climb/1/1/1",
    ),
    tasks.RunCommand: tasks.RunCommand(
        command=Command(argv=("df", "-k")), values=(MeasuredValue(name="a", column="1"),)
    ),
    tasks.PrepareFio: tasks.PrepareFio(job=JOB),
    tasks.RunFio: tasks.RunFio(job=JOB, iodepth=1, windows=WINDOWS, label="fio/1/1/1"),
    tasks.RunCapture: tasks.RunCapture(capture=CAPTURE),
}


def _with(kind: type, **changes: Any) -> Any:
    return replace(HONEST[kind], **changes)


Row = tuple[str, str, dict[str, Any]]
"""(name, part of the refusal, changes of the honest task)."""


def _of(kind: type, *rows: Row) -> Iterator[Attempt]:
    for name, says, changes in rows:
        yield Attempt(f"{kind.__name__}: {name}", _with(kind, **changes), says)


# ---- systems ---------------------------------------------------------------------------------------------------------

FRONT = replace(EMBEDDED, name="front", provision="pgbouncer", in_front_of="db")
STANDBY = replace(EMBEDDED, name="standby", standby_of="db")
PRIMARY = replace(DB, provisioned=True)


def _started(system: System, primary: Endpoint | None = PRIMARY, **changes: Any) -> dict[str, Any]:
    return {"system": system, "primary": () if primary is None else (primary,), **changes}


def _set(name: str, value: str) -> dict[str, Any]:
    return _started(replace(FRONT, settings=((name, value),)))


STARTS: tuple[Row, ...] = (
    ("a PgBouncer in front of nothing", "one primary if it is", _started(FRONT, None)),
    ("a PgBouncer by another name", "is not the primary", _started(FRONT, replace(PRIMARY, system="x"))),
    ("a PgBouncer of another engine", "not of sqlite", _started(replace(FRONT, engine="sqlite"))),
    ("a PgBouncer by a quoted name", "`system.in_front_of`", _started(replace(FRONT, in_front_of='db" host=else'))),
    ("a PgBouncer that is a standby", "has no data to replicate", _started(replace(FRONT, standby_of="db"))),
    ("a database in front of another", "is for a PgBouncer", _started(replace(EMBEDDED, in_front_of="db"))),
    ("a file of the host by a PgBouncer", "is not a setting", _set("logfile", "/etc/passwd")),
    ("the console of a PgBouncer", "is not a setting", _set("admin_users", "proveout")),
    ("SQL of a PgBouncer", "is not a setting", _set("auth_query", "SELECT 1")),
    ("a second line by a number", "whole number", _set("default_pool_size", "1\nadmin_users = proveout")),
    ("a second line by a word", "`pool_mode` is session", _set("pool_mode", "session\nauth_type = any")),
    ("a standby without a primary", "one primary if it is a standby", _started(STANDBY, None)),
    ("a primary of a primary", "one primary if it is a standby", _started(EMBEDDED)),
    ("a primary by another name", "is not the primary", _started(STANDBY, replace(PRIMARY, system="else"))),
    ("a primary with a dsn", "is not the primary", _started(STANDBY, replace(PRIMARY, provisioned=False))),
    ("a standby of another engine", "starts standbys of", _started(replace(STANDBY, engine="sqlite"))),
    ("too many standbys", "`standbys` of", _started(EMBEDDED, None, standbys=tuple(f"s{n}" for n in range(99)))),
    ("a standby by a quoted name", "`standbys.0`",
     _started(EMBEDDED, None, standbys=('s", *',), synchronous=('s", *',))),
)  # fmt: skip

SYSTEMS: tuple[Row, ...] = (
    *((f"name {bad!r}", "`system.name`", {"name": bad}) for bad in ("../../etc", "a/b", "", "-rf", "a\nb", "a" * 200)),
    ("an engine that is not embedded", "cannot start oracle", {"engine": "oracle"}),
    ("with a dsn", "is not one to be started", {"dsn": "host=db"}),
    ("archive_command", "makes the server run or load", {"settings": (("archive_command", "touch /tmp/x"),)}),
    ("upper case", "makes the server run or load", {"settings": (("SHARED_PRELOAD_LIBRARIES", "/tmp/x.so"),)}),
    ("data_directory", "names a file or where the server writes", {"settings": (("data_directory", "/"),)}),
    ("two lines", "more than one line", {"settings": (("work_mem", "1\nlocal_infile = on"),)}),
    ("a line as a name", "not the name of a setting", {"settings": (("a = 1\nb", "1"),)}),
    ("settings without end", "`system.settings`", {"settings": tuple((f"a{n}", "1") for n in range(201))}),
    ("plugin_load", "would run a command", {"engine": "mysql", "settings": (("plugin_load", "x=/tmp/x.so"),)}),
    ("loose_", "would run a command", {"engine": "mysql", "settings": (("loose_init_file", "/tmp/x"),)}),
    ("temp_store_directory", "not kept in an SQLite file",
     {"engine": "sqlite", "settings": (("temp_store_directory", "/etc"),)}),
)  # fmt: skip


def _systems() -> Iterator[Attempt]:
    yield from _of(tasks.StartSystem, *STARTS)
    for kind in (tasks.StartSystem, tasks.SnapshotSystem):
        yield from _of(kind, *((name, says, {"system": replace(EMBEDDED, **of)}) for name, says, of in SYSTEMS))
        yield from _of(kind, ("control characters in the folder", "`data_root`", {"data_root": "/tmp/\x1b[2J"}))
    for bad in ("../../var/lib", "a/../../b", "/etc"):
        yield from _of(tasks.StopSystem, (f"name {bad}", "`system` of", {"system": bad}))


# ---- endpoints: each kind of task that has one -----------------------------------------------------------------------

ENDPOINTS: tuple[tuple[str, Endpoint, str], ...] = (
    ("settings of a user's file", replace(FILE, engine="duckdb", provisioned=False, dsn="/x/a.duckdb?threads=2"), "has settings"),
    ("options of a file", replace(FILE, provisioned=False, dsn="/x/a.db?mode=rwc"), "not the absolute path"),
    ("a file said to be ours, by `..`", replace(FILE, dsn="/var/tmp/../../etc/x"), "absolute path"),
    ("a file by a URI", replace(FILE, dsn="file:/etc/x?mode=rwc"), "absolute path"),
    ("a relative file", replace(FILE, dsn="x.sqlite"), "absolute path"),
    ("an engine provisioned that is not", replace(FILE, engine="oracle"), "cannot start oracle"),
    ("a setting of DuckDB that is a path", replace(FILE, engine="duckdb", dsn="/x/a.duckdb?temp_directory=x"), "not a setting of DuckDB"),
    ("external access of DuckDB", replace(FILE, engine="duckdb", dsn="/x/a.duckdb?enable_external_access=true"), "not a setting of DuckDB"),
    ("a DuckDB of somebody's account", replace(FILE, engine="duckdb", dsn="md:others"), "absolute path"),
    ("a name that climbs", replace(DB, system="../x"), "not the name of a system"),
    ("an engine that climbs", replace(DB, engine="../../x"), "not the name of an engine"),
    ("a word for a PostgreSQL", replace(DB, dsn="x"), "not a PostgreSQL connection string"),
    ("an option for a MySQL", replace(DB, engine="mysql", dsn="--defaults-file=/x"), "not a MySQL dsn"),
    ("no form of Oracle", replace(ORACLE, dsn="--x"), "not of the form user/password"),
    ("TimesTen by another way", replace(ORACLE, engine="timesten"), "does not name the way"),
    ("a NUL", replace(DB, dsn="host=a\0b"), "holds a NUL"),
    ("an empty dsn", replace(DB, dsn=""), "is empty"),
    ("a dsn without end", replace(DB, dsn="host=" + "x" * 70_000), "longer than 65536"),
    ("instances of an SQLite", replace(FILE, instances=(FILE.dsn, "/etc/x")), "system of several instances"),
    ("instances of a server of ours", replace(DB, provisioned=True, instances=(DB.dsn, "host=b")), "has one address"),
    ("instances without end", replace(ORACLE, instances=tuple(f"hlr/x@//db{n}/H" for n in range(80))), "a dsn of system"),
)  # fmt: skip
WITH_ENDPOINT = (
    tasks.InspectSystem, tasks.PopulateSystem, tasks.CheckInvariants, tasks.RunSql, tasks.Checkpoint, tasks.RunLoad,
    tasks.CheckSystem, tasks.RestoreCopy,
)  # fmt: skip
PAIRS = (tasks.LinkSystems, tasks.CompareSystems)


def _endpoints() -> Iterator[Attempt]:
    for name, end, says in ENDPOINTS:
        for kind in WITH_ENDPOINT:
            yield from _of(kind, (name, says, {"endpoint": end}))
        for kind in PAIRS:
            yield from _of(kind, *((f"{side}: {name}", says, {side: end}) for side in ("source", "sink")))
        yield from _of(tasks.ApplyTuning, (name, says, {"endpoints": (end,)}))
        waits = replace(CAPTURE, kind="waits", system="db")
        yield from _of(tasks.RunCapture, (name, says, {"capture": waits, "endpoints": (end,)}))
    for kind in PAIRS:
        yield from _of(kind, ("to an Oracle", "between two postgres systems", {"sink": ORACLE}))


# ---- workloads: each kind of task that has one -----------------------------------------------------------------------

SQL = {
    "tables": {
        "t": {"rows": 1, "create": {"postgres": "CREATE TABLE t (n int)"}, "columns": {"n": {"uniform": [1, 9]}}}
    },
    "transactions": {"One": {"statements": {"one": "SELECT n FROM t"}}},
}


def _sql(text: str) -> Workload:
    """A custom workload whose statement is `text`, made without the checks of the compiler."""
    values = _put(to_values(Custom.model_validate(SQL)), "SELECT n FROM t", text)
    return Workload(name="sql", kind="sql", parameters=values)


def _put(value: Any, old: str, new: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_put(one, old, new) for one in value)
    return new if value == old else value


WORKLOADS: tuple[tuple[str, Workload, str], ...] = (
    ("a kind that is not there", replace(HLR, kind="../x"), "no workload kind"),
    ("a workload's name that climbs", replace(HLR, name="../x"), "`workload.name`"),
    ("rows without end", replace(HLR, parameters=(("population", 10**15),)), "population"),
    ("less than no rows", replace(HLR, parameters=(("population", -1),)), "population"),
    ("a parameter that is not one", replace(HLR, parameters=(("x", 1),)), "not valid"),
    ("parameters of no form", replace(HLR, parameters=(("weights", ((),)),)), "not valid"),
    ("warehouses without end", Workload(name="c", kind="tprocc", parameters=(("warehouses", 10**12),)), "warehouses"),
    ("two statements", _sql("SELECT n FROM t; DROP TABLE t"), "a second statement"),
    ("a bind without a value", _sql("SELECT n FROM t WHERE n = :x"), "has no generator"),
)
WITH_WORKLOAD = (tasks.PopulateSystem, *PAIRS, tasks.CheckInvariants, tasks.RunLoad)


def _workloads() -> Iterator[Attempt]:
    for name, workload, says in WORKLOADS:
        for kind in WITH_WORKLOAD:
            yield from _of(kind, (name, says, {"workload": workload}))


# ---- statements, facts, numbers --------------------------------------------------------------------------------------


def _numbers() -> Iterator[Attempt]:
    for number, bad in enumerate((("SELECT 1",) * 1001, ("",), ("x" * 5000,), ("SELECT 1\0",))):
        yield from _of(tasks.RunSql, (f"statements {number}", "`statements", {"statements": bad}))
    for bad_s in (-1.0, NAN, 1e9):
        yield from _of(tasks.CompareSystems, (f"{bad_s} s", "`drain_timeout_s`", {"drain_timeout_s": bad_s}))
    for count in (-1, 10**6):
        yield from _of(tasks.PopulateSystem, (f"{count} workers", "`workers`", {"workers": count}))
    yield from _of(
        tasks.ReadFacts,
        ("tools", "tools other than", {"tools": ("/bin/sh",)}),
        ("directories", "`directories` of", {"directories": (("db", "/x"),) * 1001}),
        ("a name", "`directories.0.0`", {"directories": (("../x", "/etc"),)}),
    )
    fast = tasks.OfferedRate(subject="stages.climb", engine="postgres", per_s=NAN)
    yield from _of(
        tasks.CheckHost,
        ("tools", "tools other than", {"tools": ("/bin/sh",)}),
        ("rates", "`rates.0.per_s`", {"rates": (fast,)}),
    )
    text = tasks.CheckedText(subject="stages.make.statements.0", text="SELECT 1\0")
    yield from _of(tasks.CheckSystem, ("texts", "holds a NUL", {"texts": (text,)}))


# ---- tuning ----------------------------------------------------------------------------------------------------------


def _tuning(
    operation: str, *, keep: bool = False, destructive: bool = False, system: str = "", **fields: Any
) -> Tuning:
    values = tuple(sorted({**fields, **({"system": system} if system else {})}.items()))
    return Tuning(
        name="x", operation=operation, hosts=("h",), keep=keep, destructive=destructive, system=system, parameters=values
    )  # fmt: skip


TUNINGS: tuple[tuple[str, Tuning, str], ...] = (
    ("an operation that is not there", replace(SYSCTL, operation="shell"), "no tuning operation"),
    ("another parameter", replace(SYSCTL, parameters=(("command", "sh"),)), "not valid"),
    ("a name with an escape", replace(SYSCTL, name="\x1b[2J"), "not valid"),
    ("a name without end", replace(SYSCTL, name="x" * 900), "the compiler does not make"),
    ("sshd restarted", replace(SYSCTL, restart="sshd.service"), "not valid"),
    ("a unit that is an option", replace(SYSCTL, restart="--force"), "not valid"),
    ("a system that it is not of", replace(SYSCTL, system="db"), "not of the system"),
    ("a file of cron", _tuning("file", path="/etc/../etc/cron.d/x", content="x"), "not valid"),
    ("a filesystem without the plan's word",
     _tuning("filesystem", keep=True, device="/dev/disk/by-id/x", label="x", replaces=None, type="xfs"), "can destroy data"),
    ("zeros without the plan's word", _tuning("zero_blocks", keep=True, device="/dev/disk/by-id/x", replaces=None, size="1MiB"), "can destroy data"),
    ("zeros over all of a disk",
     _tuning("zero_blocks", keep=True, destructive=True, device="/dev/sda", replaces=None, size="99999GiB"), "not valid"),
    ("an MTU outside the folder of interfaces", _tuning("mtu", interfaces=("../../../etc/x",), mtu=9000), "not valid"),
    ("a program with a relative path",
     _tuning("command", keep=True, apply=(("sh", "-c", "id"),), revert=(), verify=(("exists", ("/dev/x",)),), within="60s"), "not valid"),
    ("a hidden parameter without the plan's word",
     _tuning("oracle_parameters", system="db", hidden=False, instance=None, restart_by=None, settings=(("_x", "1"),)), "not valid"),
    ("a folder of a server with programs of root", _tuning("mount", at="/shared", device="a:/b", options=("rw",), type="nfs"), "not valid"),
    ("a partition without the plan's word",
     Tuning(name="p", operation="partition", hosts=("db1",), parameters=to_values(PARTITION)), "can destroy data"),
)  # fmt: skip


def _tunings() -> Iterator[Attempt]:
    for name, tuning, says in TUNINGS:
        for check in (False, True):
            yield from _of(tasks.ApplyTuning, (f"{name}, check={check}", says, {"tunings": (tuning,), "check": check}))
        loses = says.replace("destroy data", "lose data")
        yield from _of(tasks.InjectFault, (name, loses, {"tunings": (tuning,)}))
    yield from _of(
        tasks.InjectFault,
        ("that is kept", "is always undone", {"tunings": (replace(SYSCTL, keep=True),)}),
        ("without an end", "`for_s`", {"for_s": NAN}),
        ("at no instant", "`begins_s", {"begins_s": (NAN,)}),
        ("too often", "`begins_s", {"begins_s": (1.0,) * 101}),
        ("of many tunings", "`tunings` of", {"tunings": (SYSCTL,) * 21}),
        ("of none", "`tunings` of", {"tunings": ()}),
    )
    yield from _of(tasks.ApplyTuning, ("without end", "`tunings` of", {"tunings": (SYSCTL,) * 501}))


# ---- load, pools, tools, captures ------------------------------------------------------------------------------------


def _loads() -> Iterator[Attempt]:
    share = HONEST[tasks.RunLoad].share
    rows: list[Row] = [
        *((f"a window of {bad} s", "`windows.measure_s`", {"windows": replace(WINDOWS, measure_s=bad)}) for bad in (0.0, -1.0, NAN, 3.2e8)),
        *((f"{bad} threads", "`share.", {"share": replace(share, count=bad, total=bad)}) for bad in (0, -1, 10**7)),
        *((f"a rate of {bad}", "`share.rate`", {"share": replace(share, rate=bad)}) for bad in (-1.0, NAN, 1e300)),
        ("thinking for ever", "`share.think_s`", {"share": replace(share, think_s=1e12)}),
        *((f"{bad} processes", "`workers`", {"workers": bad}) for bad in (-1, 10**6)),
        ("a seed below zero", "`seed`", {"seed": -1}),
        ("a label with an escape", "`label`", {"label": "\x1b]0;x\x07"}),
    ]  # fmt: skip
    mysql = replace(DB, engine="mysql", dsn="mysql://u@h/d")
    for end, name, value in (
        (DB, "session_preload_libraries", "/tmp/x.so"), (DB, "a;b", "1"), (DB, "role", "postgres"),
        (mysql, "sql_mode", "'; DROP DATABASE x; -- "), (FILE, "writable_schema", "1"), (FILE, "temp_store", "1; ATTACH"),
        (ORACLE, "events", "10046"),
    ):  # fmt: skip
        rows.append((f"session {end.engine} {name}", "`", {"endpoint": end, "session": ((name, value),)}))
    for bad in ("--block", "x:0", "a b:1", "http://x:1/", "name:99999"):
        pool = tasks.LoadPool(kind="ray", address=bad)
        rows.append((f"a cluster {bad}", "not the address of a Ray cluster", {"pool": pool}))
    yield from _of(tasks.RunLoad, *rows)


POOLS: tuple[tuple[str, Any, str], ...] = (
    ("head", "--temp-dir=/etc:1", "address of a Ray node"), ("head", "x", "address of a Ray node"),
    ("towards", "a b:1", "address of a Ray node"), ("address", "--x", "name or the address of a host"),
    ("address", "0.0.0.0 --x", "name or the address of a host"), ("cpus", -1, "`cpus`"),
    ("cpus", 10**9, "`cpus`"), ("secrets", replace(SECRETS, token="a\nb"), "`secrets.token`"),
    ("secrets", replace(SECRETS, authority="x" * 10**5), "`secrets.authority`"),
)  # fmt: skip

JOBS: tuple[tuple[str, FioJob, str], ...] = (
    ("a folder that climbs", replace(JOB, directory="/data/../etc"), "absolute path"),
    ("a relative folder", replace(JOB, directory="x"), "absolute path"),
    ("a device by a name that moves", replace(JOB, devices=("/dev/sda",)), "name a device for good"),
    ("a device with a second one", replace(JOB, devices=(f"{DEVICE}:/dev/sda\n",)), "for good"),
    ("writing without the plan's word", replace(JOB, devices=(DEVICE,), read_fraction=0.0), "destroys"),
    ("a folder and devices", replace(JOB, directory="/x", devices=(DEVICE,)), "or on devices"),
    ("devices without end", replace(JOB, devices=tuple(f"{DEVICE}{n}" for n in range(300))), "devices"),
    ("jobs without end", replace(JOB, jobs=10**6), "`job.jobs`"),
    ("less than no jobs", replace(JOB, jobs=-1), "`job.jobs`"),
    ("blocks of nothing", replace(JOB, block_bytes=0), "`job.block_bytes`"),
    ("files without end", replace(JOB, size_bytes=2**60), "`job.size_bytes`"),
    ("more reads than all", replace(JOB, read_fraction=NAN), "`job.read_fraction`"),
)


def _tools() -> Iterator[Attempt]:
    yield from _of(
        tasks.FormPool, *((f"{name}: {str(bad)[:20]!r}: {says}", says, {name: bad}) for name, bad, says in POOLS)
    )
    for kind in (tasks.PrepareFio, tasks.RunFio):
        yield from _of(kind, *((name, says, {"job": job}) for name, job, says in JOBS))
    yield from _of(
        tasks.RunFio,
        ("no depth", "`iodepth`", {"iodepth": 0}),
        ("a depth without end", "`iodepth`", {"iodepth": 10**9}),
        ("a slice below zero", "`first_slice`", {"first_slice": -1}),
        ("a window that is none", "`windows.measure_s`", {"windows": replace(WINDOWS, measure_s=NAN)}),
        ("a label with an escape", "`label`", {"label": "\x1b"}),
    )
    yield from _of(
        tasks.RebootHost, *((f"changes for {bad} s", "`hold_s`", {"hold_s": bad}) for bad in (0.0, NAN, 1e9))
    )
    for name, changes, says in (
        ("a relative program", {"argv": ("../sh",)}, "neither the absolute path"),
        ("a path that climbs", {"argv": ("/usr/bin/../../tmp/x",)}, "neither the absolute path"),
        ("no end", {"within_s": 1e12}, "`command.within_s`"),
        ("arguments without end", {"argv": ("df",) * 10_000}, "`command.argv`"),
        ("an expression that backtracks", {"output": OutputRows(format="pattern", pattern=r"(?P<a>x)\1")}, "RE2"),
    ):
        command = replace(HONEST[tasks.RunCommand].command, **changes)
        yield from _of(tasks.RunCommand, (name, says, {"command": command}))


def _captures() -> Iterator[Attempt]:
    def node(dsn: str, *scrapes: Scrape) -> dict[str, Any]:
        return {"capture": replace(NODE, scrapes=scrapes or NODE.scrapes), "endpoints": (replace(EXPORTER, dsn=dsn),)}

    urls = ("file:///etc/shadow", "gopher://x/", "http:///x", "http://a b/", "http://a\r\nX: y/", "http://a:x/")
    scrapes = (
        (replace(SCRAPE, metric="a\nb"), "`capture.scrapes.0.metric`"),
        (replace(SCRAPE, labels=(("a b", "c"),)), "name of a label"),
    )
    kinds = (("os", (DB,)), ("waits", ()), ("lag", (DB,)), ("prometheus", ()), ("sizes", (DB, DB)))
    yield from _of(
        tasks.RunCapture,
        *((f"every {bad} s", "`capture.every_s`", {"capture": replace(CAPTURE, every_s=bad)}) for bad in (0.0, -1.0, NAN, 1e9, 0.001)),
        *((f"edges {bad}", "`edges_s", {"edges_s": bad}) for bad in ((NAN, 1.0), (-1.0, 1.0), (0.0, 1e9), (0.0, 1.0, 2.0))),
        *((f"url {bad!r}", "not the address of an exporter", node(bad)) for bad in urls),
        *((f"metric {number}", says, node(EXPORTER.dsn, bad)) for number, (bad, says) in enumerate(scrapes)),
        ("a database as an exporter", "is not an exporter", {"capture": NODE, "endpoints": (DB,)}),
        *((f"{kind} of {len(ends)}", "systems, not", {"capture": replace(CAPTURE, kind=kind), "endpoints": ends}) for kind, ends in kinds),
        ("waits of an SQLite", "wait events of sqlite are not captured",
         {"capture": replace(CAPTURE, kind="waits", system="db"), "endpoints": (FILE,)}),
        ("a name", "`capture.name`", {"capture": replace(CAPTURE, name="../x")}),
    )  # fmt: skip


ATTEMPTS: tuple[Attempt, ...] = (
    *_systems(), *_endpoints(), *_workloads(), *_numbers(), *_tunings(), *_loads(), *_tools(), *_captures(),
)  # fmt: skip
