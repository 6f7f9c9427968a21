"""Run child processes of a root agent as an unprivileged user: choose the user, start the process, drop root for good.

Flow: the agent gets `Privileges` (`for_engine`, `for_endpoint`, `for_user`): a numeric user and group that no account
of the host has, and the group of the embedded servers, whose sockets the child connects to. An agent that is not root
gets `INHERITED`. The agent starts the child with `to_argument()` in argv and with `environment(…)`; the child calls
`enter` before it reads any input, which drops root: no other groups, no new privileges, no capabilities, an empty
bounding set.

Where Python is installed below a folder that only root can enter (a virtual environment below /root), the child could
not import modules after that. Then `drop` keeps one capability, CAP_DAC_READ_SEARCH, until `seal`. `seal` opens the
folders of Python's search path and routes later imports through these descriptors (`/proc/self/fd/N`), which give
access to these folders and to nothing else; then it gives up the capability. Both calls come before any input from
outside is read.

Engines that keep a database in a file (SQLite, DuckDB, and drivers of other packages with `in_files`): a file that the
agent has made belongs to the unprivileged user. For another file, if the host's policy lists it or the agent is the
child of a run, the child runs as the file's owner. A file that root owns, or a new file in a folder that root owns, is
refused: SQL can open and write other files, so no database work runs as root.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.agent.engines.embedded.account import UID_LAST, choose_account
from proveout.agent.engines.table import driver, is_in_files
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core import linux
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.linux import CAP_DAC_READ_SEARCH

if TYPE_CHECKING:  # populate workers import this module, and start faster without it
    from proveout.proto.wire.tasks import Endpoint

HOME = "/nonexistent"
"""Home of the unprivileged user: client libraries find no files of root there, and get no permission errors."""


@record
class Account:
    """The unprivileged user: user id (and group id) that no account has, and the group of embedded servers.

    `reads_all`: see the module.
    """

    uid: int
    group: int
    reads_all: bool


@functools.cache
def account() -> Account | None:
    """The unprivileged user for load and helper processes; None for an agent that is not root.

    TaskFault `refused` where no other user may read the files of this program (a clone made with umask 077).
    """
    servers = choose_account()
    if servers is None:
        return None
    _need_readable(Path(__file__).resolve())
    uid = servers.uid + 1 if servers.uid + 1 < UID_LAST else servers.uid - 1
    return Account(uid=uid, group=servers.uid, reads_all=not all(_everybody_reads(path) for path in _needed()))


@record
class Privileges:
    """User, primary group and supplementary group of a child process; `reads_all`: keep CAP_DAC_READ_SEARCH until
    `seal`.

    A negative `uid` means that the child keeps the user of the agent, which is not root (`INHERITED`).
    """

    uid: int = -1
    gid: int = -1
    group: int = -1
    reads_all: bool = False

    @classmethod
    def for_engine(cls, engine: str, dsn: str = "", policy: Policy = NOTHING) -> Privileges:
        """Privileges for work on a system of `engine`.

        They are those of the owner if `dsn` is a database file that the policy lets the agent change, else those of the
        unprivileged user. TaskFault `refused` for a file that root owns.
        """
        user = account()
        if user is None:
            return INHERITED
        owner = _owner(dsn, policy) if dsn and is_in_files(engine) else None
        if owner is None:
            return cls(uid=user.uid, gid=user.uid, group=user.group, reads_all=user.reads_all)
        uid, gid = owner
        return cls(uid=uid, gid=gid, group=gid, reads_all=user.reads_all)

    @classmethod
    def for_endpoint(cls, endpoint: Endpoint, policy: Policy) -> Privileges:
        return cls.for_engine(endpoint.engine, "" if endpoint.provisioned else endpoint.dsn, policy)

    @classmethod
    def for_user(cls, uid: int) -> Privileges:
        """Privileges of another user of this host, with that user's primary group. TaskFault `refused` for root."""
        user = account()
        if user is None:
            return INHERITED
        if uid == 0:
            way_out = "start the Ray node on this host as a user other than root"
            raise TaskFault(
                "refused", "root runs the Ray cluster on this host, and no load runs as root", way_out=way_out
            )
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:  # a container may have user ids without an account
            gid = uid
        return cls(uid=uid, gid=gid, group=gid, reads_all=user.reads_all)

    @classmethod
    def from_argument(cls, text: str) -> Privileges:
        """Parse `to_argument`. ValueError for any other text."""
        if text == "-":
            return INHERITED
        uid, gid, group, reads_all = (int(number) for number in text.split(","))
        return cls(uid=uid, gid=gid, group=group, reads_all=bool(reads_all))

    def to_argument(self) -> str:
        """One command-line argument: `uid,gid,group,reads_all`, or `-` for inherited privileges."""
        return "-" if self.inherited else f"{self.uid},{self.gid},{self.group},{int(self.reads_all)}"

    @property
    def inherited(self) -> bool:
        """Whether the child keeps the user of the agent."""
        return self.uid < 0

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Environment of the child: `given` without the agent's home. A dsn without a user still means the agent's
        user.
        """
        if self.inherited:
            return dict(given)
        name = pwd.getpwuid(os.geteuid()).pw_name
        return {"PGUSER": name, "USER": name, "LOGNAME": name, **given, "HOME": HOME}

    def give(self, *paths: Path) -> None:
        """Give files of the agent to the user of the child. OSError from chown(2)."""
        if not self.inherited:
            for path in paths:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def drop(self, *, keeps_root: bool = False) -> None:
        """Change this process to these privileges, except the capability that `seal` drops.

        OSError: the process must end.

        PermissionError if the process would stay root. `keeps_root` allows that: fio on a block device, which only root
        can open.
        """
        if self.inherited:
            if os.geteuid() == 0 and not keeps_root:
                raise PermissionError("this process must not run as root")
            return
        if self.reads_all:  # before the bounding set is emptied: a capability outside it cannot become inheritable
            linux.set_inheritable_capabilities(1 << CAP_DAC_READ_SEARCH)
        linux.empty_bounding_set()
        linux.keep_capabilities(keep=self.reads_all)
        os.setgroups([self.group])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        linux.set_capabilities(1 << CAP_DAC_READ_SEARCH if self.reads_all else 0)
        if self.reads_all:  # for the programs that this process starts
            linux.raise_ambient(CAP_DAC_READ_SEARCH)
        linux.set_no_new_privileges()
        # For any value of fs.suid_dumpable: processes of the same user cannot trace or read it, and no core file has
        # passwords.
        linux.forbid_dumps_and_tracing()

    def seal(self) -> None:
        """Drop the capability that `drop` has kept for imports. Call it before any input from outside is read."""
        if not self.reads_all:
            return
        import_by_descriptors()
        linux.clear_ambient()
        linux.set_capabilities(0)


INHERITED = Privileges()
"""Of a child of an agent that is not root."""


def enter(argument: str, parent: int, name: str, engine: str = "") -> None:
    """Begin a child process, before it reads any input: change to the privileges of an argument, end with the parent,
    and load the driver of an engine, if one is given."""
    privileges = Privileges.from_argument(argument)
    privileges.drop()
    linux.die_with_parent(parent, name)  # after `drop`: a change of the user resets the parent-death signal
    if engine:
        with contextlib.suppress(ProveoutError):  # a driver that cannot be loaded is reported when it is needed
            driver(engine)
    privileges.seal()


def _owner(dsn: str, policy: Policy) -> tuple[int, int] | None:
    """User and group of the database file, or of its folder if the file is missing; None if the agent may not use
    either.

    TaskFault `refused` if root owns it, or if the path cannot be resolved. Symbolic links are followed.
    """
    if dsn.startswith(":"):  # `:memory:` has no folder
        return None
    try:
        path = Path(dsn).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL
        raise TaskFault("refused", f"the path of the database file {dsn!r} cannot be resolved") from None
    if not policy.allows_database_file(str(path)):
        return None
    for existing in (path, path.parent):
        with contextlib.suppress(OSError):
            status = existing.stat()
            if status.st_uid == 0:
                raise _owned_by_root(path, existing)
            # Files of a user often have root's group, which can read files of root.
            return status.st_uid, status.st_gid or status.st_uid
    return None


def _owned_by_root(path: Path, existing: Path) -> TaskFault:
    """The refusal of a file that only root could use."""
    what = f"the database file {path} belongs to root"
    if existing != path:
        what = f"the database file {path} would be made in {existing}, which belongs to root"
    named = shlex.quote(str(existing))
    way_out = f"give it to another user: `chown USER {named}`, with the files that the database has made beside it"
    return TaskFault("refused", f"{what}, and no database work runs as root", way_out=way_out)


def import_by_descriptors() -> None:
    """Route imports, and modules that open files beside themselves, through open descriptors of their folders.

    Access through a descriptor needs no permission on the folders above. Files must be world-readable, as installers
    leave them.
    """
    # A package that is a link leads through a folder of its own, which may be closed: a clone of mode 0700.
    packages = (path for module in list(sys.modules.values()) for path in getattr(module, "__path__", ()))
    links = {path for path in packages if Path(path).is_symlink()}
    roots = {path for path in sys.path if path and Path(path).is_dir()}
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    folders = {path: f"/proc/self/fd/{os.open(path, flags)}" for path in roots | links}

    def moved(path: str) -> str:
        inside = [folder for folder in folders if path == folder or path.startswith(f"{folder}/")]
        longest = max(inside, key=len, default="")
        return folders[longest] + path[len(longest) :] if longest else path

    sys.path[:] = [folders.get(path, path) for path in sys.path]
    for module in list(sys.modules.values()):
        _move(module, moved)
    sys.path_importer_cache.clear()


def _move(module: object, moved: Callable[[str], str]) -> None:
    """Change the folder and file of a module and of its loader, which reads resources."""
    folders = getattr(module, "__path__", None)
    if isinstance(folders, list):
        folders[:] = [moved(path) for path in folders]
    spec = getattr(module, "__spec__", None)
    for owner, name in ((module, "__file__"), (spec, "origin"), (getattr(spec, "loader", None), "path")):
        path = getattr(owner, name, None)
        if isinstance(path, str):
            with contextlib.suppress(AttributeError):  # a loader whose path is read-only
                setattr(owner, name, moved(path))


def _needed() -> Iterable[Path]:
    """Files that a worker must read: the interpreter (as found and resolved), the standard library, this package."""
    here = Path(__file__)
    return {Path(sys.executable), Path(sys.executable).resolve(), Path(os.__file__), here, here.resolve()}


def _need_readable(file: Path) -> None:
    """TaskFault where other users may not read a file of this program: access by descriptors needs that right, too."""
    if not file.stat().st_mode & 0o004:
        what = f"other users may not read {file}, and processes that work on databases run as an unprivileged user"
        raise TaskFault("refused", what, way_out=f"make the program readable: `chmod -R go+rX {file.parents[2]}`")


def _everybody_reads(path: Path) -> bool:
    """Whether any user can read the file: it is world-readable, and all folders above are world-searchable."""
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in path.parents)
