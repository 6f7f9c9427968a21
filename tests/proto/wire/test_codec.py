"""The codec: every message is decoded as it was encoded, and invalid ones are refused."""

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
from proveout.dsl.plan.topology import Capture, System
from proveout.dsl.plan.values import Value
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec, messages
from proveout.proto.wire.codec import MAX_MESSAGE_BYTES
from proveout.proto.wire.messages import (
    PROTOCOL_VERSION,
    AgentMessage,
    Beat,
    Cancel,
    CoordinatorMessage,
    Goodbye,
    Hello,
    LogLine,
    Sample,
    TaskAccepted,
    TaskDone,
)
from proveout.proto.wire.protobuf_mapping import VALUE_DEPTH_MAX, WireFault
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
from proveout.proto.wire.tasks import Checkpoint, Endpoint, PopulateSystem, RunCapture, StartSystem, Task

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
MESSAGE_TYPES = (*typing.get_args(CoordinatorMessage), *typing.get_args(AgentMessage))


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
    if isinstance(message, typing.get_args(CoordinatorMessage)):
        data = codec.coordinator_envelope(message).SerializeToString()
        return codec.coordinator_message(pb.CoordinatorEnvelope.FromString(data))
    data = codec.agent_envelope(message).SerializeToString()
    return codec.agent_message(pb.AgentEnvelope.FromString(data))


@pytest.mark.parametrize("cls", MESSAGE_TYPES, ids=lambda cls: cls.__name__)
def test_every_message_survives_the_wire(cls: type) -> None:
    @settings(max_examples=40, deadline=None)
    @given(instances(cls))
    def check(message: Any) -> None:
        assert through_the_wire(message) == message

    check()


def dataclasses_on_the_wire() -> set[type]:
    found: set[type] = set()

    def visit(hint: Any) -> None:
        if dataclasses.is_dataclass(hint) and hint not in found:
            found.add(typing.cast(type, hint))
            for inner in typing.get_type_hints(hint).values():
                visit(inner)
        for argument in typing.get_args(hint):
            visit(argument)

    for cls in MESSAGE_TYPES:
        visit(cls)
    return found


@pytest.mark.parametrize("cls", sorted(dataclasses_on_the_wire() - {Reading}, key=lambda cls: cls.__name__))
def test_message_and_dataclass_have_the_same_fields(cls: type) -> None:
    descriptor = pb.DESCRIPTOR.message_types_by_name[cls.__name__]
    real_oneofs = {name: one for name, one in descriptor.oneofs_by_name.items() if not name.startswith("_")}
    inside = {field.name for one in real_oneofs.values() for field in one.fields}
    on_the_wire = {field.name for field in descriptor.fields if field.name not in inside} | set(real_oneofs)
    assert on_the_wire == {field.name for field in dataclasses.fields(cls)}


def test_every_message_of_the_file_is_used() -> None:
    plain = {"Nothing", "Value", "Values", "NamedText", "NamedCount", "NamedNumber", "NamedValue"}
    envelopes = {"CoordinatorEnvelope", "AgentEnvelope"}
    columns = {"ReadingNames", "ReadingColumns", "TransactionColumns", "ErrorColumn"}
    used = {cls.__name__ for cls in dataclasses_on_the_wire()} - {"Reading"}  # which goes in columns alone
    assert set(pb.DESCRIPTOR.message_types_by_name) == used | plain | envelopes | columns


def test_types_of_values_are_preserved() -> None:
    values: tuple[Value, ...] = (1, 1.0, True, "1", None, (), (1, (2.0, (False, None))))
    workload = Workload(name="w", kind="hlr", parameters=tuple((str(i), value) for i, value in enumerate(values)))
    endpoint = Endpoint(system="s", engine="postgres", dsn="d")
    task = Task(key="k", spec=PopulateSystem(workload=workload, endpoint=endpoint, workers=2), deadline_s=1.0)
    back = through_the_wire(task)
    got = [value for _, value in back.spec.workload.parameters]
    assert [(type(value), value) for value in got] == [(type(value), value) for value in values]


def test_none_is_not_the_empty_text() -> None:
    for dsn in (None, ""):
        system = System(name="s", engine="postgres", host="h", dsn=dsn)
        task = Task(key="k", spec=StartSystem(system=system, data_root="/d"), deadline_s=1.0)
        assert through_the_wire(task).spec.system.dsn == dsn


# ---- refused messages -----------------------------------------------------------------------------------------------


def task_envelope() -> pb.CoordinatorEnvelope:
    capture = Capture(name="c", kind="os", every_s=1.0)
    task = Task(key="k", spec=RunCapture(capture=capture), deadline_s=1.0)
    return codec.coordinator_envelope(task)


def test_an_envelope_without_message() -> None:
    with pytest.raises(WireFault, match="CoordinatorEnvelope came without its `message`"):
        codec.coordinator_message(pb.CoordinatorEnvelope())


def test_a_task_without_spec() -> None:
    with pytest.raises(WireFault, match="Task came without its `spec`"):
        codec.coordinator_message(pb.CoordinatorEnvelope(task=pb.Task(key="k")))


def test_a_missing_part() -> None:
    envelope = task_envelope()
    envelope.task.run_capture.ClearField("capture")
    with pytest.raises(WireFault, match="RunCapture came without its `capture`"):
        codec.coordinator_message(envelope)


@pytest.mark.parametrize("number", [0, 99])
def test_an_enum_value_out_of_range(number: int) -> None:
    envelope = task_envelope()
    envelope.task.run_capture.capture.kind = number  # type: ignore[assignment]
    with pytest.raises(WireFault, match=f"{number} is not a CaptureKind"):
        codec.coordinator_message(envelope)


def test_a_field_of_a_newer_version() -> None:
    # field 900, a varint, inside the task: tag (900 << 3 | 0) = 7200
    inside = pb.Task(key="k").SerializeToString() + b"\xa0\x38\x05"
    data = b"\x1a" + bytes([len(inside)]) + inside
    with pytest.raises(WireFault, match="fields that this version does not know"):
        codec.coordinator_message(pb.CoordinatorEnvelope.FromString(data))


def test_the_hello_of_a_newer_version_is_read_so_that_it_can_be_refused() -> None:
    hello = Hello(run_id="r", epoch=1, host="h", protocol=PROTOCOL_VERSION + 1)
    inside = codec.coordinator_envelope(hello).hello.SerializeToString() + b"\xa0\x38\x05"
    data = b"\x0a" + bytes([len(inside)]) + inside
    assert codec.coordinator_message(pb.CoordinatorEnvelope.FromString(data)) == hello


def test_a_value_without_kind() -> None:
    envelope = pb.AgentEnvelope(welcome=pb.Welcome(facts=[pb.NamedValue(name="x", value=pb.Value())]))
    with pytest.raises(WireFault, match="without its kind"):
        codec.agent_message(envelope)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Beat(sequence=2**63, sent_ns=0), "a Beat cannot be sent"),
        (LogLine(level="info", text="\ud800"), "a LogLine cannot be sent"),
        (LogLine(level="info", text="x" * (MAX_MESSAGE_BYTES + 1)), "above the limit"),
        (TaskDone(key="k", result=Goodbye()), "a Goodbye has no place in TaskDone"),  # type: ignore[arg-type]
        (TaskAccepted(key=3), "a TaskAccepted cannot be sent"),  # type: ignore[arg-type]
    ],
)
def test_values_that_cannot_be_encoded(message: Any, says: str) -> None:
    with pytest.raises(WireFault, match=says):
        through_the_wire(message)


def test_a_value_that_is_nested_too_deeply() -> None:
    value: Value = ()
    for _ in range(VALUE_DEPTH_MAX + 1):
        value = (value,)
    with pytest.raises(WireFault, match="not a valid parameter"):
        codec.agent_envelope(dataclasses.replace(welcome(), facts=(("deep", value),)))


def welcome() -> messages.Welcome:
    return messages.Welcome(agent="a", version="1", protocol=1, machine_id="m", cores=1)


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_the_largest_histograms_fit() -> None:
    """Twelve transaction types, each with three histograms of 6 000 buckets and counts in the thousands."""
    histogram = Histogram(indices=tuple(range(20_000, 26_000)), counts=(5_000,) * 6_000, sum_ns=2**60, max_ns=2**40)
    load = tuple(
        TransactionLoad(
            counts=TransactionCounts(name=f"transaction {number}", errors=(("40001", 7),)),
            response=histogram,
            service=histogram,
            schedule=histogram,
        )
        for number in range(12)
    )
    result = LoadResult(
        transactions=load,
        ended_in_window=1,
        measure_start_ns=1,
        measure_end_ns=2,
        client_cpu_fraction=0.5,
        client_cpu_s=1.0,
        start_skew_ns=-3,
        seconds_produced=4,
        pause_longest_ns=7,
        handling=(
            Handling(late=histogram, answers=9, stamped=3, runqueue_s=0.5, runqueue_fraction=0.25),
            Handling(),
        ),
    )
    assert through_the_wire(TaskDone(key="k", result=result)).result == result
    second = LoadSecond(second=1, window="measure", start_ns=1, duration_s=1.0, transactions=load)
    assert through_the_wire(Sample(key="k", sequence=1, sample=second)).sample == second


# ---- outcomes in the task journal ------------------------------------------------------------------------------------


def test_outcomes_survive_the_journal() -> None:
    outcome = TaskDone(key="k", result=SqlDone(counts=(1, 2)))
    assert codec.outcome_from_bytes(codec.outcome_bytes(outcome)) == outcome


@pytest.mark.parametrize("data", [b"\xff\xff\xff", codec.agent_envelope(TaskAccepted(key="k")).SerializeToString()])
def test_invalid_outcomes_are_refused(data: bytes) -> None:
    with pytest.raises(WireFault, match="journal holds"):
        codec.outcome_from_bytes(data)


def test_different_tasks_have_different_digests() -> None:
    endpoint = Endpoint(system="s", engine="postgres", dsn="d")
    task = Task(key="k", spec=Checkpoint(endpoint=endpoint), deadline_s=1.0)
    other = dataclasses.replace(task, spec=Checkpoint(endpoint=dataclasses.replace(endpoint, dsn="e")))
    assert codec.task_digest(task) == codec.task_digest(dataclasses.replace(task))
    assert codec.task_digest(task) != codec.task_digest(other)


def test_a_received_task_has_the_digest_of_the_sent_one() -> None:
    workload = Workload(name="w", kind="hlr", parameters=(("scale", 2), ("mix", (("a", 1.5), ("b", None)))))
    endpoint = Endpoint(system="s", engine="postgres", dsn="d")
    task = Task(key="k", spec=PopulateSystem(workload=workload, endpoint=endpoint, workers=2), deadline_s=1.0)
    signed = dataclasses.replace(task, sequence=7, expires_unix_s=8, signature="c2ln")
    came = pb.CoordinatorEnvelope.FromString(codec.coordinator_envelope(signed).SerializeToString())
    assert codec.came_digest(came) == codec.task_digest(signed) == codec.task_digest(task)
    assert codec.came_digest(codec.coordinator_envelope(Cancel(key="k", reason="r"))) == ""


def test_decoded_workloads_are_independent() -> None:
    endpoint = Endpoint(system="s", engine="postgres", dsn="d")
    for parameters in ((("scale", 1),), (("scale", 1),), (("scale", True),), (), (("scale", 1),)):
        workload = Workload(name="w", kind="hlr", parameters=parameters)
        task = Task(key="k", spec=PopulateSystem(workload=workload, endpoint=endpoint, workers=2), deadline_s=1.0)
        back = through_the_wire(task).spec.workload
        assert back == workload and [type(value) for _, value in back.parameters] == [type(v) for _, v in parameters]


def test_a_sample_of_nothing() -> None:
    sample = Sample(key="k", sequence=1, sample=CaptureSample(capture="c", at_ns=0, readings=()))
    assert through_the_wire(sample) == sample


def test_a_capture_without_edges_is_that_of_an_older_message() -> None:
    capture = Capture(name="c", kind="os", every_s=1.0)
    spec = RunCapture(capture=capture, edges_s=(1.0, 4.0))
    envelope = codec.coordinator_envelope(Task(key="k", spec=spec, deadline_s=1.0))
    assert codec.coordinator_message(envelope).spec.edges_s == (1.0, 4.0)  # type: ignore[union-attr]
    envelope.task.run_capture.ClearField("edges_s")
    assert codec.coordinator_message(envelope).spec.edges_s == ()  # type: ignore[union-attr]
