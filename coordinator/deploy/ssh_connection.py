"""One SSH connection to a host, with the host program at its other end (`host_program`).

Flow: `Connection.open(target)` -> one `ssh` process, the program's text on its input -> `ask(do, …)` sends a request
and returns its answer; `send(file)` sends a file -> `close()` ends the input, and waits until the host program has
ended; it undoes a change that was not committed.

`ssh` is OpenSSH's, with the user's own configuration, agent and known hosts. It never asks (BatchMode), so a host whose
key is not known is refused. It runs in a session of its own: Ctrl-C on the terminal ends `deploy`, which ends the
connections in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import ipaddress
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from proveout.core import child_process
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.json_data import json_line

MARK = "proveout-deploy "
ANSWER_S, UNDO_S = 900.0, 240.0
LINE_MAX = 1 << 20
BLOCK = 1 << 18
ERRORS_MAX = 4000
NO_PYTHON = 97
OPTIONS = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=10", "ServerAliveCountMax=3", "LogLevel=ERROR")
PASSED = ("SSH_AUTH_SOCK",)

MODULES = (
    "proveout.core.data_classes",
    "proveout.core.errors",
    "proveout.core.path_trust",
    "proveout.coordinator.deploy.host_program",
)
"""The host program: its modules, imported ones first, and none that is not of the standard library or listed before."""
LOADER = """import json, sys, types
for name, text in json.loads(sys.stdin.buffer.readline()):
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
sys.modules[name].main()"""
SCRIPT = (
    "for p in {pythons}; do "
    '"$p" -c "import sys, venv; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || continue; '
    's=; [ "$(id -u)" = 0 ] || s="sudo -n --"; '
    'exec $s "$(command -v "$p")" -I -B -u -c "import json, sys; exec(json.loads(sys.stdin.buffer.readline()))"; '
    "done; exit {no_python}"
)
"""Executed by the host's /bin/sh: find Python, become root, execute the loader. One line: csh, as a login shell, takes
no quoted text of several."""


class HostError(ProveoutError):
    """A host cannot be reached, or refuses a step. Its name is that of the `Outcome`."""


@record
class Target:
    """A host of the inventory: its name, the address of its agent, and how `ssh` reaches it."""

    name: str
    roles: tuple[str, ...]
    address: str
    ssh: str

    @property
    def hostname(self) -> str:
        """The name or IP address that the coordinator dials, without the port; an IPv6 address as certificates are
        read: `fe80::1`."""
        name = self.address.rpartition(":")[0].strip("[]")
        return str(ipaddress.IPv6Address(name)) if ":" in name else name

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]


@record
class Login:
    """How to log in: a configuration of `ssh` in place of the user's, and the programs that may be Python there."""

    config: Path | None = None
    pythons: tuple[str, ...] = ("python3",)

    def argv(self, target: Target) -> list[str]:
        """The `ssh` command. `target.ssh` is `[user@]host[:port]`."""
        destination, port = split(target.ssh)
        options = [word for option in OPTIONS for word in ("-o", option)]
        options += ["-F", str(self.config.absolute())] if self.config else []
        options += ["-p", port] if port else []
        script = SCRIPT.format(pythons=" ".join(map(shlex.quote, self.pythons)), no_python=NO_PYTHON)
        return ["ssh", "-T", "-x", *options, "--", destination, f"exec /bin/sh -c {shlex.quote(script)}"]


def split(text: str) -> tuple[str, str]:
    """(`[user@]host`, port or "") of `[user@]host[:port]`; an IPv6 address with a port is in brackets."""
    user, at, host = text.rpartition("@")
    if host.startswith("["):
        host, _, port = host[1:].partition("]")
        return f"{user}{at}{host}", port.removeprefix(":")
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and ":" not in name:
        return f"{user}{at}{name}", port
    return text, ""


@record
class Ending:
    """The last answer of a host program: it has undone a change, or the reason why not; neither without a change, or
    when the connection broke."""

    undone: bool = False
    problem: str = ""


def _program() -> bytes:
    """The loader, and the line that it reads: the names and texts of the modules."""
    parts = [name.rpartition(".") for name in MODULES]
    files = [importlib.resources.files(package) / f"{module}.py" for package, _, module in parts]
    modules = list(zip(MODULES, (file.read_text(encoding="utf-8") for file in files), strict=True))
    return json_line(LOADER) + json_line(modules)


class Connection:
    """An open connection. Requests are answered one after the other."""

    def __init__(self, target: Target, process: asyncio.subprocess.Process) -> None:
        self.target = target
        self._process = process
        self._errors = bytearray()
        self._ending = Ending()
        self._reading = asyncio.create_task(self._read_errors())

    @classmethod
    async def open(cls, target: Target, login: Login) -> Self:
        """Log in, and load the host program. HostError with the reason and the way out."""
        try:
            process = await asyncio.create_subprocess_exec(
                *login.argv(target), cwd="/", env=child_process.environment(*PASSED), start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                limit=LINE_MAX,
            )  # fmt: skip
        except OSError as error:
            raise HostError(f"ssh cannot be started: {error.strerror}", way_out="Install OpenSSH's client.") from error
        made = cls(target, process)
        try:
            await made._write(_program())
        except BaseException:
            await made.close()
            raise
        return made

    async def ask(self, do: str, timeout_s: float = ANSWER_S, **values: Any) -> dict[str, Any]:
        """Send a request; its answer. HostError when the host refuses, or the connection has ended."""
        await self._write(json_line({"do": do, **values}))
        return await self._answer(timeout_s)

    async def send(self, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        """Send a file; `moved` is called with the bytes of each part."""
        await self._write(json_line({"do": "file", "name": path.name, "sha256": sha256, "bytes": size}))
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                await self._write(block)
                moved(len(block))
        await self._answer(ANSWER_S)

    async def close(self) -> Ending:
        """End the input, and wait for the end of the host program, which undoes a change that was not committed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(UNDO_S):
                while await self._line():
                    pass
                await self._process.wait()
        except (TimeoutError, OSError, ValueError):
            self._ending = Ending(problem=f"no answer within {UNDO_S:.0f} s")
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading
        return self._ending

    async def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(data)
        try:
            await self._process.stdin.drain()
        except OSError:
            raise await self._ended() from None

    async def _answer(self, timeout_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._line()
        except TimeoutError:
            raise HostError(f"no answer within {timeout_s:.0f} s") from None
        if not line:
            raise await self._ended()
        if "error" in line:
            raise HostError(line["error"], way_out=line.get("way_out", ""))
        return dict(line["ok"])

    async def _line(self) -> dict[str, Any]:
        """The next answer; {} at the end, before which a host program that a bug ends may say how. Other output is that
        of the host's shell."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        while line := await self._process.stdout.readline():
            if line.startswith(MARK.encode()):
                answer = dict(json.loads(line[len(MARK) :]))
                if "undone" not in answer:
                    return answer
                self._ending = Ending(undone=not answer["undone"], problem=str(answer["undone"]))
        return {}

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        while block := await self._process.stderr.read(ERRORS_MAX):
            self._errors = (self._errors + block)[-ERRORS_MAX:]

    async def _ended(self) -> HostError:
        """The reason why the connection has ended."""
        code = await self._process.wait()
        await self._reading
        lines = [line.strip() for line in self._errors.decode(errors="replace").splitlines() if line.strip()]
        what, way_out = reason(code, lines)
        return HostError(what, way_out=way_out)


REASONS: tuple[tuple[int | str, str, str], ...] = (
    (
        NO_PYTHON,
        "no Python 3.11 or newer is found there",
        "Install one, or name it: --python /opt/python3.12/bin/python3.",
    ),
    (
        "HOST IDENTIFICATION HAS CHANGED",
        "the host has another key than the known one",
        "Find out why. When it is right, remove the old key: ssh-keygen -R HOST.",
    ),
    (
        "Host key verification failed",
        "the key of the host is not known",
        "Log in once with `ssh`, compare the fingerprint, and accept it; or add the key to known_hosts.",
    ),
    (
        r"Permission denied \(",
        "the login is refused: {}",
        "Log in without a password: a key in the agent, or `IdentityFile` in ~/.ssh/config. `ssh` must not ask.",
    ),
    (255, "no connection: {}", "Check that `ssh` reaches it: name, port, user, firewall."),
    (
        r"sudo:|sudo.*\Z",  # its own words; `sudoers` on the last line
        "no root rights: {}",
        "Log in as root, or let this user run commands as root without a password (NOPASSWD in sudoers).",
    ),
    ("", "the connection has ended: {}", ""),
)
"""The exit code of an `ssh` process, or a pattern of its standard error; the failure, with its last line; the way
out."""


def reason(code: int, lines: list[str]) -> tuple[str, str]:
    """(what, way out) for an `ssh` process that has ended, by its exit code and what it wrote on standard error."""
    text, last = "\n".join(lines), lines[-1] if lines else f"exit code {code}"
    found = (row for row in REASONS if row[0] == code or (isinstance(row[0], str) and re.search(row[0], text)))
    _, what, way_out = next(found)
    return what.format(last), way_out
