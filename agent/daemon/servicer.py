"""The daemon: a gRPC server around `admission` and `session`, and the life of its process. No logic of the work itself.

Flow: `Options` -> `serve()`: identity, state directory (locked), journal, server, then wait. A *local* agent (a child of
the coordinator) leaves after its one session, or when none came within `ORPHAN_S`, and removes its state directory; its
certificate and key are in memory only. A permanent one listens on. SIGTERM and SIGINT end the session in order and then the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

import proveout
from proveout.agent import host_facts
from proveout.agent.daemon import memory
from proveout.agent.daemon.admission import Admission, Place
from proveout.agent.daemon.handlers import TABLE
from proveout.agent.daemon.session import Attachment, Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import Handler, TaskFault
from proveout.agent.security import renewal
from proveout.agent.security.authz import Guard, Identity, server_credentials
from proveout.agent.security.path_trust import (
    check_own_file,
    check_own_folder,
    check_own_journal,
    check_undo_journal,
    names_of,
)
from proveout.agent.security.policy import NOTHING, Policy
from proveout.agent.security.signatures import Trust
from proveout.agent.tuning import tuner as tuning
from proveout.agent.tuning.machine import ROOT, machine_dir
from proveout.agent.tuning.tuner import Tuner
from proveout.core import linux
from proveout.core.errors import ProveoutError, one_line
from proveout.proto.trust.audit_log import FILE, AuditLog
from proveout.proto.trust.identities import AUTHORITY, DENIED, Denied
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from proveout.proto.wire.messages import PROTOCOL_VERSION, AgentMessage, Hello, Refused, Samples, Welcome
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.transport import OPTIONS

ORPHAN_S = 30.0
HELLO_S = 10.0
STOP_S = 2.0
LOOK_S = 0.1
STREAMS_MAX = 16
TUNING = "tuning"
LEGACY = ROOT / "local-tuning"
BELIEVED = ("ca.pem", "agent.pem", "agent.key", AUTHORITY, DENIED)
HOST_POLICY = Path("/etc/proveout/policy.yaml")

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),  # a second agent on the same port is an error, not a lottery
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
)

_EOF = grpc.aio.EOF  # type: ignore[attr-defined]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an agent is run: address to listen at (`name:port`, port 0 = any), its certificates (a directory, or in memory), directories, name in plans ("" = any), its policy.

    Without `policy` a permanent agent takes the host's own, /etc/proveout/policy.yaml, and a local one changes nothing.
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
        """Where the undo journals of tuning lie: one folder for all agents of this user on this machine."""
        return self.undo_dir or machine_dir()


class Servicer(AgentServicer):
    """The service of `agent.proto`: streams in, streams out."""

    def __init__(self, admission: Admission, name: str) -> None:
        self._admission = admission
        self._name = name

    # A coroutine that reads and writes, not a generator: its `finally` runs when the stream breaks, not when it is collected.
    async def Session(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """One stream: Hello, Welcome or Refused, then both speak until one leaves."""
        hello = await _first(context)
        session = await self._admission.admit(hello)
        if isinstance(session, Refused):
            await context.write(codec.agent_envelope(session))
            return
        attachment = session.attach()
        listening = asyncio.create_task(_listen(context, session, attachment))
        try:
            await context.write(codec.agent_envelope(_welcome(self._name, session, self._admission.head())))
            await _speak(context, session, attachment)
            fault = listening.result() if listening.done() and not listening.cancelled() else None
            if fault is not None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault.what)
        finally:
            listening.cancel()
            session.detach(attachment)


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


async def _first(context: Any) -> Hello:
    """The Hello that opens a stream; anything else, or nothing in time, ends it."""
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
    """The next envelope, or `_EOF`; WireFault for bytes that are none."""
    try:
        return await context.read()
    except DecodeError as error:
        raise WireFault("something came that is no message of this protocol") from error


async def _listen(context: Any, session: Session, attachment: Attachment) -> WireFault | None:
    """Hand over what comes in until the stream ends, and detach it then; the fault when it ended for one."""
    try:
        while (envelope := await _read(context)) is not _EOF and attachment.open:
            message = codec.coordinator_message(envelope)
            session.receive(message, codec.came_digest(envelope))
            await session.room()
    except WireFault as fault:
        _log.warning("ended a stream: %s", fault.what)
        return fault
    finally:
        session.detach(attachment)
    return None


async def _speak(context: Any, session: Session, attachment: Attachment) -> None:
    """Say what there is to say until the stream is detached or the session is over."""
    async for message in session.speak(attachment):
        for envelope in _envelopes(message):
            await context.write(envelope)


def _envelopes(message: AgentMessage) -> Iterator[pb.AgentEnvelope]:
    """A message as it goes over the wire: samples one by one when they are too large for one message."""
    try:
        yield codec.agent_envelope(message)
    except WireFault as fault:  # outcomes were checked when they were noted; this is a sample or a log line
        if isinstance(message, Samples):
            for sample in message.samples:
                yield from _envelopes(sample)
            return
        _log.error("could not send a message: %s", fault.what)


async def serve(
    options: Options, ready: Callable[[str], None], table: Mapping[type, Handler] = TABLE, orphan_s: float = ORPHAN_S
) -> None:
    """Run an agent to its end; `ready` is told the address once it listens. ProveoutError when it cannot be started."""
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
        place = Place(
            name=options.name,
            state_dir=state_dir,
            table=table,
            trust=Trust(options.pki),
            audit=audit,
            policy=policy,
            standing={tuning.RESOURCE: tuner},
        )
        admission = Admission(place, journal)
        guard = Guard(denied=denied)
        server = grpc.aio.server(interceptors=[guard], options=SERVER_OPTIONS)
        add_AgentServicer_to_server(Servicer(admission, options.name), server)
        address = _bind(server, options.listen, credentials)
        await server.start()
        beside = (
            asyncio.create_task(renewal.keep(directory, guard, lambda: _revoked(admission))),
            asyncio.create_task(memory.release_freed_memory()),
        )
        try:
            _log.info("agent %s (proveout %s) listens at %s", options.name, proveout.__version__, address)
            ready(address)
            await _until_over(admission, options.local, orphan_s)
        finally:
            for task in beside:
                task.cancel()
            await _leave(admission)
            await server.stop(STOP_S)
            journal.close()
    if options.local:
        _remove(state_dir)


def _check_certificates(pki: Path) -> None:
    """ProveoutError when somebody else can say whom the agent believes."""
    check_own_folder(pki, "the folder of certificates", "Put it where only the agent's user can write.")
    for name in BELIEVED:
        check_own_file(pki / name, name, f"chown root {pki / name}, once you know that it is the lab's.")


async def _recover(tuner: Tuner, options: Options) -> None:
    """Undo what agents that were killed have left tuned on this machine, also where an earlier release noted it."""
    for one in (tuner, *map(Tuner, _earlier(options))):
        try:
            await one.recover()
        except TaskFault as fault:
            _log.error("left %s alone: %s", one.directory, one_line(fault))


def _earlier(options: Options) -> tuple[Path, ...]:
    """Folders of undo journals of an earlier release: one in each state directory, one for each name of a local agent."""
    local = LEGACY.glob(f"*/{tuning.FILE}") if options.local and options.undo_dir is None else ()
    found = (options.state_dir / TUNING, *(file.parent for file in local))
    return tuple(folder for folder in found if folder != options.undo and (folder / tuning.FILE).exists())


def read_policy(options: Options) -> Policy:
    """What the owner of this host allows; ProveoutError for a policy that cannot be used or trusted."""
    path = options.policy
    if path is None and not options.local and HOST_POLICY.exists():
        path = HOST_POLICY
    if path is None:
        return Policy(own=True) if options.local else NOTHING
    from proveout.agent.security import policy_file  # noqa: PLC0415 -- an agent without a policy starts without a YAML reader

    _log.info("what may be changed on this host is in %s", path)
    found = policy_file.read(path)
    for what, why in found.widened:
        _log.warning("the policy lists %s, which is not known to be safe: %s", what, why)
    return replace(found, own=options.local, own_folders=_own_folders(options, path))


def _own_folders(options: Options, policy: Path) -> tuple[str, ...]:
    """The folders, by all their names, that decide what an agent with these options trusts. It also undoes what earlier agents left."""
    beside = names_of(policy.parent)[1:]  # the policy knows the folder that it is named by
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
            f"the audit log cannot be used: {error.strerror}",
            where=str(state_dir / FILE),
            way_out="`proveout audit verify` says what is wrong with it. Move it away to begin a new one.",
        ) from error
    return audit


@contextlib.contextmanager
def _locked(state_dir: Path, *, local: bool) -> Iterator[None]:
    """The state directory, nobody else's to write (what its journals say is undone as root), held by this agent alone; work directories of an agent that was killed are removed."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not local:  # whose is in a private directory of the run's
            check_own_folder(state_dir, "the state directory", "Name another --state-dir.")
            check_own_journal(state_dir / "journal.sqlite", "the agent's journal", "Name another --state-dir.")
            check_undo_journal(state_dir / TUNING / tuning.FILE)
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
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials) -> str:
    try:
        port = server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise ProveoutError(
            "cannot listen there",
            where=listen,
            way_out="Is the address one of this host, and the port free? Write it as name:port.",
        ) from error
    return f"{listen.rpartition(':')[0]}:{port}"


async def _until_over(admission: Admission, local: bool, orphan_s: float) -> None:
    """Wait until a signal comes, or for a local agent until its session has ended or never came."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
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
    try:
        await asyncio.wait_for(admission.began.wait(), orphan_s)
    except TimeoutError:
        _log.warning("no coordinator came within %g s", orphan_s)
        return
    # A newer coordinator that takes over ends a session, and not the agent.
    while admission.session is not None and (admission.waiting or not admission.session.ended.is_set()):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(admission.session.ended.wait(), LOOK_S)
            await asyncio.sleep(LOOK_S if admission.waiting else 0)


def _revoked(admission: Admission) -> None:
    if admission.session is not None:
        admission.session.end("cancelled", "the coordinator's certificate was revoked", keep_data=True)


async def _leave(admission: Admission) -> None:
    admission.leaving = True
    if admission.session is not None:
        admission.session.end("cancelled", "the agent was told to stop", keep_data=True)
        await admission.session.ended.wait()


def _remove(directory: Path) -> None:
    """A local agent's directory, and the one above it for the last that leaves."""
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
