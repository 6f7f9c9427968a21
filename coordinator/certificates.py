"""The certificate authority of a lab: its key, the certificates that it issues, and its ledger of members."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, timedelta
from datetime import datetime as date_time
from pathlib import Path
from types import MappingProxyType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.proto.audit_log import FILE, AuditLog
from proveout.proto.enrolment import ROLES, fingerprint, parts_of, token_hash
from proveout.proto.signing import DENIED, URI, denied_text, replace_file
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

VALIDITY = datetime.timedelta(days=7)
CLOCK_SLACK = datetime.timedelta(minutes=5)


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

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, validity: datetime.timedelta
    ) -> None:
        self._certificate = certificate
        self._key = key
        self.validity = validity

    @classmethod
    def create(cls, validity: datetime.timedelta = VALIDITY, lifetime: datetime.timedelta | None = None) -> Self:
        """A fresh authority, self-signed, path length 0; it lives as long as what it issues, or for `lifetime`."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("proveout fabric authority")
        usage = _key_usage(signs_certificates=True)
        builder = _builder(name, name, key.public_key(), lifetime or validity)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key, validity)

    @classmethod
    def load(cls, pem: bytes, key_pem: bytes, validity: datetime.timedelta) -> Self:
        """The authority of a certificate and its key. ValueError when they are not."""
        key = serialization.load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of an authority is an elliptic curve's")
        return cls(x509.load_pem_x509_certificate(pem), key, validity)

    @property
    def certificate(self) -> x509.Certificate:
        return self._certificate

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> str:
        """Its own key: for nodes that sign their certificates themselves."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def issue_coordinator(self) -> Credentials:
        """Credentials of a coordinator: a client certificate, and one that it signs tasks with."""
        signing = ed25519.Ed25519PrivateKey.generate()
        signer = self.certify("signer", (), signing.public_key())
        found = self._credentials("coordinator", ())
        return replace(found, signer=_cert_pem(signer), signer_key=_key_pem(signing))

    def issue_agent(self, host: str, addresses: Sequence[str]) -> Credentials:
        """Credentials of the agent of `host`: a certificate for the names and IP addresses it is dialled at."""
        return self._credentials(f"agent/{host}", addresses)

    def issue_authority(self, addresses: Sequence[str]) -> Credentials:
        """Credentials of the authority's own server."""
        return self._credentials("authority", addresses)

    def certify(self, role: str, addresses: Sequence[str], key: PublicKey) -> x509.Certificate:
        """A certificate for the holder of `key`: the role as a URI, the names and IP addresses, and what it may be used
        for."""
        kind = role.partition("/")[0]
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"{URI}{role}")]
        names += [_general_name(address) for address in addresses]
        return self._sign(f"proveout {kind}", names, USES[kind], key)

    def write_agent(self, directory: Path, host: str, addresses: Sequence[str]) -> None:
        """Make `directory` (0700) with `ca.pem`, `agent.pem` and `agent.key` (0600) as `proveout agent --pki` reads
        them."""
        credentials = self.issue_agent(host, addresses)
        _write(
            directory, {"agent.pem": credentials.certificate, "agent.key": credentials.key, "ca.pem": credentials.ca}
        )

    def write_coordinator(self, directory: Path) -> None:
        """Make `directory` (0700) with the files that `Credentials.read` reads."""
        it = self.issue_coordinator()
        files = {"coordinator.pem": it.certificate, "coordinator.key": it.key, "ca.pem": it.ca}
        _write(directory, {**files, "signer.pem": it.signer, "signer.key": it.signer_key})

    def _credentials(self, role: str, addresses: Sequence[str]) -> Credentials:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certify(role, addresses, key.public_key())
        return Credentials(ca=self.pem, certificate=_cert_pem(certificate), key=_key_pem(key))

    def _sign(
        self,
        common_name: str,
        names: Sequence[x509.GeneralName],
        uses: Sequence[x509.ObjectIdentifier],
        key: PublicKey,
    ) -> x509.Certificate:
        builder = _builder(_name(common_name), self._certificate.subject, key, self.validity)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _cert_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: PublicKey, validity: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + validity)
    )


def cluster_secrets() -> ClusterSecrets:
    """A fresh token, and a fresh authority whose key the nodes of a Ray cluster sign their own certificates with."""
    authority = Authority.create()
    return ClusterSecrets(
        token=secrets.token_hex(32), authority=authority.pem.decode(), authority_key=authority.key_pem
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    for name, content in files.items():
        path = directory / name
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)


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
    begins_unix_s: int
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
            replace_file(directory / "ca.key", authority.key_pem.encode())
            replace_file(directory / "ca.pem", authority.pem, 0o644)
        except OSError as error:
            raise PkiError(f"cannot write there: {error.strerror}", where=str(directory)) from error
        made = cls(directory, authority)
        made._db.execute("INSERT INTO validity VALUES (?)", (round(validity.total_seconds()),))
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
        found = cls(directory, authority)
        row = found._db.execute("SELECT seconds FROM validity").fetchone()
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
        """All or nothing, alone among threads and processes."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

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
        with self._lock:
            rows = self._db.execute("SELECT * FROM issued ORDER BY begins_unix_s, role, name, serial").fetchall()
        return tuple(
            Issued(
                serial=int(serial, 16),
                member=Member(role=role, name=name, addresses=tuple(json.loads(addresses))),
                begins_unix_s=begins,
                ends_unix_s=ends,
                how=how,
                revoked_unix_s=revoked,
            )
            for serial, role, name, addresses, begins, ends, how, revoked in rows
        )

    def revoke(self, who: str) -> tuple[Issued, ...]:
        """Revoke all certificates of a name, or one by its serial number in hexadecimal; returns those revoked.

        Rewrites the file `denied`. PkiError when no member has that name.
        """
        wanted = [
            issued
            for issued in self.issued()
            if issued.revoked_unix_s is None and who in (issued.member.name, f"{issued.serial:x}")
        ]
        if not wanted:
            raise PkiError(
                f"nothing of {who} is in force", way_out="`proveout pki list DIR` shows names and serial numbers."
            )
        self.audit.note("revoke", who=who, certificates=len(wanted))
        with self._transaction():
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
            self._note(certificate, member, how)
            made[use] = certificate.public_bytes(serialization.Encoding.PEM)
        return made

    def _note(self, certificate: x509.Certificate, member: Member, how: str) -> None:
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        row = (f"{certificate.serial_number:x}", member.role, member.name, json.dumps(member.addresses))
        times = (round(begins.timestamp()), round(ends.timestamp()))
        self._db.execute("INSERT INTO issued VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", (*row, *times, how))


def check(member: Member) -> None:
    """PkiError when there can be no such member."""
    if member.role not in ROLES:
        raise PkiError(f"there is no role {member.role!r}", way_out=f"One of {', '.join(ROLES)}.")
    if not member.name or not all(character.isalnum() or character in "._-" for character in member.name):
        raise PkiError(
            f"{member.name!r} is not a valid name", way_out="Letters, digits, dots, hyphens and underscores."
        )
    if member.role == "agent" and not member.addresses:
        raise PkiError(
            "an agent is recognised by the address that it is dialled at",
            way_out="Name it: --address db1.lab --address 10.0.0.5",
        )
    if any(":" in address and "::" not in address and address.count(":") < 2 for address in member.addresses):
        raise PkiError("an address of a certificate has no port", way_out="Write --address db1.lab, not db1.lab:7443.")


def write_member(ledger: Ledger, member: Member, directory: Path) -> tuple[str, ...]:
    """Keys and certificates of a member, made here, in `directory` (0700): for hosts that cannot reach the
    authority."""
    private: dict[str, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey] = {
        "tls": ec.generate_private_key(ec.SECP256R1()),
        "sign": ed25519.Ed25519PrivateKey.generate(),
    }
    issued = ledger.issue(member, {use: key.public_key() for use, key in private.items()})
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    names: list[str] = []
    for part, use in zip(parts_of(member.role), private, strict=False):
        key = private[use].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        replace_file(directory / f"{part}.key", key)
        replace_file(directory / f"{part}.pem", issued[use], 0o644)
        names += [f"{part}.pem", f"{part}.key"]
    replace_file(directory / "ca.pem", ledger.authority.pem, 0o644)
    return ("ca.pem", *names)


def left(ends_unix_s: int, now: date_time | None = None) -> str:
    """The remaining validity, for users."""
    seconds = ends_unix_s - (now or date_time.now(UTC)).timestamp()
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
            "revoked" if each.revoked_unix_s is not None else left(each.ends_unix_s),
        )
        for each in issued
    ]
