"""`partition`: any partition table on any disk. The disk is a file, read and written by the real parted, wipefs and
blkid.

The kernel's part (its folders of the partitions after partprobe) is a model; test_tuning_partition uses a loop device
instead.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from any_host import Case, World, valid_tuning, words, world
from hypothesis import strategies as st
from tuning_bench import put

from proveout.dsl.operations.facts import Output

DEVICE, NODE, FOLDER = "/dev/disk/by-id/disk", "/dev/sdq", "/sys/block/sdq"
MIB = 1024 * 1024
TABLE = 34 * 512
PATIENCE_S = 180
PROGRAMS = ("/usr/sbin/parted", "/usr/sbin/wipefs", "/usr/sbin/blkid", "/usr/sbin/mkswap")


class OnAnImage:
    """The programs, started with the image in place of the device; partprobe is the model of the kernel."""

    def __init__(self, root: Path, image: Path) -> None:
        self._root, self._image = root, image

    def run(self, argv: Sequence[str]) -> Output:
        """Run a program to its end."""
        words = [str(self._image) if word == DEVICE else word for word in argv]
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
    if how == "another table":
        subprocess.run(["/usr/sbin/parted", "--script", str(image), "mklabel", "gpt"], check=True, timeout=PATIENCE_S)


@st.composite
def partition(draw: st.DrawFn) -> Case:
    """Any partitions on a disk of any size, empty or not."""
    parts = draw(PARTS)
    if draw(st.booleans()):
        parts = [*parts[:-1], {"name": parts[-1]["name"]}]
    one = replace(valid_tuning("partition", device=DEVICE, partitions=parts), destructive=True)
    size = draw(st.integers(min_value=8 * MIB // 512, max_value=16 * MIB // 512)) * 512
    how = draw(st.sampled_from(["empty"] * 6 + ["swap", "another table", "read-only", "mounted", "held", "absent"]))
    at = draw(
        st.lists(
            st.one_of(st.integers(0, 400), st.integers(0, size - 5), st.integers(size - TABLE, size - 5)), max_size=4
        )
    )

    def make(folder: Path) -> World:
        made = world(folder)
        root = made.host.root
        image = put(root, NODE, "")
        with image.open("wb") as stream:
            stream.truncate(size)
        _spoiled(image, how, at)
        made.host.tools = OnAnImage(root, image)
        if how != "absent":
            (root / "dev/disk/by-id").mkdir(parents=True)
            (root / DEVICE[1:]).symlink_to("../../sdq")
        attributes = {
            "size": size // 512,
            "ro": int(how == "read-only"),
            "dev": "65:0",
            "queue/logical_block_size": 512,
        }
        for name, value in attributes.items():
            put(root, f"{FOLDER}/{name}", f"{value}\n")
        put(root, "/proc/self/mountinfo", f"36 1 65:0 / /mnt rw - ext4 {NODE} rw\n" if how == "mounted" else "")
        put(root, "/proc/swaps", "Filename Type Size Used Priority\n")
        if how == "held":
            put(root, f"{FOLDER}/holders/dm-0", "")
        return made

    outcomes = {"applied", "refused"} if how == "empty" else {"refused"}
    return Case(tuning=one, state=(size, how, at), make=make, outcomes=frozenset(outcomes))
