"""Give freed memory back to the kernel: connections that come in crowds leave the allocator's arenas large and almost empty.

4,000 handshakes that never end grow an agent from 65 to 270 MiB, and each further crowd by more, although all of it is free again:
glibc keeps the pages. `release_freed_memory` runs beside the server and asks glibc for them when the process has grown.
Source: malloc_trim(3), proc_pid_statm(5).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

LOOK_EVERY_S = 2.0
GROWTH_BYTES = 32 << 20
"""How much larger than after the last release the process must be: a release walks all of the heap."""

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """The memory of this process that is in use, in bytes; 0 where the kernel does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def trim() -> None:
    """Return free pages of the heap to the kernel; does nothing where the C library is not glibc."""
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)


async def release_freed_memory(
    resident: Callable[[], int] = resident_bytes, release: Callable[[], None] = trim, every_s: float = LOOK_EVERY_S
) -> None:
    """Until it is cancelled: look at the process's memory, and release when it has grown by `GROWTH_BYTES`."""
    lowest = resident()
    while True:
        await asyncio.sleep(every_s)
        now = resident()
        if now > lowest + GROWTH_BYTES:
            await asyncio.to_thread(release)
            lowest = resident()
        lowest = min(lowest, now)
