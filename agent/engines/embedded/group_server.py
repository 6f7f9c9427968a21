"""Embedded servers that replicate: a primary with its standbys, promotion, and the return of a replaced primary.

Flow: `take_role` -> `start` -> a standby copies its primary's data where it has none, follows it and is level with it
-> `promote` marks the primary as replaced (`server_role`) and makes the standby accept writes. A marked primary does
not start while the promoted standby is up; after that it takes the standby's data, and starts as the primary again.
`GroupServer` does the work and blocks, `EmbeddedGroup` wraps it for asyncio; its abstract members differ between
engines. All members of a group run on one machine, each by an agent of the same user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from proveout.agent.engines.embedded import data_store, server_role
from proveout.agent.engines.embedded.server import Embedded, EmbeddedServer
from proveout.agent.engines.embedded.server_role import Promotion, ServerRole, Successor
from proveout.agent.engines.embedded.workspace import Workspace, is_locked, to_its_end
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.dsl.operations.facts import ServerState
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

LEVEL_S = 75.0
"""The time in which a standby reaches its primary, before its data is copied again."""
LEVEL_POLL_S = 0.05

G = TypeVar("G", bound=Workspace)
S = TypeVar("S", bound="GroupServer[Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def __init__(self, system: System, data_root: Path, on_death: Callable[[str], None] | None = None) -> None:
        super().__init__(system, data_root, on_death)
        self._primary: Primary | None = None
        self._promoted = False
        self._is_recovering = False
        self.promotion: Promotion | None = None
        self.note = ""

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
    def _is_configured(self) -> bool:
        """Return whether the running server has the configuration that its role and settings ask for."""

    @abstractmethod
    def _reach(self, primary: Primary) -> Callable[[], bool | None]:
        """Return a question: whether the standby replicates and has what the primary has now; None when it never
        will."""

    @abstractmethod
    def _promote(self) -> Promotion:
        """Make the standby a primary, and wait until it accepts writes. TaskFault."""

    @abstractmethod
    def _is_in_order(self, data: Path) -> bool:
        """Return whether the server on `data`, which has ended, has ended in order."""

    def _take_differences(self, source: Path) -> str:
        """Give `data` the content of `source` by its differences, and return the name of that way. TaskFault."""
        raise TaskFault("missing", f"{self.NAME} has no program for differences")

    # ---- start ---------------------------------------------------------------------------------------------------

    def take_role(self, role: ServerRole, system: System) -> None:
        """Set the role, and the settings, that the next `start` gives the server."""
        with self._lock:
            self._role, self._system = role, system

    @property
    def is_standby(self) -> bool:
        """See `EmbeddedServer.is_standby`."""
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
            successor = server_role.successor_of(self._folder)
            self.superseded_by = successor.system if successor is not None else ""
            if successor is None:
                super()._bring_up()
            return
        self.note = ""
        self._primary = self._find_primary(self._role.primary) if self._role.primary is not None else None
        successor = server_role.successor_of(self._folder)
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
            server_role.clear(self._folder)
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
        self._promoted, self.promotion = False, None
        if not self.data.is_dir():
            self.note = self._copy_primary(self._primary)

    def _await_level(self, primary: Primary) -> bool:
        """Wait until the standby replicates and has all that its primary has now; False when it cannot get there."""
        is_level = self._reach(primary)
        deadline = time.monotonic() + LEVEL_S
        while time.monotonic() < deadline:
            self._need_life()
            if (found := is_level()) is not False:
                return bool(found)
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

    def promote(self) -> Promotion:
        """Make the standby a primary, and wait until it accepts writes. From then on its primary does not start again
        without its data. TaskFault."""
        with self._lock:
            self._need_life()
            if self._primary is None or self.pid is None or self._promoted:
                state = "was promoted already" if self._promoted else "is not a running standby"
                raise TaskFault("invalid", f"system {self._system.name!r} {state}", way_out="promote a standby once")
            folder = self._primary.folder
            server_role.supersede(folder, Successor(system=self._system.name, folder=str(self._folder.resolve())))
            try:
                done = self._promote()
            except BaseException:
                server_role.clear(folder)
                raise
            self._promoted, self.promotion = True, done
            return done

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
            self._at.copy(source, self._store / "data.partial")
            (self._store / "data.partial").rename(self._store / "data.restored")
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


class EmbeddedGroup(Embedded[S]):
    """A `GroupServer` for asyncio; see `adapter.Replicates`."""

    @property
    def superseded_by(self) -> str:
        """The promoted standby that keeps this primary from starting; "" for none."""
        return self._server.superseded_by

    @property
    def note(self) -> str:
        """The effect of the last `start` on the data, for people; "" for none."""
        return self._server.note

    @property
    def promotion(self) -> Promotion | None:
        """The last promotion, while the standby is promoted."""
        return self._server.promotion

    def take_role(self, role: ServerRole, system: System) -> None:
        """See `GroupServer.take_role`."""
        self._server.take_role(role, system)

    async def promote(self) -> Promotion:
        """See `GroupServer.promote`."""
        return await to_its_end(self._server.promote)
