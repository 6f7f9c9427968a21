"""Admission of coordinators: an agent has one session at a time, and refuses older coordinators of a run.

Flow: the Hello of a stream -> `admit` -> the `Session` to attach it to (a new one, or the one that its stream lost), or
a `Refused` with the reason.

Fencing: each run numbers its coordinators by `epoch`, and the journal keeps the highest epoch. A lower epoch is
refused. A higher epoch takes over after the tasks of the old one have ended. Another run is refused while a stream is
attached to the current session; without a stream, it waits for the end of the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path

import proveout
from proveout.agent.daemon.session import Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import Handler, Resource
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.security.signatures import TrustStore
from proveout.core.data_classes import dataclass, field
from proveout.proto.trust.audit_log import AuditLog
from proveout.proto.wire.messages import PROTOCOL_VERSION, Hello, Refused

LEASE_MAX_S = 3600.0
LOOK_AGAIN_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Configuration of an agent: its name in plans ("" = any), state directory, handlers, trust store, audit log and
    policy.

    `permanent` are resources that live as long as the agent.
    """

    name: str
    state_dir: Path
    table: Mapping[type, Handler]
    trust: TrustStore
    audit: AuditLog
    policy: Policy = NOTHING
    permanent: Mapping[str, Resource] = field(default_factory=dict)


class Admission:
    """Decides which coordinator an agent serves, and keeps the current session."""

    def __init__(self, config: AgentConfig, journal: AgentJournal) -> None:
        self._config = config
        self._journal = journal
        self.session: Session | None = None
        self.began = asyncio.Event()
        self.leaving = False
        self.waiting = 0

    def head(self) -> str:
        """Hash of the newest entry of the audit log, for coordinators; "" if the log cannot be read."""
        try:
            return self._config.audit.head()
        except OSError:
            return ""

    async def admit(self, hello: Hello) -> Session | Refused:
        """The session for `hello`, or the refusal. Waits while another session ends."""
        reason = self._objection(hello)
        answer: Session | Refused | None = None if reason is None else Refused(reason=reason)
        self.waiting += 1
        try:
            while answer is None:
                answer = self._find_or_refuse(hello)
                if answer is None and self.session is not None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_AGAIN_S):
                            await self.session.ended.wait()
        finally:
            self.waiting -= 1
        if isinstance(answer, Refused):
            _log.warning("refused run %s epoch %s: %s", hello.run_id, hello.epoch, answer.reason)
            with contextlib.suppress(OSError):  # a refusal changes nothing, so a full disk is not reported here
                fields: dict[str, str | int] = {"run": hello.run_id, "epoch": hello.epoch, "host": hello.host}
                self._config.audit.note("refused", **fields, reason=answer.reason)
        return answer

    def _objection(self, hello: Hello) -> str | None:
        """The reason against the Hello itself; None if it is valid."""
        if hello.protocol != PROTOCOL_VERSION:
            return (
                f"this agent (proveout {proveout.__version__}) speaks protocol {PROTOCOL_VERSION}, "
                f"the coordinator (proveout {hello.version or 'of unknown version'}) {hello.protocol}"
            )
        if self._config.name and hello.host != self._config.name:
            return f"this is the agent of host {self._config.name}, not of {hello.host}"
        if not (math.isfinite(hello.lease_s) and 0 < hello.beat_s < hello.lease_s <= LEASE_MAX_S):
            return f"a beat of {hello.beat_s} s with a lease of {hello.lease_s} s is not valid"
        if not 0.0 <= hello.gather_s <= hello.lease_s:
            return f"a gather time of {hello.gather_s} s with a lease of {hello.lease_s} s is not valid"
        if not hello.run_id or hello.epoch < 1:
            return "the run has no name or no epoch"
        return self._config.trust.objection(hello) or None

    def _find_or_refuse(self, hello: Hello) -> Session | Refused | None:
        """`_find`, or a refusal if the epoch cannot be stored: without it an older coordinator could return."""
        try:
            return self._find(hello)
        except (sqlite3.Error, OSError) as error:
            return Refused(reason=f"the agent cannot write its state directory: {error}")

    def _find(self, hello: Hello) -> Session | Refused | None:
        """The answer to a Hello now; None while another session ends."""
        highest = self._journal.highest_epoch(hello.run_id)
        if highest is not None and hello.epoch < highest:
            return Refused(
                reason=f"epoch {hello.epoch} of run {hello.run_id} is over: this agent has served epoch {highest}"
            )
        current = self._live()
        same_run = current is not None and current.hello.run_id == hello.run_id
        if current is not None and same_run and current.hello.epoch == hello.epoch:
            current.verifier = self._config.trust.verifier(hello)
            return current
        if current is not None and not same_run and current.attached:
            return Refused(reason=f"the agent is busy with run {current.hello.run_id}")
        # Store the epoch before the old session ends, so that the old coordinator cannot return in between.
        self._journal.note_epoch(hello.run_id, hello.epoch)
        if current is None:
            return Refused(reason="the agent is shutting down") if self.leaving else self._open(hello)
        if same_run:
            current.end("cancelled", f"epoch {hello.epoch} of the run took over", keep_data=True)
        return None

    def _live(self) -> Session | None:
        return None if self.session is None or self.session.ended.is_set() else self.session

    def _open(self, hello: Hello) -> Session:
        work_dir = self._config.state_dir / f"work-{uuid.uuid4().hex[:8]}"
        config = self._config
        self.session = Session(
            hello,
            work_dir,
            self._journal,
            config.table,
            verifier=config.trust.verifier(hello),
            policy=config.policy,
            audit=config.audit,
            permanent=config.permanent,
        )
        self.began.set()
        _log.info("serving run %s, epoch %d, as host %s", hello.run_id, hello.epoch, hello.host)
        return self.session
