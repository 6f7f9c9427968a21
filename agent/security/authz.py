"""Who may call what: certificates in, and a deny-by-default gate before every method.

Flow: `server_credentials(directory)` -> TLS of the server, which demands a certificate of our authority and shows its own as it
is in the directory at each new connection, so that a renewed one needs no restart (a local agent's `Identity` is in memory only, and
lasts as long as its run); then `Guard`, an interceptor, looks the
method up in `POLICY`, the caller's role in its certificate (gRPC itself checks the chain only) and its serial number among
those that are denied. A method that `POLICY` does not name is served to nobody. `Guard.cut()` ends the calls of
those who have been revoked since.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proveout.core.errors import ProveoutError
from proveout.proto.trust.identities import Denied, Shown, roles_of_uris

_log = logging.getLogger(__name__)

REVOKED = "the certificate was revoked"
POLICY: Mapping[str, frozenset[str]] = MappingProxyType(
    {"/proveout.agent.v1.Agent/Session": frozenset({"coordinator"})}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What an agent shows and trusts, PEM."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def received_identity(text: bytes) -> Identity:
    """The identity of a local agent, as its coordinator writes it to the agent's standard input; ProveoutError."""
    try:
        said = json.loads(text)
        return Identity(**{name: said[name].encode() for name in ("ca", "certificate", "key")})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProveoutError(
            "no certificate and key came on standard input",
            way_out="`--local` is for agents that `proveout run` starts. For a permanent one leave it out, and name --pki.",
        ) from None


def read_identity(directory: Path) -> Identity:
    """`ca.pem`, `agent.pem` and `agent.key` of `directory`; ProveoutError when one is missing or the key is open to others."""
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
            "what `proveout pki invite` prints on the authority's host makes it, run here.",
        ) from error
    if mode & 0o077:
        raise ProveoutError("the key can be read by others", where=str(key), way_out=f"chmod 600 {key}")
    _check(identity, directory)
    return identity


def _check(identity: Identity, directory: Path) -> None:
    """ProveoutError when the key is not the certificate's; also while only one of them has been replaced."""
    try:
        shown = x509.load_pem_x509_certificate(identity.certificate).public_key()
        own = serialization.load_pem_private_key(identity.key, password=None).public_key()
        if shown == own:
            return
        reason = "agent.key is not the key of agent.pem"
    except ValueError as error:
        reason = f"agent.pem or agent.key cannot be read: {error}"
    raise ProveoutError(reason, where=str(directory), way_out="Have the agent enrolled, or its files issued, again.")


def server_credentials(source: Path | Identity) -> grpc.ServerCredentials:
    """Mutual TLS: a client needs a certificate of our authority. Certificates of a directory are read again when they change."""
    if isinstance(source, Identity):
        pair = (source.key, source.certificate)
        return grpc.ssl_server_credentials([pair], root_certificates=source.ca, require_client_auth=True)
    files = _Files(source)
    changed = cast(
        Callable[[], grpc.ServerCertificateConfiguration], files.changed
    )  # None is "as before"; the stubs lack it
    return grpc.dynamic_ssl_server_credentials(files.read(), changed, require_client_authentication=True)


class _Files:
    """The server's certificate, as the files say; gRPC asks before each handshake, from a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stamp: tuple[int, int] | None = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """As it is now; ProveoutError."""
        self._stamp = self._look()
        identity = read_identity(self._directory)
        return grpc.ssl_server_certificate_configuration(
            [(identity.key, identity.certificate)], root_certificates=identity.ca
        )

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """As it is now if it has changed and can be used, else None: what was read before goes on."""
        if self._look() == self._stamp:
            return None
        try:
            return self.read()
        except ProveoutError as error:
            _log.warning("the certificate that was put here is not used: %s", error)
            return None

    def _look(self) -> tuple[int, int] | None:
        try:
            found = (self._directory / "agent.pem").stat()
        except OSError:
            return self._stamp
        return found.st_mtime_ns, found.st_ino


def roles_of(auth_context: Mapping[str, Any]) -> frozenset[str]:
    """The roles that a peer's certificate names: the path of each `proveout://…` URI, `coordinator` or `agent/<host>`."""
    return roles_of_uris(uri.decode(errors="replace") for uri in auth_context.get("peer_uri", ()))


def serial_of(auth_context: Mapping[str, Any]) -> int | None:
    """The serial number of a peer's certificate, None when it shows none."""
    pems = auth_context.get("x509_pem_cert", ())
    return Shown.read(bytes(pems[0])).serial if pems else None


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Lets a call through when `policy` names its method and one of the caller's roles, and `denied` not its certificate."""

    def __init__(self, policy: Mapping[str, frozenset[str]] = POLICY, denied: Denied | None = None) -> None:
        self._policy = policy
        self._denied = denied
        self._live: dict[asyncio.Future[None], int | None] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Wrap the method's handler; the caller's certificate is only known when it is called."""
        allowed = self._policy.get(handler_call_details.method, frozenset())
        handler = await continuation(handler_call_details)
        if handler is None or handler.stream_stream is None:
            return handler if handler is None else grpc.unary_unary_rpc_method_handler(_deny)
        return grpc.stream_stream_rpc_method_handler(
            self._guarded(handler.stream_stream, allowed), handler.request_deserializer, handler.response_serializer
        )

    def cut(self) -> int:
        """End the calls of those who are denied by now; how many there were."""
        denied = self._serials()
        found = [call for call, serial in self._live.items() if serial in denied]
        for call in found:
            call.cancel()
        return len(found)

    def _serials(self) -> frozenset[int]:
        return self._denied.serials() if self._denied is not None else frozenset()

    def _guarded(
        self, serve: Callable[[Any, Any], Awaitable[None]], allowed: frozenset[str]
    ) -> Callable[[Any, Any], Awaitable[None]]:
        async def guarded(requests: Any, context: Any) -> None:
            shown = context.auth_context()
            serial = serial_of(shown)
            if not roles_of(shown) & allowed:
                await _deny(requests, context)
            if serial in self._serials():
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, REVOKED)
            call = asyncio.ensure_future(serve(requests, context))
            self._live[call] = serial
            try:
                await call
            except asyncio.CancelledError:
                if serial in self._serials():
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, REVOKED)
                raise
            finally:
                del self._live[call]

        return guarded


async def _deny(_request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate's role does not allow this")
