"""The programs that operations start on a simulated machine, and the configuration that programs have read.

Data flow: `SimTools.run(argv)` -> the program takes its time, hangs or fails (`Machine.program`) -> `Programs.effect`,
which changes the machine, or `Programs.query` for programs that only read. udev and systemd use the files as they read
them last: `stale()` returns those whose files have changed since.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim_disk import Data, Disk
from sim_kernel import PLACE

from proveout.agent.security.policy import Tool
from proveout.dsl.operations.facts import Output

UDEVADM, SYSTEMCTL, DPKG = "/usr/bin/udevadm", "/usr/bin/systemctl", "/usr/bin/dpkg-query"
VOLUME = "/opt/lab/volume"
READERS = {UDEVADM: "/etc/udev/rules.d/", SYSTEMCTL: "/etc/fstab"}
"""Program -> the path of the files that it reads, and uses until it reads them again."""
TOOLS = tuple(Tool(path=path, arguments=("*",)) for path in (UDEVADM, SYSTEMCTL, VOLUME))
INSTALLED = {"tuned": "2.20.0"}

Read = tuple[tuple[str, Data], ...]


class Programs:
    """The programs of one machine."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.volumes: frozenset[str] = frozenset()
        """The volumes that a program of the plan has made."""
        self._pending: Read = ()
        self._read: dict[str, Read] = {}
        self.boot()

    def boot(self) -> None:
        """Let all programs read their files."""
        self._read = {reader: self._there(reader) for reader in READERS}
        self._pending = self._read[UDEVADM]

    def _there(self, reader: str) -> Read:
        where = READERS[reader]
        names = self._disk.names
        return tuple(
            (path, names[path].now.copy()) for path in sorted(names) if path.startswith(where) and "/." not in path
        )

    def boot_readers(self, path: str) -> None:
        """Let the program that uses `path` read it, as a user does after an edit."""
        for reader, where in READERS.items():
            if path.startswith(where):
                self._read[reader] = self._there(reader)

    def stale(self) -> dict[str, tuple[object, object]]:
        """Return program -> (files as it read them, present files) where they differ."""
        return {reader: (had, now) for reader, had in self._read.items() if had != (now := self._there(reader))}

    @property
    def has_place(self) -> bool:
        """Whether systemd has read a unit for the mount point `PLACE`."""
        return any(f" {PLACE} ".encode() in data.content for _, data in self._read[SYSTEMCTL])

    def query(self, argv: Sequence[str]) -> Output | None:
        """Return the output of a program that only reads; None for the others."""
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
                self._read[SYSTEMCTL] = self._there(SYSTEMCTL)
            case (program, "create", volume) if program == VOLUME:
                self.volumes |= {volume}
            case (program, "remove", volume) if program == VOLUME:
                self.volumes -= {volume}
            case ("/usr/bin/check", *_):
                pass
            case _:
                raise AssertionError(f"the simulated machine has no {' '.join(argv)}")
