"""Launcher of outside programs: `python -m proveout.agent.tools.program_launcher PARENT PRIVILEGES MODE PROGRAM
ARGUMENTS…`.

Flow: the agent starts the launcher in the work folder of the program, with a process group of its own -> the launcher
drops its privileges, sets its parent-death signal, and writes `READY`. In mode `once` it forks before, and the child
executes the program at the first line of standard input; the launcher ends as the program has ended. In mode `repeat`,
for each byte of standard input it forks and executes the program, and writes a frame: `HEAD` with the exit code (or
minus the signal) and two lengths, then the output and the end of standard error. At the end of standard input it exits.
So a start at an agreed instant costs one exec, a sample of a capture a fork and an exec. When its agent ends, the
launcher kills its group: no program outlives its agent, nor do the children of a script.

In mode `repeat` an output longer than `OUTPUT_MAX` ends the program: the frame then has one byte more than that.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Mapping, Sequence

from proveout.agent.sandbox.privileges import Privileges
from proveout.core import linux

READY = b"ready %d\n"
"""With the number of the process that becomes the program."""
ONCE, REPEAT = "once", "repeat"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
PASSED = ("MYSQL_PWD", "PGDATABASE", "PGHOST", "PGPASSWORD", "PGPORT", "PGUSER")
LOAD = "LOAD_"
"""Variables, and the prefix of others, that a program gets where its caller has set them: every user could read an
argument."""
CANNOT_START = 127
HEAD = struct.Struct("!iII")
OUTPUT_MAX = 1024 * 1024
"""Bytes of the output of a program."""
WORDS_BYTES_MAX = 4096
_PART = 65_536


def main(arguments: Sequence[str]) -> int:
    """Wait for the program, or serve until the end of standard input. The exit code of the launcher."""
    parent, privileges, mode, program, *rest = arguments
    Privileges.from_argument(privileges).drop(keeps_root=True)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    # After `drop`: a change of the user resets the parent-death signal.
    linux.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != int(parent):
        return CANNOT_START
    if mode == ONCE:
        passed = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(LOAD)}
        return _guarded(program, rest, {**ENVIRONMENT, **passed})
    os.write(1, READY % os.getpid())
    while os.read(0, 1):
        code, output, words = run_once(program, rest)
        _write(HEAD.pack(code, len(output), len(words)) + output + words)
    return 0


def _guarded(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the program at the first line of standard input, in a child; end as it has ended."""
    launcher, child = os.getpid(), os.fork()
    if child == 0:
        try:
            linux.set_parent_death_signal()
            os.write(1, READY % os.getpid())
            if os.getppid() == launcher and os.read(0, 1):
                _execute(program, arguments, environment)
        finally:
            os._exit(CANNOT_START)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(launcher, -code)
    return code


def _execute(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Become the program; returns only if that fails."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them: a program before `head` would not end
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execve(program, [program, *arguments], environment)  # noqa: S606 - an absolute path, argv of our own
    except OSError as error:
        os.write(2, f"cannot start {program}: {error.strerror}\n".encode())
    return CANNOT_START


def run_once(program: str, arguments: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Run the program; return its exit code, its output, and the end of its standard error."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            linux.set_parent_death_signal()
            os.dup2(out_end, 1)
            os.dup2(err_end, 2)
            _execute(program, arguments, ENVIRONMENT)
        finally:
            os._exit(CANNOT_START)
    os.close(out_end)
    os.close(err_end)
    try:
        output, words = _read(child, out, err)
    finally:
        os.close(out)
        os.close(err)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output, words


def _read(child: int, out: int, err: int) -> tuple[bytes, bytes]:
    """Both streams until the output and the program have ended, or until the output is too long. A child that it leaves
    running may hold its standard error, whose end is not awaited."""
    output, words = bytearray(), bytearray()
    ended = os.pidfd_open(child)
    waiting = select.poll()
    for descriptor in (out, err, ended):
        waiting.register(descriptor, select.POLLIN)
    left = {out, ended}
    os.set_blocking(err, False)
    while left and len(output) <= OUTPUT_MAX:
        for descriptor, _ in waiting.poll():
            part = b"" if descriptor == ended else os.read(descriptor, _PART)
            if not part:
                waiting.unregister(descriptor)
                left.discard(descriptor)
            elif descriptor == out:
                output += part
            else:
                words += part
                del words[:-WORDS_BYTES_MAX]
    os.close(ended)
    if left:
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(BlockingIOError):
        words += os.read(err, _PART)
    return bytes(output[: OUTPUT_MAX + 1]), bytes(words[-WORDS_BYTES_MAX:])


def _write(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
