"""Linux system calls that Python's standard library lacks: prctl, capabilities and file locks; names of kernel
parameters and units.

Each function is one request to the kernel and raises OSError when the kernel refuses. Only `ctypes`, `fcntl`, `os`
and `signal` are imported: `agent.engines.embedded.supervisor` and `agent.engines.postgres.single_user` run from
their files, without site-packages, and import this module by its file name. Sources: prctl(2), capset(2),
capabilities(7), flock(2).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal

LIBC = ctypes.CDLL(None, use_errno=True)

CAP_DAC_READ_SEARCH = 2
ORPHANED = 3
"""Exit status of a process whose parent ended before `die_with_parent` was called."""

_PDEATHSIG, _DUMPABLE, _KEEPCAPS, _NAME = 1, 4, 8, 15
_CAPBSET_DROP, _CHILD_SUBREAPER, _NO_NEW_PRIVS, _AMBIENT = 24, 36, 38, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITY_VERSION_3 = 0x20080522


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask a process for an orderly end; under nohup not that of a terminal that has gone."""
    asked = signal.SIGINT, signal.SIGTERM
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*asked, signal.SIGHUP)


def checked(status: int, call: str) -> int:
    """The status of a system call. OSError with the name of the call when the status is negative."""
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return status


# ---- prctl -----------------------------------------------------------------------------------------------------------


def set_parent_death_signal(number: int = signal.SIGKILL) -> None:
    """Send this process a signal when the thread that started it ends. A change of the user clears the request."""
    _prctl("PR_SET_PDEATHSIG", _PDEATHSIG, int(number))


def die_with_parent(parent: int, name: str) -> None:
    """Set the process name (15 characters at most) and have the kernel kill this process when the process `parent`
    ends.

    Exits with `ORPHANED` when the parent has ended already. The signal is bound to the parent *thread*, so a parent
    must start workers from a thread that lives as long as the parent.
    """
    LIBC.prctl(_NAME, name.encode(), 0, 0, 0)
    set_parent_death_signal()
    if os.getppid() != parent:
        os._exit(ORPHANED)


def become_child_subreaper() -> None:
    """Make this process the parent of orphaned descendants."""
    _prctl("PR_SET_CHILD_SUBREAPER", _CHILD_SUBREAPER, 1)


def set_no_new_privileges() -> None:
    """Forbid this process and its descendants to gain privileges by set-uid programs or file capabilities."""
    _prctl("PR_SET_NO_NEW_PRIVS", _NO_NEW_PRIVS, 1)


def forbid_dumps_and_tracing() -> None:
    """Forbid core files of this process, and tracing by processes of the same user."""
    _prctl("PR_SET_DUMPABLE", _DUMPABLE, 0)


# ---- capabilities ----------------------------------------------------------------------------------------------------


def keep_capabilities(*, keep: bool) -> None:
    """Whether permitted capabilities survive the change from root to another user."""
    _prctl("PR_SET_KEEPCAPS", _KEEPCAPS, int(keep))


def raise_ambient(capability: int) -> None:
    """Add a permitted and inheritable capability to the ambient set, which programs started by this process receive."""
    _prctl("PR_CAP_AMBIENT_RAISE", _AMBIENT, _AMBIENT_RAISE, capability)


def clear_ambient() -> None:
    """Empty the ambient set."""
    _prctl("PR_CAP_AMBIENT_CLEAR_ALL", _AMBIENT, _AMBIENT_CLEAR_ALL)


def empty_bounding_set() -> None:
    """Drop every capability from the bounding set. Does nothing in a process that lacks the right to drop any."""
    capability = 0
    while LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1  # ends at the first number that the kernel does not define


def set_capabilities(mask: int) -> None:
    """Set the effective, permitted and inheritable capabilities to `mask`. The ambient set follows."""
    _capset((mask, mask, mask, 0, 0, 0))


def set_inheritable_capabilities(mask: int) -> None:
    """Set the inheritable capabilities to `mask`; the effective and permitted ones stay."""
    data = (ctypes.c_uint32 * 6)()
    checked(LIBC.capget(ctypes.byref(_header()), ctypes.byref(data)), "capget")
    effective, permitted, _, effective_high, permitted_high, _ = data
    _capset((effective, permitted, mask, effective_high, permitted_high, 0))


# ---- locks -----------------------------------------------------------------------------------------------------------


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Take a flock(2) lock on an open file or directory, until the last copy of the descriptor is closed.

    False when another open file description holds a conflicting lock; with `wait`, waits for its release instead.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _prctl(name: str, option: int, *arguments: int) -> None:
    checked(LIBC.prctl(option, *(*arguments, 0, 0, 0)[:4]), name)


def _header() -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)


def _capset(sets: tuple[int, int, int, int, int, int]) -> None:
    """Effective, permitted, inheritable (bits 0 to 31), then the same three for bits 32 to 63."""
    checked(LIBC.capset(ctypes.byref(_header()), ctypes.byref((ctypes.c_uint32 * 6)(*sets))), "capset")


PROGRAM_SYSCTLS = (
    "kernel.core_pattern",
    "kernel.hotplug",
    "kernel.modprobe",
    "kernel.poweroff_cmd",
    "kernel.usermodehelper.*",
    "fs.binfmt_misc.*",
)
"""Patterns of kernel parameters that hold a program which the kernel starts as root: refused in a plan and in an
agent's policy.
Source: Documentation/admin-guide/sysctl of Linux."""
UNIT_KINDS = ("service", "socket", "timer", "mount", "automount", "path", "target", "swap", "slice")
"""Kinds of systemd's units that an operation may name."""
