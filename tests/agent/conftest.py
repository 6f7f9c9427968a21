"""A disk for tests that write to one: a loop device with a name in /dev/disk/by-id, like a real disk. Skips on hosts
without loop devices."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE = 64 * 1024 * 1024
PROGRAMS = ("/usr/sbin/parted", "/usr/sbin/partprobe", "/usr/sbin/wipefs", "/usr/sbin/blkid")


def _ran(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=180).stdout.strip()


def _linked(name: Path, device: str) -> None:
    """Create the link; try again when another test that ends at the same time removes the folder."""
    for _ in range(100):
        name.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            name.symlink_to(device)
            return
    raise AssertionError(f"{name.parent} does not stay")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A by-id name of an empty loop device; the device, its file and its name are removed after the test."""
    if os.geteuid() != 0:
        pytest.skip("loop devices take root")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not on this host: {', '.join(missing)}")
    image = tmp_path / "disk"
    with image.open("wb") as stream:
        stream.truncate(SIZE)
    try:
        loop = _ran("losetup", "--find", "--show", "--partscan", str(image))
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"no loop devices here: {error}")
    folder = Path("/dev/disk/by-id")
    made = [path for path in (folder, folder.parent) if not path.exists()]
    name = folder / f"proveout-test-{secrets.token_hex(4)}"
    _linked(name, loop)
    try:
        yield str(name)
    finally:
        name.unlink()
        for path in made:
            with contextlib.suppress(OSError):  # another test has a disk there at the same time
                path.rmdir()
        _ran("losetup", "--detach", loop)
