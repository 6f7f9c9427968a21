"""Load runs as nobody in particular: how a process that a root agent has started gives its privileges up, for good.

Flow: the agent asks `account()`: None where it is not root itself; otherwise a numeric user and group that nobody has, beside the
one of embedded servers. It starts the worker with `argument(…)` and `environment(…)`; the worker calls `drop(…)` before it reads
a word of its load: no root, no groups but the embedded servers' (whose sockets it connects to), no new privileges, no capabilities.

Where Python itself lies in a folder that only root can enter (a virtual environment below /root), one capability is kept:
CAP_DAC_READ_SEARCH, to read files; without it the process could not import its drivers. Such a worker can still read what
root can; it cannot write, signal or change anything. Install Python where everybody can read it, and nothing is kept.

Engines that are files of the agent (SQLite, DuckDB, and those of another package whose driver says so by `in_files`) keep
the agent's user: the files are its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proveout.agent.drivers.table import driver, is_built_in
from proveout.agent.provision.installation import UID_LAST, choose_account
from proveout.dsl.errors import ProveoutError

FILE_ENGINES = frozenset({"sqlite", "duckdb"})

PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS = 8, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522
HOME = "/nonexistent"
"""Where a client library looks for files of the user's; root's own are not to be found, and their refusal is not to be met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who a worker runs as: a user and group of its own, and the group of embedded servers. `reads_all`: see the module."""

    uid: int
    group: int
    reads_all: bool


@functools.cache
def account() -> Account | None:
    """Who load runs as; None where the agent has no privileges to give up."""
    servers = choose_account()
    if servers is None:
        return None
    uid = servers.uid + 1 if servers.uid < UID_LAST else servers.uid - 1
    return Account(uid=uid, group=servers.gid, reads_all=not all(_everybody_reads(path) for path in _needed()))


def argument(engine: str) -> str:
    """What a worker is told on its command line: `uid,gid,group,reads_all`, or `-` when it keeps the agent's user."""
    it = account()
    return "-" if it is None or is_in_files(engine) else f"{it.uid},{it.uid},{it.group},{int(it.reads_all)}"


def argument_of(uid: int) -> str:
    """The same for a process that works for another user of this host, in that user's first group; `-` when it is the agent's own."""
    it = account()
    if it is None or uid == os.geteuid():
        return "-"
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:  # as in containers: a number alone
        gid = uid
    return f"{uid},{gid},{gid},{int(it.reads_all)}"


def is_in_files(engine: str) -> bool:
    """Whether its databases are files of the agent's user."""
    if engine in FILE_ENGINES or is_built_in(engine):
        return engine in FILE_ENGINES
    with contextlib.suppress(ProveoutError):  # not installed here: whoever needs it will say so
        return bool(getattr(driver(engine), "in_files", False))
    return False


def environment(engine: str, given: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment: the agent's, without its home; a dsn that names no user still means the agent's."""
    return environment_of(argument(engine), given)


def environment_of(told: str, given: Mapping[str, str]) -> dict[str, str]:
    """The same, of a process that was told whose it is."""
    if told == "-":
        return dict(given)
    name = pwd.getpwuid(os.geteuid()).pw_name
    return {"PGUSER": name, "USER": name, "LOGNAME": name, **given, "HOME": HOME}


def owned(told: str, *paths: Path) -> None:
    """Give files of the agent to the user that `told` names. OSError when the kernel does not let us."""
    if told != "-":
        uid, gid, *_ = (int(word) for word in told.split(","))
        for path in paths:
            os.chown(path, uid, gid, follow_symlinks=False)


def drop(told: str) -> None:
    """Give up what `argument` says. OSError when the kernel does not let us: the process must not go on then."""
    if told == "-":
        return
    uid, gid, group, reads_all = (int(word) for word in told.split(","))
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(PR_SET_KEEPCAPS, reads_all, 0, 0, 0))
    os.setgroups([group])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _set_capabilities(libc, 1 << CAP_DAC_READ_SEARCH if reads_all else 0)
    if reads_all:  # for the programs that it starts itself
        _check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0))
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _set_capabilities(libc: ctypes.CDLL, wanted: int) -> None:
    """Effective, permitted and inheritable capabilities, all the same. Source: capset(2)."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(wanted, wanted, wanted, 0, 0, 0)
    _check(libc.capset(ctypes.byref(header), ctypes.byref(data)))


def _check(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"privileges cannot be given up: {os.strerror(number)}")


def _needed() -> Iterable[Path]:
    """What a worker cannot do without: the interpreter as it is found and as it is, the library, our own package."""
    here = Path(__file__)
    return {Path(sys.executable), Path(sys.executable).resolve(), Path(os.__file__), here, here.resolve()}


def _everybody_reads(path: Path) -> bool:
    """Whether every folder above lets everybody through, and the file may be read."""
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in path.parents)
