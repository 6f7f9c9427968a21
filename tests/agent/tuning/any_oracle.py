"""`oracle_parameters`, `oracle_redo`, `asm_disk_group`: any instances, redo logs and disks of a model of Oracle.

The model runs only the statements of these operations, by the rules of the SQL Language Reference (ALTER SYSTEM, ALTER
DATABASE, CREATE and DROP DISKGROUP) and the Administrator's Guide (a current or active group cannot be dropped, an
instance keeps two). It tests the logic of the operations, not that an Oracle accepts the statements, nor that its views
have these contents.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from any_host import Case, World, valid_tuning, words, world
from hypothesis import strategies as st
from tuning_bench import StubTools, put

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.database.oracle_parameters import OPEN
from proveout.dsl.operations.database.sql_literals import bytes_of
from proveout.dsl.operations.facts import Output, Rows
from proveout.dsl.operations.storage.asm_disk_group import REDUNDANCY
from proveout.dsl.operations.storage.disk import NOTHING_FOUND

_SET = re.compile(r"ALTER SYSTEM SET (\w+|\"_\w+\") = (.*) SCOPE=(SPFILE|MEMORY) SID='(\*|\w+)'", re.S)
_RESET = re.compile(r"ALTER SYSTEM RESET (\w+|\"_\w+\") SCOPE=SPFILE SID='(\*|\w+)'")
_OF_ONE = re.compile(r"instance_name = 'orcl(\d)'")
_IMMEDIATE = re.compile(r"EXECUTE IMMEDIATE '((?:[^']|'')*)'")
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_ADD = re.compile(r"ALTER DATABASE ADD LOGFILE THREAD (\d+) GROUP (\d+) \((.*)\) SIZE (\w+)( REUSE)?")
_DROP = re.compile(r"ALTER DATABASE DROP LOGFILE GROUP (\d+)")
_CREATE = re.compile(r"CREATE DISKGROUP (\w+) (\w+) REDUNDANCY DISK (.*) ATTRIBUTE 'au_size' = '(\w+)'(.*)")
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

    def __init__(
        self, running: dict[str, list[str | None]], stored: dict[tuple[str, str], str | None], spfile: str | None
    ) -> None:
        super().__init__()
        self.running, self.stored, self.spfile = running, stored, spfile
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
            every = {**self.running, "spfile": [self.spfile] * self.instances}
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


VALUE = st.one_of(st.sampled_from(["400G", "2g", "429496729600", "true", "FALSE", "only", "EXACT", "FORCE", "+DATA", "/u01/a", "/u01/A", "it's"]),
                  st.integers(min_value=0, max_value=4000).map(str))  # fmt: skip
FOUND = st.one_of(VALUE, VALUE, st.none())
DISPATCHERS = st.sampled_from(["(PROTOCOL=TCP)", "(PROTOCOL=TCP)(SERVICE=orclXDB)(DISPATCHERS=3)"])
ODD = st.sampled_from(["C:\\oracle", "two\tparts"])


class Srvctl:
    """srvctl as the only program of the host."""

    def __init__(self, model: Parameters) -> None:
        self._model = model

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        """Run it."""
        assert argv[0] == SRVCTL
        assert within_s > 60.0, "a database is not up within a minute"
        return self._model.srvctl(argv)


@st.composite
def oracle_parameters(draw: st.DrawFn) -> Case:
    """Any parameters of one instance or two, which may differ; stored for all, for one, or not; for all instances or one;
    hidden ones; with and without a restart by srvctl."""
    trouble = draw(st.sampled_from(["", "", "", "", "no spfile", "they differ", "for one alone", "odd", "not there"]))
    settings = draw(st.dictionaries(st.sampled_from([*KINDS]), VALUE, min_size=1, max_size=3))
    if "dispatchers" in settings:
        settings["dispatchers"] = draw(DISPATCHERS)
    instance = draw(st.sampled_from([None, None, "orcl1"]))
    restarts = draw(st.booleans()) and trouble != "they differ"
    troubled = draw(st.sampled_from([*settings]))
    if trouble == "not there":
        settings["no_such_thing"] = "1"
    instances = 2 if trouble == "they differ" else draw(st.sampled_from([1, 2]))
    running: dict[str, list[str | None]] = {}
    stored: dict[tuple[str, str], str | None] = {}
    for name in KINDS:
        value = draw(ODD) if (trouble, name) == ("odd", troubled) else shown(draw(FOUND))
        running[name] = [value] * instances
        if draw(st.booleans()):  # a restart would put other stored values in effect, which nothing sets back
            stored[name, "*"] = value if restarts else draw(st.one_of(st.just(value), FOUND))
    if trouble == "they differ":
        running[troubled] = ["1", "2"]
    if trouble == "for one alone":
        stored[troubled, "orcl1"] = "1"
        running[troubled][0] = "1" if restarts else running[troubled][0]
    spfile = None if trouble == "no spfile" else "+DATA/spfile"
    more: dict[str, object] = {"instance": instance} if instance else {}
    if draw(st.booleans()):
        settings[draw(st.sampled_from(HIDDEN))] = draw(st.sampled_from(["4", "VKTM*|LG*"]))
        more["hidden"] = True
    if restarts:
        more["restart_by"] = {"srvctl": SRVCTL, "database": "orcl"}
    one = valid_tuning("oracle_parameters", system="orcl", settings=settings, **more)

    def make(folder: Path) -> World:
        model = Parameters(copy.deepcopy(running), copy.deepcopy(stored), spfile)
        return world(
            folder,
            databases=model,
            tools=Srvctl(model),
            seen=lambda: (copy.deepcopy(model.running), copy.deepcopy(model.stored), set(model.down)),
        )

    outcomes = frozenset({"applied", "unchanged", "refused", "needs_restart"})
    return Case(tuning=one, state=(running, stored, spfile), make=make, outcomes=outcomes)


# ---- oracle_redo -----------------------------------------------------------------------------------------------------


@dataclass
class Group:
    """A redo log group; `members` as in V$LOGFILE."""

    thread: int
    size: int
    members: list[str]
    status: str = "INACTIVE"


class Redo(Databases):
    """The redo log groups of a database with two threads, from an instance of the first; numbers of standby groups are
    in use."""

    def __init__(self, groups: dict[int, Group], standby: dict[int, str]) -> None:
        super().__init__()
        self.groups, self.standby, self._files = groups, standby, 1000

    def rows(self, system: str, statement: str) -> Rows:
        """V$INSTANCE, V$LOG, V$LOGFILE."""
        if "v$instance" in statement:
            return (("1",),)
        if "v$logfile" in statement:
            found = [(number, member) for number, group in sorted(self.groups.items()) for member in group.members]
            online = "type = 'ONLINE'" in statement
            found += [] if online else list(self.standby.items())
            return tuple((str(number), member) for number, member in sorted(found))
        return tuple(
            (str(number), str(one.thread), str(one.size), one.status) for number, one in sorted(self.groups.items())
        )

    def run(self, system: str, statement: str) -> None:
        """Run a PL/SQL block with a check, or ALTER SYSTEM CHECKPOINT."""
        if statement == "ALTER SYSTEM CHECKPOINT":
            for group in self.groups.values():
                group.status = "INACTIVE" if group.status == "ACTIVE" else group.status
            return
        if "LOOP" in statement:
            numbers = {int(one) for one in re.findall(r"\d+", statement.partition("group# IN ")[2].partition(")")[0])}
            for _ in range(40):
                if any(group.status == "CURRENT" and number in numbers for number, group in self.groups.items()):
                    self._switch()
            return
        guard = re.search(r"SELECT (1 - )?COUNT\(\*\) INTO n FROM v\$log WHERE group# = (\d+)", statement)
        block = _IMMEDIATE.search(statement)
        assert guard and block, statement
        if (int(guard[2]) in self.groups) != bool(guard[1]):
            self._do(unquoted(f"'{block[1]}'"))

    def _switch(self) -> None:
        mine = sorted(number for number, group in self.groups.items() if group.thread == 1)
        current = next(number for number in mine if self.groups[number].status == "CURRENT")
        following = mine[(mine.index(current) + 1) % len(mine)]
        self.groups[current].status, self.groups[following].status = "ACTIVE", "CURRENT"

    def _do(self, text: str) -> None:
        if found := _DROP.fullmatch(text):
            group = self.groups[int(found[1])]
            if group.status != "INACTIVE":
                raise ora(1623 if group.status == "CURRENT" else 1624)
            if sum(one.thread == group.thread for one in self.groups.values()) <= 2:
                raise ora(1567)
            del self.groups[int(found[1])]
            return
        found = _ADD.fullmatch(text)
        assert found, text
        if int(found[2]) in self.groups or int(found[2]) in self.standby:
            raise ora(1184)
        self.groups[int(found[2])] = Group(
            int(found[1]), bytes_of(found[4]), [self._file(unquoted(one)) for one in found[3].split(", ")]
        )

    def _file(self, place: str) -> str:
        """The name of a new file; in a disk group ASM chooses it."""
        self._files += 1
        return f"{place}/ORCL/ONLINELOG/group.{self._files}" if place.startswith("+") else place

    def seen(self) -> object:
        """The groups without the parts that a plan does not control: names that ASM chooses, and the current group."""
        return {
            number: (
                one.thread,
                one.size,
                sorted(name.partition("/")[0] if name.startswith("+") else name for name in one.members),
            )
            for number, one in self.groups.items()
        }


MEMBERS = st.lists(
    st.sampled_from(["+REDO1/ORCL/a", "+REDO2/ORCL/b", "/u01/it's.log", "/u02/redo.log"]),
    min_size=1,
    max_size=2,
    unique=True,
)
GROUP = st.builds(Group, st.sampled_from([1, 1, 1, 2]), st.sampled_from([50 << 20, 1 << 30, 15 << 30]), MEMBERS)


@st.composite
def oracle_redo(draw: st.DrawFn) -> Case:
    """Any number of groups of any sizes on any disk groups, before and after."""
    numbers = draw(st.lists(st.integers(min_value=1, max_value=9), min_size=4, max_size=8, unique=True))
    groups = {number: draw(GROUP) for number in numbers}
    for number, thread in zip(numbers, (1, 1, 2, 2), strict=False):
        groups[number].thread = thread
    mine = [number for number in numbers if groups[number].thread == 1]
    for number in mine:
        groups[number].status = draw(st.sampled_from(["INACTIVE", "ACTIVE"]))
    groups[draw(st.sampled_from(mine))].status = "CURRENT"
    groups[numbers[2]].status = "CURRENT"
    standby = {
        number: "/u03/standby.log" for number in draw(st.sets(st.integers(1, 12), max_size=3)) if number not in groups
    }
    one = valid_tuning(
        "oracle_redo",
        system="orcl",
        groups=draw(st.integers(min_value=2, max_value=6)),
        size=draw(st.sampled_from(["50M", "1G", "15G", "1024M"])),
        disk_groups=draw(st.lists(st.sampled_from(["REDO1", "REDO2", "DATA"]), min_size=1, max_size=2)),
    )

    def make(folder: Path) -> World:
        model = Redo(copy.deepcopy(groups), dict(standby))
        return world(folder, databases=model, seen=model.seen)

    return Case(tuning=one, state=(groups, standby), make=make, outcomes=frozenset({"applied", "unchanged"}))


# ---- asm_disk_group --------------------------------------------------------------------------------------------------


@dataclass
class Asm:
    """Disk groups by name -> (type, allocation unit, state, files in it), and disks by path -> state of their
    header."""

    groups: dict[str, tuple[str, int, str, int]] = field(default_factory=dict)
    disks: dict[str, str] = field(default_factory=dict)


class AsmInstance(Databases):
    """An ASM instance."""

    def __init__(self, has: Asm) -> None:
        super().__init__()
        self.has = has

    def rows(self, system: str, statement: str) -> Rows:
        """V$ASM_DISKGROUP or V$ASM_DISK."""
        named = [unquoted(text) for text in re.findall(r"'(?:[^']|'')*'", statement)]
        if "v$asm_diskgroup" in statement:
            return tuple(
                (kind, str(unit), state) for name, (kind, unit, state, _) in self.has.groups.items() if name in named
            )
        return tuple((path, state) for path, state in sorted(self.has.disks.items()) if path in named)

    def run(self, system: str, statement: str) -> None:
        """CREATE DISKGROUP, or a block that drops one."""
        if found := _CREATE.fullmatch(statement):
            disks = [unquoted(text) for text in found[3].split(", ")]
            if found[1] in self.has.groups or any(
                self.has.disks.get(disk) not in ("CANDIDATE", "PROVISIONED", "FORMER") for disk in disks
            ):
                raise ora(15018)
            least = {"EXTERNAL": 1, "NORMAL": 2, "HIGH": 3}[found[2]]
            if len(disks) < least or len(set(disks)) < len(disks):
                raise ora(15072)
            self.has.groups[found[1]] = (REDUNDANCY[found[2].lower()], bytes_of(found[4]), "MOUNTED", 0)
            self.has.disks |= dict.fromkeys(disks, "MEMBER")
            self._members = disks
            return
        block = _IMMEDIATE.search(statement)
        assert block, statement
        dropped = re.fullmatch(r"DROP DISKGROUP (\w+) EXCLUDING CONTENTS", block[1])
        assert dropped, statement
        if dropped[1] in self.has.groups:
            del self.has.groups[dropped[1]]
            self.has.disks |= dict.fromkeys(self._members, "FORMER")

    def seen(self) -> object:
        """The groups, and the free disks: a disk that was in a group stays FORMER."""
        free = sorted(path for path, state in self.has.disks.items() if state in ("CANDIDATE", "PROVISIONED", "FORMER"))
        return dict(self.has.groups), free


def _disk(root: Path, path: str, number: int) -> None:
    """A disk of the host, with the name in ASM and the name in the policy."""
    node = put(root, f"/dev/sd{'abcd'[number]}", "")
    for name in (path, f"/dev/disk/by-id/asm{number}"):
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / name[1:]).symlink_to(node)
    for attribute, value in {"size": "2048", "ro": "0", "dev": f"8:{number}"}.items():
        put(root, f"/sys/class/block/{node.name}/{attribute}", value)
    for listing in ("/proc/self/mountinfo", "/proc/swaps"):
        put(root, listing, "")


@st.composite
def asm_disk_group(draw: st.DrawFn) -> Case:
    """Any group of any disks; the group may exist, and disks may belong to another group or be invisible."""
    paths = draw(st.lists(words(r"/dev/oraudev/disks/[A-Z]{1,5}[0-9]", 40), min_size=1, max_size=4, unique=True))
    states = st.sampled_from(["CANDIDATE"] * 9 + ["PROVISIONED", "FORMER", "MEMBER", "FOREIGN", ""])
    disks = {path: draw(states) for path in paths}
    group = (
        draw(st.sampled_from(["EXTERN", "NORMAL"])),
        4 << 20,
        draw(st.sampled_from(["MOUNTED", "CONNECTED", "DISMOUNTED"])),
        3,
    )
    there = {"DATA": group} if draw(st.sampled_from([False, False, False, True])) else {}
    one = valid_tuning(
        "asm_disk_group",
        system="asm",
        disk_group="data",
        redundancy=draw(st.sampled_from(["external", "external", "normal", "high"])),
        au_size=draw(st.sampled_from(["1M", "4M", "64M"])),
        disks=paths,
        **draw(st.sampled_from([{}, {"compatible": "19.0.0.0"}])),
    )
    found = {path: state for path, state in disks.items() if state}

    def make(folder: Path) -> World:
        model = AsmInstance(Asm(groups=dict(there), disks=dict(found)))
        tools = StubTools(blkid=Output(code=NOTHING_FOUND, text=""))
        made = world(folder, databases=model, tools=tools, seen=model.seen)
        for number, path in enumerate(paths):
            _disk(made.host.root, path, number)
        return made

    return Case(tuning=replace(one, destructive=True), state=(there, found), make=make)
