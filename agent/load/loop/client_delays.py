"""Samples of the time for which answers waited in the client before the event loop handled them.

Flow: `transaction_loop.serve` -> every few batches of epoll `Sampler.calls` and `returns` around the wait -> for each
readable connection of that batch `late_ns` -> `add` -> `take`, once a second -> `aggregator` -> a histogram.
`transaction_loop_native.Sampler` is the same, compiled.

A sample is the time from the arrival of the answer to the turn of its connection:

- TCP: the clock now, less the kernel's receive time stamp (SO_TIMESTAMPNS, read with MSG_PEEK). Exact.
- Other sockets have no time stamps. The sample is then the time since epoll's return, plus what was before it. When
  epoll slept (this thread got a CPU again in it, by `/proc/thread-self/schedstat`): the time that this thread was then
  ready and had no CPU (same file). The first answer
  waited for all of it; the others are counted alike, because a system with few requests in it answers them early in a
  long wait (an upper bound under open arrival). When epoll did not sleep, the answers came in the round before: the
  wait for a CPU in it counts in the same way, and of the rest of the round a part. Epoll gives the connections in the
  order of their answers, which are taken to be evenly spread: answer i of n (from 0) gets (n - i - 1/2) / n of it.

An answer that the loop finds when it reads right after a send has waited for nothing, and counts as 0.

A sample is taken of one batch in `stride` on average, at random distances: with a fixed one, a load whose connections
take turns would show the same connection each time. The stride is 1 up to `BATCHES_PER_TICK` batches between two ticks
(0.1 s), and `STRIDE_MAX` at most; it follows the load from tick to tick. Of a sampled batch at most `PER_BATCH` answers
are samples, because a time stamp costs a system call: every k-th from a random one on, which then counts k times.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time
from pathlib import Path

SO_TIMESTAMPNS = 35  # Linux, asm-generic; also the type of the control message
BATCHES_PER_TICK = 10  # each has two or three reads of the kernel's counter
PER_BATCH = 4
STRIDE_START, STRIDE_MAX = 16, 64
SLEPT_NS = 20_000
"""Without the kernel's count of turns on a CPU: an epoll call that took longer has slept."""
SCHEDSTAT = "/proc/thread-self/schedstat"
_TIMESPEC = struct.Struct("qq")


class Sampler:
    """The samples of one event loop, as (at, late, answers that the sample stands for); times in ns of the monotonic
    clock.

    `answers` counts all answers. `stamped` counts the samples with a time stamp of the kernel, each as often as `every`
    says.
    """

    def __init__(self) -> None:
        self.answers = self.stamped = 0
        self.all_stamped, self.any_stamped = True, False
        """Whether all connections have time stamps: if not, the wait for a CPU is read; and whether any has."""
        self.left = self._drawn = 1
        self.every, self._first = 1, 0
        self._stride = STRIDE_START
        self._batches = 0
        self._random = random.Random(1)  # noqa: S311 - spreads samples
        self._samples: list[int] = []
        self._called_ns = self._returned_ns = self._runqueue_ns = self._runqueue_returned_ns = 0
        self._waited_ns = self._round_ns = self._turns = 0
        self._schedstat = -1

    def watch(self, fd: int) -> None:
        """Ask for the time stamps of a connection."""
        stamped = request_stamps(fd)
        self.all_stamped, self.any_stamped = self.all_stamped and stamped, self.any_stamped or stamped

    def pace(self) -> None:
        """Choose the stride for the batches until the next tick."""
        batches = self._batches + self._drawn - self.left
        self._stride = min(max(batches // BATCHES_PER_TICK, 1), STRIDE_MAX)
        self._batches = 0
        self._draw()

    def _draw(self) -> None:
        """Draw the number of batches up to the next sampled one."""
        self.left = self._drawn = self._random.randrange(1, 2 * self._stride)

    def calls(self) -> None:
        """A batch that is sampled: epoll is called now."""
        self._runqueue_ns, self._turns = self._runqueue()
        self._called_ns = time.monotonic_ns()
        if not self._returned_ns:  # the first batch
            self._returned_ns, self._runqueue_returned_ns = self._called_ns, self._runqueue_ns

    def returns(self, *, sampled: bool) -> None:
        """Epoll has returned, before a sampled batch or before the one ahead of it."""
        now, (runqueue_ns, turns) = time.monotonic_ns(), self._runqueue()
        if sampled:
            in_round_ns = self._runqueue_ns - self._runqueue_returned_ns
            self._waited_ns = runqueue_ns - self._runqueue_ns
            self._round_ns = 0
            slept = turns > self._turns if turns else now - self._called_ns > SLEPT_NS
            if not slept:
                self._round_ns = max(self._called_ns - self._returned_ns - in_round_ns, 0)
                self._waited_ns += in_round_ns
            self._batches += self._drawn
            self._draw()
        self._returned_ns, self._runqueue_returned_ns = now, runqueue_ns

    def thin(self, ready: int) -> None:
        """Choose the samples of a sampled batch of `ready` answers."""
        self.every = -(-ready // PER_BATCH) or 1
        self._first = self._random.randrange(self.every) if self.every > 1 else 0

    def chosen(self, index: int) -> bool:
        """Whether answer `index` of a sampled batch is a sample."""
        return index % self.every == self._first

    def late_ns(self, fd: int, index: int, ready: int, now_ns: int) -> int:
        """Time since the arrival of the answer on a connection that is handled now, number `index` of `ready`."""
        arrived_ns = arrival_ns(fd) if self.any_stamped else 0
        if arrived_ns:
            self.stamped += self.every
            return max(time.time_ns() - arrived_ns, 0)
        spread_ns = self._round_ns * (2 * (ready - index) - 1) // (2 * ready)
        return now_ns - self._returned_ns + self._waited_ns + spread_ns

    def add(self, at_ns: int, late_ns: int, further: int) -> None:
        """Keep a sample; the turn had `further` answers, which were read at once and so not late."""
        self._samples.extend((at_ns, late_ns, self.every))
        if further:
            self._samples.extend((at_ns, 0, further * self.every))

    def take(self) -> bytes:
        """Take the samples since the last call, as native int64."""
        taken = struct.pack(f"{len(self._samples)}q", *self._samples)
        self._samples.clear()
        return taken

    def close(self) -> None:
        """Close the descriptor of the kernel's counter."""
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def _runqueue(self) -> tuple[int, int]:
        """Time that this thread has waited for a CPU, ns, and how often it got one; zeros when all connections have
        time stamps, or when it is unknown.
        """
        if self.all_stamped:
            return 0, 0
        try:
            if self._schedstat < 0:
                self._schedstat = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            _, waited, turns = os.pread(self._schedstat, 64, 0).split()
            return int(waited), int(turns)
        except (OSError, ValueError):
            return 0, 0


def request_stamps(fd: int) -> bool:
    """Ask the kernel for receive time stamps of a TCP connection. False where there are none."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=fd)
        try:
            if connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                return True
        finally:
            connection.detach()
    return False


def arrival_ns(fd: int) -> int:
    """When the next unread byte arrived, ns of the real-time clock; 0 when the kernel has no time stamp of it."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=fd)
        try:
            _, control, _, _ = connection.recvmsg(1, 64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        finally:
            connection.detach()
        for level, kind, data in control:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
                seconds, ns = _TIMESPEC.unpack_from(data)
                return int(seconds) * 1_000_000_000 + int(ns)
    return 0


def runqueue_ns() -> dict[int, int]:
    """Time that each thread of this process has waited for a CPU so far, ns, by thread id; {} when it is unknown.

    Source: the second field of /proc/PID/task/TID/schedstat, Documentation/scheduler/sched-stats.rst.
    """
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - in the load's own time
            with contextlib.suppress(OSError, IndexError, ValueError):
                found[int(thread)] = int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
    return found
