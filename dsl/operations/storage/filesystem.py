"""`filesystem`: a new filesystem on an empty disk or partition. Source: mkfs.xfs(8), mkfs.ext4(8), blkid(8).

It destroys data, so a device that holds anything is refused: a signature of any kind, a partition, something mounted
or swapped on it, a holder. A plan that gives up a filesystem names it by its UUID (`replaces`); the new one has
another, so it is made once. Nothing undoes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from proveout.dsl.operations.change import Command
from proveout.dsl.operations.facts import Facts, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.storage.disk import VOLUMES, Device, disk_queries, in_use, probed, refusal
from proveout.dsl.schema.scalar_types import custom

MKFS = {"xfs": "/usr/sbin/mkfs.xfs", "ext4": "/usr/sbin/mkfs.ext4"}
WITHIN_S = 900.0
"""mkfs may discard every block of a large device first."""
_FORCE = {"xfs": ("-f",), "ext4": ("-F",)}
_LABEL_MAX = {"xfs": 12, "ext4": 16}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,15}")
_UUID = re.compile(r"[0-9A-Fa-f]{4,8}(-[0-9A-Fa-f]{4,12}){1,4}")


def _label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise custom(f"`{value}` is not a label: a letter or digit, then letters, digits and _ . -")
    return value


def _uuid(value: str) -> str:
    if not _UUID.fullmatch(value):
        raise custom(f"`{value}` is not the UUID of a filesystem, as `blkid` prints it")
    return value


Uuid: TypeAlias = Annotated[str, AfterValidator(_uuid)]


class Filesystem(Operation):
    """A new filesystem on an empty device: `{device: /dev/disk/by-id/…-part1, type: xfs, label: ttdb}`."""

    device: Device = Field(description="The disk or partition, by /dev/disk/by-id.")
    type: Literal["xfs", "ext4"] = Field(description="The filesystem.")
    label: Annotated[str, AfterValidator(_label)] = Field(
        description="Its label, which tells on later runs that it is there; `mount` finds it by LABEL=…."
    )
    replaces: Uuid | None = Field(
        None, description="The UUID of the one filesystem on the device that may be lost; by default none may."
    )

    privileges = "root: makes filesystems"
    destructive = True

    @model_validator(mode="after")
    def _label_fits(self) -> Self:
        if len(self.label) > _LABEL_MAX[self.type]:
            raise custom(f"`{self.label}` is too long a label: {self.type} has {_LABEL_MAX[self.type]} characters")
        return self

    @property
    def lasting(self) -> str:
        """The filesystem."""
        return f"a filesystem made on {self.device}"

    @property
    def longest_s(self) -> float:
        """The limit of its programs."""
        return WITHIN_S

    def targets(self) -> Mapping[str, str]:
        """The contents of the device."""
        return {f"contents of {self.device}": f"{self.type} {self.label}"}

    def wanted(self) -> tuple[str, ...]:
        """The filesystem, and what is lost."""
        return (
            f"{self.device}: {self.type}, label {self.label}",
            refusal("device", self.replaces),
        )

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The target of the name; then all that could be in use or on it."""
        return disk_queries(self.device, known, VOLUMES)

    def changes(self, facts: Facts) -> Step:
        """mkfs, unless the device has that filesystem with that label; refused where it holds anything else."""
        if facts.link(self.device) is None:
            return Step(refusals=(f"{self.device} is not there",))
        found = probed(self.device, facts) or {}
        is_given_up = self.replaces is not None and found.get("UUID") == self.replaces
        if (found.get("TYPE"), found.get("LABEL")) == (self.type, self.label) and not is_given_up:
            return Step()
        if refusals := tuple(in_use(self.device, facts, VOLUMES, own="", replaces=self.replaces or "")):
            return Step(refusals=refusals)
        force = _FORCE[self.type] if self.replaces is not None else ()
        argv = (MKFS[self.type], "-q", *force, "-L", self.label, self.device)
        return Step(changes=(Command(argv=argv, device=self.device, within_s=WITHIN_S),))
