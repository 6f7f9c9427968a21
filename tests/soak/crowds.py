"""Load on an agent's port: thousands of idle connections, and unfinished TLS handshakes.

`idle`: TCP connections that stay open without data while the agent serves coordinators. `handshakes`: TLS handshakes
that stop after the first message.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import tempfile
import time
from pathlib import Path

import grpc
from eventually import eventually
from hostile import Target

SPARE_FILES = 500


def idle(count: int) -> tuple[str, list[str]]:
    """Open `count` connections to an agent from 127.0.0.1 while it serves one run after the other."""
    failures: list[str] = []
    _room_for(count)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        before_bytes, before = target.rss_bytes, target.descriptors
        crowd: list[socket.socket] = []
        slowest_s = 0.0
        try:
            refused = 0
            while len(crowd) + refused < count:
                try:
                    crowd.append(socket.create_connection(("127.0.0.1", target.port), 60))
                except OSError:
                    refused += 1
                if (len(crowd) + refused) % max(1, count // 10) == 0:
                    slowest_s = max(slowest_s, _served(target, failures))
            held, grown = len(crowd), (target.rss_bytes - before_bytes) >> 20
            there = target.descriptors - before
        finally:
            for one in crowd:
                one.close()
        with contextlib.suppress(AssertionError):
            eventually(lambda: target.descriptors <= before + 20, "they are closed")
        left = target.descriptors - before
        _served(target, failures)
        alive = target.process.poll() is None
        target.close()
    failures += [] if alive else ["the agent is gone"]
    failures += [f"{left} descriptors are left when all have hung up"] if left > 20 else []
    failures += [f"memory grew by {grown} MiB"] if grown > 64 + count // 20 else []
    figure = f"{held} idle connections ({refused} refused, {there} held by the agent), {grown} MiB more, a run served within {slowest_s:.1f} s"
    return figure, failures


def handshakes(count: int) -> tuple[str, list[str]]:
    """Open `count` handshakes that stop after their first message, five times; each group is closed before the next."""
    failures: list[str] = []
    _room_for(count)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        before_bytes, kept = target.rss_bytes, []
        for _ in range(5):
            for one in target.half_open(count):
                one.close()
            time.sleep(5.0)  # the agent returns freed memory to the system every 2 s
            kept.append((target.rss_bytes - before_bytes) >> 20)
        _served(target, failures)
        target.close()
    failures += [f"{kept[-1]} MiB are kept after the last crowd"] if kept[-1] > 64 else []
    return f"5 x {count} half-open handshakes: {', '.join(map(str, kept))} MiB more after each", failures


def _room_for(count: int) -> None:
    """Let this process, and the agent that it starts, have this many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + SPARE_FILES), max(hard, count + SPARE_FILES)))


def _served(target: Target, failures: list[str]) -> float:
    began_s = time.monotonic()
    code, _ = target.send(target.hello())
    if code is not grpc.StatusCode.OK:
        failures.append(f"a run was not served: {code}")
    return time.monotonic() - began_s
