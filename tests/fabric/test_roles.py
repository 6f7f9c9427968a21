"""Every method and every request × every role; wrong certificates on both sides; renewal and revocation."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import sqlite3
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from eventually import eventually_async
from fabric_bench import HELLO, Permanent, channel, issued, lines, status, task

from proveout.agent.security.authz import CALLER
from proveout.coordinator import certificates
from proveout.coordinator.agents.connect import AgentUnreachable, open_stream
from proveout.coordinator.certificates import POLICY as REQUESTS
from proveout.coordinator.certificates import (
    Authority,
    AuthorityServer,
    Credentials,
    Ledger,
    Member,
    Refusal,
    write_member,
)
from proveout.core.errors import ProveoutError
from proveout.proto import enrolment
from proveout.proto.signing import DENIED, Shown, client_context, denied_text, load_chain, replace_file
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.messages import TaskDone

pytestmark = pytest.mark.server

WHO = (
    *("no certificate", "agent", "operator", "coordinator", "signer", "authority"),
    *("another scheme", "a name only"),
)
HELLO_OF_ROLES = codec.coordinator_envelope(replace(HELLO, run_id="roles", lease_s=0.2))


def credentials_of(who: str, authority: Authority) -> Credentials | None:
    def named(name: x509.GeneralName) -> Credentials:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = certificates._builder("x", authority.certificate.subject, key.public_key(), authority.validity)
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        certificate = builder.sign(authority._key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        return Credentials(ca=authority.pem, certificate=pem, key=enrolment.key_pem(key))

    made = {
        "agent": lambda: authority.issue("agent/db2", ["127.0.0.1"]),
        "operator": lambda: authority.issue("operator"),
        "coordinator": authority.issue_coordinator,
        "signer": lambda: authority.issue("signer"),
        "authority": lambda: authority.issue("authority", ["127.0.0.1"]),
        "another scheme": lambda: named(x509.UniformResourceIdentifier("https://coordinator")),
        "a name only": lambda: named(x509.DNSName("proveout.coordinator")),
    }
    return made[who]() if who in made else None


# ---- the agent's methods ---------------------------------------------------------------------------------------------


METHOD = codec.SESSION


NO_RIGHTS = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INTERNAL}
"""INTERNAL is rare: presumably the stream was reset before its status arrived. The call is refused as well."""


async def call(agent: Permanent, shown: Credentials | None, ca: bytes = b"") -> grpc.StatusCode:
    """Call the agent's method with a Hello and return the status of the stream."""
    return await status(channel(agent, shown, ca), HELLO_OF_ROLES)


async def test_the_agents_method_with_every_role(shared_agent: Permanent) -> None:
    services = pb.DESCRIPTOR.services_by_name.values()
    assert [f"/{service.full_name}/{method.name}" for service in services for method in service.methods] == [METHOD]
    authority, unavailable = shared_agent.authority, grpc.StatusCode.UNAVAILABLE
    for who in WHO:
        shown = credentials_of(who, authority)
        if who == CALLER:
            assert await call(shared_agent, shown) is grpc.StatusCode.OK, who
        elif who in ("no certificate", "signer", "authority"):
            assert await call(shared_agent, shown) is unavailable, who
        else:
            codes = {await call(shared_agent, shown) for _ in range(3)}
            assert grpc.StatusCode.PERMISSION_DENIED in codes and codes <= NO_RIGHTS, who
    for wrong in ("expired", "of another authority"):
        assert await call(shared_agent, not_in_force(authority, wrong).issue_coordinator()) is unavailable, wrong
    # An attacker with the certificate of another agent for the same address receives nothing.
    impostors = authority.issue("agent/db2", ["127.0.0.1"]).certificate
    assert await call(shared_agent, shared_agent.credentials, impostors) is unavailable
    assert await status(grpc.aio.insecure_channel(shared_agent.address), HELLO_OF_ROLES) is unavailable
    async with channel(shared_agent, shared_agent.credentials) as secure:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await secure.unary_unary(METHOD.replace("Session", "Shell"), None, None)(b"")  # type: ignore[misc]
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def not_in_force(authority: Authority, wrong: str) -> Authority:
    """The same authority, whose certificates have expired when they are issued, or another authority."""
    ended = Authority(authority.certificate, authority._key, datetime.timedelta(seconds=-10))
    return ended if wrong == "expired" else Authority.create()


# ---- the coordinator's check of an agent's certificate ---------------------------------------------------------------


@contextlib.asynccontextmanager
async def impostor(shown: Credentials) -> AsyncIterator[str]:
    """Run a TLS server with that certificate; yield its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    load_chain(context, shown.certificate, shown.key)

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


WRONG_AGENTS = {
    "another host's": "IP address mismatch",
    "expired": "certificate has expired",
    "of another authority": "certificate signature failure|unable to get local issuer",
    "a coordinator's": "unsuitable certificate purpose|unsupported certificate purpose",
    "the authority's own": "has no agent's certificate",
    "revoked": "was revoked",
}


@pytest.mark.parametrize("wrong", WRONG_AGENTS)
async def test_a_coordinator_refuses_an_agent_with_a_wrong_certificate(wrong: str, tmp_path: Path) -> None:
    authority = issued(tmp_path / "ca", "coordinator", tmp_path)
    shown = authority.issue("agent/db1", ["127.0.0.1"])
    if wrong == "another host's":
        shown = authority.issue("agent/db2", ["10.9.8.7"])
    elif wrong in ("expired", "of another authority"):
        shown = not_in_force(authority, wrong).issue("agent/db1", ["127.0.0.1"])
    elif wrong == "a coordinator's":
        shown = authority.issue_coordinator()
    elif wrong == "the authority's own":
        shown = authority.issue("authority", ["127.0.0.1"])
    else:
        replace_file(tmp_path / DENIED, denied_text([Shown.read(shown.certificate).serial]).encode())
    async with impostor(shown) as address:
        with pytest.raises(AgentUnreachable, match=WRONG_AGENTS[wrong]) as caught:
            await open_stream("db1", address, Credentials.read(tmp_path), HELLO, 60.0)
    assert caught.value.way_out


# ---- renewal and revocation without a restart ------------------------------------------------------------------------


async def shown_by(address: str, credentials: Credentials) -> int:
    """The serial number of the certificate that an agent presents now."""
    context = client_context(credentials.ca, credentials.certificate, credentials.key)
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return Shown.read(ssl.DER_cert_to_PEM_cert(der).encode()).serial


async def test_a_renewed_certificate_is_presented_to_new_connections_and_sessions_continue(agent: Permanent) -> None:
    home, line = agent.directory / "pki", await agent.connect()
    for first, second in (("agent.key", "agent.pem"), ("agent.pem", "agent.key")):
        before = await shown_by(agent.address, agent.credentials)
        renewed = agent.authority.issue("agent/db1", ["127.0.0.1"])
        files = {"agent.key": renewed.key, "agent.pem": renewed.certificate}
        replace_file(home / first, files[first])
        assert await shown_by(agent.address, agent.credentials) == before, "one without the other is not used"
        replace_file(home / second, files[second])
        assert await shown_by(agent.address, agent.credentials) == Shown.read(renewed.certificate).serial != before
    line.session.send(task("k", "sleep 0"))
    assert isinstance(await line.outcome("k"), TaskDone)


async def test_a_revoked_coordinator_is_disconnected_and_cannot_reconnect(agent: Permanent, tmp_path: Path) -> None:
    line, file = await agent.connect(), tmp_path / "f"
    line.session.send(task("long", f"sleep 600 {file}"))
    await line.accepted("long")
    revoked = denied_text([Shown.read(agent.credentials.certificate).serial])
    replace_file(agent.directory / "pki" / DENIED, revoked.encode())
    await eventually_async(lambda: lines(file) == ["stopped"], "its task is stopped")
    assert await call(agent, agent.credentials) in NO_RIGHTS


# ---- the authority's requests ----------------------------------------------------------------------------------------


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[tuple[Ledger, str]]:
    """An authority and the address that it serves at."""
    ledger = Ledger.create(tmp_path / "authority")
    server = AuthorityServer(ledger, ["127.0.0.1"])
    address = await server.start("127.0.0.1:0")
    try:
        yield ledger, address
    finally:
        await server.close()
        ledger.close()


DB1 = Member(role="agent", name="db1", addresses=("127.0.0.1",))


async def send_request(
    address: str, ca: bytes, credentials: Credentials | None, request: dict[str, Any]
) -> dict[str, Any]:
    shown = (credentials.certificate, credentials.key) if credentials is not None else (b"", b"")
    async with enrolment._Line(address, client_context(ca, *shown)) as line:
        await line.read()
        line._writer.write(json.dumps(request).encode() + b"\n")
        return await line.read()


async def test_every_request_with_every_role(lab: tuple[Ledger, str]) -> None:
    ledger, address = lab
    refused = "the certificate, or the lack of one, does not allow this"
    for what, allowed in [*REQUESTS.items(), ("issue", frozenset[str]()), ("shell", frozenset[str]())]:
        for who in ("no certificate", "agent", "operator", "coordinator"):
            answer = await send_request(
                address, ledger.authority.pem, credentials_of(who, ledger.authority), {"do": what}
            )
            let_in = certificates.ANYBODY in allowed or who in allowed
            assert (answer.get("error") != refused) is let_in, (what, who, answer)


@pytest.mark.parametrize(
    "request_",
    [
        *(b"", b"[]\n", b'{"do": []}\n', b"\x00" * 100_000),
        b"[" * 60_000 + b"\n",
        b'{"do": "enrol", "token": "\\ud800", "csr": {}}\n',
        b'{"do": "\\u001b]0;owned\\u0007"}\n',
    ],
    ids=["nothing", "list", "odd-request", "too-long", "deep", "surrogate", "escapes"],
)
async def test_an_invalid_request_closes_its_connection_only(
    lab: tuple[Ledger, str], request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, address = lab
    caplog.set_level("INFO")
    async with enrolment._Line(address, client_context(ledger.authority.pem)) as line:
        await line.read()
        line._writer.write(request_)
        line._writer.write_eof() if line._writer.can_write_eof() else line._writer.close()
        with contextlib.suppress(enrolment.EnrolmentError, RuntimeError):
            assert "error" in await line.read()
    token = ledger.invite(DB1)
    assert token
    assert "\x1b" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_host_enrols_without_sending_its_private_key(lab: tuple[Ledger, str], tmp_path: Path) -> None:
    ledger, address = lab
    home = tmp_path / "db1"
    assert await enrolment.enrol(address, ledger.fingerprint, ledger.invite(DB1), home) == "agent/db1"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "agent.key").stat().st_mode & 0o777 == 0o600
    shown = Shown.read((home / "agent.pem").read_bytes())
    assert shown.roles == {"agent/db1"}
    assert (home / "ca.pem").read_bytes() == ledger.authority.pem
    kept = b"".join(path.read_bytes() for path in ledger.directory.iterdir())
    assert (home / "agent.key").read_bytes() not in kept
    token = ledger.invite(Member(role="coordinator", name="lead"))
    assert await enrolment.enrol(address, ledger.fingerprint, token, tmp_path / "lead") == "coordinator"
    credentials = Credentials.read(tmp_path / "lead")
    assert Shown.read(credentials.signer).roles == {"signer"}
    assert Shown.read(credentials.certificate).roles == {"coordinator"}


async def test_what_does_not_enrol(lab: tuple[Ledger, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, address = lab
    token = ledger.invite(DB1)
    for wrong in ("lead", ":7444", "lead:²", "127.0.0.1:99999", "a..b:7444", f"{'a' * 64}:7444"):
        with pytest.raises(enrolment.EnrolmentError, match="not a valid address"):
            await enrolment.enrol(wrong, ledger.fingerprint, token, tmp_path / "a")
    with pytest.raises(enrolment.EnrolmentError, match="another authority answers there"):
        await enrolment.enrol(address, f"sha256:{'0' * 64}", token, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    with pytest.raises(enrolment.EnrolmentError, match="no keys can be written there") as caught:
        await enrolment.enrol(address, ledger.fingerprint, token, tmp_path / "file" / "pki")
    assert "The token is still valid" in str(caught.value)
    assert await enrolment.enrol(address, ledger.fingerprint, token, tmp_path / "pki") == "agent/db1"
    with pytest.raises(enrolment.EnrolmentError, match="never given out"):
        await enrolment.enrol(address, ledger.fingerprint, "x" * 32, tmp_path / "b")
    with pytest.raises(certificates.PkiError, match="at most 10 minutes"):
        ledger.invite(DB1, datetime.timedelta(minutes=11))
    token, now = ledger.invite(DB1), datetime.datetime.now().timestamp()
    monkeypatch.setattr("proveout.coordinator.certificates.time.time", lambda: now + 601)
    with pytest.raises(enrolment.EnrolmentError, match="too old"):
        await enrolment.enrol(address, ledger.fingerprint, token, tmp_path / "c")


@pytest.mark.parametrize("answer", [b"", b"[]\n", b"[" * 60_000 + b"\n"], ids=["nothing", "list", "deep"])
async def test_an_answer_that_is_none_is_reported(answer: bytes) -> None:
    """Nothing is what TLS 1.3 leaves of a certificate that the authority refuses."""
    line = enrolment._Line("lead:7444", ssl.create_default_context())
    line._reader = asyncio.StreamReader(limit=enrolment.LINE_MAX)
    line._reader.feed_data(answer)
    line._reader.feed_eof()
    with pytest.raises(enrolment.EnrolmentError, match=r"no answer that can be read\n.* a certificate that has ended"):
        await line.read()


async def test_a_token_enrols_one_member_only(lab: tuple[Ledger, str], tmp_path: Path) -> None:
    ledger, address = lab
    token = ledger.invite(DB1)
    ways = [enrolment.enrol(address, ledger.fingerprint, token, tmp_path / name) for name in ("a", "b", "c")]
    ended = await asyncio.gather(*ways, return_exceptions=True)
    assert ended.count("agent/db1") == 1
    others = [str(error) for error in ended if isinstance(error, enrolment.EnrolmentError)]
    assert len(others) == 2
    assert all("was used before" in error and "revoke" in error for error in others)
    assert sum((tmp_path / name / "agent.pem").exists() for name in ("a", "b", "c")) == 1


@pytest.mark.parametrize("shown", ["stranger", "agent"])
async def test_the_token_is_not_sent_to_a_server_without_the_authoritys_role(
    lab: tuple[Ledger, str], tmp_path: Path, shown: str
) -> None:
    """The certificate is public; the server must present one issued by the authority and with the authority's role."""
    ledger, _ = lab
    made = Authority.create().issue("authority", ["127.0.0.1"])
    if shown == "agent":
        made = ledger.authority.issue("agent/db9", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, made.certificate, made.key)
    received: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"ca": ledger.authority.pem.decode()}).encode() + b"\n")
        received.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(enrolment.EnrolmentError, match="what answers there is not the authority"):
            await enrolment.enrol(address, ledger.fingerprint, ledger.invite(DB1), tmp_path / "a")
        await eventually_async(lambda: received, "the connection ends")
    assert received == [b""]


async def test_members_are_renewed_and_fetch_the_list_of_revoked_ones_until_they_are_revoked(
    lab: tuple[Ledger, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, address = lab
    home = tmp_path / "db1"
    await enrolment.enrol(address, ledger.fingerprint, ledger.invite(DB1), home)
    before, key = (home / "agent.pem").read_bytes(), (home / "agent.key").read_bytes()
    assert not await enrolment.renew(home, "agent")
    later = Shown.read(before).ends - datetime.timedelta(days=1)
    assert await enrolment.renew(home, "agent", later)
    assert (home / "agent.pem").read_bytes() != before
    assert (home / "agent.key").read_bytes() == key
    assert Shown.read((home / "agent.pem").read_bytes()).roles == {"agent/db1"}
    write_member(ledger, Member(role="coordinator", name="lead"), tmp_path / "lead")
    await enrolment.fetch_denied(home, "agent")
    assert (home / DENIED).read_text() == ""
    (home / DENIED).write_bytes("# für Bob\n".encode("latin-1"))
    revoked = {one.serial for one in ledger.revoke("lead")}
    await enrolment.fetch_denied(home, "agent")
    assert {int(line, 16) for line in (home / DENIED).read_text().split()} == revoked
    assert (ledger.directory / DENIED).read_text() == (home / DENIED).read_text()
    assert Shown.read((tmp_path / "lead" / "coordinator.pem").read_bytes()).serial in revoked
    with monkeypatch.context() as patch, pytest.raises(enrolment.EnrolmentError, match="no answer that can be read"):
        patch.setattr(AuthorityServer, "_do", lambda *_: {})
        await enrolment.fetch_denied(home, "agent")
    assert len(ledger.revoke("db1")) == 2
    for asked in (enrolment.renew(home, "agent", later), enrolment.fetch_denied(home, "agent")):
        with pytest.raises(enrolment.EnrolmentError, match="refused"):
            await asked


def test_a_certificate_that_is_renewed_during_its_revocation_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, key = Ledger.create(tmp_path / "authority"), ec.generate_private_key(ec.SECP256R1()).public_key()
    ledger.issue(DB1, {"tls": key})
    (first,) = ledger.issued()
    note, beside = ledger.audit.note, Ledger.open(tmp_path / "authority")
    found: list[object] = []

    def renew() -> None:
        try:
            found.append(beside.renew(first.serial, {"tls": key}))
        except Refusal:
            found.append("refused")

    thread = threading.Thread(target=renew)

    def slow(what: str, **fields: Any) -> None:
        thread.start()
        thread.join(0.5)  # the other process has its turn
        note(what, **fields)

    monkeypatch.setattr(ledger.audit, "note", slow)
    ledger.revoke("db1")
    thread.join()
    assert found == ["refused"]
    assert all(one.revoked_unix_s is not None for one in ledger.issued())


def test_a_revocation_whose_file_cannot_be_written_can_be_repeated(tmp_path: Path) -> None:
    """The second one found nothing to revoke, and the file was never written."""
    ledger = Ledger.create(tmp_path)
    ledger.issue(DB1, {"tls": ec.generate_private_key(ec.SECP256R1()).public_key()})
    (tmp_path / DENIED).mkdir()
    with pytest.raises(IsADirectoryError):
        ledger.revoke("db1")
    (tmp_path / DENIED).rmdir()
    (one,) = ledger.revoke(ledger.issued()[0].serial.to_bytes(20).hex(":").upper())  # as openssl writes it
    assert (tmp_path / DENIED).read_text() == f"{one.serial:x}\n"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (Member(role="root", name="x"), "no role"),
        (Member(role="agent", name="a/../b", addresses=("x",)), "is not a valid name"),
        (Member(role="agent", name="", addresses=("x",)), "is not a valid name"),
        (Member(role="agent", name="db1"), "recognised by the address"),
        (Member(role="agent", name="db\u00e9", addresses=("x",)), "is not a valid name"),
        (Member(role="agent", name="db1", addresses=("db1:7443",)), "neither an IP address nor a name"),
        (Member(role="agent", name="db1", addresses=("10.0.0.5", "d\u00fcse.lab")), "neither an IP address nor a name"),
        (Member(role="agent", name="db1", addresses=("",)), "neither an IP address nor a name"),
    ],
)
def test_invalid_members_are_refused(member: Member, message: str, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    with pytest.raises(certificates.PkiError, match=message):
        ledger.invite(member)
    assert ledger.issued() == ()
    ledger.close()


def test_an_authority_is_created_once_and_its_files_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = certificates.replace_file, ["ca.pem", "ca.key"]

    def until_full(path: Path, *what: Any) -> None:
        if path.name in full[:1]:
            raise OSError(28, "No space left on device")
        write(path, *what)

    monkeypatch.setattr(certificates, "replace_file", until_full)
    while full:
        with pytest.raises(certificates.PkiError, match="cannot write there: No space"):
            Ledger.create(tmp_path / "a", datetime.timedelta(days=1))
        full.pop(0)
    Ledger.create(tmp_path / "a").close()
    with contextlib.closing(Ledger.open(tmp_path / "a")) as ledger:
        assert ledger.authority.validity == certificates.VALIDITY
    assert {path.name: path.stat().st_mode & 0o077 for path in (tmp_path / "a").iterdir() if path.name != "ca.pem"} == {
        "ca.key": 0,
        "ledger.sqlite": 0,
    }
    with pytest.raises(certificates.PkiError, match="already"):
        Ledger.create(tmp_path / "a")
    with contextlib.closing(Ledger.open(tmp_path / "a")) as ledger:
        ledger._db.execute("PRAGMA query_only = 1")  # as on a full disk
        with pytest.raises(certificates.PkiError, match="the ledger cannot be used"):
            ledger.invite(Member(role="coordinator", name="lead"))
    (tmp_path / "a" / "ledger.sqlite").write_text("a damaged file")
    with pytest.raises(certificates.PkiError, match="the ledger cannot be used"):
        Ledger.open(tmp_path / "a")
    (tmp_path / "a" / "ca.key").chmod(0o640)
    with pytest.raises(certificates.PkiError, match="can be read by others"):
        Ledger.open(tmp_path / "a")
    with pytest.raises(certificates.PkiError, match="no authority here"):
        Ledger.open(tmp_path / "b")


async def test_closing_an_authority_waits_for_a_running_enrolment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "authority")
    server = AuthorityServer(ledger, ["127.0.0.1"])
    address, token = await server.start("127.0.0.1:0"), ledger.invite(DB1)
    under_way, go, redeem = threading.Event(), threading.Event(), ledger.redeem

    def slow(*arguments: Any) -> Any:
        under_way.set()
        assert go.wait(60)
        return redeem(*arguments)

    monkeypatch.setattr(ledger, "redeem", slow)
    enrolling = asyncio.create_task(enrolment.enrol(address, ledger.fingerprint, token, tmp_path / "pki"))
    await asyncio.to_thread(under_way.wait)
    closing = asyncio.create_task(server.close())
    with pytest.raises(enrolment.EnrolmentError):
        await enrolling
    assert not closing.done()
    go.set()
    await closing
    assert [one.how for one in ledger.issued()] == ["enrol"]
    ledger.close()
    with pytest.raises(sqlite3.ProgrammingError):
        ledger.issued()


async def test_omitted_audit_entries_are_counted(lab: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, address = lab
    clock = iter([*[100.0] * (certificates.STRANGERS_NOTED_MAX + 5), 161.0])
    monkeypatch.setattr(certificates, "time", SimpleNamespace(monotonic=lambda: next(clock), time=lambda: 0.0))
    for _ in range(certificates.STRANGERS_NOTED_MAX + 6):
        await send_request(address, ledger.authority.pem, None, {"do": "enrol", "token": "made up", "csr": {}})
    text = (ledger.directory / "audit.log").read_text()
    assert text.count('"refused"') == certificates.STRANGERS_NOTED_MAX + 1
    assert text.count('"left_out_before": 5') == 1


def test_invalid_lines_in_the_revocation_list_revoke_no_less(tmp_path: Path) -> None:
    from proveout.proto.signing import Denied

    denied = Denied(tmp_path / DENIED)
    assert denied.serials() == frozenset()
    (tmp_path / DENIED).write_text("1f # stolen\n\nff\n")
    assert denied.serials() == {0x1F, 0xFF}
    denied.check()
    (tmp_path / DENIED).write_text("not a number at all\n2e\n")
    assert denied.serials() == {0x1F, 0xFF, 0x2E}
    assert Denied(tmp_path / DENIED).serials() == {0x2E}, "an invalid line does not invalidate the others"
    with pytest.raises(ProveoutError, match="line 1 is not a serial number"):
        Denied(tmp_path / DENIED).check()
    (tmp_path / DENIED).unlink()
    assert denied.serials() == {0x1F, 0xFF, 0x2E}
    denied.check()
    (tmp_path / DENIED).mkdir()
    with pytest.raises(ProveoutError, match="the list of revoked certificates cannot be read"):
        denied.check()


def test_credentials_follow_their_files(tmp_path: Path) -> None:
    issued(tmp_path / "ca", "coordinator", tmp_path)
    credentials = Credentials.read(tmp_path)
    issued(tmp_path / "ca", "coordinator", tmp_path)
    assert credentials.current().certificate != credentials.certificate
    (tmp_path / "coordinator.pem").unlink()
    assert credentials.current() is credentials
    assert replace(credentials, directory=None).current().certificate == credentials.certificate
