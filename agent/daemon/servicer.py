"""The gRPC server of an agent from its start to its end, and the admission of coordinators. No task logic."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

import proveout
from proveout.agent import host_facts
from proveout.agent.daemon.handlers import TABLE
from proveout.agent.daemon.session import Attachment, Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import Handler, Resource
from proveout.agent.errors import TaskFault
from proveout.agent.security import authz, data_dirs
from proveout.agent.security.authz import AuthzInterceptor, Identity, TrustStore, server_credentials
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.tuning import tuner as tuning
from proveout.agent.tuning import undo_journal
from proveout.agent.tuning.machine import ROOT, machine_dir
from proveout.agent.tuning.tuner import Tuner
from proveout.core import linux
from proveout.core.child_process import release_memory
from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import ProveoutError, one_line
from proveout.core.path_trust import check_own_file, check_own_folder, check_own_journal, check_undo_journal, names_of
from proveout.proto.audit_log import FILE, AuditLog
from proveout.proto.signing import AUTHORITY, DENIED, Denied
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from proveout.proto.wire.codec import OPTIONS, WireFault
from proveout.proto.wire.messages import PROTOCOL_VERSION, AgentMessage, Hello, Refused, Samples, Welcome

# Fencing: each run numbers its coordinators by `epoch`, and the journal keeps the highest epoch. A lower epoch is
# refused. A higher epoch takes over after the tasks of the old one have ended. Another run is refused while a stream is
# attached to the current session; without a stream, it waits for the end of the lease.

LEASE_MAX_S = 3600.0
LOOK_AGAIN_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Admission:
    """Decides which coordinator an agent serves, and keeps the current session.

    `name`: the agent's in plans ("" = any); `permanent`: resources that live as long as the agent.
    """

    name: str
    state_dir: Path
    table: Mapping[type, Handler]
    trust: TrustStore
    audit: AuditLog
    journal: AgentJournal
    policy: Policy = NOTHING
    permanent: Mapping[str, Resource] = field(default_factory=dict)
    session: Session | None = field(default=None, init=False)
    began: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    leaving: bool = field(default=False, init=False)
    waiting: int = field(default=0, init=False)

    def head(self) -> str:
        """Hash of the newest entry of the audit log, for coordinators; "" if the log cannot be read."""
        try:
            return self.audit.head()
        except OSError:
            return ""

    async def admit(self, hello: Hello) -> Session | Refused:
        """The session for `hello`, or the refusal. Waits while another session ends."""
        reason = self._objection(hello)
        answer: Session | Refused | None = None if reason is None else Refused(reason=reason)
        self.waiting += 1
        try:
            while answer is None:
                try:
                    answer = self._find(hello)
                except (sqlite3.Error, OSError) as error:  # without its epoch an older coordinator could return
                    answer = Refused(reason=f"the agent cannot write its state directory: {error}")
                if answer is None and self.session is not None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_AGAIN_S):
                            await self.session.ended.wait()
        finally:
            self.waiting -= 1
        if isinstance(answer, Refused):
            _log.warning("refused run %s epoch %s: %s", hello.run_id, hello.epoch, answer.reason)
            with contextlib.suppress(OSError):  # a refusal changes nothing, so a full disk is not reported here
                note = self.audit.note
                note("refused", run=hello.run_id, epoch=hello.epoch, host=hello.host, reason=answer.reason)
        return answer

    def _objection(self, hello: Hello) -> str | None:
        """The reason against the Hello itself; None if it is valid."""
        if hello.protocol != PROTOCOL_VERSION:
            return (
                f"this agent (proveout {proveout.__version__}) speaks protocol {PROTOCOL_VERSION}, "
                f"the coordinator (proveout {hello.version or 'of unknown version'}) {hello.protocol}"
            )
        if self.name and hello.host != self.name:
            return f"this is the agent of host {self.name}, not of {hello.host}"
        if not (math.isfinite(hello.lease_s) and 0 < hello.beat_s < hello.lease_s <= LEASE_MAX_S):
            return f"a beat of {hello.beat_s} s with a lease of {hello.lease_s} s is not valid"
        if not 0.0 <= hello.gather_s <= hello.lease_s:
            return f"a gather time of {hello.gather_s} s with a lease of {hello.lease_s} s is not valid"
        if not hello.run_id or hello.epoch < 1:
            return "the run has no name or no epoch"
        return self.trust.objection(hello) or None

    def _find(self, hello: Hello) -> Session | Refused | None:
        """The answer to a Hello now; None while another session ends."""
        highest = self.journal.highest_epoch(hello.run_id)
        if highest is not None and hello.epoch < highest:
            return Refused(
                reason=f"epoch {hello.epoch} of run {hello.run_id} is over: this agent has served epoch {highest}"
            )
        if isinstance(tuner := self.permanent.get(tuning.RESOURCE), Tuner) and tuner.reboots:
            return Refused(reason="the host reboots: its agent serves again from the next boot")
        current = self._live()
        same_run = current is not None and current.hello.run_id == hello.run_id
        # A coordinator that has lost a session, which is ending now, begins again after its end.
        if current is not None and same_run and current.hello.epoch == hello.epoch and not current.is_ending:
            current.verifier = self.trust.verifier(hello)
            return current
        if current is not None and not same_run and current.attached:
            return Refused(reason=f"the agent is busy with run {current.hello.run_id}")
        # Store the epoch before the old session ends, so that the old coordinator cannot return in between.
        self.journal.note_epoch(hello.run_id, hello.epoch)
        if current is None:
            return Refused(reason="the agent is shutting down") if self.leaving else self._open(hello)
        if same_run:
            current.end("cancelled", f"epoch {hello.epoch} of the run took over", keep_data=True)
        return None

    def _live(self) -> Session | None:
        return None if self.session is None or self.session.ended.is_set() else self.session

    def _open(self, hello: Hello) -> Session:
        work_dir = self.state_dir / f"work-{uuid.uuid4().hex[:8]}"
        self.session = Session(
            hello,
            work_dir,
            self.journal,
            self.table,
            verifier=self.trust.verifier(hello),
            policy=self.policy,
            audit=self.audit,
            permanent=self.permanent,
        )
        self.began.set()
        _log.info("serving run %s, epoch %d, as host %s", hello.run_id, hello.epoch, hello.host)
        return self.session


# Connections that arrive in crowds leave the allocator's arenas large and almost empty: 4,000 handshakes that never end
# grow an agent from 65 to 270 MiB, although all of it is free again; glibc keeps the pages. `release_freed_memory` runs
# beside the server and returns them when the process has grown. Source: malloc_trim(3), proc_pid_statm(5).

ORPHAN_S = 30.0
HELLO_S = 10.0
STOP_S = 2.0
LOOK_S = 0.1
STREAMS_MAX = 16
TUNING = "tuning"
LEGACY = ROOT / "local-tuning"
TRUSTED_FILES = ("ca.pem", "agent.pem", "agent.key", AUTHORITY, DENIED)
HOST_POLICY = Path("/etc/proveout/policy.yaml")
MEMORY_POLL_S = 2.0
GROWTH_BYTES = 32 << 20
"""Release memory after this growth since the last release: a release walks the whole heap."""

_STATM = Path("/proc/self/statm")

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),  # a second agent on the same port must fail, not share the connections
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
)

_EOF = grpc.aio.EOF  # type: ignore[attr-defined]


@record
class Options:
    """Options of an agent: address to listen at (`name:port`, port 0 = any), certificates (a directory, or in memory),
    name ("" = any).

    Without `policy` a permanent agent uses the policy of the host, /etc/proveout/policy.yaml, and a local one changes
    nothing.
    """

    listen: str
    pki: Path | Identity
    state_dir: Path
    name: str = ""
    local: bool = False
    policy: Path | None = None
    undo_dir: Path | None = None

    @property
    def undo(self) -> Path:
        """Folder of the undo journals of tuning: one for all agents of this user on this machine."""
        return self.undo_dir or machine_dir()


class Servicer(AgentServicer):
    """The service of `agent.proto`: one bidirectional stream."""

    def __init__(self, admission: Admission, name: str) -> None:
        self._admission = admission
        self._name = name

    # A coroutine, not a generator: its `finally` runs when the stream breaks, not when it is garbage-collected.
    async def Session(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """One stream: Hello, then Welcome or Refused, then messages in both directions until one side ends it."""
        hello = await _read_hello(context)
        session = await self._admission.admit(hello)
        if isinstance(session, Refused):
            await context.write(codec.agent_envelope(session))
            return
        attachment = session.attach()
        receiving = asyncio.create_task(_receive(context, session, attachment))
        try:
            await context.write(codec.agent_envelope(_welcome(self._name, session, self._admission.head())))
            await _send(context, session, attachment)
            fault = receiving.result() if receiving.done() and not receiving.cancelled() else None
            if fault is not None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault.what)
        finally:
            receiving.cancel()
            session.detach(attachment)


class OtherVersions(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Serves coordinators of other protocols under the name that their version has: `Admission` refuses them by their
    Hello, and they say what to do."""

    def __init__(self, servicer: Servicer) -> None:
        self._handler = grpc.stream_stream_rpc_method_handler(
            servicer.Session, pb.CoordinatorEnvelope.FromString, pb.AgentEnvelope.SerializeToString
        )

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a session of any version; None for other methods."""
        return self._handler if codec.of_version(handler_call_details.method) == codec.SESSION else None


def _welcome(name: str, session: Session, head: str) -> Welcome:
    return Welcome(
        agent=name or session.hello.host,
        version=proveout.__version__,
        protocol=PROTOCOL_VERSION,
        machine_id=host_facts.machine_id(),
        cores=host_facts.cores(),
        facts=host_facts.facts(),
        session=session.name,
        audit=head,
    )


async def _read_hello(context: Any) -> Hello:
    """Read the Hello of a stream. Aborts the stream for any other message, or if none comes in time."""
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    try:
        async with asyncio.timeout(HELLO_S):
            envelope = await _read(context)
        if envelope is _EOF:
            await context.abort(invalid, "the stream ended before its Hello")
        message = codec.coordinator_message(envelope)
    except TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {HELLO_S:g} s")
    except WireFault as fault:
        await context.abort(invalid, fault.what)
    if not isinstance(message, Hello):
        await context.abort(invalid, f"a stream begins with Hello, not {type(message).__name__}")
    return cast(Hello, message)  # abort does not return


async def _read(context: Any) -> Any:
    """The next envelope, or `_EOF`; WireFault for bytes that are not an envelope."""
    try:
        return await context.read()
    except DecodeError as error:
        raise WireFault("received bytes that are not a message of this protocol") from error


async def _receive(context: Any, session: Session, attachment: Attachment) -> WireFault | None:
    """Pass messages to the session until the stream ends, then detach it. Returns the fault that ended it, if any."""
    try:
        while (envelope := await _read(context)) is not _EOF and attachment.open:
            session.receive(codec.coordinator_message(envelope))
            await session.wait_for_room()
    except WireFault as fault:
        _log.warning("ended the stream of the coordinator: %s", fault.what)
        return fault
    finally:
        session.detach(attachment)
    return None


async def _send(context: Any, session: Session, attachment: Attachment) -> None:
    """Send the session's messages until the stream is detached or the session is over."""
    async for message in session.outgoing(attachment):
        for envelope in _envelopes(message):
            await context.write(envelope)


def _envelopes(message: AgentMessage) -> Iterator[pb.AgentEnvelope]:
    """Encode a message; a batch of samples that is too large becomes single messages."""
    try:
        yield codec.agent_envelope(message)
    except WireFault as fault:  # outcomes were checked when they were stored; this is a sample or a log line
        if isinstance(message, Samples):
            for sample in message.samples:
                yield from _envelopes(sample)
            return
        _log.error("cannot send a message, so it is dropped: %s", fault.what)


async def serve(
    options: Options, ready: Callable[[str], None], table: Mapping[type, Handler] = TABLE, orphan_s: float = ORPHAN_S
) -> None:
    """Run an agent to its end. Calls `ready(address)` once it listens. ProveoutError if it cannot start."""
    credentials = server_credentials(options.pki)
    directory = options.pki if isinstance(options.pki, Path) else None
    denied = Denied(directory / DENIED) if directory is not None else None
    if denied is not None:
        denied.check()
    policy = read_policy(options)
    state_dir = options.state_dir
    if not options.local and directory is not None:
        _check_certificates(directory)
    with _locked(state_dir, local=options.local):
        audit = _audit_log(state_dir, policy)
        journal = AgentJournal(state_dir / "journal.sqlite")
        tuner = Tuner(options.undo, policy, host=options.name)
        await _recover(tuner, options)
        admission = Admission(
            name=options.name,
            state_dir=state_dir,
            table=table,
            trust=TrustStore(options.pki),
            audit=audit,
            journal=journal,
            policy=policy,
            permanent={tuning.RESOURCE: tuner},
        )
        interceptor = AuthzInterceptor(denied=denied)
        server = grpc.aio.server(interceptors=[interceptor], options=SERVER_OPTIONS)
        servicer = Servicer(admission, options.name)
        add_AgentServicer_to_server(servicer, server)
        server.add_generic_rpc_handlers((OtherVersions(servicer),))
        address = _bind(server, options.listen, credentials)
        tuner.port = int(address.rpartition(":")[2])
        await server.start()
        background = (
            asyncio.create_task(authz.run(directory, interceptor, lambda: _end_revoked(admission))),
            asyncio.create_task(release_freed_memory()),
        )
        try:
            _log.info("agent %s (proveout %s) listens at %s", options.name, proveout.__version__, address)
            ready(address)
            await _until_over(admission, options.local, orphan_s)
        finally:
            for task in background:
                task.cancel()
            await _end_session(admission)
            await server.stop(STOP_S)
            journal.close()
    if options.local:
        _remove(state_dir)


def _check_certificates(pki: Path) -> None:
    """ProveoutError if another user can change or replace the agent's certificates."""
    check_own_folder(pki, "the folder of certificates", "Move it to a folder that only the agent's user can write.")
    for name in TRUSTED_FILES:
        check_own_file(pki / name, name, f"Check that it belongs to this lab, then: chown root {pki / name}")


async def _recover(tuner: Tuner, options: Options) -> None:
    """Undo tuning that killed agents have left on this machine, also from journals of an earlier release."""
    for one in (tuner, *map(Tuner, _earlier_journals(options))):
        try:
            await one.recover()
        except TaskFault as fault:
            _log.error("cannot undo the tuning in %s, so it is left: %s", one.directory, one_line(fault))


def _earlier_journals(options: Options) -> tuple[Path, ...]:
    """Folders of undo journals of an earlier release: one in each state directory, one for each name of a local
    agent.
    """
    local = LEGACY.glob(f"*/{undo_journal.FILE}") if options.local and options.undo_dir is None else ()
    found = (options.state_dir / TUNING, *(file.parent for file in local))
    return tuple(folder for folder in found if folder != options.undo and (folder / undo_journal.FILE).exists())


def read_policy(options: Options) -> Policy:
    """The policy of this host. ProveoutError for a policy that is not valid, or that another user can change."""
    path = options.policy
    if path is None and not options.local and HOST_POLICY.exists():
        path = HOST_POLICY
    if path is None:
        return Policy(own=True) if options.local else NOTHING
    from proveout.agent.security import policy_file  # noqa: PLC0415 -- an agent without a policy needs no YAML reader

    _log.info("the policy of this host is %s", path)
    found = policy_file.read(path)
    for what, why in found.widened:
        _log.warning("the policy allows %s, which is not in the list of safe entries; its reason: %s", what, why)
    return replace(found, own=options.local, own_folders=_own_folders(options, path))


def _own_folders(options: Options, policy: Path) -> tuple[str, ...]:
    """Folders, by all their names, that hold certificates, journals and state of an agent with these options."""
    beside = names_of(policy.parent)[1:]  # `Policy` checks the folder of its own path itself
    certificates = (options.pki,) if isinstance(options.pki, Path) else ()
    local = (LEGACY,) if options.local else ()
    return (*names_of(*certificates, options.state_dir, options.undo, *local), *beside)


def _audit_log(state_dir: Path, policy: Policy) -> AuditLog:
    audit = AuditLog(state_dir / FILE)
    try:
        audit.note("started", version=proveout.__version__, policy=policy.source)
        for what, why in policy.widened:
            audit.note("widened", policy=policy.source, entry=what, i_know=why)
    except OSError as error:
        raise ProveoutError(
            f"cannot use the audit log: {error.strerror}",
            where=str(state_dir / FILE),
            way_out="Run `proveout audit verify` to see what is wrong with it, or move it away to start a new one.",
        ) from error
    return audit


@contextlib.contextmanager
def _locked(state_dir: Path, *, local: bool) -> Iterator[None]:
    """Lock the state directory for this agent, and remove work directories of a killed agent, with the systems that it
    was removing.

    Refuses a directory that other users can write: the agent undoes, perhaps as root, what the journals in it list.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not local:  # the state directory of a local agent is in a private directory of the run
            check_own_folder(state_dir, "the state directory", "Name another --state-dir.")
            check_own_journal(state_dir / "journal.sqlite", "the agent's journal", "Name another --state-dir.")
            check_undo_journal(state_dir / TUNING / undo_journal.FILE)
        descriptor = os.open(state_dir / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ProveoutError(
            f"cannot use the state directory: {error.strerror}",
            where=str(state_dir),
            way_out="Name another --state-dir.",
        ) from error
    try:
        if not linux.lock(descriptor):
            raise ProveoutError(
                "another agent uses this state directory",
                where=str(state_dir),
                way_out="Stop it, or name another --state-dir.",
            )
        for left in state_dir.glob("work-*"):
            data_dirs.finish_removals(left)
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials) -> str:
    try:
        port = server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise ProveoutError(
            "cannot listen at this address",
            where=listen,
            way_out="Check that the address belongs to this host and that the port is free. Write it as name:port.",
        ) from error
    return f"{listen.rpartition(':')[0]}:{port}"


async def _until_over(admission: Admission, local: bool, orphan_s: float) -> None:
    """Wait for a signal; for a local agent, also for the end of its session, or for `orphan_s` without a session."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in linux.ending_signals():
        loop.add_signal_handler(number, stop.set)
    waits: set[asyncio.Task[Any]] = {asyncio.create_task(stop.wait())}
    if local:
        waits.add(asyncio.create_task(_session_over(admission, orphan_s)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _session_over(admission: Admission, orphan_s: float) -> None:
    parent, until_s = os.getppid(), time.monotonic() + orphan_s
    while not admission.began.is_set():
        if os.getppid() != parent:
            _log.warning("the coordinator that started this agent has ended before it connected; the agent ends")
            return
        if time.monotonic() >= until_s:
            _log.warning("no coordinator connected within %g s; the agent ends", orphan_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await admission.began.wait()
    # A newer coordinator that takes over ends the session, not the agent.
    while admission.session is not None and (admission.waiting or not admission.session.ended.is_set()):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await admission.session.ended.wait()
            await asyncio.sleep(LOOK_S if admission.waiting else 0)


def _end_revoked(admission: Admission) -> None:
    if admission.session is not None:
        admission.session.end("cancelled", "the coordinator's certificate was revoked", keep_data=True)


async def _end_session(admission: Admission) -> None:
    admission.leaving = True
    if admission.session is not None:
        admission.session.end("cancelled", "the agent is shutting down", keep_data=True)
        await admission.session.ended.wait()


def _remove(directory: Path) -> None:
    """Remove a local agent's directory; the last agent also removes the folder above it."""
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()


# ---- memory --------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    """Resident memory of this process, bytes; 0 if /proc is not readable."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


async def release_freed_memory() -> None:
    """Until cancelled: poll the memory of the process, and release it after a growth of `GROWTH_BYTES`."""
    lowest = resident_bytes()
    while True:
        await asyncio.sleep(MEMORY_POLL_S)
        now = resident_bytes()
        if now > lowest + GROWTH_BYTES:
            await asyncio.to_thread(release_memory)
            lowest = resident_bytes()
        lowest = min(lowest, now)
