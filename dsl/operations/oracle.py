"""Operations on Oracle Database: `oracle_parameters`, `oracle_redo` and `asm_disk_group`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Change, Command, Statement
from proveout.dsl.operations.disks import BY_ID, VOLUMES, Device, in_use, names, probed
from proveout.dsl.operations.facts import Facts, RowsQuery
from proveout.dsl.operations.operation import (
    AbsolutePath,
    Found,
    Waiting,
    as_written,
    gathered,
    matching,
    numbers_as_text,
)
from proveout.dsl.operations.parameter_names import (
    STORED_ONLY,
    in_sql,
    is_hidden,
    name_objection,
    needs_consent,
    value_objection,
)
from proveout.dsl.operations.sql import (
    SETTING_SCHEMA,
    OracleName,
    Setting,
    Size,
    SystemOperation,
    bytes_of,
    in_list,
    literal,
    once,
)
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import custom
from proveout.dsl.source.nodes import Map

# The values of an instance are in GV$SYSTEM_PARAMETER, those of the file in V$SPPARAMETER. A parameter that cannot be
# changed while the instances run is stored and waits for their restart: a state of its own, unless `restart_by` names
# the srvctl that stops and starts them, after the change and after its undoing. A hidden parameter is in no view until
# an instance has been started with it, so it is only stored. Source: Database Reference, ALTER SYSTEM in the SQL
# Reference, srvctl in the RAC Administration Guide.

_OWN = frozenset({"system", "instance", "hidden", "restart_by"})
NAME_PATTERN = f"^(?!({'|'.join(sorted(_OWN))})$)_?[a-z][a-z0-9_]{{0,79}}$"
_NUMBER = re.compile(r"-?\d{1,20}")
_SIZE = re.compile(r"[1-9]\d{0,14}[KMGT]", re.I)
_NOT_IN_FILE = -32010
"""ORA-32010: cannot find entry to delete in SPFILE."""
RESTART_WITHIN_S = 1800.0
"""An instance that locks terabytes of memory is up after many minutes."""
_STOPPED, _STARTED = ("PRCC-1016",), ("PRCC-1014",)
"""Messages of srvctl: it was stopped already, it runs already. Source: Error Messages Reference."""
_BOUNDS = {"sga_target": ("sga_max_size", "ORA-00823"), "memory_target": ("memory_max_target", "ORA-00837")}
"""Parameters whose value keeps an instance from starting where the file has a lower value of another one, with the
error. Source: Error Messages."""
OPEN = "SELECT COUNT(*) FROM v$instance WHERE status = 'OPEN'"
"""The statement for which the agent waits until the instance answers it."""


def _name(value: str) -> str:
    if objection := name_objection(value):
        raise custom(objection)
    return value


ParameterName: TypeAlias = Annotated[str, AfterValidator(_name)]
Instance: TypeAlias = Annotated[
    str, matching(r"[A-Za-z][A-Za-z0-9_]{0,15}", "`{value}` is not the name of an instance (SID), as HLR1")
]
Database: TypeAlias = Annotated[
    str, matching(r"[A-Za-z][A-Za-z0-9_$#]{0,29}", "`{value}` is not the unique name of a database, as HLR")
]
Srvctl: TypeAlias = Annotated[
    AbsolutePath,
    matching(
        r".*/bin/srvctl",
        "`{value}` is not the srvctl of an Oracle home: /u01/app/oracle/product/19.0.0/dbhome_1/bin/srvctl",
    ),
]


class Restart(Strict):
    """The srvctl that restarts the instances; the policy of the host lists it under `tools`."""

    srvctl: Srvctl = Field(description="Its path, in the database's own home.")
    database: Database = Field(description="The unique name of the database.")

    def argv(self, verb: str, instance: str | None) -> tuple[str, ...]:
        """`srvctl stop database -db HLR`, or of one instance."""
        if instance is None:
            return (self.srvctl, verb, "database", "-db", self.database)
        return (self.srvctl, verb, "instance", "-db", self.database, "-instance", instance)


@dataclass(frozen=True, slots=True)
class _Now:
    """A parameter: the value of the instances (one unless they differ), and the file's value in this scope (for all of
    them, or for the one), that of a list with commas; `for_one` are instances with a stored value of their own."""

    running: tuple[str, ...]
    modifiable: str
    stored: str | None
    for_one: tuple[str, ...]
    is_list: bool

    @property
    def is_immediate(self) -> bool:
        """Whether the instances take a value at once."""
        return self.modifiable == "IMMEDIATE"


class OracleParameters(SystemOperation):
    """Initialization parameters of an Oracle Database: `{system: orcl, sga_target: 400G, use_large_pages: only}`."""

    model_config = ConfigDict(json_schema_extra=as_written(NAME_PATTERN, SETTING_SCHEMA))

    settings: SkipJsonSchema[Annotated[dict[ParameterName, Setting], Field(min_length=1, max_length=200)]]
    instance: Instance | None = Field(
        None, description="The one instance (SID) that has them; by default all instances."
    )
    hidden: bool = Field(
        False, description="Agree to hidden parameters (`_name`); the policy of the host lists each of them too."
    )
    restart_by: Restart | None = Field(
        None,
        description="Stop and start the instances where a parameter applies only at their start, and again after its "
        "undoing: {srvctl: …/bin/srvctl, database: HLR}.",
    )

    privileges = "in the database: ALTER SYSTEM, SELECT on GV_$SYSTEM_PARAMETER, GV_$INSTANCE and V_$SPPARAMETER"

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """`{system: orcl, sga_target: 400G}` -> `{system: orcl, settings: {sga_target: 400G}}`."""
        return gathered(numbers_as_text(block), lambda name: name not in _OWN)

    @model_validator(mode="after")
    def _consented(self) -> Self:
        hidden = [name for name in self.settings if is_hidden(name)]
        if hidden and not self.hidden:
            raise custom(f"`{hidden[0]}` is a hidden parameter: write `hidden: true` beside it, if it is meant")
        if self.hidden and not hidden:
            raise custom("`hidden: true` without a hidden parameter")
        if objection := next(filter(None, (value_objection(*item) for item in self.settings.items())), ""):
            raise custom(objection)
        return self

    @property
    def longest_s(self) -> float:
        """The limits of two restarts: after the change, and after its undoing."""
        return 0.0 if self.restart_by is None else 4 * RESTART_WITHIN_S

    def targets(self) -> Mapping[str, str]:
        where = self.system if self.instance is None else f"instance {self.instance} of {self.system}"
        return {f"parameter {name} of {where}": value for name, value in self.settings.items()}

    def wanted(self) -> tuple[str, ...]:
        on = "" if self.instance is None else f" on instance {self.instance}"
        settings = (f"{name} = {value}{on}" for name, value in self.settings.items())
        consents = [name for name in self.settings if needs_consent(name)]
        consent = (f"the policy must list {', '.join(consents)} under oracle_parameters",) if consents else ()
        restart = (
            ()
            if self.restart_by is None
            else (f"restarted where needed by {' '.join(self.restart_by.argv('stop', self.instance))}, and start",)
        )
        return (*settings, *consent, *restart)

    # ---- facts -----------------------------------------------------------------------------------------------------

    @property
    def _named(self) -> set[str]:
        """The settings, and the parameters that bound them."""
        return {*self.settings, *(_BOUNDS[name][0] for name in self.settings if name in _BOUNDS)}

    @property
    def _running(self) -> RowsQuery:
        where = f"name IN ({in_list(tuple(sorted((*self._named, 'spfile'))))})"
        if self.instance is not None:
            of_one = f"SELECT inst_id FROM gv$instance WHERE instance_name = {literal(self.instance)}"  # noqa: S608 - a literal
            where += f" AND inst_id IN ({of_one})"
        columns = "name, inst_id, value, issys_modifiable"
        return RowsQuery(self.system, f"SELECT {columns} FROM gv$system_parameter WHERE {where} ORDER BY name, inst_id")  # noqa: S608 - literals

    @property
    def _stored(self) -> RowsQuery:
        where = f"isspecified = 'TRUE' AND name IN ({in_list(tuple(sorted(self._named)))})"
        text = f"SELECT name, sid, value FROM v$spparameter WHERE {where} ORDER BY name, sid, ordinal"  # noqa: S608 - literals
        return RowsQuery(self.system, text)

    @property
    def _sid(self) -> str:
        return self.instance or "*"

    def _now(self, name: str, facts: Facts) -> _Now:
        running = [row for row in facts.ask(self._running) if row[0] == name]
        stored = [row for row in facts.ask(self._stored) if row[0] == name]
        bound, _ = _BOUNDS.get(name, ("", ""))
        above = any(row[0] == bound and _above(self.settings[name], row[2] or "") for row in facts.ask(self._running))
        only_stored = above or name in STORED_ONLY or is_hidden(name)
        here = [row[2] or "" for row in stored if row[1] == self._sid]
        return _Now(
            running=tuple(dict.fromkeys(row[2] or "" for row in running)),
            modifiable="FALSE" if only_stored or not running else running[0][3] or "",
            stored=", ".join(here) if here else None,
            for_one=tuple(dict.fromkeys(row[1] or "" for row in stored if row[1] != "*")),
            is_list=len(here) > 1,
        )

    # ---- changes ---------------------------------------------------------------------------------------------------

    def steps(self, facts: Facts) -> Iterable[Found]:
        """ALTER SYSTEM for what differs; what waits for a restart of the instances, or the restart."""
        running = facts.ask(self._running)
        if self.instance is not None and not running:
            return (f"no instance {self.instance} of {self.system} runs (GV$INSTANCE)",)
        if any(row[0] == "spfile" and not row[2] for row in running):
            return ("an instance runs without a server parameter file, so nothing could be stored",)
        found = [one for setting in self.settings.items() for one in self._of(*setting, facts)]
        changes = [one for one in found if isinstance(one, Statement)]
        is_refused = any(isinstance(one, str) for one in found)
        if self.restart_by is None or is_refused or len(changes) == len(found):
            return found
        return self._restarted(changes, self.restart_by)

    def _of(self, name: str, value: str, facts: Facts) -> Iterator[Statement | Waiting | str]:
        now = self._now(name, facts)
        if reason := self._refusal(name, value, now) or self._no_start(name, value, facts):
            yield reason
            return
        is_running = bool(now.running) and _same(now.running[0], value)
        is_stored = is_running if now.stored is None else _same(now.stored, value)
        if not is_stored:
            yield self._set(name, value, "SPFILE", now.stored)
        if now.is_immediate and not (is_stored and is_running):
            yield self._set(name, value, "MEMORY", now.running[0])
        if not is_running and not now.is_immediate:
            who, runs, are = (
                ("the instances", "run", "they are")
                if self.instance is None
                else (f"instance {self.instance}", "runs", "it is")
            )
            what = now.running[0] or "none" if now.running else "the default"
            yield Waiting(text=f"{name} = {value} is stored, but {who} {runs} with {what} until {are} restarted")

    def _no_start(self, name: str, value: str, facts: Facts) -> str:
        """The refusal of a value with which no instance would start; "" for one that is not above its stored bound."""
        bound, error = _BOUNDS.get(name, ("", ""))
        stored = {sid: text or "" for of, sid, text in facts.ask(self._stored) if of == bound}
        most = self.settings.get(bound) or stored.get(self._sid) or stored.get("*") or ""
        if not _above(value, most):
            return ""
        return f"{bound} is stored as {most}, and no instance starts with {name} = {value} ({error}): set {bound} too"

    def _restarted(self, changes: Sequence[Change], by: Restart) -> tuple[Change, ...]:
        """The changes, and a restart that follows them when they are made and when they are undone.

        To undo starts the instances first: a run that was broken off may have left them stopped.
        """
        stop, start = by.argv("stop", self.instance), by.argv("start", self.instance)
        within_s = RESTART_WITHIN_S
        undo: tuple[Change, ...] = (
            Statement(system=self.system, undo=OPEN),
            Command(undo=start, already=_STARTED, within_s=within_s),
            Command(undo=stop, already=_STOPPED, within_s=within_s),
        )
        after: tuple[Change, ...] = (
            Statement(system=self.system, undo=OPEN),
            Command(argv=stop, undo=start, already=(*_STOPPED, *_STARTED), within_s=within_s),
            Command(argv=start, already=_STARTED, within_s=within_s),
            Statement(system=self.system, text=OPEN),
        )
        return (*(undo if changes else ()), *changes, *after)

    def _set(self, name: str, value: str, scope: str, before: str | None) -> Statement:
        """The file and the instances are undone by themselves: they need not have had the same value."""
        sid = self._sid
        return Statement(
            system=self.system,
            text=alter(name, value, scope, sid),
            undo=reset(name, sid) if before is None else alter(name, before, scope, sid),
            consents=(name,) if needs_consent(name) else (),
            place=f"{scope} {name} of {self.system}",
        )

    def _refusal(self, name: str, value: str, now: _Now) -> str:
        if not now.running and not is_hidden(name):
            return f"this database has no parameter {name}"
        if len(now.running) > 1:
            return f"the instances run with different values of {name}: {', '.join(now.running)}"
        if now.for_one and self.instance is None:
            return f"{name} is stored for {', '.join(now.for_one)} alone, which comes before what is stored for all"
        if now.is_list and not _same(now.stored or "", value):
            return f"{name} is stored as a list, {now.stored}, which could not be written back"
        pending = now.stored is not None and now.running and not _same(now.stored, now.running[0])
        if self.restart_by is not None and pending and not _same(now.stored or "", value):
            runs = f"{name} is stored as {now.stored}, but runs with {now.running[0]}"
            return f"{runs}: a restart would put the stored value in effect, also when the change is undone"
        there = (*now.running, *(() if now.stored is None else (now.stored,)))
        odd = [text for text in there if _odd(text) and not _same(text, value)]
        return f"{name} is {odd[0]!r}, which could not be written back" if odd else ""


def alter(name: str, value: str, scope: str, sid: str = "*") -> str:
    """ALTER SYSTEM SET on all instances or one: numbers, sizes and truth as they are, anything else as a literal."""
    bare = _NUMBER.fullmatch(value) or _SIZE.fullmatch(value) or value.lower() in ("true", "false")
    shown = value if bare else literal(value)
    return f"ALTER SYSTEM SET {in_sql(name)} = {shown} SCOPE={scope} SID={literal(sid)}"


def reset(name: str, sid: str = "*") -> str:
    """ALTER SYSTEM RESET, which succeeds also when there is nothing to reset."""
    statement = literal(f"ALTER SYSTEM RESET {in_sql(name)} SCOPE=SPFILE SID={literal(sid)}")
    return (
        f"BEGIN EXECUTE IMMEDIATE {statement}; EXCEPTION WHEN OTHERS THEN IF SQLCODE != {_NOT_IN_FILE} THEN RAISE; END "
        "IF; END;"
    )


def _odd(text: str) -> bool:
    """Whether it cannot be a literal of `sql`."""
    try:
        literal(text)
    except ValueError:
        return True
    return False


def _same(now: str, wanted: str) -> bool:
    """Whether two texts mean one value: sizes as bytes, words without regard to case; the case of a path counts."""
    return _plain(now) == _plain(wanted)


def _above(size: str, most: str) -> bool:
    """Whether a size is above another one. Other texts, and 0 for "not set", are not."""
    sizes = [_plain(text) for text in (size, most)]
    return all(_NUMBER.fullmatch(text) and int(text) > 0 for text in sizes) and int(sizes[0]) > int(sizes[1])


def _plain(text: str) -> str:
    if _SIZE.fullmatch(text):
        return str(bytes_of(text.upper()))
    return text.strip() if "/" in text else text.strip().lower()


# New groups are added first; then the instance is switched away from the others, a checkpoint makes them inactive, and
# they are dropped. To undo goes the same way back, and no further than it can: the new groups stay until the old ones
# are there again. Every statement looks first, so that it may be run again. Source: Administrator's Guide, 11.

THREAD = "SELECT thread#, SYS_CONTEXT('USERENV', 'CON_ID') FROM v$instance"
GROUPS = "SELECT group#, thread#, bytes, status FROM v$log ORDER BY group#"
MEMBERS = "SELECT group#, member FROM v$logfile ORDER BY group#, member"
"""Of standby groups too: their numbers are taken."""
CHECKPOINT = "ALTER SYSTEM CHECKPOINT"
SWITCHES_MAX = 40


ROOT = 1
"""The container CDB$ROOT; 0 where there are none. Source: SYS_CONTEXT, CON_ID."""


@dataclass(frozen=True, slots=True)
class _Group:
    number: int
    size: int
    members: tuple[str, ...]

    @property
    def place(self) -> str:
        """The ASM disk group that all members lie on; "" for files, and for members on several."""
        places = {_place(name).upper() for name in self.members}
        one = places.pop() if len(places) == 1 else ""
        return one.removeprefix("+") if one.startswith("+") else ""


class OracleRedo(SystemOperation):
    """Redo log groups of an instance: `{system: instance1, groups: 4, size: 15G, disk_groups: [REDO1, REDO2]}`."""

    groups: int = Field(ge=2, le=32, description="The number of groups of the instance; at least two.")
    size: Size = Field(description="Of each: 15G.")
    disk_groups: Annotated[list[OracleName], Field(min_length=1, max_length=8)] = Field(
        description="ASM disk groups that new redo log groups lie on, in turn."
    )

    privileges = "in the database: ALTER DATABASE, ALTER SYSTEM, SELECT on V_$LOG, V_$LOGFILE, V_$INSTANCE"

    def targets(self) -> Mapping[str, str]:
        return {f"redo log groups of {self.system}": self._groups}

    def wanted(self) -> tuple[str, ...]:
        return (self._groups, "every other group of its thread is dropped, after log switches and a checkpoint")

    @property
    def _groups(self) -> str:
        turns = " in turn" if len(self.disk_groups) > 1 else ""
        return f"{self.groups} redo log groups of {self.size} in its thread, on {', '.join(self.disk_groups)}{turns}"

    def steps(self, facts: Facts) -> Iterable[Found]:
        """Add, leave the others, drop them."""
        thread, container = (int(value or 0) for value in facts.rows(self.system, THREAD)[0])
        if container > ROOT:
            whose = f"the dsn of {self.system} is that of a pluggable database, and redo logs are the container's"
            return (f"{whose} (ORA-65040): name a service of CDB$ROOT, and a common user",)
        every, members = facts.rows(self.system, GROUPS), facts.rows(self.system, MEMBERS)
        mine = [
            _Group(int(number or 0), int(size or 0), tuple(str(name) for of, name in members if of == number))
            for number, of_thread, size, _ in every
            if int(of_thread or 0) == thread
        ]
        open_places = [self.disk_groups[index % len(self.disk_groups)] for index in range(self.groups)]
        old = []
        for group in mine:
            if group.size == bytes_of(self.size) and group.place in open_places:
                open_places.remove(group.place)
            else:
                old.append(group)
        taken = {int(row[0] or 0) for row in (*every, *members)}
        free = (number for number in range(1, 1000) if number not in taken)
        new = [_Group(next(free), bytes_of(self.size), (f"+{place}",)) for place in open_places]
        return self._statements(thread, new, old)

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


def _place(member: str) -> str:
    """The disk group of a file of ASM, whose name only ASM may give; another file itself."""
    return member.partition("/")[0] if member.startswith("+") else member


def _add(thread: int, group: _Group, size: str) -> str:
    """ALTER DATABASE ADD LOGFILE."""
    places = ", ".join(literal(_place(name)) for name in group.members)
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


# The system is the ASM instance, reached with SYSASM by the agent of its own host, which looks at the disks itself: ASM
# takes a filesystem that it does not know for an empty disk. Each disk is traced to its name in /dev/disk/by-id, the
# only name that a policy can list; a label of the filter driver (AFD) to the device that the plan names for it, whose
# header must carry that label. A group of that name with the same redundancy and allocation unit is as wanted; another
# one is refused. To undo drops the group if it is empty: what lies in it by then is not destroyed but named. Source:
# ASM Administrator's Guide.

FREE = ("CANDIDATE", "PROVISIONED", "FORMER")
REDUNDANCY = {"external": "EXTERN", "normal": "NORMAL", "high": "HIGH"}
"""As V$ASM_DISKGROUP.TYPE has them."""
LEAST = {"external": 1, "normal": 2, "high": 3}
"""Failure groups; by default each disk is one of its own."""
_PATH = re.compile(r"/dev/[A-Za-z0-9._:+@/-]{1,200}|AFD:[A-Z0-9_]{1,30}")
_AFD, _SIGNATURE = "AFD:", "oracleasm"
Version: TypeAlias = Annotated[str, matching(r"\d{1,2}(\.\d{1,2}){1,4}", '`{value}` is not a version, as "19.0.0.0"')]


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or ".." in value.split("/") or value.startswith("/dev/oracleasm"):
        raise custom(
            f"`{value}` is not a disk of ASM: /dev/oraudev/disks/DATA1, AFD:DATA1; no patterns, not /dev/oracleasm"
        )
    return value


class AsmDiskGroup(SystemOperation):
    """An ASM disk group: `{system: asm, disk_group: DATA, redundancy: external, au_size: 4M, disks:
    [/dev/oraudev/disks/DATA1]}`."""

    disk_group: Annotated[OracleName, Field(max_length=30)] = Field(description="Its name.")
    redundancy: Literal["external", "normal", "high"] = Field(description="The copies that ASM keeps of its contents.")
    au_size: Literal["1M", "2M", "4M", "8M", "16M", "32M", "64M"] = Field("4M", description="The allocation unit.")
    disks: Annotated[list[Annotated[str, AfterValidator(_path)]], Field(min_length=1, max_length=200)] = Field(
        description="Its disks by path, as V$ASM_DISK has them; every one by itself."
    )
    devices: dict[Annotated[str, AfterValidator(_path)], Device] = Field(
        default_factory=dict,
        max_length=200,
        description="The device of each label of the filter driver: `AFD:DATA1` to `/dev/disk/by-id/…`.",
    )
    compatible: Version | None = Field(None, description="compatible.asm and compatible.rdbms.")

    privileges = "root: reads the headers of disks; in the ASM instance: SYSASM"
    destructive = True

    @model_validator(mode="after")
    def _enough_disks(self) -> AsmDiskGroup:
        if twice := next((disk for disk in self.disks if self.disks.count(disk) > 1), None):
            raise custom(f"{twice} is named twice")
        if len(self.disks) < LEAST[self.redundancy]:
            raise custom(f"{self.redundancy} redundancy takes {LEAST[self.redundancy]} disks at least")
        return self

    @model_validator(mode="after")
    def _labels_have_devices(self) -> Self:
        labels = {disk for disk in self.disks if disk.startswith(_AFD)}
        if missing := sorted(labels - self.devices.keys()):
            raise custom(f"`{missing[0]}` does not identify its disk: give the device in `devices`")
        if more := sorted(self.devices.keys() - labels):
            raise custom(f"`devices` are for labels of the filter driver among `disks`, which `{more[0]}` is not")
        return self

    def targets(self) -> Mapping[str, str]:
        return {f"disk group {self.disk_group} of {self.system}": self.wanted()[0]}

    def wanted(self) -> tuple[str, ...]:
        return (
            f"disk group {self.disk_group}, {self.redundancy} redundancy, allocation unit {self.au_size}",
            *(f"  {disk}" for disk in self.disks),
            f"refused where a disk is not {', '.join(FREE[:-1])} or {FREE[-1]}; never by FORCE",
        )

    @property
    def _groups(self) -> RowsQuery:
        where = f"name = {literal(self.disk_group)}"
        return RowsQuery(self.system, f"SELECT type, allocation_unit_size, state FROM v$asm_diskgroup WHERE {where}")  # noqa: S608 - a literal

    @property
    def _disks(self) -> RowsQuery:
        where = f"path IN ({in_list(tuple(self.disks))})"
        return RowsQuery(self.system, f"SELECT path, header_status FROM v$asm_disk WHERE {where} ORDER BY path")  # noqa: S608 - literals

    def steps(self, facts: Facts) -> Iterable[Found]:
        """CREATE DISKGROUP, where there is no such group and the disks are free."""
        found = facts.ask(self._groups)
        if found:
            return self._there_is(*(value or "" for value in found[0]))
        if refusals := tuple(self._not_free(facts)):
            return refusals
        devices = tuple(names(self.devices.get(disk, disk), facts) for disk in self.disks)
        made = Statement(system=self.system, text=self._create(), undo=self._drop(), destructive=True, devices=devices)
        return (made,)

    def _there_is(self, kind: str, unit: str, state: str) -> Iterator[str]:
        there = f"there is a disk group {self.disk_group} already"
        if (kind, unit) != (REDUNDANCY[self.redundancy], str(bytes_of(self.au_size))) and state != "DISMOUNTED":
            yield f"{there}, of type {kind} and allocation unit {unit}: drop it, or name another"
        elif state not in ("MOUNTED", "CONNECTED"):
            yield f"{there}, and it is {state.lower()}: mount it"

    def _not_free(self, facts: Facts) -> Iterator[str]:
        states = {row[0]: row[1] for row in facts.ask(self._disks)}
        for disk in self.disks:
            if disk not in states:
                yield f"the ASM instance does not see {disk} (asm_diskstring)"
            elif states[disk] not in FREE:
                yield f"{disk} is {states[disk]}: only {', '.join(FREE)} disks are taken, and never by FORCE"
            else:
                yield from self._in_use(disk, facts)

    def _in_use(self, disk: str, facts: Facts) -> Iterator[str]:
        """Reasons on the host itself against it."""
        path = self.devices.get(disk, disk)
        found = names(path, facts)
        if not found:
            what = "is not on this host" if facts.link(path) is None else f"has no name below {BY_ID.rstrip('/')}"
            yield f"{path} {what}, so its owner cannot have listed it"
            return
        label = (probed(found[0], facts) or {}).get("LABEL", "")
        if disk.startswith(_AFD) and label != disk.removeprefix(_AFD):
            yield f"{path} is not {disk}: its header has {label or 'no label'}"
        yield from in_use(found[0], facts, VOLUMES, own=_SIGNATURE)

    def _create(self) -> str:
        attributes: list[tuple[str, str]] = [("au_size", self.au_size)]
        if self.compatible:
            attributes += [("compatible.asm", self.compatible), ("compatible.rdbms", self.compatible)]
        given = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in attributes)
        disks = ", ".join(literal(disk) for disk in self.disks)
        return f"CREATE DISKGROUP {self.disk_group} {self.redundancy.upper()} REDUNDANCY DISK {disks} ATTRIBUTE {given}"

    def _drop(self) -> str:
        guard = f"SELECT COUNT(*) INTO n FROM v$asm_diskgroup_stat WHERE name = {literal(self.disk_group)}"  # noqa: S608 - a literal
        return once(guard, f"DROP DISKGROUP {self.disk_group} EXCLUDING CONTENTS")
