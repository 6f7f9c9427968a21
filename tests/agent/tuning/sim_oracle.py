"""A simulated Oracle Database with its ASM instance for tuning: the rows of their views, and the effects of statements.

Data flow: the real `oracle_parameters`, `oracle_redo`, `asm_disk_group` and `sql` -> their statements, matched here by
patterns -> the tables below. The database does not belong to a run: settings last until they are reverted. Statements
that Oracle refuses raise a fault with the ORA number.

This does not prove that Oracle accepts these statements, nor that they have these effects there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from proveout.agent.errors import TaskFault
from proveout.dsl.operations.facts import Rows

ASM_DISKS = ("/dev/oraudev/disks/D1", "/dev/oraudev/disks/D2")
"""The names of disks in ASM."""

MODIFIABLE = {"open_cursors": "IMMEDIATE", "optimizer_index_cost_adj": "IMMEDIATE"}
_SIZES = {"M": 1 << 20, "G": 1 << 30}
_SET = re.compile(r"ALTER SYSTEM SET (\w+) = '?(\w+)'? SCOPE=(SPFILE|MEMORY) SID='\*'")
_RESET = re.compile(r"ALTER SYSTEM RESET (\w+) SCOPE=SPFILE")
_ADD = re.compile(r"ADD LOGFILE THREAD (\d+) GROUP (\d+) \(''(\+\w+)''\) SIZE (\d+)([MG]?)")
_DROP = re.compile(r"DROP LOGFILE GROUP (\d+)")
_LEAVE = re.compile(r"status = 'CURRENT' AND group# IN \(([\d, ]+)\).*SWITCH LOGFILE")
_CREATE_GROUP = re.compile(r"CREATE DISKGROUP (\w+) EXTERNAL REDUNDANCY DISK (.+) ATTRIBUTE 'au_size' = '(\d+)M'")
_DROP_GROUP = re.compile(r"DROP DISKGROUP (\w+) EXCLUDING CONTENTS")
_USER = re.compile(r"(CREATE|DROP) USER (?:IF EXISTS )?(\w+)")
_ONCE = "IF n > 0 THEN"
"""The text by which a PL/SQL block that first checks the present state is recognised."""
CHECKPOINT = "ALTER SYSTEM CHECKPOINT"


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


@dataclass
class SimOracle:
    """The state of one database and of the ASM instance with its disks."""

    running: dict[str, str] = field(default_factory=lambda: {"open_cursors": "300", "optimizer_index_cost_adj": "100"})
    stored: dict[str, str] = field(default_factory=lambda: {"open_cursors": "300"})
    redo: dict[int, Group] = field(default_factory=_groups)
    disk_groups: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    headers: set[str] = field(default_factory=set)
    """Disks that ASM has written its header to; a dropped disk group keeps it."""
    users: set[str] = field(default_factory=set)

    def state(self) -> dict[str, object]:
        """Return the state that a revert must restore, by system; the current redo group is not part of it."""
        redo = tuple((number, one.thread, one.size, one.place) for number, one in sorted(self.redo.items()))
        settings = (tuple(sorted(self.running.items())), tuple(sorted(self.stored.items())))
        return {"orcl": (settings, redo, tuple(sorted(self.users))), "asm": tuple(sorted(self.disk_groups.items()))}

    # ---- queries ---------------------------------------------------------------------------------------------------

    def rows(self, statement: str) -> Rows:
        if "gv$system_parameter" in statement:
            mine = [
                (name, "1", value, MODIFIABLE[name]) for name, value in self.running.items() if f"'{name}'" in statement
            ]
            return (*mine, ("spfile", "1", "+DATA/spfile", "FALSE"))
        if "v$spparameter" in statement:
            return tuple((name, "*", value) for name, value in self.stored.items() if f"'{name}'" in statement)
        if "v$instance" in statement:
            return (("1", "0"),)
        if "v$logfile" in statement:
            return tuple((str(number), f"{one.place}/log") for number, one in sorted(self.redo.items()))
        if "v$log" in statement:
            groups = sorted(self.redo.items())
            return tuple((str(number), str(one.thread), str(one.size), one.status) for number, one in groups)
        return self._asm_rows(statement)

    def _asm_rows(self, statement: str) -> Rows:
        if "v$asm_diskgroup" in statement:
            found = [size for name, (_, size) in self.disk_groups.items() if f"'{name}'" in statement]
            return tuple(("EXTERN", str(size << 20), "MOUNTED") for size in found)
        if "v$asm_disk" in statement:
            return tuple((disk, self._header(disk)) for disk in ASM_DISKS if f"'{disk}'" in statement)
        if "dba_users" in statement:
            return ((str(sum(f"'{user}'" in statement for user in self.users)),),)
        raise AssertionError(f"the simulated database has no {statement!r}")

    def _header(self, disk: str) -> str:
        if any(disk in disks for disks, _ in self.disk_groups.values()):
            return "MEMBER"
        return "FORMER" if disk in self.headers else "CANDIDATE"

    # ---- statements ------------------------------------------------------------------------------------------------

    def run(self, statement: str) -> None:
        if found := _SET.search(statement):
            (self.stored if found[3] == "SPFILE" else self.running)[found[1]] = found[2]
        elif found := _RESET.search(statement):
            self._require(
                found[1] in self.stored or "-32010" in statement, "ORA-32010: cannot find entry to delete in SPFILE"
            )
            self.stored.pop(found[1], None)
        elif found := _USER.search(statement):
            self._user(found[1], found[2], is_sure="IF EXISTS" in statement)
        elif "LOGFILE" in statement or statement == CHECKPOINT:
            self._redo(statement)
        else:
            self._asm(statement)

    @staticmethod
    def _require(holds: bool, message: str) -> None:
        if not holds:
            raise TaskFault("fault", message)

    def _user(self, verb: str, user: str, *, is_sure: bool) -> None:
        if verb == "CREATE":
            self._require(
                user not in self.users, f"ORA-01920: user name '{user}' conflicts with another user or role name"
            )
            self.users.add(user)
        else:
            self._require(user in self.users or is_sure, f"ORA-01918: user '{user}' does not exist")
            self.users.discard(user)

    def _redo(self, statement: str) -> None:
        if found := _LEAVE.search(statement):
            numbers = {int(one) for one in found[1].split(",")}
            while self._current() in numbers:
                self._switch()
        elif found := _ADD.search(statement):
            is_new = int(found[2]) not in self.redo
            self._require(is_new or _ONCE in statement, f"ORA-01184: logfile group {found[2]} already exists")
            self.redo.setdefault(int(found[2]), Group(int(found[1]), int(found[4]) * _SIZES.get(found[5], 1), found[3]))
        elif found := _DROP.search(statement):
            self._require(int(found[1]) in self.redo or _ONCE in statement, f"ORA-00350: log {found[1]} is not there")
            self._drop(int(found[1]))
        elif statement == CHECKPOINT:
            for one in self.redo.values():
                one.status = "INACTIVE" if one.status == "ACTIVE" else one.status
        else:
            raise AssertionError(f"the simulated database does not implement {statement!r}")

    def _current(self) -> int:
        return next(number for number, one in self.redo.items() if one.status == "CURRENT")

    def _switch(self) -> None:
        numbers, now = sorted(self.redo), self._current()
        self.redo[now].status = "ACTIVE"
        self.redo[numbers[(numbers.index(now) + 1) % len(numbers)]].status = "CURRENT"

    def _drop(self, number: int) -> None:
        if number not in self.redo:
            return
        if self.redo[number].status in ("CURRENT", "ACTIVE"):
            raise TaskFault("fault", f"ORA-01624: log {number} needed for crash recovery of instance orcl (thread 1)")
        if len(self.redo) <= 2:
            raise TaskFault("fault", "ORA-01567: dropping log would leave less than 2 log files for instance orcl")
        del self.redo[number]

    def _asm(self, statement: str) -> None:
        if found := _CREATE_GROUP.search(statement):
            is_new = found[1] not in self.disk_groups
            self._require(is_new, f"ORA-15030: diskgroup name {found[1]} is in use by another diskgroup")
            disks = tuple(part.strip(" '") for part in found[2].split(","))
            self.disk_groups[found[1]] = (disks, int(found[3]))
            self.headers |= set(disks)
        elif found := _DROP_GROUP.search(statement):
            is_there = found[1] in self.disk_groups
            self._require(is_there or _ONCE in statement, f"ORA-15001: diskgroup {found[1]} does not exist")
            self.disk_groups.pop(found[1], None)
        else:
            raise AssertionError(f"the simulated database does not implement {statement!r}")
