"""`oracle_parameters`, `oracle_redo`, `asm_disk_group`: any instances, redo logs and disks of a model of Oracle.

The models run only the statements of these operations, by the
rules of the SQL Language Reference and the Administrator's Guide (a current or active group cannot be dropped, an
instance keeps two). They test the logic of the operations, not that an Oracle accepts the statements, nor that its views
have these contents.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from any_host import Case, World, valid_tuning, world
from hypothesis import strategies as st
from tuning_bench import StubTools, put

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.programs import Processes
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.disks import NOTHING_FOUND
from proveout.dsl.operations.facts import Output, Rows
from proveout.dsl.operations.oracle import CHECKPOINT, OPEN
from proveout.dsl.operations.sql import bytes_of

_SET = re.compile(r"ALTER SYSTEM SET (\w+|\"_\w+\") = (.*) SCOPE=(SPFILE|MEMORY) SID='(\*|\w+)'", re.S)
_RESET = re.compile(r"ALTER SYSTEM RESET (\w+|\"_\w+\") SCOPE=SPFILE SID='(\*|\w+)'")
_OF_ONE = re.compile(r"instance_name = 'orcl(\d)'")
_IMMEDIATE = re.compile(r"EXECUTE IMMEDIATE '((?:[^']|'')*)'")
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_SIZED = re.compile(r"[1-9]\d*[KMGT]", re.I)


def ora(code: int) -> TaskFault:
    """An error of the database."""
    return TaskFault("fault", f"ORA-{code:05d}")


def unquoted(text: str) -> str:
    """The text of a literal; other text unchanged."""
    found = _LITERAL.fullmatch(text)
    return found[1].replace("''", "'") if found else text


# ---- oracle_parameters -----------------------------------------------------------------------------------------------

KINDS = {"sga_target": "FALSE", "open_cursors": "IMMEDIATE", "cursor_sharing": "IMMEDIATE", "db_create_file_dest": "IMMEDIATE",
         "use_large_pages": "FALSE", "backup_tape_io_slaves": "DEFERRED", "dispatchers": "IMMEDIATE"}  # fmt: skip
HIDDEN = ("_high_priority_processes", "_max_outstanding_log_writes")
SRVCTL = "/u01/app/oracle/bin/srvctl"


class Parameters(Databases):
    """Parameters of the instances orcl1 and orcl2: running values, and values in the server parameter file for all
    instances and for one. `run` of a tool is srvctl: a started instance reads the file, and has its defaults else."""

    def __init__(self, running: dict[str, list[str | None]], stored: dict[tuple[str, str], str | None]) -> None:
        super().__init__()
        self.running, self.stored = running, stored
        self.defaults = copy.deepcopy(running)
        self.down: set[int] = set()
        self.instances = len(running["sga_target"])

    def srvctl(self, argv: Sequence[str]) -> Output:
        """Stop or start the instances, or one; a second time it fails with the message of srvctl."""
        mine = {int(argv[-1].removeprefix("orcl"))} if argv[2] == "instance" else set(range(1, self.instances + 1))
        if argv[1] == "stop":
            if mine <= self.down:
                return Output(code=2, text="PRCC-1016 : orcl was already stopped")
            self.down |= mine
            return Output(code=0, text="")
        if not mine & self.down:
            return Output(code=2, text="PRCC-1014 : orcl was already running")
        for number in mine & self.down:
            self._read_file(number)
        self.down -= mine
        return Output(code=0, text="")

    def _read_file(self, number: int) -> None:
        for name in {*self.defaults, *(name for name, _ in self.stored)}:
            default = self.defaults.get(name, [None, None])[number - 1]
            stored = self.stored.get((name, "*"), default)
            value = shown(self.stored.get((name, f"orcl{number}"), stored))
            if name in HIDDEN and value is None:
                continue
            self.running.setdefault(name, [None] * self.instances)[number - 1] = value
        for name in HIDDEN:  # a hidden parameter without a stored value is in no view
            if not any(of == name for of, _ in self.stored):
                self.running.pop(name, None)

    def _check(self) -> None:
        if 1 in self.down:
            raise TaskFault("unreachable", "ORA-12514: the listener does not know of the service")

    def rows(self, system: str, statement: str) -> Rows:
        """GV$SYSTEM_PARAMETER or V$SPPARAMETER."""
        self._check()
        only = _OF_ONE.search(statement)
        asked_for = {unquoted(text) for text in re.findall(r"'(?:[^']|'')*'", statement.partition(" IN ")[2])}
        if "gv$system_parameter" in statement:
            every = {**self.running, "spfile": ["+DATA/spfile"] * self.instances}
            return tuple(
                (name, str(number), value, KINDS.get(name, "FALSE"))
                for name, values in sorted(every.items()) if name in asked_for
                for number, value in enumerate(values, 1) if only is None or number == int(only[1])
            )  # fmt: skip
        return tuple((name, sid, value) for (name, sid), value in sorted(self.stored.items()) if name in asked_for)

    def run(self, system: str, statement: str) -> None:
        """ALTER SYSTEM, or the wait for an open instance."""
        self._check()
        if statement == OPEN:
            return
        if found := _SET.fullmatch(statement):
            name, value = found[1].strip('"'), unquoted(found[2]) or None
            if found[3] == "SPFILE":
                self.stored[name, found[4]] = value
            elif KINDS[name] != "IMMEDIATE":
                raise ora(2095)
            else:
                concerned = [f"orcl{number}" for number in range(1, self.instances + 1)]
                self.running[name] = [
                    shown(value) if found[4] in ("*", instance) else was
                    for instance, was in zip(concerned, self.running[name], strict=True)
                ]
            return
        block = _IMMEDIATE.search(statement)
        reset = _RESET.fullmatch(unquoted(f"'{block[1]}'")) if block else None
        assert reset, statement
        where = (reset[1].strip('"'), reset[2])
        if "SQLCODE != -32010" not in statement and where not in self.stored:
            raise ora(32010)
        self.stored.pop(where, None)


def shown(value: str | None) -> str | None:
    """A value as in GV$SYSTEM_PARAMETER: sizes in bytes."""
    return str(bytes_of(value.upper())) if value and _SIZED.fullmatch(value) else value


VALUE = st.sampled_from(
    ["400G", "2g", "429496729600", "true", "EXACT", "FORCE", "+DATA", "/u01/A", "it's", "0", "4000"]
)
FOUND = st.one_of(VALUE, VALUE, st.none())
DISPATCHERS = st.sampled_from(["(PROTOCOL=TCP)", "(PROTOCOL=TCP)(SERVICE=orclXDB)(DISPATCHERS=3)"])


class Srvctl(Processes):
    """srvctl as the only program of the host."""

    def __init__(self, model: Parameters) -> None:
        self._model = model

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        assert argv[0] == SRVCTL
        assert within_s > 60.0, "a database is not up within a minute"
        return self._model.srvctl(argv)


@st.composite
def oracle_parameters(draw: st.DrawFn) -> Case:
    """Any parameters of one instance or two; stored for all or not; for all instances or one; hidden ones; with and
    without a restart by srvctl."""
    settings = draw(st.dictionaries(st.sampled_from([*KINDS]), VALUE, min_size=1, max_size=3))
    if "dispatchers" in settings:
        settings["dispatchers"] = draw(DISPATCHERS)
    restarts, instances = draw(st.booleans()), draw(st.sampled_from([1, 2]))
    running: dict[str, list[str | None]] = {}
    stored: dict[tuple[str, str], str | None] = {}
    for name in KINDS:
        value = shown(draw(FOUND))
        running[name] = [value] * instances
        if draw(st.booleans()):  # a restart would put other stored values in effect, which nothing sets back
            stored[name, "*"] = value if restarts else draw(st.one_of(st.just(value), FOUND))
    more: dict[str, object] = draw(st.sampled_from([{}, {}, {"instance": "orcl1"}]))
    if draw(st.booleans()):
        settings[draw(st.sampled_from(HIDDEN))] = draw(st.sampled_from(["4", "VKTM*|LG*"]))
        more = {**more, "hidden": True}
    if restarts:
        more = {**more, "restart_by": {"srvctl": SRVCTL, "database": "orcl"}}
    one = valid_tuning("oracle_parameters", system="orcl", settings=settings, **more)

    def make(folder: Path) -> World:
        model = Parameters(copy.deepcopy(running), copy.deepcopy(stored))
        return world(
            folder,
            databases=model,
            tools=Srvctl(model),
            seen=lambda: (copy.deepcopy(model.running), copy.deepcopy(model.stored), set(model.down)),
        )

    outcomes = frozenset({"applied", "unchanged", "needs_restart"})
    return Case(tuning=one, state=(running, stored), make=make, outcomes=outcomes)


# ---- oracle_redo, asm_disk_group -------------------------------------------------------------------------------------

ASM_DISKS = ("/dev/oraudev/disks/D1", "/dev/oraudev/disks/D2")
_SIZES = {"M": 1 << 20, "G": 1 << 30}
_ADD = re.compile(r"ADD LOGFILE THREAD (\d+) GROUP (\d+) \(''(\+\w+)''\) SIZE (\d+)([MG]?)")
_DROP = re.compile(r"DROP LOGFILE GROUP (\d+)")
_LEAVE = re.compile(r"status = 'CURRENT' AND group# IN \(([\d, ]+)\).*SWITCH LOGFILE")
_CREATE_GROUP = re.compile(r"CREATE DISKGROUP (\w+) EXTERNAL REDUNDANCY DISK (.+) ATTRIBUTE 'au_size' = '(\d+)M'")
_DROP_GROUP = re.compile(r"DROP DISKGROUP (\w+) EXCLUDING CONTENTS")
_ONCE = "IF n > 0 THEN"
"""The text by which a PL/SQL block that first checks the present state is recognised."""


@dataclass
class Group:
    """A redo log group."""

    thread: int
    size: int
    place: str
    status: str = "UNUSED"


def _groups() -> dict[int, Group]:
    made = {number: Group(1, 1 << 30, "+REDO1", "INACTIVE") for number in (1, 2, 3)}
    made[2].status = "CURRENT"
    return made


class SimOracle(Databases):
    """The redo logs of one database, and the ASM instance with its disks. Statements that Oracle refuses raise a fault
    with the ORA number."""

    def __init__(self, redo: dict[int, Group] | None = None) -> None:
        super().__init__()
        self.redo = redo or _groups()
        self.disk_groups: dict[str, tuple[tuple[str, ...], int]] = {}

    def state(self) -> object:
        """Return the state that a revert must restore; the current redo group is not part of it."""
        redo = tuple((number, one.thread, one.size, one.place) for number, one in sorted(self.redo.items()))
        return redo, tuple(sorted(self.disk_groups.items()))

    def rows(self, system: str, statement: str) -> Rows:
        if "v$instance" in statement:
            return (("1", "0"),)
        if "v$logfile" in statement:
            return tuple((str(number), f"{one.place}/log") for number, one in sorted(self.redo.items()))
        if "v$log" in statement:
            groups = sorted(self.redo.items())
            return tuple((str(number), str(one.thread), str(one.size), one.status) for number, one in groups)
        if "v$asm_diskgroup" in statement:
            return tuple(("EXTERN", str(size << 20), "MOUNTED") for _, size in self.disk_groups.values())
        taken = {disk for disks, _ in self.disk_groups.values() for disk in disks}
        return tuple((disk, "MEMBER" if disk in taken else "CANDIDATE") for disk in ASM_DISKS)

    def run(self, system: str, statement: str) -> None:
        if found := _LEAVE.search(statement):
            numbers = {int(one) for one in found[1].split(",")}
            while self._current() in numbers:
                self._switch()
        elif found := _ADD.search(statement):
            self._require(int(found[2]) not in self.redo or _ONCE in statement, 1184)
            self.redo.setdefault(int(found[2]), Group(int(found[1]), int(found[4]) * _SIZES.get(found[5], 1), found[3]))
        elif found := _DROP.search(statement):
            self._require(int(found[1]) in self.redo or _ONCE in statement, 350)
            self._drop(int(found[1]))
        elif statement == CHECKPOINT:
            for one in self.redo.values():
                one.status = "INACTIVE" if one.status == "ACTIVE" else one.status
        elif found := _CREATE_GROUP.search(statement):
            self._require(found[1] not in self.disk_groups, 15030)
            self.disk_groups[found[1]] = (tuple(part.strip(" '") for part in found[2].split(",")), int(found[3]))
        else:
            found = _DROP_GROUP.search(statement)
            assert found, statement
            self._require(found[1] in self.disk_groups or _ONCE in statement, 15001)
            self.disk_groups.pop(found[1], None)

    @staticmethod
    def _require(holds: bool, code: int) -> None:
        if not holds:
            raise ora(code)

    def _current(self) -> int:
        return next(number for number, one in self.redo.items() if one.status == "CURRENT")

    def _switch(self) -> None:
        numbers, now = sorted(self.redo), self._current()
        self.redo[now].status = "ACTIVE"
        self.redo[numbers[(numbers.index(now) + 1) % len(numbers)]].status = "CURRENT"

    def _drop(self, number: int) -> None:
        if number in self.redo:
            self._require(self.redo[number].status not in ("CURRENT", "ACTIVE"), 1624)  # needed for crash recovery
            self._require(len(self.redo) > 2, 1567)  # less than 2 log files
            del self.redo[number]


@st.composite
def oracle_redo(draw: st.DrawFn) -> Case:
    """Any number of groups of any sizes on any disk groups, before and after."""
    numbers = draw(st.lists(st.integers(min_value=1, max_value=9), min_size=2, max_size=6, unique=True))
    sizes, places = st.sampled_from([50 << 20, 1 << 30, 15 << 30]), st.sampled_from(["+REDO1", "+REDO2"])
    states = st.sampled_from(["INACTIVE", "ACTIVE"])
    groups = {number: Group(1, draw(sizes), draw(places), draw(states)) for number in numbers}
    groups[draw(st.sampled_from(numbers))].status = "CURRENT"
    one = valid_tuning(
        "oracle_redo",
        system="orcl",
        groups=draw(st.integers(min_value=2, max_value=6)),
        size=draw(st.sampled_from(["50M", "1G", "15G", "1024M"])),
        disk_groups=draw(st.lists(st.sampled_from(["REDO1", "REDO2", "DATA"]), min_size=1, max_size=2)),
    )

    def make(folder: Path) -> World:
        sim = SimOracle(copy.deepcopy(groups))
        return world(folder, databases=sim, seen=sim.state)

    return Case(tuning=one, state=groups, make=make, outcomes=frozenset({"applied", "unchanged"}))


@st.composite
def asm_disk_group(draw: st.DrawFn) -> Case:
    paths = draw(st.sampled_from([[*ASM_DISKS], [*ASM_DISKS][:1]]))
    au_size = draw(st.sampled_from(["1M", "4M", "64M"]))
    one = valid_tuning(
        "asm_disk_group", system="asm", disk_group="data", redundancy="external", au_size=au_size, disks=paths
    )

    def make(folder: Path) -> World:
        sim, tools = SimOracle(), StubTools(blkid=Output(code=NOTHING_FOUND, text=""))
        made = world(folder, databases=sim, tools=tools, seen=sim.state)
        root = made.host.root
        for number, path in enumerate(paths):
            node = put(root, f"/dev/sd{'ab'[number]}", "")
            for name in (path, f"/dev/disk/by-id/asm{number}"):  # in ASM, and in the policy
                (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
                (root / name[1:]).symlink_to(node)
            for attribute, value in {"size": "2048", "ro": "0", "dev": f"8:{number}"}.items():
                put(root, f"/sys/class/block/{node.name}/{attribute}", value)
        for listing in ("/proc/self/mountinfo", "/proc/swaps"):
            put(root, listing, "")
        return made

    return Case(tuning=replace(one, destructive=True), state=paths, make=make, outcomes=frozenset({"applied"}))
