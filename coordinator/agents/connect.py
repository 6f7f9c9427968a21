"""Connect to an agent: a probe by TCP and TLS for an exact diagnosis, then the gRPC channel, then the opening Hello.

Flow: `open_stream(host, address, credentials, hello, …)` -> `(Stream, Welcome)`, or one of two errors with a way out:
`AgentUnreachable` (no listener, no route, no trusted certificate) and `AgentRefused` (the agent does not serve this
run).

gRPC checks only a server's chain and address. The probe checks the certificate itself: it must be an agent's, and not
revoked. The channel then trusts only that certificate, so that it connects to the probed agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import os
import socket
import ssl
from dataclasses import replace
from typing import Any, cast

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proveout.coordinator.certificates import Credentials
from proveout.core.errors import ProveoutError
from proveout.proto.signing import DENIED, Addressee, Denied, Shown, Signer, client_context
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.codec import OPTIONS
from proveout.proto.wire.messages import PROTOCOL_VERSION, AgentMessage, CoordinatorMessage, Hello, Refused, Welcome

CERTIFICATES = (
    "Coordinator and agent must hold valid certificates of the same authority, and the agent's must name its address."
)
CLOCKS = (
    "Compare the clocks of the two hosts, here it is {now:%Y-%m-%d %H:%M} UTC; an agent that was off for longer "
    "than its certificate is valid is invited again: proveout pki invite."
)
MISMATCH = "Write the name that it was enrolled with into the topology, or enrol it again with --address {name}."
OTHER_AUTHORITY = (
    "It is of another authority than the coordinator's: have that host enrolled with this one (proveout pki invite)."
)
NOT_YET, EXPIRED, OTHER_NAMES, ISSUERS = 9, 10, (62, 64), (7, 18, 19, 20, 21)
"""OpenSSL's codes for errors of a certificate (x509_vfy.h): its validity, its host name or IP address, its issuer."""

SAME_RELEASE = "Install the same release of proveout here and on that host, and restart its agent."
WAYS_OUT = (
    ("speaks protocol", SAME_RELEASE),
    ("this is the agent of host", "The topology has the address of another host: correct it, or the agent's --name."),
    ("busy with run", "Wait for the end of that run; when its coordinator is gone, for the ten seconds of its lease."),
    ("is over: epoch", "Another coordinator has resumed this run: leave it to that one."),
    ("cannot write", "Make room on that host, or give its agent another --state-dir."),
)
"""Ways out of refusals, by words in the reason, which agents of other releases use too."""
REFUSED = "See the agent's log on that host."

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    # A channel of its own each time: a shared subchannel would carry the back-off of an earlier attempt.
    ("grpc.use_local_subchannel_pool", 1),
    # A session that breaks is dialled again here, so gRPC keeps no copies of what was sent.
    ("grpc.enable_retries", 0),
    # Smaller buffers of TLS and no traces: with the line before, a thousand sessions take 18 MB less.
    ("grpc.tsi.max_frame_size", 4096),
    ("grpc.enable_channelz", 0),
    ("grpc.max_channel_trace_event_memory_per_node", 0),
)

UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
_EOF = grpc.aio.EOF  # type: ignore[attr-defined]


class AgentUnreachable(ProveoutError):
    """No session with an agent could be opened. `gone`: no process listens at its address."""

    def __init__(self, what: str, *, where: str, way_out: str, gone: bool = False) -> None:
        self.gone = gone
        super().__init__(what, where=where, way_out=way_out)


class AgentRefused(ProveoutError):
    """The agent answered and refused this run."""


class StreamEnded(Exception):
    """The stream to an agent ended; `clean` when the agent ended it without an error."""

    def __init__(self, reason: str, *, clean: bool = False) -> None:
        self.clean = clean
        super().__init__(reason)


class Stream:
    """One open bidirectional stream, in messages. Tasks are signed as they are written."""

    def __init__(self, channel: grpc.aio.Channel, call: Any, signer: Signer, to: Addressee) -> None:
        self._channel = channel
        self._call = call
        self._signer = signer
        self._to = to

    async def write(self, message: CoordinatorMessage | bytes) -> None:
        """Send a message, or the bytes of a task; waits for flow control. StreamEnded without a stream."""
        sent = self._signer.sign(message, self._to) if isinstance(message, bytes) else message
        try:
            await self._call.write(codec.coordinator_envelope(sent))
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(_status(error)) from error
        except asyncio.InvalidStateError as error:
            raise StreamEnded("the stream is closed") from error

    async def read(self) -> AgentMessage:
        """The next message. StreamEnded at its end, WireFault for a message that this version does not support."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(_status(error)) from error
        if data is _EOF:
            raise StreamEnded("the agent ended the session", clean=True)
        return codec.agent_message(data)

    async def close(self) -> None:
        """Close the stream and its connection; idempotent."""
        self._call.cancel()
        await self._channel.close(None)


async def open_stream(
    host: str, address: str, credentials: Credentials, hello: Hello, timeout_s: float
) -> tuple[Stream, Welcome]:
    """Dial `address` (`name:port`), send the Hello, and wait for the Welcome, all within `timeout_s`."""
    where = f"host {host} ({address})"
    try:
        async with asyncio.timeout(timeout_s):
            agent = await _probe(where, address, credentials)
            return await _greet(where, address, replace(credentials, ca=agent), hello)
    except TimeoutError as error:
        raise AgentUnreachable(
            f"no answer within {timeout_s:.0f} s",
            where=where,
            way_out="Is the agent running there, and does a firewall let this port through?",
        ) from error


async def _probe(where: str, address: str, credentials: Credentials) -> bytes:
    """Open and close a connection, because errors of the kernel and of OpenSSL are more exact than those of a channel.
    Returns the certificate."""
    name, _, port = address.rpartition(":")
    context = _probe_context(credentials.ca, credentials.certificate, credentials.key)
    try:
        _, writer = await asyncio.open_connection(name.strip("[]"), int(port), ssl=context)
    except (ValueError, OSError) as error:
        what, way_out = _diagnosis(error, address)
        gone = isinstance(error, ConnectionRefusedError)
        raise AgentUnreachable(what, where=where, way_out=way_out, gone=gone) from error
    try:
        return _accepted(where, writer.get_extra_info("ssl_object").getpeercert(binary_form=True), credentials)
    finally:
        writer.close()


def _diagnosis(error: ValueError | OSError, address: str) -> tuple[str, str]:
    """Return the fault that prevents the connection, and the way out."""
    match error:
        case ssl.SSLCertVerificationError(verify_code=code, verify_message=message):
            ways_out = {
                (NOT_YET, EXPIRED): CLOCKS.format(now=datetime.datetime.now(datetime.UTC)),
                OTHER_NAMES: MISMATCH.format(name=address.rpartition(":")[0]),
                ISSUERS: OTHER_AUTHORITY,
            }
            way_out = next((way_out for codes, way_out in ways_out.items() if code in codes), CERTIFICATES)
            return f"the agent's certificate is not accepted: {message}", way_out
        case ssl.SSLError(reason=reason):
            what = f"the process that listens there does not speak TLS as an agent does: {reason or error}"
            return what, "Correct the address in the topology, or find the process that listens on that port."
        case socket.gaierror(strerror=reason):
            return f"the name does not resolve: {reason}", "Correct the address in the topology."
        case ConnectionRefusedError():
            return "nothing listens there", f"Start the agent on that host: proveout agent --listen {address} --pki DIR"
        case OSError(errno=number):
            reason = os.strerror(number) if number else str(error)
            return f"no connection: {reason}", "Check network, firewall and address."
        case _:
            return "the address is not valid", "Write it as name:port."


@functools.lru_cache(8)
def _probe_context(ca: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """The TLS context, cached for all agents that are dialled with these credentials: reading the files takes longer
    than a handshake."""
    context = client_context(ca, certificate, key)
    context.set_alpn_protocols(["h2"])
    return context


def _accepted(where: str, der: bytes, credentials: Credentials) -> bytes:
    """The certificate as PEM. AgentUnreachable when it is not an agent's, or was revoked."""
    certificate = x509.load_der_x509_certificate(der)
    shown = Shown.of(certificate)
    if not any(role.startswith("agent/") for role in shown.roles):
        raise AgentUnreachable(
            "the process that answers there has no agent's certificate", where=where, way_out=CERTIFICATES
        )
    if credentials.directory is not None and shown.serial in Denied(credentials.directory / DENIED).serials():
        raise AgentUnreachable(
            "the agent's certificate was revoked",
            where=where,
            way_out="Have that host enrolled again, if it is still trusted.",
        )
    return certificate.public_bytes(serialization.Encoding.PEM)


async def _greet(where: str, address: str, credentials: Credentials, hello: Hello) -> tuple[Stream, Welcome]:
    """The session; `credentials.ca` is the agent's own certificate, which the probe has checked."""
    tls = grpc.ssl_channel_credentials(
        root_certificates=credentials.ca,
        private_key=credentials.key,
        certificate_chain=credentials.certificate,
    )
    name, _, port = address.rpartition(":")
    if ":" in name:  # the text that gRPC makes of a certificate's address, with which it compares
        packed = socket.inet_pton(socket.AF_INET6, name.strip("[]"))
        address = f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{port}"
    channel = grpc.aio.secure_channel(address, tls, options=CHANNEL_OPTIONS)
    role = next(role for role in Shown.read(credentials.ca).roles if role.startswith("agent/"))
    to = Addressee(agent=role, run=hello.run_id, epoch=hello.epoch)
    try:
        stream = Stream(channel, _call(channel), Signer(credentials.signer_key), to)
        with contextlib.suppress(StreamEnded):  # reading says why
            await stream.write(replace(hello, signer=credentials.signer.decode()))
        answer = await stream.read()
    except StreamEnded as ended:
        other = await _lacks_session(channel)
        await channel.close(None)
        what = f"it has no session of protocol {PROTOCOL_VERSION}" if other else f"no session: {ended}"
        raise AgentUnreachable(what, where=where, way_out=SAME_RELEASE if other else CERTIFICATES) from ended
    except BaseException:
        await channel.close(None)
        raise
    if isinstance(answer, Welcome):
        return stream, answer
    await stream.close()
    reason = answer.reason if isinstance(answer, Refused) else f"it answered with {type(answer).__name__}"
    raise AgentRefused(
        f"the agent refused: {reason}",
        where=where,
        way_out=next((way_out for words, way_out in WAYS_OUT if words in reason), REFUSED),
    )


def _call(channel: grpc.aio.Channel) -> Any:
    """Open a stream; without an iterator of requests it is written to."""
    encode = pb.CoordinatorEnvelope.SerializeToString
    return cast(Any, channel).stream_stream(codec.SESSION, request_serializer=encode)()


async def _lacks_session(channel: grpc.aio.Channel) -> bool:
    """Whether the server does not have the method of a session. The session's own status does not say it reliably:
    where the server's answer comes before the Hello is written, grpc puts INTERNAL in its place. This call has nothing
    to write after its start."""
    call = cast(Any, channel).unary_stream(codec.SESSION)(b"")
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code() is UNIMPLEMENTED
    finally:
        call.cancel()
    return False


def _status(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name.lower()}: {error.details() or 'no details'}"
