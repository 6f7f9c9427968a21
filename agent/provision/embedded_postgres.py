"""An embedded PostgreSQL server: real PostgreSQL 18 from a wheel, on a private unix socket, that never outlives its session.

Flow: `start` -> guard (see `guard`) -> account, store (see `store`), installation (see `installation`) -> `initdb` once ->
`postgres` -> ready -> `Endpoint`. `EmbeddedPostgres` is the asynchronous face; `Server` does the work and blocks.

Who may connect: the socket's folder is 0700 and belongs to the server's own numeric user (root passes, as root does), and
every connection authenticates by SCRAM with a random 256-bit password; there is no TCP listener at all. The password is
kept in `system.json` (0600) for a resume, and is worth nothing elsewhere, which is why one SCRAM iteration is enough: the
iterations slow the guessing of weak passwords, and would slow every connection of a load by milliseconds.

A server has two sockets: one for clients, whose path stays the same for the session, and one for replication, whose path
changes with every restore. So a subscriber cannot reach a source that went back in time before it is linked anew; else it
would acknowledge positions that the restored source has not written yet, and those changes would never arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from proveout.agent.provision import installation as programs
from proveout.agent.provision import settings, store
from proveout.agent.provision.connection import connect_blocking
from proveout.agent.provision.guarded import Guarded
from proveout.agent.tasks import TaskFault
from proveout.dsl.plan import System
from proveout.proto.messages import Endpoint

USER = "proveout"
DATABASE = "postgres"
READY_S = 120.0
PREDECESSOR_S = 20.0
INITDB_S = 60.0
COPY_S = 600.0
STOP_FAST_S = 60.0
POLL_S = 0.01
LOG_LINES_MAX = 6
LOG_TAIL_BYTES = 1 << 18
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}

_T = TypeVar("_T")


class Server:
    """One embedded server. Methods block; one at a time (a lock sees to it). `on_death(text)` comes from another thread."""

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._system = system
        self._folder = store.home(data_root, system.name)
        self._on_death = on_death
        self._lock = threading.RLock()
        self._guard: Guarded | None = None
        self._session: Path | None = None
        self._state: store.State | None = None
        self._account: programs.Account | None = None
        self._installation: programs.Installation | None = None
        self._died: str | None = None
        self.postmaster_pid: int | None = None
        self.fresh = True

    # ---- what it is ----------------------------------------------------------------------------------------------

    @property
    def death(self) -> str | None:
        """How the server ended by itself, None while it runs or was stopped by us."""
        return self._died

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._folder / "server.log"

    @property
    def guard_pid(self) -> int | None:
        """The guard's process id."""
        return self._guard.pid if self._guard else None

    @property
    def session(self) -> Path:
        """The private temporary folder of this session."""
        assert self._session is not None  # noqa: S101 - set by start
        return self._session

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._store / "data"

    @property
    def _store(self) -> Path:
        assert self._state is not None  # noqa: S101 - set by start
        return Path(self._state.store)

    @property
    def dsn(self) -> str:
        """The libpq conninfo; holds the password."""
        assert self._state is not None  # noqa: S101 - set by start
        return f"host={self.session}/socket port={settings.PORT} user={USER} dbname={DATABASE} password={self._state.password}"

    # ---- start and stop ------------------------------------------------------------------------------------------

    def start(self) -> Endpoint:
        """Start the server, initialising its data when there is none; idempotent while it runs. TaskFault on failure."""
        with self._lock:
            if self.postmaster_pid is None:
                try:
                    self._prepare()
                    self._launch()
                except BaseException:
                    self.close(keep_data=True)
                    raise
            return self._endpoint()

    def stop(self) -> None:
        """Stop the server; its session stays open, so that `start` brings it back at the same address."""
        with self._lock:
            if self._guard is not None and self.postmaster_pid is not None:
                self.postmaster_pid = None
                self._guard.ask("stop", timeout_s=STOP_FAST_S + 30.0, fast_s=STOP_FAST_S)

    def close(self, *, keep_data: bool) -> None:
        """End the session: the server, its guard, its sockets; without `keep_data` its data too. Idempotent, never raises."""
        with self._lock:
            self.postmaster_pid = None
            if self._guard is not None:
                self._guard.end()
                self._guard = None
            if self._session is not None:
                shutil.rmtree(self._session, ignore_errors=True)
                self._session = None
            if not keep_data:
                with contextlib.suppress(TaskFault):
                    store.remove(self._folder)

    def _prepare(self) -> None:
        """Everything up to the launch: guard, lock, account, session folder, installation, initialised data."""
        if self._guard is not None:
            if self._died is None:
                return
            self.close(keep_data=True)
        self._died = None
        found = programs.find_installation()
        self._account = programs.choose_account()
        self._guard = Guarded(self._exited)
        self._await_predecessor()
        previous = store.read_state(self._folder)
        self._take_identity(previous)
        self._open_session()
        self._state = previous or store.make_store(self._folder, self._uid, self._reachable)
        self._installation = found
        if not self._reachable(found.programs / "postgres"):
            self._installation = programs.private_copy(found, self.session / "site")
        self._finish_restore()
        self.fresh = not self.data.is_dir()
        if self.fresh:
            self._initialise()

    @property
    def _guarded(self) -> Guarded:
        assert self._guard is not None  # noqa: S101 - set by _prepare
        return self._guard

    @property
    def _uid(self) -> int | None:
        return self._account.uid if self._account else None

    def _await_predecessor(self) -> None:
        """Wait until the session before (whose agent was killed, say) has let go of the data."""
        deadline = time.monotonic() + PREDECESSOR_S
        while not self._guarded.ask("lock", path=str(self._folder))["locked"]:
            if time.monotonic() > deadline:
                raise TaskFault(
                    "refused",
                    f"system {self._system.name!r} is still in use by another session ({self._folder} is locked)",
                    way_out="end the other run, or wait until its agent has noticed that its coordinator is gone",
                )
            time.sleep(10 * POLL_S)

    def _take_identity(self, previous: store.State | None) -> None:
        if self._account is not None and previous is not None and previous.uid is not None:
            self._account = dataclasses.replace(self._account, uid=previous.uid, gid=previous.uid)
        uid = self._uid
        self._guarded.ask("identity", uid=uid, gid=uid)

    def _reachable(self, path: Path) -> bool:
        return bool(self._guarded.ask("reach", path=str(path))["reachable"])

    def _open_session(self) -> None:
        base = programs.reachable_base(self._reachable)
        store.sweep((base,), locked=is_locked)
        self._session = Path(tempfile.mkdtemp(prefix=store.SESSION_PREFIX, dir=base))
        self._guarded.ask("own", path=str(self._session))
        self._session.chmod(0o711)

    def _initialise(self) -> None:
        """`initdb` into `data.new`, which becomes `data` when it is whole."""
        assert self._installation is not None and self._state is not None  # noqa: S101 - set by _prepare
        partial = self._store / "data.new"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        password = self.session / "password"
        password.touch(mode=0o600)
        password.write_text(self._state.password)
        identity: str | tuple[int, int] = "server"
        if self._account is not None:
            identity = self._account.initialise
            os.chown(partial, *identity)
            os.chown(password, *identity)
        argv = [str(self._installation.programs / "initdb"), "-D", str(partial), "-U", USER, "--pwfile", str(password)]
        argv += [
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
            "-c",
            "scram_iterations=1",
        ]
        self._guarded.run(argv, ENVIRONMENT, limit_s=INITDB_S, identity=identity)
        password.unlink()
        if self._account is not None:
            _give(partial, self._account.uid)
        partial.rename(self.data)

    def _configure(self) -> None:
        """Write the configuration into the session's folder: the data directory belongs to the server's user, who may have
        put a symbolic link wherever a privileged agent would write."""
        assert self._state is not None  # noqa: S101 - set by _prepare
        sockets = [self.session / "socket", self.session / f"socket-{self._state.generation}"]
        for folder in sockets:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._hand_over(folder)
        files = {
            "postgresql.conf": settings.configuration(self._system.settings, [str(folder) for folder in sockets]),
            "pg_hba.conf": "local all all scram-sha-256\nlocal replication all scram-sha-256\n",
            "pg_ident.conf": "",
        }
        for name, text in files.items():
            path = self.session / name
            path.write_text(text)
            path.chmod(0o644)

    def _hand_over(self, folder: Path) -> None:
        """Give a folder in a folder of ours to the server's user."""
        if self._account is not None:
            os.chown(folder, self._account.uid, self._account.gid)

    def _launch(self) -> None:
        assert self._installation is not None  # noqa: S101 - set by _prepare
        self._configure()
        offset = self.log.stat().st_size if self.log.exists() else 0
        # Before the request: the report of a server that fails at once may overtake the answer.
        self._died = None
        answer = self._guarded.ask(
            "start",
            argv=[str(self._installation.programs / "postgres"), "-D", str(self.data), *self._configuration_files()],
            environment=ENVIRONMENT,
            directory=str(self.data),
            log=str(self.log),
        )
        self._await_ready(answer["pid"], offset)
        self.postmaster_pid = answer["pid"]
        if self.death is not None:
            self.postmaster_pid = None
            raise self._failed_start(offset)

    def _configuration_files(self) -> list[str]:
        files = {"config_file": "postgresql.conf", "hba_file": "pg_hba.conf", "ident_file": "pg_ident.conf"}
        return [word for name, file in files.items() for word in ("-c", f"{name}={self.session / file}")]

    def _await_ready(self, pid: int, offset: int) -> None:
        """Poll postmaster.pid (first line its id, eighth its state) until it says ready; TaskFault quoting the log if not."""
        deadline = time.monotonic() + READY_S
        while self._died is None:
            lines = _lines(self.data / "postmaster.pid")
            if len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready":
                return
            if time.monotonic() > deadline:
                raise TaskFault(
                    "timeout", f"system {self._system.name!r} was not ready after {READY_S:.0f} s{self._quoted(offset)}"
                )
            time.sleep(POLL_S)
        raise self._failed_start(offset)

    def _failed_start(self, offset: int) -> TaskFault:
        text = self._quoted(offset)
        wrong_setting = "configuration file" in text or "parameter" in text
        return TaskFault(
            "invalid" if wrong_setting else "disk_full" if "No space left" in text else "fault",
            f"PostgreSQL of system {self._system.name!r} did not start{text}",
            way_out="correct the system's settings in the plan" if wrong_setting else f"see {self.log}",
        )

    def _quoted(self, offset: int) -> str:
        """The server's own complaints since `offset` of its log, as `: "…"`; nothing when it has none."""
        with self.log.open("rb") as file:
            file.seek(offset)
            lines = file.read(1 << 20).decode(errors="replace").splitlines()
        said = [line.partition("postmaster ")[2] or line for line in lines]
        complaints = [
            line
            for line in said
            if line.startswith(("FATAL", "PANIC", "HINT", "ERROR")) or "configuration file" in line
        ]
        complaints += [line for line in said if "parameter" in line and line not in complaints]
        shown = "; ".join((complaints or said)[:LOG_LINES_MAX])
        return f": {shown}" if shown else ""

    def last_error(self, backend: str) -> str:
        """The last ERROR of a kind of backend in the log's tail, with the lines that belong to it; empty if there is none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        said = [line.partition(f"] {backend}")[2].partition(" ")[2] for line in lines]
        starts = [index for index, text in enumerate(said) if "ERROR:" in text]
        if not starts:
            return ""
        block = [
            text
            for text in said[starts[-1] : starts[-1] + 4]
            if any(part in text for part in ("ERROR:", "DETAIL:", "CONTEXT:"))
        ]
        return "; ".join(" ".join(re.sub(r"^.*?(ERROR|DETAIL|CONTEXT):", "", text).split()) for text in block)

    def _exited(self, how: str) -> None:
        """The guard's report, in its reader's thread."""
        was_ready = self.postmaster_pid is not None
        self._died = how
        if was_ready:
            self.postmaster_pid = None
            if self._on_death is not None and self._lock.acquire(blocking=False):
                self._lock.release()
                self._on_death(f"PostgreSQL of system {self._system.name!r} is gone: {how}; its log is {self.log}")

    def _endpoint(self) -> Endpoint:
        endpoint = Endpoint(system=self._system.name, engine="postgres", dsn=self.dsn, provisioned=True)
        with connect_blocking(endpoint, "start") as connection:
            version = connection.info.parameter_status("server_version")
        return dataclasses.replace(endpoint, version=version or "")

    # ---- snapshots -----------------------------------------------------------------------------------------------

    def save_snapshot(self) -> None:
        """Keep the data as it is now: a clean stop, a copy (shared blocks where the file system can), a start."""
        with self._lock:
            self.stop()
            try:
                self._copy(self.data, self._store / "snapshot.partial")
                shutil.rmtree(self._store / "snapshot", ignore_errors=True)
                (self._store / "snapshot.partial").rename(self._store / "snapshot")
            finally:
                self._launch()

    def restore_snapshot(self) -> None:
        """Bring back the data of the last snapshot; TaskFault `missing` when there is none."""
        with self._lock:
            if not (self._store / "snapshot").is_dir():
                raise TaskFault(
                    "missing",
                    f"system {self._system.name!r} has no saved state to restore",
                    way_out="populate it first",
                )
            self.stop()
            try:
                self._copy(self._store / "snapshot", self._store / "data.partial")
                (self._store / "data.partial").rename(self._store / "data.restored")
                self._finish_restore()
            finally:
                self._launch()

    def _finish_restore(self) -> None:
        """Swap a completely copied `data.restored` in, also when a kill has interrupted that; a new replication socket."""
        restored = self._store / "data.restored"
        if not restored.is_dir():
            return
        assert self._state is not None  # noqa: S101 - set by _prepare
        self._state = dataclasses.replace(self._state, generation=self._state.generation + 1)
        store.write_state(self._folder, self._state)
        shutil.rmtree(self._store / "data.old", ignore_errors=True)
        if self.data.is_dir():
            self.data.rename(self._store / "data.old")
        restored.rename(self.data)
        shutil.rmtree(self._store / "data.old", ignore_errors=True)

    def _copy(self, source: Path, target: Path) -> None:
        """Copy a data directory, as the server's user, and have it written out: not during the next iteration."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o700)
        self._hand_over(target)
        copier, syncer = shutil.which("cp"), shutil.which("sync")
        if copier is None or syncer is None:
            raise TaskFault("missing", "the programs cp and sync are not on this host", way_out="install coreutils")
        for argv in ([copier, "-a", "--reflink=auto", f"{source}/.", str(target)], [syncer, "-f", str(target)]):
            self._guarded.run(argv, ENVIRONMENT, limit_s=COPY_S, identity="server")


class EmbeddedPostgres:
    """A `Server` for asyncio: each step runs in a thread, and is waited for even when its task is cancelled."""

    def __init__(self, system: System, data_root: Path, *, on_death: Callable[[str], None] | None = None) -> None:
        self._server = Server(system, data_root, on_death)

    @property
    def death(self) -> str | None:
        """How the server ended by itself, None while it runs or was stopped by us."""
        return self._server.death

    @property
    def fresh(self) -> bool:
        """Whether `start` has initialised new data."""
        return self._server.fresh

    def replication_complaint(self) -> str:
        """The last error of a replication worker in the server's log, with its detail and context; empty if there is none."""
        return self._server.last_error("logical replication")

    async def start(self) -> Endpoint:
        """Start it; see `Server.start`. A cancelled start is undone."""
        try:
            return await _to_its_end(self._server.start)
        except asyncio.CancelledError:
            await self.close(keep_data=True)
            raise

    async def stop(self) -> None:
        """Stop it; `start` brings it back at the same address."""
        await _to_its_end(self._server.stop)

    async def save_snapshot(self) -> None:
        """See `Server.save_snapshot`."""
        await _to_its_end(self._server.save_snapshot)

    async def restore_snapshot(self) -> None:
        """See `Server.restore_snapshot`."""
        await _to_its_end(self._server.restore_snapshot)

    async def close(self, *, keep_data: bool) -> None:
        """See `Server.close`."""
        await _to_its_end(lambda: self._server.close(keep_data=keep_data))


async def _to_its_end(step: Callable[[], _T]) -> _T:
    """Run a blocking step in a thread; when cancelled, wait for its end first: it cannot be left half done."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def is_locked(path: Path) -> bool:
    """Whether a living guard holds the directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _give(root: Path, uid: int) -> None:
    """Change the owner of a whole tree, by file descriptors: its present owner cannot lead us elsewhere."""
    for _, folders, files, descriptor in os.fwalk(root):
        for name in (*folders, *files):
            os.chown(name, uid, uid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(root, uid, uid)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
