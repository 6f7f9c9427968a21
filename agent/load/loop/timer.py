"""A timer of the kernel for an event loop."""

from __future__ import annotations

import ctypes
import os

from proveout.core.errors import ProveoutError

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK, _TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


class _Itimerspec(ctypes.Structure):
    """struct itimerspec: interval and value, each seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class Timer:
    """A timerfd on CLOCK_MONOTONIC, exact to the scheduler. Readable from the armed instant until it is armed again.

    The timeout of epoll is in whole milliseconds in Python, too coarse for arrivals 100 µs apart.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise ProveoutError(
                f"cannot create a timer (timerfd_create): {os.strerror(ctypes.get_errno())}",
                way_out="run load agents on Linux",
            )
        self._set = libc.timerfd_settime
        self._set.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._spec = _Itimerspec(0, 0, 0, 0)
        self._address = ctypes.addressof(self._spec)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._fd

    def arm(self, at_ns: int) -> None:
        """Become readable at `at_ns` of the monotonic clock, at once if that is past; 0 disarms."""
        self._spec.value_s, self._spec.value_ns = divmod(at_ns, 1_000_000_000)
        self._set(self._fd, _TFD_TIMER_ABSTIME, self._address, None)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
