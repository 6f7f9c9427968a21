"""Task signatures: an agent accepts only tasks that a signer of its own authority has signed for it.

Flow: `TrustStore(directory)` -> `objection(hello)` for a new session -> `verifier(hello)` ->
`TaskVerifier.objection(task)` for each new task. The files of the directory are read each time, so renewal and
revocation need no restart.
"""

from __future__ import annotations

from pathlib import Path

from proveout.agent.security.authz import Identity
from proveout.proto.trust.identities import DENIED, Denied, Shown
from proveout.proto.trust.task_signing import Addressee, Verifier
from proveout.proto.wire.messages import Hello
from proveout.proto.wire.tasks import Task


class TaskVerifier:
    """Verifies the tasks of one coordinator to this agent."""

    def __init__(self, verifier: Verifier, to: Addressee) -> None:
        self._verifier, self._to = verifier, to

    def objection(self, task: Task, digest: str = "") -> str:
        """The reason against the signature of a task; "" if it is valid. `digest`: its `task_digest`, if the caller has
        it.
        """
        return self._verifier.objection(task, self._to, digest)


class TrustStore:
    """Certificates that an agent trusts: from its directory, or from an identity in memory."""

    def __init__(self, source: Path | Identity) -> None:
        self._source = source
        self._denied = Denied(source / DENIED) if isinstance(source, Path) else None

    def objection(self, hello: Hello) -> str:
        """The reason against tasks of the sender of a Hello; "" if they are accepted."""
        try:
            self.verifier(hello)
        except ValueError as error:
            return str(error) if hello.signer else "the Hello of the coordinator has no certificate of a task signer"
        except OSError as error:
            return f"the agent cannot read its own certificates: {error.strerror}"
        return ""

    def verifier(self, hello: Hello) -> TaskVerifier:
        """The verifier for the sender of a Hello. ValueError for its certificate, OSError for the agent's files."""
        authority, certificate = self._certificates()
        denied = self._denied.serials() if self._denied is not None else frozenset()
        verifier = Verifier(hello.signer.encode(), authority, denied)
        own = Shown.read(certificate)
        role = next((role for role in sorted(own.roles) if role.startswith("agent/")), "")
        return TaskVerifier(verifier, Addressee(agent=role, run=hello.run_id, epoch=hello.epoch))

    def _certificates(self) -> tuple[bytes, bytes]:
        """The certificates of the authority and of the agent. OSError."""
        if isinstance(self._source, Identity):
            return self._source.ca, self._source.certificate
        return (self._source / "ca.pem").read_bytes(), (self._source / "agent.pem").read_bytes()
