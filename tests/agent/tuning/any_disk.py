"""`partition`, `filesystem`, `zero_blocks`: any disk. It is a file, read and written by the real parted, wipefs, blkid,
mkfs.ext4, dd and cmp.

The kernel's part (its folders of the partitions after partprobe) is a model; test_tuning_kernel uses a loop
device instead.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from any_host import Case, World, valid_tuning, words, world
from eventually import PATIENCE_S
from hypothesis import strategies as st
from tuning_bench import put

from proveout.agent.tuning.programs import Processes
from proveout.dsl.operations.facts import Output
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
