"""A task that is sent again is answered from its recorded state, also when the agent's disk has become full."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fabric_bench import accept_all

from proveout.agent.daemon.session import Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.proto.audit_log import AuditLog
from proveout.proto.wire.codec import MAX_MESSAGE_BYTES, task_bytes
from proveout.proto.wire.messages import Beat, Hello, TaskAccepted, TaskDone, TaskFailed
from proveout.proto.wire.results import CommandDone, Done
from proveout.proto.wire.tasks import SignedTask, StopSystem, Task, TaskSpec


class Filling(AgentJournal):
    """A task journal whose disk becomes full."""

    is_full = False

    def note_sequence(self, run: str, sequence: int) -> None:
        """Raise the error of SQLite on a full disk."""
        if self.is_full:
            raise sqlite3.OperationalError("database or disk is full")
        super().note_sequence(run, sequence)


STOP = Task(key="k", spec=StopSystem(system="db", data_root="/nowhere"), deadline_s=60.0)


def opened(journal: AgentJournal, handler: Handler) -> Session:
    hello = Hello(run_id="run", epoch=1, host="db1", beat_s=2.0, lease_s=60.0)
    folder = journal.directory
    audit = AuditLog(folder / "audit.log")
    return Session(hello, folder / "work", journal, {StopSystem: handler}, verifier=accept_all, audit=audit)


async def test_a_full_disk_does_not_fail_a_task_that_is_under_way_or_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "proveout.agent.daemon.session.end_children", lambda: None
    )  # the tests' servers are children as well
    journal, go = Filling(tmp_path / "journal.sqlite"), asyncio.Event()

    async def handler(context: TaskContext, spec: TaskSpec) -> Done:
        await go.wait()
        return Done(seconds=1.0)

    session = opened(journal, handler)
    task = SignedTask(task=task_bytes(STOP), sequence=1)
    messages: list[Any] = []
    try:
        session.attach()
        session.receive(task)
        journal.is_full = True
        attachment = session.attach()
        session.receive(dataclasses.replace(task, sequence=2))
        go.set()
        async for message in session.outgoing(attachment):
            messages.append(message)
            if isinstance(message, TaskDone):
                break
        session.receive(dataclasses.replace(task, sequence=3))
        session.receive(SignedTask(task=task_bytes(dataclasses.replace(STOP, key="replayed")), sequence=1))
        async for message in session.outgoing(session.attach()):
            messages.append(message)
            if isinstance(message, TaskFailed):
                break
    finally:
        session.end("cancelled", "the test is over", keep_data=False)
        await session.ended.wait()
    (replayed,) = [message for message in messages if isinstance(message, TaskFailed)]
    assert "it may be a replay" in replayed.error.message
    assert {type(message) for message in messages} == {TaskAccepted, TaskDone, TaskFailed}, messages


async def test_a_start_is_answered_for_once_the_coordinator_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then a server reports new data again at its next start."""
    monkeypatch.setattr("proveout.agent.daemon.session.end_children", lambda: None)
    go, told = asyncio.Event(), []

    async def closed(*, keep_data: bool) -> None:
        pass

    async def handler(context: TaskContext, spec: TaskSpec) -> Done:
        context.resources["system:db"] = cast(Any, SimpleNamespace(answered=lambda: told.append(1), close=closed))
        await go.wait()
        return Done(seconds=1.0)

    session = opened(AgentJournal(tmp_path / "journal.sqlite"), handler)
    answers = session.outgoing(session.attach())
    try:
        start = dataclasses.replace(STOP, key="run/-/0/0/0/start:db/db1")
        session.receive(SignedTask(task=task_bytes(start), sequence=1))
        assert isinstance(await anext(answers), TaskAccepted)
        session.receive(Beat(sequence=1, sent_ns=0))
        assert not told, "it starts still"
        go.set()
        for number, what in enumerate(("start:other", "stop:db"), 2):
            async for message in answers:
                if isinstance(message, TaskDone):
                    break
            session.receive(Beat(sequence=number, sent_ns=0))
            assert not told, "a beat may cross the answer"
            task = dataclasses.replace(STOP, key=f"run/-/0/0/{number}/{what}/db1")
            session.receive(SignedTask(task=task_bytes(task), sequence=number))
            assert bool(told) == (what == "stop:db")
    finally:
        session.end("cancelled", "the test is over", keep_data=False)
        await session.ended.wait()


async def test_an_outcome_that_is_too_large_is_answered_on_a_full_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.daemon.session.end_children", lambda: None)

    class Full(AgentJournal):
        def finish(self, run: str, epoch: int, outcome: TaskDone | TaskFailed) -> None:
            raise sqlite3.OperationalError("full")

    async def handler(context: TaskContext, spec: TaskSpec) -> CommandDone:
        return CommandDone(elapsed_s=1.0, values=(), output="x" * MAX_MESSAGE_BYTES)

    session = opened(Full(tmp_path / "journal.sqlite"), handler)
    answers = session.outgoing(session.attach())
    try:
        session.receive(SignedTask(task=task_bytes(STOP), sequence=1))
        async with asyncio.timeout(5.0):
            assert isinstance(await anext(answers), TaskAccepted)
            answer = await anext(answers)
    finally:
        session.end("cancelled", "the test is over", keep_data=False)
        await session.ended.wait()
    assert isinstance(answer, TaskFailed)
    assert "is above the limit" in answer.error.message
