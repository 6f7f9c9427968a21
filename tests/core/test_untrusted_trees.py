"""Folders that another user owns, and changes meanwhile, are given away and removed by root without a way out of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import thorough

from proveout.core import path_trust

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

USER, OTHER = 61_900, 61_901
ROUNDS = thorough.count(500, 150)
RACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
user, outside = int(sys.argv[1]), sys.argv[2]
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.makedirs("folder/inner")  # as in the folder outside
os.mknod("folder/inner/secret")
os.symlink(outside, "link")
print("races", flush=True)
number = 0
while True:
    libc.renameat2(-100, b"folder", -100, b"link", 2)  # RENAME_EXCHANGE
    number += 1
    try:
        os.mkdir(f"new{number % 7}")
        os.mknod(f"new{number % 7}/file")
    except OSError:
        pass
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of root's with content."""
    folder = tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "secret").write_text("root's")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder of `USER`, in a folder of root's."""
    folder = tmp_path / "tree"
    folder.mkdir(mode=0o750)
    os.chown(folder, USER, USER)
    return folder


@contextlib.contextmanager
def racing(tree: Path, outside: Path) -> Iterator[None]:
    """A process of `USER` that exchanges a folder with a link to `outside`, and makes others."""
    argv = [sys.executable, "-I", "-c", RACER, str(USER), str(outside)]
    with subprocess.Popen(argv, cwd=tree, stdout=subprocess.PIPE) as racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == b"races\n"
        try:
            yield
            assert racer.poll() is None
        finally:
            racer.kill()


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.mark.thorough
def test_nothing_outside_is_given_beside_a_racer(tree: Path, outside: Path) -> None:
    with racing(tree, outside):
        for _ in range(ROUNDS):
            assert path_trust.give_away(tree, 0, 0) == []
            assert owners(tree) == {0}
            assert path_trust.give_away(tree, USER, USER) == []
    assert owners(outside) == {0}
    assert tree.stat().st_mode & 0o777 == 0o750


def test_a_folder_is_removed_beside_a_racer(tmp_path: Path, outside: Path) -> None:
    for number in range(5):
        folder = tmp_path / f"tree{number}"
        folder.mkdir()
        os.chown(folder, USER, USER)
        with racing(folder, outside):
            path_trust.remove(folder)
            assert not folder.exists()
    assert (outside / "inner" / "secret").read_text() == "root's"


def test_what_is_not_the_owners_keeps_its_owner(tree: Path, outside: Path) -> None:
    """Hard links to files of others, files of others, and what a link leads to; a pipe is not waited for."""
    inner = tree / "inner"
    inner.mkdir()
    (inner / "theirs").touch()
    (inner / "link").symlink_to(outside)
    os.mkfifo(inner / "pipe")
    for path in (inner, inner / "theirs", inner / "link", inner / "pipe"):
        os.chown(path, USER, USER, follow_symlinks=False)
    os.link(outside / "inner" / "secret", inner / "hard")
    (inner / "roots").touch()
    (inner / "others").touch()
    os.chown(inner / "others", OTHER, OTHER)
    kept = {str(inner / name) for name in ("hard", "roots", "others")}
    assert set(path_trust.give_away(tree, OTHER + 1, OTHER + 1)) == kept
    assert {str(path) for path in (tree, *tree.rglob("*")) if path.lstat().st_uid != OTHER + 1} == kept
    assert owners(outside) == {0}
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        path_trust.give_away(inner / "link", OTHER, OTHER)


def test_a_program_that_sets_its_user_and_access_lists_do_not_become_roots(tree: Path) -> None:
    program = tree / "program"
    program.touch()
    os.chown(program, USER, USER)
    program.chmod(0o4755)
    everything = b"\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x07\x00" + USER.to_bytes(4, "little")
    everything += b"\x04\x00\x00\x00\xff\xff\xff\xff\x10\x00\x07\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"
    try:
        os.setxattr(tree, "system.posix_acl_default", everything)
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")
    assert path_trust.give_away(tree, 0, 0) == []
    assert program.stat().st_mode & 0o7777 == 0o755
    assert os.listxattr(tree) == []


def test_a_deep_folder_is_removed_and_not_given_whole(tree: Path) -> None:
    here = os.open(tree, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchown(below, USER, USER)
        os.close(here)
        here = below
    os.close(here)
    (left,) = path_trust.give_away(tree, 0, 0)
    assert len(Path(left).parts) == path_trust.PARTS_MAX + 1
    path_trust.remove(tree)
    assert not tree.exists()
