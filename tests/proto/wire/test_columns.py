"""Readings and loads in columns: equal to the objects that they represent; inconsistent columns are refused."""

from __future__ import annotations

from typing import Any

import pytest

from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.codec import WireFault
from proveout.proto.wire.messages import Loads, Readings, Sample
from proveout.proto.wire.results import (
    CaptureSample,
    Histogram,
    LoadSecond,
    Reading,
    TransactionCounts,
    TransactionLoad,
)

READINGS = tuple(Reading(metric=f"m{one}", label="sda" if one % 2 else "", value=one / 3) for one in range(5))


ERROR_OF_NONE = pb.ErrorColumn(transaction=3, name="x", count=1)


def histogram(*indices: int) -> Histogram:
    return Histogram(indices=indices, counts=(2,) * len(indices), sum_ns=sum(indices), min_ns=1, max_ns=9)


LOADS = (
    TransactionLoad(counts=TransactionCounts(name="a", ok=3), response=histogram(1, 5), service=histogram(7)),
    TransactionLoad(counts=TransactionCounts(name="b", errors=(("40001", 2), ("08006", 1))), schedule=histogram(4, 9)),
    TransactionLoad(counts=TransactionCounts(name="c", logical_failures=1, retried=2, missed=4), response=histogram(3)),
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
        codec.agent_message(broken(envelope, path, value))
