"""Operations on disks: `partition`, `zero_blocks`, `filesystem` and `mount`; whether a disk is in use or holds data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from proveout.core import units
from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Command, KeepSpans, UnitAction, around
from proveout.dsl.operations.facts import ClaimQuery, Facts, FileFact, Output, OutputQuery
from proveout.dsl.operations.operation import AbsolutePath, Found, Operation, Waiting, edited_file, matching
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import custom

BLKID = "/usr/sbin/blkid"
DISK_MOUNTS = "/proc/self/mountinfo"
SECTOR = 512
"""/sys/block/*/size counts in these, whatever the disk does."""
NOTHING_FOUND, AMBIVALENT = 2, 8
"""Exit code of blkid: it recognises nothing."""
BY_ID = "/dev/disk/by-id/"
BLOCK, VOLUMES = "/sys/block", "/sys/class/block"
"""Whole disks only; all block devices, partitions too."""
Device: TypeAlias = Annotated[
    str, matching(rf"{BY_ID}[A-Za-z0-9][A-Za-z0-9._:+-]*", f"`{{value}}` does not name a device for good: {BY_ID}NAME")
]
"""A whole disk or a partition by a lasting name."""
_KEYS = ("TYPE", "PTTYPE", "LABEL", "USAGE")
_LASTING = ("wwn-", "nvme-", "scsi-", "dm-uuid-")


def sys_folder(device: str, facts: Facts, tree: str = BLOCK) -> str:
    """The kernel's folder of the disk that the name leads to; in `BLOCK` only whole disks have one."""
    return f"{tree}/{(facts.link(device) or '').rpartition('/')[2]}"


def refusal(what: str, replaces: str | None = None) -> str:
    """The devices on which a change is refused, for `wanted`; `replaces`: the filesystem that may be lost."""
    lost = "not empty" if replaces is None else f"anything but the filesystem {replaces}, which is lost"
    return f"refused where the {what} is read-only, held, mounted, swap or {lost}, unless it is so already"


def names(path: str, facts: Facts) -> tuple[str, ...]:
    """The names below /dev/disk/by-id of the device at a path, the disk's own names first."""
    real = facts.link(path)
    found = [] if real is None else [name for name in facts.paths(f"{BY_ID}*") if facts.link(name) == real]
    return tuple(sorted(found, key=lambda name: (not name.removeprefix(BY_ID).startswith(_LASTING), name)))


def probe_argv(device: str) -> tuple[str, ...]:
    """The argv that looks for signatures, and changes nothing."""
    return (BLKID, "--probe", "--output", "export", device)


def probed(device: str, facts: Facts) -> dict[str, str] | None:
    """The contents that blkid finds, by its keys (TYPE, LABEL …); empty when there is nothing, None when it cannot
    tell."""
    output = facts.ask(OutputQuery(probe_argv(device)))
    if output.code == NOTHING_FOUND:
        return {}
    return dict(line.partition("=")[::2] for line in output.text.splitlines()) or None if output.code == 0 else None


def in_use(device: str, facts: Facts, tree: str = BLOCK, own: str | None = None, replaces: str = "") -> Iterator[str]:
    """The reasons why the disk must not be written to: it is read-only, held, mounted, claimed, signed or partitioned.

    `own`: the type of a signature that it may have, whose driver may have claimed it, or "" for none but a partition's
    entry in its table. `replaces`: the UUID of a filesystem that it must have.
    """
    disk = sys_folder(device, facts, tree)
    if facts.text(f"{disk}/ro") != "0":
        yield f"{device} is read-only"
    holders = (*facts.paths(f"{disk}/holders/*"), *facts.paths(f"{disk}/*/holders/*"))
    held_by = ", ".join(sorted({path.rpartition("/")[2] for path in holders}))
    known = [f"{device} is held by {held_by} (LVM, md or device mapper)"] if holders else []
    numbers = {facts.text(f"{disk}/dev"), *(facts.text(path) for path in facts.paths(f"{disk}/*/dev"))}
    mounted = [line.split() for line in (facts.text(DISK_MOUNTS) or "").splitlines()]
    known += [f"{device} is mounted at {words[4]}" for words in mounted if numbers & {*words[2:3]}]
    found = probed(device, facts)
    claims = bool(own) and found is not None and found.get("TYPE") == own
    if not (known or claims) and (why := facts.ask(ClaimQuery(device))):
        known = [f"{device} cannot be claimed, as where it is swap, of a pool or mounted in another namespace: {why}"]
    yield from known
    if found is None or "PTTYPE" in found:
        expected = False
    elif replaces:
        expected = (found.get("UUID"), found.get("USAGE")) == (replaces, "filesystem")
    else:
        expected = not found or (own is not None and found.get("TYPE", own) == own)
    if not expected:
        keys = (*_KEYS, "UUID") if replaces else _KEYS
        words = " ".join(f"{key}={value}" for key, value in (found or {}).items() if key in keys)
        lacks = f"does not have the filesystem {replaces} that the plan gives up" if replaces else "is not empty"
        yield f"{device} {lacks}: blkid finds {words or 'data that it does not recognise'}"
    if facts.paths(f"{disk}/*/dev"):
        yield f"{device} has partitions"


# It destroys data, so a disk that holds anything is refused: a signature of any kind, a partition, something mounted or
# swapped on it, a holder (LVM, md, device mapper). It is named by /dev/disk/by-id, as sdb is another disk after the
# next boot. To undo it takes away the table's signatures and then, if no other program has written to the disk, writes
# back what the table has taken.

PARTED, WIPEFS, PARTPROBE = "/usr/sbin/parted", "/usr/sbin/wipefs", "/usr/sbin/partprobe"
MIB = 1024 * 1024
ENTRIES = 128 * 128
"""Bytes: as many entries as every GPT has room for. Source: UEFI Specification, 5.3."""
WholeDisk: TypeAlias = Annotated[
    str,
    matching(
        r"/dev/disk/by-id/(?!.*-part\d+$)[A-Za-z0-9][A-Za-z0-9._:+-]*",
        "`{value}` does not name a whole disk for good: /dev/disk/by-id/NAME",
    ),
]
PartSize: TypeAlias = Annotated[
    str, matching(r"[1-9][0-9]{0,8}[MGT]iB", "`{value}` is not a size of a partition, as 15GiB or 512MiB")
]
PartName: TypeAlias = Annotated[
    str,
    matching(
        r"[A-Za-z][A-Za-z0-9_]{0,35}",
        "`{value}` is not a name of a partition: a letter, then letters, digits and _, 36 at most",
    ),
]


class Part(Strict):
    """A partition."""

    name: PartName = Field(description="Its name in the table.")
    size: PartSize | None = Field(None, description="15GiB; the last one's may be left out: the rest.")


@dataclass(frozen=True, slots=True)
class _Span:
    """Sectors of the disk's own size; the end is within."""

    name: str
    start: int
    end: int


Parts: TypeAlias = Annotated[list[Part], Field(min_length=1, max_length=64)]


class Partition(Operation):
    """Partitions of an empty disk: `{device: /dev/disk/by-id/…, partitions: [{name: redo, size: 15GiB}, {name:
    data}]}`."""

    device: WholeDisk = Field(description="The whole disk, by /dev/disk/by-id.")
    partitions: Parts = Field(description="From the beginning of the disk to its end, at whole MiB.")

    privileges = "root: writes partition tables"
    destructive = True

    @model_validator(mode="after")
    def _only_the_last_is_the_rest(self) -> Partition:
        if any(part.size is None for part in self.partitions[:-1]):
            raise custom("only the last partition may do without a size")
        return self

    def targets(self) -> Mapping[str, str]:
        return {f"partitions of {self.device}": ", ".join(self._words())}

    def wanted(self) -> tuple[str, ...]:
        return (f"{self.device}: GPT with {', '.join(self._words())}", refusal("disk"))

    def _words(self) -> Iterator[str]:
        return (f"{part.name} {part.size or 'the rest'}" for part in self.partitions)

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The table in one go; refused unless the disk is empty or is so already."""
        disk = sys_folder(self.device, facts)
        if facts.link(self.device) is None:
            yield f"{self.device} is not there"
            return
        if facts.text(f"{disk}/size") is None:
            yield f"{self.device} is not a whole disk"
            return
        spans = self._spans(facts, disk)
        listed = OutputQuery((PARTED, "--script", "--machine", self.device, "unit", "s", "print"))
        if isinstance(spans, str):
            yield spans
        elif _table(facts.ask(listed)) != spans:
            wipe = (WIPEFS, "--all", "--types", "gpt,PMBR", self.device)
            ends = KeepSpans(device=self.device, spans=_ends(facts, disk), probe=probe_argv(self.device))
            made = Command(argv=self._argv(spans), undo=wipe, device=self.device)
            read = (PARTPROBE, self.device)
            reasons: tuple[Found, ...] = tuple(in_use(self.device, facts))
            yield from reasons or around((ends, made), Command(undo=read), Command(argv=read))

    def _spans(self, facts: Facts, disk: str) -> list[_Span] | str:
        """The spans of the partitions; or, as text, the reason why they do not fit."""
        block = _block(facts, disk)
        mib = MIB // block
        whole = _size(facts, disk) // MIB
        at, last = 1, whole - 1  # MiB; the second copy of the table lies at the end
        spans: list[_Span] = []
        for part in self.partitions:
            end = last if part.size is None else at + units.size_bytes(part.size) // MIB
            if end > last or end <= at:
                return f"{self.device} has {whole} MiB, too little for {', '.join(self._words())}"
            spans.append(_Span(part.name, at * mib, end * mib - 1))
            at = end
        return spans

    def _argv(self, spans: list[_Span]) -> tuple[str, ...]:
        made = (word for span in spans for word in ("mkpart", span.name, f"{span.start}s", f"{span.end}s"))
        return (PARTED, "--script", self.device, "mklabel", "gpt", *made)


def _block(facts: Facts, disk: str) -> int:
    return int(facts.text(f"{disk}/queue/logical_block_size") or SECTOR)


def _size(facts: Facts, disk: str) -> int:
    return int(facts.text(f"{disk}/size") or 0) * SECTOR


def _ends(facts: Facts, disk: str) -> tuple[tuple[int, int], ...]:
    """The space of a GPT: a protective MBR and the header, a block each, with the entries; and at the end the entries
    and the header again."""
    block, size = _block(facts, disk), _size(facts, disk)
    return (0, 2 * block + ENTRIES), (size - ENTRIES - block, ENTRIES + block)


def _table(output: Output) -> list[_Span]:
    """The partitions of a GPT in parted's output (`1:2048s:40959s:38912s::redo:;`); none of any other table."""
    lines = [line.strip().rstrip(";").split(":") for line in output.text.splitlines()]
    if output.code != 0 or not any(len(words) > 5 and words[5] == "gpt" for words in lines[1:2]):
        return []
    return [_Span(words[5], int(words[1][:-1]), int(words[2][:-1])) for words in lines[2:] if len(words) > 5]


# It destroys data, so a device that holds anything is refused: a signature of any kind, a partition, something mounted
# or swapped on it, a holder. A plan that gives up a filesystem names it by its UUID (`replaces`); the new one has
# another, so it is made once. Nothing undoes it.

MKFS = {"xfs": "/usr/sbin/mkfs.xfs", "ext4": "/usr/sbin/mkfs.ext4"}
_FORCE = {"xfs": ("-f",), "ext4": ("-F",)}
_LABEL_MAX = {"xfs": 12, "ext4": 16}
Label: TypeAlias = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,15}",
        "`{value}` is not a label: a letter or digit, then letters, digits and _ . -",
    ),
]
Uuid: TypeAlias = Annotated[
    str,
    matching(
        r"[0-9A-Fa-f]{4,8}(-[0-9A-Fa-f]{4,12}){1,4}", "`{value}` is not the UUID of a filesystem, as `blkid` prints it"
    ),
]


REPLACES = Field(
    None, description="The UUID of the one filesystem on the device that may be lost; by default none may."
)


def _overwritten(device: str, replaces: str | None, argv: tuple[str, ...], facts: Facts) -> tuple[Found, ...]:
    """The program, with the time that it may take; or why the device must not be overwritten."""
    reasons = tuple(in_use(device, facts, VOLUMES, own="", replaces=replaces or ""))
    return reasons or (Command(argv=argv, device=device, within_s=WITHIN_S),)


class Filesystem(Operation):
    """A new filesystem on an empty device: `{device: /dev/disk/by-id/…-part1, type: xfs, label: ttdb}`."""

    device: Device = Field(description="The disk or partition, by /dev/disk/by-id.")
    type: Literal["xfs", "ext4"] = Field(description="The filesystem.")
    label: Label = Field(
        description="Its label, which tells on later runs that it is there; `mount` finds it by LABEL=…."
    )
    replaces: Uuid | None = REPLACES

    privileges = "root: makes filesystems"
    destructive = True

    @model_validator(mode="after")
    def _label_fits(self) -> Self:
        if len(self.label) > _LABEL_MAX[self.type]:
            raise custom(f"`{self.label}` is too long a label: {self.type} has {_LABEL_MAX[self.type]} characters")
        return self

    @property
    def lasting(self) -> str:
        return f"a filesystem made on {self.device}"

    @property
    def longest_s(self) -> float:
        return WITHIN_S

    def targets(self) -> Mapping[str, str]:
        return {f"contents of {self.device}": f"{self.type} {self.label}"}

    def wanted(self) -> tuple[str, ...]:
        return (f"{self.device}: {self.type}, label {self.label}", refusal("device", self.replaces))

    def steps(self, facts: Facts) -> Iterator[Found]:
        """mkfs, unless the device has that filesystem with that label; refused where it holds anything else."""
        if facts.link(self.device) is None:
            yield f"{self.device} is not there"
            return
        found = probed(self.device, facts) or {}
        is_given_up = self.replaces is not None and found.get("UUID") == self.replaces
        if (found.get("TYPE"), found.get("LABEL")) != (self.type, self.label) or is_given_up:
            force = _FORCE[self.type] if self.replaces is not None else ()
            argv = (MKFS[self.type], "-q", *force, "-L", self.label, self.device)
            yield from _overwritten(self.device, self.replaces, argv, facts)


# Bounded by its size, and by what the device holds: a signature of any kind, a partition, something mounted or swapped
# on it and a holder are refused; a plan that gives up a filesystem names it by its UUID (`replaces`). Nothing undoes
# it.

DD, CMP = "/usr/bin/dd", "/usr/bin/cmp"
WITHIN_S = 900.0
ZEROS_MAX = 16 * 1024 * MIB


def _of_zeros(value: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,4}[MG]iB", value) or units.size_bytes(value) > ZEROS_MAX:
        raise custom(f"`{value}` is not a size to be zeroed, as 16MiB: at most 16GiB")
    return value


class ZeroBlocks(Operation):
    """Zeros over the first part of an empty device: `{device: /dev/disk/by-id/…, size: 16MiB}`."""

    device: Device = Field(description="The disk or partition, by /dev/disk/by-id.")
    size: Annotated[str, AfterValidator(_of_zeros)] = Field(description="The part of it, from its beginning: 16MiB.")
    replaces: Uuid | None = REPLACES

    privileges = "root: writes to disks"
    destructive = True

    @property
    def lasting(self) -> str:
        return f"what the first {self.size} of {self.device} held"

    @property
    def longest_s(self) -> float:
        return 4 * WITHIN_S

    def targets(self) -> Mapping[str, str]:
        return {f"contents of {self.device}": f"{self.size} of zeros"}

    def wanted(self) -> tuple[str, ...]:
        return (f"{self.device}: zeros in the first {self.size}", refusal("device", self.replaces))

    def steps(self, facts: Facts) -> Iterator[Found]:
        """dd, unless the zeros are there; refused where the device holds anything, or is too small."""
        if facts.link(self.device) is None:
            yield f"{self.device} is not there"
            return
        wanted, has = units.size_bytes(self.size), _size(facts, sys_folder(self.device, facts, VOLUMES))
        if has < wanted:
            yield f"{self.device} has {has / MIB:,.1f} MiB, less than {self.size}"
            return
        zeros = OutputQuery((CMP, f"--bytes={wanted}", self.device, "/dev/zero"), within_s=WITHIN_S)
        if facts.ask(zeros).code != 0:
            argv = (DD, "if=/dev/zero", f"of={self.device}", "bs=1M", f"count={wanted // MIB}", "conv=notrunc,fsync")
            yield from _overwritten(self.device, self.replaces, argv, facts)


# The files of an NFS folder are those of another machine, so its programs must not gain privileges here (`nosuid`) and
# its device nodes must not be used (`nodev`): a plan has to give both options.

FSTAB, MOUNTS = "/etc/fstab", "/proc/self/mounts"
RELOAD = ("/usr/bin/systemctl", "daemon-reload")
_SOURCE = re.compile(r"/dev/[A-Za-z0-9._+@:=,/-]+|(UUID|LABEL|PARTUUID|PARTLABEL)=[A-Za-z0-9._:-]{1,80}")
_NO_DISKS = ("/dev/fd", "/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm")  # noqa: S108
_OF_THE_HOST = ("/", "/home", "/opt", "/srv", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")  # noqa: S108
_ALL_OF = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr"),
    *("/var/lib/proveout", "/var/lib/systemd", "/var/run", "/var/spool"),
)
"""Folders that must not be mounted over: they hold programs, configuration and data of root."""
_ON_DISKS = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "gfs2", "jfs", "ocfs2", "vfat", "xfs"})
"""Filesystems of the kernel that lie on a block device. mount(8) starts a helper for a type that it does not know
(`fuse.NAME` is a program), and with some others a folder that all users can write to is laid over another."""
_ON_SEVERAL = frozenset({"bcachefs", "btrfs"})
"""Those that may lie on several devices, each of which has the label."""
_ON_SERVERS = frozenset({"nfs", "nfs4"})
MOUNT_NFS = "/usr/sbin/mount.nfs"
_EXPORT = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):(/[A-Za-z0-9._+@=,-]+)+")
_NFS = re.compile(
    r"ac|acl|bg|cto|defaults|dirsync|fg|fsc|hard|intr|lock|noac|noacl|noatime|noauto|nocto|nodev|nodiratime|noexec"
    r"|nofail|nointr|nolock|nordirplus|noresvport|nosharecache|nosuid|rdirplus|relatime|resvport|ro|rw|sharecache"
    r"|soft|softerr|sync|tcp|udp|_netdev"
    r"|(acdirmax|acdirmin|acregmax|acregmin|actimeo|nconnect|namlen|port|retrans|retry|rsize|timeo|wsize)=[0-9]{1,8}"
    r"|(nfsvers|vers)=(2|3|4(\.[0-2])?)|proto=(tcp6?|udp6?|rdma6?)|mountproto=(tcp6?|udp6?)"
    r"|sec=(sys|krb5|krb5i|krb5p)|lookupcache=(all|none|pos|positive)|local_lock=(all|flock|posix|none)"
)
_NFS_NEEDED = ("nosuid", "nodev")
_SHOWN = frozenset({"noatime", "nodiratime", "relatime", "ro", "rw", "nosuid", "nodev", "noexec", "sync", "dirsync"})
_SHOWN_OF_NFS = _SHOWN | {"hard", "noac", "nocto", "soft"}
_OF_PROGRAMS = "helper=|x-|user|owner|group|r?bind|loop|move|remount"
"""Options that start programs or units, let users mount, or make another kind of mount."""


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


def _type(value: str) -> str:
    if value not in _ON_DISKS | _ON_SERVERS:
        known = ", ".join(sorted(_ON_DISKS))
        raise custom(f"`{value}` is not a filesystem on a disk ({known}) or on a server (nfs, nfs4)")
    return value


Option: TypeAlias = Annotated[
    str,
    matching(
        rf"(?!{_OF_PROGRAMS})[a-z_][a-z0-9_.-]*(=[A-Za-z0-9_./:%-]+)?",
        "`{value}` is not a mount option that a plan sets",
    ),
]


def unit_of(path: str) -> str:
    """The mount unit of a folder: `/u01/app-x` is `u01-app\\x2dx.mount`. Source: systemd.unit(5), string escaping."""
    escaped = re.sub(r"^\.|[^A-Za-z0-9:_./]", lambda found: f"\\x{ord(found[0]):02x}", path.strip("/"))
    return f"{escaped.replace('/', '-')}.mount"


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
        if unknown := next((one for one in self.options if not _NFS.fullmatch(one)), None):
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
        return {f"mount {self.at}": self._line}

    def wanted(self) -> tuple[str, ...]:
        return (f"{FSTAB}: {self._line}", f"{self.at} is mounted")

    @property
    def _line(self) -> str:
        return f"{self.device} {self.at} {self.type} {','.join(self.options)} 0 0"

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The line of /etc/fstab, then the unit; a filesystem that is mounted there already stays mounted."""
        fstab, mounted = facts.file(FSTAB), self._mounted(facts)
        if reasons := [*self._reasons(facts, fstab, mounted[0] if mounted else "")]:
            yield reasons[0]
            return
        edit = edited_file(FSTAB, fstab, self._with_line(fstab.content))
        yield from around(edit, Command(undo=RELOAD), Command(argv=RELOAD))
        if mounted is None:
            yield UnitAction(unit=unit_of(self.at), verb="start", undo="stop")
            return
        shown, now = _SHOWN_OF_NFS if self._is_nfs else _SHOWN, mounted[3].split(",")
        if gone := [option for option in self.options if option in shown and option not in now]:
            yield Waiting(text=f"{self.at} is mounted without {', '.join(gone)}: mount it again")

    def _reasons(self, facts: Facts, fstab: FileFact, mounted: str) -> Iterator[str]:
        """The reasons against the file, the folder, the device or the server; `mounted` is what is mounted there."""
        real = facts.link(self.device) if self.device.startswith("/") else ""
        tag, of, name = self.device.partition("=")
        if of and real == "" and mounted and self.type not in _ON_SEVERAL:
            real = facts.link(f"/dev/disk/by-{tag.lower()}/{name}") or ""  # made by udev, for LABEL and its like
        if fstab.kind != "file":
            yield f"{FSTAB} is not there, or no file"
        if facts.link(self.at) != self.at:
            yield f"the folder {self.at} is not there, or a link leads to it"
        if self._is_nfs and facts.link(MOUNT_NFS) is None:
            yield f"this host has no {MOUNT_NFS}: install nfs-utils (rpm) or nfs-common (dpkg)"
        if real is None:
            yield f"{self.device} is not there"
        own = {real, self.device, ""}
        if mounted not in own and (self._is_nfs or (real and facts.link(mounted) != real)):
            yield f"{mounted} is mounted at {self.at}, not {self.device}"
        if sum(_place(line) == self.at for line in fstab.content.split(b"\n")) > 1:
            yield f"{FSTAB} has {self.at} more than once"

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


def _place(line: bytes) -> str | None:
    """The folder of a line of fstab; None for comments and blanks."""
    words = line.split()
    if len(words) < 2 or words[0].startswith(b"#"):
        return None
    place = words[1].decode("utf-8", errors="replace")
    return place.rstrip("/") or place
