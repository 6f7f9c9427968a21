"""The server of the certificate authority, and the renewal of the coordinator's certificates. `proveout pki serve`."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
import math
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from proveout.coordinator.certificates import Ledger, PublicKey, Refusal
from proveout.core.errors import ProveoutError
from proveout.core.json_data import json_line
from proveout.proto import enrolment
from proveout.proto.enrolment import ANSWER_S, LINE_MAX
from proveout.proto.signing import Shown, load_chain

# gRPC in Python cannot make a client's certificate optional, so this is not a service of `agent.proto`.

ANYBODY = "anybody"
MEMBERS = frozenset({"agent", "coordinator", "operator"})
POLICY: Mapping[str, frozenset[str]] = MappingProxyType(
    {"enrol": frozenset({ANYBODY}), "renew": MEMBERS, "denied": MEMBERS}
)
"""The permitted roles of each request; `anybody` needs no certificate."""

CONNECTIONS_MAX = 128
HANDSHAKE_S = 10.0
CERTIFICATE_S = 12 * 3600.0
STRANGERS_NOTED_MAX = 60
"""Refusals of who has shown no certificate, or a revoked one, that the audit log takes in a minute: it is on a disk
that must not be filled from outside."""

_log = logging.getLogger(__name__)


class AuthorityServer:
    """Serves one ledger at one address until it is closed."""

    def __init__(self, ledger: Ledger, addresses: Sequence[str]) -> None:
        self._ledger = ledger
        self._addresses = tuple(addresses)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._context.load_verify_locations(cadata=ledger.authority.pem.decode())
        self._served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._strangers = Sparing(STRANGERS_NOTED_MAX)

    async def start(self, listen: str) -> str:
        """Listen at `name:port` (port 0: any); the address. ProveoutError when it cannot."""
        host, _, port = listen.rpartition(":")
        self._certify()
        try:
            self._server = await asyncio.start_server(
                self._serve,
                host.strip("[]") or None,
                int(port),
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
                limit=LINE_MAX,
            )
        except (OSError, ValueError) as error:
            raise ProveoutError(
                f"cannot listen there: {error}", where=listen, way_out="Write it as name:port."
            ) from error
        self._renewing = asyncio.create_task(self._stay_certified())
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening, hang up, and wait for answers that are being made: they are written into the ledger."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._server is not None:
            self._server.close()
            for writer in self._served.values():
                # AttributeError: Python 3.11's, of a connection that the other side has just ended
                with contextlib.suppress(AttributeError):
                    writer.transport.abort()
            await asyncio.gather(*self._served, return_exceptions=True)
            await self._server.wait_closed()

    def _certify(self) -> None:
        own = self._ledger.authority.issue_authority(self._addresses)
        load_chain(self._context, own.certificate, own.key)

    async def _stay_certified(self) -> None:
        life_s = self._ledger.authority.validity.total_seconds()
        while True:
            await asyncio.sleep(min(CERTIFICATE_S, life_s / 2))
            self._certify()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a server's callback runs in one
        self._served[task] = writer
        try:
            if len(self._served) <= CONNECTIONS_MAX:
                async with asyncio.timeout(ANSWER_S):
                    await self._converse(reader, writer)
        except (OSError, TimeoutError, ValueError, sqlite3.Error) as error:
            # invalid requests end the connection
            _log.info("gave up on %s: %s", writer.get_extra_info("peername"), type(error).__name__)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            del self._served[task]

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("a client that has disconnected",)
        _write(writer, {"ca": self._ledger.authority.pem.decode()})
        request = _request(await reader.readline())
        shown = _shown(writer.get_extra_info("ssl_object"))
        answer = await asyncio.to_thread(self._answer, request, shown)
        outcome = answer.get("error", answer.get("role", "done"))
        _log.info("%s %s: %s", peer[0], _named(request), outcome)
        _write(writer, answer)
        await writer.drain()

    def _answer(self, request: Mapping[str, Any], shown: Shown | None) -> dict[str, Any]:
        what = request.get("do")
        allowed = POLICY.get(what, frozenset()) if isinstance(what, str) else frozenset()
        known = kinds(shown, self._ledger.denied())
        try:
            if not known & allowed:
                raise Refusal("the certificate, or the lack of one, does not allow this")
            return self._do(str(what), request, shown)
        except ProveoutError as refusal:
            self._note_refusal(_named(request), refusal.what, of_stranger=known == {ANYBODY})
            return {"error": refusal.what, "way_out": refusal.way_out}

    def _note_refusal(self, what: str, reason: str, *, of_stranger: bool) -> None:
        """In the audit log; of strangers and the revoked, who may ask any number of times, so many a minute and how
        many there were beside."""
        if not of_stranger:
            self._ledger.audit.note("refused", request=what, reason=reason)
            return
        left_out = self._strangers.left_out(time.monotonic())
        if left_out is not None:
            more = {"left_out_before": left_out} if left_out else {}
            self._ledger.audit.note("refused", request=what, reason=reason, **more)

    def _do(self, what: str, request: Mapping[str, Any], shown: Shown | None) -> dict[str, Any]:
        do: Mapping[str, Callable[[], dict[str, Any]]] = {
            "enrol": lambda: self._enrol(request),
            "renew": lambda: self._renew(request, shown),
            "denied": lambda: {"denied": [f"{serial:x}" for serial in sorted(self._ledger.denied())]},
        }
        return do[what]()

    def _enrol(self, request: Mapping[str, Any]) -> dict[str, Any]:
        token = request.get("token")
        if not isinstance(token, str):
            raise Refusal("the request has no token")
        member, made = self._ledger.redeem(token, _keys(request))
        return {"role": member.path, "certificates": {use: pem.decode() for use, pem in made.items()}}

    def _renew(self, request: Mapping[str, Any], shown: Shown | None) -> dict[str, Any]:
        assert shown is not None  # noqa: S101 - the policy lets members only
        made = self._ledger.renew(shown.serial, _keys(request))
        return {"certificates": {use: pem.decode() for use, pem in made.items()}}


class Sparing:
    """At most `most` of something a minute. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._began_s, self._count, self._left_out = -math.inf, 0, 0
        self._lock = threading.Lock()

    def left_out(self, now_s: float) -> int | None:
        """None when this one is too many; else how many were since the last that was not."""
        with self._lock:
            if now_s - self._began_s >= 60.0:
                self._began_s, self._count = now_s, 0
            self._count += 1
            if self._count > self._most:
                self._left_out += 1
                return None
            found, self._left_out = self._left_out, 0
            return found


def _request(line: bytes) -> dict[str, Any]:
    """A request. ValueError for what is none, however deep."""
    try:
        request = json.loads(line)
    except RecursionError as error:
        raise ValueError("a request is not so deep") from error
    if not isinstance(request, dict):
        raise ValueError("a request is an object")
    return request


def _named(request: Mapping[str, Any]) -> str:
    """The request for logs: only known words, because any client can send any text."""
    what = request.get("do")
    return what if isinstance(what, str) and what in POLICY else "something unknown"


def kinds(shown: Shown | None, denied: frozenset[int]) -> frozenset[str]:
    """The roles of a peer: `anybody`, and the kinds of its roles while its certificate is not revoked."""
    if shown is None or shown.serial in denied:
        return frozenset({ANYBODY})
    return frozenset({ANYBODY, *(role.partition("/")[0] for role in shown.roles)})


def _shown(connection: ssl.SSLObject) -> Shown | None:
    der = connection.getpeercert(binary_form=True)
    return Shown.of(x509.load_der_x509_certificate(der)) if der else None


def _keys(request: Mapping[str, Any]) -> dict[str, PublicKey]:
    """The public keys of a request's CSRs, each of which must be signed by its key. Refusal."""
    given = request.get("csr")
    if not isinstance(given, dict) or len(given) > 2:
        raise Refusal("the request has no CSR")
    keys: dict[str, PublicKey] = {}
    for use, wanted in (("tls", ec.EllipticCurvePublicKey), ("sign", ed25519.Ed25519PublicKey)):
        if use not in given:
            continue
        try:
            csr = x509.load_pem_x509_csr(str(given[use]).encode())
            key = csr.public_key()
        except ValueError as error:
            raise Refusal("the CSR cannot be read") from error
        if not csr.is_signature_valid or not isinstance(key, wanted):
            raise Refusal("the CSR is not signed by its key, or the key is of another kind")
        keys[use] = key
    return keys


def _write(writer: asyncio.StreamWriter, line: Mapping[str, Any]) -> None:
    writer.write(json_line(line))


async def serve(
    directory: Path, listen: str, addresses: Sequence[str], ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve the authority in `directory` until `stop`; `ready` is called with the address. ProveoutError when it cannot
    start."""
    ledger = Ledger.open(directory)
    server = AuthorityServer(ledger, addresses)
    try:
        ready(await server.start(listen))
        await stop.wait()
    finally:
        await server.close()
        ledger.close()


ASK_EVERY_S = 30.0
ROLE = "coordinator"

Tell = Callable[[Literal["info", "warning"], str], None]
"""Told a level and a text."""


async def keep(directory: Path, run_s: float, tell: Tell) -> None:
    """Until it is cancelled. `run_s`: how long the run is thought to take."""
    if enrolment.authority_of(directory) is None:
        return await _warn(directory, run_s, tell)
    trouble = ""
    while True:
        try:
            await enrolment.fetch_denied(directory, ROLE)
            if await enrolment.renew(directory, ROLE):
                tell("info", f"the coordinator's certificates were renewed; they count until {_end(directory)}")
            trouble = ""
        except (ProveoutError, OSError, ValueError, KeyError) as fault:
            if not trouble and _is_due(directory):
                trouble = str(fault)
                tell("warning", f"{_ends(directory)}, and cannot be renewed: {fault}")
        await asyncio.sleep(ASK_EVERY_S)


async def _warn(directory: Path, run_s: float, tell: Tell) -> None:
    """Certificates without an authority to ask: say it at the beginning when they may not last, and when they are
    due."""
    by_hand = "issue new ones with `proveout pki issue`, or enrol this coordinator, which then renews them by itself"
    shown = _renewal_shown(directory)
    if shown is None:
        return
    expected_end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=run_s)
    if not _is_due(directory) and expected_end >= shown.ends:
        tell("warning", f"{_ends(directory)}, before this run may be over: {by_hand}")
        return
    while not _is_due(directory):  # noqa: ASYNC110 -- a certificate expires without a signal
        await asyncio.sleep(ASK_EVERY_S)
    tell("warning", f"{_ends(directory)}: {by_hand}")


def _renewal_shown(directory: Path) -> Shown | None:
    try:
        return Shown.read((directory / f"{ROLE}.pem").read_bytes())
    except (OSError, ValueError):  # the next connection reports the error
        return None


def _is_due(directory: Path) -> bool:
    shown = _renewal_shown(directory)
    return shown is not None and shown.due(datetime.datetime.now(datetime.UTC))


def _end(directory: Path) -> str:
    shown = _renewal_shown(directory)
    return f"{shown.ends:%Y-%m-%d %H:%M} UTC" if shown is not None else "an end that cannot be read"


def _ends(directory: Path) -> str:
    return f"the coordinator's certificates ({directory}) count until {_end(directory)}"
