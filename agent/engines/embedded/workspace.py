"""The workspace of an embedded server: supervisor process, files that it may use, private folder, copies of its
data.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import queue
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from proveout.agent.engines.embedded import account, data_store, supervisor
from proveout.agent.engines.embedded.confinement import Access
from proveout.agent.errors import TaskFault
from proveout.core import child_process, linux
from proveout.core.json_data import json_line
from proveout.core.path_trust import give_away

# Home directories, `/tmp`, `/dev/shm`, `/proc` and the agent's own folders are in no list.

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
"""Programs and libraries of the system."""
CONFIGURATION = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static",
    "/etc/timezone",
)
"""Files that libraries read: the loader, name services, time zones, certificates of authorities."""
KERNEL = (
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/fs",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/version",
    "/sys/devices/system",
    "/sys/kernel/mm",
)
"""Sizes of memory and huge pages, processors, random numbers."""
BESIDE_PROGRAMS = ("bin", "sbin", "libexec", "lib", "lib64", "share")
"""Folders of an installation beside that of its programs."""
NULL = "/dev/null"

_ELF_64 = b"\x7fELF\x02\x01"
_INTERPRETER = 3
_PATH_BYTES_MAX = 4096


def of_server(program: Path, *, read: Iterable[Path], write: Iterable[Path]) -> Access:
    """`program`, what lies beside it, `read` and `write`. It executes itself and the loader that its file names."""
    loader = interpreter(program)
    executed = (str(program), loader) if loader else SYSTEM  # a script, or a form of program that is not known here
    return {
        "read": [*SYSTEM, *CONFIGURATION, *KERNEL, *_beside(program), *map(str, read)],
        "execute": list(executed),
        "write": [NULL, *map(str, write)],
    }


def of_helper(program: Path, *, read: Iterable[Path] = (), write: Iterable[Path]) -> Access:
    """`program` and what lies beside it, all programs of the system, `read` and `write`."""
    return {
        "read": [*CONFIGURATION, *KERNEL, *map(str, read)],
        "execute": [*SYSTEM, *_beside(program)],
        "write": [NULL, *map(str, write)],
    }


def _beside(program: Path) -> list[str]:
    return [str(program.parent.parent / name) for name in BESIDE_PROGRAMS]


def interpreter(program: Path) -> str:
    """The loader that a 64-bit little-endian ELF program names; "" for all else. Source: elf(5), PT_INTERP."""
    try:
        with program.open("rb") as file:
            head = file.read(64)
            if len(head) < 64 or not head.startswith(_ELF_64):
                return ""
            (table,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            for number in range(count):
                file.seek(table + number * size)
                kind, _, start, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
                if kind == _INTERPRETER and length <= _PATH_BYTES_MAX:
                    file.seek(start)
                    return file.read(length).rstrip(b"\0").decode()
    except (OSError, struct.error, UnicodeDecodeError):
        return ""
    return ""


ANSWER_S = 10.0
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}
GONE = "the supervisor process of the database server is gone"
END_S = supervisor.FAST_S + 3 * supervisor.IMMEDIATE_S


class SupervisorClient:
    """A running supervisor. All methods are safe to call from several threads, and after the supervisor's end."""

    def __init__(self, on_exit: Callable[[str], None]) -> None:
        self._on_exit = on_exit
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._asking = threading.Lock()
        self._ending = self._gone = False
        self._sent = 0
        self._process = subprocess.Popen(
            # -S too: the supervisor uses the standard library alone
            [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=child_process.DIRECTORY,
            env=child_process.environment(),
        )
        self._reader = threading.Thread(target=self._read, name="supervisor", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process runs. Its pipe ends before the kernel reports its end."""
        return not self._gone and self._process.poll() is None

    def request(self, do: str, *, timeout_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request (`supervisor.Supervisor.answer`); TaskFault on an error, a lost supervisor or
        no answer in time."""
        with self._asking:
            self._sent += 1
            self._send({"id": self._sent, "do": do, **fields})
            answer = self._answer(self._sent, do, timeout_s)
        if "error" in answer:
            raise TaskFault("fault", f"{do}: {answer['error']}")
        return answer

    def run(
        self,
        argv: list[str],
        *,
        limit_s: float,
        identity: str | tuple[int, int],
        access: Access | None = None,
        database: tuple[str, str] | None = None,
    ) -> str:
        """Run a program under the supervisor; return its output (stdout and stderr, the last 16 KiB). TaskFault when it
        fails.

        `access` lists the files that it may use, None for no limit. `database` is for a program that makes a data
        directory: that directory, and the name of the server's program.
        """
        answer = self.request(
            "run",
            timeout_s=limit_s + ANSWER_S,
            limit_s=limit_s,
            argv=argv,
            environment=ENVIRONMENT,
            identity=identity,
            access=access,
            database=database,
        )
        name, output = Path(argv[0]).name, str(answer["output"]).strip()
        if answer["timed_out"]:
            raise TaskFault("timeout", f"{name} did not end within {limit_s:.0f} s: {output}")
        if answer["status"] != 0:
            code = "disk_full" if "No space left on device" in output else "fault"
            raise TaskFault(code, f"{name} failed ({ending(answer['status'])}): {output}")
        return output

    def _answer(self, number: int, do: str, timeout_s: float) -> dict[str, Any]:
        """Return the answer to request `number`, and skip late answers to requests that have timed out."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TaskFault("timeout", f"the supervisor did not answer {do!r} within {timeout_s:.0f} s") from None
            if answer is None:
                self._answers.put(None)
                raise TaskFault("fault", GONE)
            if answer["id"] == number:
                return answer

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - Popen was given a pipe
        try:
            self._process.stdin.write(json_line(request))
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise TaskFault("fault", GONE) from None

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - Popen was given a pipe
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("event") == "exited":
                self._on_exit(f"the server process ended by itself ({ending(message['status'])})")
            else:
                self._answers.put(message)
        self._gone = True
        self._answers.put(None)
        if not self._ending:
            self._on_exit("its supervisor process was killed, and the server was stopped with it")

    def end(self) -> None:
        """End the supervisor, which stops the server and removes its directories; kill it when it does not end.
        Idempotent."""
        self._ending = True
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101 - Popen was given pipes
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)
        self._process.stdout.close()


def ending(status: int | None) -> str:
    """Return how a process ended, for people: `signal SIGKILL`, `exit code 1`."""
    if status is None:
        return "unknown status"
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


# A privileged agent changes files of the server's user only as that user, or by file descriptor: SQL of a plan may have
# put symbolic links that lead elsewhere into a data directory.

USER = "proveout"
PREDECESSOR_S = 20.0
COPY_S = 600.0
POLL_S = 0.1

T = TypeVar("T")


class Workspace:
    """The workspace of one server. Methods block; `on_exit(text)` is called in another thread when the server ends by
    itself."""

    def __init__(self, folder: Path, on_exit: Callable[[str], None]) -> None:
        self._folder = folder
        self._account = account.choose_account()
        self.supervisor = SupervisorClient(on_exit)
        self._session: Path | None = None

    @property
    def session(self) -> Path:
        """The session's private folder: 0711, with a folder for each socket in it."""
        assert self._session is not None  # noqa: S101 - made by enter
        return self._session

    @property
    def uid(self) -> int | None:
        """The server's numeric user id; None for the agent's own user."""
        return self._account.uid if self._account else None

    def enter(self) -> data_store.State | None:
        """Lock the system's folder and make the session's; return the state of an earlier session. TaskFault when that
        session still runs."""
        # wait until an earlier session, whose agent was killed for instance, has released the data
        deadline = time.monotonic() + PREDECESSOR_S
        while not self.supervisor.request("lock", path=str(self._folder))["locked"]:
            if time.monotonic() > deadline:
                raise TaskFault(
                    "refused",
                    f"system {self._folder.name!r} is still in use by another session ({self._folder} is locked)",
                    way_out="end the other run, or wait until its agent has noticed that its coordinator is gone",
                )
            time.sleep(POLL_S)
        previous = data_store.read_state(self._folder)
        if self._account is not None and previous is not None and previous.uid is not None:
            self._account = dataclasses.replace(self._account, uid=previous.uid)
        self.supervisor.request("identity", uid=self.uid, gid=self.uid)
        base = account.reachable_base(self.reachable)
        data_store.sweep((base,), locked=is_locked)
        self._session = Path(tempfile.mkdtemp(prefix=data_store.SESSION_PREFIX, dir=base))
        self.supervisor.request("own", path=str(self._session))
        self._session.chmod(0o711)
        return previous

    def leave(self) -> None:
        """End the supervisor with all its processes, and remove the session's folder. Never raises."""
        self.supervisor.end()
        if self._session is not None:
            shutil.rmtree(self._session, ignore_errors=True)

    def reachable(self, path: Path) -> bool:
        """Whether the server's user can enter that folder, or run that program."""
        return bool(self.supervisor.request("reach", path=str(path))["reachable"])

    def server_access(self, program: Path, data: Path, ports: Sequence[int] = ()) -> Access:
        """Return the files that the server may use: its program, the session's folder to read, its data and its sockets
        to write; and the TCP ports that it may listen on."""
        files = of_server(program, read=[self.session, *self._libraries()], write=[data, *self.session.glob("socket*")])
        return {**files, "listen": [str(port) for port in ports]}

    def _libraries(self) -> list[Path]:
        """Return the folders that the server's program needs beside those next to it."""
        return []

    def hand_over(self, folder: Path) -> None:
        """Give a folder in a folder of ours to the server's user."""
        if self._account is not None:
            os.chown(folder, self._account.uid, self._account.uid)

    def make_folder(self, folder: Path) -> Path:
        """Make a folder of the server's user alone, empty, in a folder of ours."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self.hand_over(folder)
        return folder

    def make_socket_folder(self, folder: Path) -> None:
        """Make a folder of sockets, if there is none; load of a privileged agent reaches it by the server's group."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.hand_over(folder)
        if self._account is not None:
            folder.chmod(0o750)

    def write_secret(self, name: str, text: str) -> Path:
        """Write a file of the session's folder that only the server's user can read."""
        path = self.session / name
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
        self.hand_over(path)
        return path

    @contextlib.contextmanager
    def secret(self, name: str, text: str) -> Iterator[Path]:
        """Such a file, for a `with` block."""
        path = self.write_secret(name, text)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def run(self, argv: list[str], limit_s: float, *, read: Iterable[Path] = (), write: Iterable[Path] = ()) -> str:
        """Run a program as the server's user, with the files of `of_helper`; see `SupervisorClient.run`."""
        reach = of_helper(Path(argv[0]), read=read, write=write)
        return self.supervisor.run(argv, limit_s=limit_s, identity="server", access=reach)

    def tool(self, name: str, *argv: str, read: Iterable[Path] = (), write: Iterable[Path]) -> None:
        """Run a program of the system as the server's user."""
        program = shutil.which(name)
        if program is None:
            raise TaskFault("missing", f"the program {name} is not on this host", way_out="install coreutils")
        self.run([program, *argv], COPY_S, read=read, write=write)

    def copy(self, source: Path, target: Path) -> None:
        """Copy a data directory as the server's user, completely or not at all, and write it to disk now rather than
        during the next iteration."""
        partial = self.make_folder(target.with_suffix(".partial"))
        try:
            self.tool("cp", "-a", "--reflink=auto", f"{source}/.", str(partial), read=[source], write=[partial])
            self.tool("sync", "-f", str(partial), write=[partial])
        except BaseException:  # the server needs the room on a full disk
            shutil.rmtree(partial, ignore_errors=True)
            raise
        partial.rename(target)


def is_locked(path: Path) -> bool:
    """Return whether a running supervisor has locked the directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        return not linux.lock(descriptor)
    finally:
        os.close(descriptor)


def give(root: Path, uid: int) -> None:
    """Give a folder with all in it to a user; its present owner cannot redirect that. TaskFault `refused` when
    something of another user is in it."""
    if left := give_away(root, uid, uid):
        what = f"{left[0]} belongs to another user, or has several names (hard links)"
        raise TaskFault("refused", what, way_out="find out whose it is, and remove it")


async def to_its_end(step: Callable[[], T]) -> T:
    """Run a blocking step in a thread; when cancelled, wait for its end first, as it cannot be left half done."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
