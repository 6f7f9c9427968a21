"""Access control of a Ray cluster that proveout forms: a token and a certificate, made for one run only.

Flow: `Secrets.new()` -> `write(directory)` on each node -> the environment for Ray's processes. Ray has no access
control by default: with RAY_AUTH_MODE=token every call needs the token, with RAY_USE_TLS=1 every connection needs a
certificate of the cluster's authority on both sides. `is_open` checks whether a cluster accepts calls without them.
Source: ray/_private/authentication and ray/_common/tls_utils.py of Ray 2.60.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import secrets as random
import socket
from pathlib import Path

import grpc
import grpc.aio
import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proveout.proto.wire.tasks import ClusterSecrets

VALID_DAYS = 31
SKEW_H = 24
PROBE_S = 5.0
PROBED = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"


class Secrets:
    """The token of a cluster, and the authority that signs the certificates of its nodes."""

    def __init__(self, secrets: ClusterSecrets) -> None:
        self._secrets = secrets

    @classmethod
    def new(cls) -> Secrets:
        """New secrets for a cluster of this host only."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("proveout ray authority")
        certificate = (
            _certificate(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        token = random.token_hex(32)
        return cls(ClusterSecrets(token=token, authority=_pem(certificate), authority_key=_key_pem(key)))

    def write(self, directory: Path) -> dict[str, str]:
        """Write a node's files into its private directory, 0600, with a new certificate for this host's addresses."""
        authority = x509.load_pem_x509_certificate(self._secrets.authority.encode())
        issuer = serialization.load_pem_private_key(self._secrets.authority_key.encode(), password=None)
        assert isinstance(issuer, ec.EllipticCurvePrivateKey)  # noqa: S101 - `new` makes no other
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate(_name("proveout ray node"), authority.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName(_names_of_this_host()), critical=False)
            .sign(issuer, hashes.SHA256())
        )
        for name, text in (
            ("token", self._secrets.token),
            ("authority.pem", self._secrets.authority),
            ("node.pem", _pem(certificate)),
            ("node.key", _key_pem(key)),
        ):
            _write_private(directory / name, text)
        return self.environment(directory)

    def environment(self, directory: Path) -> dict[str, str]:
        """Environment of a process of the cluster, after `write` for this directory."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(directory / "token"),
            "RAY_USE_TLS": "1",
            "RAY_TLS_CA_CERT": str(directory / "authority.pem"),
            "RAY_TLS_SERVER_CERT": str(directory / "node.pem"),
            "RAY_TLS_SERVER_KEY": str(directory / "node.key"),
            "RAY_USAGE_STATS_ENABLED": "0",
            # The metrics endpoint needs no token; nothing here uses it
            "RAY_enable_metrics_collection": "0",
            "RAY_TMPDIR": str(directory / "t"),
            # Ray's default is 15: load workers would wait for all other work on the host
            "RAY_worker_niceness": "0",
            # A lost node is detected within 6 s, below the agents' lease of 10 s
            "RAY_health_check_initial_delay_ms": "2000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
        }


async def is_open(address: str) -> bool:
    """Whether the cluster with its GCS at `name:port` answers a call without token and certificate."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(PROBED, request_serializer=bytes, response_deserializer=bytes)
        try:
            await call(b"", timeout=PROBE_S)
        except grpc.aio.AioRpcError:
            return False
    return True


async def answers(address: str) -> bool:
    """Whether anything listens at `name:port`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _names_of_this_host() -> list[x509.GeneralName]:
    addresses = {
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }
    names = {"localhost", socket.gethostname()}
    return [
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses | {"127.0.0.1"})),
        *(x509.DNSName(name) for name in sorted(names)),
    ]


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=SKEW_H))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
