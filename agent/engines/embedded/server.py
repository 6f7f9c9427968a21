"""What an embedded server is, whatever its engine: real programs on a private unix socket, that never outlive their session.

Flow: `start` -> grounds (supervisor, account, folder) -> `data_store` (its data, from an earlier session or new) -> the engine's configuration
-> its program -> ready -> `Endpoint`. `EmbeddedServer` does the work and blocks; `Embedded` is its asynchronous face. What differs between
engines are its abstract members.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import ENVIRONMENT, Workspace, to_its_end
from proveout.core.disk_space import is_used_up
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

READY_S = 120.0
STOP_S = 60.0
POLL_S = 0.01
LOG_LINES_MAX = 6
LOG_BYTES_MAX = 1 << 20
NO_SPACE = "No space left on device"
"""What programs say of ENOSPC, whatever the engine: servers run in the C locale."""

G = TypeVar("G", bound=Workspace)
S = TypeVar("S", bound="EmbeddedServer[Any]")


class EmbeddedServer(ABC, Generic[G]):
    """One embedded server. Methods block; one at a time (a lock sees to it). `on_death(text)` comes from another thread."""

    ENGINE: ClassVar[str]
    NAME: ClassVar[str]
    """What people call the engine."""
    STOPS: ClassVar[signal.Signals]
    """What has it end in good order, without waiting for its clients."""
    WRONG_SETTING: ClassVar[tuple[str, ...]]
    """Words of its log that tell of a setting that it does not take."""

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._system = system
        self._folder = data_store.home(data_root, system.name)
        self._on_death = on_death
        self._lock = threading.RLock()
        self._workspace: G | None = None
        self._kept: data_store.State | None = None
        self._died: str | None = None
        self._log_offset = 0
        self.pid: int | None = None
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
    def supervisor_pid(self) -> int | None:
        """The supervisor's process id."""
        return self._workspace.supervisor.pid if self._workspace else None

    @property
    def session(self) -> Path:
        """The private temporary folder of this session."""
        return self._at.session

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._store / "data"

    @property
    @abstractmethod
    def dsn(self) -> str:
        """The dsn; holds the password."""

    @property
    def _at(self) -> G:
        assert self._workspace is not None  # noqa: S101 - set by start
        return self._workspace

    @property
    def _state(self) -> data_store.State:
        assert self._kept is not None  # noqa: S101 - set by start
        return self._kept

    @property
    def _store(self) -> Path:
        return Path(self._state.store)

    # ---- what an engine does its own way -----------------------------------------------------------------------------

    @abstractmethod
    def _make_workspace(self) -> G:
        """The grounds that it stands on, not entered yet."""

    @abstractmethod
    def _make_data(self) -> None:
        """Make `data`, as the server's user, whole or not at all."""

    @abstractmethod
    def _configure(self) -> list[str]:
        """Write the configuration into the session's folder, which is the agent's; the command that starts the server. TaskFault."""

    @abstractmethod
    def _is_ready(self, pid: int) -> bool:
        """Whether clients are served."""

    @abstractmethod
    def _complaints(self, offset: int) -> str:
        """What the server's log says of errors since `offset`."""

    @abstractmethod
    def _version(self) -> str:
        """What the program calls itself; "" when it does not say."""

    def _await_ended(self) -> None:
        """Wait for a server of before that is on its way out, and has the data still. TaskFault."""

    def _before_restored(self) -> None:
        """What has to be so before clients meet restored data."""

    # ---- start and stop ------------------------------------------------------------------------------------------

    def start(self) -> Endpoint:
        """Start the server, making its data when there is none; idempotent while it runs. TaskFault on failure."""
        with self._lock:
            if self.pid is not None:
                self._need_room()
            else:
                try:
                    self._prepare()
                    self._launch()
                except BaseException:
                    self.close(keep_data=True)
                    raise
            dsn, version = self.dsn, self._version()
        self._need_life()  # who dies while the lock is held tells nobody
        return Endpoint(system=self._system.name, engine=self.ENGINE, dsn=dsn, version=version, provisioned=True)

    def stop(self) -> None:
        """Stop the server; its session stays open, so that `start` brings it back at the same address."""
        with self._lock:
            if self._workspace is not None and self.pid is not None:
                self.pid = None
                self._workspace.supervisor.ask("stop", timeout_s=STOP_S + 30.0, fast_s=STOP_S)

    def close(self, *, keep_data: bool) -> None:
        """End the session: the server, its supervisor, its sockets; without `keep_data` its data too. Idempotent, never raises."""
        with self._lock:
            self.pid = None
            if self._workspace is not None:
                self._workspace.leave()
                self._workspace = None
            if not keep_data:
                with contextlib.suppress(TaskFault):
                    data_store.remove(self._folder)

    def _prepare(self) -> None:
        """Everything up to the launch: grounds, state, data."""
        if self._workspace is not None:
            if self._died is None:
                return
            self.close(keep_data=True)
        self._died = None
        self._workspace = self._make_workspace()
        previous = self._workspace.enter()
        self._kept = previous or data_store.make_store(self._folder, self._workspace.uid, self._workspace.reachable)
        self._await_ended()
        self._finish_restore()
        self.fresh = not self.data.is_dir()
        if self.fresh:
            self._make_data()

    def _launch(self) -> None:
        argv = self._configure()
        offset = self._log_offset = log_size(self.log)
        # Before the request: the report of a server that fails at once may overtake the answer.
        self._died = None
        try:
            answer = self._at.supervisor.ask(
                "start",
                argv=argv,
                environment=ENVIRONMENT,
                access=self._at.server_access(Path(argv[0]), self.data),
                directory=str(self.data),
                log=str(self.log),
                fast_signal=int(self.STOPS),
            )
        except TaskFault as fault:
            self._died = fault.what
            raise
        self._await_ready(answer["pid"], offset)
        self.pid = answer["pid"]
        if self.death is not None:
            self.pid = None
            raise self._failed_start(offset)

    def _await_ready(self, pid: int, offset: int) -> None:
        """Until clients are served; TaskFault quoting the log if they are not."""
        deadline = time.monotonic() + READY_S
        while self._died is None:
            if self._is_ready(pid):
                return
            if time.monotonic() > deadline:
                text = f"system {self._system.name!r} was not ready after {READY_S:.0f} s{self._quoted(offset)}"
                raise TaskFault("timeout", text)
            time.sleep(POLL_S)
        raise self._failed_start(offset)

    def _quoted(self, offset: int) -> str:
        said = self._complaints(offset)
        return f": {said}" if said else ""

    def _failed_start(self, offset: int) -> TaskFault:
        text = self._quoted(offset)
        if NO_SPACE in text or is_used_up(self.data):
            return data_store.no_room(f"{self.NAME} of system {self._system.name!r} did not start{text}", self.data)
        wrong_setting = any(words in text for words in self.WRONG_SETTING)
        return TaskFault(
            "invalid" if wrong_setting else "fault",
            f"{self.NAME} of system {self._system.name!r} did not start{text}",
            way_out="correct the system's settings in the plan" if wrong_setting else f"see {self.log}",
        )

    def _need_room(self) -> None:
        """TaskFault `disk_full` when the running server has met a full disk since it was last asked."""
        offset, self._log_offset = self._log_offset, log_size(self.log)
        said = [line for line in log_lines(self.log, offset) if NO_SPACE in line]
        if said or is_used_up(self.data):
            last = f": {said[-1]}" if said else ""
            raise data_store.no_room(f"{self.NAME} of system {self._system.name!r} has no room{last}", self.data)

    def _exited(self, how: str) -> None:
        """The supervisor's report, in its reader's thread."""
        was_ready = self.pid is not None
        self._died = how
        if was_ready:
            self.pid = None
            if self._on_death is not None and self._lock.acquire(blocking=False):
                self._lock.release()
                self._on_death(f"{self.NAME} of system {self._system.name!r} is gone: {how}; its log is {self.log}")

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
            snapshot = self._store / "snapshot"
            if not snapshot.is_dir():
                what = f"system {self._system.name!r} has no saved state to restore"
                raise TaskFault("missing", what, way_out="populate it first")
            self.stop()
            try:
                self._at.copy(snapshot, self._store / "data.partial")
                (self._store / "data.partial").rename(self._store / "data.restored")
                self._finish_restore()
            finally:
                self._launch()

    def _need_life(self) -> None:
        if self._died is not None:
            what = f"{self.NAME} of system {self._system.name!r} is gone: {self._died}"
            raise TaskFault("unreachable", what, way_out="start it")

    def _finish_save(self) -> None:
        """Put a completely copied `snapshot.saved` in the snapshot's place, also when a kill has interrupted that."""
        saved = self._store / "snapshot.saved"
        if saved.is_dir():
            shutil.rmtree(self._store / "snapshot", ignore_errors=True)
            saved.rename(self._store / "snapshot")

    def _finish_restore(self) -> None:
        """Swap a completely copied `data.restored` in, also when a kill has interrupted that."""
        restored, old = self._store / "data.restored", self._store / "data.old"
        if restored.is_dir():
            self._before_restored()
            shutil.rmtree(old, ignore_errors=True)
            if self.data.is_dir():
                self.data.rename(old)
            restored.rename(self.data)
        shutil.rmtree(old, ignore_errors=True)


class Embedded(Generic[S]):
    """An `EmbeddedServer` for asyncio: each step runs in a thread, and is waited for even when its task is cancelled."""

    def __init__(self, server: S) -> None:
        self._server = server

    @property
    def death(self) -> str | None:
        """How the server ended by itself, None while it runs or was stopped by us."""
        return self._server.death

    @property
    def fresh(self) -> bool:
        """Whether `start` has made new data."""
        return self._server.fresh

    async def start(self) -> Endpoint:
        """Start it; see `EmbeddedServer.start`. A cancelled start is undone."""
        try:
            return await to_its_end(self._server.start)
        except asyncio.CancelledError:
            await self.close(keep_data=True)
            raise

    async def stop(self) -> None:
        """Stop it; `start` brings it back at the same address."""
        await to_its_end(self._server.stop)

    async def save_snapshot(self) -> None:
        """See `EmbeddedServer.save_snapshot`."""
        await to_its_end(self._server.save_snapshot)

    async def restore_snapshot(self) -> None:
        """See `EmbeddedServer.restore_snapshot`."""
        await to_its_end(self._server.restore_snapshot)

    async def close(self, *, keep_data: bool) -> None:
        """See `EmbeddedServer.close`."""
        await to_its_end(lambda: self._server.close(keep_data=keep_data))


def log_size(log: Path) -> int:
    """Return the log's size in bytes, 0 when there is no log."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def log_lines(log: Path, offset: int) -> list[str]:
    """Return the log's lines from `offset` on, at most 1 MiB of them; an empty list when there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read(LOG_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return []
