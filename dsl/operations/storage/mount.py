"""`mount`: a filesystem in /etc/fstab, mounted by the unit that systemd generates from the line. Source: fstab(5),
systemd.mount(5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from proveout.dsl.operations.change import Change, UnitAction, WriteFile, around
from proveout.dsl.operations.facts import ABSENT, Facts, FileFact, FileQuery, LinkQuery, Query, TextQuery, UnitQuery
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.types import AbsolutePath
from proveout.dsl.schema.scalar_types import custom

FSTAB, MOUNTS = "/etc/fstab", "/proc/self/mounts"
RELOAD = ("/usr/bin/systemctl", "daemon-reload")
_SOURCE = re.compile(r"/dev/[A-Za-z0-9._+@:=,/-]+|(UUID|LABEL|PARTUUID|PARTLABEL)=[A-Za-z0-9._:-]{1,80}")
_NO_DISKS = ("/dev/fd", "/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm")  # noqa: S108
_OPTION = re.compile(r"[a-z][a-z0-9_.-]*(=[A-Za-z0-9_./:%-]+)?")
_OF_THE_HOST = ("/", "/home", "/opt", "/srv", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")  # noqa: S108
_ALL_OF = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr"),
    *("/var/lib/proveout", "/var/lib/systemd", "/var/run", "/var/spool"),
)
"""Folders that must not be mounted over: they hold programs, configuration and data of root."""
_ON_DISKS = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "gfs2", "jfs", "ocfs2", "vfat", "xfs"})
"""Filesystems of the kernel that lie on a block device. mount(8) starts a helper for a type that it does not know
(`fuse.NAME` is a program), and with some others a folder that all users can write to is laid over another."""
_SHOWN = frozenset({"noatime", "nodiratime", "relatime", "ro", "rw", "nosuid", "nodev", "noexec", "sync", "dirsync"})
_RUNS = (
    "helper=",
    "x-systemd.requires",
    "x-systemd.wanted",
    "x-systemd.before",
    "x-systemd.after",
    "user",
    "users",
    "owner",
    "group",
    "bind",
    "rbind",
    "loop",
    "move",
    "remount",
    "x-",
)


def _source(value: str) -> str:
    if not _SOURCE.fullmatch(value) or ".." in value.split("/") or value.startswith(_NO_DISKS):
        raise custom(f"`{value}` is not a device: /dev/disk/by-id/…, UUID=…, LABEL=…")
    return value


def _at(value: str) -> str:
    inside = any(value == folder or value.startswith(f"{folder}/") for folder in _ALL_OF)
    if value in _OF_THE_HOST or inside:
        raise custom(f"`{value}` is the host's own folder; mount elsewhere")
    return value


def _option(value: str) -> str:
    if not _OPTION.fullmatch(value) or value.startswith(_RUNS):
        raise custom(f"`{value}` is not a mount option that a plan sets")
    return value


def _type(value: str) -> str:
    if value not in _ON_DISKS:
        raise custom(f"`{value}` is not a filesystem on a disk: {', '.join(sorted(_ON_DISKS))}")
    return value


Option: TypeAlias = Annotated[str, AfterValidator(_option)]


def unit_of(path: str) -> str:
    """The mount unit of a folder: `/u01/app-x` is `u01-app\\x2dx.mount`. Source: systemd.unit(5), string escaping."""
    escaped = "".join(
        "-"
        if one == "/"
        else one
        if one.isalnum() or one in ":_."
        else "".join(f"\\x{byte:02x}" for byte in one.encode())
        for one in path.strip("/")
    )
    hidden = escaped.startswith(".")
    return f"\\x2e{escaped[1:]}.mount" if hidden else f"{escaped}.mount"


class Mount(Operation):
    """A filesystem in its place: `{at: /ttdb, device: LABEL=ttdb, type: xfs, options: [noatime]}`."""

    at: Annotated[AbsolutePath, AfterValidator(_at)] = Field(description="The folder; it has to be there.")
    device: Annotated[str, AfterValidator(_source)] = Field(description="By /dev/…, UUID=…, LABEL=….")
    type: Annotated[str, AfterValidator(_type)] = Field(description="The filesystem; it has to be made already.")
    options: list[Option] = Field(["defaults"], min_length=1, max_length=30, description="Mount options.")

    privileges = "root: writes /etc/fstab, starts mount units"

    def targets(self) -> Mapping[str, str]:
        """The filesystem that is mounted there."""
        return {f"mount {self.at}": self._line}

    def wanted(self) -> tuple[str, ...]:
        """The line of /etc/fstab."""
        return (f"{FSTAB}: {self._line}", f"{self.at} is mounted")

    @property
    def _line(self) -> str:
        return f"{self.device} {self.at} {self.type} {','.join(self.options)} 0 0"

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """/etc/fstab, the mounted filesystems, the folder, the device and the unit."""
        device = (LinkQuery(self.device),) if self.device.startswith("/") else ()
        return (FileQuery(FSTAB), TextQuery(MOUNTS), LinkQuery(self.at), UnitQuery(unit_of(self.at)), *device)

    def changes(self, facts: Facts) -> Step:
        """The line of /etc/fstab, then the unit; a filesystem that is mounted there already stays mounted."""
        fstab, mounted = facts.file(FSTAB), self._mounted(facts)
        if refusals := self._refusals(facts, fstab, mounted):
            return Step(refusals=refusals)
        content = self._with_line(fstab.content)
        edit: tuple[Change, ...] = ()
        if content != fstab.content:
            edit = (
                WriteFile(
                    path=FSTAB, content=content, mode=fstab.mode, owner=fstab.owner, group=fstab.group, before=fstab
                ),
            )
        start = () if mounted else (UnitAction(unit=unit_of(self.at), verb="start", undo="stop"),)
        return Step(changes=(*around(edit, RELOAD), *start), restarts=tuple(self._missing(mounted)))

    def _refusals(self, facts: Facts, fstab: FileFact, mounted: list[str] | None) -> tuple[str, ...]:
        if fstab == ABSENT or fstab.kind != "file":
            return (f"{FSTAB} is not there, or no file",)
        if facts.link(self.at) != self.at:
            return (f"the folder {self.at} is not there, or a link leads to it",)
        real = facts.link(self.device) if self.device.startswith("/") else ""
        if real is None:
            return (f"{self.device} is not there",)
        if mounted and real and mounted[0] not in (real, self.device):
            return (f"{mounted[0]} is mounted at {self.at}, not {self.device}",)
        if self._entries(fstab.content) > 1:
            return (f"{FSTAB} has {self.at} more than once",)
        return ()

    def _entries(self, content: bytes) -> int:
        return sum(_place(line) == self.at for line in content.split(b"\n"))

    def _with_line(self, content: bytes) -> bytes:
        """The file with the line, which replaces an existing line of the folder; all other lines stay."""
        lines = content.split(b"\n")
        for number, line in enumerate(lines):
            if _place(line) == self.at:
                lines[number] = line if line.split() == self._line.encode().split() else self._line.encode()
                return b"\n".join(lines)
        gap = b"" if not content or content.endswith(b"\n") else b"\n"
        return content + gap + self._line.encode() + b"\n"

    def _mounted(self, facts: Facts) -> list[str] | None:
        """(device, folder, type, options …) of the filesystem mounted there, the last of several."""
        found = [line.split() for line in (facts.text(MOUNTS) or "").splitlines() if line.split()[1:2] == [self.at]]
        return found[-1] if found else None

    def _missing(self, mounted: list[str] | None) -> list[str]:
        if mounted is None:
            return []
        now = mounted[3].split(",")
        gone = [option for option in self.options if option in _SHOWN and option not in now]
        return [f"{self.at} is mounted without {', '.join(gone)}: mount it again"] if gone else []


def _place(line: bytes) -> str | None:
    """The folder of a line of fstab; None for comments and blanks."""
    words = line.split()
    if len(words) < 2 or words[0].startswith(b"#"):
        return None
    place = words[1].decode("utf-8", errors="replace")
    return place.rstrip("/") or place
