"""Attributes of the kernel below /proc and /sys: one short text each, read and written whole.

Unlike in other folders, links are followed there (/sys/block is made of them): the kernel makes them, and where one leads is held to
/proc and /sys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from proveout.agent.daemon.tasks import TaskFault

SIZE_MAX_BYTES = 64 * 1024
KERNEL = ("proc", "sys")


@dataclass(frozen=True, slots=True)
class Texts:
    """The attributes beneath `root`; `/` but in tests. Raises TaskFault."""

    root: Path = Path("/")

    def read(self, path: str) -> str | None:
        """The text, stripped; None when there is none (or none that can be read)."""
        found = self.octets(path)
        return None if found is None else found.decode("utf-8", errors="replace").strip()

    def octets(self, path: str) -> bytes | None:
        """The bytes as they are; None when there is none (or none that can be read)."""
        try:
            with Path(self._real(path)).open("rb") as stream:
                return stream.read(SIZE_MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise TaskFault("refused", f"{path} cannot be read: {error.strerror}") from error

    def write(self, path: str, text: str) -> None:
        """Write it, in one call as the kernel wants it."""
        try:
            descriptor = os.open(self._real(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_TRUNC)
            try:
                os.write(descriptor, f"{text}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            way_out = "an agent that tunes runs as root" if isinstance(error, PermissionError) else ""
            raise TaskFault(
                "refused", f"{path} cannot be set to {text!r}: {error.strerror}", way_out=way_out
            ) from error

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The paths that a pattern matches, as a plan would write them; sorted."""
        return tuple(sorted(f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.lstrip("/"))))

    def link(self, path: str) -> str | None:
        """Where a path leads, every link followed; None when that is not there."""
        real = (self.root / path.lstrip("/")).resolve()
        return f"/{real.relative_to(self.root.resolve())}" if real.exists() else None

    def _real(self, path: str) -> str:
        root = os.path.realpath(self.root)
        real = os.path.realpath(self.root / path.lstrip("/"))
        if not any(real.startswith(f"{root.rstrip('/')}/{folder}/") for folder in KERNEL):
            raise TaskFault("refused", f"{path} does not lie below /proc or /sys")
        return real


def holds(now: str | None, wanted: str) -> bool:
    """Whether an attribute has a value: the same words, or the one of its choices that is in brackets."""
    if now is None:
        return False
    return " ".join(now.split()) == wanted or f"[{wanted}]" in now.split()
