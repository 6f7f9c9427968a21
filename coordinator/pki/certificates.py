"""Certificates of the fabric: a certificate authority, the certificates that it issues, and the files that agents read.

Flow: `Authority.create()` -> `issue_coordinator()` returns the coordinator's `Credentials`, `write_agent(directory, …)`
writes the three files of an agent. The key of a throw-away authority stays in memory; that of a lab is in a directory
with a ledger (`ca`). A certificate has its role in a URI of its subject alternative name, `proveout://coordinator` or
`proveout://agent/<host>`; agents accept only a coordinator. The coordinator verifies the dialled address against the
agent's certificate, and the agent checks its host name in `Hello`.

A coordinator has a second certificate, `proveout://signer`, which signs tasks and is not valid for TLS. Keys are EC
P-256, the signer's Ed25519; files with a key are 0600 in a directory of 0700.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.proto.trust.identities import URI
from proveout.proto.wire.tasks import ClusterSecrets

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Its own certificate."""
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

    def _issue(self, common_name: str, names: Sequence[x509.GeneralName], use: x509.ObjectIdentifier) -> Credentials:
        """Credentials with any names: for tests of what is refused."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(common_name, names, (use,), key.public_key())
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
