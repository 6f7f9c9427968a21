"""A command on a pseudo-terminal: keys in, and what it has drawn."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from eventually import eventually


class Terminal:
    """A command on a terminal of 24 lines, with its output; end it with `close()`, or leave its block."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int = 80) -> None:
        self._master, slave = pty.openpty()
        self.name, self.modes = os.ttyname(slave), termios.tcgetattr(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            argv, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.drawn = b""

    def until(self, holds: Callable[[], object]) -> None:
        """Read the output until `holds()` is true."""

        def read_and_look() -> object:
            with suppress(OSError):  # the last process with the terminal has ended
                while select.select([self._master], [], [], 0)[0]:
                    self.drawn += os.read(self._master, 65536)
            return holds()

        eventually(read_and_look, lambda: self.drawn[-2000:])

    def until_drawn(self, *texts: str) -> None:
        """Read the output until it has had all of these."""
        self.until(lambda: all(text.encode() in self.drawn for text in texts))

    def ended(self) -> int:
        """Read the output until the command ends; its exit code."""
        self.until(lambda: self.process.poll() is not None)
        return self.process.returncode

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
