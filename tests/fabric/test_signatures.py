"""Signed tasks: signatures that an agent accepts and refuses, over an authenticated connection."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from fabric_bench import HELLO, Permanent, by_hand, exchange, leave, lines, task

from proveout.agent.daemon.task_journal import AgentJournal
from proveout.coordinator.agents.connect import AgentRefused
from proveout.coordinator.certificates import Authority, _cert_pem
from proveout.proto import signing
from proveout.proto.enrolment import key_pem
from proveout.proto.signing import Addressee, Signer, Verifier
from proveout.proto.wire import codec
from proveout.proto.wire.messages import TaskDone, TaskFailed
from proveout.proto.wire.tasks import SignedTask

pytestmark = pytest.mark.server

TO = Addressee(agent="agent/db1", run="run", epoch=1)
AUTHORITY = Authority.create()
CREDENTIALS = AUTHORITY.issue_coordinator()
SIGNER = Signer(CREDENTIALS.signer_key)
NONE_REVOKED: frozenset[int] = frozenset()
NOT_FOR_US = "it is not signed for this agent, run and epoch by the run's coordinator"


def signed_task(text: str = "noop", signer: Signer = SIGNER, to: Addressee = TO, key: str = "k") -> SignedTask:
    return signer.sign(codec.task_bytes(task(key, text)), to)


def verifier() -> Verifier:
    return Verifier(CREDENTIALS.signer, AUTHORITY.pem, NONE_REVOKED)


# ---- the signature itself --------------------------------------------------------------------------------------------


def test_a_signed_task_is_accepted_and_survives_the_codec() -> None:
    signed = signed_task("append x")
    assert verifier().objection(signed, TO) == ""
    assert codec.task_from_bytes(signed.task) == task("k", "append x")
    over_the_wire = codec.coordinator_message(codec.coordinator_envelope(signed))
    assert over_the_wire == signed


@pytest.mark.parametrize(
    "changed",
    [
        {"task": codec.task_bytes(replace(task("k", "append x"), deadline_s=1e6))},
        {"task": b""},
        {"sequence": 2**62},
        {"expires_unix_s": 2**40},
        {"signature": b"AAAA"},
        {"signature": bytes(64)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_any_change_of_a_signed_task_invalidates_its_signature(changed: dict[str, Any]) -> None:
    signed = replace(signed_task("append x"), **changed)
    assert verifier().objection(signed, TO) == NOT_FOR_US


def test_unsigned_and_expired_tasks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verifier().objection(SignedTask(task=b"x"), TO) == "it is not signed"
    signed = signed_task()
    later = datetime.datetime.now().timestamp() + signing.VALID_S + 1
    monkeypatch.setattr(signing.time, "time", lambda: later)
    assert verifier().objection(signed, TO) == "its signature has expired"


def test_sequence_numbers_grow_while_the_clock_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing.time, "time_ns", lambda: 5)
    numbers = [signed_task().sequence for _ in range(100)]
    assert numbers == sorted(set(numbers))


def signer_like(role: str, authority: Authority) -> bytes:
    certificate = authority.certify(role, (), ed25519.Ed25519PrivateKey.generate().public_key())
    return _cert_pem(certificate)


def test_invalid_signer_certificates_are_refused() -> None:
    serial = CREDENTIALS.signer
    denied = frozenset({signing.Shown.read(serial).serial})
    with pytest.raises(ValueError, match="revoked"):
        Verifier(CREDENTIALS.signer, AUTHORITY.pem, denied)
    with pytest.raises(ValueError, match="another authority"):
        Verifier(Authority.create().issue_coordinator().signer, AUTHORITY.pem, NONE_REVOKED)
    for role in ("coordinator", "operator", "agent/db1"):
        with pytest.raises(ValueError, match="not a signer's"):
            Verifier(signer_like(role, AUTHORITY), AUTHORITY.pem, NONE_REVOKED)
    with pytest.raises(ValueError, match="not a signer's"):
        Verifier(CREDENTIALS.certificate, AUTHORITY.pem, NONE_REVOKED)
    past = Authority(AUTHORITY.certificate, AUTHORITY._key, datetime.timedelta(seconds=-10))
    with pytest.raises(ValueError, match="not in force"):
        Verifier(past.issue_coordinator().signer, AUTHORITY.pem, NONE_REVOKED)
    with pytest.raises(ValueError, match="PEM"):
        Verifier(b"", AUTHORITY.pem, NONE_REVOKED)


def test_the_highest_sequence_number_is_kept_over_a_restart_and_after_the_run_for_one_epoch(tmp_path: Path) -> None:
    """A signature is valid for one epoch only, so tasks of an older epoch cannot be replayed."""
    path = tmp_path / "journal.sqlite"
    journal = AgentJournal(path)
    assert journal.highest_sequence("run") == 0
    journal.note_epoch("run", 1)
    journal.accept("run", 1, "a", "digest", 7)
    journal.accept("run", 1, "b", "digest", 9)
    journal.forget("run")
    journal.close()
    again = AgentJournal(path)
    assert again.highest_sequence("run") == 9
    assert again.highest_sequence("another") == 0
    again.note_epoch("run", 2)
    assert again.highest_sequence("run") == 0
    again.accept("run", 2, "a", "digest", 5)
    again.note_epoch("run", 1)
    assert again.highest_sequence("run") == 5
    again.close()


# ---- a real agent ----------------------------------------------------------------------------------------------------


async def test_an_agent_accepts_only_tasks_that_are_signed_for_it(shared_agent: Permanent, tmp_path: Path) -> None:
    credentials = shared_agent.credentials
    hello = replace(HELLO, run_id=TO.run)
    signer, file = Signer(credentials.signer_key), tmp_path / "effects"
    for stranger in (b"", Authority.create().issue_coordinator().signer, credentials.certificate):
        with pytest.raises(AgentRefused, match="sign"):
            await by_hand(shared_agent, hello, replace(credentials, signer=stranger))

    stream = await by_hand(shared_agent, hello)

    async def refusal(sent: SignedTask) -> str:
        answer = await exchange(stream, sent)
        assert isinstance(answer, TaskFailed), answer
        assert answer.error.code == "refused"
        return answer.error.message

    assert "it is not signed" in await refusal(SignedTask(task=codec.task_bytes(task("a", f"append {file} unsigned"))))
    for other in (replace(TO, agent="agent/db2"), replace(TO, run="other"), replace(TO, epoch=2)):
        assert NOT_FOR_US in await refusal(signed_task(f"append {file} other", signer, other, "a"))
    stolen = Signer(key_pem(ed25519.Ed25519PrivateKey.generate()))
    assert NOT_FOR_US in await refusal(signed_task(f"append {file} stolen", stolen, key="a"))
    early = signed_task(f"append {file} replayed", signer, key="early")
    late = signed_task(f"append {file} once", signer, key="late")
    assert isinstance(await exchange(stream, late), TaskDone)
    assert "it may be a replay" in await refusal(early)
    assert isinstance(await exchange(stream, late), TaskDone)  # the same task again is answered and has run once
    await leave(stream)
    endless = task("distant", f"append {file} done", deadline_s=math.inf)
    distant = signer.sign(codec.task_bytes(endless), TO)
    stream = await by_hand(shared_agent, replace(hello, epoch=2))
    answer = await exchange(stream, distant)
    assert isinstance(answer, TaskFailed) and "is not a valid deadline" in answer.error.message
    await leave(stream)
    assert lines(file) == ["once"]
