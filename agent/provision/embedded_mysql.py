"""An embedded MySQL system: the host's own MariaDB server on a private unix socket, that never outlives its session.

Flow: `start` -> `grounds` (guard, account, folder) -> `store` (its data, from an earlier session or new) -> `my.cnf` ->
`mariadbd` -> it answers -> `Endpoint`. `EmbeddedMysql` is the asynchronous face; `Server` does the work and blocks. Nothing of
the host's own configuration, data or service is touched: the server is given a defaults file, a data directory and a socket of
the session's, no TCP listener, and it runs as a numeric user that nobody else is.

Who may connect: the socket's folder is 0700 and belongs to that user (root passes, as root does), and the one account there is has
a random password, set anew at every start by the server's init file; `root` is locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

from proveout.agent.provision import server_log, store
from proveout.agent.provision.grounds import ENVIRONMENT, USER, Grounds, to_its_end
from proveout.agent.tasks import TaskFault
from proveout.dsl.mysql_settings import objection
from proveout.dsl.plan import System
from proveout.proto.tasks import Endpoint

DATABASE = "proveout"
INITIALISE_S = 60.0
READY_S = 120.0
STOP_S = 60.0
POLL_S = 0.02
GREETING = 10
FOLDERS = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin")

DEFAULTS: tuple[tuple[str, str], ...] = (
    ("innodb_buffer_pool_size", "256M"),
    ("innodb_log_file_size", "256M"),
    ("max_connections", "300"),
    ("character_set_server", "utf8mb4"),
    ("skip_name_resolve", "on"),
    ("local_infile", "on"),
    ("log_warnings", "1"),
    ("default_time_zone", "+00:00"),
)
"""Those of a small, durable server: `innodb_flush_log_at_trx_commit` and the doublewrite buffer stay as shipped, on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """The server and the program that makes an empty data directory."""

    server: Path
    initialise: Path


def find_programs() -> Programs:
    """MariaDB's programs on this host; TaskFault `missing` when they are not there."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *FOLDERS))
    server, initialise = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
    if server is None or initialise is None:
        raise TaskFault(
            "missing",
            "there is no MariaDB server on this host: mariadbd or mariadb-install-db was not found",
            way_out="install it (Debian: apt-get install mariadb-server), or give the system a dsn",
        )
    return Programs(server=Path(server).resolve(), initialise=Path(initialise).resolve())


def configuration(settings: Iterable[tuple[str, str]], folder: Path, data: Path) -> str:
    """The text of the defaults file: ours, then the plan's settings, then what is not negotiable. TaskFault."""
    lines = ["[mysqld]"]
    for name, value in (*DEFAULTS, *_checked(settings)):
        lines.append(f"{name} = {value}")
    fixed = {
        "datadir": str(data),
        "socket": f"{folder}/socket/mysqld.sock",
        "pid_file": f"{folder}/socket/mysqld.pid",
        "tmpdir": f"{folder}/socket",
        "init_file": f"{folder}/init.sql",
        "secure_file_priv": f"{folder}/socket",
        "skip_networking": "on",
        "lc_messages": "en_US",
    }
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in fixed.items())]) + "\n"


def _checked(settings: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for name, value in settings:
        if (why := objection(name)) is not None:
            raise TaskFault("refused", f"setting {name!r}: {why}", way_out="remove it from the plan")
        if not name.replace("_", "").isalnum() or any(ord(character) < 32 for character in value):
            raise TaskFault("invalid", f"setting {name!r} cannot be written to a MySQL defaults file")
        yield name, value


class Server:
    """One embedded server. Methods block; one at a time (a lock sees to it). `on_death(text)` comes from another thread."""

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._system = system
        self._programs = find_programs()
        self._folder = store.home(data_root, system.name)
        self._on_death = on_death
        self._lock = threading.RLock()
        self._grounds: Grounds | None = None
        self._state: store.State | None = None
        self._password = secrets.token_urlsafe(32)
        self.pid: int | None = None
        self._died: str | None = None
        self.fresh = True

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
        return self._grounds.guard.pid if self._grounds else None

    @property
    def data(self) -> Path:
        """The data directory."""
        assert self._state is not None  # noqa: S101 - set by start
        return Path(self._state.store) / "data"

    @property
    def dsn(self) -> str:
        """The dsn; holds the password."""
        path = quote(f"{self._at.session}/socket/mysqld.sock")
        return f"mysql://{USER}:{self._password}@localhost/{DATABASE}?unix_socket={path}"

    @property
    def _at(self) -> Grounds:
        assert self._grounds is not None  # noqa: S101 - set by start
        return self._grounds

    # ---- start and stop ------------------------------------------------------------------------------------------

    def start(self) -> Endpoint:
        """Start the server, making its data when there is none; idempotent while it runs. TaskFault on failure."""
        with self._lock:
            if self.pid is None:
                try:
                    self._prepare()
                    self._launch()
                except BaseException:
                    self.close(keep_data=True)
                    raise
            return Endpoint(
                system=self._system.name, engine="mysql", dsn=self.dsn, version=self._version(), provisioned=True
            )

    def stop(self) -> None:
        """Stop the server; its session stays open, so that `start` brings it back at the same address."""
        with self._lock:
            if self._grounds is not None and self.pid is not None:
                self.pid = None
                self._grounds.guard.ask("stop", timeout_s=STOP_S + 30.0, fast_s=STOP_S)

    def close(self, *, keep_data: bool) -> None:
        """End the session: the server, its guard, its socket; without `keep_data` its data too. Idempotent, never raises."""
        with self._lock:
            self.pid = None
            if self._grounds is not None:
                self._grounds.leave()
                self._grounds = None
            if not keep_data:
                with contextlib.suppress(TaskFault):
                    store.remove(self._folder)

    def _prepare(self) -> None:
        if self._grounds is not None:
            if self.death is None:
                return
            self.close(keep_data=True)
        self._died = None
        self._grounds = Grounds(self._folder, self._exited)
        previous = self._grounds.enter()
        self._state = previous or store.make_store(self._folder, self._grounds.uid, self._grounds.reachable)
        self._finish_restore()
        self.fresh = not self.data.is_dir()
        if self.fresh:
            self._initialise()

    def _initialise(self) -> None:
        """An empty data directory, as the server's user, beside the place that it takes when it is whole."""
        # A MariaDB that starts removes all temporary tables in its tmpdir: in /tmp those of another server, which then fails
        partial, scratch = self.data.with_name("data.new"), self.data.with_name("data.tmp")
        for folder in (partial, scratch):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            self._at.hand_over(folder)
        argv = [str(self._programs.initialise), "--no-defaults", f"--datadir={partial}", f"--tmpdir={scratch}"]
        argv.append("--cross-bootstrap")
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self._at.guard.run([*argv, *options], ENVIRONMENT, limit_s=INITIALISE_S, identity="server")
        shutil.rmtree(scratch, ignore_errors=True)
        partial.rename(self.data)

    def _configure(self) -> Path:
        """Write the configuration into the session's folder, which is the agent's: the server's user cannot change it."""
        session = self._at.session
        (session / "socket").mkdir(mode=0o700, exist_ok=True)
        self._at.hand_over_socket(session / "socket")
        accounts = session / "init.sql"
        accounts.unlink(missing_ok=True)
        accounts.touch(mode=0o600)
        accounts.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE OR REPLACE USER {USER}@localhost IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL ON *.* TO {USER}@localhost;\n"
            "ALTER USER root@localhost ACCOUNT LOCK;\n"
        )
        self._at.hand_over(accounts)
        file = session / "my.cnf"
        file.write_text(configuration(self._system.settings, session, self.data))
        file.chmod(0o644)
        return file

    def _launch(self) -> None:
        offset = server_log.size(self.log)
        self._died = None
        answer = self._at.guard.ask(
            "start",
            argv=[str(self._programs.server), f"--defaults-file={self._configure()}"],
            environment=ENVIRONMENT,
            directory=str(self.data),
            log=str(self.log),
            fast_signal=int(signal.SIGTERM),
        )
        self._await_ready(offset)
        self.pid = answer["pid"]
        if self.death is not None:
            self.pid = None
            raise self._failed_start(offset)

    def _await_ready(self, offset: int) -> None:
        """Until it greets, before which the init file has made our account; TaskFault quoting the log if it does not.

        No more is heard of it here than the first bytes: what it says is listened to without privileges (`agent.aide`).
        """
        deadline = time.monotonic() + READY_S
        while self.death is None:
            if self._greets():
                return
            if time.monotonic() > deadline:
                said = self._complaints(offset)
                text = f"system {self._system.name!r} was not ready after {READY_S:.0f} s: {said}"
                raise TaskFault("timeout", text)
            time.sleep(POLL_S)
        raise self._failed_start(offset)

    def _greets(self) -> bool:
        """Whether the server's handshake comes: four bytes of length and number, then its version. Source: protocol 10 of MySQL."""
        with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
            asking.settimeout(READY_S)
            asking.connect(f"{self._at.session}/socket/mysqld.sock")
            return asking.recv(5, socket.MSG_WAITALL)[4:] == bytes([GREETING])
        return False

    def _complaints(self, offset: int) -> str:
        """What the server's log says of errors since `offset`."""
        lines = server_log.lines(self.log, offset)
        said = [line.partition("[ERROR]")[2].strip() for line in lines if "[ERROR]" in line]
        return "; ".join(line for line in (said or lines)[: server_log.LINES_MAX] if line)

    def _failed_start(self, offset: int) -> TaskFault:
        said = self._complaints(offset)
        wrong_setting = "unknown variable" in said or "unknown option" in said or "while setting value" in said
        return TaskFault(
            "invalid" if wrong_setting else "disk_full" if "No space left" in said else "fault",
            f"MariaDB of system {self._system.name!r} did not start: {said}",
            way_out="correct the system's settings in the plan" if wrong_setting else f"see {self.log}",
        )

    def _exited(self, how: str) -> None:
        """The guard's report, in its reader's thread."""
        was_ready = self.pid is not None
        self._died = how
        if was_ready:
            self.pid = None
            if self._on_death is not None and self._lock.acquire(blocking=False):
                self._lock.release()
                self._on_death(f"MariaDB of system {self._system.name!r} is gone: {how}; its log is {self.log}")

    def _version(self) -> str:
        """What the program calls itself: `mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for …`; "" when it does not say."""
        argv = [str(self._programs.server), "--no-defaults", "--version"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=READY_S, check=False, env=ENVIRONMENT)
        return done.stdout.partition(" Ver ")[2].partition(" ")[0]

    # ---- snapshots -----------------------------------------------------------------------------------------------

    def save_snapshot(self) -> None:
        """Keep the data as it is now: a clean stop, a copy (shared blocks where the file system can), a start."""
        with self._lock:
            self._need_life()
            self.stop()
            try:
                self._at.copy(self.data, self.data.with_name("snapshot.partial"))
                self.data.with_name("snapshot.partial").rename(self.data.with_name("snapshot.saved"))
                self._finish_save()
            finally:
                self._launch()

    def restore_snapshot(self) -> None:
        """Bring back the data of the last snapshot; TaskFault `missing` when there is none."""
        with self._lock:
            self._need_life()
            self._finish_save()
            snapshot = self.data.with_name("snapshot")
            if not snapshot.is_dir():
                what = f"system {self._system.name!r} has no saved state to restore"
                raise TaskFault("missing", what, way_out="populate it first")
            self.stop()
            try:
                self._at.copy(snapshot, self.data.with_name("data.partial"))
                self.data.with_name("data.partial").rename(self.data.with_name("data.restored"))
                self._finish_restore()
            finally:
                self._launch()

    def _need_life(self) -> None:
        if self.death is not None:
            what = f"MariaDB of system {self._system.name!r} is gone: {self.death}"
            raise TaskFault("unreachable", what, way_out="start it")

    def _finish_save(self) -> None:
        """Put a completely copied `snapshot.saved` in the snapshot's place, also when a kill has interrupted that."""
        saved = self.data.with_name("snapshot.saved")
        if saved.is_dir():
            shutil.rmtree(self.data.with_name("snapshot"), ignore_errors=True)
            saved.rename(self.data.with_name("snapshot"))

    def _finish_restore(self) -> None:
        """Swap a completely copied `data.restored` in, also when a kill has interrupted that."""
        restored, old = self.data.with_name("data.restored"), self.data.with_name("data.old")
        if restored.is_dir():
            shutil.rmtree(old, ignore_errors=True)
            if self.data.is_dir():
                self.data.rename(old)
            restored.rename(self.data)
        shutil.rmtree(old, ignore_errors=True)


class EmbeddedMysql:
    """A `Server` for asyncio: each step runs in a thread, and is waited for even when its task is cancelled."""

    def __init__(self, system: System, data_root: Path, *, on_death: Callable[[str], None] | None = None) -> None:
        self._server = Server(system, data_root, on_death)

    @property
    def death(self) -> str | None:
        """How the server ended by itself, None while it runs or was stopped by us."""
        return self._server.death

    @property
    def fresh(self) -> bool:
        """Whether `start` has made new data."""
        return self._server.fresh

    async def start(self) -> Endpoint:
        """Start it; see `Server.start`. A cancelled start is undone."""
        try:
            return await to_its_end(self._server.start)
        except asyncio.CancelledError:
            await self.close(keep_data=True)
            raise

    async def save_snapshot(self) -> None:
        """See `Server.save_snapshot`."""
        await to_its_end(self._server.save_snapshot)

    async def restore_snapshot(self) -> None:
        """See `Server.restore_snapshot`."""
        await to_its_end(self._server.restore_snapshot)

    async def close(self, *, keep_data: bool) -> None:
        """See `Server.close`."""
        await to_its_end(lambda: self._server.close(keep_data=keep_data))
