"""Who is served: an agent has one session at a time, and never goes back to an older coordinator of a run.

Flow: a stream's Hello -> `admit` -> the `Session` to attach it to (a new one, or the one that its stream broke off from),
or a `Refused` with the reason.

Fencing: each run numbers its coordinators by `epoch`; the highest one seen is kept in the journal. A lower one is refused,
a higher one takes over once the old one's work has ended here. Another run is refused while this one's coordinator is there,
and waits for the end of its lease when it is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import proveout
from proveout.agent.daemon.session import Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import Handler, Resource
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.security.signatures import Trust
from proveout.proto.trust.audit_log import AuditLog
from proveout.proto.wire.messages import PROTOCOL_VERSION, Hello, Refused

LEASE_MAX_S = 3600.0
LOOK_AGAIN_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an agent does its work: its name in plans ("" = any), its state directory, its handlers, what it may change."""

    name: str
    state_dir: Path
    table: Mapping[type, Handler]
    trust: Trust
    audit: AuditLog
    policy: Policy = NOTHING
    standing: Mapping[str, Resource] = field(default_factory=dict)


class Admission:
    """The gate of one agent, and its current session."""

    def __init__(self, place: Place, journal: AgentJournal) -> None:
        self._place = place
        self._journal = journal
        self.session: Session | None = None
        self.began = asyncio.Event()
        self.leaving = False
        self.waiting = 0

    def head(self) -> str:
        """How far this agent's audit log is: what coordinators are told."""
        try:
            return self._place.audit.head()
        except OSError:
            return ""

    async def admit(self, hello: Hello) -> Session | Refused:
        """The session that serves `hello`."""
        reason = self._objection(hello)
        answer: Session | Refused | None = None if reason is None else Refused(reason=reason)
        self.waiting += 1
        try:
            while answer is None:
                answer = self._find_or_say(hello)
                if answer is None and self.session is not None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.session.ended.wait(), LOOK_AGAIN_S)
        finally:
            self.waiting -= 1
        if isinstance(answer, Refused):
            _log.warning("refused run %s epoch %s: %s", hello.run_id, hello.epoch, answer.reason)
            with contextlib.suppress(OSError):  # nothing is done for this one; a full disk is told when something is
                fields: dict[str, str | int] = {"run": hello.run_id, "epoch": hello.epoch, "host": hello.host}
                self._place.audit.note("refused", **fields, reason=answer.reason)
        return answer

    def _objection(self, hello: Hello) -> str | None:
        """What is wrong with the Hello itself."""
        if hello.protocol != PROTOCOL_VERSION:
            return (
                f"this agent (proveout {proveout.__version__}) speaks protocol {PROTOCOL_VERSION}, "
                f"the coordinator (proveout {hello.version or 'of unknown version'}) {hello.protocol}"
            )
        if self._place.name and hello.host != self._place.name:
            return f"this is the agent of host {self._place.name}, not of {hello.host}"
        if not (math.isfinite(hello.lease_s) and 0 < hello.beat_s < hello.lease_s <= LEASE_MAX_S):
            return f"a beat of {hello.beat_s} s with a lease of {hello.lease_s} s is not possible"
        if not 0.0 <= hello.gather_s <= hello.lease_s:
            return f"samples that wait for {hello.gather_s} s are not possible"
        if not hello.run_id or hello.epoch < 1:
            return "the run has no name or no epoch"
        return self._place.trust.objection(hello) or None

    def _find_or_say(self, hello: Hello) -> Session | Refused | None:
        """`_find`; who cannot be noted cannot be served, or a coordinator before him could come back."""
        try:
            return self._find(hello)
        except (sqlite3.Error, OSError) as error:
            return Refused(reason=f"the agent cannot write its state directory: {error}")

    def _find(self, hello: Hello) -> Session | Refused | None:
        """The answer to a Hello as things are now; None while another session is about to end."""
        highest = self._journal.highest_epoch(hello.run_id)
        if highest is not None and hello.epoch < highest:
            return Refused(reason=f"epoch {hello.epoch} of run {hello.run_id} is over: epoch {highest} was here")
        current = self._live()
        same_run = current is not None and current.hello.run_id == hello.run_id
        if current is not None and same_run and current.hello.epoch == hello.epoch:
            current.orders = self._place.trust.orders(hello)
            return current
        if current is not None and not same_run and current.attached:
            return Refused(reason=f"the agent is busy with run {current.hello.run_id}")
        # Fenced before the end of the old one is awaited, so that it cannot come back in between.
        self._journal.note_epoch(hello.run_id, hello.epoch)
        if current is None:
            return Refused(reason="the agent is about to leave") if self.leaving else self._open(hello)
        if same_run:
            current.end("cancelled", f"epoch {hello.epoch} of the run took over", keep_data=True)
        return None

    def _live(self) -> Session | None:
        return None if self.session is None or self.session.ended.is_set() else self.session

    def _open(self, hello: Hello) -> Session:
        work_dir = self._place.state_dir / f"work-{uuid.uuid4().hex[:8]}"
        place = self._place
        self.session = Session(
            hello,
            work_dir,
            self._journal,
            place.table,
            orders=place.trust.orders(hello),
            policy=place.policy,
            audit=place.audit,
            standing=place.standing,
        )
        self.began.set()
        _log.info("serving run %s, epoch %d, as host %s", hello.run_id, hello.epoch, hello.host)
        return self.session
