"""Embedded servers of any engine, alone or replicated: real programs on a private unix socket that end with their
session.

Flow: `start` -> workspace (supervisor, account, folder) -> `data_store` -> the engine's server -> its endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.data_store import ALONE, ServerRole, Successor
from proveout.agent.engines.embedded.workspace import ENVIRONMENT, Workspace, is_locked, to_its_end
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import record
from proveout.core.directories import USED_UP_BYTES, is_used_up
from proveout.dsl.operations.change import ServerVerb
from proveout.dsl.operations.facts import ServerState
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

READY_S = 120.0
STOP_S = 60.0
POLL_S = 0.01
LOG_LINES_MAX = 6
LOG_BYTES_MAX = 1 << 20
RIGHTS_WAY_OUT = (
    "SQL of a plan may do all in its own database of an embedded server, and nothing to the server or the host: give"
    " parameters as `settings:` of the system (PostgreSQL's also by the operation `postgres_settings`), and for what"
    " needs more use a server of your own, with a dsn"
)
"""The way out where the role of an embedded server lacks a right."""
NO_SPACE = "No space left on device"
"""The message of ENOSPC in the C locale, in which all servers run."""
START_BYTES = 16 << 20
"""A server that does not start with less room than this has a full disk: a segment of its log needs as much."""

G = TypeVar("G", bound=Workspace)


class EmbeddedServer(ABC, Generic[G]):
    """One embedded server. Methods block, and a lock runs them one at a time. `on_death(text)` is called from another
    thread."""

    ENGINE: ClassVar[str]
    NAME: ClassVar[str]
    """The server's name for people."""
    STOPS: ClassVar[signal.Signals]
    """The signal for a clean stop that does not wait for clients."""
    WRONG_SETTING: ClassVar[tuple[str, ...]]
    """Texts in its log that mean an invalid setting."""
    SECRETS: ClassVar[tuple[str, ...]] = ()
    """The files of `_files` that only the server's user reads."""

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        self._system = system
        self._folder = data_store.home(data_root, system.name)
        self._on_death = on_death
        self._lock = threading.RLock()
        self._workspace: G | None = None
        self._kept: data_store.State | None = None
        self._died: str | None = None
        self._log_offset = 0
        self._is_frozen = False
        self._role = ALONE
        self.superseded_by = self.note = ""
        self.staleness_s: float | None = None
        """The age of the newest commit that a standby had, at its promotion; None where that is not known."""
        self.pid: int | None = None
        self.fresh = True

    # ---- state ----------------------------------------------------------------------------------------------

    @property
    def death(self) -> str | None:
        """The way the server ended by itself; None while it runs, or when the agent has stopped it."""
        return self._died

    @property
    def log(self) -> Path:
        return self._folder / "server.log"

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

    @property
    def _new(self) -> Path:
        """The mark of data that no coordinator knows yet to be new: an agent or a coordinator that is killed before the
        answer would lose that."""
        return self._store / "new"

    # ---- members of each engine -----------------------------------------------------------------------------

    @abstractmethod
    def _make_workspace(self) -> G:
        """Return the workspace, not entered yet."""

    @abstractmethod
    def _make_data(self) -> None:
        """Make `data` as the server's user, completely or not at all."""

    @abstractmethod
    def _files(self) -> dict[str, str]:
        """Return the texts of its configuration files, by name. TaskFault."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that starts the server."""

    @abstractmethod
    def _is_ready(self, pid: int) -> bool:
        """Return whether the server accepts clients."""

    @abstractmethod
    def _complaints(self, offset: int) -> str:
        """Return the errors in the server's log since `offset`."""

    @abstractmethod
    def _version(self) -> str:
        """Return the program's own version; "" when it prints none."""

    def _await_ended(self) -> None:
        """Wait for a server of an earlier session that still uses the data while it ends. TaskFault."""

    def _ports(self) -> tuple[int, ...]:
        """The TCP ports that it listens on."""
        return ()

    def _sockets(self) -> list[Path]:
        """The folders of its sockets."""
        return [self.session / "socket"]

    def replication_complaint(self) -> str:
        """The last error of replication in the server's log; "" if there is none."""
        return ""

    def _before_restored(self) -> None:
        """Prepare for clients of restored data."""

    def _before_data(self) -> None:
        """Prepare the data of an earlier session, or for new data."""

    # ---- start and stop ------------------------------------------------------------------------------------------

    def take_role(self, role: ServerRole, system: System) -> None:
        """Set the role, and the settings, that the next `start` gives the server."""
        with self._lock:
            self._role, self._system = role, system

    def start(self) -> Endpoint:
        """Start the server in its role, making its data when there is none; idempotent while it runs. TaskFault on
        failure.

        A primary that a promoted standby has replaced is not started as long as that is up: `superseded_by` names it.
        """
        with self._lock:
            self.superseded_by = ""
            self._bring_up()
            dsn, version = self.dsn, self._version()
        if not self.superseded_by:
            self._need_life()  # `_exited` reports no death while the lock is held
        return Endpoint(system=self._system.name, engine=self.ENGINE, dsn=dsn, version=version, provisioned=True)

    @property
    def state(self) -> ServerState:
        """Whether it runs, its processes are stopped (by a fault), or it is down."""
        return "down" if self.pid is None else "stopped" if self._is_frozen else "runs"

    @property
    def is_standby(self) -> bool:
        """Whether it follows a primary."""
        return False

    def promote(self) -> None:
        """Make a standby a primary. TaskFault."""
        raise TaskFault("invalid", f"system {self._system.name!r} is not a standby", way_out="promote a standby")

    def disturb(self, verb: ServerVerb) -> None:
        """Begin a fault: kill all its processes, stop them (SIGSTOP), shut it down, or promote it. Its session stays
        open, and its address the same. TaskFault."""
        with self._lock:
            self._need_life()
            if verb == "promote":
                self.promote()
            elif verb == "stop":
                self._at.supervisor.request("freeze")
                self._is_frozen = True
            elif self.pid is not None:
                self.pid = None
                fast_s = STOP_S if verb == "shut_down" else 0.0
                self._at.supervisor.request("stop", timeout_s=STOP_S + 30.0, fast_s=fast_s, how=verb)

    def recover(self) -> None:
        """End a fault: continue its processes, or start it on its data. TaskFault, also when its address has become
        another: a start that failed has closed its session."""
        with self._lock:
            if self._is_frozen and self.pid is not None:
                self._at.supervisor.request("thaw")
                self._is_frozen = False
                return
            before = self.dsn if self._workspace is not None else ""
            self.start()
            if self.dsn != before:
                raise TaskFault("fault", f"system {self._system.name!r} was started again at another address")

    def _bring_up(self) -> None:
        """Make it run."""
        if self.pid is not None:
            # TaskFault `disk_full` when the running server has found its disk full since the last call
            offset, self._log_offset = self._log_offset, log_size(self.log)
            reports = self._reports_of_no_space(offset)
            if reports or is_used_up(self.data):
                last = f": {reports[-1]}" if reports else ""
                raise data_store.no_room(f"{self.NAME} of system {self._system.name!r} has no room{last}", self.data)
            return
        try:
            self._prepare()
            self._launch()
        except BaseException:
            self.close(keep_data=True)
            raise

    def stop(self) -> None:
        """Stop the server; its session stays open, so that `start` brings it back at the same address."""
        with self._lock:
            if self._workspace is not None and self.pid is not None:
                self.pid = None
                self._workspace.supervisor.request("stop", timeout_s=STOP_S + 30.0, fast_s=STOP_S)

    def close(self, *, keep_data: bool) -> None:
        """End the session: the server, its supervisor, its sockets; without `keep_data` its data too. Idempotent, never
        raises."""
        with self._lock:
            self.pid = None
            if self._workspace is not None:
                self._workspace.leave()
                self._workspace = None
            if not keep_data:
                with contextlib.suppress(TaskFault):
                    data_store.remove(self._folder)

    def _prepare(self) -> None:
        """Everything before the launch: workspace, state, data."""
        if self._workspace is not None:
            if self._died is None or self._workspace.supervisor.lives:  # its address stays the same
                self.fresh = False
                return
            self.close(keep_data=True)
        self._died = None
        self._workspace = self._make_workspace()
        previous = self._workspace.enter()
        self._kept = previous or data_store.make_store(self._folder, self._workspace.uid, self._workspace.reachable)
        self._prepare_data()

    def _prepare_data(self) -> None:
        self._await_ended()
        for copy in self._store.glob("*.partial"):  # that was killed
            shutil.rmtree(copy, ignore_errors=True)
        self._finish_restore()
        self._before_data()
        if not self.data.is_dir():
            self._new.touch()
            self._make_data()
        self.fresh = self._new.exists()

    def answered(self) -> None:
        """The coordinator has the answer of the last start: the next one does not report its new data again."""
        if self._kept is not None:
            with contextlib.suppress(OSError):  # it is seldom there
                self._new.unlink()

    def _configure(self) -> None:
        """Write the configuration into the session's folder, which is the agent's: in the data directory, the server's
        user may have put a symbolic link wherever a privileged agent would write. TaskFault."""
        for folder in self._sockets():
            self._at.make_socket_folder(folder)
        for name, text in self._files().items():
            if name in self.SECRETS:
                self._at.write_secret(name, text)
            else:
                path = self.session / name
                path.write_text(text)
                path.chmod(0o644)
        data_store.point(self.session, self._folder)

    def _is_configured(self) -> bool:
        """Whether the running server has the configuration that its role and settings ask for."""
        try:
            return all((self.session / name).read_text() == text for name, text in self._files().items())
        except OSError:
            return False

    def _launch(self, *options: str) -> None:
        """Configure and start the server, with options of the command line."""
        self._configure()
        argv = [*self._command(), *options]
        self._is_frozen = False
        offset = self._log_offset = log_size(self.log)
        # Before the request: the report of a server that fails at once may overtake the answer.
        self._died = None
        try:
            answer = self._at.supervisor.request(
                "start",
                argv=argv,
                environment=ENVIRONMENT,
                access=self._at.server_access(Path(argv[0]), self.data, self._ports()),
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
        """Wait until the server accepts clients; TaskFault that quotes the log if it does not."""
        deadline = time.monotonic() + READY_S
        while self._died is None:
            if self._is_ready(pid):
                return
            if time.monotonic() > deadline:
                raise self._failed_start(offset, f"was not ready after {READY_S:.0f} s", code="timeout")
            time.sleep(POLL_S)
        raise self._failed_start(offset)

    def _failed_start(self, offset: int, how: str = "did not start", *, code: str = "fault") -> TaskFault:
        errors = self._complaints(offset)
        text = f"{self.NAME} of system {self._system.name!r} {how}" + (f": {errors}" if errors else "")
        wrong_setting = any(words in text for words in self.WRONG_SETTING)
        # The log is on the same disk: a server that finds it full often cannot write that it does.
        least_bytes = USED_UP_BYTES if wrong_setting else START_BYTES
        if self._reports_of_no_space(offset) or is_used_up(self.data, least_bytes):
            return data_store.no_room(text, self.data)
        return TaskFault(
            "invalid" if wrong_setting else code,
            text,
            way_out="correct the system's settings in the plan" if wrong_setting else f"see {self.log}",
        )

    def _reports_of_no_space(self, offset: int) -> list[str]:
        """The lines of the server's log since `offset` that report a full disk."""
        return [line for line in log_lines(self.log, offset) if NO_SPACE in line]

    def _exited(self, how: str) -> None:
        """Handle the supervisor's report, in the thread that reads it."""
        was_ready = self.pid is not None
        self._died = how
        if was_ready:
            self.pid = None
            if self._on_death is not None and self._lock.acquire(blocking=False):
                self._lock.release()
                self._on_death(f"{self.NAME} of system {self._system.name!r} is gone: {how}; its log is {self.log}")

    # ---- snapshots -----------------------------------------------------------------------------------------------

    def save_snapshot(self) -> None:
        """Save the data: a clean stop, a copy (shared blocks where the file system can), a start."""
        with self._lock:
            self._need_life()
            self._finish_save()
            self.stop()
            try:
                self._at.copy(self.data, self._store / "snapshot.saved")
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
                self._at.copy(snapshot, self._store / "data.restored")
                self._finish_restore()
            finally:
                self._launch()

    def _need_life(self) -> None:
        if self._died is not None:
            what = f"{self.NAME} of system {self._system.name!r} is gone: {self._died}"
            raise TaskFault("unreachable", what, way_out="start it")

    def _finish_save(self) -> None:
        """Replace the snapshot by a completely copied `snapshot.saved`; also completes this after a kill."""
        saved = self._store / "snapshot.saved"
        if saved.is_dir():
            shutil.rmtree(self._store / "snapshot", ignore_errors=True)
            saved.rename(self._store / "snapshot")

    def _finish_restore(self) -> None:
        """Replace the data by a completely copied `data.restored`; also completes this after a kill."""
        restored, old = self._store / "data.restored", self._store / "data.old"
        if restored.is_dir():
            self._before_restored()
            shutil.rmtree(old, ignore_errors=True)
            if self.data.is_dir():
                self.data.rename(old)
            restored.rename(self.data)
        shutil.rmtree(old, ignore_errors=True)


def program_output(*argv: str) -> str:
    """Return the standard output of a program of the server that ends at once, as with `--version`; "" where it cannot
    be run."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=READY_S, check=False, env=ENVIRONMENT, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _of_server(name: str) -> Any:
    """A property that is the server's own."""
    return property(attrgetter(f"server.{name}"))


class Embedded:
    """An `EmbeddedServer` for asyncio: each step runs in a thread, and even a cancelled task waits for its end. See
    `adapter.ProvisionedSystem`, `adapter.TakesRole`.

    `superseded_by`: the promoted standby that keeps this primary from starting, "" for none; `note`: the effect of the
    last `start` on the data, for people, "" for none; `staleness_s` as the server's.
    """

    death: str | None = _of_server("death")
    fresh: bool = _of_server("fresh")
    superseded_by: str = _of_server("superseded_by")
    note: str = _of_server("note")
    staleness_s: float | None = _of_server("staleness_s")

    def __init__(self, server: EmbeddedServer[Any]) -> None:
        self.server = server
        self.take_role, self.replication_complaint = server.take_role, server.replication_complaint
        self.answered = server.answered

    async def start(self) -> Endpoint:
        """Start it; see `EmbeddedServer.start`. A cancelled start is undone."""
        try:
            return await to_its_end(self.server.start)
        except asyncio.CancelledError:
            await self.close(keep_data=True)
            raise

    async def save_snapshot(self) -> None:
        await to_its_end(self.server.save_snapshot)

    async def restore_snapshot(self) -> None:
        await to_its_end(self.server.restore_snapshot)

    async def close(self, *, keep_data: bool) -> None:
        await to_its_end(partial(self.server.close, keep_data=keep_data))


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


LEVEL_S = 75.0
"""The time in which a standby reaches its primary, before its data is copied again."""
LEVEL_POLL_S = 0.05


@record
class Primary:
    """A running primary on this machine: its session's folder, the folder of its `system.json`, and what is in it."""

    session: Path
    folder: Path
    state: data_store.State

    @property
    def origin(self) -> str:
        """Names its data; another one after a restore, which no standby of the data before it can follow."""
        return f"{self.state.store}:{self.state.generation}"


class GroupServer(EmbeddedServer[G]):
    """An embedded server with a role in a group; alone until `take_role`."""

    BROKEN: ClassVar[tuple[str, ...]]
    """Texts in a standby's log after which waiting is of no use: it needs a new copy of the data."""

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        super().__init__(system, data_root, on_death)
        self._primary: Primary | None = None
        self._promoted = False
        self._is_recovering = False

    # ---- members of each engine -----------------------------------------------------------------------------

    @abstractmethod
    def _find_primary(self, endpoint: Endpoint) -> Primary:
        """Return the primary at an endpoint. TaskFault `missing` when no agent of this user runs it here."""

    @abstractmethod
    def _copy_primary(self, primary: Primary) -> str:
        """Make `data` a copy of the primary's, completely or not at all; return what was done."""

    @abstractmethod
    def _adopt(self, primary: Primary) -> None:
        """Prepare to follow the primary, with the data that is there, if any."""

    @abstractmethod
    def _reach(self, primary: Primary) -> Callable[[], bool]:
        """Return a question: whether the standby replicates and has what the primary has now."""

    @abstractmethod
    def _promote(self) -> float | None:
        """Make the standby a primary, and wait until it accepts writes; return `staleness_s`. TaskFault."""

    @abstractmethod
    def _is_in_order(self, data: Path) -> bool:
        """Return whether the server on `data`, which has ended, has ended in order."""

    def _take_differences(self, source: Path) -> str:
        """Give `data` the content of `source` by its differences, and return the name of that way. TaskFault."""
        raise TaskFault("missing", f"{self.NAME} has no program for differences")

    # ---- start ---------------------------------------------------------------------------------------------------

    @property
    def is_standby(self) -> bool:
        return self._primary is not None and not self._promoted

    @property
    def state(self) -> ServerState:
        """See `EmbeddedServer.state`; and whether it was promoted."""
        state = super().state
        return "promoted" if state == "runs" and self._promoted else state

    def recover(self) -> None:
        """See `EmbeddedServer.recover`. A server has the role that it had; a primary that a promoted standby has
        replaced is not started, and a standby is not waited for."""
        with self._lock:
            self._is_recovering = True
            try:
                super().recover()
            finally:
                self._is_recovering = False

    def _bring_up(self) -> None:
        if self._is_recovering:
            successor = data_store.successor_of(self._folder)
            self.superseded_by = successor.system if successor is not None else ""
            if successor is None:
                super()._bring_up()
            return
        self.note = ""
        self._primary = self._find_primary(self._role.primary) if self._role.primary is not None else None
        successor = data_store.successor_of(self._folder)
        if self._primary is not None:
            self._follow(self._primary)
        elif successor is None:
            super()._bring_up()
        elif is_locked(Path(successor.folder)):
            self.superseded_by = successor.system
            if self._workspace is None:
                self._prepare()
        else:
            self.stop()
            self._prepare()
            self.note = self._take_data(successor)
            data_store.clear(self._folder)
            super()._bring_up()

    def _follow(self, primary: Primary) -> None:
        """Run as the standby of a primary, level with it."""
        if self.pid is not None:
            is_same = self._state.origin == primary.origin and not self._promoted
            if is_same and self._is_configured() and self._await_level(primary):
                return
            self.stop()
        try:
            is_open = self._workspace is not None
            self._prepare()
            if is_open:
                self._prepare_data()
            self._launch()
            if self._await_level(primary):
                return
            self.stop()
            shutil.rmtree(self.data)
            self._prepare_data()
            self._launch()
            if not self._await_level(primary):
                raise self._failed_start(self._log_offset, "cannot follow its primary")
        except BaseException:
            self.close(keep_data=True)
            raise

    def _before_data(self) -> None:
        """A standby has data that was copied from the data that its primary has."""
        if self._primary is None:
            return
        if self.data.is_dir() and self._state.origin != self._primary.origin:
            shutil.rmtree(self.data)
        self._keep(origin=self._primary.origin)
        self._adopt(self._primary)
        self._promoted, self.staleness_s = False, None
        if not self.data.is_dir():
            self.note = self._copy_primary(self._primary)

    def _await_level(self, primary: Primary) -> bool:
        """Wait until the standby replicates and has all that its primary has now; False when it cannot get there."""
        is_level = self._reach(primary)
        deadline = time.monotonic() + LEVEL_S
        while time.monotonic() < deadline:
            self._need_life()
            if is_level():
                return True
            if any(text in line for line in log_lines(self.log, self._log_offset) for text in self.BROKEN):
                return False
            time.sleep(LEVEL_POLL_S)
        return False

    def _before_restored(self) -> None:
        """Other data: see `Primary.origin`."""
        self._keep(generation=self._state.generation + 1)

    def _keep(self, **fields: Any) -> None:
        """Change the state."""
        self._kept = dataclasses.replace(self._state, **fields)
        data_store.write_state(self._folder, self._kept)

    # ---- promotion -----------------------------------------------------------------------------------------------

    def promote(self) -> None:
        """Make the standby a primary, and wait until it accepts writes. From then on its primary does not start again
        without its data. TaskFault."""
        with self._lock:
            self._need_life()
            if self._primary is None or self.pid is None or self._promoted:
                state = "was promoted already" if self._promoted else "is not a running standby"
                raise TaskFault("invalid", f"system {self._system.name!r} {state}", way_out="promote a standby once")
            folder = self._primary.folder
            data_store.supersede(folder, Successor(system=self._system.name, folder=str(self._folder.resolve())))
            try:
                self.staleness_s = self._promote()
            except BaseException:
                data_store.clear(folder)
                raise
            self._promoted = True

    def _take_data(self, successor: Successor) -> str:
        """Take the data of the promoted standby, which has stopped; return how."""
        began_s = time.monotonic()
        state = data_store.read_state(Path(successor.folder))
        source = Path(state.store) / "data" if state is not None else None
        if source is None or not self._is_in_order(source):
            self._before_restored()  # no standby follows this data as it is
            return f"kept its own data: {successor.system} had not stopped in order, and what it has committed is lost"
        try:
            how = self._take_differences(source)
        except TaskFault as fault:
            generation = self._state.generation
            self._at.copy(source, self._store / "data.restored")
            self._finish_restore()
            self._keep(generation=generation)  # the standby has this data
            how = f"a copy of all of it ({fault.what})"
        return f"took the data of {successor.system} in {time.monotonic() - began_s:.1f} s, by {how}"

    def close(self, *, keep_data: bool) -> None:
        """See `EmbeddedServer`. A promoted standby stops in order, because its primary needs its data."""
        with self._lock:
            if self._promoted and keep_data:
                with contextlib.suppress(TaskFault):
                    self.stop()
            super().close(keep_data=keep_data)
