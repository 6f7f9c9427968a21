"""Unit tests of lease, outbox, task journal, task runner, redaction and the table of handlers."""

from __future__ import annotations

import asyncio
import errno
import itertools
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.agent.daemon import session, tasks
from proveout.agent.daemon.handlers import HANDLERS, TABLE, resolve
from proveout.agent.daemon.session import QUIET_S, Lease, Outbox, SendSchedule
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import TaskContext, TaskRunner
from proveout.agent.errors import TaskFault, redact_passwords, sanitize
from proveout.core.errors import ProveoutError
from proveout.proto.wire.messages import (
    AgentMessage,
    BeatReply,
    LogLine,
    Sample,
    Samples,
    TaskAccepted,
    TaskDone,
    TaskFailed,
)
from proveout.proto.wire.results import CaptureSample, Done, SystemStarted, TaskError
from proveout.proto.wire.tasks import Endpoint, TaskSpec

S = 10**9

# ---- lease -----------------------------------------------------------------------------------------------------------


def test_a_lease_lasts_from_its_last_renewal() -> None:
    lease = Lease(10.0, 0)
    lease.renew(4 * S)
    assert (lease.remaining_s(5 * S), lease.ended(14 * S - 1), lease.ended(14 * S)) == (9.0, False, True)
    lease.renew(15 * S)
    assert lease.ended(15 * S) and lease.remaining_s(15 * S) == 0, "a lease that has ended stays ended"


@given(st.lists(st.integers(0, 5 * S), max_size=50))
def test_beats_in_time_keep_a_lease(gaps_ns: list[int]) -> None:
    lease, now_ns = Lease(6.0, 0), 0
    for gap_ns in gaps_ns:
        now_ns += gap_ns
        assert not lease.ended(now_ns)
        lease.renew(now_ns)


def test_a_process_that_the_agent_may_not_end_does_not_keep_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise psutil.AccessDenied

    left = SimpleNamespace(pid=1, terminate=refused, kill=refused)  # by sudo
    monkeypatch.setattr(session, "_may_have_children", lambda: True)
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(children=lambda recursive: [left]))
    monkeypatch.setattr(psutil, "wait_procs", lambda found, timeout: ([], found))
    session.end_children()


# ---- outbox ----------------------------------------------------------------------------------------------------------


def sample(number: int) -> Sample:
    return Sample(key="k", sequence=number, sample=CaptureSample(capture="c", at_ns=0, readings=()))


async def drain(outbox: Outbox) -> list[AgentMessage]:
    outbox.close()
    found = []
    while not outbox.finished:
        message = await outbox.take()
        if message is not None:
            found.append(message)
    return found


async def test_order_is_kept_and_replies_to_beats_go_first() -> None:
    outbox = Outbox()
    done = TaskDone(key="k", result=Done())
    reply = BeatReply(sequence=1, sent_ns=0, received_ns=0, replied_ns=0)
    for message in (sample(1), done, reply):
        outbox.put(message)
    assert await drain(outbox) == [reply, sample(1), done]


async def test_outcomes_are_never_dropped_and_samples_are_counted() -> None:
    outbox = Outbox(limit=3)
    for number in range(1, 11):
        outbox.put(sample(number))
        outbox.put(TaskAccepted(key=str(number)))
    *messages, notice = await drain(outbox)
    assert [message.key for message in messages if isinstance(message, TaskAccepted)] == list(map(str, range(1, 11)))
    assert [message.sequence for message in messages if isinstance(message, Sample)] == [1, 2, 3]
    assert isinstance(notice, LogLine) and notice.text.startswith("7 messages")


async def test_samples_that_are_there_at_once_are_not_dropped(tmp_path: Path) -> None:
    """Those of half an hour of a program are more than may wait."""
    outbox = Outbox(limit=3)
    runner = TaskRunner("k", "h", tmp_path, {}, outbox.put)
    reading = sample(1).sample
    runner.sample(reading)
    runner.sample_all([reading] * 1800)
    first, *others = await drain(outbox)
    assert first == sample(1)
    assert [one.sequence for message in others if isinstance(message, Samples) for one in message.samples] == [
        *range(2, 1802)
    ]


async def test_waiting_samples_are_sent_together_before_the_next_other_message() -> None:
    outbox = Outbox(schedule=SendSchedule(3600.0, "host"))
    for number in (2, 3, 4):
        outbox.put(sample(number))
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.wake()
    assert await taking is None
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    accepted = TaskAccepted(key="k")
    outbox.put(accepted)
    assert await taking == Samples(samples=(sample(2), sample(3), sample(4)))
    assert await drain(outbox) == [accepted]
    scheduled = Outbox(schedule=SendSchedule(0.05, "host"))
    scheduled.put(sample(2))
    scheduled.put(sample(3))
    assert await scheduled.take() == Samples(samples=(sample(2), sample(3)))
    first = Outbox(schedule=SendSchedule(3600.0, "host"))
    first.put(sample(1))
    assert await first.take() == sample(1), "the first sample of a task does not wait"


async def test_waiting_samples_are_neither_lost_nor_counted_twice() -> None:
    outbox = Outbox(limit=150, schedule=SendSchedule(3600.0, "host"))
    for number in range(2, 202):
        outbox.put(sample(number))
    *together, notice = await drain(outbox)
    sizes = [len(message.samples) for message in together if isinstance(message, Samples)]
    numbers = [one.sequence for message in together if isinstance(message, Samples) for one in message.samples]
    assert (numbers, sizes) == ([*range(2, 152)], [64, 64, 22])
    assert isinstance(notice, LogLine) and notice.text.startswith("50 messages")


def test_send_times_come_once_per_interval_at_an_offset_of_the_host() -> None:
    leaves = SendSchedule(1.0, "db1")
    first = leaves.after(100.0)
    assert 100.0 <= first < 101.0
    assert leaves.after(first - 0.001) == pytest.approx(first) and leaves.after(first + 0.001) == pytest.approx(
        first + 1.0
    )
    moments = sorted(SendSchedule(1.0, f"host{number}").after(0.0) for number in range(1000))
    gaps = [after - before for before, after in itertools.pairwise([0.0, *moments, 1.0])]
    assert max(gaps) < 0.02


def test_no_samples_are_sent_just_before_a_load_starts() -> None:
    leaves = SendSchedule(1.0, "db1")
    moment = leaves.after(100.0)
    leaves.quiet_before(moment + QUIET_S / 2)
    assert leaves.after(100.0) == moment + QUIET_S / 2
    leaves.quiet_before(moment + QUIET_S * 2)
    assert leaves.after(100.0) == moment
    leaves.quiet_before(moment)
    assert leaves.after(100.0) == moment


# ---- journal ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_a_journal_keeps_outcomes_for_a_session_and_keys_over_a_restart(path: Path) -> None:
    outcome = TaskFailed(key="b", error=TaskError(code="timeout", message="late"))
    journal = AgentJournal(path)
    journal.note_epoch("run", 3)
    for key in ("a", "b"):
        journal.accept("run", 3, key, f"digest of {key}", 1)
    journal.finish("run", 3, outcome)
    a, b = journal.known("run", 3, "a"), journal.known("run", 3, "b")
    assert a is not None and (a.digest, a.outcome) == ("digest of a", None)
    assert b is not None and (b.digest, b.outcome) == ("digest of b", outcome)
    journal.close()
    journal = AgentJournal(path)
    b = journal.known("run", 3, "b")
    assert b is not None and (b.digest, b.outcome) == ("digest of b", None)
    assert journal.highest_epoch("run") == 3 and journal.highest_epoch("other") is None
    journal.note_epoch("run", 4)
    assert journal.known("run", 3, "b") is None, "a newer epoch clears the tasks"
    journal.accept("run", 4, "a", "d", 1)
    journal.note_epoch("run", 1)
    assert journal.highest_epoch("run") == 4 and journal.known("run", 4, "a") is not None, "an older one nothing"
    journal.note_epoch("other", 1)
    journal.accept("other", 1, "a", "d", 1)
    journal.forget("run")
    assert journal.known("run", 4, "a") is None and journal.known("other", 1, "a") is not None
    assert journal.highest_epoch("run") == 4
    journal.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["known", "blank", "forget", "killed"])
def test_no_password_is_on_disk_at_any_time(path: Path, how: str) -> None:
    """Outcomes are encrypted with a key in memory: during a session, after its end, and after a kill -9 (files as they
    are, and opened again)."""
    endpoint = Endpoint(system="s", engine="postgres", dsn="host=h password=hunter2-canary")
    outcome = TaskDone(key="k", result=SystemStarted(endpoint=endpoint))
    journal = AgentJournal(path)
    journal.note_epoch("run", 1)
    journal.accept("run", 1, "k", "d", 1)
    journal.finish("run", 1, outcome)

    def on_disk(what: bytes) -> bool:
        return any(what in file.read_bytes() for file in path.parent.rglob("*") if file.is_file())

    assert on_disk(b"CREATE TABLE"), "the files are read while the journal is open"
    assert not on_disk(b"hunter2")
    known = journal.known("run", 1, "k")
    assert known is not None and known.outcome == outcome
    match how:
        case "blank":
            journal.blank()
        case "forget":
            journal.forget("run")
        case "killed":
            left = path.parent / "left"
            shutil.copytree(path.parent, left)
            after = AgentJournal(left / path.name)
            known = after.known("run", 1, "k")
            assert known is not None and (known.digest, known.outcome) == ("d", None)
            after.close()
    assert not on_disk(b"hunter2")
    journal.close()


def test_tasks_of_a_run_without_an_end_are_deleted_after_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = AgentJournal(path)
    journal.note_epoch("run", 1)
    journal.accept("run", 1, "a", "d", 1)
    journal.close()
    for days, remembered in ((1, True), (-1, False)):
        monkeypatch.setattr("proveout.agent.daemon.task_journal.KEPT_DAYS", days)
        journal = AgentJournal(path)
        assert (journal.known("run", 1, "a") is not None) is remembered
        assert journal.highest_epoch("run") == 1
        journal.close()


def test_a_file_that_is_not_a_journal_is_refused(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(ProveoutError, match="cannot open the agent's task journal"):
        AgentJournal(path)


# ---- one task --------------------------------------------------------------------------------------------------------


async def test_progress_moves_the_deadline(tmp_path: Path) -> None:
    async def loading(context: TaskContext, spec: TaskSpec) -> Done:
        context.progress(1.0, 2.0, "rows")
        await asyncio.sleep(0.05)
        return Done(seconds=7.0)

    assert await run(loading, tmp_path, deadline_s=0.01) == TaskDone(key="k", result=Done(seconds=7.0))


async def run(handler: Any, path: Path, deadline_s: float = 30.0) -> TaskDone | TaskFailed:
    return await TaskRunner("k", "db1", path, {}, lambda _message: None).run(handler, None, deadline_s)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (TaskFault("refused", "no"), "refused", "no"),
        (ProveoutError("bad", where="there"), "invalid", "there: bad"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full", "the disk of this host is full"),
        (OSError(errno.EACCES, "Permission denied"), "fault", "PermissionError"),
        (KeyError("x"), "fault", "KeyError: 'x'"),
        (
            asyncio.CancelledError(),
            "fault",
            "the handler of the task was cancelled from inside; this is a bug in proveout",
        ),
    ],
)
async def test_exceptions_of_a_handler_become_error_codes(
    tmp_path: Path, error: BaseException, code: str, message: str
) -> None:
    async def handler(_context: TaskContext, _spec: Any) -> Done:
        raise error

    outcome = await run(handler, tmp_path)
    assert isinstance(outcome, TaskFailed)
    assert outcome.error.code == code and outcome.error.message.startswith(message)


async def test_a_handler_that_ignores_cancellation_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "STOP_GRACE_S", 0.05)
    release = asyncio.Event()

    async def stubborn(_context: TaskContext, _spec: Any) -> Done:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Done()

    outcome = await run(stubborn, tmp_path, deadline_s=0.01)
    release.set()
    assert isinstance(outcome, TaskFailed)
    assert outcome.error.code == "timeout" and "did not stop within 0.05 s" in outcome.error.message


async def test_a_task_stopped_before_its_start_fails_with_the_first_reason(tmp_path: Path) -> None:
    async def handler(_context: TaskContext, _spec: Any) -> Done:
        return Done()

    work = TaskRunner("k", "db1", tmp_path, {}, lambda _message: None)
    work.stop("lease_lost", "gone")
    work.stop("cancelled", "too late: the first reason counts")
    outcome = await work.run(handler, None, 30.0)
    assert isinstance(outcome, TaskFailed) and outcome.error == TaskError(code="lease_lost", message="gone")


# ---- redaction -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("host=a password=secret user=b", "host=a password=*** user=b"),
        ("PASSWORD = 'a b\\'c' user=b", "PASSWORD = *** user=b"),
        ("postgresql://u:secret@h/db", "postgresql://u:***@h/db"),
        ("dsn='host=a password=secret'", "dsn='host=a password=***'"),
        ("http://h:8080/path and a@b", "http://h:8080/path and a@b"),
    ],
)
def test_passwords_are_redacted(text: str, left: str) -> None:
    assert redact_passwords(text) == left
    assert sanitize("a\udcffb") == "a?b"
    assert len(sanitize("x" * 10**6)) == 4000


def test_a_hostile_text_is_redacted_in_linear_time() -> None:
    """With backtracking, this test would take hours."""
    assert redact_passwords("://:" * 2**20) == "://:" * 2**20


# ---- handlers --------------------------------------------------------------------------------------------------------


def test_every_task_has_a_handler_that_can_be_imported() -> None:
    assert set(TABLE) == set(TaskSpec.__args__)  # type: ignore[attr-defined]
    assert all(asyncio.iscoroutinefunction(resolve(place)) for place in set(HANDLERS.values()))
