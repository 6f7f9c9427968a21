"""Output of a load worker: frames to the agent's pipe, without ever blocking the hot loop.

A chunk is written as far as the pipe accepts it, and the rest is kept. If the agent does not read and WAITING_MAX bytes
wait, further chunks are dropped, and their records are counted as lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque

from proveout.agent.load import worker_messages
from proveout.agent.load.loop.recorder import TRIPLE

PIPE_BYTES = 1 << 20
WAITING_MAX = 64 << 20
INT64_BYTES = 8


class ChunkWriter:
    """Writes frames to a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.lost = 0
        with contextlib.suppress(OSError):  # a smaller pipe works too, with more writes
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def offer(self, chunk: worker_messages.Chunk) -> None:
        """Write a chunk without blocking. The rest waits for the next call, or is dropped and counted."""
        if self._bytes > WAITING_MAX:
            records = sum(length for code, length in chunk.codes if code >= 0)
            self.lost += records // (INT64_BYTES * TRIPLE)
        else:
            self._keep(worker_messages.encode(chunk))
        os.set_blocking(self._fd, False)
        with contextlib.suppress(BlockingIOError):
            self._write()

    def send(self, frame: worker_messages.FromWorker) -> None:
        """Write a frame and all queued data before it. Blocks until the agent has read."""
        self._keep(worker_messages.encode(frame))
        os.set_blocking(self._fd, True)
        self._write()

    def _keep(self, data: bytes) -> None:
        self._waiting.append(data)
        self._bytes += len(data)

    def _write(self) -> None:
        while self._waiting:
            data = self._waiting[0]
            written = os.write(self._fd, data)
            self._bytes -= written
            if written == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = data[written:]
