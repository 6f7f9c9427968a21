"""Whose tasks an agent takes: those that a signer of its own authority has signed for it.

Flow: `Trust(directory)` -> `objection(hello)` when a session is asked for -> `orders(hello)` -> `Orders.objection(task)` for each
task that is new. What the directory holds is read each time, so renewal and revocation need no restart.
"""

from __future__ import annotations

from pathlib import Path

from proveout.agent.security.authz import Identity
from proveout.proto.trust.identities import DENIED, Denied, Shown
from proveout.proto.trust.task_signing import Addressee, Verifier
from proveout.proto.wire.messages import Hello
from proveout.proto.wire.tasks import Task


class Orders:
    """The tasks of one coordinator to this agent."""

    def __init__(self, verifier: Verifier, to: Addressee) -> None:
        self._verifier, self._to = verifier, to

    def objection(self, task: Task, digest: str = "") -> str:
        """Why it is not taken, "" when nothing is wrong with its signature. `digest`: its `task_digest`, when it is known."""
        return self._verifier.objection(task, self._to, digest)


class Trust:
    """What an agent knows from its directory of certificates, or from the identity that it was given."""

    def __init__(self, source: Path | Identity) -> None:
        self._source = source
        self._denied = Denied(source / DENIED) if isinstance(source, Path) else None

    def objection(self, hello: Hello) -> str:
        """Why tasks of who says this Hello would not be taken, "" when they would."""
        try:
            self.orders(hello)
        except ValueError as error:
            return str(error) if hello.signer else "the coordinator does not say who signs its tasks"
        except OSError as error:
            return f"the agent cannot read its own certificates: {error.strerror}"
        return ""

    def orders(self, hello: Hello) -> Orders:
        """Checks the tasks of who says this Hello. ValueError, OSError."""
        authority, certificate = self._certificates()
        denied = self._denied.serials() if self._denied is not None else frozenset()
        verifier = Verifier(hello.signer.encode(), authority, denied)
        shown = Shown.read(certificate)
        role = next((role for role in sorted(shown.roles) if role.startswith("agent/")), "")
        return Orders(verifier, Addressee(agent=role, run=hello.run_id, epoch=hello.epoch))

    def _certificates(self) -> tuple[bytes, bytes]:
        """The authority's and the agent's own. OSError."""
        if isinstance(self._source, Identity):
            return self._source.ca, self._source.certificate
        return (self._source / "ca.pem").read_bytes(), (self._source / "agent.pem").read_bytes()
