"""Kernel attributes below /proc and /sys: one short text each, read and written as a whole.

Symbolic links are followed here, unlike elsewhere (/sys/block consists of links): the kernel makes them, and their
targets must lie below /proc or /sys.
"""

from __future__ import annotations

import os
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass

SIZE_MAX_BYTES = 64 * 1024
KERNEL = ("proc", "sys")


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes beneath `root`, which is `/` except in tests. Raises TaskFault."""

    root: Path = Path("/")

    def read(self, path: str) -> str | None:
        """The text, stripped; None if the attribute does not exist or is not readable."""
        found = self.octets(path)
        return None if found is None else found.decode("utf-8", errors="replace").strip()

    def octets(self, path: str) -> bytes | None:
        """The bytes; None if the attribute does not exist or is not readable."""
        try:
            with Path(self._real(path)).open("rb") as stream:
                return stream.read(SIZE_MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise TaskFault("refused", f"cannot read {path}: {error.strerror}") from error

    def write(self, path: str, text: str) -> None:
        """Write the text in one call, as the kernel requires."""
        try:
            descriptor = os.open(self._real(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_TRUNC)
            try:
                os.write(descriptor, f"{text}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            way_out = "run the agent as root" if isinstance(error, PermissionError) else ""
            raise TaskFault("refused", f"cannot set {path} to {text!r}: {error.strerror}", way_out=way_out) from error

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The paths that match a pattern, as in a plan; sorted."""
        return tuple(sorted(f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.lstrip("/"))))

    def link(self, path: str) -> str | None:
        """The target of a path with all links followed; None if it does not exist."""
        real = (self.root / path.lstrip("/")).resolve()
        return f"/{real.relative_to(self.root.resolve())}" if real.exists() else None

    def _real(self, path: str) -> str:
        root = os.path.realpath(self.root)
        real = os.path.realpath(self.root / path.lstrip("/"))
        if not any(real.startswith(f"{root.rstrip('/')}/{folder}/") for folder in KERNEL):
            raise TaskFault("refused", f"{path} is not below /proc or /sys")
        return real


def holds(now: str | None, wanted: str) -> bool:
    """Whether an attribute has a value: the same words, or the choice in brackets."""
    if now is None:
        return False
    return " ".join(now.split()) == wanted or f"[{wanted}]" in now.split()
