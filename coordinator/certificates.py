"""The certificate authority of a lab: its key, the certificates that it issues, its ledger of members, its server
(`proveout pki serve`), and the renewal of a coordinator's certificates."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import math
import os
import re
import secrets
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.json_data import json_line
from proveout.proto import enrolment
from proveout.proto.audit_log import FILE, AuditLog
from proveout.proto.enrolment import ANSWER_S, LINE_MAX, ROLES, fingerprint, parts_of, token_hash
from proveout.proto.signing import DENIED, URI, Shown, denied_text, load_chain, replace_file
from proveout.proto.wire.tasks import ClusterSecrets

# A coordinator has a second certificate, `proveout://signer`, which signs tasks and is not valid for TLS. Keys are EC
# P-256, the signer's Ed25519; files with a key are 0600 in a directory of 0700.

PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

USES: Mapping[str, tuple[x509.ObjectIdentifier, ...]] = MappingProxyType(
    {
        # An agent is dialled by coordinators, and dials the authority.
        "agent": (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
        "authority": (ExtendedKeyUsageOID.SERVER_AUTH,),
        "coordinator": (ExtendedKeyUsageOID.CLIENT_AUTH,),
        "operator": (ExtendedKeyUsageOID.CLIENT_AUTH,),
        "signer": (ExtendedKeyUsageOID.CODE_SIGNING,),
    }
)
"""The permitted uses of a certificate by role."""

VALIDITY = timedelta(days=7)
CLOCK_SLACK = timedelta(minutes=5)


class PkiError(ProveoutError):
    """Credentials that are missing, unreadable or readable by others."""


@record
class Credentials:
    """The certificates and keys of one side, PEM: the authority, its own certificate, its key; a coordinator's signer
    as well.

    `directory` is where they were read, None for those that are in memory only.
    """

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    signer: bytes = b""
    signer_key: bytes = field(default=b"", repr=False)
    directory: Path | None = None

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The coordinator's credentials, `ca.pem coordinator.pem coordinator.key signer.pem signer.key`; PkiError."""
        return cls(
            ca=_read(directory / "ca.pem"),
            certificate=_read(directory / "coordinator.pem"),
            key=_read_key(directory / "coordinator.key"),
            signer=_read(directory / "signer.pem"),
            signer_key=_read_key(directory / "signer.key"),
            directory=directory,
        )

    def current(self) -> Credentials:
        """The credentials as renewed meanwhile; the present ones while the files cannot be read."""
        if self.directory is None:
            return self
        try:
            return Credentials.read(self.directory)
        except PkiError:
            return self


class Authority:
    """A certificate authority for one fabric. `validity` bounds everything that it issues."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, validity: timedelta) -> None:
        self.certificate = certificate
        self._key = key
        self.validity = validity

    @classmethod
    def create(cls, validity: timedelta = VALIDITY, lifetime: timedelta | None = None) -> Self:
        """A fresh authority, self-signed, path length 0; it lives as long as what it issues, or for `lifetime`."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("proveout fabric authority", None, key.public_key(), lifetime or validity)
        return cls(builder.sign(key, hashes.SHA256()), key, validity)

    @classmethod
    def load(cls, pem: bytes, key_pem: bytes, validity: timedelta) -> Self:
        """The authority of a certificate and its key. ValueError when they are not."""
        key = serialization.load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of an authority is an elliptic curve's")
        return cls(x509.load_pem_x509_certificate(pem), key, validity)

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return _cert_pem(self.certificate)

    @property
    def key_pem(self) -> str:
        """Its own key: for nodes that sign their certificates themselves."""
        return enrolment.key_pem(self._key).decode()

    def issue_coordinator(self) -> Credentials:
        """Credentials of a coordinator: a client certificate, and one that it signs tasks with."""
        signing = ed25519.Ed25519PrivateKey.generate()
        signer = self.certify("signer", (), signing.public_key())
        return replace(self.issue("coordinator"), signer=_cert_pem(signer), signer_key=enrolment.key_pem(signing))

    def issue(self, role: str, addresses: Sequence[str] = ()) -> Credentials:
        """Credentials of a role; those of an agent (`agent/HOST`) and of the authority's server are for the names and
        IP addresses that it is dialled at."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certify(role, addresses, key.public_key())
        return Credentials(ca=self.pem, certificate=_cert_pem(certificate), key=enrolment.key_pem(key))

    def certify(self, role: str, addresses: Sequence[str], key: PublicKey) -> x509.Certificate:
        """A certificate for the holder of `key`: the role as a URI, the names and IP addresses, and what it may be used
        for."""
        kind = role.partition("/")[0]
        names = (
            x509.UniformResourceIdentifier(f"{URI}{role}"),
            *(_ip(address) or x509.DNSName(address) for address in addresses),
        )
        builder = _builder(f"proveout {kind}", self.certificate.subject, key, self.validity)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(USES[kind]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _cert_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(
    common_name: str, issuer: x509.Name | None, public_key: PublicKey, validity: timedelta
) -> x509.CertificateBuilder:
    """A certificate by an issuer; without one it is that of an authority, which may sign others."""
    now, signs = datetime.now(UTC), issuer is None
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + validity)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def cluster_secrets() -> ClusterSecrets:
    """A fresh token, and a fresh authority whose key the nodes of a Ray cluster sign their own certificates with."""
    authority = Authority.create()
    return ClusterSecrets(
        token=secrets.token_hex(32), authority=authority.pem.decode(), authority_key=authority.key_pem
    )


def _ip(address: str) -> x509.IPAddress | None:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(address))
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PkiError(
            f"cannot read {path.name}: {error.strerror}",
            where=str(path),
            way_out="--pki (or $PROVEOUT_PKI) must name a directory with ca.pem, coordinator.pem, "
            "coordinator.key, signer.pem and "
            "signer.key, as `proveout pki` makes it.",
        ) from error


def _read_key(path: Path) -> bytes:
    content = _read(path)
    if path.stat().st_mode & 0o077:
        raise PkiError("the key can be read by others", where=str(path), way_out=f"chmod 600 {path}")
    return content


#     DIR/ (0700)      made by `proveout pki init`
#         ca.pem ca.key    the authority; the key is 0600 and never leaves this directory
#         ledger.sqlite    certificates issued, invitations
#         audit.log        members invited, enrolled, renewed, refused, revoked
#         denied           serial numbers that are revoked and have not expired; may be copied to members by hand

LIFETIME = timedelta(days=3650)
INVITATION_MAX = timedelta(minutes=10)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS issued (
  serial TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, addresses TEXT NOT NULL,
  begins_unix_s INTEGER NOT NULL, ends_unix_s INTEGER NOT NULL, how TEXT NOT NULL, revoked_unix_s INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS invitation (
  hash TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, addresses TEXT NOT NULL,
  ends_unix_s INTEGER NOT NULL, used_unix_s INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS validity (seconds INTEGER NOT NULL);
"""


class Refusal(ProveoutError):
    """The authority refuses; the reason may be sent to the client."""


@record
class Member:
    """The subject of a certificate: a role, a name among those of this role, the addresses of an agent."""

    role: str
    name: str
    addresses: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The role as certificates have it: `agent/db1`, `coordinator`."""
        return f"agent/{self.name}" if self.role == "agent" else self.role


@record
class Issued:
    """A line of the ledger. Times are Unix seconds; `how` is issue, enrol or renew."""

    serial: int
    member: Member
    ends_unix_s: int
    how: str
    revoked_unix_s: int | None


class Ledger:
    """An authority and its books. Blocking; safe to use from several threads and processes at once."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self.directory = directory
        self.authority = authority
        path = directory / "ledger.sqlite"
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._db = sqlite3.connect(path, isolation_level=None, timeout=20.0, check_same_thread=False)
        self._db.executescript(_SCHEMA)
        self.audit = AuditLog(directory / FILE)
        self._lock = threading.RLock()  # one connection for the threads of a server

    @classmethod
    def create(cls, directory: Path, validity: timedelta = VALIDITY) -> Self:
        """A new authority in `directory`; PkiError when there is one."""
        if (directory / "ca.key").exists():
            raise PkiError(
                "there is an authority here already",
                where=str(directory),
                way_out="Name another directory for a new one.",
            )
        authority = Authority.create(validity, LIFETIME)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
            replace_file(directory / "ca.pem", authority.pem, 0o644)
            made = cls(directory, authority)
            made._db.execute("DELETE FROM validity")
            made._db.execute("INSERT INTO validity VALUES (?)", (round(validity.total_seconds()),))
            replace_file(directory / "ca.key", authority.key_pem.encode())  # last: there is an authority with it
        except OSError as error:
            raise PkiError(f"cannot write there: {error.strerror}", where=str(directory)) from error
        except sqlite3.Error as error:
            raise _unusable(directory, error) from error
        return made

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The authority in `directory`; PkiError when there is none, or when others can read its key."""
        try:
            key = directory / "ca.key"
            if key.stat().st_mode & 0o077:
                raise PkiError(
                    "the key of the authority can be read by others", where=str(key), way_out=f"chmod 600 {key}"
                )
            authority = Authority.load((directory / "ca.pem").read_bytes(), key.read_bytes(), VALIDITY)
        except (OSError, ValueError) as error:
            raise PkiError(
                f"there is no authority here: {error}",
                where=str(directory),
                way_out="`proveout pki init DIR` makes one.",
            ) from error
        try:
            found = cls(directory, authority)
            row = found._db.execute("SELECT seconds FROM validity").fetchone()
        except sqlite3.Error as error:
            raise _unusable(directory, error) from error
        authority.validity = timedelta(seconds=row[0]) if row else VALIDITY
        return found

    @property
    def fingerprint(self) -> str:
        """`sha256:…` of the authority's certificate, with which a host that enrols verifies it."""
        return fingerprint(self.authority.certificate)

    def close(self) -> None:
        """Close the database after pending writes. Later callers get a sqlite3.ProgrammingError."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, alone among threads and processes. PkiError when nothing can be written."""
        try:
            with self._lock, self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield
        except sqlite3.OperationalError as error:
            raise _unusable(self.directory, error) from error

    # ---- members -------------------------------------------------------------------------------------------------

    def invite(self, member: Member, valid: timedelta = INVITATION_MAX) -> str:
        """A token that lets one host in as `member`, once, within `valid` (at most 10 minutes)."""
        check(member)
        if not timedelta(0) < valid <= INVITATION_MAX:
            raise PkiError(
                "an invitation is valid for at most 10 minutes", way_out="Invite again when the host is ready."
            )
        token = secrets.token_urlsafe(24)
        ends = int(time.time() + valid.total_seconds())  # not a moment longer
        row = (token_hash(token), member.role, member.name, json.dumps(member.addresses), ends)
        self.audit.note("invite", role=member.role, name=member.name, addresses=" ".join(member.addresses))
        with self._transaction():
            self._db.execute("INSERT INTO invitation VALUES (?, ?, ?, ?, ?, NULL)", row)
        return token

    def redeem(self, token: str, keys: Mapping[str, PublicKey]) -> tuple[Member, dict[str, bytes]]:
        """The member that a token lets in, and certificates (PEM) for its keys `tls` and `sign`. Refusal."""
        with self._transaction():
            query = "SELECT role, name, addresses, ends_unix_s, used_unix_s FROM invitation WHERE hash = ?"
            row = self._db.execute(query, (token_hash(token),)).fetchone()
            if row is None:
                raise Refusal("this token was never given out")
            if row[4] is not None:
                raise Refusal("this token was used before", way_out="If not by you, revoke that member at once.")
            if row[3] < time.time():
                raise Refusal("this token is too old", way_out="Have another one made: `proveout pki invite`.")
            self._db.execute(
                "UPDATE invitation SET used_unix_s = ? WHERE hash = ?", (round(time.time()), token_hash(token))
            )
            member = Member(role=row[0], name=row[1], addresses=tuple(json.loads(row[2])))
            return member, self._certify(member, keys, "enrol")

    def issue(self, member: Member, keys: Mapping[str, PublicKey]) -> dict[str, bytes]:
        """Certificates (PEM) for a member's keys, without a token."""
        check(member)
        with self._transaction():
            return self._certify(member, keys, "issue")

    def renew(self, serial: int, keys: Mapping[str, PublicKey]) -> dict[str, bytes]:
        """New certificates for who shows the one with this serial number. Refusal when it is revoked or not of here."""
        with self._transaction():
            found = next((issued for issued in self.issued() if issued.serial == serial), None)
            if found is None or found.revoked_unix_s is not None:
                raise Refusal("this certificate is revoked, or not of this authority")
            return self._certify(found.member, keys, "renew")

    def issued(self) -> tuple[Issued, ...]:
        """All certificates, the newest last."""
        columns = "serial, role, name, addresses, ends_unix_s, how, revoked_unix_s"
        query = f"SELECT {columns} FROM issued ORDER BY begins_unix_s, role, name, serial"  # noqa: S608 - constants
        with self._lock:
            rows = self._db.execute(query).fetchall()
        return tuple(
            Issued(
                serial=int(serial, 16),
                member=Member(role=role, name=name, addresses=tuple(json.loads(addresses))),
                ends_unix_s=ends,
                how=how,
                revoked_unix_s=revoked,
            )
            for serial, role, name, addresses, ends, how, revoked in rows
        )

    def revoke(self, who: str) -> tuple[Issued, ...]:
        """Revoke all certificates of a name, or one by its serial number in hexadecimal; returns those revoked.

        Rewrites the file `denied`. PkiError when no member has that name.
        """
        serial = who.lower().replace(":", "").lstrip("0")  # also as openssl writes it
        with self._transaction():  # what is issued meanwhile, by a renewal, waits and is refused
            wanted = [
                issued
                for issued in self.issued()
                if issued.revoked_unix_s is None and (who == issued.member.name or serial == f"{issued.serial:x}")
            ]
            if not wanted:
                raise PkiError(
                    f"nothing of {who} is in force", way_out="`proveout pki list DIR` shows names and serial numbers."
                )
            self.audit.note("revoke", who=who, certificates=len(wanted))
            for issued in wanted:
                query = "UPDATE issued SET revoked_unix_s = ? WHERE serial = ?"
                self._db.execute(query, (round(time.time()), f"{issued.serial:x}"))
            replace_file(self.directory / DENIED, denied_text(self.denied()).encode(), 0o644)
        return tuple(wanted)

    def denied(self) -> frozenset[int]:
        """Serial numbers that are revoked and have not ended yet."""
        query = "SELECT serial FROM issued WHERE revoked_unix_s IS NOT NULL AND ends_unix_s > ?"
        with self._lock:
            rows = self._db.execute(query, (round(time.time()) - 86400,)).fetchall()
        return frozenset(int(serial, 16) for (serial,) in rows)

    def _certify(self, member: Member, keys: Mapping[str, PublicKey], how: str) -> dict[str, bytes]:
        self.audit.note(how, role=member.role, name=member.name, addresses=" ".join(member.addresses))
        made: dict[str, bytes] = {}
        for part, use in zip(parts_of(member.role), ("tls", "sign"), strict=False):
            if use not in keys:
                raise Refusal(f"the request has no key for {use}")
            role = member.path if part == member.role else part
            certificate = self.authority.certify(role, member.addresses, keys[use])
            row = (f"{certificate.serial_number:x}", member.role, member.name, json.dumps(member.addresses))
            ends = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
            times = (round(at.timestamp()) for at in ends)
            self._db.execute("INSERT INTO issued VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", (*row, *times, how))
            made[use] = _cert_pem(certificate)
        return made


def _unusable(directory: Path, error: sqlite3.Error) -> PkiError:
    way_out = "Make room there, or restore the directory from a copy."
    return PkiError(f"the ledger cannot be used: {error}", where=str(directory / "ledger.sqlite"), way_out=way_out)


_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check(member: Member) -> None:
    """PkiError when there can be no such member."""
    if member.role not in ROLES:
        raise PkiError(f"there is no role {member.role!r}", way_out=f"One of {', '.join(ROLES)}.")
    if not _NAME.fullmatch(member.name):
        raise PkiError(
            f"{member.name!r} is not a valid name", way_out="ASCII letters, digits, dots, hyphens and underscores."
        )
    if member.role == "agent" and not member.addresses:
        raise PkiError(
            "an agent is recognised by the address that it is dialled at",
            way_out="Name it: --address db1.lab --address 10.0.0.5",
        )
    _check_addresses(member.addresses)


def _check_addresses(addresses: Iterable[str]) -> None:
    for address in addresses:
        if not _NAME.fullmatch(address) and _ip(address) is None:
            raise PkiError(
                f"{address!r} is neither an IP address nor a name of DNS",
                way_out="Write it without a port, --address db1.lab; a name of other letters in its form xn--….",
            )


def write_member(ledger: Ledger, member: Member, directory: Path) -> tuple[str, ...]:
    """Keys and certificates of a member, made here, in `directory` (0700): for hosts that cannot reach the
    authority. PkiError."""
    known = {(one.serial, one.member.name) for one in ledger.issued()}
    for name in ("ca.pem", f"{member.role}.pem"):
        with contextlib.suppress(OSError, ValueError):  # there is none, or what is there has no use
            found = (directory / name).read_bytes()
            if found != ledger.authority.pem and (Shown.read(found).serial, member.name) not in known:
                what, way_out = f"{name} there is of another member or authority", "Name another directory."
                raise PkiError(what, where=str(directory), way_out=way_out)
    keys = enrolment.new_keys()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        issued = ledger.issue(member, {use: key.public_key() for use, key in keys.items()})
        return enrolment.write_files(directory, member.role, keys, issued, {"ca.pem": ledger.authority.pem})
    except OSError as error:
        raise PkiError(f"cannot write there: {error.strerror}", where=str(directory)) from error


def _left(ends_unix_s: int) -> str:
    """The remaining validity, for users."""
    seconds = ends_unix_s - time.time()
    if seconds <= 0:
        return "ended"
    return f"{seconds / 86400:.1f} d" if seconds >= 86400 else f"{seconds / 3600:.1f} h"


def rows(issued: Sequence[Issued]) -> list[tuple[str, str, str, str, str, str]]:
    """role, name, addresses, serial, how, state of each certificate, for people."""
    return [
        (
            each.member.role,
            each.member.name,
            ", ".join(each.member.addresses) or "-",
            f"{each.serial:x}",
            each.how,
            "revoked" if each.revoked_unix_s is not None else _left(each.ends_unix_s),
        )
        for each in issued
    ]


# ---- the server --------------------------------------------------------------------------------------------------
#
# gRPC in Python cannot make a client's certificate optional, so this is not a service of `agent.proto`.

ANYBODY = "anybody"
MEMBERS = frozenset({"agent", "coordinator", "operator"})
POLICY: Mapping[str, frozenset[str]] = MappingProxyType(
    {"enrol": frozenset({ANYBODY}), "renew": MEMBERS, "denied": MEMBERS}
)
"""The permitted roles of each request; `anybody` needs no certificate."""

CONNECTIONS_MAX = 128
HANDSHAKE_S = 10.0
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
        shown = self._certify()
        try:
            self._server = await asyncio.start_server(
                self._serve,
                host.strip("[]") or None,
                int(port),
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
                limit=LINE_MAX,
            )
        except (OSError, ValueError, OverflowError) as error:
            raise ProveoutError(
                f"cannot listen there: {error}", where=listen, way_out="Name another address of this host, name:port."
            ) from error
        self._renewing = asyncio.create_task(self._stay_certified(shown))
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

    def _certify(self) -> Shown:
        own = self._ledger.authority.issue("authority", self._addresses)
        load_chain(self._context, own.certificate, own.key)
        return Shown.read(own.certificate)

    async def _stay_certified(self, shown: Shown) -> None:
        """By the clock: a timer stands still while the machine is suspended."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            if shown.due(datetime.now(UTC)):
                shown = self._certify()

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
        writer.write(json_line({"ca": self._ledger.authority.pem.decode()}))
        request = _request(await reader.readline())
        shown = _shown(writer.get_extra_info("ssl_object"))
        answer = await asyncio.to_thread(self._answer, request, shown)
        outcome = answer.get("error", answer.get("role", "done"))
        _log.info("%s %s: %s", peer[0], _named(request), outcome)
        writer.write(json_line(answer))
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
        if what == "denied":
            return {"denied": [f"{serial:x}" for serial in sorted(self._ledger.denied())]}
        answer: dict[str, Any] = {}
        if what == "renew":
            assert shown is not None  # noqa: S101 - the policy lets members only
            made = self._ledger.renew(shown.serial, _keys(request))
        else:
            token = request.get("token")
            if not isinstance(token, str):
                raise Refusal("the request has no token")
            member, made = self._ledger.redeem(token, _keys(request))
            answer = {"role": member.path}
        return {**answer, "certificates": {use: pem.decode() for use, pem in made.items()}}


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


async def serve(
    directory: Path, listen: str, addresses: Sequence[str], ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve the authority in `directory` until `stop`; `ready` is called with the address. ProveoutError when it cannot
    start."""
    _check_addresses(addresses)
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
    expected_end = datetime.now(UTC) + timedelta(seconds=run_s)
    if not _is_due(directory) and expected_end >= shown.ends:
        tell("warning", f"{_ends(directory)}, before this run may be over: {by_hand}")
        return
    while not _is_due(directory):  # noqa: ASYNC110 -- a certificate expires without a signal
        await asyncio.sleep(ASK_EVERY_S)
    tell("warning", f"{_ends(directory)}: {by_hand}")


def _renewal_shown(directory: Path) -> Shown | None:
    """The certificate of the coordinator that ends first."""
    try:
        shown = (Shown.read((directory / f"{part}.pem").read_bytes()) for part in parts_of(ROLE))
        return min(shown, key=lambda one: one.ends)
    except (OSError, ValueError):  # the next connection reports the error
        return None


def _is_due(directory: Path) -> bool:
    shown = _renewal_shown(directory)
    return shown is not None and shown.due(datetime.now(UTC))


def _end(directory: Path) -> str:
    shown = _renewal_shown(directory)
    return f"{shown.ends:%Y-%m-%d %H:%M} UTC" if shown is not None else "an end that cannot be read"


def _ends(directory: Path) -> str:
    return f"the coordinator's certificates ({directory}) count until {_end(directory)}"
