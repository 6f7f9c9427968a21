"""Repeater of outside programs: `python -m proveout.agent.tools.program_repeater PARENT PRIVILEGES PROGRAM ARGUMENTS…`.

Flow: the agent starts the repeater for a capture -> it drops its privileges, sets its parent-death signal, and writes
`ready` -> for each byte of standard input it forks and executes the program, and writes a frame: `HEAD` with the exit
code (or minus the signal) and two lengths, then the output and the end of standard error -> it exits at the end of
standard input. A sample costs a fork and an exec, not the start of an interpreter.

An output longer than `OUTPUT_MAX` ends the program: the frame then has one byte more than that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
from collections.abc import Sequence

from proveout.agent.sandbox.privileges import Privileges
from proveout.agent.tools.program_launcher import CANNOT_START, ENVIRONMENT, READY
from proveout.core import linux

HEAD = struct.Struct("!iII")
OUTPUT_MAX = 1024 * 1024
"""Bytes of the output of a program."""
WORDS_BYTES_MAX = 4096
_PART = 65_536


def main(arguments: Sequence[str]) -> int:
    """Serve until the end of standard input."""
    parent, privileges, program, *rest = arguments
    Privileges.from_argument(privileges).drop(keeps_root=True)
    linux.set_parent_death_signal()  # after `drop`: a change of the user resets it
    if os.getppid() != int(parent):
        return CANNOT_START
    os.write(1, READY)
    while os.read(0, 1):
        code, output, words = run_once(program, rest)
        _write(HEAD.pack(code, len(output), len(words)) + output + words)
    return 0


def run_once(program: str, arguments: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Run the program; return its exit code, its output, and the end of its standard error."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _execute(program, arguments, out_end, err_end)
    os.close(out_end)
    os.close(err_end)
    try:
        output, words = _read(child, out, err)
    finally:
        os.close(out)
        os.close(err)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output, words


def _execute(program: str, arguments: Sequence[str], out: int, err: int) -> None:
    """Become the program; never returns."""
    try:
        linux.set_parent_death_signal()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.execve(program, [program, *arguments], ENVIRONMENT)  # noqa: S606 - an absolute path, argv of our own
    except OSError as error:
        os.write(2, f"cannot start {program}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_START)


def _read(child: int, out: int, err: int) -> tuple[bytes, bytes]:
    """Both streams until they end, or until the output is too long."""
    output, words = bytearray(), bytearray()
    waiting = select.poll()
    waiting.register(out, select.POLLIN)
    waiting.register(err, select.POLLIN)
    left = 2
    while left:
        for descriptor, _ in waiting.poll():
            part = os.read(descriptor, _PART)
            if not part:
                waiting.unregister(descriptor)
                left -= 1
            elif descriptor == out:
                output += part
            else:
                words += part
                del words[:-WORDS_BYTES_MAX]
        if len(output) > OUTPUT_MAX:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return bytes(output[: OUTPUT_MAX + 1]), bytes(words)
    return bytes(output), bytes(words)


def _write(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
