"""The workspace of an embedded server of any engine: supervisor, account, the session's private folder, copies of its
data.

Flow: `enter` starts the supervisor, locks the system's folder, sets the user, makes the session's folder; `copy` copies
data directories; `leave` ends the supervisor, and with it the server, and removes the folder.

A privileged agent changes files of the server's user only as that user, or by file descriptor: SQL of a plan may have
put symbolic links that lead elsewhere into a data directory.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from proveout.agent.engines.embedded import account, data_store, file_access
from proveout.agent.engines.embedded.confinement import Access
from proveout.agent.engines.embedded.supervisor_client import SupervisorClient
from proveout.agent.errors import TaskFault
from proveout.core import linux
from proveout.core.untrusted_trees import give_away

USER = "proveout"
PREDECESSOR_S = 20.0
COPY_S = 600.0
POLL_S = 0.1
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}

T = TypeVar("T")


class Workspace:
    """The workspace of one server. Methods block; `on_exit(text)` is called in another thread when the server ends by
    itself."""

    def __init__(self, folder: Path, on_exit: Callable[[str], None]) -> None:
        self._folder = folder
        self._account = account.choose_account()
        self.supervisor = SupervisorClient(on_exit)
        self._session: Path | None = None

    @property
    def session(self) -> Path:
        """The session's private folder: 0711, with a folder for each socket in it."""
        assert self._session is not None  # noqa: S101 - made by enter
        return self._session

    @property
    def uid(self) -> int | None:
        """The server's numeric user id; None for the agent's own user."""
        return self._account.uid if self._account else None

    def enter(self) -> data_store.State | None:
        """Lock the system's folder and make the session's; return the state of an earlier session. TaskFault when that
        session still runs."""
        self._await_predecessor()
        previous = data_store.read_state(self._folder)
        if self._account is not None and previous is not None and previous.uid is not None:
            self._account = dataclasses.replace(self._account, uid=previous.uid, gid=previous.uid)
        self.supervisor.request("identity", uid=self.uid, gid=self.uid)
        self._open_session()
        return previous

    def leave(self) -> None:
        """End the supervisor with all its processes, and remove the session's folder. Never raises."""
        self.supervisor.end()
        if self._session is not None:
            shutil.rmtree(self._session, ignore_errors=True)

    def reachable(self, path: Path) -> bool:
        """Whether the server's user can enter that folder, or run that program."""
        return bool(self.supervisor.request("reach", path=str(path))["reachable"])

    def server_access(self, program: Path, data: Path, ports: Sequence[int] = ()) -> Access:
        """Return the files that the server may use: its program, the session's folder to read, its data and its sockets
        to write; and the TCP ports that it may listen on."""
        files = file_access.of_server(
            program, read=[self.session, *self._libraries()], write=[data, *self.session.glob("socket*")]
        )
        return {**files, "listen": [str(port) for port in ports]}

    def _libraries(self) -> list[Path]:
        """Return the folders that the server's program needs beside those next to it."""
        return []

    def hand_over(self, folder: Path) -> None:
        """Give a folder in a folder of ours to the server's user."""
        if self._account is not None:
            os.chown(folder, self._account.uid, self._account.gid)

    def hand_over_socket(self, folder: Path) -> None:
        """Give a folder of sockets to the server's user; load of a privileged agent reaches it by the server's
        group."""
        self.hand_over(folder)
        if self._account is not None:
            folder.chmod(0o750)

    def _await_predecessor(self) -> None:
        """Wait until an earlier session, whose agent was killed for instance, has released the data."""
        deadline = time.monotonic() + PREDECESSOR_S
        while not self.supervisor.request("lock", path=str(self._folder))["locked"]:
            if time.monotonic() > deadline:
                raise TaskFault(
                    "refused",
                    f"system {self._folder.name!r} is still in use by another session ({self._folder} is locked)",
                    way_out="end the other run, or wait until its agent has noticed that its coordinator is gone",
                )
            time.sleep(POLL_S)

    def _open_session(self) -> None:
        base = account.reachable_base(self.reachable)
        data_store.sweep((base,), locked=is_locked)
        self._session = Path(tempfile.mkdtemp(prefix=data_store.SESSION_PREFIX, dir=base))
        self.supervisor.request("own", path=str(self._session))
        self._session.chmod(0o711)

    def copy(self, source: Path, target: Path) -> None:
        """Copy a data directory as the server's user, and write it to disk now rather than during the next
        iteration."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o700)
        self.hand_over(target)
        copier, syncer = shutil.which("cp"), shutil.which("sync")
        if copier is None or syncer is None:
            raise TaskFault("missing", "the programs cp and sync are not on this host", way_out="install coreutils")
        for argv in ([copier, "-a", "--reflink=auto", f"{source}/.", str(target)], [syncer, "-f", str(target)]):
            reach = file_access.of_helper(Path(argv[0]), read=[source], write=[target])
            self.supervisor.run(argv, ENVIRONMENT, limit_s=COPY_S, identity="server", access=reach)


def is_locked(path: Path) -> bool:
    """Return whether a running supervisor has locked the directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        return not linux.lock(descriptor)
    finally:
        os.close(descriptor)


def give(root: Path, uid: int) -> None:
    """Give a folder with all in it to a user; its present owner cannot redirect that. TaskFault `refused` when
    something of another user is in it."""
    if left := give_away(root, uid, uid):
        what = f"{left[0]} belongs to another user, or has several names (hard links)"
        raise TaskFault("refused", what, way_out="find out whose it is, and remove it")


async def to_its_end(step: Callable[[], T]) -> T:
    """Run a blocking step in a thread; when cancelled, wait for its end first, as it cannot be left half done."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
