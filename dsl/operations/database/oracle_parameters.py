"""`oracle_parameters`: initialization parameters of a database, on all of its instances, in effect and in the server
parameter file.

The values of an instance are in GV$SYSTEM_PARAMETER, those of the file in V$SPPARAMETER. A parameter that cannot be
changed while the instances run is stored and waits for their restart: a state of its own. Source: Database Reference,
ALTER SYSTEM in the SQL Reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from proveout.dsl.operations.change import Change, Statement
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
from proveout.dsl.schema.scalar_types import custom
from proveout.dsl.source.nodes import Map

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,79}$"
_OWN = frozenset({"system"})
_WAY_IN = re.compile(
    r"(local_|remote_)?listener.*|.*_listener|remote_login.*|remote_os.*|os_authent_prefix|os_roles|sec_.*|audit_.*|spfile|ifile|"
    r"control_files|db_name|db_unique_name|instance_name|instance_number|thread|.*_dump_dest|diagnostic_dest|o7_dictionary.*|"
    r"utl_file_dir|enable_ddl_logging|ldap_.*|wallet_root|tde_.*|dispatchers|service_names|cluster_database"
)
_NUMBER = re.compile(r"-?\d{1,20}")
_SIZE = re.compile(r"[1-9]\d{0,14}[KMGT]", re.I)
_NOT_IN_FILE = -32010
"""ORA-32010: cannot find entry to delete in SPFILE."""


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN.strip("^$"), value):
        raise custom(f"`{value}` is not the name of an initialization parameter, as sga_target")
    if _WAY_IN.fullmatch(value):
        raise custom(
            f"`{value}` decides the identity of the database, how it is reached or what it records, so no plan sets it"
        )
    return value


ParameterName: TypeAlias = Annotated[str, AfterValidator(_name)]


@dataclass(frozen=True, slots=True)
class _Now:
    """A parameter: the value of the instances (one unless they differ), and the file's value for all of
    them."""

    running: tuple[str, ...]
    modifiable: str
    stored: str | None
    for_one: tuple[str, ...]


class OracleParameters(SystemOperation):
    """Initialization parameters of an Oracle Database: `{system: orcl, sga_target: 400G, use_large_pages: only}`."""

    model_config = ConfigDict(json_schema_extra=as_written(NAME_PATTERN, SETTING_SCHEMA))

    settings: SkipJsonSchema[Annotated[dict[ParameterName, Setting], Field(min_length=1, max_length=200)]]

    privileges = "in the database: ALTER SYSTEM, SELECT on GV_$SYSTEM_PARAMETER and V_$SPPARAMETER"

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """`{system: orcl, sga_target: 400G}` -> `{system: orcl, settings: {sga_target: 400G}}`."""
        return gathered(block, lambda name: name not in _OWN)

    def targets(self) -> Mapping[str, str]:
        """Each parameter."""
        return {f"parameter {name} of {self.system}": value for name, value in self.settings.items()}

    def wanted(self) -> tuple[str, ...]:
        """Each parameter."""
        return tuple(f"{name} = {value}" for name, value in self.settings.items())

    @property
    def _running(self) -> RowsQuery:
        where = f"name IN ({in_list(tuple(sorted((*self.settings, 'spfile'))))})"
        columns = "name, inst_id, value, issys_modifiable"
        return RowsQuery(self.system, f"SELECT {columns} FROM gv$system_parameter WHERE {where} ORDER BY name, inst_id")  # noqa: S608 - literals

    @property
    def _stored(self) -> RowsQuery:
        where = f"isspecified = 'TRUE' AND name IN ({in_list(tuple(sorted(self.settings)))})"
        text = f"SELECT name, sid, value FROM v$spparameter WHERE {where} ORDER BY name, sid, ordinal"  # noqa: S608 - literals
        return RowsQuery(self.system, text)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The running values and the stored values."""
        return (self._running, self._stored)

    def changes(self, facts: Facts) -> Step:
        """ALTER SYSTEM for what differs; what waits for a restart of the instances."""
        running = facts.rows(self.system, self._running.statement)
        if any(row[0] == "spfile" and not row[2] for row in running):
            return Step(refusals=("an instance runs without a server parameter file, so nothing could be stored",))
        changes: list[Change] = []
        refusals: list[str] = []
        restarts: list[str] = []
        for name, value in self.settings.items():
            now = self._now(name, facts)
            if reason := _refusal(name, value, now):
                refusals.append(reason)
                continue
            is_running = _same(now.running[0], value)
            if not (_same(now.stored, value) if now.stored is not None else is_running):
                changes += self._statements(name, value, now)
            elif not is_running and now.modifiable == "IMMEDIATE":
                changes += self._in_memory(name, value, now)
            if not is_running and now.modifiable != "IMMEDIATE":
                restarts.append(
                    f"{name} = {value} is stored, but the instances run with {now.running[0]} until they are restarted"
                )
        return Step(changes=tuple(changes), refusals=tuple(refusals), restarts=tuple(restarts))

    def _now(self, name: str, facts: Facts) -> _Now:
        running = [row for row in facts.rows(self.system, self._running.statement) if row[0] == name]
        stored = [row for row in facts.rows(self.system, self._stored.statement) if row[0] == name]
        return _Now(
            running=tuple(dict.fromkeys(row[2] or "" for row in running)),
            modifiable=(running[0][3] or "") if running else "",
            stored=next((row[2] or "" for row in stored if row[1] == "*"), None),
            for_one=tuple(dict.fromkeys(row[1] or "" for row in stored if row[1] != "*")),
        )

    def _statements(self, name: str, value: str, now: _Now) -> Iterator[Statement]:
        """The file and the instances are undone by themselves: they need not have had the same value."""
        undo = reset(name) if now.stored is None else alter(name, now.stored, "SPFILE")
        yield Statement(system=self.system, text=alter(name, value, "SPFILE"), undo=undo)
        if now.modifiable == "IMMEDIATE":
            yield from self._in_memory(name, value, now)

    def _in_memory(self, name: str, value: str, now: _Now) -> Iterator[Statement]:
        yield Statement(
            system=self.system, text=alter(name, value, "MEMORY"), undo=alter(name, now.running[0], "MEMORY")
        )


def alter(name: str, value: str, scope: str) -> str:
    """ALTER SYSTEM SET on all instances: numbers, sizes and truth as they are, anything else as a literal."""
    bare = _NUMBER.fullmatch(value) or _SIZE.fullmatch(value) or value.lower() in ("true", "false")
    return f"ALTER SYSTEM SET {name} = {value if bare else literal(value)} SCOPE={scope} SID='*'"


def reset(name: str) -> str:
    """ALTER SYSTEM RESET, which succeeds also when there is nothing to reset."""
    statement = literal(f"ALTER SYSTEM RESET {name} SCOPE=SPFILE SID='*'")
    return (
        f"BEGIN EXECUTE IMMEDIATE {statement}; EXCEPTION WHEN OTHERS THEN IF SQLCODE != {_NOT_IN_FILE} THEN RAISE; END "
        "IF; END;"
    )


def _refusal(name: str, value: str, now: _Now) -> str:
    if not now.running:
        return f"this database has no parameter {name}"
    if len(now.running) > 1:
        return f"the instances run with different values of {name}: {', '.join(now.running)}"
    if now.for_one:
        return f"{name} is stored for {', '.join(now.for_one)} alone, which comes before what is stored for all"
    there = (now.running[0], *(() if now.stored is None else (now.stored,)))
    odd = [text for text in there if _odd(text) and not _same(text, value)]
    return f"{name} is {odd[0]!r}, which could not be written back" if odd else ""


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
