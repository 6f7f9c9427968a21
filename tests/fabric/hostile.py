"""Malformed and extreme messages, made from the protocol's own descriptors, raw bytes, and an agent to send them to.

`hostile(descriptor)` is a hypothesis strategy of any message of that kind: every field of extreme values, enum numbers
that do not exist, unknown fields, other oneof members, text with ANSI, HTML, bidi and lone newlines. `mutated(bytes)`
flips, cuts and repeats.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import psutil
from eventually import eventually
from fabric_bench import HELLO, Permanent
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from proveout.proto.signing import Addressee, Signer
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.tasks import Task

METHOD = codec.SESSION
INT64 = (1 << 63) - 1
TEXTS = ("", "k", "run/x/0/0/1.1/load/db1", "\x1b[2J\x1b]0;x\x07", "<script>", "\u202eevil", "a\nb\x00c", "é" * 3000)
REALS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 3.15e8)
WHOLE = (0, 1, -1, INT64, -INT64 - 1, 4_102_444_800_000_000_000, 10**6)
DEPTH_MAX = 4


BYTES = (b"", b"\0" * 8, b"\xff" * 16, b"\x0a\x01m\x12\x01l", bytes(200_000))


def hostile(descriptor: Descriptor, depth: int = 0) -> st.SearchStrategy[Any]:
    """A strategy of any message of a type."""

    @st.composite
    def make(draw: st.DrawFn) -> Any:
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if draw(st.integers(0, 3)) == 0 or (field.message_type is not None and depth >= DEPTH_MAX):
                continue
            _fill(message, field, draw, depth)
        if draw(st.integers(0, 9)) == 0:  # a field of a version that does not exist
            message.MergeFromString(b"\xf2\x3f\x03new")
        return message

    return make()


def _fill(message: Any, field: FieldDescriptor, draw: st.DrawFn, depth: int) -> None:
    if field.message_type is not None:
        part = draw(hostile(field.message_type, depth + 1))
        if field.is_repeated:
            getattr(message, field.name).extend([part] * draw(st.integers(0, 3)))
        else:
            getattr(message, field.name).CopyFrom(part)
        return
    value = draw(_scalar(field))
    if field.is_repeated:
        getattr(message, field.name).extend([value] * draw(st.integers(0, 3)))
    else:
        setattr(message, field.name, value)


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from(BYTES)
    kinds: dict[int, st.SearchStrategy[Any]] = {
        FieldDescriptor.CPPTYPE_STRING: st.sampled_from(TEXTS),
        FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from(REALS),
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_ENUM: st.sampled_from((0, 1, 2, 99, -1)),
    }
    return kinds.get(field.cpp_type, st.sampled_from(WHOLE))


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """A strategy of damaged encodings of a valid message."""

    @st.composite
    def make(draw: st.DrawFn) -> bytes:
        changed = bytearray(data)
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, max(0, len(changed) - 1)))
            match draw(st.integers(0, 3)):
                case 0 if changed:
                    changed[at] = draw(st.integers(0, 255))
                case 1:
                    del changed[at:]
                case 2:
                    changed[at:at] = draw(st.binary(max_size=20))
                case _:
                    changed += changed[at:]
        return bytes(changed)

    return make()


def nested(depth: int) -> bytes:
    """A Task whose workload has a parameter of lists in lists, `depth` of them."""
    value = b""
    for _ in range(depth):
        value = b"\x2a" + _varint(len(value) + 1 + len(_varint(len(value)))) + b"\x0a" + _varint(len(value)) + value
    named = b"\x0a\x01p\x12" + _varint(len(value)) + value
    workload = b"\x1a" + _varint(len(named)) + named
    populate = b"\x0a" + _varint(len(workload)) + workload
    task = b"\x0a\x01k" + b"\x72" + _varint(len(populate)) + populate
    return b"\x1a" + _varint(len(task)) + task


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


class Target(Permanent):
    """A permanent agent with fake handlers; `send` opens a stream, sends bytes, and returns the status."""

    process: subprocess.Popen[bytes]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = int(self.address.rpartition(":")[2])
        self.launch()
        eventually(self.listens, self.log.read_text)
        self.channel = self._channel()
        self.runs = 0
        self._hello = b""

    def _channel(self) -> grpc.Channel:
        tls = grpc.ssl_channel_credentials(self.credentials.ca, self.credentials.key, self.credentials.certificate)
        return grpc.secure_channel(f"127.0.0.1:{self.port}", tls, options=[("grpc.max_send_message_length", -1)])

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def descriptors(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    def hello(self) -> bytes:
        """A Hello of a new run."""
        self.runs += 1
        hello = replace(HELLO, run_id=f"run{self.runs}", signer=self.credentials.signer.decode())
        self._hello = codec.coordinator_envelope(hello).SerializeToString()
        return self._hello

    def signed(self, task: Task) -> bytes:
        """A task of the run of the last Hello, signed as its coordinator would sign it."""
        to = Addressee(agent="agent/db1", run=f"run{self.runs}", epoch=1)
        signed = Signer(self.credentials.signer_key).sign(codec.task_bytes(task), to)
        return codec.coordinator_envelope(signed).SerializeToString()

    def send(self, *payloads: bytes) -> tuple[grpc.StatusCode, list[pb.AgentEnvelope]]:
        """Open a stream, send these bytes and then Goodbye; return the status of the stream and the answers. A session
        whose stream broke is ended by another stream."""
        code, received = self._send(*payloads)
        if code is not grpc.StatusCode.OK and self._hello in payloads:
            self._send(self._hello)
        return code, received

    def _send(self, *payloads: bytes) -> tuple[grpc.StatusCode, list[pb.AgentEnvelope]]:
        goodbye = pb.CoordinatorEnvelope(goodbye=pb.Goodbye()).SerializeToString()
        over = threading.Event()

        def requests() -> Iterator[bytes]:
            yield from (*payloads, goodbye)
            over.wait(120)  # keep the request stream open: the agent sends no answers after its end

        call = self.channel.stream_stream(METHOD, None, pb.AgentEnvelope.FromString)(requests(), timeout=120)
        received: list[pb.AgentEnvelope] = []
        try:
            for answer in call:
                received.append(answer)
        except grpc.RpcError:
            pass
        finally:
            over.set()
        return call.code(), received

    def tls(self, version: ssl.TLSVersion | None = None) -> ssl.SSLSocket:
        """A TLS connection of a coordinator, without gRPC; with this version only. ssl.SSLError when it is refused."""
        context = ssl.create_default_context(cadata=self.credentials.ca.decode())
        folder = self.directory / "coordinator"
        context.load_cert_chain(folder / "coordinator.pem", folder / "coordinator.key")
        context.set_alpn_protocols(["h2"])
        if version is not None:
            context.minimum_version = context.maximum_version = version
        raw = socket.create_connection(("127.0.0.1", self.port), 60)
        return context.wrap_socket(raw, server_hostname="127.0.0.1")

    def half_open(self, count: int) -> list[socket.socket]:
        """Connections that have sent the first message of a handshake and send nothing more."""
        hello = _client_hello()
        crowd = []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", self.port), 60)
            one.sendall(hello)
            crowd.append(one)
        return crowd

    def close(self) -> None:
        self.channel.close()
        self.process.terminate()
        self.process.wait(60)


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    payloads = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), payloads).do_handshake()
    return payloads.read()
