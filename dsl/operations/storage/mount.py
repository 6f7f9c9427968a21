"""`mount`: a filesystem in /etc/fstab, on a disk or a folder of an NFS server, mounted by the unit that systemd
generates from the line. Source: fstab(5), systemd.mount(5), nfs(5).

The files of an NFS folder are those of another machine, so its programs must not gain privileges here (`nosuid`) and
its device nodes must not be used (`nodev`): a plan has to give both options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from proveout.dsl.operations.change import Change, UnitAction, WriteFile, around
from proveout.dsl.operations.facts import ABSENT, Facts, FileFact, FileQuery, LinkQuery, Query, TextQuery, UnitQuery
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.types import AbsolutePath
from proveout.dsl.schema.scalar_types import custom

FSTAB, MOUNTS = "/etc/fstab", "/proc/self/mounts"
RELOAD = ("/usr/bin/systemctl", "daemon-reload")
_SOURCE = re.compile(r"/dev/[A-Za-z0-9._+@:=,/-]+|(UUID|LABEL|PARTUUID|PARTLABEL)=[A-Za-z0-9._:-]{1,80}")
_NO_DISKS = ("/dev/fd", "/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm")  # noqa: S108
_OPTION = re.compile(r"[a-z_][a-z0-9_.-]*(=[A-Za-z0-9_./:%-]+)?")
_OF_THE_HOST = ("/", "/home", "/opt", "/srv", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")  # noqa: S108
_ALL_OF = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr"),
    *("/var/lib/proveout", "/var/lib/systemd", "/var/run", "/var/spool"),
)
"""Folders that must not be mounted over: they hold programs, configuration and data of root."""
_ON_DISKS = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "gfs2", "jfs", "ocfs2", "vfat", "xfs"})
"""Filesystems of the kernel that lie on a block device. mount(8) starts a helper for a type that it does not know
(`fuse.NAME` is a program), and with some others a folder that all users can write to is laid over another."""
_ON_SERVERS = frozenset({"nfs", "nfs4"})
MOUNT_NFS = "/usr/sbin/mount.nfs"
_EXPORT = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):(/[A-Za-z0-9._+@=,-]+)+")
_NFS_WORDS = frozenset(
    re.split(
        " ",
        "ac acl bg cto defaults dirsync fg fsc hard intr lock noac noacl noatime noauto nocto nodev nodiratime noexec "
        "nofail nointr nolock nordirplus noresvport nosharecache nosuid rdirplus relatime resvport ro rw sharecache "
        "soft softerr sync tcp udp _netdev",
    )
)
_NFS_VALUES = re.compile(
    r"(acdirmax|acdirmin|acregmax|acregmin|actimeo|nconnect|namlen|port|retrans|retry|rsize|timeo|wsize)=[0-9]{1,8}"
    r"|(nfsvers|vers)=(2|3|4(\.[0-2])?)|proto=(tcp6?|udp6?|rdma6?)|mountproto=(tcp6?|udp6?)"
    r"|sec=(sys|krb5|krb5i|krb5p)|lookupcache=(all|none|pos|positive)|local_lock=(all|flock|posix|none)"
)
_NFS_NEEDED = ("nosuid", "nodev")
_SHOWN = frozenset({"noatime", "nodiratime", "relatime", "ro", "rw", "nosuid", "nodev", "noexec", "sync", "dirsync"})
_SHOWN_OF_NFS = _SHOWN | {"hard", "noac", "nocto", "soft"}
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
    if ":" in value and not value.startswith("/"):
        if not _EXPORT.fullmatch(value) or {".", ".."} & set(value.split("/")):
            raise custom(f"`{value}` is not a folder of an NFS server: storage.lab.example:/export/data")
        return value
    if not _SOURCE.fullmatch(value) or ".." in value.split("/") or value.startswith(_NO_DISKS):
        raise custom(f"`{value}` is not a device: /dev/disk/by-id/…, UUID=…, LABEL=…, or server:/folder for nfs")
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
    if value not in _ON_DISKS | _ON_SERVERS:
        known = ", ".join(sorted(_ON_DISKS))
        raise custom(f"`{value}` is not a filesystem on a disk ({known}) or on a server (nfs, nfs4)")
    return value


def _is_of_nfs(option: str) -> bool:
    return option in _NFS_WORDS or _NFS_VALUES.fullmatch(option) is not None


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
    """A filesystem in its place: `{at: /ttdb, device: LABEL=ttdb, type: xfs, options: [noatime]}`, or a folder of a
    server: `{at: /shared, device: "storage:/export/tt", type: nfs, options: [rw, hard, noac, nosuid, nodev]}`."""

    at: Annotated[AbsolutePath, AfterValidator(_at)] = Field(description="The folder; it has to be there.")
    device: Annotated[str, AfterValidator(_source)] = Field(
        description="By /dev/…, UUID=…, LABEL=…; of NFS server:/folder."
    )
    type: Annotated[str, AfterValidator(_type)] = Field(description="The filesystem; it has to be made already.")
    options: list[Option] = Field(["defaults"], min_length=1, max_length=30, description="Mount options.")

    privileges = "root: writes /etc/fstab, starts mount units"

    @model_validator(mode="after")
    def _source_has_the_type(self) -> Self:
        if self._is_nfs != (self.type in _ON_SERVERS):
            raise custom(f"`{self.device}` and the type {self.type} do not belong together")
        if not self._is_nfs:
            return self
        if unknown := next((one for one in self.options if not _is_of_nfs(one)), None):
            raise custom(f"`{unknown}` is not an option of NFS that a plan sets (nfs(5))")
        if missing := [one for one in _NFS_NEEDED if one not in self.options]:
            raise custom(
                f"the options lack {' and '.join(missing)}: the files are those of another machine, whose "
                "programs and devices must not count here"
            )
        return self

    @property
    def _is_nfs(self) -> bool:
        return ":" in self.device and not self.device.startswith("/")

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
        device = (LinkQuery(MOUNT_NFS),) if self._is_nfs else device
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
        if reason := self._refused_source(facts, mounted[0] if mounted else ""):
            return (reason,)
        if self._entries(fstab.content) > 1:
            return (f"{FSTAB} has {self.at} more than once",)
        return ()

    def _refused_source(self, facts: Facts, mounted: str) -> str:
        """The reason against the device or the server; `mounted` is what is mounted there already."""
        if self._is_nfs and facts.link(MOUNT_NFS) is None:
            return f"this host has no {MOUNT_NFS}: install nfs-utils (rpm) or nfs-common (dpkg)"
        real = facts.link(self.device) if self.device.startswith("/") else ""
        if real is None:
            return f"{self.device} is not there"
        if mounted and (real or self._is_nfs) and mounted not in (real, self.device):
            return f"{mounted} is mounted at {self.at}, not {self.device}"
        return ""

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
        shown = _SHOWN_OF_NFS if self._is_nfs else _SHOWN
        gone = [option for option in self.options if option in shown and option not in now]
        return [f"{self.at} is mounted without {', '.join(gone)}: mount it again"] if gone else []


def _place(line: bytes) -> str | None:
    """The folder of a line of fstab; None for comments and blanks."""
    words = line.split()
    if len(words) < 2 or words[0].startswith(b"#"):
        return None
    place = words[1].decode("utf-8", errors="replace")
    return place.rstrip("/") or place
