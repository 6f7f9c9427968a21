"""The attributes of a simulated kernel below /proc/sys.

Data flow: the real operations -> `SimTexts` in place of `agent.tuning.host.Attributes` -> a table of attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from proveout.agent.tuning.host import Attributes

BOOT = {
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/vm/min_free_kbytes": "67584",
    "/proc/sys/vm/laptop_mode": "0",
    "/proc/sys/net/core/somaxconn": "128",
}
"""The writable attributes with their values after a boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTexts(Attributes):
    """`Attributes` of a table. A written value has its effect at once."""

    kernel: dict[str, str]
    wrote: Callable[[str], None]

    def octets(self, path: str) -> bytes | None:
        value = self.kernel.get(path)
        return None if value is None else f"{value}\n".encode()

    def write(self, path: str, text: str) -> None:
        self.wrote(path)
        self.kernel[path] = text

    def matching(self, pattern: str) -> tuple[str, ...]:
        return tuple(sorted(path for path in BOOT if fnmatchcase(path, pattern)))

    def link(self, path: str) -> str | None:
        return None
