"""The programs that operations start on a simulated machine, and the configuration that programs have read.

Data flow: `SimTools.run(argv)` -> the program takes its time, hangs or fails (`Machine.program`) -> `Programs.effect`,
which changes the machine, or `Programs.query` for programs that only read. udev, multipathd and systemd use the files
as they read them last: `stale()` returns those whose files have changed since.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim_disk import Data, Disk
from sim_kernel import NEW_DISK, OLD_DISK, PLACE, SPARE, SPARE_ID
from sim_oracle import SimOracle

from proveout.agent.security.policy import Tool
from proveout.dsl.operations.facts import Output

UDEVADM, SYSTEMCTL, MULTIPATHD = "/usr/bin/udevadm", "/usr/bin/systemctl", "multipathd.service"
PARTED, WIPEFS, PARTPROBE, BLKID = "/usr/sbin/parted", "/usr/sbin/wipefs", "/usr/sbin/partprobe", "/usr/sbin/blkid"
DPKG = "/usr/bin/dpkg-query"
MKFS, DD, CMP, VOLUME = "/usr/sbin/mkfs.ext4", "/usr/bin/dd", "/usr/bin/cmp", "/opt/lab/volume"
READERS = {UDEVADM: "/etc/udev/rules.d/", MULTIPATHD: "/etc/multipath/conf.d/", SYSTEMCTL: "/etc/fstab"}
"""Program or unit -> the path of the files that it reads, and uses until it reads them again."""
TOOLS = tuple(
    Tool(path=path, arguments=("*",))
    for path in (UDEVADM, SYSTEMCTL, PARTED, WIPEFS, PARTPROBE, BLKID, MKFS, DD, CMP, VOLUME)
)
INSTALLED = {"tuned": "2.20.0"}

Read = tuple[tuple[str, Data], ...]


class Programs:
    """The programs of one machine."""

    def __init__(self, disk: Disk, oracle: SimOracle) -> None:
        self._disk, self._oracle = disk, oracle
        self.table = ""
        """The partition table of the spare disk as the lines that parted prints; "" for none."""
        self.ends = b"an old loader"
        """The bytes where a table is written: the original ones, the table's, or those after its signatures were
        wiped."""
        self.seen = ""
        """The partition table that the kernel has read."""
        self.overwritten: set[str] = set()
        """The disks that mkfs or dd has overwritten, which nothing undoes."""
        self.volumes: frozenset[str] = frozenset()
        """The volumes that a program of the plan has made."""
        self._pending: Read = ()
        self._read: dict[str, Read] = {}
        self.boot()

    def boot(self) -> None:
        """Let all programs read their files and the kernel its partition tables."""
        self._read = {reader: self._there(reader) for reader in READERS}
        self._pending = self._read[UDEVADM]
        self.seen = self.table

    def _there(self, reader: str) -> Read:
        where = READERS[reader]
        names = self._disk.names
        return tuple(
            (path, names[path].now.copy()) for path in sorted(names) if path.startswith(where) and "/." not in path
        )

    def read(self, reader: str) -> None:
        """Let a program read its files."""
        self._read[reader] = self._there(reader)

    def boot_readers(self, path: str) -> None:
        """Let the program that uses `path` read it, as a user does after an edit."""
        for reader, where in READERS.items():
            if path.startswith(where):
                self.read(reader)

    def stale(self) -> dict[str, tuple[object, object]]:
        """Return program -> (files as it read them, present files) where they differ; for the kernel, the partition
        tables."""
        found: dict[str, tuple[object, object]] = {
            reader: (had, now) for reader, had in self._read.items() if had != (now := self._there(reader))
        }
        return found | ({PARTPROBE: (self.seen, self.table)} if self.seen != self.table else {})

    @property
    def has_place(self) -> bool:
        """Whether systemd has read a unit for the mount point `PLACE`."""
        return any(f" {PLACE} ".encode() in data.content for _, data in self._read[SYSTEMCTL])

    def parts(self) -> tuple[str, ...]:
        count = sum(line[:1].isdigit() for line in self.seen.splitlines())
        return tuple(f"/sys/block/{SPARE}/{SPARE}{number}/dev" for number in range(1, count + 1))

    # ---- running them ----------------------------------------------------------------------------------------------

    def query(self, argv: Sequence[str]) -> Output | None:
        """Return the output of a program that only reads; None for the others."""
        if argv[0] == BLKID:
            found = "PTTYPE=gpt\n" if argv[-1] == SPARE_ID and self.table else ""
            found += "TYPE=ext4\nLABEL=data\n" if argv[-1] == NEW_DISK and NEW_DISK in self.overwritten else ""
            found += "TYPE=oracleasm\n" if self._oracle.has_header(argv[-1]) else ""
            return Output(code=0 if found else 2, text=found)
        if argv[0] == PARTED and argv[-1] == "print":
            kind = "gpt" if self.table else "unknown"
            text = f"BYT;\n/dev/{SPARE}:209715200s:scsi:512:512:{kind}:X:;\n{self.table}"
            return Output(code=0 if self.table else 1, text=text)
        if argv[0] == CMP:
            return Output(code=0 if OLD_DISK in self.overwritten else 1, text="")
        if argv[:2] == (VOLUME, "show"):
            return Output(code=0 if argv[-1] in self.volumes else 1, text="")
        if argv[0] == DPKG:
            version = INSTALLED.get(argv[-1])
            return Output(code=1, text="") if version is None else Output(code=0, text=f"installed {version}")
        return None

    def effect(self, argv: Sequence[str]) -> None:
        """Apply the effect of a program that changes the machine."""
        match tuple(argv):
            case (program, "control", "--reload") if program == UDEVADM:
                self._pending = self._there(UDEVADM)
            case (program, "trigger", *_) if program == UDEVADM:
                self._read[UDEVADM] = self._pending
            case (program, "settle", _) if program == UDEVADM:
                pass
            case (program, "daemon-reload") if program == SYSTEMCTL:
                self.read(SYSTEMCTL)
            case (program, "--script", device, "mklabel", "gpt", *words) if (program, device) == (PARTED, SPARE_ID):
                made = [words[at : at + 4] for at in range(0, len(words), 4)]
                lines = (f"{n}:{start}:{end}:0s::{name}:;\n" for n, (_, name, start, end) in enumerate(made, 1))
                self.table = self.seen = "".join(lines)
                self.ends = b"gpt"
            case (program, "--all", "--types", _, device) if (program, device) == (WIPEFS, SPARE_ID):
                self.table, self.ends = "", b"wiped" if self.ends == b"gpt" else self.ends
            case (program, device) if (program, device) == (PARTPROBE, SPARE_ID):
                self.seen = self.table
            case (program, "-q", "-L", _, device) if (program, device) == (MKFS, NEW_DISK):
                self.overwritten.add(device)
            case (program, _, into, *_) if (program, into) == (DD, f"of={OLD_DISK}"):
                self.overwritten.add(OLD_DISK)
            case (program, "create", volume) if program == VOLUME:
                self.volumes |= {volume}
            case (program, "remove", volume) if program == VOLUME:
                self.volumes -= {volume}
            case ("/usr/bin/check", *_):
                pass
            case _:
                raise AssertionError(f"the simulated machine has no {' '.join(argv)}")
