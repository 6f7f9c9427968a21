"""Signatures of tasks: the coordinator signs each task, and the agent verifies it.

Flow: `Signer(credentials of the signer)` -> `sign(task, addressee)` -> over the wire -> `Verifier(certificate)` ->
`objection(task, addressee)`, "" when there is none. The signed data (Ed25519) are the task's digest, the agent, run and
epoch that it is for, a growing sequence number, and the end of its validity. The certificate arrives with `Hello`; an
agent accepts one that its own authority has issued to a `signer`, that is valid and not revoked.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import threading
import time
from dataclasses import replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.proto.trust.identities import Shown
from proveout.proto.wire.codec import task_digest
from proveout.proto.wire.tasks import Task

VALID_S = 24 * 3600
"""The validity of a signed task; far above any difference of clocks in a lab, whose agents need not agree on the
time."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        except ValueError as error:
            raise ProveoutError("signer.key cannot be read", way_out="Issue the coordinator's files again.") from error
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise ProveoutError("signer.key is of another kind", way_out="Issue the coordinator's files again.")
        self._key = private

    def sign(self, task: Task, to: Addressee, digest: str = "") -> Task:
        """The task with its signature, number and end. `digest` is the task's, when it is known already."""
        numbered = replace(task, sequence=_counter.next(), expires_unix_s=int(time.time()) + VALID_S, signature="")
        signature = base64.b64encode(self._key.sign(_statement(numbered, to, digest))).decode()
        return replace(numbered, signature=signature)


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

    def objection(self, task: Task, to: Addressee, digest: str = "") -> str:
        """The reason to refuse a task, or ""; the agent's journal checks its sequence number.

        `digest` is the result of `task_digest`, when it is computed already.
        """
        try:
            self._key.verify(base64.b64decode(task.signature, validate=True), _statement(task, to, digest))
        except (InvalidSignature, binascii.Error, ValueError):
            return (
                "it is not signed for this agent, run and epoch by the run's coordinator"
                if task.signature
                else "it is not signed"
            )
        if task.expires_unix_s < time.time():
            return "its signature has expired"
        return ""


def _statement(task: Task, to: Addressee, digest: str) -> bytes:
    digest = digest or task_digest(task)
    parts = ["proveout task", to.agent, to.run, to.epoch, task.sequence, task.expires_unix_s, digest]
    return json.dumps(parts).encode()
