"""Who may call what: certificates in, and a deny-by-default gate before every method.

Flow: `read_identity(directory)` -> TLS of the server, which demands a certificate of our authority; then `Guard`, an
interceptor, looks the method up in `POLICY` and the caller's role in its certificate (gRPC itself checks the chain only).
A method that `POLICY` does not name is served to nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio

from proveout.dsl.errors import ProveoutError

URI = "proveout://"
POLICY: Mapping[str, frozenset[str]] = MappingProxyType(
    {"/proveout.agent.v1.Agent/Session": frozenset({"coordinator"})}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What an agent shows and trusts, PEM."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


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
            way_out="--pki must name a directory with ca.pem, agent.pem and agent.key.",
        ) from error
    if mode & 0o077:
        raise ProveoutError("the key can be read by others", where=str(key), way_out=f"chmod 600 {key}")
    return identity


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Mutual TLS: nobody gets in without a certificate of our authority."""
    return grpc.ssl_server_credentials(
        [(identity.key, identity.certificate)], root_certificates=identity.ca, require_client_auth=True
    )


def roles_of(auth_context: Mapping[str, Any]) -> frozenset[str]:
    """The roles that a peer's certificate names: the path of each `proveout://…` URI, `coordinator` or `agent/<host>`."""
    uris = [uri.decode(errors="replace") for uri in auth_context.get("peer_uri", ())]
    return frozenset(uri.removeprefix(URI) for uri in uris if uri.startswith(URI))


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Lets a call through when `policy` names its method and one of the caller's roles."""

    def __init__(self, policy: Mapping[str, frozenset[str]] = POLICY) -> None:
        self._policy = policy

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Wrap the method's handler; the caller's certificate is only known when it is called."""
        allowed = self._policy.get(handler_call_details.method, frozenset())
        handler = await continuation(handler_call_details)
        if handler is None or handler.stream_stream is None:
            return handler if handler is None else grpc.unary_unary_rpc_method_handler(_deny)
        return grpc.stream_stream_rpc_method_handler(
            _guarded(handler.stream_stream, allowed), handler.request_deserializer, handler.response_serializer
        )


def _guarded(
    serve: Callable[[Any, Any], Awaitable[None]], allowed: frozenset[str]
) -> Callable[[Any, Any], Awaitable[None]]:
    async def guarded(requests: Any, context: Any) -> None:
        if not roles_of(context.auth_context()) & allowed:
            await _deny(requests, context)
        await serve(requests, context)

    return guarded


async def _deny(_request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate's role does not allow this")
