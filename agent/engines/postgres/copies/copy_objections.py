"""Objections to copying a PostgreSQL database by template, all at once: rights, sessions, replication, settings,
room.

Data flow: a session of another database of the server -> `objections` -> the refusal of the tuning `database_copy`, in
the preflight and just before the copying. All is read from shared catalogues, so nothing connects to the database.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from proveout.core.data_classes import dataclass
from proveout.core.disk_space import size_text

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
    return f"{len(sessions)} session{'' if len(sessions) == 1 else 's'}: {', '.join(few)}"


def too_long(name: str) -> str:
    """An objection to a name that PostgreSQL would cut; ""."""
    if len(name.encode()) <= NAME_BYTES_MAX:
        return ""
    return f"the copy would be called {name}, and names have at most {NAME_BYTES_MAX} bytes"


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
    user, is_superuser, may_create, owner, is_owner = _one(
        db,
        "SELECT current_user, rolsuper, rolcreatedb, pg_get_userbyid(datdba), pg_has_role(datdba, 'USAGE') "
        "FROM pg_database, pg_roles WHERE rolname = current_user AND datname = %s",
        name,
    )
    if is_superuser:
        return
    if not may_create:
        yield f"user {user} may not create databases (ALTER ROLE {user} CREATEDB)"
    if not is_owner:
        way_out = f"GRANT {owner} TO {user}, or ALTER DATABASE {name} OWNER TO {user}"
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
    query = """SELECT split_part(item, '=', 1)
        FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase, unnest(setconfig) AS item,
             pg_roles AS me
        WHERE datname = %s AND me.rolname = current_user AND NOT me.rolsuper AND setrole IN (0, me.oid)
          AND split_part(item, '=', 1) IN (SELECT name FROM pg_settings WHERE context LIKE 'superuser%%') ORDER BY 1"""
    for (setting,) in db.execute(query, (name,)).fetchall():
        if db.info.server_version >= 150000:
            row = db.execute("SELECT has_parameter_privilege(%s, 'SET')", (setting,)).fetchone()
            if row == (True,):
                continue
        way_out = f"GRANT SET ON PARAMETER {setting}, or ALTER DATABASE {name} RESET {setting}"
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
