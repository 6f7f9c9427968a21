"""What fio does on one host: the part of a compiled `tool` stage that its agents get."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """What fio does on each host: `jobs` at once, each on `size_bytes` of its own, in blocks of `block_bytes`.

    `read_fraction` of the I/Os are reads, the rest writes; `direct` goes past the page cache. Job k works on a file in `directory`
    ("": one that the agent chooses) which is removed at the end of the run, or on its slice of one of `devices`, by-id names.
    `destructive`: the plan agrees to the loss of what the devices hold.
    """

    random: bool
    block_bytes: int
    read_fraction: float
    jobs: int
    size_bytes: int
    direct: bool = True
    directory: str = ""
    devices: tuple[str, ...] = ()
    destructive: bool = False

    @property
    def writes(self) -> bool:
        """Whether any of its I/Os is a write."""
        return self.read_fraction < 1.0

    @property
    def reads(self) -> bool:
        """Whether any of its I/Os is a read."""
        return self.read_fraction > 0.0
