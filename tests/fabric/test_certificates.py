"""Files of certificates, and a coordinator's during a run: renewed by the authority; without one, a warning before they
expire."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from eventually import eventually_async
from fabric_bench import Line, Permanent, Proxy, issued, task

from proveout.agent.security.authz import read_identity, roles_of
from proveout.cli import execute
from proveout.coordinator import certificates
from proveout.coordinator.certificates import AuthorityServer, Credentials, Ledger, Member, PkiError
from proveout.coordinator.deploy import deployment
from proveout.coordinator.deploy.deployment import Order
from proveout.coordinator.deploy.ssh_connection import Target
from proveout.core.errors import ProveoutError
from proveout.proto import enrolment
from proveout.proto.signing import Shown, Signer
from proveout.proto.wire.messages import TaskDone


def test_roles_of_a_certificate() -> None:
    for uris, roles in (
        ([b"proveout://coordinator"], {"coordinator"}),
        ([b"proveout://agent/db1", b"proveout://coordinator"], {"agent/db1", "coordinator"}),
        ([b"spiffe://proveout://coordinator", b"\xff"], set()),
    ):
        assert roles_of({"peer_uri": uris}) == roles


def test_credentials_that_were_written_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(PkiError, match=r"cannot read ca.pem.*\n.*PROVEOUT_PKI"):
        Credentials.read(tmp_path)
    authority = issued(tmp_path / "authority", "coordinator", tmp_path / "pki")
    for file, place, role in (("coordinator.pem", "authority", "coordinator"), ("ca.pem", "other", "agent")):
        with pytest.raises(PkiError, match=f"{file} there is of another"):
            issued(tmp_path / place, role, tmp_path / "pki", "db1.lab", name="other")
    issued(tmp_path / "authority", "coordinator", tmp_path / "pki")
    credentials = Credentials.read(tmp_path / "pki")
    assert credentials.ca == authority.pem
    assert "PRIVATE" not in repr(credentials)
    (tmp_path / "pki" / "coordinator.key").chmod(0o640)
    with pytest.raises(PkiError, match="can be read by others"):
        Credentials.read(tmp_path / "pki")


def test_an_agents_certificate_names_its_addresses_and_is_valid_for_7_days(tmp_path: Path) -> None:
    issued(tmp_path / "authority", "agent", tmp_path / "pki", "db1.lab", "10.0.0.1", "::1")
    certificate = x509.load_pem_x509_certificate((tmp_path / "pki" / "agent.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["db1.lab"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["proveout://agent/db1"]
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days <= 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--address", "[::1]"], "'[::1]' is neither an IP address nor a name of DNS"),
        (["--address", "lab é"], "'lab é' is neither an IP address nor a name of DNS"),
    ],
)
def test_an_authority_does_not_serve_at_a_wrong_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    Ledger.create(tmp_path / "authority").close()
    assert execute(["pki", "serve", str(tmp_path / "authority"), *options]) != 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("address", ["db1.lab:7443", "10.0.0.5:7443", "[FE80::1]:7443", "[0:0:0:0:0:0:0:1]:7443"])
def test_a_host_is_not_enrolled_again_for_the_spelling_of_its_address(tmp_path: Path, address: str) -> None:
    target = Target(name="db1", roles=(), address=address, ssh="db1")
    issued(tmp_path / "authority", "agent", tmp_path / "pki", target.hostname)
    ca, certificate = ((tmp_path / "pki" / name).read_text() for name in ("ca.pem", "agent.pem"))
    facts = {"ca": ca, "certificate": certificate, "authority": "lead:7444"}
    ledger, credentials = Ledger.open(tmp_path / "authority"), SimpleNamespace(ca=ca.encode())
    order = cast(Order, SimpleNamespace(credentials=credentials, ledger=ledger, authority="lead:7444"))
    now = datetime.datetime.now(datetime.UTC)
    assert deployment._enrolment(target, order, facts, now, is_root=False) == ""
    ledger.close()


LEAD = Member(role="coordinator", name="lead")
DAY = datetime.timedelta(days=1)


class Kept:
    """`certificates.keep` in the background, with its notices (level, text) and the calls of a function of a module."""

    def __init__(self, home: Path, run_s: float, patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.lines: list[tuple[str, str]] = []
        self.calls = 0
        function = getattr(module, name)

        def counted(*arguments: Any) -> Any:
            self.calls += 1
            return function(*arguments)

        patch.setattr(module, name, counted)
        patch.setattr(certificates, "ASK_EVERY_S", 0.001)
        self.work = asyncio.ensure_future(certificates.keep(home, run_s, lambda *line: self.lines.append(line)))

    async def goes_on(self) -> None:
        before = self.calls
        await eventually_async(lambda: self.work.done() or self.calls >= before + 3, "further looks")


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """Certificates of an authority that are due and in force for a day; renewed ones are not due."""
    ledger = Ledger.create(tmp_path / "authority")
    server = AuthorityServer(ledger, ["127.0.0.1"])
    address = await server.start("127.0.0.1:0")
    life, ledger.authority.validity = ledger.authority.validity, DAY
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "CLOCK_SLACK", 10 * DAY)
        await enrolment.enrol(address, ledger.fingerprint, ledger.invite(LEAD), tmp_path / "lead")
    ledger.authority.validity = life
    try:
        yield tmp_path / "lead"
    finally:
        await server.close()
        ledger.close()


async def test_certificates_that_are_due_are_renewed_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> datetime.datetime:
        return Shown.read((home / "coordinator.pem").read_bytes()).ends

    before, key = end(), (home / "coordinator.key").read_bytes()
    kept = Kept(home, 3600.0, monkeypatch, enrolment, "fetch_denied")
    await eventually_async(lambda: kept.lines, "a notice")
    await kept.goes_on()
    kept.work.cancel()
    assert end() > before
    assert (home / "coordinator.key").read_bytes() == key
    ((level, text),) = kept.lines
    assert level == "info" and "were renewed" in text


async def test_a_renewal_and_an_enrolment_that_a_full_disk_ended_can_be_repeated(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, write = "signer.pem", enrolment.replace_file

    def until_full(path: Path, *what: Any) -> None:
        if path.name == full:
            raise OSError(28, "No space left on device")
        write(path, *what)

    monkeypatch.setattr(enrolment, "replace_file", until_full)
    with pytest.raises(enrolment.EnrolmentError, match="No space"):
        await enrolment.renew(home, "coordinator")
    assert certificates._is_due(home), "a warning where the authority cannot be reached"
    full = ""
    assert await enrolment.renew(home, "coordinator"), "its signer is due"
    assert not await enrolment.renew(home, "coordinator")
    full = "signer.key"
    with contextlib.closing(Ledger.open(tmp_path / "authority")) as ledger:
        for place in (tmp_path / "by-hand", home / "coordinator.key"):
            with pytest.raises(PkiError, match="cannot write there"):
                certificates.write_member(ledger, LEAD, place)
        address = enrolment.authority_of(home) or ""
        with pytest.raises(enrolment.EnrolmentError, match="No space"):
            await enrolment.enrol(address, ledger.fingerprint, ledger.invite(LEAD), tmp_path / "new")
        full = ""
        assert (
            await enrolment.enrol(address, ledger.fingerprint, ledger.invite(LEAD), tmp_path / "new") == "coordinator"
        )


async def test_keys_with_a_password_and_damaged_certificates_are_named(home: Path) -> None:
    for name in ("coordinator.key", "signer.key"):
        key = serialization.load_pem_private_key((home / name).read_bytes(), None)
        form, lock = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"a password")
        (home / name).write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    with pytest.raises(enrolment.EnrolmentError, match="cannot be read: Password was not given"):
        await enrolment.renew(home, "coordinator")
    with pytest.raises(ProveoutError, match=r"signer.key cannot be read"):
        Signer((home / "signer.key").read_bytes())
    for ending in ("pem", "key"):
        (home / f"coordinator.{ending}").rename(home / f"agent.{ending}")
    with pytest.raises(ProveoutError, match=r"agent.key cannot be read: Password was not given"):
        read_identity(home)
    (home / "agent.pem").write_text("no certificate")
    with pytest.raises(enrolment.EnrolmentError, match="cannot be read: Unable to load PEM"):
        await enrolment.renew(home, "agent")


async def test_one_warning_when_certificates_are_due_and_the_authority_is_unreachable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "authority").write_text("127.0.0.1:1\n")
    due = False
    monkeypatch.setattr(Shown, "due", lambda _self, _now: due)
    kept = Kept(home, 1e9, monkeypatch, enrolment, "fetch_denied")
    await kept.goes_on()
    assert not kept.lines, "a failure that does not matter yet"
    due = True
    await eventually_async(lambda: kept.lines, "a notice")
    await kept.goes_on()
    kept.work.cancel()
    ((level, text),) = kept.lines
    assert level == "warning"
    assert "cannot be renewed" in text
    assert "cannot be reached" in text


@pytest.mark.parametrize(
    ("life_s", "run_s", "warning"),
    [(1e6, 9e5, ""), (1e6, 1.1e6, "before this run may be over"), (0.0, 1.0, "count until")],
    ids=["long enough", "too short", "due"],
)
async def test_certificates_issued_by_hand_that_expire_during_the_run_give_a_warning(
    life_s: float, run_s: float, warning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued(tmp_path / "ca", "coordinator", tmp_path, validity=datetime.timedelta(seconds=life_s))
    kept = Kept(tmp_path, run_s, monkeypatch, certificates, "_is_due")
    await kept.goes_on()
    kept.work.cancel()
    assert [level for level, _ in kept.lines] == (["warning"] if warning else [])
    assert all(warning in text and "pki issue" in text for _, text in kept.lines)


async def test_the_authority_renews_its_own_certificate_by_the_clock_as_after_a_suspend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.now(tz) + 6 * DAY

    monkeypatch.setattr(certificates, "ASK_EVERY_S", 0.001)
    ledger = Ledger.create(tmp_path)
    server = AuthorityServer(ledger, ["127.0.0.1"])
    host, _, port = (await server.start("127.0.0.1:0")).rpartition(":")
    loaded, load = list[bytes](), certificates.load_chain
    monkeypatch.setattr(certificates, "load_chain", lambda *chain: loaded.append(chain[1]) or load(*chain))
    try:
        before = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
        assert not loaded
        monkeypatch.setattr(certificates, "datetime", Later)
        await eventually_async(lambda: loaded, "another certificate")
        assert await asyncio.to_thread(ssl.get_server_certificate, (host, int(port))) == loaded[-1].decode() != before
    finally:
        await server.close()
        ledger.close()


@pytest.mark.server
async def test_a_broken_stream_is_dialled_with_the_certificates_of_then(
    shared_agent: Permanent,
    connect: Callable[..., Awaitable[Line]],
    proxies: Callable[[str], Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy, read = proxies(shared_agent.address), list[Credentials]()
    line = await connect(address=await proxy.start())
    current = Credentials.current
    monkeypatch.setattr(Credentials, "current", lambda self: read.append(current(self)) or read[-1])
    proxy.cut()
    line.session.send(task("k", "sleep 0"))
    assert isinstance(await line.outcome("k"), TaskDone)
    assert read
