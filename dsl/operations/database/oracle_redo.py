"""`oracle_redo`: the online redo log groups of an instance: so many, of one size, on these disk groups in turn.

New groups are added first; then the instance is switched away from the others, a checkpoint makes them inactive, and
they are dropped. To undo goes the same way back, and no further than it can: the new groups stay until the old ones are
there again. Every statement looks first, so that it may be run again. Source: Administrator's Guide, 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Change, Statement
from proveout.dsl.operations.database.sql_literals import OracleName, Size, SystemOperation, bytes_of, literal, once
from proveout.dsl.operations.facts import Facts, Query, RowsQuery
from proveout.dsl.operations.operation import Step

THREAD = "SELECT thread# FROM v$instance"
GROUPS = "SELECT group#, thread#, bytes, status FROM v$log ORDER BY group#"
MEMBERS = "SELECT group#, member FROM v$logfile ORDER BY group#, member"
"""Of standby groups too: their numbers are taken."""
CHECKPOINT = "ALTER SYSTEM CHECKPOINT"
SWITCHES_MAX = 40


@dataclass(frozen=True, slots=True)
class _Group:
    number: int
    size: int
    members: tuple[str, ...]


class OracleRedo(SystemOperation):
    """Redo log groups of an instance: `{system: instance1, groups: 4, size: 15G, disk_groups: [REDO1, REDO2]}`."""

    groups: int = Field(ge=2, le=32, description="The number of groups of the instance; at least two.")
    size: Size = Field(description="Of each: 15G.")
    disk_groups: Annotated[list[OracleName], Field(min_length=1, max_length=8)] = Field(
        description="ASM disk groups that new redo log groups lie on, in turn."
    )

    privileges = "in the database: ALTER DATABASE, ALTER SYSTEM, SELECT on V_$LOG, V_$LOGFILE, V_$INSTANCE"

    def targets(self) -> Mapping[str, str]:
        """The groups of the instance."""
        return {f"redo log groups of {self.system}": self._groups}

    def wanted(self) -> tuple[str, ...]:
        """The wanted groups, and the groups to drop."""
        return (self._groups, "every other group of its thread is dropped, after log switches and a checkpoint")

    @property
    def _groups(self) -> str:
        turns = " in turn" if len(self.disk_groups) > 1 else ""
        return f"{self.groups} redo log groups of {self.size} in its thread, on {', '.join(self.disk_groups)}{turns}"

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The thread of the instance, and the groups of the database."""
        return tuple(RowsQuery(self.system, text) for text in (THREAD, GROUPS, MEMBERS))

    def changes(self, facts: Facts) -> Step:
        """Add, leave the others, drop them."""
        (thread,) = (int(row[0] or 0) for row in facts.rows(self.system, THREAD)[:1])
        every, members = facts.rows(self.system, GROUPS), facts.rows(self.system, MEMBERS)
        mine = [_group(row, members) for row in every if int(row[1] or 0) == thread]
        fit = [group for group in mine if group.size == bytes_of(self.size)]
        old = [group for group in mine if group.size != bytes_of(self.size)] + fit[self.groups :]
        taken = {int(row[0] or 0) for row in (*every, *members)}
        free = (number for number in range(1, 1000) if number not in taken)
        new = [
            _Group(next(free), bytes_of(self.size), (f"+{self.disk_groups[index % len(self.disk_groups)]}",))
            for index in range(len(fit), self.groups)
        ]
        return Step(changes=tuple(self._statements(thread, new, old)))

    def _statements(self, thread: int, new: Sequence[_Group], old: Sequence[_Group]) -> Iterator[Change]:
        for group in new:
            yield self._statement(_add(thread, group, self.size), _drop(group))
        if new:
            yield self._statement("", CHECKPOINT)
            yield self._statement("", _leave(new))
        if old:
            yield self._statement(_leave(old), "")
            yield self._statement(CHECKPOINT, "")
        for group in old:
            yield self._statement(_drop(group), _add(thread, group, str(group.size)))

    def _statement(self, text: str, undo: str) -> Statement:
        return Statement(system=self.system, text=text, undo=undo, place=f"redo log groups of {self.system}")


def _group(row: Sequence[str | None], members: Sequence[Sequence[str | None]]) -> _Group:
    number = int(row[0] or 0)
    return _Group(number, int(row[2] or 0), tuple(str(name) for found, name in members if found == row[0]))


def _add(thread: int, group: _Group, size: str) -> str:
    """ALTER DATABASE ADD LOGFILE; a file of ASM has a name that only ASM may give, so there its disk group is named."""
    places = ", ".join(literal(name.partition("/")[0] if name.startswith("+") else name) for name in group.members)
    reuse = "" if group.members[0].startswith("+") else " REUSE"
    text = f"ALTER DATABASE ADD LOGFILE THREAD {thread} GROUP {group.number} ({places}) SIZE {size}{reuse}"
    return once(f"SELECT 1 - COUNT(*) INTO n FROM v$log WHERE group# = {group.number}", text)  # noqa: S608 - a number


def _drop(group: _Group) -> str:
    text = f"ALTER DATABASE DROP LOGFILE GROUP {group.number}"
    return once(f"SELECT COUNT(*) INTO n FROM v$log WHERE group# = {group.number}", text)  # noqa: S608 - a number


def _leave(groups: Sequence[_Group]) -> str:
    """A block that switches until the current group is none of these."""
    numbers = ", ".join(str(group.number) for group in groups)
    query = f"SELECT COUNT(*) INTO n FROM v$log WHERE status = 'CURRENT' AND group# IN ({numbers})"  # noqa: S608 - numbers
    return (
        f"DECLARE n NUMBER; BEGIN FOR i IN 1..{SWITCHES_MAX} LOOP {query}; EXIT WHEN n = 0; "
        "EXECUTE IMMEDIATE 'ALTER SYSTEM SWITCH LOGFILE'; END LOOP; END;"
    )
