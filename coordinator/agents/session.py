"""A session with one agent: messages and events, the lease, and the offset between both clocks.

Flow: `connect()` dials and measures the clock -> `AgentSession`; `send()` queues -> writer -> agent; agent -> reader
-> events.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from proveout.coordinator.agents.connect import AgentRefused, AgentUnreachable, Stream, StreamEnded, open_stream
from proveout.coordinator.agents.sanity import objection
from proveout.coordinator.certificates import Credentials
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.proto.events import AgentLine
from proveout.proto.wire.codec import WireFault, task_bytes
from proveout.proto.wire.messages import (
    AgentMessage,
    Beat,
    BeatReply,
    Cancel,
    CoordinatorMessage,
    Finish,
    Goodbye,
    Hello,
    Samples,
    Start,
    TaskAccepted,
    TaskArmed,
    TaskDone,
    TaskFailed,
    Trigger,
    Welcome,
)
from proveout.proto.wire.results import TaskError
from proveout.proto.wire.tasks import Task

# An exchange leaves the coordinator at t1 and returns at t4 (its clock), arrives at t2 and leaves again at t3 (the
# agent's). Both ways take at least no time, so the true offset (agent minus coordinator) lies within [t3 - t4, t2 -
# t1]: its middle is ((t2 - t1) + (t3 - t4)) / 2 and its error is at most half of the round trip (t4 - t1) - (t3 - t2).
# Source: D. L. Mills, RFC 5905, section 8. Because the two oscillators drift apart, the bound of an exchange grows by
# `DRIFT_PPM` of the time since it was sent; the tightest bound wins. The bound holds for clocks that drift apart by
# `DRIFT_PPM` or less: a quartz has 50 ppm at most, and a clock that NTP slews keeps below 500 ppm only while it is
# corrected.

DRIFT_PPM = 100
KEPT = 64


@record
class ClockEstimate:
    """Agent clock minus coordinator clock, and the bound of its error, nanoseconds."""

    offset_ns: int
    uncertainty_ns: int

    @property
    def pair(self) -> tuple[int, int]:
        return self.offset_ns, self.uncertainty_ns


@record
class Exchange:
    """One probe: sent and returned on the coordinator's clock, received and replied on the agent's."""

    sent_ns: int
    received_ns: int
    replied_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """The time in transit, both ways together."""
        return (self.returned_ns - self.sent_ns) - (self.replied_ns - self.received_ns)

    @property
    def offset_ns(self) -> int:
        """The middle of the interval that holds the offset."""
        return ((self.received_ns - self.sent_ns) + (self.replied_ns - self.returned_ns)) // 2

    def bound_ns(self, now_ns: int) -> int:
        """The bound of the error of `offset_ns` at `now_ns` (coordinator's clock), before or after the exchange, plus
        one for the rounded half nanosecond."""
        age_ns = max(0, now_ns - self.sent_ns, self.returned_ns - now_ns)
        return self.round_trip_ns // 2 + 1 + age_ns * DRIFT_PPM // 1_000_000


class ClockFilter:
    """The newest `KEPT` exchanges with one agent, and the best estimate from them.

    All bounds grow alike, so the tightest one stays the tightest until a better exchange arrives or it is dropped as
    the oldest.
    """

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque(maxlen=KEPT)
        self._best: Exchange | None = None

    def add(self, reply: BeatReply, returned_ns: int) -> None:
        """Add a reply that arrived at `returned_ns`; one with times that run backwards is dropped."""
        exchange = Exchange(
            sent_ns=reply.sent_ns,
            received_ns=reply.received_ns,
            replied_ns=reply.replied_ns,
            returned_ns=returned_ns,
        )
        if exchange.round_trip_ns >= 0 and reply.replied_ns >= reply.received_ns:
            gone = self._exchanges[0] if len(self._exchanges) == KEPT else None
            self._exchanges.append(exchange)
            if self._best is not None and self._best is not gone:
                self._best = min(self._best, exchange, key=lambda one: one.bound_ns(returned_ns))
            else:
                self._best = min(self._exchanges, key=lambda one: one.bound_ns(returned_ns))

    def __len__(self) -> int:
        return len(self._exchanges)

    def estimate(self, now_ns: int) -> ClockEstimate:
        """The estimate for `now_ns`, which is not before the newest exchange, by the exchange with the tightest bound;
        ValueError when there was no exchange yet."""
        best = self._best
        if best is None:
            raise ValueError("no exchange yet")
        return ClockEstimate(offset_ns=best.offset_ns, uncertainty_ns=best.bound_ns(now_ns))


BURST = 8
BURST_EVERY_S = 30.0
BURST_REPLY_S = 1.0
DIAL_S = 10.0
CLOSE_S = 60.0
REDIAL_EVERY_S = 0.2
DIAL_AGAIN_S = 0.5


@record
class Received:
    """An agent sent a message other than Welcome and BeatReply, which the session processes itself."""

    host: str
    message: AgentMessage


@record
class Lost:
    """An agent is lost: its tasks have ended, or will at the end of its lease. The last event of its session."""

    host: str
    reason: str


SessionEvent: TypeAlias = Received | Lost


async def connect(
    host: str, address: str, credentials: Credentials, hello: Hello, events: asyncio.Queue[SessionEvent]
) -> AgentSession:
    """Open a session with the agent of `host` at `address`; its clock is measured when this returns.

    Waits at most for the lease of an agent that is still busy with a run whose stream broke. AgentUnreachable or
    AgentRefused (ProveoutError), with the host, the address and the way out.
    """
    opened = await open_stream(host, address, credentials, hello, hello.lease_s + DIAL_S)
    session = AgentSession(address, credentials, hello, events, opened)
    await session.begin()
    return session


async def connect_patiently(
    attempt: Callable[[], Awaitable[AgentSession]], patience_s: float, tell: Callable[[str], None]
) -> AgentSession:
    """`connect`, repeated for at most `patience_s` while no process listens at the address: an agent may be restarting.

    `tell` is called once, with the reason. AgentUnreachable as of `connect`, also when the time is over.
    """
    began_s = time.monotonic()
    notified = False
    while True:
        try:
            return await attempt()
        except AgentUnreachable as fault:
            waited_s = time.monotonic() - began_s
            if not fault.gone or patience_s <= 0.0:
                raise
            if waited_s >= patience_s:
                what = f"{fault.what} (waited for {waited_s:.0f} s)"
                raise AgentUnreachable(what, where=fault.where, way_out=fault.way_out, gone=True) from fault
            if not notified:
                notified = True
                tell(f"{fault.what}: waiting for up to {patience_s:.0f} s for the agent to start again")
            await asyncio.sleep(DIAL_AGAIN_S)


class AgentSession:
    """A session with one agent. Made by `connect`."""

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        hello: Hello,
        events: asyncio.Queue[SessionEvent],
        opened: tuple[Stream, Welcome],
    ) -> None:
        self.host = hello.host
        self.address = address
        self._stream, self.welcome = opened
        self._credentials = credentials
        self._hello = hello
        self._events = events
        self._clock = ClockFilter()
        self._outgoing: deque[CoordinatorMessage | Task] = deque()
        self._wake = asyncio.Event()
        self._open: dict[str, list[CoordinatorMessage | Task]] = {}
        self._encoded: dict[str, bytes] = {}
        """The bytes of open tasks: one that is sent again has the same ones, so that its digest is the same."""
        self._acknowledged: set[tuple[str, type]] = set()
        self._sequence = 0
        self._replied = asyncio.Event()
        self._replied_s = time.monotonic()
        self._silence_s = 0.0
        self._measured = asyncio.Event()
        self._closing = False
        self._begun = False
        self._connected = True
        self._life: asyncio.Task[None] | None = None

    # ---- what a run uses -----------------------------------------------------------------------------------------

    @property
    def clock(self) -> ClockEstimate:
        """Agent clock minus coordinator clock, now, with its bound."""
        return self.clock_at(time.monotonic_ns())

    def clock_at(self, at_ns: int) -> ClockEstimate:
        """The same for an instant of this clock that is to come: its bound has grown until then."""
        return self._clock.estimate(at_ns)

    @property
    def standing(self) -> AgentLine:
        """The clock, and the time since the last answer, for display."""
        clock = self.clock
        return AgentLine(
            host=self.host,
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            silent_s=self._silent_s(),
            connected=self._connected,
        )

    @property
    def silence_longest_s(self) -> float:
        """The longest time without an answer since `listen_anew()`: the agent, the network or this process was
        paused."""
        return max(self._silence_s, self._silent_s())

    def listen_anew(self) -> None:
        """Reset the longest time without an answer."""
        self._silence_s = 0.0

    def to_agent_ns(self, coordinator_ns: int) -> int:
        """Convert an instant of the coordinator's `monotonic_ns` to the agent's."""
        return coordinator_ns + self.clock.offset_ns

    def send(self, message: CoordinatorMessage | Task, encoded: bytes = b"") -> None:
        """Queue a Task, Start, Finish or Cancel; never blocks. After `Lost` the message is dropped.

        `encoded` are the bytes of the task (`codec.task_bytes`), when they are there already.
        """
        if isinstance(message, Task):
            self._open[message.key] = [message]
            self._encoded[message.key] = encoded
        elif isinstance(message, Cancel):  # that of a task of an earlier session is open until the agent answers too
            self._open.setdefault(message.key, []).append(message)
        elif isinstance(message, (Start, Trigger, Finish)) and message.key in self._open:
            self._open[message.key].append(message)
        self._queue(message)

    async def close(self, keep_data: bool = False, timeout_s: float = CLOSE_S) -> None:
        """Send a Goodbye, wait at most `timeout_s` for the agent to clean up, and close the connection. Idempotent; no
        `Lost`."""
        if not self._closing:
            self._closing = True
            self._queue(Goodbye(keep_data=keep_data))
        life = self._life
        if life is not None:
            try:
                await asyncio.wait({life}, timeout=timeout_s)
            finally:
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)
                await self._stream.close()

    # ---- the tasks of a session --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start the beats and the reader, and wait for the first measurement of the clock. Part of `connect`, which
        reports a session that ends meanwhile; there is no `Lost` of it."""
        self._life = asyncio.create_task(self._live(), name=f"session {self.host}")
        measured = asyncio.create_task(self._measured.wait())
        try:
            await asyncio.wait({measured, self._life}, timeout=DIAL_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            measured.cancel()
        self._begun = not self._life.done() and len(self._clock) > 0
        if not self._begun:
            ended = self._life.done()
            self._closing = True
            await self.close(timeout_s=0.0)
            raise AgentUnreachable(
                "it answered, and its session ended at once" if ended else "it answered once and then fell silent",
                where=f"host {self.host} ({self.address})",
                way_out="See the agent's log on that host.",
            )

    async def _live(self) -> None:
        while True:
            # Serve the stream until it ends. Returns the reason, and whether that is final.
            jobs = {asyncio.create_task(job) for job in (self._read(), self._write(), self._beat())}
            try:
                done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)
            reason, final = next(iter(done)).result()
            if self._closing:
                return
            if not final:
                self._connected = False
                reason = await self._redial(reason)
                self._connected = not reason
            if reason and not self._closing:
                await self._stream.close()
                if self._begun:
                    await self._events.put(Lost(host=self.host, reason=reason))
            if reason:
                return

    async def _read(self) -> tuple[str, bool]:
        while True:
            try:
                message = await self._stream.read()
            except StreamEnded as ended:
                return str(ended), ended.clean
            except WireFault as fault:
                return fault.what, True
            if impossible := objection(message):
                return f"it sent an impossible message: {impossible}", True
            self._take(message)

    def _take(self, message: AgentMessage) -> None:
        if isinstance(message, BeatReply):
            self._clock.add(message, time.monotonic_ns())
            self._answered()
            self._replied.set()
        elif isinstance(message, Samples):
            for sample in message.samples:
                self._events.put_nowait(Received(host=self.host, message=sample))
        elif self._is_news(message):
            self._events.put_nowait(Received(host=self.host, message=message))

    def _is_news(self, message: AgentMessage) -> bool:
        """False for a repeated message: after a redial an agent repeats its messages about open tasks."""
        match message:
            case TaskDone(key=key) | TaskFailed(key=key):
                self._acknowledged -= {(key, TaskAccepted), (key, TaskArmed)}
                self._encoded.pop(key, None)
                return self._open.pop(key, None) is not None
            case TaskAccepted(key=key) | TaskArmed(key=key):
                news = key in self._open and (key, type(message)) not in self._acknowledged
                self._acknowledged.add((key, type(message)))
                return news
            case Welcome():
                return False
            case _:
                return True

    async def _write(self) -> tuple[str, bool]:
        while True:
            while self._outgoing:
                message = self._outgoing.popleft()
                if isinstance(message, Beat):
                    message = dataclasses.replace(message, sent_ns=time.monotonic_ns())
                try:
                    await self._stream.write(self._bytes_of(message) if isinstance(message, Task) else message)
                except StreamEnded as ended:
                    return str(ended), False
                except WireFault as fault:
                    self._take_unsendable(message, fault)
            self._wake.clear()
            await self._wake.wait()

    def _bytes_of(self, task: Task) -> bytes:
        """WireFault when it cannot be encoded."""
        encoded = self._encoded.get(task.key) or task_bytes(task)
        if task.key in self._encoded:
            self._encoded[task.key] = encoded
        return encoded

    def _take_unsendable(self, message: CoordinatorMessage | Task, fault: WireFault) -> None:
        """A message that cannot be encoded: its task fails, as if the agent had answered so. The session goes on."""
        if not isinstance(message, (Task, Start, Trigger, Finish, Cancel)):
            raise fault
        error = TaskError(code="invalid", message=f"it cannot be sent: {fault.what}", way_out=fault.way_out)
        self._take(TaskFailed(key=message.key, error=error))

    async def _beat(self) -> tuple[str, bool]:
        """Beat; quickly at first, for the clock. Returns when the agent was silent for a lease.

        Beats that are too rare to measure the clock `BURST` times in `BURST_EVERY_S` are helped by a burst as often as
        that.
        """
        rare = self._hello.beat_s * BURST > BURST_EVERY_S
        burst_s = -math.inf
        while True:
            if burst_s < 0.0 or (rare and time.monotonic() - burst_s >= BURST_EVERY_S):
                burst_s = time.monotonic()
                await self._burst()
            self._queue_beat()
            await asyncio.sleep(self._hello.beat_s)
            silent_s = self._silent_s()
            if silent_s >= self._hello.lease_s:
                return f"no answer for {silent_s:.1f} s", True

    def _answered(self) -> None:
        self._silence_s = self.silence_longest_s
        self._replied_s = time.monotonic()

    def _silent_s(self) -> float:
        return time.monotonic() - self._replied_s

    async def _burst(self) -> None:
        for _ in range(BURST):
            self._replied = asyncio.Event()
            self._queue_beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(BURST_REPLY_S, self._hello.beat_s)):
                    await self._replied.wait()
            if self._silent_s() >= self._hello.lease_s:
                return
        if len(self._clock):
            self._measured.set()

    async def _redial(self, reason: str) -> str:
        """Reconnect while the agent's lease lasts. Returns "" after success, otherwise the reason for the loss."""
        until_s = self._replied_s + self._hello.lease_s
        while (left_s := until_s - time.monotonic()) > 0:
            await self._stream.close()
            try:
                stream, welcome = await open_stream(
                    self.host, self.address, self._credentials.current(), self._hello, left_s
                )
            except AgentRefused as refused:
                return refused.what
            except (ProveoutError, OSError) as fault:  # also of certificates here that are just being replaced
                if isinstance(fault, AgentUnreachable) and fault.gone:
                    return f"its connection broke ({reason}) and {fault.what} any more"
                await asyncio.sleep(min(REDIAL_EVERY_S, left_s))
                continue
            self._stream = stream
            self._answered()
            if welcome.session != self.welcome.session:
                return "its lease ended, or it was restarted: it has stopped all tasks"
            rest = [message for message in self._outgoing if isinstance(message, Goodbye)]
            self._outgoing = deque(message for messages in self._open.values() for message in messages)
            self._outgoing.extend(rest)
            self._wake.set()
            return ""
        return reason

    def _queue_beat(self) -> None:
        self._sequence += 1
        self._outgoing.appendleft(Beat(sequence=self._sequence, sent_ns=0))
        self._wake.set()

    def _queue(self, message: CoordinatorMessage | Task) -> None:
        if self._life is None or not self._life.done():
            self._outgoing.append(message)
            self._wake.set()
