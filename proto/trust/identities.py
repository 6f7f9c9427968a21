"""Roles in X.509 certificates, and the list of revoked certificates. Shared by both sides of the wire.

Flow: PEM or DER -> `Shown` (serial, roles, end of validity); a directory's file `denied` -> `Denied`, read again when
the file changes, so that a revocation takes effect without a restart. A role is the path of a URI `proveout://…` in the
subject alternative name: `coordinator`, `operator`, `authority`, `signer`, `agent/<host>`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from cryptography import x509

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError

URI = "proveout://"
DENIED = "denied"
AUTHORITY = "authority"
_SERIAL = re.compile(rb"[0-9A-Fa-f]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
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
