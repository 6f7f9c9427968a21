"""The audit log of a run, `audit.log` in its directory: the agents that it dialled, and the tasks that it signed for
them.

Flow: the loop -> `Record.agent(…)`, `Record.task(…)` -> `proto.trust.audit_log`. When the log cannot be written,
`broke` is called and the run ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proveout.coordinator.storage.journal import StorageFailed
from proveout.coordinator.storage.run_directory import storage_failed
from proveout.proto.trust.audit_log import FILE, AuditLog
from proveout.proto.wire.codec import task_digest
from proveout.proto.wire.messages import Welcome
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.tasks import Task


class Record:
    """The audit log of one run."""

    def __init__(self, directory: Path, broke: Callable[[StorageFailed], None]) -> None:
        self._log = AuditLog(directory / FILE)
        self._path = directory / FILE
        self._broke = broke

    def head(self) -> str:
        """The hash of the newest entry, which the coordinator sends to agents."""
        try:
            return self._log.head()
        except OSError as fault:
            self._broke(storage_failed(self._path, fault))
            return ""

    def began(self, run: str, epoch: int, digest: str) -> None:
        """A coordinator begins, or goes on."""
        self._note("began", run=run, epoch=epoch, plan=digest)

    def agent(self, host: str, address: str, welcome: Welcome) -> None:
        """A session with an agent was opened."""
        self._note("agent", host=host, address=address, machine=welcome.machine_id, head=welcome.audit)

    def task(self, host: str, task: Task) -> str:
        """A task goes to an agent; its digest. "" for one that cannot be sent, which its session answers."""
        try:
            digest = task_digest(task)
        except WireFault:
            return ""
        self._note("task", host=host, key=task.key, kind=type(task.spec).__name__, digest=digest)
        return digest

    def ended(self, status: str, exit_code: int) -> None:
        """The run is over."""
        self._note("ended", status=status, exit_code=exit_code)

    def _note(self, what: str, **fields: str | int) -> None:
        try:
            self._log.note(what, **fields)
        except OSError as fault:
            self._broke(storage_failed(self._path, fault))
