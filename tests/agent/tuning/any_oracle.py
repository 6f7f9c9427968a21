"""`oracle_redo`, `asm_disk_group`: any redo logs and disks of a model of Oracle. (`oracle_parameters` sets one parameter after
the other, as `postgres_settings` and `sql` do: the cases.)

The models run only the statements of these operations, by the rules of the SQL Language Reference and the Administrator's Guide (a current or active group cannot be dropped, an
instance keeps two). They test the logic of the operations, not that an Oracle accepts the statements, nor that its views
have these contents.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from pathlib import Path

from any_host import Case, World, valid_tuning, world
from hypothesis import strategies as st
from tuning_bench import StubTools, put

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.disks import NOTHING_FOUND
from proveout.dsl.operations.facts import Output, Rows
from proveout.dsl.operations.oracle import CHECKPOINT


def ora(code: int) -> TaskFault:
    """An error of the database."""
    return TaskFault("fault", f"ORA-{code:05d}")


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
