"""Malformed input over RPC against a real agent: it continues to serve, its memory is bounded, and it reports the fault.
(Certificates: test_roles.)"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator

import grpc
import pytest
from eventually import eventually
from hostile import Target, hostile, mutated, nested
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records import load_result

from proveout.agent.daemon.session import ANSWERS_MAX, BEATS_MAX, Outbox
from proveout.coordinator.agents.sanity import objection
from proveout.coordinator.live.ticks import Meters
from proveout.coordinator.measure.samples import Gathering
from proveout.proto.events import IterationId
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec, messages, results, tasks
from proveout.proto.wire.codec import WireFault

GROWTH_BYTES = 48 << 20
"""Limit of the growth of an agent's memory in any test: a few messages of 4 MiB, and Python's own arenas."""

KEY = "run/climb/2/1/1.1/load/db1"
TO_AGENT = sorted(pb.CoordinatorEnvelope.DESCRIPTOR.fields_by_name)
FROM_AGENT = sorted(pb.AgentEnvelope.DESCRIPTOR.fields_by_name)
FUZZ = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


# ---- codec and plausibility checks, without an agent -----------------------------------------------------------------


@pytest.mark.parametrize("name", TO_AGENT)
def test_any_message_to_an_agent_is_decoded_or_raises_wire_fault(name: str) -> None:
    @FUZZ
    @given(hostile(pb.CoordinatorEnvelope.DESCRIPTOR.fields_by_name[name].message_type))
    def check(part: object) -> None:
        envelope = pb.CoordinatorEnvelope()
        getattr(envelope, name).CopyFrom(part)
        with contextlib.suppress(WireFault):
            codec.coordinator_message(envelope)

    check()


@pytest.mark.parametrize("name", FROM_AGENT)
def test_any_message_of_an_agent_is_accepted_refused_or_raises_wire_fault(name: str) -> None:
    """Covers every part that reads a message before it counts as evidence: codec, plausibility check, gathering, live view."""

    @FUZZ
    @given(hostile(pb.AgentEnvelope.DESCRIPTOR.fields_by_name[name].message_type))
    def check(part: object) -> None:
        envelope = pb.AgentEnvelope()
        getattr(envelope, name).CopyFrom(part)
        try:
            message = codec.agent_message(envelope.SerializeToString())
        except WireFault:
            return
        if objection(message) is None and isinstance(message, messages.Sample):
            gathering = Gathering(
                id=IterationId(stage="s", rung=1, repeat=1, attempt=1), hosts={message.key: "h"}, names={}
            )
            meters = Meters(gathering)
            gathering.add(message)
            assert list(meters.take(message)) is not None
            gathering.lost({})

    check()


def second(number: int = 1, *, duration_s: float = 1.0, response: results.Histogram | None = None) -> messages.Sample:
    load = results.TransactionLoad(
        counts=results.TransactionCounts(name="t", ok=1), response=response or results.Histogram()
    )
    sample = results.LoadSecond(
        second=number, window="measure", start_ns=0, duration_s=duration_s, transactions=(load,)
    )
    return messages.Sample(key=KEY, sequence=1, sample=sample)


def reading(value: float, metric: str = "x") -> messages.Sample:
    sample = results.CaptureSample(capture="c", at_ns=0, readings=(results.Reading(metric=metric, value=value),))
    return messages.Sample(key=KEY, sequence=1, sample=sample)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (second(2**40), "in its second 1099511627776"),
        (second(duration_s=float("nan")), "lasted nan s"),
        (
            second(response=results.Histogram(indices=(2**40,), counts=(1,))),
            "histogram of transaction 't' is impossible",
        ),
        (second(response=results.Histogram(indices=(1, 2), counts=(1,))), "is impossible"),
        (reading(float("nan")), "the reading 'x' is nan"),
        (reading(1.0, "x" * 2000), "has 2000 characters"),
        (messages.Sample(key=KEY, sequence=-4, sample=reading(1.0).sample), "the number -4"),
        (messages.TaskProgress(key="short", done=1.0, total=2.0, unit="rows"), "there is no task 'short'"),
        (messages.TaskProgress(key=KEY, done=float("nan"), total=2.0, unit="rows"), "is not a number"),
        (
            messages.TaskDone(key=KEY, result=results.SqlDone(counts=(), values=(("x", float("inf")),))),
            "a number of SqlDone",
        ),
        (messages.TaskDone(key=KEY, result=results.CaptureResult(capture="c", samples=-1)), "made -1 samples"),
        (
            messages.TaskDone(key=KEY, result=load_result(pauses=(results.Stall(start_ns=9, end_ns=1),))),
            "a load stalled from 9 ns to 1 ns",
        ),
    ],
)
def test_impossible_values_give_an_objection(message: messages.AgentMessage, says: str) -> None:
    found = objection(message)
    assert found is not None
    assert says in found
    histogram = results.Histogram(indices=(5, 9), counts=(1, 2), sum_ns=23, min_ns=5, max_ns=9)
    for possible in (second(response=histogram), reading(-3.5)):
        assert objection(possible) is None, "a reading may be below zero"


def test_a_sample_of_a_distant_second_takes_no_memory() -> None:
    gathering = Gathering(id=IterationId(stage="s", rung=1, repeat=1, attempt=1), hosts={KEY: "db1"}, names={})
    gathering.add(second(2_600_000))
    assert len(gathering.reached) <= 3601


# ---- an outbox whose stream does not read ----------------------------------------------------------------------------


async def test_an_unread_outbox_keeps_only_the_newest_beat_replies() -> None:
    outbox = Outbox()
    for number in range(1_000):
        outbox.put(messages.BeatReply(sequence=number, sent_ns=0, received_ns=0, replied_ns=0))
    outbox.close()
    left = [await outbox.take() for _ in range(BEATS_MAX)]
    assert [reply.sequence for reply in left if isinstance(reply, messages.BeatReply)] == list(
        range(1_000 - BEATS_MAX, 1_000)
    )
    assert outbox.finished


async def test_a_full_outbox_stops_reading_until_an_answer_is_taken() -> None:
    outbox = Outbox()
    await outbox.wait_for_room()
    for number in range(ANSWERS_MAX + 2):
        outbox.put(messages.TaskAccepted(key=str(number)))
    waiting = asyncio.ensure_future(outbox.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    for _ in range(3):
        await outbox.take()
    await waiting


# ---- a real agent ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    one = Target(tmp_path_factory.mktemp("hostile"))
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _serves_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after each test with an agent: the same process, not much larger and without a traceback, serves a run."""
    if "target" not in request.fixturenames:
        yield
        return
    target: Target = request.getfixturevalue("target")
    target.send(target.hello())
    before = target.rss_bytes
    yield
    code, answers = target.send(target.hello())
    assert code is grpc.StatusCode.OK
    assert answers[0].HasField("welcome")
    assert target.process.poll() is None
    assert target.rss_bytes - before < GROWTH_BYTES
    assert "Unexpected [" not in target.log.read_text(), "grpc's message for an unhandled exception"


def test_random_messages_and_bytes_end_the_stream_with_a_status(target: Target) -> None:
    envelopes = st.sampled_from(TO_AGENT).flatmap(
        lambda name: hostile(pb.CoordinatorEnvelope.DESCRIPTOR.fields_by_name[name].message_type).map(
            lambda part: pb.CoordinatorEnvelope(**{name: part}).SerializeToString()
        )
    )
    spec = tasks.RunSql(endpoint=tasks.Endpoint(system="s", engine="e", dsn="d"), statements=("x",))
    valid = codec.coordinator_envelope(
        tasks.SignedTask(task=codec.task_bytes(tasks.Task(key="k", spec=spec, deadline_s=1)))
    ).SerializeToString()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.one_of(envelopes, st.binary(max_size=300), mutated(valid)), max_size=4))
    def check(payloads: list[bytes]) -> None:
        code, _ = target.send(target.hello(), *payloads)
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), code

    check()


@pytest.mark.parametrize("depth", [40, 5_000])
def test_deeply_nested_lists_are_refused(target: Target, depth: int) -> None:
    code, _ = target.send(target.hello(), nested(depth))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_flood_of_beats_and_of_one_task(target: Target) -> None:
    beat = pb.CoordinatorEnvelope(beat=pb.Beat(sequence=1, sent_ns=2)).SerializeToString()
    hello = target.hello()
    spec = tasks.RunSql(endpoint=tasks.Endpoint(system="s", engine="e", dsn="d"), statements=())
    task = target.signed(tasks.Task(key="k", spec=spec, deadline_s=60))
    code, answers = target.send(hello, *([beat] * 600), *([task] * 300))
    assert code is grpc.StatusCode.OK
    assert sum(answer.HasField("task_accepted") for answer in answers) == 300


def test_task_keys_with_escape_sequences_and_markup(target: Target) -> None:
    for key in ("\x1b[2J\x1b]0;owned\x07", "<script>alert(1)</script>", "x" * 2000, "../../etc/passwd", "\u202e"):
        spec = tasks.RunSql(endpoint=tasks.Endpoint(system="s", engine="e", dsn="d"), statements=("fault",))
        hello = target.hello()
        _, answers = target.send(hello, target.signed(tasks.Task(key=key, spec=spec, deadline_s=5)))
        assert [a.task_accepted.key for a in answers if a.HasField("task_accepted")] == [key]
    assert "\x1b" not in target.log.read_text()
    spec = tasks.RunSql(endpoint=tasks.Endpoint(system="s", engine="e", dsn="d"), statements=())
    hello = target.hello()
    long = target.signed(tasks.Task(key="x" * 100_000, spec=spec, deadline_s=5))
    assert target.send(hello, long)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_connections_that_do_not_finish_do_not_block_a_run(target: Target) -> None:
    """Idle ones; a slow loris, which sends its handshake byte by byte; pings without end; frames that are none."""
    before, hello = target.descriptors, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)
    crowd = [socket.create_connection(("127.0.0.1", target.port), 60) for _ in range(200)]
    try:
        for byte in hello:
            for one in crowd[:20]:
                with contextlib.suppress(OSError):
                    one.send(bytes([byte]))
        code, _ = target.send(target.hello())
        assert code is grpc.StatusCode.OK, "it serves while they are open"
    finally:
        for one in crowd:
            one.close()
    eventually(lambda: target.descriptors <= before + 5, "they are closed")
    ping = struct.pack(">I", 8)[1:] + b"\x06\x00" + bytes(4) + b"pingping"
    begins = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for data in (
        begins + bytes(3) + b"\x04\x00" + bytes(4) + ping * 10_000,
        b"\xff" * 9000,
        begins + b"\x00\x40\x00\x01\xff\xff\xff\xff\xff" + b"x" * 16384,
    ):
        with target.tls() as connection, contextlib.suppress(OSError):  # the agent may close the connection
            connection.sendall(data)


def test_tls_1_2_is_refused(target: Target) -> None:
    with target.tls(ssl.TLSVersion.TLSv1_3) as connection:
        assert connection.version() == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        target.tls(ssl.TLSVersion.TLSv1_2)
