"""`oracle_parameters`: initialization parameters of a database, on all of its instances or on one, in effect and in the
server parameter file.

The values of an instance are in GV$SYSTEM_PARAMETER, those of the file in V$SPPARAMETER. A parameter that cannot be
changed while the instances run is stored and waits for their restart: a state of its own, unless `restart_by` names the
srvctl that stops and starts them, after the change and after its undoing. A hidden parameter is in no view until an
instance has been started with it, so it is only stored. Source: Database Reference, ALTER SYSTEM in the SQL Reference,
srvctl in the RAC Administration Guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Change, Command, Statement
from proveout.dsl.operations.database.oracle_values import (
    STORED_ONLY,
    in_sql,
    is_hidden,
    name_objection,
    needs_consent,
    value_objection,
)
from proveout.dsl.operations.database.sql_literals import (
    SETTING_SCHEMA,
    Setting,
    SystemOperation,
    bytes_of,
    in_list,
    literal,
)
from proveout.dsl.operations.facts import Facts, Query, RowsQuery
from proveout.dsl.operations.operation import Step, as_written, gathered
from proveout.dsl.operations.types import AbsolutePath
from proveout.dsl.schema.scalar_types import custom
from proveout.dsl.source.nodes import Map

_OWN = frozenset({"system", "instance", "hidden", "restart_by"})
NAME_PATTERN = f"^(?!({'|'.join(sorted(_OWN))})$)_?[a-z][a-z0-9_]{{0,79}}$"
_NUMBER = re.compile(r"-?\d{1,20}")
_SIZE = re.compile(r"[1-9]\d{0,14}[KMGT]", re.I)
_NOT_IN_FILE = -32010
"""ORA-32010: cannot find entry to delete in SPFILE."""
_INSTANCE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9_$#]{0,29}")
RESTART_WITHIN_S = 1800.0
"""An instance that locks terabytes of memory is up after many minutes."""
_STOPPED, _STARTED = ("PRCC-1016",), ("PRCC-1014",)
"""Messages of srvctl: it was stopped already, it runs already. Source: Error Messages Reference."""
OPEN = "SELECT COUNT(*) FROM v$instance WHERE status = 'OPEN'"
"""The statement for which the agent waits until the instance answers it."""


def _name(value: str) -> str:
    if objection := name_objection(value):
        raise custom(objection)
    return value


def _instance(value: str) -> str:
    if not _INSTANCE.fullmatch(value):
        raise custom(f"`{value}` is not the name of an instance (SID), as HLR1")
    return value


def _database(value: str) -> str:
    if not _DATABASE.fullmatch(value):
        raise custom(f"`{value}` is not the unique name of a database, as HLR")
    return value


def _srvctl(value: str) -> str:
    if not value.endswith("/bin/srvctl"):
        raise custom(
            f"`{value}` is not the srvctl of an Oracle home: /u01/app/oracle/product/19.0.0/dbhome_1/bin/srvctl"
        )
    return value


ParameterName: TypeAlias = Annotated[str, AfterValidator(_name)]


class Restart(BaseModel):
    """The srvctl that restarts the instances; the policy of the host lists it under `tools`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    srvctl: Annotated[AbsolutePath, AfterValidator(_srvctl)] = Field(
        description="Its path, in the database's own home."
    )
    database: Annotated[str, AfterValidator(_database)] = Field(description="The unique name of the database.")

    def argv(self, verb: str, instance: str | None) -> tuple[str, ...]:
        """`srvctl stop database -db HLR`, or of one instance."""
        if instance is None:
            return (self.srvctl, verb, "database", "-db", self.database)
        return (self.srvctl, verb, "instance", "-db", self.database, "-instance", instance)


@dataclass(frozen=True, slots=True)
class _Now:
    """A parameter: the value of the instances (one unless they differ), and the file's value in this scope (for all of
    them, or for the one); `for_one` are instances with a stored value of their own."""

    running: tuple[str, ...]
    modifiable: str
    stored: str | None
    for_one: tuple[str, ...]

    @property
    def is_immediate(self) -> bool:
        """Whether the instances take a value at once."""
        return self.modifiable == "IMMEDIATE"


class OracleParameters(SystemOperation):
    """Initialization parameters of an Oracle Database: `{system: orcl, sga_target: 400G, use_large_pages: only}`."""

    model_config = ConfigDict(json_schema_extra=as_written(NAME_PATTERN, SETTING_SCHEMA))

    settings: SkipJsonSchema[Annotated[dict[ParameterName, Setting], Field(min_length=1, max_length=200)]]
    instance: Annotated[str, AfterValidator(_instance)] | None = Field(
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
        return gathered(block, lambda name: name not in _OWN)

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
        """Each parameter."""
        where = self.system if self.instance is None else f"instance {self.instance} of {self.system}"
        return {f"parameter {name} of {where}": value for name, value in self.settings.items()}

    def wanted(self) -> tuple[str, ...]:
        """Each parameter, the consent that it needs, and the restart."""
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
    def _running(self) -> RowsQuery:
        where = f"name IN ({in_list(tuple(sorted((*self.settings, 'spfile'))))})"
        if self.instance is not None:
            of_one = f"SELECT inst_id FROM gv$instance WHERE instance_name = {literal(self.instance)}"  # noqa: S608 - a literal
            where += f" AND inst_id IN ({of_one})"
        columns = "name, inst_id, value, issys_modifiable"
        return RowsQuery(self.system, f"SELECT {columns} FROM gv$system_parameter WHERE {where} ORDER BY name, inst_id")  # noqa: S608 - literals

    @property
    def _stored(self) -> RowsQuery:
        where = f"isspecified = 'TRUE' AND name IN ({in_list(tuple(sorted(self.settings)))})"
        text = f"SELECT name, sid, value FROM v$spparameter WHERE {where} ORDER BY name, sid, ordinal"  # noqa: S608 - literals
        return RowsQuery(self.system, text)

    @property
    def _sid(self) -> str:
        return self.instance or "*"

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The running values and the stored values."""
        return (self._running, self._stored)

    def _now(self, name: str, facts: Facts) -> _Now:
        running = [row for row in facts.rows(self.system, self._running.statement) if row[0] == name]
        stored = [row for row in facts.rows(self.system, self._stored.statement) if row[0] == name]
        only_stored = name in STORED_ONLY or is_hidden(name)
        return _Now(
            running=tuple(dict.fromkeys(row[2] or "" for row in running)),
            modifiable="FALSE" if only_stored or not running else running[0][3] or "",
            stored=next((row[2] or "" for row in stored if row[1] == self._sid), None),
            for_one=tuple(dict.fromkeys(row[1] or "" for row in stored if row[1] != "*")),
        )

    # ---- changes ---------------------------------------------------------------------------------------------------

    def changes(self, facts: Facts) -> Step:
        """ALTER SYSTEM for what differs; what waits for a restart of the instances, or the restart."""
        running = facts.rows(self.system, self._running.statement)
        if self.instance is not None and not running:
            return Step(refusals=(f"no instance {self.instance} of {self.system} runs (GV$INSTANCE)",))
        if any(row[0] == "spfile" and not row[2] for row in running):
            return Step(refusals=("an instance runs without a server parameter file, so nothing could be stored",))
        changes: list[Change] = []
        refusals: list[str] = []
        restarts: list[str] = []
        for name, value in self.settings.items():
            now = self._now(name, facts)
            if reason := self._refusal(name, value, now):
                refusals.append(reason)
                continue
            is_running = bool(now.running) and _same(now.running[0], value)
            if not (_same(now.stored, value) if now.stored is not None else is_running):
                changes += self._statements(name, value, now)
            elif not is_running and now.is_immediate:
                changes += self._in_memory(name, value, now)
            if not is_running and not now.is_immediate:
                restarts.append(self._waiting(name, value, now))
        if refusals or not restarts or self.restart_by is None:
            return Step(changes=tuple(changes), refusals=tuple(refusals), restarts=tuple(restarts))
        return Step(changes=self._restarted(tuple(changes), self.restart_by))

    def _waiting(self, name: str, value: str, now: _Now) -> str:
        who, runs, are = (
            ("the instances", "run", "they are")
            if self.instance is None
            else (f"instance {self.instance}", "runs", "it is")
        )
        what = now.running[0] or "none" if now.running else "the default"
        return f"{name} = {value} is stored, but {who} {runs} with {what} until {are} restarted"

    def _restarted(self, changes: tuple[Change, ...], by: Restart) -> tuple[Change, ...]:
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

    def _statements(self, name: str, value: str, now: _Now) -> Iterator[Statement]:
        """The file and the instances are undone by themselves: they need not have had the same value."""
        sid = self._sid
        undo = reset(name, sid) if now.stored is None else alter(name, now.stored, "SPFILE", sid)
        yield self._statement(name, alter(name, value, "SPFILE", sid), undo)
        if now.is_immediate:
            yield from self._in_memory(name, value, now)

    def _in_memory(self, name: str, value: str, now: _Now) -> Iterator[Statement]:
        undo = alter(name, now.running[0], "MEMORY", self._sid)
        yield self._statement(name, alter(name, value, "MEMORY", self._sid), undo)

    def _statement(self, name: str, text: str, undo: str) -> Statement:
        consents = (name,) if needs_consent(name) else ()
        return Statement(system=self.system, text=text, undo=undo, consents=consents)

    def _refusal(self, name: str, value: str, now: _Now) -> str:
        if not now.running and not is_hidden(name):
            return f"this database has no parameter {name}"
        if len(now.running) > 1:
            return f"the instances run with different values of {name}: {', '.join(now.running)}"
        if now.for_one and self.instance is None:
            return f"{name} is stored for {', '.join(now.for_one)} alone, which comes before what is stored for all"
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
    """Whether it cannot be a literal of `sql_literals`."""
    try:
        literal(text)
    except ValueError:
        return True
    return False


def _same(now: str, wanted: str) -> bool:
    """Whether two texts mean one value: sizes as bytes, words without regard to case; the case of a path counts."""
    return _plain(now) == _plain(wanted)


def _plain(text: str) -> str:
    if _SIZE.fullmatch(text):
        return str(bytes_of(text.upper()))
    return text.strip() if "/" in text else text.strip().lower()
