"""Requests to the certificate authority: enrol with a token, renew certificates, fetch the list of revoked ones.

Flow: `enrol(…)` on a new host, once; `renew(directory)` and `fetch_denied(directory)` from then on. One request and one
answer per connection, each a line of JSON over TLS 1.3; the server is in `coordinator.certificates`.

A host that enrols has only the SHA-256 of the authority's certificate. The first answer on the connection is that
certificate; it is accepted when it has that hash and has signed the certificate of this TLS connection. Only then is
the token sent. Keys are made here and stay here: requests carry a CSR.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from proveout.core.errors import ProveoutError, one_line
from proveout.core.json_data import json_line
from proveout.proto.signing import AUTHORITY, DENIED, Shown, client_context, denied_text, replace_file

LINE_MAX = 64 * 1024
ANSWER_S = 15.0
HASH = re.compile(r"sha256:([0-9a-f]{64})")
ROLES = ("agent", "coordinator", "operator")

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class EnrolmentError(ProveoutError):
    """The authority cannot be reached, is not the expected one, or refuses."""


def fingerprint(certificate: x509.Certificate) -> str:
    """`sha256:…` of a certificate's DER form."""
    return f"sha256:{certificate.fingerprint(hashes.SHA256()).hex()}"


def parts_of(role: str) -> tuple[str, ...]:
    """The names of the certificates that a role has in its directory: a coordinator signs its tasks with a second
    one."""
    return ("coordinator", "signer") if role == "coordinator" else (role,)


async def enrol(address: str, ca_hash: str, token: str, directory: Path) -> str:
    """Enrol: make keys in `directory` (0700), and store the authority's certificates beside them. Returns the role,
    `agent/db1`.

    EnrolmentError when the directory has certificates already, or the authority is another one or refuses.
    """
    if HASH.fullmatch(ca_hash) is None:
        raise EnrolmentError("not a valid hash of an authority", where="--ca-hash", way_out="It reads sha256:….")
    is_new, keys = _make_room(directory), new_keys()
    request = {"do": "enrol", "token": token, "csr": {name: _csr(key) for name, key in keys.items()}}
    try:
        answer, ca = await _first_contact(address, ca_hash, request)
    except BaseException:
        if is_new:
            directory.rmdir()  # noqa: ASYNC240 - the command has no other task
        raise
    role, certificates = str(answer["role"]), {use: str(pem).encode() for use, pem in answer["certificates"].items()}
    others = {AUTHORITY: f"{address}\n".encode(), "ca.pem": ca}
    try:
        write_files(directory, role.partition("/")[0], keys, certificates, others)
    except OSError as error:
        raise EnrolmentError(
            f"the keys cannot be written: {error.strerror}",
            where=str(directory),
            way_out="Make room there, and have another token made: `proveout pki invite`.",
        ) from error
    return role


def new_keys() -> dict[str, Key]:
    """The private keys of a member by their use."""
    return {"tls": ec.generate_private_key(ec.SECP256R1()), "sign": ed25519.Ed25519PrivateKey.generate()}


def write_files(
    directory: Path, role: str, keys: Mapping[str, Key], certificates: Mapping[str, bytes], others: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Write the keys and certificates (PEM) of a role, and other files, into a directory (0700); the names of all."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    parts = dict(zip(keys, parts_of(role), strict=False))
    for use, part in parts.items():  # before any certificate: while there is none, the directory can be enrolled again
        replace_file(directory / f"{part}.key", key_pem(keys[use]))
    for name, content in {**{f"{part}.pem": certificates[use] for use, part in parts.items()}, **others}.items():
        replace_file(directory / name, content, 0o644)
    return (*others, *(f"{part}.{kind}" for part in parts.values() for kind in ("pem", "key")))


def _make_room(directory: Path) -> bool:
    """Create the directory before the token is used, which works once; True when it is new. EnrolmentError when it
    cannot be used."""
    is_new = not directory.exists()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            taken = sorted(path.name for path in directory.glob("*.pem"))
    except OSError as error:
        raise EnrolmentError(
            f"no keys can be written there: {error.strerror}",
            where=str(directory),
            way_out="Make the directory for the user that the agent will run as, or name another with --pki. "
            "The token is still valid.",
        ) from error
    if taken:
        raise EnrolmentError(
            f"{taken[0]} is here already", where=str(directory), way_out="Remove the old certificates first."
        )
    return is_new


async def renew(directory: Path, role: str, now: datetime.datetime | None = None) -> bool:
    """Renew the certificates in `directory` when they are due; True when they were. The keys stay.

    False as well when the directory names no authority. EnrolmentError when it cannot be reached or refuses, or they
    cannot be written.
    """
    address = authority_of(directory)
    moment = now or datetime.datetime.now(datetime.UTC)
    parts = dict(zip(("tls", "sign"), parts_of(role), strict=False))
    try:
        shown = (Shown.read((directory / f"{part}.pem").read_bytes()) for part in parts.values())
        if address is None or not any(one.due(moment) for one in shown):
            return False
        csr = {use: _csr(_read_key(directory / f"{part}.key")) for use, part in parts.items()}
    except (OSError, ValueError, TypeError) as error:  # TypeError: a key with a password
        raise _unreadable(directory, error) from error
    answer = await _ask(address, _context(directory, role), {"do": "renew", "csr": csr}, "certificates")
    try:
        for use, part in parts.items():
            replace_file(directory / f"{part}.pem", str(answer["certificates"][use]).encode(), 0o644)
    except OSError as error:
        raise EnrolmentError(
            f"the renewed certificates cannot be written: {error.strerror}",
            where=str(directory),
            way_out="Make room there and renew them again; those of before are valid until they end.",
        ) from error
    return True


async def fetch_denied(directory: Path, role: str) -> None:
    """Update the directory's file `denied`. EnrolmentError when the authority cannot be reached."""
    address = authority_of(directory)
    if address is None:
        return
    answer = await _ask(address, _context(directory, role), {"do": "denied"}, "denied")
    text = denied_text(int(serial, 16) for serial in answer["denied"])
    path = directory / DENIED
    if not path.exists() or path.read_bytes() != text.encode():
        replace_file(path, text.encode(), 0o644)


def authority_of(directory: Path) -> str | None:
    """The address of the authority of a directory's certificates; None when they were issued by hand."""
    try:
        return (directory / AUTHORITY).read_text().strip() or None
    except OSError:
        return None


# ---- one request -----------------------------------------------------------------------------------------------------


def _context(directory: Path, role: str) -> ssl.SSLContext:
    try:
        return client_context(*((directory / name).read_bytes() for name in ("ca.pem", f"{role}.pem", f"{role}.key")))
    except (OSError, ValueError) as error:
        raise _unreadable(directory, error) from error


def _unreadable(directory: Path, error: Exception) -> EnrolmentError:
    what = f"its certificates and keys cannot be read: {one_line(error)}"
    return EnrolmentError(what, where=str(directory), way_out="Enrol it again, in a new directory.")


async def _ask(address: str, context: ssl.SSLContext, request: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Send a request to an authority that is verified by its certificate."""
    async with _Line(address, context) as line:
        await line.read()
        return await line.ask(request, part)


async def _first_contact(address: str, ca_hash: str, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Send a request to an authority that is verified by its hash. Returns the answer and its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # checked below, before any request
    async with _Line(address, context) as line:
        ca = str((await line.read()).get("ca", "")).encode()
        _check(address, ca, ca_hash, line.certificate)
        return await line.ask(request, "role", "certificates"), ca


def _check(address: str, ca: bytes, ca_hash: str, shown: bytes) -> None:
    """Check that `ca` has the hash, and has signed the certificate of the connection. EnrolmentError."""
    way_out = (
        "Another process may be answering there. Compare the hash with the one that `proveout pki invite` printed."
    )
    try:
        authority = x509.load_pem_x509_certificate(ca)
        if fingerprint(authority) != ca_hash:
            raise EnrolmentError(
                f"another authority answers there: {fingerprint(authority)}", where=address, way_out=way_out
            )
        leaf = x509.load_der_x509_certificate(shown)
        leaf.verify_directly_issued_by(authority)
        now = datetime.datetime.now(datetime.UTC)
        if "authority" not in Shown.of(leaf).roles:
            raise EnrolmentError("what answers there is not the authority itself", where=address, way_out=way_out)
        if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
            times = f"{leaf.not_valid_before_utc:%Y-%m-%d %H:%M} to {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
            raise EnrolmentError(
                f"the authority's certificate is valid from {times}, but here it is {now:%Y-%m-%d %H:%M}",
                where=address,
                way_out="Set the clock of this host, or of the authority's.",
            )
    except (ValueError, TypeError, InvalidSignature) as error:
        raise EnrolmentError("what answers there is not the authority", where=address, way_out=way_out) from error


class _Line:
    """One connection: lines of JSON, each bounded in size and time."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        self._address, self._context = address, context

    async def __aenter__(self) -> _Line:
        host, _, port = self._address.rpartition(":")
        invalid = EnrolmentError("not a valid address", where=self._address, way_out="Write it as name:port.")
        if not host:
            raise invalid
        try:
            async with asyncio.timeout(ANSWER_S):
                self._reader, self._writer = await asyncio.open_connection(
                    host.strip("[]"), int(port), ssl=self._context, limit=LINE_MAX
                )
        except ssl.SSLCertVerificationError as error:
            raise EnrolmentError(
                f"the authority's certificate is not accepted: {error.verify_message}",
                where=self._address,
                way_out="Compare this host's clock with the authority's, and the authority "
                "with the one of the invitation.",
            ) from error
        except ssl.SSLError as error:
            raise EnrolmentError(
                f"what listens there does not speak TLS as an authority does: {error.reason or error}",
                where=self._address,
                way_out="Compare the address with the one that `proveout pki serve` printed.",
            ) from error
        except (ValueError, OverflowError) as error:  # of the port, or of the name
            raise invalid from error
        except OSError as error:  # TimeoutError is one
            # asyncio replaces the system's message with its own; the codes of a resolver are negative.
            code = error.errno or 0
            words = os.strerror(code) if code > 0 else error.strerror or str(error) or "no answer"
            raise EnrolmentError(
                f"the authority cannot be reached: {words}",
                where=self._address,
                way_out="Is `proveout pki serve` running there, and does a firewall let this port through?",
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    @property
    def certificate(self) -> bytes:
        """The certificate of the other side, DER."""
        shown = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return bytes(shown or b"")

    async def ask(self, request: Mapping[str, Any], *parts: str) -> dict[str, Any]:
        """Send a request and return the answer, which has `parts`. EnrolmentError when it is refused."""
        self._writer.write(json_line(request))
        answer = await self.read(*parts)
        if "error" in answer:
            raise EnrolmentError(
                f"the authority refused: {answer['error']}", where=self._address, way_out=str(answer.get("way_out", ""))
            )
        return answer

    async def read(self, *parts: str) -> dict[str, Any]:
        unreadable = EnrolmentError(
            "the authority gave no answer that can be read",
            where=self._address,
            way_out="It answers nothing to a certificate that has ended, or that is of another authority: enrol again "
            "then, in a new directory.",
        )
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = json.loads(await self._reader.readline())
        except (OSError, TimeoutError, ValueError, RecursionError) as error:
            raise unreadable from error
        if not isinstance(answer, dict) or not ("error" in answer or answer.keys() >= {*parts}):
            raise unreadable
        return answer


def _csr(key: Key) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proveout")])  # the authority decides on all names
    algorithm = hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, algorithm)
    return request.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_key(path: Path) -> Key:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(key, (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey))  # noqa: S101 - `enrol` makes no other
    return key


def token_hash(token: str) -> str:
    """The hash of a token, which the authority stores."""
    return hashlib.sha256(token.encode()).hexdigest()
