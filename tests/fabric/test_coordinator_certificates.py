"""A coordinator's certificates during a run: renewed by the authority; without one, a warning before they expire."""

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


class Notices:
    """Collects the notices to the user: (level, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, level: str, text: str) -> None:
        self.lines.append((level, text))


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[object]:
    """Record the arguments of every call of a module's function; the calls are still made."""
    calls: list[object] = []
    function = getattr(module, name)

    def noting(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(module, name, noting)
    return calls


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Ledger, str]]:
    """An authority and the address that it serves at. Its clock is this host's, so the slack for clocks is 1 s."""
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
    """A coordinator with a session and certificates that expire soon: after 12 s, after 40 s on a slow machine."""
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


async def test_a_run_continues_with_renewed_certificates_after_the_first_expire(
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
    notices = Notices()
    member = asyncio.create_task(renewal.keep(home, 3600.0, notices))
    try:
        await eventually(lambda: ends(home) > end, "they are renewed")
        await eventually(lambda: datetime.datetime.now(datetime.UTC) > end, "the first ones end")
        with pytest.raises(AgentUnreachable):  # the expired certificates are refused
            await Permanent.connect(_with(agent, replace(began, directory=None)), run_id="other")
        proxy.cut()
        line.session.send(task("after"))
        assert isinstance(await line.outcome("after"), TaskDone)
    finally:
        member.cancel()
    assert not [event for event in line.rest() if isinstance(event, Lost)]
    assert (home / "coordinator.key").read_bytes() == key
    assert [level for level, _ in notices.lines] == ["info"]
    assert "were renewed" in notices.lines[0][1]


def _with(agent: Permanent, credentials: Credentials) -> Permanent:
    other = Permanent.__new__(Permanent)
    other.__dict__ |= agent.__dict__ | {"credentials": credentials}
    return other


async def test_one_warning_when_certificates_are_due_and_the_authority_is_unreachable(
    lab: tuple[Ledger, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, address = lab
    await enrolment.enrol(address, ledger.fingerprint, ledger.invite(LEAD), tmp_path / "lead")
    (tmp_path / "lead" / "authority").write_text("127.0.0.1:1\n")
    notices, requests = Notices(), counted(monkeypatch, enrolment, "fetch_denied")
    member = asyncio.create_task(renewal.keep(tmp_path / "lead", 1e9, notices))
    await eventually(lambda: len(requests) >= 3, "requests, whose failure does not matter yet")
    assert not notices.lines
    ledger.authority.validity = datetime.timedelta(seconds=0)
    write_member(ledger, LEAD, tmp_path / "lead")
    await eventually(lambda: bool(notices.lines), "a notice")
    requests.clear()
    await eventually(lambda: len(requests) >= 3, "further requests without a further notice")
    member.cancel()
    ((level, text),) = notices.lines
    assert level == "warning"
    assert "cannot be renewed" in text
    assert "cannot be reached" in text


@pytest.mark.parametrize(
    ("life_s", "run_s", "warning"),
    [(1000.0, 900.0, ""), (1000.0, 1100.0, "before this run may be over"), (0.0, 1.0, "count until")],
    ids=["long enough", "too short", "due"],
)
async def test_certificates_issued_by_hand_that_expire_during_the_run_give_a_warning(
    life_s: float, run_s: float, warning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "CLOCK_SLACK", datetime.timedelta(seconds=1))
    Authority.create(datetime.timedelta(seconds=life_s)).write_coordinator(tmp_path)
    monkeypatch.setattr(renewal, "ASK_EVERY_S", 0.01)
    notices, checks = Notices(), counted(monkeypatch, renewal, "_is_due")
    member = asyncio.create_task(renewal.keep(tmp_path, run_s, notices))
    await eventually(lambda: member.done() or len(checks) >= 5, "a notice, or repeated checks")
    member.cancel()
    assert [level for level, _ in notices.lines] == (["warning"] if warning else [])
    assert all(warning in text and "pki issue" in text for _, text in notices.lines)
