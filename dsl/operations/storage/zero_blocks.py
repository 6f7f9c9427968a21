"""`zero_blocks`: zeros over the first part of an empty disk or partition, as before a benchmark or a disk group.
Source: dd(1), cmp(1).

Bounded by its size, and by what the device holds: a signature of any kind, a partition, something mounted or swapped on
it and a holder are refused; a plan that gives up a filesystem names it by its UUID (`replaces`). Nothing undoes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from proveout.dsl.operations.change import Command
from proveout.dsl.operations.facts import Facts, OutputQuery, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.storage.disk import SECTOR, VOLUMES, Device, disk_queries, in_use, refusal, sys_folder
from proveout.dsl.operations.storage.filesystem import Uuid
from proveout.dsl.schema.scalar_types import custom

DD, CMP = "/usr/bin/dd", "/usr/bin/cmp"
MIB = 1024 * 1024
MIB_MAX = 16 * 1024
WITHIN_S = 900.0
_SIZE = re.compile(r"([1-9][0-9]{0,4})(MiB|GiB)")


def _size(value: str) -> str:
    found = _SIZE.fullmatch(value)
    if found is None or _mib(value) > MIB_MAX:
        raise custom(f"`{value}` is not a size to be zeroed, as 16MiB: at most {MIB_MAX // 1024}GiB")
    return value


def _mib(size: str) -> int:
    found = _SIZE.fullmatch(size)
    return int(found[1]) * (1024 if found[2] == "GiB" else 1) if found else 0


class ZeroBlocks(Operation):
    """Zeros over the first part of an empty device: `{device: /dev/disk/by-id/…, size: 16MiB}`."""

    device: Device = Field(description="The disk or partition, by /dev/disk/by-id.")
    size: Annotated[str, AfterValidator(_size)] = Field(description="The part of it, from its beginning: 16MiB.")
    replaces: Uuid | None = Field(
        None, description="The UUID of the one filesystem on the device that may be lost; by default none may."
    )

    privileges = "root: writes to disks"
    destructive = True

    @property
    def lasting(self) -> str:
        """The former contents."""
        return f"what the first {self.size} of {self.device} held"

    @property
    def longest_s(self) -> float:
        """The limit of its programs."""
        return 4 * WITHIN_S

    def targets(self) -> Mapping[str, str]:
        """The beginning of the device."""
        return {f"contents of {self.device}": f"{self.size} of zeros"}

    def wanted(self) -> tuple[str, ...]:
        """The zeros, and what is lost."""
        return (
            f"{self.device}: zeros in the first {self.size}",
            refusal("device", self.replaces),
        )

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The target of the name; then all that could be in use or on it, and whether the zeros are there."""
        found = disk_queries(self.device, known, VOLUMES)
        if any(query not in known for query in found) or known.link(self.device) is None:
            return found
        return (*found, self._zeros)

    @property
    def _zeros(self) -> OutputQuery:
        argv = (CMP, f"--bytes={_mib(self.size) * MIB}", self.device, "/dev/zero")
        return OutputQuery(argv, within_s=WITHIN_S)

    def changes(self, facts: Facts) -> Step:
        """dd, unless the zeros are there; refused where the device holds anything, or is too small."""
        if facts.link(self.device) is None:
            return Step(refusals=(f"{self.device} is not there",))
        has = int(facts.text(f"{sys_folder(self.device, facts, VOLUMES)}/size") or 0) * SECTOR
        if has < _mib(self.size) * MIB:
            return Step(refusals=(f"{self.device} has {has / MIB:,.1f} MiB, less than {self.size}",))
        if facts.answer(self._zeros).code == 0:
            return Step()
        if refusals := tuple(in_use(self.device, facts, VOLUMES, own="", replaces=self.replaces or "")):
            return Step(refusals=refusals)
        argv = (DD, "if=/dev/zero", f"of={self.device}", "bs=1M", f"count={_mib(self.size)}", "conv=notrunc,fsync")
        return Step(changes=(Command(argv=argv, device=self.device, within_s=WITHIN_S),))
