"""Tasks of one session with a real agent: results, faults, deadlines, samples; streams that break and lose replies: a
session goes on, tasks run once, outcomes arrive once; messages that an agent cannot decode. (Leases and epochs on a
driven clock: tests/simulation.)"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import thorough
from eventually import PATIENCE_S, eventually_async
from fabric_bench import ENDPOINT, HELLO, Line, Permanent, Proxy, by_hand, channel, leave, lines, status, task

from proveout.coordinator.agents import session
from proveout.coordinator.agents.connect import StreamEnded, open_stream
from proveout.coordinator.agents.session import Lost
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.codec import MAX_MESSAGE_BYTES, task_bytes
from proveout.proto.wire.messages import Cancel, Finish, Goodbye, Sample, TaskAccepted, TaskDone, TaskFailed
from proveout.proto.wire.results import CaptureResult, SqlDone
from proveout.proto.wire.tasks import Checkpoint, RunCapture, RunSql, StopSystem, Task

pytestmark = pytest.mark.server

CAPTURE = RunCapture(capture=Capture(name="c", kind="os", every_s=0.5))


def sequences(line: Line) -> list[int]:
    return [message.sequence for message in line.messages() if isinstance(message, Sample)]


async def test_a_task_and_its_result(line: Line) -> None:
    line.session.send(task("k", "sleep 0"))
    assert await line.outcome("k") == TaskDone(key="k", result=SqlDone(counts=(0,)))
    welcome = line.session.welcome
    assert (welcome.agent, welcome.cores) == ("db1", len(os.sched_getaffinity(0)))
    assert {"kernel", "memory_bytes", "boot_id"} <= dict(welcome.facts).keys()
    clock = line.session.clock  # parent and child read the same CLOCK_MONOTONIC: the true offset is 0
    assert abs(clock.offset_ns) <= clock.uncertainty_ns
    assert line.session.to_agent_ns(10**12) == 10**12 + line.session.clock.offset_ns


async def test_how_tasks_fail(line: Line, shared_agent: Permanent, tmp_path: Path) -> None:
    for sent in (
        task("fault", "fault"),
        task("bug", "bug"),
        Task(key="wrong", spec=StopSystem(system="s", data_root="/x"), deadline_s=60),
        Task(key="no handler", spec=Checkpoint(endpoint=ENDPOINT), deadline_s=60),
        task("late", f"sleep 600 {tmp_path}/f", deadline_s=0.1),
        *(task(f"{deadline_s}", "sleep 0", deadline_s=deadline_s) for deadline_s in (0.0, -1.0, float("nan"), 1e9)),
    ):
        line.session.send(sent)
    found = await line.failures("fault", "bug", "wrong", "no handler", "late", "0.0", "-1.0", "nan", "1000000000.0")
    assert found["fault"] == ("unreachable", "the server does not answer")
    assert found["bug"] == ("fault", "ValueError: cannot connect with host=x password=*** user=y")
    assert found["wrong"][0] == "fault" and "str has no place in TaskDone" in found["wrong"][1]
    assert found["no handler"] == ("missing", "this agent has no handler for Checkpoint")
    assert found["late"] == ("timeout", "the task did not end within its deadline of 0.1 s")
    assert lines(tmp_path / "f") == ["stopped"]
    for key in ("0.0", "-1.0", "nan", "1000000000.0"):
        assert found[key][0] == "invalid"
    (way_out,) = {one.error.way_out for one in line.messages() if isinstance(one, TaskFailed) and one.key == "fault"}
    assert way_out == "Start it."
    log = shared_agent.log.read_text()
    assert "Traceback" in log and "fake_agent.py" in log
    assert "hunter2" not in log


async def test_cancel_ends_a_task_and_no_other(line: Line, tmp_path: Path) -> None:
    line.session.send(task("one", f"sleep 600 {tmp_path}/one"))
    line.session.send(task("two", f"await {tmp_path}/go"))
    await line.accepted("two")
    line.session.send(Cancel(key="one", reason="enough"))
    line.session.send(Cancel(key="never", reason="there is no such task"))
    assert await line.failures("one", "never") == {
        "one": ("cancelled", "enough"),
        "never": ("cancelled", "the task does not run here"),
    }
    assert lines(tmp_path / "one") == ["stopped"]
    (tmp_path / "go").touch()
    assert isinstance(await line.outcome("two"), TaskDone)


async def test_a_task_that_cannot_be_sent_fails_and_the_session_goes_on(line: Line) -> None:
    line.session.send(Task(key="big", spec=RunSql(endpoint=ENDPOINT, statements=("x" * (5 << 20),)), deadline_s=60))
    code, message = await line.failure("big")
    assert code == "invalid"
    assert "it cannot be sent: a Task of" in message
    line.session.send(task("after", "sleep 0"))
    assert isinstance(await line.outcome("after"), TaskDone)
    assert not any(isinstance(event, Lost) for event in line.rest())


# ---- streams that break ----------------------------------------------------------------------------------------------

Through = Callable[[], Awaitable[tuple[Proxy, Line]]]


@pytest.fixture
def through(
    shared_agent: Permanent, connect: Callable[..., Awaitable[Line]], proxies: Callable[[str], Proxy]
) -> Through:
    """Return a function that opens a session through a proxy."""

    async def opened() -> tuple[Proxy, Line]:
        proxy = proxies(shared_agent.address)
        return proxy, await connect(address=await proxy.start())

    return opened


async def test_a_session_goes_on_while_its_stream_is_broken(through: Through, tmp_path: Path) -> None:
    proxy, line = await through()
    line.session.send(task("k", f"await {tmp_path}/go", f"append {tmp_path}/f"))
    line.session.send(task("old", "sleep 600"))
    line.session.send(Task(key="c", spec=CAPTURE, deadline_s=60))
    await line.accepted("old")
    await line.message(Sample, "c")
    proxy.cut()
    line.session.send(Cancel(key="old", reason="enough"))
    line.session.send(task("new", "sleep 0"))
    before = len(sequences(line))
    await eventually_async(lambda: proxy.connections >= 4, "it is dialled again, each time by a probe and a stream")
    (tmp_path / "go").touch()
    ended = {one.key: one for one in [await line.outcome("k", "old", "new") for _ in range(3)]}
    assert isinstance(ended["k"], TaskDone) and isinstance(ended["new"], TaskDone)
    assert isinstance(ended["old"], TaskFailed) and ended["old"].error.message == "enough"
    assert lines(tmp_path / "f") == ["effect"]
    while len(sequences(line)) < before + 20:
        await line.message(Sample, "c")
    line.session.send(Finish(key="c"))
    done = await line.outcome("c")
    assert isinstance(done, TaskDone) and isinstance(done.result, CaptureResult)
    assert not any(isinstance(event, Lost) for event in line.rest())
    assert sequences(line) == sorted(set(sequences(line)))
    missing = sorted(set(range(1, done.result.samples + 1)) - set(sequences(line)))
    assert missing == list(range(missing[0], missing[-1] + 1)) if missing else True, "those in flight are one gap"


@pytest.mark.parametrize("fault", [ssl.SSLError("key values mismatch"), ProveoutError("signer.key cannot be read")])
async def test_a_session_goes_on_while_the_certificates_here_are_being_replaced(
    fault: Exception, through: Through, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task of the session ended with the fault, and the coordinator waited for nothing."""
    proxy, line = await through()
    line.session.send(task("k", f"await {tmp_path}/go"))
    await line.accepted("k")
    faults = [fault]

    async def dialled(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return await open_stream(*arguments)

    monkeypatch.setattr(session, "open_stream", dialled)
    proxy.cut()
    (tmp_path / "go").touch()
    assert isinstance(await line.outcome("k"), TaskDone)


@pytest.mark.thorough
async def test_every_task_has_one_outcome_over_a_stream_that_keeps_breaking(through: Through, tmp_path: Path) -> None:
    """The stream breaks before the tasks are sent, after they have run, and after they have run without a reply."""
    proxy, line = await through()
    file, batches = tmp_path / "f", thorough.count(200, 12)
    for batch in range(batches):
        if drops := batch % 3 == 0:
            line.session.send(task(f"connected{batch}", "sleep 0"))
            await line.outcome(f"connected{batch}")
        proxy.drops_replies = drops
        keys = [f"k{batch}.{number}" for number in range(5)]
        for key in keys:
            line.session.send(task(key, f"append {file} {key}"))
        if drops or batch % 3 == 1:
            await eventually_async(lambda last=keys[-1]: last in lines(file), "it has run")  # type: ignore[misc]
        proxy.cut()
    line.session.send(task("last", "sleep 0"))
    await line.outcome("last")
    outcomes = Counter(message.key for message in line.messages() if isinstance(message, TaskDone))
    assert len(outcomes) == 5 * batches + len(range(0, batches, 3)) + 1 and set(outcomes.values()) == {1}
    accepted = Counter(message.key for message in line.messages() if isinstance(message, TaskAccepted))
    assert accepted <= outcomes, "none is accepted twice, also when the reply was lost"
    assert len(lines(file)) == len(set(lines(file))) == 5 * batches


# ---- one stream at a time, by hand -----------------------------------------------------------------------------------


async def test_a_key_has_one_effect(shared_agent: Permanent, tmp_path: Path) -> None:
    stream = await by_hand(shared_agent, replace(HELLO, run_id="by hand"))
    once = task_bytes(task("k", f"append {tmp_path}/f"))
    for _ in range(50):
        await stream.write(once)
    await stream.write(task_bytes(task("k", f"append {tmp_path}/f two")))
    await stream.write(task_bytes(task("last", "sleep 0")))
    answers = []
    while not answers or answers[-1] != TaskDone(key="last", result=SqlDone(counts=(0,))):
        answers.append(await stream.read())
    of_k = [answer for answer in answers if getattr(answer, "key", "") == "k"]
    assert sum(isinstance(answer, TaskAccepted) for answer in of_k) == 50
    (refused,) = [answer.error for answer in of_k if isinstance(answer, TaskFailed)]
    assert (refused.code, refused.message) == ("refused", "the key of this task was used for another task")
    assert lines(tmp_path / "f") == ["effect"]
    await leave(stream)


async def test_a_second_stream_of_the_same_coordinator_replaces_the_first(shared_agent: Permanent) -> None:
    first, second = [await by_hand(shared_agent, replace(HELLO, run_id="replaced")) for _ in range(2)]
    with pytest.raises(StreamEnded):
        await first.read()
    await second.write(task_bytes(task("k", "sleep 0")))
    assert isinstance(await second.read(), TaskAccepted)
    await first.close()
    await leave(second)


Connect = Callable[..., Awaitable[Line]]

# ---- messages that an agent cannot decode: it refuses them and continues to serve ------------------------------------

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
