"""The loop in this process, with real local agents: failures of the coordinator itself."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from fabric_bench import issued
from live_run import command

from proveout.coordinator.agents.session import AgentSession, Lost
from proveout.coordinator.certificates import Credentials
from proveout.coordinator.measure import samples
from proveout.coordinator.run import RunOptions, _Loop, run
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, StorageFailed, read
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto import events
from proveout.proto.audit_log import AuditLog, Head
from proveout.proto.wire.messages import Hello

pytestmark = pytest.mark.server

HEAD = """
proveout: 1
name: tiny
title: A file and a client
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
"""
PAUSE = HEAD + "stages:\n  - pause: {id: wait, duration: 200ms}\n"
LADDER = "{workload: hlr, target: db, threads: [1], think: {constant: 5ms}, ramp_up: 0s, measure: MEASURE, ramp_down: 0s, repeat: 1}"
LOAD = f"{HEAD}stages:\n  - populate: {{workload: hlr, into: db}}\n  - ladder: {LADDER}\n"


def arrange(tmp_path: Path, text: str) -> RunOptions:
    (tmp_path / "plan.yaml").write_text(text)
    plan = compile_plan(tmp_path / "plan.yaml")
    given = run_directory.Command(plan=str(tmp_path / "plan.yaml"))
    directory = run_directory.create(tmp_path / "runs", plan, given, datetime.now(UTC))
    return RunOptions(plan=plan, directory=directory, version="0")


def kept(sitting: RunOptions) -> list[events.Event]:
    return [stamped.event for stamped in read(sitting.directory.path)]


def agents() -> list[list[str]]:
    """Return the command lines of the agents that are children of this process."""
    lines = [command(child) for child in psutil.Process().children(recursive=True)]
    return [line for line in lines if "proveout.agent" in line]


async def test_listeners_receive_the_journalled_events_and_a_warning_of_certificates_that_end_soon(
    tmp_path: Path,
) -> None:
    issued(tmp_path / "authority", "coordinator", tmp_path / "pki", validity=timedelta(minutes=2))
    sitting = replace(arrange(tmp_path, PAUSE), beat_s=0.1, credentials=Credentials.read(tmp_path / "pki"))
    heard: list[events.Stamped] = []
    with Journal(sitting.directory.path) as journal:
        ended = await run(sitting, journal, [heard.append])
    assert (ended.status, ended.exit_code) == ("finished", 0)
    assert tuple(s for s in heard if not isinstance(s.event, events.LIVE_EVENTS)) == read(sitting.directory.path)
    standing = [s.event for s in heard if isinstance(s.event, events.AgentsTick)]
    assert {(tick.beat_s, tick.lease_s) for tick in standing} == {(0.1, sitting.lease_s)}
    (line,) = standing[0].agents
    assert (line.host, line.connected) == ("box", True)
    assert line.uncertainty_ns > 0
    notices = [event for event in kept(sitting) if isinstance(event, events.Notice)]
    assert [n.level for n in notices if "the coordinator's certificates" in n.text] == ["warning"]
    assert not agents()


async def test_a_bug_is_raised_after_everything_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting = arrange(tmp_path, LOAD.replace("MEASURE", "1s"))

    def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(samples, "summarise", broken)
    heard: list[events.Event] = []
    with Journal(sitting.directory.path) as journal, pytest.raises(ZeroDivisionError, match="a bug"):
        await run(sitting, journal, [lambda stamped: heard.append(stamped.event)])
    assert not agents()
    moved = [event for event in heard if isinstance(event, events.TransactionsTick)]
    assert any(line.ok for tick in moved for line in tick.transactions), "what the load did was shown while it ran"
    ended = kept(sitting)[-1]
    assert isinstance(ended, events.RunFinished)
    assert ended.exit_code == 4
    assert "ZeroDivisionError" in ended.reason


async def test_samples_that_cannot_be_written_fail_the_run_and_keep_it_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting = arrange(tmp_path, LOAD.replace("MEASURE", "200ms"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(samples, "write", full)
    with Journal(sitting.directory.path) as journal:
        ended = await run(sitting, journal, [])
    assert ended.exit_code == 4
    assert "No space left" in ended.reason and "Free some space there" in ended.reason
    assert not [event for event in kept(sitting) if isinstance(event, events.IterationFinished)]
    assert any(isinstance(event, events.PopulateFinished) for event in kept(sitting))


@pytest.mark.parametrize("lost", ["verdict", "entry of the audit log"])
async def test_a_run_that_has_lost_an_event_ends_as_failed_in_its_journal_too(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is resumed then, also when the lost one was a verdict, or the last entry, and the end found room."""

    class Full(Journal):
        def append(self, event: events.Event) -> events.Stamped:
            if isinstance(event, events.VerdictReached) and lost == "verdict":
                raise StorageFailed("No space left")
            return super().append(event)

    class FullLog(AuditLog):
        def note(self, what: str, **fields: str | float | None) -> Head:
            if what == "ended" and lost != "verdict":
                raise OSError(errno.ENOSPC, "No space left")
            return super().note(what, **fields)

    sitting = arrange(tmp_path, PAUSE + "verdicts:\n  - {id: waits, check: wait.seconds > 0}\n")
    with Full(sitting.directory.path) as journal, monkeypatch.context() as full:
        full.setattr(run_directory, "AuditLog", FullLog)
        ended = await run(sitting, journal, [])
    assert (ended.status, ended.exit_code) == ("failed", 4)
    assert kept(sitting)[-1] == ended
    with Journal(sitting.directory.path) as journal:
        again = await run(sitting, journal, [])
    assert (again.status, again.exit_code) == ("finished", 0)


async def test_the_loss_of_a_session_that_was_closed_is_not_a_failed_dial_of_the_next(tmp_path: Path) -> None:
    """An agent that fell silent while its cancelled task was waited for was lost twice, and the run ended sooner."""
    sitting = arrange(tmp_path, PAUSE)
    with Journal(sitting.directory.path) as journal:
        assert _Loop(sitting, journal, [])._inputs(Lost(host="box", reason="no answer for 10.0 s")) == ()


@pytest.mark.parametrize(("gather_hosts", "gather_s"), [(11, 0.0), (10, 1.0), (2, 1.0), (1, 2.0)])
async def test_agents_of_many_hosts_send_their_samples_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gather_hosts: int, gather_s: float
) -> None:
    hosts = "".join(f"    h{number}: {{roles: [client], address: local}}\n" for number in range(9))
    sitting = arrange(tmp_path, PAUSE.replace("  systems:", f"{hosts}  systems:"))
    said: list[Hello] = []

    async def connect(_: _Loop, host: str, hello: Hello) -> AgentSession:
        said.append(hello)
        raise OSError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(_Loop, "_connect", connect)
    with Journal(sitting.directory.path) as journal:
        await _Loop(replace(sitting, gather_hosts=gather_hosts), journal, [])._dial("box", 0.0)
    assert [hello.gather_s for hello in said] == [gather_s]


async def test_a_second_interrupt_ends_the_wait_for_agents_that_close_their_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting, interrupts = arrange(tmp_path, PAUSE), asyncio.Queue[None]()
    close = AgentSession.close

    async def slow(self: AgentSession, keep_data: bool = False, timeout_s: float = 0.0) -> None:
        interrupts.put_nowait(None)
        interrupts.put_nowait(None)
        try:
            await asyncio.Event().wait()
        finally:
            await close(self, keep_data, 0.0)

    monkeypatch.setattr(AgentSession, "close", slow)
    with Journal(sitting.directory.path) as journal:
        async with asyncio.timeout(60.0):
            ended = await run(sitting, journal, [], interrupts=interrupts)
    assert ended.status == "finished"
    assert [n.text for n in kept(sitting) if isinstance(n, events.Notice) and "sessions with box" in n.text]
