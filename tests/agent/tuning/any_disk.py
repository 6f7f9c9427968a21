"""`partition`, `filesystem`, `zero_blocks`: any disk. It is a file, read and written by the real parted, wipefs, blkid,
mkfs.ext4, dd and cmp. `mount`: any /etc/fstab. `command`: programs of the plan that make volumes.

The kernel's part (its folders of the partitions after partprobe, its mounts) is a model; test_tuning_kernel uses a loop
device instead.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from any_host import GOOD, Case, Found, World, files, valid_tuning, words, world
from eventually import PATIENCE_S
from hypothesis import strategies as st
from tuning_bench import StubUnits, put

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.programs import Processes
from proveout.dsl.operations.disks import unit_of
from proveout.dsl.operations.facts import Output, UnitFact
from proveout.dsl.plan.stages import Tuning

DEVICE, NODE, FOLDER = "/dev/disk/by-id/disk", "/dev/sdq", "/sys/block/sdq"
MIB = 1024 * 1024
TABLE = 34 * 512

MAKING = (
    "/usr/sbin/mkfs.ext4", "/usr/sbin/blkid", "/usr/sbin/parted", "/usr/sbin/mkswap", "/usr/bin/dd", "/usr/bin/cmp",
)  # fmt: skip
PROGRAMS = ("/usr/sbin/parted", "/usr/sbin/wipefs", "/usr/sbin/blkid", "/usr/sbin/mkswap")


class OnAnImage(Processes):
    """The programs, started with the image in place of the device; partprobe is the model of the kernel."""

    def __init__(self, root: Path, image: Path) -> None:
        self._root, self._image = root, image

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        """Run a program to its end."""
        words = [word.replace(DEVICE, str(self._image)) for word in argv]
        words[1:1] = ["--force"] if words[0].endswith("/wipefs") else []  # wipefs does not take a file for a whole disk
        if words[0].endswith("/partprobe"):
            self._probe()
            return Output(code=0, text="")
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        return Output(code=done.returncode, text=done.stdout + done.stderr)

    def _probe(self) -> None:
        for old in (self._root / FOLDER[1:]).glob("sdq*"):
            (old / "dev").unlink()
            old.rmdir()
        output = self.run(("/usr/sbin/parted", "--script", "--machine", DEVICE, "print")).text
        for number in [line.partition(":")[0] for line in output.splitlines() if line[:1].isdigit()]:
            put(self._root, f"{FOLDER}/sdq{number}/dev", f"65:{number}\n")


OLD_UUID = "0f0f0f0f-1111-2222-3333-444444444444"


@dataclass(frozen=True)
class AnyDisk:
    """A disk with bytes at some places, and `how` it is; `apart`: its contents are not a part of the host's picture."""

    size: int
    how: str
    at: tuple[int, ...]
    folder: str = FOLDER
    apart: bool = False

    def world(self, folder: Path) -> World:
        made = world(folder)
        root = made.host.root
        image = put(root, NODE, "")
        image = folder / "image" if self.apart else image
        with image.open("wb") as stream:
            stream.truncate(self.size)
        _spoiled(image, self.how, self.at)
        made.host.tools = OnAnImage(root, image)
        (root / "dev/disk/by-id").mkdir(parents=True)
        (root / DEVICE[1:]).symlink_to("../../sdq")
        for name, value in {"size": self.size // 512, "ro": 0, "dev": "65:0", "queue/logical_block_size": 512}.items():
            put(root, f"{self.folder}/{name}", f"{value}\n")
        put(root, "/proc/self/mountinfo", "")
        put(root, "/proc/swaps", "Filename Type Size Used Priority\n")
        return made


@st.composite
def disks(draw: st.DrawFn) -> AnyDisk:
    size = draw(st.integers(min_value=8 * MIB // 512, max_value=16 * MIB // 512)) * 512
    how = draw(st.sampled_from(["empty"] * 6 + ["swap", "another table"]))
    places = st.one_of(st.integers(0, 400), st.integers(0, size - 5), st.integers(size - TABLE, size - 5))
    return AnyDisk(size=size, how=how, at=tuple(draw(st.lists(places, max_size=4))))


DISKS = disks()
PARTS = st.lists(
    st.fixed_dictionaries({"name": words(r"[A-Za-z][A-Za-z0-9_]{0,8}"), "size": st.integers(1, 6).map(lambda mib: f"{mib}MiB")}),
    min_size=1, max_size=3,
)  # fmt: skip


def _spoiled(image: Path, how: str, at: Sequence[int]) -> None:
    """Write to the disk: bytes that are not a signature, or data that a run must not overwrite."""
    with image.open("r+b") as stream:
        for place in at:
            stream.seek(place)
            stream.write(b"\x5aold\x00")
    if how == "swap":
        subprocess.run(["/usr/sbin/mkswap", str(image)], check=True, timeout=PATIENCE_S, capture_output=True)
    if how == "old filesystem":
        argv = ["/usr/sbin/mkfs.ext4", "-q", "-F", "-U", OLD_UUID, str(image)]
        subprocess.run(argv, check=True, timeout=PATIENCE_S, capture_output=True)
    if how == "another table":
        subprocess.run(["/usr/sbin/parted", "--script", str(image), "mklabel", "gpt"], check=True, timeout=PATIENCE_S)


@st.composite
def partition(draw: st.DrawFn) -> Case:
    """Any partitions on a disk of any size, empty or not."""
    parts = draw(PARTS)
    if draw(st.booleans()):
        parts = [*parts[:-1], {"name": parts[-1]["name"]}]
    one = replace(valid_tuning("partition", device=DEVICE, partitions=parts), destructive=True)
    disk = draw(DISKS)
    outcomes = {"applied", "refused"} if disk.how == "empty" else {"refused"}
    return Case(tuning=one, state=disk, make=disk.world, outcomes=frozenset(outcomes))


# ---- operations that nothing undoes: the image is not a part of the host's picture --------------------------------------


def _lasting(one: Tuning, disk: AnyDisk, *outcomes: str) -> Case:
    tuning = replace(one, destructive=True, keep=True)
    return Case(tuning=tuning, state=disk, make=disk.world, outcomes=frozenset(outcomes), undone=frozenset({"kept"}))


@st.composite
def filesystem(draw: st.DrawFn) -> Case:
    """A filesystem on a disk of any size, empty or not; the plan may give up a filesystem that is there, or another."""
    replaces = draw(st.sampled_from([{}, {}, {"replaces": OLD_UUID}, {"replaces": "0000-AAAA"}]))
    label = draw(words(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,15}", 16))
    one = valid_tuning("filesystem", device=DEVICE, type="ext4", label=label, **replaces)
    disk = replace(draw(DISKS), folder="/sys/class/block/sdq", apart=True)
    if replaces:
        disk = replace(disk, how=draw(st.sampled_from([disk.how, "old filesystem"])))
    is_taken = disk.how == ("old filesystem" if replaces else "empty") and replaces.get("replaces") != "0000-AAAA"
    return _lasting(one, disk, "applied" if is_taken else "refused")


@st.composite
def zero_blocks(draw: st.DrawFn) -> Case:
    """Zeros over the first MiB of a disk of any size, empty or not."""
    mib = draw(st.integers(min_value=1, max_value=17))
    one = valid_tuning("zero_blocks", device=DEVICE, size=f"{mib}MiB")
    disk = replace(draw(DISKS), folder="/sys/class/block/sdq", apart=True)
    return _lasting(one, disk, "unchanged", "refused", *(["applied"] if disk.how == "empty" else []))


# ---- mount -----------------------------------------------------------------------------------------------------------

FSTABS = st.sampled_from([
    b"", b"# by hand\nUUID=1 / ext4 defaults 0 1", b"UUID=1 / ext4 defaults 0 1\r\none\n# LABEL=ttdb /ttdb xfs x 0 0\n",
    b"LABEL=ttdb /ttdb xfs noatime 0 2\n", b"LABEL=old  /ttdb\txfs defaults\nnone swap swap sw 0 0\n",
    b"LABEL=ttdb /ttdb/ xfs defaults 0 0", b"\xff /odd ext4 x\n",
])  # fmt: skip


class Mounting(StubUnits):
    """Mount units whose mounts are in /proc/self/mounts."""

    def __init__(self, root: Path, at: str, line: str, refuses: bool) -> None:
        super().__init__()
        self._file, self._line, self._refuses = root / "proc/self/mounts", line, refuses
        self._unit, self._at = unit_of(at), at

    def fact(self, unit: str) -> UnitFact | None:
        """A unit exists for a mounted device and for a line in /etc/fstab."""
        assert unit == self._unit
        mounted = f" {self._at} " in self._file.read_text()
        fstab = self._file.parents[2] / "etc/fstab"
        if not mounted and not (fstab.exists() and f" {self._at} ".encode() in fstab.read_bytes()):
            return None
        return UnitFact(active=mounted, enabled=None, state="generated")

    def act(self, unit: str, verb: str) -> None:
        """Mount or unmount it; a second time has no effect, and a unit that systemd has not read fails."""
        assert unit == self._unit
        if self.fact(unit) is None or (verb == "start" and self._refuses):
            raise TaskFault("fault", f"systemctl start -- {unit} failed with exit code 1")
        others = "".join(line for line in self._file.read_text().splitlines(keepends=True) if line != self._line)
        self._file.write_text(others + (self._line if verb == "start" else ""))


@st.composite
def mount(draw: st.DrawFn) -> Case:
    """Any mount point, device and options, and any /etc/fstab; mounted before, also from another device, or not."""
    at = draw(st.sampled_from(["/ttdb", "/ttdb", "/u01/app-x", "/.data"]))
    device = draw(st.sampled_from(["LABEL=ttdb", "/dev/disk/by-id/disk", "/dev/pmem0", "/dev/none"]))
    options = draw(
        st.lists(st.sampled_from(["noatime", "nodev", "dax=always", "defaults"]), min_size=1, max_size=3, unique=True)
    )
    one = valid_tuning("mount", at=at, device=device, type="xfs", options=options)
    fstab: Found = draw(st.one_of(files(FSTABS), files(FSTABS), files(FSTABS), st.just(Found(kind="absent"))))
    mounted = draw(st.sampled_from(["", "", "", "/dev/pmem0"]))
    refuses = draw(st.sampled_from([False] * 5 + [True]))
    shown = ",".join(["rw", *(option for option in options if option != "defaults")])

    def make(folder: Path) -> World:
        made = world(folder)
        root = made.host.root
        fstab.put(root / "etc/fstab")
        put(root, "/dev/pmem0", "")
        (root / "dev/disk/by-id").mkdir(parents=True)
        (root / "dev/disk/by-id/disk").symlink_to("../../pmem0")
        (root / at.lstrip("/")).mkdir(parents=True)
        there = f"{mounted} {at} xfs rw 0 0\n" if mounted else ""
        put(root, "/proc/self/mounts", f"/dev/sda1 / ext4 rw 0 0\n{there}")
        made.host.units = Mounting(root, at, f"/dev/pmem0 {at} xfs {shown} 0 0\n", refuses)
        return made

    outcomes = {*GOOD, *(["needs_restart"] if mounted else []), *(["failed"] if refuses else [])}
    return Case(tuning=one, state=(fstab, mounted, refuses), make=make, outcomes=frozenset(outcomes))


# ---- command -----------------------------------------------------------------------------------------------------------


class Volumes(Processes):
    """A program that makes and removes volumes of an array, and lists them; `stuck`: it makes none."""

    def __init__(self, there: set[str], stuck: bool) -> None:
        self.there, self.stuck = set(there), stuck

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        verb, name = argv[1], argv[-1]
        if verb == "show":
            return Output(
                code=0 if name in self.there else 1, text=f"volume {name}\n" if name in self.there else "none\n"
            )
        if verb == "create" and not self.stuck:
            self.there.add(name)
        elif verb == "remove":
            self.there.discard(name)
        return Output(code=0, text="")


@st.composite
def command(draw: st.DrawFn) -> Case:
    """A volume that is there or not; with or without programs that make and remove it."""
    program, name = "/opt/lab/volume", draw(words(r"[a-z]{1,6}"))
    applies = draw(st.sampled_from([True, True, False]))
    steps = {"apply": [[program, "create", name]], "revert": [[program, "remove", name]]} if applies else {}
    verify = draw(st.sampled_from([{}, {"prints": f"volume {name}"}, {"prints": "another text"}]))
    one = valid_tuning("command", verify={"run": [program, "show", name], **verify}, **steps)
    asks_for_another = verify.get("prints") == "another text"
    there = draw(st.sampled_from([set[str](), set[str](), set[str]() if asks_for_another else {name}]))
    stuck = draw(st.sampled_from([False] * 4 + [True]))

    def make(folder: Path) -> World:
        tools = Volumes(there, stuck)
        return world(folder, tools=tools, seen=lambda: set(tools.there))

    fails = stuck or asks_for_another
    outcomes = {"applied", "unchanged", *(["failed"] if fails else []), *([] if applies else ["refused"])}
    return Case(tuning=one, state=(there, stuck), make=make, outcomes=frozenset(outcomes))
