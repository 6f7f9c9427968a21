"""A user's SQLite file, which a dsn names: problems that keep a run from using it, a copy of it, and its restore.

The file keeps its inode, owner, permissions and settings: a restore writes the pages of the copy into it in one
transaction of SQLite's own (sqlite3_backup), so that other connections see the content of before or of after, and a
killed restore is undone by SQLite. A copy is one consistent state of the database, the rows of its log included.

Source: https://www.sqlite.org/backup.html, https://www.sqlite.org/lockingv3.html, https://www.sqlite.org/wal.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from proveout.agent.engines.adapter import FileProblem
from proveout.agent.engines.embedded.data_store import no_room
from proveout.agent.engines.sqlite.authorizer import open_database
from proveout.agent.engines.sqlite.sql import BUSY_MS, open_file
from proveout.agent.errors import TaskFault
from proveout.core.disk_space import is_used_up

LOOK_BUSY_MS = 1_000
IN_USE = "end the program that has it locked, or wait for it"


def problems(path: Path, *, changes: bool) -> Iterator[FileProblem]:
    """The problems that keep a run from using the file, or slow it; the first that keeps it ends the list."""
    try:
        with closing(open_database(str(path))) as connection:
            connection.set_busy_timeout(LOOK_BUSY_MS)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            mode = str(connection.pragma("journal_mode"))
            if changes:
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.Error as error:
        yield _problem(path, error)
        return
    if changes and mode != "wal":
        yield FileProblem(
            code="unreachable",
            message=f"{path} has journal_mode {mode}, which stays: a transaction that writes locks all others out",
            way_out="expect waits above one thread; its owner can change it for good: PRAGMA journal_mode = wal",
            warns=True,
        )


def copy_file(path: Path, copy: Path) -> None:
    """Copy the database to `copy`, whole or not at all. TaskFault."""
    if is_used_up(copy.parent, path.stat().st_size):
        raise no_room(f"the copy of {path} for resets does not fit", copy.parent)
    partial = copy.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with closing(open_file(str(path))) as source, closing(open_file(str(partial), make=True)) as target:
        _write_pages(source, target, f"copy {path}", partial)
    partial.rename(copy)


def restore_file(path: Path, copy: Path) -> None:
    """Put the content of `copy` into the file. TaskFault; the file is unchanged then."""
    with closing(open_file(str(copy))) as source, closing(open_file(str(path))) as target:
        _write_pages(source, target, f"restore {path}", path)
        target.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)  # the log need not keep the whole database


def _write_pages(source: apsw.Connection, target: apsw.Connection, doing: str, written: Path) -> None:
    """Copy all pages in one step, which is one transaction of the target."""
    for connection in (source, target):
        connection.set_busy_timeout(BUSY_MS)
    try:
        with target.backup("main", source, "main") as pages:
            pages.step(-1)
            if not pages.done:
                raise apsw.BusyError("the step has copied a part of the pages")
    except (apsw.BusyError, apsw.LockedError):
        what = f"cannot {doing}: another program has the database locked for more than {BUSY_MS // 1000} s"
        raise TaskFault("refused", what, way_out=IN_USE) from None
    except apsw.Error as error:
        if isinstance(error, apsw.FullError) or is_used_up(written.parent):
            raise no_room(f"cannot {doing}: {error}", written.parent) from None
        raise TaskFault("refused", f"cannot {doing}: {error}", way_out="may this user write the file?") from None


def _problem(path: Path, error: apsw.Error) -> FileProblem:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return FileProblem(code="unreachable", message=f"{path} is locked by another program", way_out=IN_USE)
        case apsw.NotADBError():
            way_out = "name an SQLite file that is not encrypted"
            return FileProblem(code="unreachable", message=f"{path} is not an SQLite database", way_out=way_out)
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            way_out = f"let the user of the run write {path.name} and its folder {path.parent}"
            return FileProblem(code="rights", message=f"{path}: {error}", way_out=way_out)
        case _:
            return FileProblem(
                code="unreachable", message=f"{path}: {error}", way_out="check the file: PRAGMA integrity_check"
            )
