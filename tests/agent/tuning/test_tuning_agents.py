"""Real agents that tune: applied and reported over the wire, reverted at the end of a session, and by the next agent after
a kill -9."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from eventually import PATIENCE_S, eventually_async
from tuning_bench import tuning

from proveout.coordinator.agents.local_agents import COMMAND, LocalFabric
from proveout.coordinator.agents.session import AgentSession, Received, SessionEvent, connect
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.messages import Cancel, Hello, TaskDone, TaskFailed
from proveout.proto.wire.results import TuningDone
from proveout.proto.wire.tasks import ApplyTuning, RevertTuning, Task, TaskSpec, VerifyTuning

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")


class Bench:
    """A host whose policy permits changes in one folder, and its agents, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.app = folder / "app"
        self.app.mkdir()
        self.undo = folder / "undo" / "h"
        policy = folder / "policy" / "policy.yaml"  # files in the folder of a policy are protected
        policy.parent.mkdir(mode=0o700)
        # `hang` never ends, so an agent that waits for it is within a transaction.
        policy.write_text(
            f"policy: 1\npaths: [{{path: {self.app}, i_know: files of a test}}]\n"
            "validators: {hang: {run: [/usr/bin/tail, -f, '{file}'], i_know: it never ends}}\n",
            encoding="utf-8",
        )
        policy.chmod(0o600)
        self.logs = folder / "logs"
        self.fabric = LocalFabric((*COMMAND, "--undo-dir", str(self.undo)), policy=policy)
        self.sessions: list[AgentSession] = []
        self.epoch = 0

    async def session(self) -> tuple[AgentSession, asyncio.Queue[SessionEvent]]:
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        address = (await self.fabric.start(["h"], self.logs))["h"]
        self.epoch += 1
        hello = Hello(run_id="r", epoch=self.epoch, host="h", lease_s=60.0, beat_s=2.0)
        session = await connect("h", address, self.fabric.credentials, hello, events)
        self.sessions.append(session)
        return session, events

    async def close(self) -> None:
        for session in self.sessions:
            await session.close(timeout_s=5.0)
        await self.fabric.close()

    def file(self, name: str, content: str, validator: str = "") -> Tuning:
        return tuning("file", name, path=f"{self.app}/{name}", content=content, validator=validator)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    try:
        yield bench
    finally:
        await bench.close()


def send(session: AgentSession, spec: TaskSpec) -> str:
    key = f"r/-/0/0/{secrets.token_hex(4)}/tune/h"
    session.send(Task(key=key, spec=spec, deadline_s=PATIENCE_S))
    return key


async def answer(events: asyncio.Queue[SessionEvent], key: str) -> TaskDone | TaskFailed:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            event = await events.get()
            if isinstance(event, Received) and isinstance(event.message, (TaskDone, TaskFailed)):
                assert event.message.key == key
                return event.message


async def done(session: AgentSession, events: asyncio.Queue[SessionEvent], spec: TaskSpec) -> list[tuple[str, str]]:
    ended = await answer(events, send(session, spec))
    assert isinstance(ended, TaskDone), ended
    assert isinstance(ended.result, TuningDone)
    return [(state.name, state.outcome) for state in ended.result.states]


async def test_a_session_applies_verifies_and_reverts_tunings(bench: Bench) -> None:
    old = bench.app / "old.conf"
    old.write_text("before\n")
    old.chmod(0o600)
    session, events = await bench.session()
    both = ApplyTuning(tunings=(bench.file("old.conf", "after\n"), bench.file("new.conf", "new\n")))
    planned = ApplyTuning(tunings=both.tunings, check=True)
    assert await done(session, events, planned) == [("old.conf", "would_change"), ("new.conf", "would_change")]
    assert not bench.undo.exists()
    assert await done(session, events, both) == [("old.conf", "applied"), ("new.conf", "applied")]
    assert old.read_text() == "after\n"
    assert await done(session, events, VerifyTuning()) == [("old.conf", "in_place"), ("new.conf", "in_place")]
    elsewhere = ApplyTuning(tunings=(tuning("file", "shadow", path="/etc/proveout-test", content="x"),))
    assert await done(session, events, elsewhere) == [("shadow", "refused")]
    assert await done(session, events, RevertTuning()) == [("new.conf", "reverted"), ("old.conf", "reverted")]
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("before\n", 0o600)
    assert [path.name for path in bench.app.iterdir()] == ["old.conf"]
    assert await done(session, events, both) == [("old.conf", "applied"), ("new.conf", "applied")]
    await session.close(keep_data=True)  # a Goodbye without a RevertTuning; the end of a lease keeps data too
    assert old.read_text() == "before\n"
    assert [path.name for path in bench.app.iterdir()] == ["old.conf"]
    assert not bench.undo.exists()


async def test_changes_of_a_killed_agent_are_undone_by_the_next(bench: Bench) -> None:
    """Those of a task that is cancelled are undone by the agent itself."""
    old = bench.app / "one"
    old.write_text("before")
    session, events = await bench.session()
    apply = ApplyTuning(tunings=(bench.file("one", "1"), bench.file("two", "2", validator="hang")))
    key, agent = send(session, apply), bench.fabric.pids[0]
    await eventually_async(lambda: _tail(agent), "the second file is being checked")
    session.send(Cancel(key=key, reason="stopped by a test"))
    ended = await answer(events, key)
    assert isinstance(ended, TaskFailed)
    assert ended.error.code == "cancelled"
    await eventually_async(lambda: old.read_text() == "before" and not _tail(agent), "it is undone")

    send(session, apply)
    tail = await eventually_async(lambda: _tail(agent), "the second file is being checked")
    os.kill(agent, signal.SIGKILL)
    os.kill(tail, signal.SIGKILL)
    assert old.read_text() == "1"
    await bench.session()  # the next agent undoes it before it listens
    assert old.read_text() == "before"
    assert [path.name for path in bench.app.iterdir()] == ["one"]
    assert not bench.undo.exists()
    assert "tuning 'one' of an earlier run: reverted" in (bench.logs / "agent-h.log").read_text()


def _tail(agent: int) -> int:
    """The process id of the validator that the agent waits for; 0 for none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if parent == agent and name == "tail":
            return int(folder.name)
    return 0
