"""The data of embedded systems on a host: folders of servers, database files, and the role of a server in a group."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from proveout.agent.engines.embedded import supervisor
from proveout.agent.engines.embedded.account import UID_FIRST, UID_LAST
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import record
from proveout.core.directories import describe, is_full, is_used_up
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

ROLE_FILE = "superseded.json"


@record
class ServerRole:
    """A standby has the endpoint of its `primary`, a PgBouncer that of its database. A primary has `standbys`; commits
    wait for the `synchronous` ones of them."""

    primary: Endpoint | None = None
    standbys: tuple[str, ...] = ()
    synchronous: tuple[str, ...] = ()

    @property
    def is_grouped(self) -> bool:
        """Whether the server replicates."""
        return self.primary is not None or bool(self.standbys)


ALONE = ServerRole()


@record
class Successor:
    """The promoted standby that has replaced a primary, and the folder of its `system.json`."""

    system: str
    folder: str


def supersede(folder: Path, successor: Successor) -> None:
    """Mark the primary with this folder as replaced; durable enough for a kill of the agents, not for one of the
    machine."""
    partial = folder / f"{ROLE_FILE}.partial"
    partial.write_text(json.dumps(asdict(successor)))
    partial.rename(folder / ROLE_FILE)


def successor_of(folder: Path) -> Successor | None:
    """The standby that has replaced the primary with this folder; None when none has. TaskFault `invalid`."""
    try:
        return Successor(**json.loads((folder / ROLE_FILE).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TaskFault(
            "invalid", f"{folder / ROLE_FILE} cannot be read: {error}", way_out="remove that file"
        ) from None


def clear(folder: Path) -> None:
    """Remove the mark; nothing there is fine."""
    (folder / ROLE_FILE).unlink(missing_ok=True)


# `<data_root>/<system>/` belongs to the agent: `system.json` (0600: where the data is, the password, the user id) and
# `server.log`. The *store* holds `data` and `snapshot`. It is `<data_root>/<system>/store`; when the database's user
# cannot reach that (a run directory under /root), it is a directory of its own in /var/tmp that `system.json` points
# to, and that points back: a store whose `system.json` is gone was abandoned, and is swept away by the next start on
# this host.

ELSEWHERE = Path("/var/tmp")  # noqa: S108 - a private directory is made there
STORE_PREFIX = "proveout-store-"
SESSION_PREFIX = "proveout-pg-"
SWEEP_AGE_S = 60.0
FORMAT = 2
"""1: one password, of a superuser."""
FILE = "system.json"
POINTER = "system"
"""The file of the session's folder that holds the path of the folder with `system.json`."""


@record
class State:
    """The content of `system.json`. `generation` counts restores: it names the socket that replication uses.

    `password` is of the role that SQL of plans runs as, the other two of those that only the agent uses. `origin` names
    the data of the primary that a standby's was copied from.
    """

    store: str
    password: str = dataclasses.field(repr=False)
    administrator: str = dataclasses.field(default="", repr=False)
    replication: str = dataclasses.field(default="", repr=False)
    uid: int | None = None
    generation: int = 0
    origin: str = ""
    format: int = FORMAT


def no_room(what: str, place: Path) -> TaskFault:
    """Return the TaskFault for a step that failed on a full disk, with the use of the file system of `place`."""
    way_out = f"free some space there, by removing files of others; the system's own data is in {place}"
    return TaskFault("disk_full", f"{what}: no space is left ({describe(place)})", way_out=way_out)


def home(data_root: Path, system: str) -> Path:
    """The agent's folder for a system, made when it is not there; TaskFault for a name that is not a plain one."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}", system):
        raise TaskFault("invalid", f"system name {system!r} cannot be used as a folder name")
    folder = data_root / system
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o711, exist_ok=True)
    except OSError as error:
        if is_full(error):
            raise no_room(f"cannot make {folder}", data_root) from None
        raise TaskFault(
            "refused",
            f"cannot make {folder}: {error.strerror}",
            way_out="check its owner, or choose another place: --runs-dir on the coordinator's host,"
            " the agent's state directory on another",
        ) from None
    return folder


def read_state(folder: Path) -> State | None:
    """The state of a system that was started before, None when there is none or its data is gone."""
    try:
        fields = json.loads((folder / FILE).read_text())
        if isinstance(fields, dict) and fields.get("format") != FORMAT:
            what = f"{folder} was made by another version of proveout"
            raise TaskFault(
                "invalid", what, way_out="remove that folder, or finish that run with the version that began it"
            )
        state = State(**fields)
        if not _is_ours(folder, state):
            raise TaskFault("refused", f"{folder / FILE} points to what is not its data", way_out="remove that folder")
    except FileNotFoundError:  # of a removal that was killed, the owner of the store is gone: `sweep` removes the rest
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TaskFault("invalid", f"{folder / FILE} cannot be read: {error}", way_out="remove that folder") from None
    return state if Path(state.store).is_dir() else None


def _is_ours(folder: Path, state: State) -> bool:
    """Whether the state names a store of this folder: the named store is given to a user, and removed in the end."""
    path = Path(state.store)
    if state.uid is not None and not UID_FIRST <= state.uid < UID_LAST:
        return False
    if path == folder / "store":
        return not path.is_symlink()
    if path.parent != ELSEWHERE or not path.name.startswith(STORE_PREFIX) or path.is_symlink():
        return False
    return not path.is_dir() or (path / "owner").read_text() == str(folder / FILE)


def write_state(folder: Path, state: State) -> None:
    """Write `system.json` whole or not at all, readable by its owner only."""
    partial = folder / "system.json.partial"
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dataclasses.asdict(state), file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / FILE)


def make_store(folder: Path, uid: int | None, reachable: Callable[[Path], bool]) -> State:
    """A new store: beside `system.json` when the server's user can reach that, else in /var/tmp."""
    store = folder / "store"
    store.mkdir(exist_ok=True)
    store.chmod(0o711)
    if not reachable(store):
        store.rmdir()
        store = Path(tempfile.mkdtemp(prefix=STORE_PREFIX, dir=ELSEWHERE))
        store.chmod(0o711)
        (store / "owner").write_text(str(folder / FILE))
    password, administrator, replication = (secrets.token_urlsafe(32) for _ in range(3))
    state = State(store=str(store), password=password, administrator=administrator, replication=replication, uid=uid)
    write_state(folder, state)
    return state


def point(session: Path, folder: Path) -> None:
    """Write the path of the system's own folder into the session's folder."""
    path = session / POINTER
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(str(folder.resolve()))


def find(session: Path, what: str, title: str) -> tuple[Path, Path, State]:
    """The session, the system's own folder and the state of a server that this agent's user has started; what others
    have put there is not read. TaskFault `missing` when `what` is none."""
    state, folder = None, Path()
    with contextlib.suppress(OSError):
        if (
            session.name.startswith(SESSION_PREFIX)
            and _is_own(session, stat.S_ISDIR)
            and _is_own(session / POINTER, stat.S_ISREG)
        ):
            folder = Path((session / POINTER).read_text())
            state = read_state(folder) if _is_own(folder / FILE, stat.S_ISREG) else None
    if state is None:
        raise TaskFault(
            "missing",
            f"{what} is not a running embedded {title} of this agent's user",
            way_out="start it in this run, or give the system a dsn",
        )
    return session, folder, state


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Whether the path itself, not a link's target, is of this kind, belongs to the agent's user, and is not writable
    for other users."""
    status = path.lstat()
    return kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def remove(folder: Path) -> None:
    """Delete a system's data and state; its log stays. Nothing there is fine."""
    state = read_state(folder)
    if state is not None:
        shutil.rmtree(state.store, ignore_errors=True)
    (folder / FILE).unlink(missing_ok=True)
    clear(folder)


def sweep(session_bases: tuple[Path, ...], *, locked: Callable[[Path], bool]) -> None:
    """Remove what killed sessions of this user have left: sessions without a supervisor and what their servers have
    left in the system (`supervisor`), and stores that no `system.json` names."""
    for base in {*session_bases, ELSEWHERE}:
        for path in base.glob(f"{SESSION_PREFIX}*"):
            if _ours(path) and (_old(path) or supervisor.is_noted(str(path))) and not locked(path):
                for entry in supervisor.read(str(path)):
                    supervisor.clear(entry)
                shutil.rmtree(path, ignore_errors=True)
    for path in ELSEWHERE.glob(f"{STORE_PREFIX}*"):
        if _ours(path) and _old(path) and not locked(path) and _abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _ours(path: Path) -> bool:
    try:
        owner = path.lstat().st_uid
    except OSError:
        return False
    return owner == os.geteuid() and not path.is_symlink() and path.is_dir()


def _old(path: Path) -> bool:
    """Whether it is not one that another agent has just made and not locked yet."""
    try:
        return time.time() - path.lstat().st_ctime > SWEEP_AGE_S
    except OSError:
        return False


def _abandoned(store: Path) -> bool:
    try:
        owner = Path((store / "owner").read_text())
        fields = json.loads(owner.read_text())
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return bool(fields.get("store") != str(store))


# The engine runs in the processes of the load and has no server. A subclass names the file, checks the settings, makes
# the file (`create`), writes its log back into it (`fold`) and gives its address (`endpoint`). These run in a thread.


class DatabaseFile(ABC):
    """The file of one system (`adapter.ProvisionedSystem`); `fresh` is whether `start` has made it."""

    suffix: str
    side_files: tuple[str, ...]
    """Endings of the files beside it that belong to the file's present state."""

    def __init__(self, system: System, data_root: Path, *, on_death: Callable[[str], None] | None = None) -> None:
        del on_death  # a file has no server
        self.system = system
        self._folder = home(data_root, system.name)
        self.file = self._folder / f"data{self.suffix}"
        self._saved = self._folder / f"snapshot{self.suffix}"
        self.fresh = True
        self.death: str | None = None

    @abstractmethod
    def create(self, file: Path) -> None:
        """Make the database with its settings in a file. TaskFault."""

    @abstractmethod
    def fold(self) -> None:
        """Write the whole log back into the file, which then is the whole database. TaskFault when it is still in
        use."""

    @abstractmethod
    def endpoint(self) -> Endpoint:
        """Return the address."""

    async def start(self) -> Endpoint:
        """Make the file when it is not there; TaskFault `invalid` for a setting that cannot be."""
        return await asyncio.to_thread(self._start)

    async def save_snapshot(self) -> None:
        """Keep the file as it is now."""
        await asyncio.to_thread(self._save)

    async def restore_snapshot(self) -> None:
        """Bring the kept file back; TaskFault `missing` when there is none."""
        await asyncio.to_thread(self._restore)

    async def close(self, *, keep_data: bool) -> None:
        """Without `keep_data`, delete the file and its snapshot."""
        if not keep_data:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    @abstractmethod
    def check_settings(self) -> None:
        """Raise TaskFault `invalid` for a setting that the engine's files cannot have."""

    def _start(self) -> Endpoint:
        self.check_settings()
        partial = self.file.with_suffix(".partial")
        self._remove(partial)
        self.fresh = not self.file.exists()
        if self.fresh:
            self._remove(self.file)  # a log without its file would be taken for one of the new file
            try:
                self.create(partial)
                partial.rename(self.file)
            finally:
                self._remove(partial)
        elif is_used_up(self._folder):
            raise no_room(f"the file of system {self.system.name!r} cannot grow", self._folder)
        return self.endpoint()

    def _remove(self, file: Path) -> None:
        for ending in ("", *self.side_files):
            Path(f"{file}{ending}").unlink(missing_ok=True)

    def _save(self) -> None:
        self.fold()
        _copied(self.file, self._saved).rename(self._saved)

    def _restore(self) -> None:
        if not self._saved.exists():
            raise TaskFault(
                "missing",
                f"system {self.system.name!r} has no saved state to restore",
                way_out="populate it first",
            )
        self.fold()
        partial = _copied(self._saved, self.file)
        for ending in self.side_files:
            Path(f"{self.file}{ending}").unlink(missing_ok=True)
        partial.rename(self.file)


def _copied(source: Path, target: Path) -> Path:
    """A whole copy beside `target`, or none: OSError, and its room is free again."""
    partial = target.with_suffix(".partial")
    try:
        shutil.copyfile(source, partial)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial
