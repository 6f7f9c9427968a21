"""Real agents that tune: applied and reported over the wire, reverted at the end of a session, and by the next agent after
a kill -9."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from eventually import PATIENCE_S, eventually_async
from fabric_bench import Permanent
from tuning_bench import tuning

from proveout.coordinator.agents.local_agents import LocalFabric
from proveout.coordinator.agents.session import AgentSession, Received, SessionEvent, connect
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.messages import Cancel, Hello, TaskDone, TaskFailed
from proveout.proto.wire.results import Checked, Done, TuningDone
from proveout.proto.wire.tasks import ApplyTuning, CheckHost, RebootHost, RevertTuning, Task, TaskSpec, VerifyTuning

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")


class Boot:
    """A simulated boot of the host of an agent: its boot id, its unit, and the `systemctl` that it runs, are files.

    Not proven here: that systemd reboots a machine and starts the agent again, and what its kernel and its file systems
    keep. `lasts` and what is removed beside it stand for that.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.id, self.unit, self.asked = folder / "boot_id", folder / "cgroup", folder / "asked"
        self.id.write_text("one\n")
        self.unit.write_text("0::/system.slice/proveout-agent.service\n")
        systemctl = folder / "systemctl"
        systemctl.write_text(f"#!/bin/sh\necho $* >> {self.asked}\n")
        systemctl.chmod(0o755)
        module = folder / "rebooting_agent.py"
        module.write_text(
            "import sys\nfrom pathlib import Path\n"
            "from proveout.agent import host_facts\nfrom proveout.agent.daemon import process\n"
            "from proveout.agent.tuning import programs\n"
            f"host_facts.BOOT_ID, programs.SYSTEMCTL = {str(self.id)!r}, {str(systemctl)!r}\n"
            f"programs.CGROUP = Path({str(self.unit)!r})\nprocess.main(sys.argv[1:])\n"
        )
        self.command = (sys.executable, str(module))


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
            "reboot: {i_know: a simulated boot}\n"
            "validators: {hang: {run: [/usr/bin/tail, -f, '{file}'], i_know: it never ends}}\n",
            encoding="utf-8",
        )
        policy.chmod(0o600)
        self.logs = folder / "logs"
        self.boot = Boot(folder / "boot")
        self.fabric = LocalFabric((*self.boot.command, "--undo-dir", str(self.undo)), policy=policy)
        self.sessions: list[AgentSession] = []
        self.epoch = 0

    async def session(self, run: str = "r") -> tuple[AgentSession, asyncio.Queue[SessionEvent]]:
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        address = (await self.fabric.start(["h"], self.logs))["h"]
        self.epoch += 1
        hello = Hello(run_id=run, epoch=self.epoch, host="h", lease_s=60.0, beat_s=2.0)
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


def send(session: AgentSession, spec: TaskSpec, run: str = "r") -> str:
    key = f"{run}/-/0/0/{secrets.token_hex(4)}/tune/h"
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


async def rebooted(bench: Bench, hold_s: float) -> ApplyTuning:
    """Two files are tuned, the host reboots, and one of the two is not there after it."""
    session, events = await bench.session()
    both = ApplyTuning(tunings=(bench.file("lasts", "after"), bench.file("lost", "after")))
    assert await done(session, events, both) == [("lasts", "applied"), ("lost", "applied")]
    ended = await answer(events, send(session, RebootHost(hold_s=hold_s)))
    assert isinstance(ended, TaskDone), ended
    assert isinstance(ended.result, Done)
    assert bench.boot.asked.read_text() == "is-enabled proveout-agent.service\n", "not before the end of the session"
    await session.close(keep_data=True)
    assert bench.boot.asked.read_text().splitlines()[1:] == ["reboot"]
    assert (bench.app / "lasts").read_text() == (bench.app / "lost").read_text() == "after", "they stay"
    bench.boot.id.write_text("two\n")
    (bench.app / "lost").unlink()
    return both


async def test_changes_stay_over_a_reboot_of_the_run_and_lost_ones_are_reported_and_made_again(
    bench: Bench,
) -> None:
    (bench.app / "lasts").write_text("before")
    both = await rebooted(bench, 600.0)
    session, events = await bench.session()
    assert dict(session.welcome.facts)["boot_id"] == "two"
    assert (bench.app / "lasts").read_text() == "after", "the agent of the next boot undoes nothing"
    again = await done(session, events, both)
    assert again == [("lost", "drifted"), ("lasts", "unchanged"), ("lost", "applied")]
    assert await done(session, events, VerifyTuning()) == [("lasts", "in_place"), ("lost", "in_place")]
    await session.close(keep_data=True)
    assert (bench.app / "lasts").read_text() == "before"
    assert [path.name for path in bench.app.iterdir()] == ["lasts"]
    assert not bench.undo.exists()


async def test_changes_held_over_a_reboot_are_undone_when_their_time_is_over_or_another_run_comes(bench: Bench) -> None:
    await rebooted(bench, 1e-6)
    await bench.session()
    assert not list(bench.app.iterdir()), "before it listens"
    bench.boot.asked.unlink()
    bench.boot.id.write_text("one\n")
    await rebooted(bench, 600.0)
    session, events = await bench.session("other")
    ended = await answer(events, send(session, ApplyTuning(tunings=(bench.file("new", "1"),)), "other"))
    assert isinstance(ended, TaskDone)
    assert [path.name for path in bench.app.iterdir()] == ["new"]


async def test_changes_held_over_a_reboot_stay_when_a_session_that_tunes_nothing_ends(bench: Bench) -> None:
    """As that of a check of another plan, while the run waits for its agent."""
    (bench.app / "lasts").write_text("before")
    await rebooted(bench, 600.0)
    session, _ = await bench.session("other")
    await session.close(keep_data=True)
    assert (bench.app / "lasts").read_text() == "after"


async def test_a_host_whose_agent_is_not_a_service_is_not_rebooted_and_its_check_has_the_reason(bench: Bench) -> None:
    bench.boot.unit.write_text("0::/user.slice/user-0.slice/session-1.scope\n")
    session, events = await bench.session()
    ended = await answer(events, send(session, RebootHost(hold_s=60.0)))
    assert isinstance(ended, TaskFailed)
    assert ended.error.code == "missing"
    assert "nothing would start it after a reboot" in ended.error.message
    checked = await answer(events, send(session, CheckHost(reboots=True)))
    assert isinstance(checked, TaskDone)
    assert isinstance(checked.result, Checked)
    assert [one.message for one in checked.result.findings] == [ended.error.message]
    await session.close(keep_data=True)
    assert not bench.boot.asked.exists()


PLAN = """
proveout: 1
name: rebooted
topology: {{hosts: {{db1: {{roles: [server], address: "{address}"}}}}}}
tuning:
  - {{name: conf, on: db1, file: {{path: {app}/conf, content: tuned}}}}
stages:
  - pause: {{id: before, duration: 10ms}}
  - reboot: {{id: fresh, on: db1, within: 10m}}
  - pause: {{id: after, duration: 10ms}}
"""


async def test_a_run_goes_on_when_the_agent_is_back_from_another_boot(tmp_path: Path) -> None:
    """A permanent agent ends after `systemctl reboot`, and starts again with another boot id."""
    bench, agent = Bench(tmp_path), Permanent(tmp_path)
    where = ["--pki", str(tmp_path / "pki"), "--state-dir", str(tmp_path / "state"), "--undo-dir", str(bench.undo)]
    policy = ["--policy", str(tmp_path / "policy" / "policy.yaml")]
    agent.command = lambda: [*bench.boot.command, "--listen", agent.address, "--name", "db1", *where, *policy]  # type: ignore[method-assign]
    (bench.app / "conf").write_text("before")
    (tmp_path / "plan.yaml").write_text(PLAN.format(address=agent.address, app=bench.app))
    run = ["run", str(tmp_path / "plan.yaml"), "--headless", "--runs-dir", str(tmp_path / "runs")]
    await agent.start()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proveout", *run, "--pki", str(tmp_path / "coordinator")),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        asked = bench.boot.asked
        await eventually_async(lambda: asked.exists() and "reboot" in asked.read_text().split(), "it reboots")
        assert await agent.stop() == 0
        assert (bench.app / "conf").read_text() == "tuned"
        bench.boot.id.write_text("two\n")
        await agent.start()
        printed = (await asyncio.wait_for(process.communicate(), PATIENCE_S))[0].decode()
        assert process.returncode == 0, printed
        assert "stage after is done" in printed
        assert "has changed during the run" not in printed, "the boot is of the plan"
        assert (bench.app / "conf").read_text() == "before"
    finally:
        await agent.stop(signal.SIGKILL)
        await bench.close()


async def test_a_reboot_that_is_refused_leaves_nothing_tuned(bench: Bench) -> None:
    systemctl = bench.boot.id.parent / "systemctl"
    systemctl.write_text('#!/bin/sh\n[ "$1" = is-enabled ]\n')
    session, events = await bench.session()
    assert await done(session, events, ApplyTuning(tunings=(bench.file("new", "1"),))) == [("new", "applied")]
    assert isinstance(await answer(events, send(session, RebootHost(hold_s=60.0))), TaskDone)
    await session.close(keep_data=True)
    assert not list(bench.app.iterdir())
    assert not bench.undo.exists()


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
