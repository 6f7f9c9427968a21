"""Copies of PostgreSQL databases that run already, for plans with `restore: template`, and objections to them."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.adapter import CopyState
from proveout.agent.engines.postgres.sql import connect_blocking, statement_fault
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.core.numbers import count_of
from proveout.core.numbers import size as size_text
from proveout.proto.wire.tasks import Endpoint

NAME_BYTES_MAX = 63
SHOWN_MAX = 5
_WITH_SET = 160000

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Session:
    """A session in a database; `own`: of proveout, by this user."""

    pid: int
    user: str
    application: str
    address: str
    state: str
    own: bool

    def __str__(self) -> str:
        words = [f"user {self.user}", *([f"{self.application!r}"] if self.application else [])]
        words += [f"from {self.address}" if self.address else "", self.state]
        return f"pid {self.pid} ({', '.join(word for word in words if word)})"


def sessions_in(db: Connection, name: str, *, own: bool = False) -> tuple[Session, ...]:
    """The sessions in a database, with `own` those of proveout too; parallel workers end with theirs."""
    query = """SELECT pid, usename, coalesce(application_name, ''), coalesce(host(client_addr), ''),
                      coalesce(state, ''), usename = current_user AND application_name ~ '^proveout( |$)'
               FROM pg_stat_activity WHERE datname = %s AND usename IS NOT NULL AND pid <> pg_backend_pid()
                    AND coalesce(backend_type, '') <> 'parallel worker' ORDER BY pid"""
    found = (Session(*row) for row in db.execute(query, (name,)))
    return tuple(one for one in found if own or not one.own)


def shown(sessions: Sequence[Session]) -> str:
    """`1 session: pid 17 (user app, 'psql', idle)`."""
    few = [str(one) for one in sessions[:SHOWN_MAX]]
    if len(sessions) > SHOWN_MAX:
        few.append(f"{len(sessions) - SHOWN_MAX} more")
    return f"{count_of(len(sessions), 'session')}: {', '.join(few)}"


def size_bytes(db: Connection, name: str) -> int | None:
    """The size of a database; None where the user may not ask."""
    try:
        row = db.execute("SELECT pg_database_size(%s)", (name,)).fetchone()
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidCatalogName):
        return None
    return None if row is None else int(row[0])


def objections(db: Connection, name: str) -> tuple[str, ...]:
    """Each reason with its way out. psycopg.Error."""
    if db.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        return ("the server is a standby, which takes no changes (give the dsn of its primary)",)
    return (*_of_rights(db, name), *_of_sessions(db, name), *_of_replication(db, name), *_of_settings(db, name),
            *_of_room(db, name))  # fmt: skip


def _one(db: Connection, query: LiteralString, name: str) -> tuple[Any, ...]:
    row = db.execute(query, (name,)).fetchone()
    assert row is not None  # noqa: S101 - the database is there
    return row


def _of_rights(db: Connection, name: str) -> Iterator[str]:
    user, is_superuser, may_create, owner, is_owner, quoted = _one(
        db,
        "SELECT quote_ident(current_user), rolsuper, rolcreatedb, quote_ident(pg_get_userbyid(datdba)), "
        "pg_has_role(datdba, 'USAGE'), quote_ident(datname) "
        "FROM pg_database, pg_roles WHERE rolname = current_user AND datname = %s",
        name,
    )
    if is_superuser:
        return
    if not may_create:
        yield f"user {user} may not create databases (ALTER ROLE {user} CREATEDB)"
    if not is_owner:
        way_out = f"GRANT {owner} TO {user}, or ALTER DATABASE {quoted} OWNER TO {user}"
        yield f"user {user} does not own database {name} ({way_out})"
    elif owner != user and db.info.server_version >= _WITH_SET:
        (may_set,) = _one(db, "SELECT pg_has_role(datdba, 'SET') FROM pg_database WHERE datname = %s", name)
        if not may_set:
            yield f"user {user} may not make databases of {owner} (GRANT {owner} TO {user} WITH SET TRUE)"


def _of_sessions(db: Connection, name: str) -> Iterator[str]:
    if found := sessions_in(db, name):
        yield f"database {name} is in use by {shown(found)} (end these sessions; proveout ends none of others)"
    query = "SELECT gid FROM pg_prepared_xacts WHERE database = %s ORDER BY gid"
    if prepared := [str(row[0]) for row in db.execute(query, (name,))]:
        listed = ", ".join(prepared[:SHOWN_MAX])
        yield f"database {name} has prepared transactions: {listed} (COMMIT PREPARED or ROLLBACK PREPARED)"


def _of_replication(db: Connection, name: str) -> Iterator[str]:
    way_out = "a copy would leave out what it carries; restore: false, or drop it for the run"
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = %s ORDER BY slot_name"
    for (slot,) in db.execute(query, (name,)).fetchall():
        yield f"database {name} has the logical replication slot {slot} ({way_out})"
    query = "SELECT subname FROM pg_subscription JOIN pg_database ON pg_database.oid = subdbid WHERE datname = %s"
    for (subscription,) in sorted(db.execute(query, (name,))):
        yield f"database {name} has the subscription {subscription} ({way_out})"


def _of_settings(db: Connection, name: str) -> Iterator[str]:
    """Settings of the database that only a superuser can give to the copy."""
    query = """SELECT split_part(item, '=', 1), quote_ident(datname)
        FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase, unnest(setconfig) AS item,
             pg_roles AS me
        WHERE datname = %s AND me.rolname = current_user AND NOT me.rolsuper AND setrole IN (0, me.oid)
          AND split_part(item, '=', 1) IN (SELECT name FROM pg_settings WHERE context LIKE 'superuser%%') ORDER BY 1"""
    for setting, quoted in db.execute(query, (name,)).fetchall():
        if db.info.server_version >= 150000:
            row = db.execute("SELECT has_parameter_privilege(%s, 'SET')", (setting,)).fetchone()
            if row == (True,):
                continue
        way_out = f"GRANT SET ON PARAMETER {setting}, or ALTER DATABASE {quoted} RESET {setting}"
        yield f"database {name} has the setting {setting}, which only a superuser can give to its copy ({way_out})"


def _of_room(db: Connection, name: str) -> Iterator[str]:
    """The room for the copy, where the data directory is one of this host and the user may know it."""
    size, place = size_bytes(db, name), _place(db, name)
    if size is None or place is None:
        return
    try:
        room = os.statvfs(place)
    except OSError:
        return
    free = room.f_bavail * room.f_frsize
    if free < size:
        yield f"the copy of database {name} takes {size_text(size)}, and {place} has only {size_text(free)} free"


def _place(db: Connection, name: str) -> Path | None:
    """The directory of a database's files; None on another host, or where the user may not know it."""
    if not _is_here(db):
        return None
    query = """SELECT coalesce(nullif(pg_tablespace_location(dattablespace), ''), setting)
               FROM pg_database, pg_settings WHERE datname = %s AND pg_settings.name = 'data_directory'"""
    row = db.execute(query, (name,)).fetchone()
    return None if row is None else Path(str(row[0]))


def _is_here(db: Connection) -> bool:
    host = db.info.hostaddr or db.info.host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.startswith(("/", "@")) or host == "localhost"


# | database | what it is |
# |---|---|
# | `NAME` | before `save` and after `release` the original; in between a copy, marked by its comment |
# | NAME and `_proveout` | the original, meanwhile without connections |
# | NAME and `_proveout_new` | a copy that is not ready yet |
#
# `save` makes the copy, then renames the original and the copy. `restore` drops the copy and makes another one.
# `release` drops both copies and renames the original back. So no statement but a rename ever touches the original: its
# owner, privileges, settings, comment and rows stay as they are, and after a kill at any moment `release` finds by the
# names what is left to do. A copy gets the original's owner, privileges, settings and connection limit.
#
# All statements run in a session of another database (`postgres` or `template1`); none of them ends sessions of others.
# Source: PostgreSQL manual, "CREATE DATABASE", "ALTER DATABASE", "Template Databases".

ASIDE, NEW = "_proveout", "_proveout_new"
MAINTENANCE = ("postgres", "template1")
IN_USE_S, POLL_S = 15.0, 0.2
"""The time for which sessions of the run's own loads may still end."""
BY_LITERAL = ("role", "session_authorization")
"""Settings that would change the rights of the session that copies them."""
_FILE_COPY = 150000


@dataclass(frozen=True, slots=True)
class TemplateCopy:
    """`adapter.DataCopy` of the database of a dsn, for one run."""

    endpoint: Endpoint
    run: str

    @property
    def name(self) -> str:
        """The name of the database. TaskFault `invalid` for a dsn without one."""
        try:
            found = conninfo_to_dict(self.endpoint.dsn).get("dbname")
        except psycopg.ProgrammingError:
            found = None
        if not found:
            what = f"the dsn of system {self.endpoint.system!r} names no database, so it is not clear what is copied"
            raise TaskFault("invalid", what, way_out="add dbname=… to it")
        return str(found)

    @property
    def aside(self) -> str:
        """The name of the original while the run works on a copy."""
        return self.name + ASIDE

    @property
    def new(self) -> str:
        """The name of a copy that is not ready."""
        return self.name + NEW

    def state(self) -> CopyState:
        if len(self.new.encode()) > NAME_BYTES_MAX:
            what = f"the copy would be called {self.new}, and names have at most {NAME_BYTES_MAX} bytes"
            return CopyState(made=False, objections=(what,))
        with self._session() as db:
            there = self._there(db)
            if self.aside in there and self._is_ours(there.get(self.name)):
                return CopyState(made=True)
            gone = (f"database {self.name} does not exist",)
            found = (*self._left(there), *(objections(db, self.name) if self.name in there else gone))
            size = size_bytes(db, self.name)
        much = "of unknown size" if size is None else size_text(size)
        text = f"database {self.name} ({much}): the run works on a copy, the original is {self.aside} until the end"
        return CopyState(made=False, objections=found, text=text)

    def save(self) -> None:
        """Copy the database, and give the copy its name."""
        with self._session() as db:
            self._await_end(db, self.name)
            self._copy(db, self.name)
            self._await_end(db, self.name)
            _execute(db, "ALTER DATABASE {} RENAME TO {}", self.name, self.aside)
            _execute(db, "ALTER DATABASE {} ALLOW_CONNECTIONS false", self.aside)
            _execute(db, "ALTER DATABASE {} RENAME TO {}", self.new, self.name)

    def restore(self) -> None:
        """Drop the copy, and make another one of the original."""
        with self._session() as db:
            there = self._there(db)
            if self.aside not in there or not (self.name not in there or self._is_ours(there[self.name])):
                what = f"system {self.endpoint.system!r}: this run has no copy of database {self.name}"
                raise TaskFault("missing", what, way_out="has another program renamed or replaced it?")
            self._await_end(db, self.name)
            _execute(db, "DROP DATABASE IF EXISTS {}", self.name)
            self._copy(db, self.aside)
            _execute(db, "ALTER DATABASE {} RENAME TO {}", self.new, self.name)

    def release(self) -> None:
        """Drop the copies, and rename the original back."""
        with self._session() as db:
            _end_stale(db)
            _execute(db, "DROP DATABASE IF EXISTS {}", self.new)
            there = self._there(db)
            if self.aside not in there:
                return
            if self.name in there and not self._is_ours(there[self.name]):
                what = f"database {self.name} is not the copy that run {self.run} has made, so it is left; the original"
                way_out = f"drop or rename {self.name}, then {self._by_hand()}"
                raise TaskFault("refused", f"{what} is {self.aside}", way_out=way_out)
            self._await_end(db, self.name, end_own=True)
            _execute(db, "DROP DATABASE IF EXISTS {}", self.name)
            _execute(db, "ALTER DATABASE {} ALLOW_CONNECTIONS true", self.aside)
            _execute(db, "ALTER DATABASE {} RENAME TO {}", self.aside, self.name)

    # ---- databases -------------------------------------------------------------------------------------------------

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """A session of another database of the server, without time limits; a database error is a TaskFault."""
        db = self._connect()
        try:
            for name in ("statement_timeout", "lock_timeout", "idle_session_timeout"):
                with suppress(psycopg.errors.UndefinedObject):  # the last one is of PostgreSQL 14
                    db.execute("SELECT set_config(%s, '0', false)", (name,))
            db.execute("SET default_transaction_read_only = off")
            yield db
        except psycopg.Error as error:
            raise statement_fault(self.endpoint, error) from None
        finally:
            db.close()

    def _connect(self) -> Connection:
        first: TaskFault | None = None
        for database in MAINTENANCE:
            if database == self.name:
                continue
            end = replace(self.endpoint, dsn=make_conninfo(self.endpoint.dsn, dbname=database))
            try:
                return connect_blocking(end, f"copy of {self.name}")
            except TaskFault as fault:
                if fault.code == "unreachable":
                    raise
                first = first or fault
        assert first is not None  # noqa: S101 - there are two names
        raise first

    def _there(self, db: Connection) -> dict[str, str]:
        """The databases with one of the three names -> their comments."""
        query = "SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = ANY(%s)"
        return {str(name): str(text or "") for name, text in db.execute(query, ([self.name, self.aside, self.new],))}

    @property
    def _mark(self) -> str:
        return f"proveout: a copy of {self.aside} for run {self.run};"

    def _is_ours(self, comment: str | None) -> bool:
        return comment is not None and comment.startswith(self._mark)

    def _by_hand(self) -> str:
        return (
            f'ALTER DATABASE "{self.aside}" ALLOW_CONNECTIONS true; '
            f'ALTER DATABASE "{self.aside}" RENAME TO "{self.name}"'
        )

    def _left(self, there: dict[str, str]) -> Iterator[str]:
        """Objections for the databases that have the names that this run needs."""
        if self.aside in there:
            copy = there.get(self.name, "").startswith(f"proveout: a copy of {self.aside} for run ")
            first = f'DROP DATABASE "{self.name}"; ' if copy else ""
            whose = "another run works on a copy, or has left it" if copy or self.name not in there else "whose is it?"
            yield f"there is a database {self.aside}: {whose} (if no run uses it: {first}{self._by_hand()})"
        if self.new in there:
            yield f'there is a database {self.new} (if no run uses it: DROP DATABASE "{self.new}")'

    def _copy(self, db: Connection, source: str) -> None:
        """Make a copy that is not ready, ready: with all but the rows too. It is not connectable before that."""
        _execute(db, "DROP DATABASE IF EXISTS {}", self.new)
        query = "SELECT oid, pg_get_userbyid(datdba), datconnlimit, datacl IS NULL FROM pg_database WHERE datname = %s"
        row = db.execute(query, (source,)).fetchone()
        assert row is not None  # noqa: S101 - looked at just before
        oid, owner, limit, default = row
        how = "STRATEGY FILE_COPY " if db.info.server_version >= _FILE_COPY else ""
        rest = f"{how}ALLOW_CONNECTIONS false CONNECTION LIMIT {int(limit)}"
        _execute(db, "CREATE DATABASE {} TEMPLATE {} OWNER {} " + rest, self.new, source, owner)
        if not default:
            _copy_privileges(db, oid, str(owner), self.new)
        _copy_settings(db, oid, self.new)
        text = sql.Literal(f'{self._mark} to restore by hand: DROP DATABASE "{self.name}"; {self._by_hand()}')
        db.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(self.new), text))
        _execute(db, "ALTER DATABASE {} ALLOW_CONNECTIONS true", self.new)

    def _await_end(self, db: Connection, name: str, *, end_own: bool = False) -> None:
        """Wait for the end of all sessions in a database, with `end_own` end those of proveout. TaskFault `refused`."""
        deadline = time.monotonic() + IN_USE_S
        while found := sessions_in(db, name, own=True):
            if end_own:
                db.execute(
                    "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid",
                    ([one.pid for one in found if one.own],),
                )
            if time.monotonic() > deadline:
                raise TaskFault(
                    "refused",
                    f"system {self.endpoint.system!r}: database {name} is in use by {shown(found)}",
                    way_out="end these sessions; proveout ends none of others",
                )
            time.sleep(POLL_S)


def _execute(db: Connection, statement: str, *names: str) -> None:
    db.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))  # made of constants


def _end_stale(db: Connection) -> None:
    """End the session of a killed agent that still copies: the server goes on with it by itself."""
    query = (
        "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user "
        "AND application_name = current_setting('application_name')"
    )
    deadline = time.monotonic() + IN_USE_S
    while (pids := [row[0] for row in db.execute(query)]) and time.monotonic() < deadline:
        db.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (pids,))
        time.sleep(POLL_S)


def _copy_privileges(db: Connection, oid: int, owner: str, to: str) -> None:
    """Give a database the privileges of another one, in place of the default ones."""
    _execute(db, "REVOKE ALL ON DATABASE {} FROM PUBLIC, {}", to, owner)
    query = (
        "SELECT rolname, string_agg(privilege_type, ', '), is_grantable FROM pg_database, aclexplode(datacl) "
        "LEFT JOIN pg_roles ON pg_roles.oid = grantee WHERE pg_database.oid = %s GROUP BY rolname, is_grantable"
    )
    for role, privileges, grantable in db.execute(query, (oid,)).fetchall():
        who = sql.SQL("PUBLIC") if role is None else sql.Identifier(role)
        option = " WITH GRANT OPTION" if grantable else ""
        text = f"GRANT {privileges} ON DATABASE {{}} TO {{}}{option}"
        db.execute(sql.SQL(text).format(sql.Identifier(to), who))


def _copy_settings(db: Connection, oid: int, to: str) -> None:
    """Give a database the settings of another one (ALTER DATABASE … SET), and those of the user in it."""
    query = (
        "SELECT setrole <> 0, split_part(item, '=', 1), substr(item, strpos(item, '=') + 1) "
        "FROM pg_db_role_setting, unnest(setconfig) AS item WHERE setdatabase = %s "
        "AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user)) ORDER BY setrole"
    )
    for of_user, name, value in db.execute(query, (oid,)).fetchall():
        where = "ALTER ROLE CURRENT_USER IN DATABASE {} SET {} " if of_user else "ALTER DATABASE {} SET {} "
        setting = sql.SQL(".").join(map(sql.Identifier, name.split(".")))
        try:
            if name in BY_LITERAL:
                raise psycopg.errors.CantChangeRuntimeParam
            with db.transaction():  # lists are stored as they are read, not as one quoted name
                db.execute("SELECT set_config(%s, %s, true)", (name, value))
                db.execute(sql.SQL(where + "FROM CURRENT").format(sql.Identifier(to), setting))
        except psycopg.errors.CantChangeRuntimeParam:
            db.execute(sql.SQL(where + "TO {}").format(sql.Identifier(to), setting, sql.Literal(value)))
