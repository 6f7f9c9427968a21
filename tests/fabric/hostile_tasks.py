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

from proveout.dsl.operations.kernel.sysctl import Sysctl
from proveout.dsl.operations.storage.partition import Partition
from proveout.dsl.plan.commands import Command, OutputRows
from proveout.dsl.plan.fio_job import FioJob
from proveout.dsl.plan.measured_values import MeasuredValue
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import Capture, Scrape, System
from proveout.dsl.plan.tuning_step import Tuning
from proveout.dsl.workloads.sql.parameters import Custom
from proveout.proto.wire import tasks
from proveout.proto.wire.tasks import Endpoint, TaskSpec

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`tries`: the intended effect. `says`: part of the message with which an agent refuses it as `invalid`."""

    name: str
    tries: str
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


# ---- systems ---------------------------------------------------------------------------------------------------------

LINE_BREAK = "1\nlocal_infile = on"


def _poolers() -> Iterator[Attempt]:
    front = replace(EMBEDDED, name="front", provision="pgbouncer", in_front_of="db")
    behind = replace(DB, engine="postgres", provisioned=True)

    def of(says: str, title: str, tries: str, /, **changes: Any) -> Attempt:
        spec = _with(tasks.StartSystem, **({"system": front, "primary": (behind,)} | changes))
        return Attempt(name=f"start: {title}", tries=tries, spec=spec, says=says)

    def given(says: str, tries: str, name: str, value: str) -> Attempt:
        return of(says, f"a PgBouncer with {name}", tries, system=replace(front, settings=((name, value),)))

    yield of("one primary if it is", "a PgBouncer in front of nothing", "start it without a database", primary=())
    yield of(
        "is not the primary", "a PgBouncer by another name", "log in elsewhere", primary=(replace(behind, system="x"),)
    )
    yield of(
        "not of sqlite",
        "a PgBouncer of another engine",
        "run what is not there",
        system=replace(front, engine="sqlite"),
    )
    quoted = replace(front, in_front_of='db" host=else')
    yield of("not the name of a system", "a PgBouncer by a quoted name", "write into the configuration", system=quoted)
    both = replace(front, standby_of="db")
    yield of("has no data to replicate", "a PgBouncer that is a standby", "replace its data", system=both)
    plain = replace(EMBEDDED, in_front_of="db")
    yield of("is for a PgBouncer", "a database in front of another", "read its password", system=plain)
    yield given("is not a setting", "write a file of the host", "logfile", "/etc/passwd")
    yield given("is not a setting", "take the console", "admin_users", "proveout")
    yield given("is not a setting", "run SQL as another", "auth_query", "SELECT 1")
    yield given("whole number", "write a second line", "default_pool_size", "1\nadmin_users = proveout")
    yield given("`pool_mode` is session", "write a second line", "pool_mode", "session\nauth_type = any")


def _standbys() -> Iterator[Attempt]:
    standby = replace(EMBEDDED, name="standby", standby_of="db")
    primary = replace(DB, engine="postgres", provisioned=True)

    def of(says: str, title: str, tries: str, /, **changes: Any) -> Attempt:
        spec = _with(tasks.StartSystem, **({"system": standby, "primary": (primary,)} | changes))
        return Attempt(name=f"start: {title}", tries=tries, spec=spec, says=says)

    yield of("one primary if it is a standby", "a standby without a primary", "start it with no data", primary=())
    yield of("one primary if it is a standby", "a primary of a primary", "replace its data", system=EMBEDDED)
    other = "read the passwords of another server"
    yield of("is not the primary", "a primary by another name", other, primary=(replace(primary, system="else"),))
    yield of("is not the primary", "a primary with a dsn", other, primary=(replace(primary, provisioned=False),))
    away = replace(standby, engine="sqlite")
    yield of("starts standbys of", "a standby of another engine", "run what is not there", system=away)
    crowd = tuple(f"s{number}" for number in range(99))
    yield of("standbys, or a synchronous one", "too many", "fill memory", system=EMBEDDED, primary=(), standbys=crowd)
    names = {"system": EMBEDDED, "primary": (), "standbys": ('s", *',), "synchronous": ('s", *',)}
    yield of("not the name of a system", "a standby by a quoted name", "write into the configuration", **names)


def _systems() -> Iterator[Attempt]:
    yield from _poolers()
    yield from _standbys()
    for kind in (tasks.StartSystem, tasks.SnapshotSystem):
        verb = "start" if kind is tasks.StartSystem else "snapshot"

        def of(says: str, title: str, tries: str, /, *, kind: type = kind, verb: str = verb, **changes: Any) -> Attempt:
            system = replace(EMBEDDED, **changes)
            return Attempt(name=f"{verb}: {title}", tries=tries, spec=_with(kind, system=system), says=says)

        climb = "put the system's folder elsewhere"
        for number, bad in enumerate(("../../etc", "a/b", "", ".", "-rf", "a\nb", "a" * 200)):
            yield of("not the name of a system", f"name {number}", climb, name=bad)
        yield of(
            "cannot start oracle",
            "an engine that is not embedded",
            "have the agent run another server",
            engine="oracle",
        )
        yield of("is not one to be started", "with a dsn", "mix a server that runs already in", dsn="host=db")
        command = "run a program as the server's user"
        yield of(
            "makes the server run or load", "archive_command", command, settings=(("archive_command", "touch /tmp/x"),)
        )
        yield of(
            "makes the server run or load", "upper case", command, settings=(("SHARED_PRELOAD_LIBRARIES", "/tmp/x.so"),)
        )
        yield of(
            "names a file or where the server writes",
            "data_directory",
            "use files of others",
            settings=(("data_directory", "/"),),
        )
        yield of("more than one line", "two lines", "smuggle a setting", settings=(("work_mem", LINE_BREAK),))
        yield of("not the name of a setting", "a line as a name", "smuggle a setting", settings=(("a = 1\nb", "1"),))
        many = tuple((f"a{number}", "1") for number in range(201))
        yield of("more than 200 settings", "settings without end", "fill the configuration", settings=many)
        maria = {"engine": "mysql"}
        yield of("would run a command", "plugin_load", command, settings=(("plugin_load", "x=/tmp/x.so"),), **maria)
        yield of("would run a command", "loose_", command, settings=(("loose_init_file", "/tmp/x"),), **maria)
        yield of("not kept in an SQLite file", "temp_store_directory", "write files elsewhere", engine="sqlite",
                 settings=(("temp_store_directory", "/etc"),))  # fmt: skip
        yield Attempt(
            name=f"{verb}: control characters in the folder",
            tries="act on the terminal by a message",
            spec=_with(kind, data_root="/tmp/\x1b[2J"),
            says="control characters",
        )
    for number, bad in enumerate(("../../var/lib", "a/../../b", "/etc")):
        yield Attempt(
            name=f"stop: name {number}",
            tries="have a folder of others removed",
            spec=_with(tasks.StopSystem, system=bad),
            says="not the name of a system",
        )


# ---- endpoints: each kind of task that has one -----------------------------------------------------------------------

ENDPOINTS: tuple[tuple[str, str, Endpoint, str], ...] = (
    ("a file by a dsn", "have root use a file of root's", replace(FILE, engine="duckdb", provisioned=False), "it has no dsn"),
    ("options of a file", "open with options of SQLite", replace(FILE, provisioned=False, dsn="/x/a.db?mode=rwc"), "not the absolute path"),
    ("a file said to be ours, by `..`", "use a file of others", replace(FILE, dsn="/var/tmp/../../etc/x"), "absolute path"),
    ("a file by a URI", "open with options of SQLite", replace(FILE, dsn="file:/etc/x?mode=rwc"), "absolute path"),
    ("a relative file", "use a file of the agent's folder", replace(FILE, dsn="x.sqlite"), "absolute path"),
    ("an engine provisioned that is not", "use a file as a system of ours",
     replace(FILE, engine="oracle"), "cannot start oracle"),
    ("a setting of DuckDB that is a path", "have rows spilled into a folder of others",
     replace(FILE, engine="duckdb", dsn="/x/a.duckdb?temp_directory=x"), "not a setting of DuckDB"),
    ("external access of DuckDB", "read files of the host",
     replace(FILE, engine="duckdb", dsn="/x/a.duckdb?enable_external_access=true"), "not a setting of DuckDB"),
    ("a DuckDB of somebody's account", "send data to a server",
     replace(FILE, engine="duckdb", dsn="md:others"), "absolute path"),
    ("a name that climbs", "name a resource or a folder elsewhere", replace(DB, system="../x"), "not the name of a system"),
    ("an engine that climbs", "import a module by its name", replace(DB, engine="../../x"), "not the name of an engine"),
    ("a word for a PostgreSQL", "have libpq read its defaults", replace(DB, dsn="x"), "not a PostgreSQL connection string"),
    ("an option for a MySQL", "inject an option", replace(DB, engine="mysql", dsn="--defaults-file=/x"), "not a MySQL dsn"),
    ("no form of Oracle", "inject an option", replace(ORACLE, dsn="--x"), "not of the form user/password"),
    ("TimesTen by another way", "load another library", replace(ORACLE, engine="timesten"), "does not name the way"),
    ("a NUL", "cut the dsn off", replace(DB, dsn="host=a\0b"), "holds a NUL"),
    ("an empty dsn", "have the defaults used", replace(DB, dsn=""), "is empty"),
    ("a dsn without end", "fill the memory", replace(DB, dsn="host=" + "x" * 70_000), "longer than 65536"),
    ("instances of an SQLite", "use files of others", replace(FILE, instances=(FILE.dsn, "/etc/x")), "system of several instances"),
    ("instances of a server of ours", "reach other servers",
     replace(DB, provisioned=True, instances=(DB.dsn, "host=b")), "has one address"),
    ("instances without end", "open connections without end",
     replace(ORACLE, instances=tuple(f"hlr/x@//db{n}/H" for n in range(80))), "a dsn of system"),
)  # fmt: skip
"""(name, intended effect, endpoint, part of the refusal)."""

WITH_ENDPOINT = (
    tasks.InspectSystem, tasks.PopulateSystem, tasks.CheckInvariants, tasks.RunSql, tasks.Checkpoint, tasks.RunLoad,
    tasks.CheckSystem, tasks.RestoreCopy,
)  # fmt: skip


def _endpoints() -> Iterator[Attempt]:
    for name, tries, end, says in ENDPOINTS:
        for kind in WITH_ENDPOINT:
            yield Attempt(name=f"{kind.__name__}: {name}", tries=tries, spec=_with(kind, endpoint=end), says=says)
        for kind in (tasks.LinkSystems, tasks.CompareSystems):
            for side in ("source", "sink"):
                spec = _with(kind, **{side: end})
                yield Attempt(name=f"{kind.__name__}: {side}: {name}", tries=tries, spec=spec, says=says)
        tuned = _with(tasks.ApplyTuning, endpoints=(end,))
        yield Attempt(name=f"ApplyTuning: {name}", tries=tries, spec=tuned, says=says)
        waits = tasks.RunCapture(capture=replace(CAPTURE, kind="waits", system="db"), endpoints=(end,))
        yield Attempt(name=f"RunCapture: {name}", tries=tries, spec=waits, says=says)
    for kind in (tasks.LinkSystems, tasks.CompareSystems):
        spec = _with(kind, sink=ORACLE)
        tries = "set propagation up between engines that have none"
        yield Attempt(
            name=f"{kind.__name__}: to an Oracle", tries=tries, spec=spec, says="between two postgres systems"
        )


# ---- workloads: each kind of task that has one -----------------------------------------------------------------------

SQL = {
    "tables": {
        "t": {"rows": 1, "create": {"postgres": "CREATE TABLE t (n int)"}, "columns": {"n": {"uniform": [1, 9]}}}
    },
    "transactions": {"One": {"statements": {"one": "SELECT n FROM t"}}},
}


def _sql(text: str) -> Workload:
    """A custom workload whose statement is `text`, made without the checks of the compiler."""
    return Workload(
        name="sql", kind="sql", parameters=_put(to_values(Custom.model_validate(SQL)), "SELECT n FROM t", text)
    )


def _put(value: Any, old: str, new: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_put(one, old, new) for one in value)
    return new if value == old else value


WORKLOADS: tuple[tuple[str, str, Workload, str], ...] = (
    ("a kind that is not there", "load another package", replace(HLR, kind="../x"), "no workload kind"),
    ("a workload's name that climbs", "name a folder elsewhere", replace(HLR, name="../x"), "not the name of a workload"),
    ("rows without end", "fill the disk", replace(HLR, parameters=(("population", 10**15),)), "population"),
    ("less than no rows", "have it count for ever", replace(HLR, parameters=(("population", -1),)), "population"),
    ("a parameter that is not one", "reach an argument", replace(HLR, parameters=(("x", 1),)), "not valid"),
    ("parameters of no form", "break the reading", replace(HLR, parameters=(("weights", ((),)),)), "not valid"),
    ("warehouses without end", "fill the disk",
     Workload(name="c", kind="tprocc", parameters=(("warehouses", 10**12),)), "warehouses"),
    ("two statements", "run a statement behind another", _sql("SELECT n FROM t; DROP TABLE t"), "a second statement"),
    ("a bind without a value", "have the text changed", _sql("SELECT n FROM t WHERE n = :x"), "has no generator"),
)  # fmt: skip
WITH_WORKLOAD = (
    tasks.PopulateSystem, tasks.LinkSystems, tasks.CompareSystems, tasks.CheckInvariants, tasks.RunLoad,
)  # fmt: skip


def _workloads() -> Iterator[Attempt]:
    for name, tries, workload, says in WORKLOADS:
        for kind in WITH_WORKLOAD:
            spec = _with(kind, workload=workload)
            yield Attempt(name=f"{kind.__name__}: {name}", tries=tries, spec=spec, says=says)


# ---- statements, facts, numbers --------------------------------------------------------------------------------------


def _numbers() -> Iterator[Attempt]:
    end = "keep the host busy for ever"
    for number, statements in enumerate((("SELECT 1",) * 1001, ("",), ("x" * 5000,), ("SELECT 1\0",))):
        spec = _with(tasks.RunSql, statements=statements)
        yield Attempt(name=f"RunSql: statements {number}", tries=end, spec=spec, says="statements, or one")
    for bad in (-1.0, NAN, 1e9):
        spec = _with(tasks.CompareSystems, drain_timeout_s=bad)
        yield Attempt(name=f"CompareSystems: {bad} s", tries=end, spec=spec, says="is not valid")
    for bad in (-1, 10**6):
        spec = _with(tasks.PopulateSystem, workers=bad)
        yield Attempt(
            name=f"PopulateSystem: {bad} workers",
            tries="start processes without end",
            spec=spec,
            says="worker processes",
        )
    for field, bad in (("tools", ("/bin/sh",)), ("directories", (("db", "/x"),) * 1001)):
        spec = _with(tasks.ReadFacts, **{field: bad})
        yield Attempt(name=f"ReadFacts: {field}", tries="start another program", spec=spec, says="facts of")
    facts = _with(tasks.ReadFacts, directories=(("../x", "/etc"),))
    yield Attempt(name="ReadFacts: a name", tries="look elsewhere", spec=facts, says="not the name of a system")
    host = _with(tasks.CheckHost, tools=("/bin/sh",))
    yield Attempt(name="CheckHost: tools", tries="look for any file", spec=host, says="a check of 1 systems")
    fast = (tasks.OfferedRate(subject="stages.climb", engine="postgres", per_s=float("nan")),)
    host = _with(tasks.CheckHost, rates=fast)
    yield Attempt(name="CheckHost: rates", tries="a rate that is not a number", spec=host, says="a check of 1 rates")
    two = tasks.CheckedText(subject="stages.make.statements.0", text="SELECT 1\0")
    spec = _with(tasks.CheckSystem, texts=(two,))
    yield Attempt(name="CheckSystem: texts", tries="end a text early", spec=spec, says="holds a NUL")


# ---- tuning ----------------------------------------------------------------------------------------------------------

TUNINGS: tuple[tuple[str, str, Tuning, str], ...] = (
    ("an operation that is not there", "run code by its name", replace(SYSCTL, operation="shell"), "no tuning operation"),
    ("another parameter", "reach an argument", replace(SYSCTL, parameters=(("command", "sh"),)), "not valid"),
    ("a name with an escape", "act on the terminal", replace(SYSCTL, name="\x1b[2J"), "not valid"),
    ("a name without end", "fill the journal", replace(SYSCTL, name="x" * 900), "the compiler does not make"),
    ("sshd restarted", "cut the owner off", replace(SYSCTL, restart="sshd.service"), "not valid"),
    ("a unit that is an option", "inject an option", replace(SYSCTL, restart="--force"), "not valid"),
    ("a system that it is not of", "have it undone elsewhere", replace(SYSCTL, system="db"), "not of the system"),
    ("a file of cron", "run a command as root", Tuning(
        name="f", operation="file", hosts=("db1",), parameters=(("path", "/etc/../etc/cron.d/x"), ("content", "x"))), "not valid"),
    ("a filesystem without the plan's word", "destroy data", Tuning(
        name="x", operation="filesystem", hosts=("h",), keep=True, parameters=(
            ("device", "/dev/disk/by-id/x"), ("label", "x"), ("replaces", None), ("type", "xfs"))), "can destroy data"),
    ("zeros without the plan's word", "destroy data", Tuning(
        name="x", operation="zero_blocks", hosts=("h",), keep=True, parameters=(
            ("device", "/dev/disk/by-id/x"), ("replaces", None), ("size", "1MiB"))), "can destroy data"),
    ("zeros over all of a disk", "destroy data", Tuning(
        name="x", operation="zero_blocks", hosts=("h",), keep=True, destructive=True, parameters=(
            ("device", "/dev/sda"), ("replaces", None), ("size", "99999GiB"))), "is not valid"),
    ("an MTU outside the folder of interfaces", "write to any file", Tuning(
        name="x", operation="mtu", hosts=("h",), parameters=(("interfaces", ("../../../etc/x",)), ("mtu", 9000))), "is not valid"),
    ("a program with a relative path", "run any program", Tuning(
        name="x", operation="command", hosts=("h",), keep=True, parameters=(
            ("apply", (("sh", "-c", "id"),)), ("revert", ()), ("verify", (("exists", ("/dev/x",)),)), ("within", "60s"))), "is not valid"),
    ("a hidden parameter without the plan's word", "change what nobody documents", Tuning(
        name="x", operation="oracle_parameters", hosts=("h",), system="db", parameters=(
            ("hidden", False), ("instance", None), ("restart_by", None), ("settings", (("_x", "1"),)), ("system", "db"))), "is not valid"),
    ("a folder of a server with programs of root", "gain privileges", Tuning(
        name="x", operation="mount", hosts=("h",), parameters=(
            ("at", "/shared"), ("device", "a:/b"), ("options", ("rw",)), ("type", "nfs"))), "is not valid"),
    ("a partition without the plan's word", "destroy data", Tuning(
        name="p", operation="partition", hosts=("db1",), parameters=to_values(PARTITION)), "can destroy data"),
)  # fmt: skip

FAULTS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("that is kept", "leave a change on the host", {"tunings": (replace(SYSCTL, keep=True),)}, "is always undone"),
    ("without an end", "leave a change on the host", {"for_s": NAN}, "lasts nan s"),
    ("at no instant", "begin a fault at once", {"begins_s": (NAN,)}, "instants that are not possible"),
    ("too often", "begin faults without end", {"begins_s": (1.0,) * 101}, "instants that are not possible"),
    ("of many tunings", "fill the journal", {"tunings": (SYSCTL,) * 21}, "1 to 20 tunings"),
    ("of none", "measure a fault that is none", {"tunings": ()}, "1 to 20 tunings"),
)


def _tunings() -> Iterator[Attempt]:
    for name, tries, tuning, says in TUNINGS:
        for check in (False, True):
            spec = _with(tasks.ApplyTuning, tunings=(tuning,), check=check)
            yield Attempt(name=f"ApplyTuning: {name}, check={check}", tries=tries, spec=spec, says=says)
        spec = _with(tasks.InjectFault, tunings=(tuning,))
        loses = says.replace("destroy data", "lose data")
        yield Attempt(name=f"InjectFault: {name}", tries=tries, spec=spec, says=loses)
    for name, tries, changes, says in FAULTS:
        yield Attempt(name=f"InjectFault: {name}", tries=tries, spec=_with(tasks.InjectFault, **changes), says=says)
    many = _with(tasks.ApplyTuning, tunings=(SYSCTL,) * 501)
    yield Attempt(name="ApplyTuning: without end", tries="fill the journal", spec=many, says="more than 500")


# ---- load, pools, tools, captures ------------------------------------------------------------------------------------


def _loads() -> Iterator[Attempt]:
    def of(name: str, tries: str, says: str, **changes: Any) -> Attempt:
        return Attempt(name=f"RunLoad: {name}", tries=tries, spec=_with(tasks.RunLoad, **changes), says=says)

    share = HONEST[tasks.RunLoad].share
    for bad in (0.0, -1.0, NAN, 3.2e8):
        yield of(f"a window of {bad} s", "run for ever", "windows of", windows=replace(WINDOWS, measure_s=bad))
    for bad in (0, -1, 10**7):
        yield of(
            f"{bad} threads",
            "open connections without end",
            "terminals 0 to",
            share=replace(share, count=bad, total=bad),
        )
    for bad in (-1.0, NAN, 1e300):
        yield of(f"a rate of {bad}", "spin", "a rate of", share=replace(share, rate=bad))
    yield of("thinking for ever", "hold connections", "a think time", share=replace(share, think_s=1e12))
    for bad in (-1, 10**6):
        yield of(f"{bad} processes", "start processes without end", "worker processes", workers=bad)
    yield of("a seed below zero", "break the generator", "is not a valid seed", seed=-1)
    yield of("a label with an escape", "act on the terminal", "control characters", label="\x1b]0;x\x07")
    session = "run code on the server, or open a file"
    for engine, name, value in (
        ("postgres", "session_preload_libraries", "/tmp/x.so"), ("postgres", "a;b", "1"), ("postgres", "role", "postgres"),
        ("mysql", "sql_mode", "'; DROP DATABASE x; -- "), ("sqlite", "writable_schema", "1"), ("sqlite", "temp_store", "1; ATTACH"),
        ("oracle", "events", "10046"),
    ):  # fmt: skip
        ends = {
            "postgres": DB,
            "mysql": replace(DB, engine="mysql", dsn="mysql://u@h/d"),
            "sqlite": FILE,
            "oracle": ORACLE,
        }
        yield of(f"session {engine} {name}", session, "`", endpoint=ends[engine], session=((name, value),))
    for number, bad in enumerate(("--block", "x:0", "a b:1", "http://x:1/", "name:99999")):
        pool = tasks.LoadPool(kind="ray", address=bad)
        yield of(f"a cluster {number}", "inject an option", "not the address of a Ray cluster", pool=pool)


def _pools() -> Iterator[Attempt]:
    for field, bad, says in (
        ("head", "--temp-dir=/etc:1", "address of a Ray node"), ("head", "x", "address of a Ray node"),
        ("towards", "a b:1", "address of a Ray node"), ("address", "--x", "name or the address of a host"),
        ("address", "0.0.0.0 --x", "name or the address of a host"), ("cpus", -1, "a Ray node for"),
        ("cpus", 10**9, "a Ray node for"), ("secrets", replace(SECRETS, token="a\nb"), "the token"),
        ("secrets", replace(SECRETS, authority="x" * 10**5), "secret of the Ray cluster"),
    ):  # fmt: skip
        spec = _with(tasks.FormPool, **{field: bad})
        yield Attempt(
            name=f"FormPool: {field}: {says} {str(bad)[:20]!r}", tries="inject an option", spec=spec, says=says
        )


JOBS: tuple[tuple[str, str, FioJob, str], ...] = (
    ("a folder that climbs", "write elsewhere", replace(JOB, directory="/data/../etc"), "absolute path"),
    ("a relative folder", "write in the agent's folder", replace(JOB, directory="x"), "absolute path"),
    ("a device by a name that moves", "write on another disk", replace(JOB, devices=("/dev/sda",)), "name a device for good"),
    ("a device with a second one", "write on another disk", replace(JOB, devices=(f"{DEVICE}:/dev/sda\n",)), "for good"),
    ("writing without the plan's word", "destroy data", replace(JOB, devices=(DEVICE,), read_fraction=0.0), "destroys"),
    ("a folder and devices", "miss one of the looks", replace(JOB, directory="/x", devices=(DEVICE,)), "or on devices"),
    ("devices without end", "fill the memory", replace(JOB, devices=tuple(f"{DEVICE}{n}" for n in range(300))), "devices"),
    ("jobs without end", "start threads without end", replace(JOB, jobs=10**6), "jobs at once"),
    ("less than no jobs", "have it count for ever", replace(JOB, jobs=-1), "jobs at once"),
    ("blocks of nothing", "divide by nothing", replace(JOB, block_bytes=0), "not possible"),
    ("files without end", "fill the disk", replace(JOB, size_bytes=2**60), "not possible"),
    ("more reads than all", "write where it says it reads", replace(JOB, read_fraction=NAN), "not possible"),
)  # fmt: skip


def _tools() -> Iterator[Attempt]:
    for name, tries, job, says in JOBS:
        for kind in (tasks.PrepareFio, tasks.RunFio):
            yield Attempt(name=f"{kind.__name__}: {name}", tries=tries, spec=_with(kind, job=job), says=says)
    for field, bad, says in (
        ("iodepth", 0, "an I/O depth"), ("iodepth", 10**9, "an I/O depth"), ("first_slice", -1, "an I/O depth"),
        ("windows", replace(WINDOWS, measure_s=NAN), "windows of"), ("label", "\x1b", "control characters"),
    ):  # fmt: skip
        spec = _with(tasks.RunFio, **{field: bad})
        yield Attempt(name=f"RunFio: {field} {bad!r}", tries="run for ever", spec=spec, says=says)


def _commands() -> Iterator[Attempt]:
    for name, changes, says in (
        ("a relative program", {"argv": ("../sh",)}, "neither the absolute path"),
        ("a path that climbs", {"argv": ("/usr/bin/../../tmp/x",)}, "neither the absolute path"),
        ("no end", {"within_s": 1e12}, "is not possible"),
        ("arguments without end", {"argv": ("df",) * 10_000}, "arguments"),
        ("an expression that backtracks", {"output": OutputRows(format="pattern", pattern=r"(?P<a>x)\1")}, "RE2"),
    ):
        command = replace(HONEST[tasks.RunCommand].command, **changes)
        spec = _with(tasks.RunCommand, command=command)
        yield Attempt(name=f"RunCommand: {name}", tries="run another program, or for ever", spec=spec, says=says)


def _captures() -> Iterator[Attempt]:
    for bad in (0.0, -1.0, NAN, 1e9, 0.001):
        spec = tasks.RunCapture(capture=replace(CAPTURE, every_s=bad))
        yield Attempt(name=f"RunCapture: every {bad} s", tries="spin", spec=spec, says="a sample every")
    for edges_s in ((NAN, 1.0), (-1.0, 1.0), (0.0, 1e9), (0.0, 1.0, 2.0)):
        spec = tasks.RunCapture(capture=CAPTURE, edges_s=edges_s)
        yield Attempt(name=f"RunCapture: edges {edges_s}", tries="spin", spec=spec, says="edges of a window")
    for number, bad in enumerate(
        ("file:///etc/shadow", "gopher://x/", "http:///x", "http://a b/", "http://a\r\nX: y/", "http://a:x/")
    ):
        spec = tasks.RunCapture(capture=NODE, endpoints=(replace(EXPORTER, dsn=bad),))
        tries = "read a file, or speak another protocol"
        yield Attempt(name=f"RunCapture: url {number}", tries=tries, spec=spec, says="not the address of an exporter")
    other = tasks.RunCapture(capture=NODE, endpoints=(DB,))
    yield Attempt(
        name="RunCapture: a database as an exporter", tries="mix the two", spec=other, says="is not an exporter"
    )
    for number, scrape in enumerate((replace(SCRAPE, metric="a\nb"), replace(SCRAPE, labels=(("a b", "c"),)))):
        spec = tasks.RunCapture(capture=replace(NODE, scrapes=(scrape,)), endpoints=(EXPORTER,))
        yield Attempt(name=f"RunCapture: metric {number}", tries="act on the reader", spec=spec, says="name of a")
    for kind, ends in (("os", (DB,)), ("waits", ()), ("lag", (DB,)), ("prometheus", ()), ("sizes", (DB, DB))):
        spec = tasks.RunCapture(capture=replace(CAPTURE, kind=kind), endpoints=ends)
        yield Attempt(
            name=f"RunCapture: {kind} of {len(ends)}", tries="choose who asks", spec=spec, says="systems, not"
        )
    name = tasks.RunCapture(capture=replace(CAPTURE, name="../x"))
    yield Attempt(name="RunCapture: a name", tries="name a file elsewhere", spec=name, says="not the name of a capture")


ATTEMPTS: tuple[Attempt, ...] = (
    *_systems(), *_endpoints(), *_workloads(), *_numbers(), *_tunings(), *_loads(), *_pools(), *_tools(),
    *_commands(), *_captures(),
)  # fmt: skip
