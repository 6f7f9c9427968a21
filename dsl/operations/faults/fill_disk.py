"""`fill_disk`: take room of a file system with a file, down to a rest or up to a size. Source: fallocate(2).

The file is allocated, not written, so that it is there at once and costs no I/O; healing removes it. The policy of the
host bounds how little may be left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from proveout.core import units
from proveout.dsl import engines
from proveout.dsl.operations.change import TakeSpace
from proveout.dsl.operations.facts import Facts, Query, ServerQuery, SpaceQuery
from proveout.dsl.operations.operation import Misfit, Operation, Step
from proveout.dsl.operations.types import AbsolutePath
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.schema.scalar_types import Name, custom

LEAST_BYTES = 64 << 10
"""Less than this is not worth a file."""


def _size(value: str) -> str:
    try:
        units.size_bytes(value)
    except ValueError as error:
        raise custom(str(error)) from None
    return value


Size = Annotated[str, AfterValidator(_size)]


class FillDisk(Operation):
    """Fill a file system with one file: `{system: db, leave: 1MiB}`, or `{folder: /data/app, up_to: 10GiB}` with `on`.
    Healing removes the file."""

    system: Name | None = Field(None, description="A provisioned system: the file system of its data directory.")
    folder: AbsolutePath | None = Field(None, description="A folder below one of the policy's `paths`.")
    leave: Size | None = Field(None, description="The room that stays free for users other than root.")
    up_to: Size | None = Field(None, description="The size of the file; less where the policy leaves less.")

    privileges = "a file in the folder"
    of_fault: ClassVar[bool] = True
    destructive: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.system is None) == (self.folder is None):
            raise custom("either `system` or `folder`")
        if (self.leave is None) == (self.up_to is None):
            raise custom("either `leave`, what stays free, or `up_to`, the size of the file")
        return self

    @property
    def of_system(self) -> str | None:
        """The system whose disk it is."""
        return self.system

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """Only systems whose data directory proveout has made."""
        system = systems.get(self.system or "")
        if system is None or (system.provision and engines.of(system.engine).embedded == "server"):
            return self
        return Misfit(
            message=f"proveout does not know the disk of system `{system.name}`: it has not made its data directory",
            way_out="`folder`, with `on`, and the folder in `paths` of the host's policy",
        )

    def targets(self) -> Mapping[str, str]:
        """The free space."""
        return {f"free space of {self.system or self.folder}": self._room}

    @property
    def _room(self) -> str:
        return f"{self.leave} left" if self.leave is not None else f"less by {self.up_to}"

    def wanted(self) -> tuple[str, ...]:
        """The free space."""
        where = f"the disk of {self.system}'s data" if self.system else self.folder
        return (f"{where}: {self._room}, by one file, which healing removes",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The data directory, the file system, and whether the file is there."""
        first: tuple[Query, ...] = (ServerQuery(self.system),) if self.system else ()
        if any(query not in known for query in first):
            return first
        folder = self._where(known)
        if folder is None:
            return first
        return (*first, SpaceQuery(self._file(folder)))

    def _where(self, facts: Facts) -> str | None:
        if self.system is None:
            return self.folder
        server = facts.server(self.system)
        return None if server is None else server.data.rpartition("/")[0]

    def _file(self, folder: str) -> str:
        digest = hashlib.sha256(repr((self.system, self.folder)).encode()).hexdigest()
        return f"{folder}/.proveout-fill-{digest[:12]}"

    def changes(self, facts: Facts) -> Step:
        """The file, unless it is there."""
        folder = self._where(facts)
        if folder is None:
            return Step(refusals=(f"the agent has not started a server of {self.system}",))
        path = self._file(folder)
        space = facts.space(path)
        if space is None:
            return Step(refusals=(f"{folder} is not a folder of this host",))
        if space.taken_bytes:
            return Step()
        wanted = units.size_bytes(self.up_to) if self.up_to else space.free_bytes - units.size_bytes(self.leave or "0")
        if wanted < LEAST_BYTES:
            return Step(refusals=(f"{folder} has only {space.free_bytes} bytes free already",))
        if wanted > space.free_bytes:
            text = f"{folder} has {space.free_bytes / (1 << 20):,.0f} MiB free, less than `up_to: {self.up_to}`"
            return Step(refusals=(text,))
        left = space.free_bytes - wanted
        return Step(changes=(TakeSpace(path=path, size_bytes=wanted, left_bytes=left, system=self.system or ""),))
