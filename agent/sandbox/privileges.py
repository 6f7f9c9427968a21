"""Load runs as nobody in particular: how a process that a root agent has started gives its privileges up, for good.

Flow: the agent asks `account()`: None where it is not root itself; otherwise a numeric user and group that nobody has, beside the
one of embedded servers. It starts the worker with `argument(…)` and `environment(…)`; the worker calls `drop(…)` before it reads
a word of its load: no root, no groups but the embedded servers' (whose sockets it connects to), no new privileges, no capabilities,
not in the bounding set either.

Where Python itself lies in a folder that only root can enter (a virtual environment below /root), the process could import
nothing any more. There `drop` leaves one capability, CAP_DAC_READ_SEARCH, until `seal`: it opens the folders of Python's own
search path and has every later import go through those descriptors (`/proc/self/fd/N`), which lead past the closed folder and
nowhere else. Then the capability goes as well. Both are called before a byte is read from outside.

Engines that are files (SQLite, DuckDB, and those of another package whose driver says so by `in_files`): a file that the agent has
made belongs to that user. Of another file, when the host's policy lists it or the agent is the child of a run, the worker takes
the owner's user. A file of root's, or a new one in a folder of root's, is refused: no database work is done as root, as SQL can open and
write other files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.engines.embedded.account import UID_LAST, choose_account
from proveout.agent.engines.table import is_in_files
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core import linux
from proveout.core.linux import CAP_DAC_READ_SEARCH
from proveout.proto.wire.tasks import Endpoint

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
    uid = servers.uid + 1 if servers.uid + 1 < UID_LAST else servers.uid - 1
    return Account(uid=uid, group=servers.gid, reads_all=not all(_everybody_reads(path) for path in _needed()))


def argument(engine: str, dsn: str = "", policy: Policy = NOTHING) -> str:
    """What a process is told on its command line: `uid,gid,group,hidden`, or `-` when the agent is an ordinary user, which it keeps.

    For a file (`dsn`) that the policy lets the agent change, its owner; for all else nobody in particular. TaskFault `refused` for a
    file of root's.
    """
    it = account()
    if it is None:
        return "-"
    owner = _owner(dsn, policy) if dsn and is_in_files(engine) else None
    if owner is None:
        return f"{it.uid},{it.uid},{it.group},{int(it.reads_all)}"
    uid, gid = owner
    return f"{uid},{gid},{gid},{int(it.reads_all)}"


def argument_for(endpoint: Endpoint, policy: Policy) -> str:
    """`argument` for work on one system."""
    return argument(endpoint.engine, "" if endpoint.provisioned else endpoint.dsn, policy)


def _owner(dsn: str, policy: Policy) -> tuple[int, int] | None:
    """User and group of the database file, or of the folder that it will be made in; None when it is not ours to use as such.

    TaskFault `refused` when that is root, or cannot be told. Links are followed: what counts is where they lead.
    """
    if dsn.startswith(":"):  # as `:memory:`, which is in no folder
        return None
    try:
        path = Path(dsn).resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL
        raise TaskFault("refused", f"it cannot be told where the database file {dsn!r} is") from None
    if not policy.allows_file_of_others(str(path)):
        return None
    for place in (path, path.parent):
        with contextlib.suppress(OSError):
            status = place.stat()
            if status.st_uid == 0:
                raise _roots(path, place)
            # Files of a user are often of root's group, which reads files of root's.
            return status.st_uid, status.st_gid or status.st_uid
    return None


def _roots(path: Path, place: Path) -> TaskFault:
    """The refusal of a file that only root could use."""
    what = f"the database file {path} belongs to root"
    if place != path:
        what = f"the database file {path} would be made in {place}, which belongs to root"
    way_out = f"give it to a user of its own: `chown USER {place}`, with the files beside it that the database has made"
    return TaskFault("refused", f"{what}, and no database work is done as root", way_out=way_out)


def argument_of(uid: int) -> str:
    """The same for a process that works for another user of this host, in that user's first group. TaskFault `refused` for root."""
    it = account()
    if it is None:
        return "-"
    if uid == 0:
        way_out = "start the node of the cluster on this host as another user"
        raise TaskFault(
            "refused", "the Ray cluster on this host is root's, and no load is run as root", way_out=way_out
        )
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:  # as in containers: a number alone
        gid = uid
    return f"{uid},{gid},{gid},{int(it.reads_all)}"


def environment(told: str, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that was told so: the agent's, without its home; a dsn that names no user still means the agent's."""
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


def drop(told: str, *, keeps_root: bool = False) -> None:
    """Give up what `argument` says, but for what `seal` gives up. OSError when the kernel does not let us: the process must not go on then.

    A process that would stay root is refused as well, unless it is one that `keeps_root`: fio on a device, which only root can open.
    """
    if told == "-":
        if os.geteuid() == 0 and not keeps_root:
            raise PermissionError("this process must not run as root")
        return
    uid, gid, group, reads_all = (int(word) for word in told.split(","))
    if reads_all:  # while it is still in the bounding set: a capability that is not cannot become inheritable
        linux.set_inheritable_capabilities(1 << CAP_DAC_READ_SEARCH)
    linux.empty_bounding_set()
    linux.keep_capabilities(keep=bool(reads_all))
    os.setgroups([group])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    linux.set_capabilities(1 << CAP_DAC_READ_SEARCH if reads_all else 0)
    if reads_all:  # for the programs that it starts itself
        linux.raise_ambient(CAP_DAC_READ_SEARCH)
    linux.set_no_new_privileges()
    # Whatever fs.suid_dumpable says: neighbours of the same user cannot trace or read it, and no core file keeps its passwords.
    linux.forbid_dumps_and_tracing()


def seal(told: str) -> None:
    """Give up what `drop` has left for reading Python itself. Call it before anything is read that comes from outside."""
    if told == "-" or not int(told.rpartition(",")[2]):
        return
    import_by_descriptors()
    linux.clear_ambient()
    linux.set_capabilities(0)


def import_by_descriptors() -> None:
    """Have imports, and modules that look for files beside themselves, find their folders by descriptors that stay open.

    What is found so needs no way through the folders above. Files must be readable to everybody, as installers leave them.
    """
    folders = {path: f"/proc/self/fd/{_opened(path)}" for path in sys.path if path and Path(path).is_dir()}

    def moved(path: str) -> str:
        inside = [folder for folder in folders if path == folder or path.startswith(f"{folder}/")]
        longest = max(inside, key=len, default="")
        return folders[longest] + path[len(longest) :] if longest else path

    sys.path[:] = [folders.get(path, path) for path in sys.path]
    for module in list(sys.modules.values()):
        _move(module, moved)
    sys.path_importer_cache.clear()


def _opened(folder: str) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _move(module: object, moved: Callable[[str], str]) -> None:
    """A module's own folder and file, and those of its loader, which resources are read by."""
    folders = getattr(module, "__path__", None)
    if isinstance(folders, list):
        folders[:] = [moved(path) for path in folders]
    spec = getattr(module, "__spec__", None)
    for owner, name in ((module, "__file__"), (spec, "origin"), (getattr(spec, "loader", None), "path")):
        path = getattr(owner, name, None)
        if isinstance(path, str):
            with contextlib.suppress(AttributeError):  # a loader of another kind, which keeps its path to itself
                setattr(owner, name, moved(path))


def _needed() -> Iterable[Path]:
    """What a worker cannot do without: the interpreter as it is found and as it is, the library, our own package."""
    here = Path(__file__)
    return {Path(sys.executable), Path(sys.executable).resolve(), Path(os.__file__), here, here.resolve()}


def _everybody_reads(path: Path) -> bool:
    """Whether every folder above lets everybody through, and the file may be read."""
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in path.parents)
