"""Messages that an agent cannot decode, which it refuses while it continues to serve, and files of the PKI. (Roles:
test_roles.)"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from eventually import PATIENCE_S
from fabric_bench import HELLO, Line, Permanent, channel, issued, status, task

from proveout.agent.security.authz import roles_of
from proveout.coordinator.certificates import Credentials, PkiError
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.codec import MAX_MESSAGE_BYTES
from proveout.proto.wire.messages import Goodbye, TaskDone

pytestmark = pytest.mark.server
Connect = Callable[..., Awaitable[Line]]

BRIEF = replace(HELLO, run_id="brief", lease_s=0.2)
"""The next run waits for the end of the lease of one whose stream broke."""


@pytest.fixture
async def served(shared_agent: Permanent, connect: Connect) -> AsyncIterator[Permanent]:
    """The shared agent, which must still serve after the test."""
    yield shared_agent
    line = await connect()
    line.session.send(task("k", "sleep 0"))
    assert isinstance(await line.outcome("k"), TaskDone)


async def send(agent: Permanent, *envelopes: pb.CoordinatorEnvelope) -> grpc.StatusCode:
    """Send messages as a coordinator does, with the certificate of its signer."""
    complete = [pb.CoordinatorEnvelope.FromString(one.SerializeToString()) for one in envelopes]
    for one in complete:
        if one.HasField("hello"):
            one.hello.signer = agent.credentials.signer.decode()
    return await status(channel(agent, agent.credentials), *complete)


hello = codec.coordinator_envelope(BRIEF)
envelope = pb.CoordinatorEnvelope


def test_roles_of_a_certificate() -> None:
    for uris, roles in (
        ([b"proveout://coordinator"], {"coordinator"}),
        ([b"proveout://agent/db1", b"proveout://coordinator"], {"agent/db1", "coordinator"}),
        ([b"spiffe://proveout://coordinator", b"\xff"], set()),
    ):
        assert roles_of({"peer_uri": uris}) == roles


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envelopes", "code"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        ([codec.coordinator_envelope(Goodbye())], grpc.StatusCode.INVALID_ARGUMENT),
        ([hello, envelope()], grpc.StatusCode.INVALID_ARGUMENT),
        ([hello, hello], grpc.StatusCode.INVALID_ARGUMENT),
        ([envelope(hello=pb.Hello(run_id="x" * MAX_MESSAGE_BYTES))], grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["nothing", "no-hello", "empty-later", "two-hellos", "too-large"],
)
async def test_invalid_messages_end_the_stream_with_a_status(
    served: Permanent, envelopes: list[pb.CoordinatorEnvelope], code: grpc.StatusCode
) -> None:
    assert await send(served, *envelopes) is code


async def test_an_invalid_message_does_not_end_the_session(served: Permanent, connect: Connect) -> None:
    run = secrets.token_hex(4)
    first = codec.coordinator_envelope(replace(HELLO, run_id=run))
    await send(served, first, envelope())
    line = await connect(run_id=run)
    line.session.send(task("k", "sleep 0"))
    assert isinstance(await line.outcome("k"), TaskDone)
    await line.session.close()


async def test_http_gets_no_http_answer(served: Permanent) -> None:
    name, _, port = served.address.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    answer = b""
    with contextlib.suppress(OSError):  # the agent may close the connection
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read(100_000)
    assert not answer.startswith(b"HTTP")
    writer.close()


# ---- files of the PKI ------------------------------------------------------------------------------------------------


def test_credentials_that_were_written_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(PkiError, match=r"cannot read ca.pem.*\n.*PROVEOUT_PKI"):
        Credentials.read(tmp_path)
    authority = issued(tmp_path / "authority", "coordinator", tmp_path / "pki")
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
