"""Roles in X.509 certificates, the list of revoked ones, and the signatures of tasks.

Flow: `Signer(credentials)` -> `sign(bytes of a task, addressee)` -> over the wire -> `Verifier`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.proto.wire.tasks import SignedTask

URI = "proveout://"
DENIED = "denied"
AUTHORITY = "authority"
_SERIAL = re.compile(rb"[0-9A-Fa-f]{1,40}")


@record
class Shown:
    """The contents of a certificate. Times are UTC."""

    serial: int
    roles: frozenset[str]
    begins: datetime.datetime
    ends: datetime.datetime

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Self:
        """The contents of a certificate object."""
        return cls(
            serial=certificate.serial_number,
            roles=roles_of_uris(_uris(certificate)),
            begins=certificate.not_valid_before_utc,
            ends=certificate.not_valid_after_utc,
        )

    @classmethod
    def read(cls, pem: bytes) -> Self:
        """The contents of the first certificate of a PEM. ValueError when there is none."""
        return cls.of(x509.load_pem_x509_certificate(pem))

    def due(self, now: datetime.datetime) -> bool:
        """Whether two thirds of its life are over, and a new one should be had."""
        return now >= self.begins + (self.ends - self.begins) * 2 / 3


def roles_of_uris(uris: Iterable[str]) -> frozenset[str]:
    """The roles among URIs: `proveout://agent/db1` is `agent/db1`."""
    return frozenset(uri.removeprefix(URI) for uri in uris if uri.startswith(URI))


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


class Denied:
    """The serial numbers in a file, one in hexadecimal a line, `#` begins a remark; none while there is no file.

    A mistake must not admit a revoked certificate: valid lines count beside an invalid one, and while the file cannot
    be read, or has such a line, the numbers read before count as well. Servers and clients call `check` before they
    start, when there are none yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._serials: frozenset[int] = frozenset()

    def serials(self) -> frozenset[int]:
        """Those that are denied now."""
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                serials, odd = self._read()
                self._serials = self._serials | serials if odd else serials
                self._stamp = stamp
        except OSError:
            pass
        return self._serials

    def check(self) -> None:
        """ProveoutError when there is a file, and not all of it can be read."""
        try:
            _, odd = self._read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unread(self.path, error.strerror or "it cannot be read") from error
        if odd:
            raise _unread(self.path, f"line {odd[0]} is not a serial number in hexadecimal")

    def _read(self) -> tuple[frozenset[int], tuple[int, ...]]:
        """The numbers, and which lines are none."""
        serials: set[int] = set()
        odd: list[int] = []
        for number, line in enumerate(self.path.read_bytes().splitlines(), 1):
            word = line.partition(b"#")[0].strip()
            if _SERIAL.fullmatch(word):
                serials.add(int(word, 16))
            elif word:
                odd.append(number)
        return frozenset(serials), tuple(odd)


def _unread(path: Path, why: str) -> ProveoutError:
    way_out = "Write one serial number a line, as `proveout pki list` shows them, or copy the authority's file again."
    return ProveoutError(f"the list of revoked certificates cannot be read: {why}", where=str(path), way_out=way_out)


def denied_text(serials: Iterable[int]) -> str:
    """The content of a file of denied serial numbers."""
    return "".join(f"{serial:x}\n" for serial in sorted(serials))


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Put `content` at `path` in one step, on disk before it is seen."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Give a TLS context its certificate from memory: the ssl module reads files only, so this is one without a
    name."""
    descriptor = os.memfd_create("chain", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def client_context(ca: bytes, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
    """TLS 1.3 of a client that trusts `ca` alone and shows its own certificate when it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=ca.decode())
    if certificate:
        load_chain(context, certificate, key)
    return context


VALID_S = 24 * 3600
"""The validity of a signed task; far above any difference of clocks in a lab, whose agents need not agree on the
time."""


@record
class Addressee:
    """The addressee of a task: the agent by its certificate's role (`agent/db1`), the run and its fencing epoch."""

    agent: str
    run: str
    epoch: int


class _Counter:
    """Numbers that only grow, also over processes of one host: nanoseconds of the clock, or one more than the last."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return self._last


_counter = _Counter()


class Signer:
    """Signs tasks with an Ed25519 key, PEM."""

    def __init__(self, key: bytes) -> None:
        try:
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:  # TypeError: a key with a password
            raise ProveoutError("signer.key cannot be read", way_out="Issue the coordinator's files again.") from error
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise ProveoutError("signer.key is of another kind", way_out="Issue the coordinator's files again.")
        self._key = private

    def sign(self, task: bytes, to: Addressee) -> SignedTask:
        """The bytes of a task with a signature, number and end."""
        signed = SignedTask(task=task, sequence=_counter.next(), expires_unix_s=int(time.time()) + VALID_S)
        return replace(signed, signature=self._key.sign(_statement(signed, to)))


class Verifier:
    """Checks the tasks of one signer. ValueError for a certificate that `authority` does not vouch for as one."""

    def __init__(self, signer: bytes, authority: bytes, denied: frozenset[int]) -> None:
        certificate = x509.load_pem_x509_certificate(signer)
        try:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        except (InvalidSignature, TypeError) as error:
            raise ValueError("the signer's certificate is of another authority") from error
        shown = Shown.of(certificate)
        key = certificate.public_key()
        if "signer" not in shown.roles or not isinstance(key, ed25519.Ed25519PublicKey):
            raise ValueError("the certificate is not a signer's")
        if shown.serial in denied:
            raise ValueError("the signer's certificate was revoked")
        if not shown.begins <= datetime.datetime.now(datetime.UTC) <= shown.ends:
            raise ValueError("the signer's certificate is not in force")
        self._key = key

    def objection(self, task: SignedTask, to: Addressee) -> str:
        """The reason to refuse a task, or ""; the agent's journal checks its sequence number."""
        try:
            self._key.verify(task.signature, _statement(task, to))
        except InvalidSignature:
            return (
                "it is not signed for this agent, run and epoch by the run's coordinator"
                if task.signature
                else "it is not signed"
            )
        if task.expires_unix_s < time.time():
            return "its signature has expired"
        return ""


def _statement(task: SignedTask, to: Addressee) -> bytes:
    """The signed bytes, see `SignedTask`: with its length before each part, no two statements have the same ones."""
    texts = ("proveout task", to.agent, to.run, to.epoch, task.sequence, task.expires_unix_s)
    parts = (*(str(text).encode() for text in texts), task.task)
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
