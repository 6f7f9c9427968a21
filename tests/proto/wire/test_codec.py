"""The codec: every message is decoded as it was encoded, readings and loads in columns are equal to the objects that they
represent, and invalid messages and inconsistent columns are refused."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import Capture, Value
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.codec import MAX_MESSAGE_BYTES, VALUE_DEPTH_MAX, WireFault
from proveout.proto.wire.messages import (
    PROTOCOL_VERSION,
    AgentMessage,
    Beat,
    CoordinatorMessage,
    Goodbye,
    Hello,
    Loads,
    LogLine,
    Readings,
    Sample,
    TaskAccepted,
    TaskDone,
)
from proveout.proto.wire.results import (
    CaptureSample,
    Handling,
    Histogram,
    LoadResult,
    LoadSecond,
    Reading,
    SqlDone,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.wire.tasks import Endpoint, PopulateSystem, RunCapture, SignedTask, Task

ENDPOINT = Endpoint(system="s", engine="postgres", dsn="d")
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOAT = st.floats(allow_nan=False)
VALUE: st.SearchStrategy[Value] = st.recursive(
    st.none() | st.booleans() | INT64 | FLOAT | TEXT, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INT64,
    float: FLOAT,
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
}
MESSAGE_TYPES = (Task, *typing.get_args(CoordinatorMessage), *typing.get_args(AgentMessage))


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of this type may hold."""
    arguments = typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if dataclasses.is_dataclass(hint):
        return instances(typing.cast(type, hint))
    if typing.get_origin(hint) is Literal:
        return st.sampled_from(arguments)
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        if str in arguments and float in arguments:
            return VALUE
        return st.one_of([strategy(argument) for argument in arguments])
    if hint is types.NoneType:
        return st.none()
    if typing.get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is tuple:
        return st.tuples(*(strategy(argument) for argument in arguments))
    if typing.get_origin(hint) is Sequence:
        return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
    assert isinstance(hint, (str, typing.ForwardRef)), hint
    return VALUE


def instances(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    fields = {field.name: strategy(hints[field.name]) for field in dataclasses.fields(cls)}
    if cls is LoadSecond:  # the other fields of a transaction are only in the result of a load
        histogram = strategy(Histogram)
        sent = {"counts": strategy(TransactionCounts), "response": histogram, "service": histogram}
        one = st.builds(TransactionLoad, **sent, schedule=histogram)
        fields["transactions"] = st.lists(one, max_size=3).map(tuple)
    return st.builds(cls, **fields)


def through_the_wire(message: Any) -> Any:
    if isinstance(message, Task):
        return codec.task_from_bytes(codec.task_bytes(message))
    if isinstance(message, typing.get_args(CoordinatorMessage)):
        data = codec.coordinator_envelope(message).SerializeToString()
        return codec.coordinator_message(pb.CoordinatorEnvelope.FromString(data))
    data = codec.agent_envelope(message).SerializeToString()
    return codec.agent_message(data)


@pytest.mark.parametrize("cls", MESSAGE_TYPES, ids=lambda cls: cls.__name__)
def test_every_message_survives_the_wire(cls: type) -> None:
    @settings(max_examples=20, deadline=None)
    @given(instances(cls))
    def check(message: Any) -> None:
        assert through_the_wire(message) == message

    check()


def populate(*parameters: tuple[str, Value]) -> Task:
    workload = Workload(name="w", kind="hlr", parameters=parameters)
    return Task(key="k", spec=PopulateSystem(workload=workload, endpoint=ENDPOINT, workers=2), deadline_s=1.0)


def test_a_task_that_another_library_has_written_longer_is_the_same() -> None:
    """Clients in other languages may write what is left out here, or twice what is there."""
    assert codec.task_from_bytes(codec.task_bytes(populate()) + pb.Task(key="k").SerializeToString()) == populate()


def test_types_of_values_are_preserved_also_of_those_that_were_decoded_before() -> None:
    values: tuple[Value, ...] = (1, 1.0, True, "1", None, (), (1, (2.0, (False, None))))
    for value in (*values, *values):
        ((_, got),) = through_the_wire(populate(("scale", value))).spec.workload.parameters
        assert (type(got), got) == (type(value), value)


def wrong_kind() -> pb.Task:
    task = Task(key="k", spec=RunCapture(capture=Capture(name="c", kind="os", every_s=1.0)), deadline_s=1.0)
    message = pb.Task.FromString(codec.task_bytes(task))
    message.run_capture.capture.kind = 99  # type: ignore[assignment]
    return message


def newer(message: Any) -> Any:
    """Field 900, a varint: its tag is (900 << 3 | 0) = 7200."""
    return type(message).FromString(message.SerializeToString() + b"\xa0\x38\x05")


@pytest.mark.parametrize(
    ("envelope", "says"),
    [
        (pb.CoordinatorEnvelope(), "CoordinatorEnvelope came without its `message`"),
        (pb.Task(key="k"), "Task came without its `spec`"),
        (pb.Task(key="k", run_capture=pb.RunCapture()), "RunCapture came without its `capture`"),
        (wrong_kind(), "99 is not a CaptureKind"),
        (newer(wrong_kind()), "a Task holds fields that this version does not know"),
        (
            pb.CoordinatorEnvelope(beat=newer(pb.Beat())),
            "a CoordinatorEnvelope holds fields that this version does not know",
        ),
        (pb.AgentEnvelope(beat_reply=newer(pb.BeatReply())), "a AgentEnvelope holds fields that this version"),
        (pb.AgentEnvelope(welcome=pb.Welcome(facts=[pb.NamedValue(name="x", value=pb.Value())])), "without its kind"),
    ],
)
def test_what_is_not_a_message_is_refused(envelope: Any, says: str) -> None:
    with pytest.raises(WireFault, match=says):
        if isinstance(envelope, pb.CoordinatorEnvelope):
            codec.coordinator_message(envelope)
        else:
            (codec.task_from_bytes if isinstance(envelope, pb.Task) else codec.agent_message)(
                envelope.SerializeToString()
            )


def nested(depth: int) -> Value:
    value: Value = ()
    for _ in range(depth):
        value = (value,)
    return value


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Beat(sequence=2**63, sent_ns=0), "a Beat cannot be sent"),
        (LogLine(level="info", text="\ud800"), "a LogLine cannot be sent"),
        (LogLine(level="info", text="x" * (MAX_MESSAGE_BYTES + 1)), "above the limit"),
        (TaskDone(key="k", result=Goodbye()), "a Goodbye has no place in TaskDone"),  # type: ignore[arg-type]
        (TaskAccepted(key=3), "a TaskAccepted cannot be sent"),  # type: ignore[arg-type]
        (populate(("deep", nested(VALUE_DEPTH_MAX + 1))), "not a valid parameter"),
    ],
)
def test_values_that_cannot_be_encoded(message: Any, says: str) -> None:
    with pytest.raises(WireFault, match=says):
        through_the_wire(message)


def test_the_hello_of_a_newer_version_is_read_so_that_it_can_be_refused() -> None:
    hello = Hello(run_id="r", epoch=1, host="h", protocol=PROTOCOL_VERSION + 1)
    inside = codec.coordinator_envelope(hello).hello.SerializeToString() + b"\xa0\x38\x05"
    data = b"\x0a" + bytes([len(inside)]) + inside
    assert codec.coordinator_message(pb.CoordinatorEnvelope.FromString(data)) == hello


def test_the_largest_histograms_fit() -> None:
    """Twelve transaction types, each with three histograms of 6 000 buckets and counts in the thousands."""
    histogram = Histogram(indices=tuple(range(20_000, 26_000)), counts=(5_000,) * 6_000, sum_ns=2**60, max_ns=2**40)
    times = {"response": histogram, "service": histogram, "schedule": histogram}
    counts = [TransactionCounts(name=f"transaction {number}", errors=(("40001", 7),)) for number in range(12)]
    load = tuple(TransactionLoad(counts=each, **times) for each in counts)
    result = LoadResult(
        transactions=load, ended_in_window=1, measure_start_ns=1, measure_end_ns=2, client_cpu_fraction=0.5, client_cpu_s=1.0,
        start_skew_ns=-3, seconds_produced=4, pause_longest_ns=7, handling=(Handling(late=histogram, answers=9, stamped=3, runqueue_s=0.5, runqueue_fraction=0.25), Handling()),
    )  # fmt: skip
    assert through_the_wire(TaskDone(key="k", result=result)).result == result
    second = LoadSecond(second=1, window="measure", start_ns=1, duration_s=1.0, transactions=load)
    assert through_the_wire(Sample(key="k", sequence=1, sample=second)).sample == second


def test_outcomes_survive_the_journal_and_other_bytes_are_refused() -> None:
    outcome = TaskDone(key="k", result=SqlDone(counts=(1, 2)))
    assert codec.outcome_from_bytes(codec.outcome_bytes(outcome)) == outcome
    for data in (b"\xff\xff\xff", codec.agent_envelope(TaskAccepted(key="k")).SerializeToString()):
        with pytest.raises(WireFault, match="journal holds"):
            codec.outcome_from_bytes(data)
    with pytest.raises(WireFault, match="bytes that are not a Task"):
        codec.task_from_bytes(b"\xff\xff")


def test_a_received_task_has_the_digest_of_the_sent_one_and_no_other() -> None:
    sent = codec.task_bytes(populate(("scale", 2), ("mix", (("a", 1.5), ("b", None)))))
    came = through_the_wire(SignedTask(task=sent, sequence=7, expires_unix_s=8, signature=b"s"))
    assert codec.task_digest(came.task) == codec.task_digest(sent)
    assert codec.task_digest(codec.task_bytes(populate(("scale", 3)))) != codec.task_digest(sent)


# ---- columns

READINGS = tuple(Reading(metric=f"m{one}", label="sda" if one % 2 else "", value=one / 3) for one in range(5))


ERROR_OF_NONE = pb.ErrorColumn(transaction=3, name="x", count=1)


def of_buckets(*indices: int) -> Histogram:
    return Histogram(indices=indices, counts=(2,) * len(indices), sum_ns=sum(indices), min_ns=1, max_ns=9)


LOADS = (
    TransactionLoad(counts=TransactionCounts(name="a", ok=3), response=of_buckets(1, 5), service=of_buckets(7)),
    TransactionLoad(counts=TransactionCounts(name="b", errors=(("40001", 2), ("08006", 1))), schedule=of_buckets(4, 9)),
    TransactionLoad(
        counts=TransactionCounts(name="c", logical_failures=1, retried=2, missed=4), response=of_buckets(3)
    ),
)


def sample(at: int, readings: Any) -> pb.AgentEnvelope:
    item = CaptureSample(capture="host", at_ns=at, readings=readings)
    return codec.agent_envelope(Sample(key="k", sequence=1, sample=item))


def second() -> pb.AgentEnvelope:
    item = LoadSecond(second=0, window="measure", start_ns=0, duration_s=1.0, transactions=LOADS)
    return codec.agent_envelope(Sample(key="k", sequence=1, sample=item))


def test_columns_are_sequences_of_the_objects_they_represent() -> None:
    readings, loads = Readings.of(READINGS), Loads.from_bytes(Loads.of(LOADS).to_bytes())
    assert readings == READINGS and tuple(readings) == READINGS
    assert (readings[1], readings[-1], readings[1:3], len(readings)) == (READINGS[1], READINGS[4], READINGS[1:3], 5)
    assert loads == LOADS and (loads[1], loads[-1], loads[:2]) == (LOADS[1], LOADS[2], LOADS[:2])
    assert readings != READINGS[:4] and loads != LOADS[1:] and hash(readings) == hash(READINGS)
    with pytest.raises(IndexError):
        readings[5]


def broken(envelope: pb.AgentEnvelope, path: str, value: Any) -> pb.AgentEnvelope:
    *parts, name = path.split(".")
    message: Any = envelope.sample
    for part in parts:
        message = getattr(message, part)
    if value is None:
        message.ClearField(name)
    elif isinstance(value, bytes):
        setattr(message, name, value)
    else:
        del getattr(message, name)[:]
        getattr(message, name).extend(value)
    return envelope


@pytest.mark.parametrize(
    ("envelope", "path", "value", "says"),
    [
        (sample(0, READINGS), "capture_sample.readings.values", bytes(16), "2 values for 5 names"),
        (sample(0, READINGS), "capture_sample.readings.values", bytes(41), "multiple of"),
        (sample(0, READINGS), "capture_sample.readings.names", b"\xff\xff", "names of its readings cannot be read"),
        (sample(0, READINGS), "capture_sample.readings.names", b"\x0a\x01m", "1 metrics with 0 labels"),
        (second(), "load_second.transactions.ok", [1], "not of one length"),
        (second(), "load_second.transactions.indexed", [1], "not of one length"),
        (second(), "load_second.transactions.indices", [1, 2], "cut off"),
        (second(), "load_second.transactions.counted", [9, -9, *[0] * 4, 6, 0, 0], "cut off"),
        (second(), "load_second.transactions", None, "came without its `transactions`"),
        (second(), "load_second.transactions.errors", [ERROR_OF_NONE], "belongs to no transaction"),
    ],
)
def test_inconsistent_columns_are_refused(envelope: pb.AgentEnvelope, path: str, value: Any, says: str) -> None:
    with pytest.raises(WireFault, match=says):
        codec.agent_message(broken(envelope, path, value).SerializeToString())
