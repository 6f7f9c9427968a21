"""Authentication and authorization of coordinators: mutual TLS, task signatures, and the renewal of the certificate."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError
from proveout.proto import enrolment
from proveout.proto.signing import DENIED, Addressee, Denied, Shown, Verifier, roles_of_uris
from proveout.proto.wire.messages import Hello
from proveout.proto.wire.tasks import SignedTask

_log = logging.getLogger(__name__)

REVOKED = "the certificate was revoked"
CALLER = "coordinator"
"""The role that every method needs."""


@record
class Identity:
    """Certificate and key of an agent, and the authority that it trusts, PEM."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def received_identity(text: bytes) -> Identity:
    """Parse the identity that a coordinator writes to the standard input of its local agent.

    ProveoutError if it is not valid.
    """
    try:
        fields = json.loads(text)
        return Identity(**{name: fields[name].encode() for name in ("ca", "certificate", "key")})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProveoutError(
            "standard input has no certificate and key",
            way_out="`--local` is for agents that `proveout run` starts. For a permanent agent remove it, "
            "and add --pki.",
        ) from None


def read_identity(directory: Path) -> Identity:
    """Read `ca.pem`, `agent.pem` and `agent.key`. ProveoutError if one is missing, or if others can read the key."""
    key = directory / "agent.key"
    try:
        identity = Identity(
            ca=(directory / "ca.pem").read_bytes(),
            certificate=(directory / "agent.pem").read_bytes(),
            key=key.read_bytes(),
        )
        mode = key.stat().st_mode
    except OSError as error:
        raise ProveoutError(
            f"cannot read {error.filename}: {error.strerror}",
            way_out="--pki must name a directory with ca.pem, agent.pem and agent.key: "
            "run here the command that `proveout pki invite` prints on the authority's host.",
        ) from error
    if mode & 0o077:
        raise ProveoutError("other users can read the key", where=str(key), way_out=f"chmod 600 {key}")
    _check(identity, directory)
    return identity


def _check(identity: Identity, directory: Path) -> None:
    """ProveoutError if the key does not belong to the certificate, also while only one of them has been replaced."""
    try:
        shown = x509.load_pem_x509_certificate(identity.certificate).public_key()
        own = serialization.load_pem_private_key(identity.key, password=None).public_key()
        if shown == own:
            return
        reason = "agent.key is not the key of agent.pem"
    except (ValueError, TypeError) as error:  # TypeError: a key with a password
        reason = f"agent.pem or agent.key cannot be read: {error}"
    raise ProveoutError(reason, where=str(directory), way_out="Enrol the agent again, or issue its files again.")


def server_credentials(source: Path | Identity) -> grpc.ServerCredentials:
    """Mutual TLS: a client needs a certificate of our authority. Changed certificates of a directory are read again."""
    if isinstance(source, Identity):
        pair = (source.key, source.certificate)
        return grpc.ssl_server_credentials([pair], root_certificates=source.ca, require_client_auth=True)
    files = _CertificateFiles(source)
    changed = cast(
        Callable[[], grpc.ServerCertificateConfiguration], files.changed
    )  # None means unchanged; the stubs lack it
    return grpc.dynamic_ssl_server_credentials(files.read(), changed, require_client_authentication=True)


class _CertificateFiles:
    """The server's certificate files. gRPC calls `changed` before each handshake, in a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stamp: tuple[tuple[int, int], ...] | None = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Read the files. ProveoutError if they are not valid."""
        self._stamp = self._stat()
        identity = read_identity(self._directory)
        return grpc.ssl_server_certificate_configuration(
            [(identity.key, identity.certificate)], root_certificates=identity.ca
        )

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration, or None if the files are unchanged or not valid: the server keeps the old one."""
        if self._stat() == self._stamp:
            return None
        try:
            return self.read()
        except ProveoutError as error:
            _log.warning("the agent keeps its old certificate, because the new one is not valid: %s", error)
            return None

    def _stat(self) -> tuple[tuple[int, int], ...] | None:
        """Of all three: one may be replaced after another, and only together they are valid."""
        try:
            found = [(self._directory / name).stat() for name in ("ca.pem", "agent.pem", "agent.key")]
        except OSError:
            return self._stamp
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)


def roles_of(auth_context: Mapping[str, Any]) -> frozenset[str]:
    """Roles in a peer's certificate: the path of each `proveout://…` URI, `coordinator` or `agent/<host>`."""
    return roles_of_uris(uri.decode(errors="replace") for uri in auth_context.get("peer_uri", ()))


def serial_of(auth_context: Mapping[str, Any]) -> int | None:
    """Serial number of a peer's certificate, None without a certificate."""
    pems = auth_context.get("x509_pem_cert", ())
    return Shown.read(bytes(pems[0])).serial if pems else None


class AuthzInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Allows a call if the caller has the role `CALLER`, and `denied` does not list the certificate."""

    def __init__(self, denied: Denied | None = None) -> None:
        self._denied = denied
        self._live: dict[asyncio.Future[None], int | None] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Wrap the handler of the method: the certificate is known only when the handler is called."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._authorized(handler.stream_stream), handler.request_deserializer, handler.response_serializer
        )

    def cancel_revoked(self) -> int:
        """Cancel running calls with a denied certificate; returns their number."""
        denied = self._denied_serials()
        found = [call for call, serial in self._live.items() if serial in denied]
        for call in found:
            call.cancel()
        return len(found)

    def _denied_serials(self) -> frozenset[int]:
        return self._denied.serials() if self._denied is not None else frozenset()

    def _authorized(self, serve: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Any], Awaitable[None]]:
        async def authorized(requests: Any, context: Any) -> None:
            caller = context.auth_context()
            serial = serial_of(caller)
            if CALLER not in roles_of(caller):
                words = "the certificate's role does not allow this"
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, words)
            if serial in self._denied_serials():
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, REVOKED)
            call = asyncio.ensure_future(serve(requests, context))
            self._live[call] = serial
            try:
                await call
            except asyncio.CancelledError:
                if serial in self._denied_serials():
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, REVOKED)
                raise
            finally:
                del self._live[call]

        return authorized


TaskVerifier: TypeAlias = Callable[[SignedTask], str]
"""Of the tasks of one coordinator to this agent: the reason against the signature of a task; "" if it is valid."""


class TrustStore:
    """Certificates that an agent trusts: from its directory, or from an identity in memory."""

    def __init__(self, source: Path | Identity) -> None:
        self._source = source
        self._denied = Denied(source / DENIED) if isinstance(source, Path) else None

    def objection(self, hello: Hello) -> str:
        """The reason against tasks of the sender of a Hello; "" if they are accepted."""
        try:
            self.verifier(hello)
        except ValueError as error:
            return str(error) if hello.signer else "the Hello of the coordinator has no certificate of a task signer"
        except OSError as error:
            return f"the agent cannot read its own certificates: {error.strerror}"
        return ""

    def verifier(self, hello: Hello) -> TaskVerifier:
        """The verifier for the sender of a Hello. ValueError for its certificate, OSError for the agent's files."""
        authority, certificate = self._certificates()
        denied = self._denied.serials() if self._denied is not None else frozenset()
        verifier = Verifier(hello.signer.encode(), authority, denied)
        own = Shown.read(certificate)
        role = next((role for role in sorted(own.roles) if role.startswith("agent/")), "")
        return partial(verifier.objection, to=Addressee(agent=role, run=hello.run_id, epoch=hello.epoch))

    def _certificates(self) -> tuple[bytes, bytes]:
        """The certificates of the authority and of the agent. OSError."""
        if isinstance(self._source, Identity):
            return self._source.ca, self._source.certificate
        return (self._source / "ca.pem").read_bytes(), (self._source / "agent.pem").read_bytes()


FETCH_EVERY_S = 10.0
CHECK_EVERY_S = 1.0


async def run(directory: Path | None, interceptor: AuthzInterceptor, on_revoked: Callable[[], None]) -> None:
    """Run until cancelled; calls `on_revoked` after calls were cancelled.

    An identity in memory lasts for one run and is not renewed.
    """
    if directory is None:
        return
    fetching = asyncio.create_task(_fetch(directory))
    try:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if interceptor.cancel_revoked():
                _log.warning("ended a session: the certificate of its coordinator was revoked")
                on_revoked()
    finally:
        fetching.cancel()


async def _fetch(directory: Path) -> None:
    """Poll the authority. Logs a failure when it begins and when it is over."""
    failure = ""
    while await asyncio.to_thread(enrolment.authority_of, directory) is not None:
        try:
            await enrolment.fetch_denied(directory, "agent")
            if await enrolment.renew(directory, "agent"):
                _log.info("the certificate was renewed")
            if failure:
                _log.info("the authority answers again")
            failure = ""
        except (ProveoutError, OSError, ValueError) as error:
            if not failure:
                _log.warning("cannot reach the authority, so the agent keeps its deny list and certificate: %s", error)
            failure = str(error)
        await asyncio.sleep(FETCH_EVERY_S)
