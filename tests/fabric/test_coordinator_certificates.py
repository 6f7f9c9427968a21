"""A coordinator's certificates while a run goes on: renewed where an authority can be asked, else their end is told."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fabric_bench import Line, Proxy, eventually, task
from test_permanent_agents import Permanent

from proveout.coordinator.agents.connect import AgentUnreachable
from proveout.coordinator.agents.session import Lost
from proveout.coordinator.pki import certificates, renewal
from proveout.coordinator.pki.ca import Ledger, Member, write_member
from proveout.coordinator.pki.ca_server import AuthorityServer
from proveout.coordinator.pki.certificates import Authority, Credentials
from proveout.proto.trust import enrolment
from proveout.proto.trust.identities import Shown
from proveout.proto.wire.messages import TaskDone

pytestmark = pytest.mark.server

LEAD = Member(role="coordinator", name="lead")
DB1 = Member(role="agent", name="db1", addresses=("127.0.0.1",))


class Told:
    """What people are told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, level: str, text: str) -> None:
        self.lines.append((level, text))


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[object]:
    """Has every call of a module's function noted, and made."""
    calls: list[object] = []
    function = getattr(module, name)

    def noting(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(module, name, noting)
    return calls


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Ledger, str]]:
    """An authority and the address that it serves at; its clock is this host's, so a short certificate is a short
    one."""
    monkeypatch.setattr(certificates, "CLOCK_SLACK", datetime.timedelta(seconds=1))
    monkeypatch.setattr(renewal, "ASK_EVERY_S", 0.2)
    ledger = Ledger.create(tmp_path / "authority")
    server = AuthorityServer(ledger, ["127.0.0.1"])
    address = await server.start("127.0.0.1:0")
    try:
        yield ledger, address
    finally:
        await server.close()
        ledger.close()


@pytest.fixture
async def agent(tmp_path: Path, lab: tuple[Ledger, str]) -> AsyncIterator[Permanent]:
    """A permanent agent of that authority."""
    found = Permanent(tmp_path / "host")
    for path in (found.directory / "pki").iterdir():
        path.unlink()
    write_member(lab[0], DB1, found.directory / "pki")
    await found.start()
    try:
        yield found
    finally:
        for line in found.sessions:
            await line.session.close(timeout_s=5.0)
        await found.stop()


def ends(home: Path) -> datetime.datetime:
    return Shown.read((home / "coordinator.pem").read_bytes()).ends


async def joined(agent: Permanent, lab: tuple[Ledger, str], tmp_path: Path) -> tuple[Path, Line, datetime.timedelta]:
    """A coordinator with a session, its certificates soon to end; longer ones on a machine that takes its time."""
    ledger, address = lab
    life = ledger.authority.validity
    for seconds in (12, 40):
        home, ledger.authority.validity = tmp_path / f"lead{seconds}", datetime.timedelta(seconds=seconds)
        try:
            await enrolment.enrol(address, ledger.fingerprint, ledger.invite(LEAD), home)
            agent.credentials = Credentials.read(home)
            line = await agent.connect()
        except (AgentUnreachable, enrolment.EnrolmentError):
            continue
        return home, line, life
    raise AssertionError("no session within half a minute")


async def test_a_long_run_outlives_the_certificates_that_it_began_with(
    agent: Permanent, lab: tuple[Ledger, str], tmp_path: Path, proxies: Callable[[str], Proxy]
) -> None:
    proxy = proxies(agent.address)
    agent.address = await proxy.start()
    home, line, life = await joined(agent, lab, tmp_path)
    began, key = Credentials.read(home), (home / "coordinator.key").read_bytes()
    end = ends(home)
    line.session.send(task("before"))
    assert isinstance(await line.outcome("before"), TaskDone)
    lab[0].authority.validity = life
    told = Told()
    member = asyncio.create_task(renewal.keep(home, 3600.0, told))
    try:
        await eventually(lambda: ends(home) > end, "they are renewed")
        await eventually(lambda: datetime.datetime.now(datetime.UTC) > end, "the first ones end")
        with pytest.raises(AgentUnreachable):  # the old ones are of no use any more
            await Permanent.connect(_with(agent, replace(began, directory=None)), run_id="other")
        proxy.cut()
        line.session.send(task("after"))
        assert isinstance(await line.outcome("after"), TaskDone)
    finally:
        member.cancel()
    assert not [event for event in line.rest() if isinstance(event, Lost)]
    assert (home / "coordinator.key").read_bytes() == key
    assert [level for level, _ in told.lines] == ["info"]
    assert "were renewed" in told.lines[0][1]


def _with(agent: Permanent, credentials: Credentials) -> Permanent:
    other = Permanent.__new__(Permanent)
    other.__dict__ |= agent.__dict__ | {"credentials": credentials}
    return other


async def test_an_authority_that_is_gone_is_told_when_it_is_needed(
    lab: tuple[Ledger, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, address = lab
    await enrolment.enrol(address, ledger.fingerprint, ledger.invite(LEAD), tmp_path / "lead")
    (tmp_path / "lead" / "authority").write_text("127.0.0.1:1\n")
    told, asked = Told(), counted(monkeypatch, enrolment, "fetch_denied")
    member = asyncio.create_task(renewal.keep(tmp_path / "lead", 1e9, told))
    await eventually(lambda: len(asked) >= 3, "it is asked, which does not matter yet")
    assert not told.lines
    ledger.authority.validity = datetime.timedelta(seconds=0)
    write_member(ledger, LEAD, tmp_path / "lead")
    await eventually(lambda: bool(told.lines), "it is told")
    asked.clear()
    await eventually(lambda: len(asked) >= 3, "it is asked again, and told no more")
    member.cancel()
    ((level, text),) = told.lines
    assert level == "warning"
    assert "cannot be renewed" in text
    assert "cannot be reached" in text


@pytest.mark.parametrize(
    ("life_s", "run_s", "said"),
    [(1000.0, 900.0, ""), (1000.0, 1100.0, "before this run may be over"), (0.0, 1.0, "count until")],
    ids=["long enough", "too short", "due"],
)
async def test_certificates_that_were_issued_by_hand_are_told_of(
    life_s: float, run_s: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "CLOCK_SLACK", datetime.timedelta(seconds=1))
    Authority.create(datetime.timedelta(seconds=life_s)).write_coordinator(tmp_path)
    monkeypatch.setattr(renewal, "ASK_EVERY_S", 0.01)
    told, looked = Told(), counted(monkeypatch, renewal, "_is_due")
    member = asyncio.create_task(renewal.keep(tmp_path, run_s, told))
    await eventually(lambda: member.done() or len(looked) >= 5, "it is told, or looked at again and again")
    member.cancel()
    assert [level for level, _ in told.lines] == (["warning"] if said else [])
    assert all(said in text and "pki issue" in text for _, text in told.lines)
