"""The supervisor: a small process between the agent and a database server, which ends the server when the agent ends,
and cleans up after both.

Flow: the agent starts `python -I -S supervisor.py` and writes one JSON request a line to its standard input; the
supervisor answers each with one JSON line and reports by itself when the server exits. Server and helper programs
(`initdb`, `cp`) are the supervisor's children. They run as the unprivileged user that the agent names, without
capabilities and new privileges, and with `access` in the request they can use only the files that it lists
(`confinement`).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

# A segment belongs to an entry when its owner is the entry's user and its key is PostgreSQL's for that data directory
# (the inode number, or one of the few after it; src/backend/port/sysv_shmem.c). It is removed only when the process
# that made it is gone and no process has it attached. A process belongs to an entry when it has the user, the program,
# and the data directory as its working directory: its inode and, because the inode of a removed directory is given to
# the next one, which may be that of another session's server, the folder that it lies in. The session's folder is the
# agent's, so the server's user cannot add an entry.

FILE = "servers"
IPC_RMID = 0
KEYS = 64
"""The number of keys after the inode's that PostgreSQL may have tried, where other segments had the first ones."""
GONE_S = 5.0

LIBC = ctypes.CDLL(None, use_errno=True)


def entry_of(directory: str, program: str, uid: int | None) -> dict[str, Any]:
    """The entry of a server on the data in `directory`; `uid` is None for this process's own user."""
    found = os.stat(directory)  # noqa: PTH116 - pathlib costs start-up time
    return {
        "device": found.st_dev,
        "inode": found.st_ino,
        "folder": os.path.dirname(os.path.realpath(directory)),  # noqa: PTH120
        "program": program.rpartition("/")[2],
        "uid": os.geteuid() if uid is None else uid,
    }


def note(session: str, entry: dict[str, Any]) -> None:
    """Add an entry to the session's file."""
    with open(f"{session}/{FILE}", "a", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time
        file.write(json.dumps(entry) + "\n")


def read(session: str) -> list[dict[str, Any]]:
    """The entries of a session; a line that was not written to its end is passed over."""
    try:
        with open(f"{session}/{FILE}", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time
            lines = file.read().splitlines()
    except OSError:
        return []
    entries = []
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def is_noted(session: str) -> bool:
    """Whether a server was started in the session, which its supervisor had locked by then."""
    return os.path.exists(f"{session}/{FILE}")  # noqa: PTH110 - pathlib costs start-up time


def clear(entry: dict[str, Any]) -> None:
    """Kill the processes of an entry, wait for their end, and remove its shared memory.

    A killed process cannot be found by its program a moment before the kernel detaches its memory: while a segment of
    an ended process is attached, this looks again.
    """
    deadline = time.monotonic() + GONE_S
    while True:
        found = list(_processes(entry))
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        segments = _segments(entry)
        for identifier, attached in segments:
            if not attached:
                LIBC.shmctl(identifier, IPC_RMID, None)
        if not (found or any(attached for _, attached in segments)) or time.monotonic() > deadline:
            return
        time.sleep(0.005)


def _processes(entry: dict[str, Any]) -> Iterator[int]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs start-up time
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != entry["uid"]:  # noqa: PTH116 - pathlib costs start-up time
                continue
            folder = os.stat(f"/proc/{name}/cwd")  # noqa: PTH116
            if (folder.st_dev, folder.st_ino) != (entry["device"], entry["inode"]):
                continue
            lies_in = os.path.dirname(os.readlink(f"/proc/{name}/cwd"))  # noqa: PTH115, PTH120
            if lies_in != entry.get("folder", lies_in):  # the entry of an earlier release has none
                continue
            program = os.readlink(f"/proc/{name}/exe")  # noqa: PTH115 - pathlib costs start-up time
        except OSError:
            continue
        if program.removesuffix(" (deleted)").rpartition("/")[2] == entry["program"]:
            yield int(name)


def _segments(entry: dict[str, Any]) -> list[tuple[int, int]]:
    """Segments of an entry whose maker is gone: (identifier, number of processes that have it attached)."""
    try:
        with open("/proc/sysvipc/shm", encoding="ascii") as table:  # noqa: PTH123 - pathlib costs start-up time
            rows = [[int(word) for word in row.split()] for row in list(table)[1:]]
    except OSError:
        return []
    return [
        (identifier, attached)
        for key, identifier, _, _, creator, _, attached, owner, _, _, _, _, _, made_s, *_ in rows
        if owner == entry["uid"] and (key - entry["inode"]) % (1 << 32) < KEYS and not _lives(creator, made_s)
    ]


def _lives(pid: int, made_s: int) -> bool:
    """Whether the process that made something at `made_s` (seconds since 1970) still runs: not a zombie, and not a
    later process that was given the same number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    started_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in {b"Z", b"X"} and started_s <= made_s + 2


# Whichever process is killed:
# - the agent dies (even by SIGKILL): the pipe ends, and the pidfd of the parent fires (a forked child of the agent may
#   keep the pipe open); the supervisor stops the server (fast, after `FAST_S` immediate, then SIGKILL) and removes its
#   directories;
# - the supervisor dies: the kernel sends the server SIGQUIT (PR_SET_PDEATHSIG), an immediate shutdown;
# - the server dies: its orphans become the supervisor's (PR_SET_CHILD_SUBREAPER) and are ended, the System V segment
#   that a killed PostgreSQL leaves is removed (`supervisor`), and the agent gets a report;
# - all three die: the next session on the host reads the supervisor's notes in its folder, and cleans up the same.
#
# Only the standard library is imported, and little of it, and two modules beside this one: the supervisor runs from its
# file, without site-packages, in a few milliseconds, and has one thread, so that forking and PR_SET_PDEATHSIG (which is
# about the parent *thread*) are safe.

if TYPE_CHECKING or __name__ != "__main__":
    from proveout.agent.engines.embedded import confinement
    from proveout.core import linux
else:  # started from its file: site-packages are not on the path, and what lies beside it has its turn last
    _HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up time
    _PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
    sys.path += (_HERE, f"{_PACKAGE}/core")
    import confinement
    import linux

FAST_S = 5.0
IMMEDIATE_S = 6.0
PARENT_CHECK_S = 0.5
OUTPUT_BYTES_MAX = 16_384


class ParentGoneError(Exception):
    """The agent has died or has closed the pipe; stop everything."""


class Supervisor:
    """The state of one supervisor: its server, its directories, and the user that its children run as."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._server: int | None = None
        self._entry: dict[str, Any] | None = None
        self._fast_signal = int(signal.SIGINT)
        self._is_frozen = False
        self._statuses: dict[int, int] = {}
        self._identity: tuple[int, int] | None = None
        self._owned: list[str] = []
        self._locks: list[int] = []
        self._buffer = b""
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write, 0):
            os.set_blocking(descriptor, False)
        self._handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "identity": self.identity,
            "reach": self.reach,
            "own": self.own,
            "lock": self.lock,
            "run": self.run,
            "start": self.start,
            "stop": lambda request: self.stop(request["fast_s"], alone=False, how=request.get("how", "shut_down")),
            "freeze": lambda _request: self.signal_all(signal.SIGSTOP),
            "thaw": lambda _request: self.signal_all(signal.SIGCONT),
        }
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)
        self._parent_watched = self._watch_parent()
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        for woken in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(woken, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write)

    def _watch_parent(self) -> bool:
        try:
            descriptor = os.pidfd_open(self._parent)
        except (OSError, AttributeError):
            return False  # before Linux 5.3: `wait` looks at the parent's id instead
        self._poll.register(descriptor, select.POLLIN)
        self._parent_descriptor = descriptor
        return True

    # ---- waiting -------------------------------------------------------------------------------------------------

    def wait(self, deadline: float | None) -> None:
        """Wait until something happens or `deadline` (monotonic, s); reads requests, reaps children;
        ParentGoneError."""
        limit = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._parent_watched:
            limit = PARENT_CHECK_S if limit is None else min(limit, PARENT_CHECK_S)
        ready = dict(self._poll.poll(None if limit is None else limit * 1000 + 1))
        terminated = self._wake_read in ready and signal.SIGTERM in os.read(self._wake_read, 4096)
        self._reap()
        if terminated or os.getppid() != self._parent:
            raise ParentGoneError
        if 0 in ready:
            received = os.read(0, 65_536)
            if not received:
                raise ParentGoneError
            self._buffer += received

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._statuses[pid] = os.waitstatus_to_exitcode(status)

    def _ended(self, pid: int, deadline: float, *, alone: bool) -> bool:
        """Wait for a child until `deadline`; `alone` when the parent has ended already and is not to be watched."""
        while pid not in self._statuses:
            if time.monotonic() >= deadline:
                return False
            if alone:
                time.sleep(0.01)
                self._reap()
            else:
                self.wait(deadline)
        return True

    # ---- children ------------------------------------------------------------------------------------------------

    def _spawn(self, request: dict[str, Any], output: int, identity: tuple[int, int] | None) -> int:
        """Start `argv` with `environment`, confined to `access` if the request has it; OSErrors go to `output`."""
        supervisor, argv = os.getpid(), request["argv"]
        pid = os.fork()
        if pid:
            self._statuses.pop(pid, None)  # of an orphan that had this number
            return pid
        try:
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            _become(identity, signal.SIGQUIT, supervisor, request.get("access"))
            os.umask(0o077)
            os.chdir(request.get("directory", "/"))  # a server's data, by which `supervisor` finds its processes
            for default in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(default, signal.SIG_DFL)
            os.execve(argv[0], argv, request["environment"])  # noqa: S606 - an argv array, and no shell wanted
        except OSError as error:
            os.write(2, f"{argv[0]}: {error}\n".encode())
        finally:
            os._exit(127)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a program to its end: `argv`, `environment`, `limit_s`, `identity` ("server", "agent" or [uid, gid]),
        `access`.

        `database` is there when it makes one: [its directory, the name of the server's program].
        """
        name = request["identity"]
        identity = self._identity if name == "server" else None if name == "agent" else (int(name[0]), int(name[1]))
        entry = None
        if request.get("database"):
            directory, program = request["database"]
            entry = self._note(directory, program, identity)
        output = os.memfd_create("output")
        try:
            pid = self._spawn(request, output, identity)
            try:
                finished = self._ended(pid, time.monotonic() + request["limit_s"], alone=False)
            except ParentGoneError:
                self._kill(pid)
                raise
            if not finished:
                self._kill(pid)
            size = os.fstat(output).st_size
            text = os.pread(output, OUTPUT_BYTES_MAX, max(0, size - OUTPUT_BYTES_MAX)).decode(errors="replace")
        finally:
            os.close(output)
            if entry is not None:
                clear(entry)
        status = self._statuses.pop(pid, -signal.SIGKILL)  # one that waits for a disk ends when that answers
        return {"status": status, "timed_out": not finished, "output": text}

    def _note(self, directory: str, program: str, identity: tuple[int, int] | None) -> dict[str, Any]:
        """Note a server before it starts, for the next session after a kill of this supervisor."""
        entry = entry_of(directory, program, None if identity is None else identity[0])
        for session in self._owned[:1]:
            note(session, entry)
        return entry

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._ended(pid, time.monotonic() + IMMEDIATE_S, alone=True)
        self._end_strays()

    def reach(self, request: dict[str, Any]) -> dict[str, Any]:
        """Whether the server's identity can use the directory or program at `path`."""
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _become(self._identity, signal.SIGKILL, supervisor)
                os._exit(0 if os.access(request["path"], os.X_OK) else 1)
            finally:
                os._exit(2)
        self._statuses.pop(pid, None)
        self._ended(pid, time.monotonic() + IMMEDIATE_S, alone=False)
        return {"reachable": self._statuses.pop(pid, 2) == 0}

    # ---- the server ----------------------------------------------------------------------------------------------

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start the server: `argv`, `environment`, `access`, `directory` (its data), `log` (appended to), `fast_signal`
        that stops it."""
        if self._server is not None:
            return {"error": "a server is running already"}
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self._entry = self._note(request["directory"], request["argv"][0], self._identity)
            self._server = self._spawn(request, log, self._identity)
        finally:
            os.close(log)
        self._fast_signal = request.get("fast_signal", int(signal.SIGINT))
        return {"pid": self._server}

    def stop(self, fast_s: float, *, alone: bool, how: str = "shut_down") -> dict[str, Any]:
        """Stop the server: fast, after `fast_s` immediate, then by force; returns which of them it took. `how`: with
        "abort" immediate at once, with "kill" by force, all of its processes together."""
        if self._server is None:
            return {"how": "not running"}
        if how == "kill":
            self.signal_all(signal.SIGKILL)
        elif self._is_frozen:
            self.signal_all(signal.SIGCONT)
        ways = (
            ("fast", self._fast_signal, fast_s),
            ("immediate", signal.SIGQUIT, IMMEDIATE_S),
            ("killed", signal.SIGKILL, IMMEDIATE_S),
        )
        pid, first = self._server, {"abort": 1, "kill": 2}.get(how, 0)
        how = "killed"
        for name, number, patience_s in ways[first:]:
            if pid not in self._statuses:
                os.kill(pid, number)
            if self._ended(pid, time.monotonic() + patience_s, alone=alone):
                how = name
                break
        status = self._bury()
        return {"how": how, "status": status}

    def signal_all(self, number: int) -> dict[str, Any]:
        """Send a signal to all processes of the server, and again until no new ones appear. The process that starts the
        others is the first to end or stop, before the others are looked up, and the last to continue. Those of a server
        that has ended are children of this process, which runs nothing else meanwhile."""
        if self._server is None:
            return {"error": "the server is not running"}
        if number != signal.SIGCONT:
            _kill(self._server, number)
        reached: set[int] = set()
        while new := [pid for pid in _descendants(os.getpid()) if pid not in reached]:
            for pid in reversed(new) if number == signal.SIGCONT else new:
                _kill(pid, number)
            reached |= {*new}
        self._is_frozen = number == signal.SIGSTOP
        return {"processes": len(reached)}

    def died(self) -> dict[str, Any] | None:
        """Return the report about a server that ended by itself, once; None otherwise."""
        if self._server is None or self._server not in self._statuses:
            return None
        return {"event": "exited", "status": self._bury()}

    def _bury(self) -> int | None:
        """Clean up after an ended server: its orphans, and the shared memory of one that was killed."""
        pid, self._server = self._server, None
        self._end_strays()
        if self._entry is not None:
            clear(self._entry)
        return self._statuses.pop(pid, None) if pid is not None else None

    def _end_strays(self) -> None:
        """Kill the orphans of an ended child."""
        deadline = time.monotonic() + IMMEDIATE_S
        while time.monotonic() < deadline:
            self._reap()
            strays = [pid for pid in _by_parent().get(os.getpid(), []) if pid != self._server]
            if not strays:
                return
            for pid in strays:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    # ---- requests ------------------------------------------------------------------------------------------------

    def own(self, request: dict[str, Any]) -> dict[str, Any]:
        """Lock the directory at `path`, and remove it when the supervisor ends."""
        self._owned.append(request["path"])
        return {"locked": self._lock(request["path"])}

    def lock(self, request: dict[str, Any]) -> dict[str, Any]:
        """Lock the directory at `path` until the supervisor ends."""
        return {"locked": self._lock(request["path"])}

    def _lock(self, path: str) -> bool:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        if not linux.lock(descriptor):
            os.close(descriptor)
            return False
        self._locks.append(descriptor)
        return True

    def identity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Set the user that the server runs as: `uid` and `gid`, or null for the agent's own user."""
        self._identity = None if request["uid"] is None else (request["uid"], request["gid"])
        return {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one request; an OSError becomes `error`."""
        try:
            handler = self._handlers.get(request["do"])
            return handler(request) if handler else {"error": f"unknown request {request['do']}"}
        except OSError as error:
            return {"error": str(error)}

    def serve(self) -> None:
        """Answer requests until the agent has ended."""
        while True:
            self.wait(None)
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                request = json.loads(line)
                _say({"id": request["id"], **self.answer(request)})
            report = self.died()
            if report is not None:
                _say(report)

    def finish(self) -> None:
        """Stop the server and remove the directories, after the agent has ended."""
        self.stop(FAST_S, alone=True)
        if self._owned:
            import shutil  # noqa: PLC0415 - only needed here, and not cheap to import

            for path in self._owned:
                shutil.rmtree(path, ignore_errors=True)


def _become(
    identity: tuple[int, int] | None, death_signal: int, parent: int, access: confinement.Access | None = None
) -> None:
    """In a fresh child: drop all privileges, then request a signal at the parent's death (dropping clears that
    request)."""
    signal.set_wakeup_fd(-1)
    confinement.give_up_privileges(identity)
    if access is not None:
        confinement.restrict(access)
    linux.set_parent_death_signal(death_signal)
    if os.getppid() != parent:
        os._exit(125)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _descendants(process: int) -> list[int]:
    """Process ids of the children of a process, their children, and so on."""
    children = _by_parent()
    found = children.get(process, [])
    for child in found:
        found += children.get(child, ())
    return found


def _by_parent() -> dict[int, list[int]]:
    """All process ids by that of the parent, from one pass over /proc; zombies are not counted."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs start-up time
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
                state, ppid = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            found.setdefault(int(ppid), []).append(int(entry))
    return found


def _say(reply: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(reply).encode() + b"\n")
    except OSError:
        raise ParentGoneError from None


def main() -> NoReturn:
    """Serve the parent process; exit 0 when it has ended and everything is cleaned up."""
    linux.become_child_subreaper()
    supervisor = Supervisor(int(sys.argv[1]))
    try:
        supervisor.serve()
    except ParentGoneError:
        pass
    finally:
        supervisor.finish()
    sys.exit(0)


if __name__ == "__main__":
    main()
