"""An embedded PostgreSQL server: real PostgreSQL 18 from a wheel, on a private unix socket, that never outlives its session.

Flow: `start` -> `premises` (guard, account, folders, programs) -> `store` (its data, from an earlier session or new) ->
configuration (see `settings`) -> `postgres` -> ready -> `Endpoint`. `EmbeddedPostgres` is the asynchronous face; `Server` does the work and blocks.

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
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from proveout.agent.provision import server_log, settings, store
from proveout.agent.provision.premises import ENVIRONMENT, PREDECESSOR_S, USER, Premises, to_its_end
from proveout.agent.tasks import TaskFault
from proveout.dsl.plan import System
from proveout.proto.tasks import Endpoint

DATABASE = "postgres"
READY_S = 120.0
STOP_FAST_S = 60.0
POLL_S = 0.01


class Server:
    """One embedded server. Methods block; one at a time (a lock sees to it). `on_death(text)` comes from another thread."""

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._system = system
        self._folder = store.home(data_root, system.name)
        self._on_death = on_death
        self._lock = threading.RLock()
        self._premises: Premises | None = None
        self._state: store.State | None = None
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
        return self._premises.guard.pid if self._premises else None

    @property
    def session(self) -> Path:
        """The private temporary folder of this session."""
        return self._at.session

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

    @property
    def _at(self) -> Premises:
        assert self._premises is not None  # noqa: S101 - set by start
        return self._premises

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
            if self._premises is not None and self.postmaster_pid is not None:
                self.postmaster_pid = None
                self._premises.guard.ask("stop", timeout_s=STOP_FAST_S + 30.0, fast_s=STOP_FAST_S)

    def close(self, *, keep_data: bool) -> None:
        """End the session: the server, its guard, its sockets; without `keep_data` its data too. Idempotent, never raises."""
        with self._lock:
            self.postmaster_pid = None
            if self._premises is not None:
                self._premises.leave()
                self._premises = None
            if not keep_data:
                with contextlib.suppress(TaskFault):
                    store.remove(self._folder)

    def _prepare(self) -> None:
        """Everything up to the launch: premises, state, initialised data."""
        if self._premises is not None:
            if self._died is None:
                return
            self.close(keep_data=True)
        self._died = None
        self._premises = Premises(self._folder, self._exited)
        previous = self._premises.enter()
        self._state = previous or store.make_store(self._folder, self._premises.uid, self._premises.reachable)
        self._await_postmaster()
        self._finish_restore()
        self.fresh = not self.data.is_dir()
        if self.fresh:
            self._at.initialise(self.data, self._state.password)

    def _await_postmaster(self) -> None:
        """Wait for a postmaster whose guard was killed: it is on its way out, but has the data still."""
        deadline = time.monotonic() + PREDECESSOR_S
        while (lines := _lines(self.data / "postmaster.pid")) and _works_in(lines[0], self.data):
            if time.monotonic() > deadline:
                raise TaskFault("refused", f"another PostgreSQL (process {lines[0]}) runs on {self.data}")
            time.sleep(POLL_S)

    def _configure(self) -> None:
        """Write the configuration into the session's folder: the data directory belongs to the server's user, who may have
        put a symbolic link wherever a privileged agent would write."""
        assert self._state is not None  # noqa: S101 - set by _prepare
        sockets = [self.session / "socket", self.session / f"socket-{self._state.generation}"]
        for folder in sockets:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._at.hand_over_socket(folder)
        files = {
            "postgresql.conf": settings.configuration(self._system.settings, [str(folder) for folder in sockets]),
            "pg_hba.conf": "local all all scram-sha-256\nlocal replication all scram-sha-256\n",
            "pg_ident.conf": "",
        }
        for name, text in files.items():
            path = self.session / name
            path.write_text(text)
            path.chmod(0o644)

    def _launch(self) -> None:
        self._configure()
        offset = server_log.size(self.log)
        # Before the request: the report of a server that fails at once may overtake the answer.
        self._died = None
        try:
            answer = self._at.guard.ask(
                "start",
                argv=[
                    str(self._at.installation.programs / "postgres"),
                    "-D",
                    str(self.data),
                    *self._configuration_files(),
                ],
                environment=ENVIRONMENT,
                directory=str(self.data),
                log=str(self.log),
            )
        except TaskFault as fault:
            self._died = fault.what
            raise
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

    def _quoted(self, offset: int) -> str:
        said = server_log.complaints(self.log, offset)
        return f": {said}" if said else ""

    def _failed_start(self, offset: int) -> TaskFault:
        text = self._quoted(offset)
        wrong_setting = "configuration file" in text or "parameter" in text
        return TaskFault(
            "invalid" if wrong_setting else "disk_full" if "No space left" in text else "fault",
            f"PostgreSQL of system {self._system.name!r} did not start{text}",
            way_out="correct the system's settings in the plan" if wrong_setting else f"see {self.log}",
        )

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
        dsn, version = self.dsn, self._version()
        return Endpoint(system=self._system.name, engine="postgres", dsn=dsn, provisioned=True, version=version)

    def _version(self) -> str:
        """What the program calls itself, `postgres (PostgreSQL) 18.4`: the server is listened to without privileges (`agent.aide`)."""
        argv = [str(self._at.installation.programs / "postgres"), "--version"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=READY_S, check=False, env=ENVIRONMENT)
        return done.stdout.partition(")")[2].strip()

    # ---- snapshots -----------------------------------------------------------------------------------------------

    def save_snapshot(self) -> None:
        """Keep the data as it is now: a clean stop, a copy (shared blocks where the file system can), a start."""
        with self._lock:
            self._need_life()
            self.stop()
            try:
                self._at.copy(self.data, self._store / "snapshot.partial")
                (self._store / "snapshot.partial").rename(self._store / "snapshot.saved")
                self._finish_save()
            finally:
                self._launch()

    def restore_snapshot(self) -> None:
        """Bring back the data of the last snapshot; TaskFault `missing` when there is none."""
        with self._lock:
            self._need_life()
            self._finish_save()
            if not (self._store / "snapshot").is_dir():
                raise TaskFault(
                    "missing",
                    f"system {self._system.name!r} has no saved state to restore",
                    way_out="populate it first",
                )
            self.stop()
            try:
                self._at.copy(self._store / "snapshot", self._store / "data.partial")
                (self._store / "data.partial").rename(self._store / "data.restored")
                self._finish_restore()
            finally:
                self._launch()

    def _need_life(self) -> None:
        if self._died is not None:
            raise TaskFault(
                "unreachable", f"PostgreSQL of system {self._system.name!r} is gone: {self._died}", way_out="start it"
            )

    def _finish_save(self) -> None:
        """Put a completely copied `snapshot.saved` in the snapshot's place, also when a kill has interrupted that."""
        saved = self._store / "snapshot.saved"
        if saved.is_dir():
            shutil.rmtree(self._store / "snapshot", ignore_errors=True)
            saved.rename(self._store / "snapshot")

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
        return server_log.last_error(self._server.log, "logical replication")

    async def start(self) -> Endpoint:
        """Start it; see `Server.start`. A cancelled start is undone."""
        try:
            return await to_its_end(self._server.start)
        except asyncio.CancelledError:
            await self.close(keep_data=True)
            raise

    async def stop(self) -> None:
        """Stop it; `start` brings it back at the same address."""
        await to_its_end(self._server.stop)

    async def save_snapshot(self) -> None:
        """See `Server.save_snapshot`."""
        await to_its_end(self._server.save_snapshot)

    async def restore_snapshot(self) -> None:
        """See `Server.restore_snapshot`."""
        await to_its_end(self._server.restore_snapshot)

    async def close(self, *, keep_data: bool) -> None:
        """See `Server.close`."""
        await to_its_end(lambda: self._server.close(keep_data=keep_data))


def _works_in(pid: str, folder: Path) -> bool:
    """Whether the process lives and has the folder as its working directory, as a postmaster has its data."""
    try:
        return Path("/proc", pid, "cwd").samefile(folder)
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
