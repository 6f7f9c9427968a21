"""A secret that may be nowhere: the forms in which it could be written down, and a watch that reads every file as often
as it can.

Data flow: `FileWatch(folder, pids)` -> in a thread, again and again: each regular file of the folder, and of the
processes (and those below them) the command lines, what they hold open, deleted files and shared memory too, and the
environments of those below -> `hits`. It sees files between two writes as well, which a search at the end does not. A
file may vanish at any moment.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

import psutil

CANARY = "kanarek/42?żółty&p@ss'w%rd"
PAUSE_S = 0.03


def forms(secret: str) -> Iterator[bytes]:
    """The ways in which it could be written down."""
    raw = secret.encode()
    yield from (raw, quote(secret, safe="").encode(), quote_plus(secret).encode(), quote(secret).encode())
    yield from (raw.hex().encode(), raw[::-1], secret.replace("'", "\\'").encode(), repr(secret).encode()[1:-1])
    yield ascii(secret).encode()[1:-1]  # as JSON and reprs have it
    for offset in range(3):  # what comes before shifts base64; the characters that the neighbours share are left out
        shifted = base64.b64encode(b"\0" * offset + raw)
        yield shifted[4 if offset else 0 : len(shifted) // 4 * 4 - 4]
        yield base64.urlsafe_b64encode(b"\0" * offset + raw)[4 if offset else 0 : len(shifted) // 4 * 4 - 4]


FORMS = tuple(forms(CANARY))


def found(content: bytes) -> bool:
    """Whether it is in there, in any form."""
    return any(form in content for form in FORMS)


@dataclass
class FileWatch:
    """Of a folder, and of processes. `read` are the names of all files that were read, `processes` all that were found."""

    folder: Path
    pids: Callable[[], Sequence[int]] = list
    is_secret: Callable[[bytes], bool] = found
    hits: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    looks: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self) -> Iterator[FileWatch]:
        """Watch while the block runs, and once more at its end."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            self.look()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self.look()

    def look(self) -> None:
        """Read everything once."""
        self.looks += 1
        for parent, _, names in os.walk(self.folder):  # of a folder that is gone it yields nothing
            for path in (Path(parent), *(Path(parent, name) for name in names)):
                if self.is_secret(str(path).encode()):
                    self.hits.add(f"name of {path}")
                self._file(path)
        above = self.pids()
        forked: set[bytes] = set()
        for pid in self._all(above):
            self.processes.add(pid)
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    found = Path(f"/proc/{pid}/{name}").read_bytes()
                    if self.is_secret(found):
                        self.hits.add(f"{name} of {pid}")
                    if pid in above:
                        forked.add(found)
                    if found in forked:
                        break  # itself above, or a child before its exec, which still has the environment of its parent
            with contextlib.suppress(OSError):
                for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                    self._file(descriptor)

    def _all(self, above: Sequence[int]) -> Iterator[int]:
        for pid in above:
            with contextlib.suppress(psutil.Error):
                yield from (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True)))

    def _file(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # it may go at any moment
            if not stat.S_ISREG(path.stat().st_mode):
                return
            name = str(path.readlink()) if path.parent.name == "fd" else str(path)
            if name.startswith("/proc/") or not name.startswith("/"):
                return
            self.read.add(Path(name).name)
            if self.is_secret(path.read_bytes()):
                self.hits.add(name)
