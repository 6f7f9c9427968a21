"""`asm_disk_group`: a disk group of Automatic Storage Management, made of unused disks; never by FORCE.

The system is the ASM instance, reached with SYSASM by the agent of its own host, which looks at the disks itself: ASM
takes a filesystem that it does not know for an empty disk. Each disk is traced to its name in /dev/disk/by-id, the only
name that a policy can list; a label of the filter driver (AFD) to the device that the plan names for it, whose header
must carry that label. A group of that name with the same redundancy and allocation unit is as wanted; another one is
refused. To undo drops the group if it is empty: what lies in it by then is not destroyed but named. Source: ASM
Administrator's Guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from proveout.dsl.operations.change import Statement
from proveout.dsl.operations.database.sql_literals import OracleName, SystemOperation, bytes_of, in_list, literal, once
from proveout.dsl.operations.facts import Facts, Query, RowsQuery
from proveout.dsl.operations.operation import Step
from proveout.dsl.operations.storage.disk import (
    BY_ID,
    VOLUMES,
    Device,
    disk_queries,
    in_use,
    name_queries,
    names,
    probed,
)
from proveout.dsl.schema.scalar_types import custom

FREE = ("CANDIDATE", "PROVISIONED", "FORMER")
REDUNDANCY = {"external": "EXTERN", "normal": "NORMAL", "high": "HIGH"}
"""As V$ASM_DISKGROUP.TYPE has them."""
LEAST = {"external": 1, "normal": 2, "high": 3}
"""Failure groups; by default each disk is one of its own."""
_PATH = re.compile(r"/dev/[A-Za-z0-9._:+@/-]{1,200}|AFD:[A-Z0-9_]{1,30}")
_AFD, _SIGNATURE = "AFD:", "oracleasm"
_VERSION = re.compile(r"\d{1,2}(\.\d{1,2}){1,4}")


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or ".." in value.split("/") or value.startswith("/dev/oracleasm"):
        raise custom(
            f"`{value}` is not a disk of ASM: /dev/oraudev/disks/DATA1, AFD:DATA1; no patterns, not /dev/oracleasm"
        )
    return value


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise custom(f'`{value}` is not a version, as "19.0.0.0"')
    return value


class AsmDiskGroup(SystemOperation):
    """An ASM disk group: `{system: asm, disk_group: DATA, redundancy: external, au_size: 4M, disks:
    [/dev/oraudev/disks/DATA1]}`."""

    disk_group: Annotated[OracleName, Field(max_length=30)] = Field(description="Its name.")
    redundancy: Literal["external", "normal", "high"] = Field(description="The copies that ASM keeps of its contents.")
    au_size: Literal["1M", "2M", "4M", "8M", "16M", "32M", "64M"] = Field("4M", description="The allocation unit.")
    disks: Annotated[list[Annotated[str, AfterValidator(_path)]], Field(min_length=1, max_length=200)] = Field(
        description="Its disks by path, as V$ASM_DISK has them; every one by itself."
    )
    devices: dict[Annotated[str, AfterValidator(_path)], Device] = Field(
        default_factory=dict,
        max_length=200,
        description="The device of each label of the filter driver: `AFD:DATA1` to `/dev/disk/by-id/…`.",
    )
    compatible: Annotated[str, AfterValidator(_version)] | None = Field(
        None, description="compatible.asm and compatible.rdbms."
    )

    privileges = "root: reads the headers of disks; in the ASM instance: SYSASM"
    destructive = True

    @model_validator(mode="after")
    def _enough_disks(self) -> AsmDiskGroup:
        if twice := next((disk for disk in self.disks if self.disks.count(disk) > 1), None):
            raise custom(f"{twice} is named twice")
        if len(self.disks) < LEAST[self.redundancy]:
            raise custom(f"{self.redundancy} redundancy takes {LEAST[self.redundancy]} disks at least")
        return self

    @model_validator(mode="after")
    def _labels_have_devices(self) -> Self:
        labels = {disk for disk in self.disks if disk.startswith(_AFD)}
        if missing := sorted(labels - self.devices.keys()):
            raise custom(f"`{missing[0]}` does not identify its disk: give the device in `devices`")
        if more := sorted(self.devices.keys() - labels):
            raise custom(f"`devices` are for labels of the filter driver among `disks`, which `{more[0]}` is not")
        return self

    def targets(self) -> Mapping[str, str]:
        """The group."""
        return {f"disk group {self.disk_group} of {self.system}": self.wanted()[0]}

    def wanted(self) -> tuple[str, ...]:
        """The group and its disks."""
        return (
            f"disk group {self.disk_group}, {self.redundancy} redundancy, allocation unit {self.au_size}",
            *(f"  {disk}" for disk in self.disks),
            f"refused where a disk is not {', '.join(FREE[:-1])} or {FREE[-1]}; never by FORCE",
        )

    @property
    def _groups(self) -> RowsQuery:
        where = f"name = {literal(self.disk_group)}"
        return RowsQuery(self.system, f"SELECT type, allocation_unit_size, state FROM v$asm_diskgroup WHERE {where}")  # noqa: S608 - a literal

    @property
    def _disks(self) -> RowsQuery:
        where = f"path IN ({in_list(tuple(self.disks))})"
        return RowsQuery(self.system, f"SELECT path, header_status FROM v$asm_disk WHERE {where} ORDER BY path")  # noqa: S608 - literals

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The group, and its disks when the group does not exist."""
        if self._groups not in known or facts_of(known, self._groups):
            return (self._groups,)
        volumes = [query for disk in self.disks for query in self._volume_queries(disk, known)]
        return (self._groups, self._disks, *dict.fromkeys(volumes))

    def _volume_queries(self, disk: str, known: Facts) -> tuple[Query, ...]:
        path = self.devices.get(disk, disk)
        wanted = name_queries(path, known)
        if any(query not in known for query in wanted) or not names(path, known):
            return wanted
        return (*wanted, *disk_queries(names(path, known)[0], known, VOLUMES))

    def changes(self, facts: Facts) -> Step:
        """CREATE DISKGROUP, where there is no such group and the disks are free."""
        found = facts_of(facts, self._groups)
        if found:
            return self._there_is(*(value or "" for value in found[0]))
        if refusals := tuple(self._not_free(facts)):
            return Step(refusals=refusals)
        devices = tuple(names(self.devices.get(disk, disk), facts) for disk in self.disks)
        made = Statement(system=self.system, text=self._create(), undo=self._drop(), destructive=True, devices=devices)
        return Step(changes=(made,))

    def _there_is(self, kind: str, unit: str, state: str) -> Step:
        if (kind, unit) != (REDUNDANCY[self.redundancy], str(bytes_of(self.au_size))) and state != "DISMOUNTED":
            what = f"type {kind} and allocation unit {unit}"
            return Step(
                refusals=(f"there is a disk group {self.disk_group} already, of {what}: drop it, or name another",)
            )
        if state not in ("MOUNTED", "CONNECTED"):
            return Step(
                refusals=(f"there is a disk group {self.disk_group} already, and it is {state.lower()}: mount it",)
            )
        return Step()

    def _not_free(self, facts: Facts) -> Iterator[str]:
        states = {row[0]: row[1] for row in facts_of(facts, self._disks)}
        for disk in self.disks:
            if disk not in states:
                yield f"the ASM instance does not see {disk} (asm_diskstring)"
            elif states[disk] not in FREE:
                yield f"{disk} is {states[disk]}: only {', '.join(FREE)} disks are taken, and never by FORCE"
            else:
                yield from self._in_use(disk, facts)

    def _in_use(self, disk: str, facts: Facts) -> Iterator[str]:
        """Reasons on the host itself against it."""
        path = self.devices.get(disk, disk)
        found = names(path, facts)
        if not found:
            what = "is not on this host" if facts.link(path) is None else f"has no name below {BY_ID.rstrip('/')}"
            yield f"{path} {what}, so its owner cannot have listed it"
            return
        label = (probed(found[0], facts) or {}).get("LABEL", "")
        if disk.startswith(_AFD) and label != disk.removeprefix(_AFD):
            yield f"{path} is not {disk}: its header has {label or 'no label'}"
        yield from in_use(found[0], facts, VOLUMES, own=_SIGNATURE)

    def _create(self) -> str:
        attributes: list[tuple[str, str]] = [("au_size", self.au_size)]
        if self.compatible:
            attributes += [("compatible.asm", self.compatible), ("compatible.rdbms", self.compatible)]
        given = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in attributes)
        disks = ", ".join(literal(disk) for disk in self.disks)
        return f"CREATE DISKGROUP {self.disk_group} {self.redundancy.upper()} REDUNDANCY DISK {disks} ATTRIBUTE {given}"

    def _drop(self) -> str:
        guard = f"SELECT COUNT(*) INTO n FROM v$asm_diskgroup_stat WHERE name = {literal(self.disk_group)}"  # noqa: S608 - a literal
        return once(guard, f"DROP DISKGROUP {self.disk_group} EXCLUDING CONTENTS")


def facts_of(facts: Facts, query: RowsQuery) -> tuple[tuple[str | None, ...], ...]:
    """The rows of a query."""
    return facts.rows(query.system, query.statement)
