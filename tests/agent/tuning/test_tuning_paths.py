"""Resolution of paths: the walk refuses links and what lies outside of the root, as openat2(2) with RESOLVE_BENEATH and
RESOLVE_NO_SYMLINKS does, also while another process swaps folders."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.host import Files
from proveout.dsl.operations.facts import NONE, Original

CONTENT = Original(exists=True, content=b"new", mode=0o644, uid=os.geteuid(), gid=os.getegid())


def walk(root: Path, path: str) -> str:
    """Write to the path by the walk: "" on success, else the code of the fault."""
    try:
        Files(root).put(path, CONTENT)
    except TaskFault as fault:
        return fault.code
    return ""


def plain(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)


def linked(target: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / "a").mkdir()
        (root / "real" / "b").mkdir(parents=True)
        (root / "a" / "b").symlink_to(target)

    return make


def a_file(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "b").write_text("")


PLACES = [
    pytest.param(plain, "/a/b/x", "", id="plain"),
    pytest.param(linked("../real/b"), "/a/b/x", "refused", id="a link that stays beneath"),
    pytest.param(linked("/tmp"), "/a/b/x", "refused", id="a link that leads out"),
    pytest.param(linked("/proc/self/root/tmp"), "/a/b/x", "refused", id="a magic link"),
    pytest.param(a_file, "/a/b/x", "refused", id="a file on the way"),
    pytest.param(plain, "/a/../../x", "refused", id="it climbs out"),
    pytest.param(plain, "/a/none/x", "missing", id="not there"),
]


@pytest.mark.parametrize(("make", "path", "code"), PLACES)
def test_the_walk_follows_no_link_and_stays_beneath_the_root(
    make: Callable[[Path], None], path: str, code: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    assert walk(root, path) == code


@pytest.mark.parametrize("path", ["/a/./b", "/a//b", "/a/../b/c"])
def test_paths_with_dots_or_empty_parts_are_refused(path: str, tmp_path: Path) -> None:
    """The write checks paths itself, as paths to undo come from the journal without other checks."""
    plain(tmp_path)
    with pytest.raises(TaskFault, match="is not a plain path"):
        Files(tmp_path).put(path, CONTENT)


def test_folders_swapped_during_a_write_do_not_redirect_it(tmp_path: Path) -> None:
    """A user with write access to the parent repeatedly swaps a folder with a link; every write goes to the folder or is
    refused."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a" / "b").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "x").write_text("untouched")
    link, folder, aside = root / "a" / "link", root / "a" / "b", root / "a" / "aside"
    link.symlink_to(elsewhere)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            folder.rename(aside)
            link.rename(folder)
            folder.rename(link)
            aside.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        codes = {walk(root, "/a/b/x") if number % 2 else gone(root) for number in range(200)}
    finally:
        over.set()
        swapping.join()
    assert codes <= {"", "refused", "missing"}
    assert [path.name for path in elsewhere.iterdir()] == ["x"]
    assert (elsewhere / "x").read_text() == "untouched"


def gone(root: Path) -> str:
    try:
        Files(root).put("/a/b/x", NONE)
    except TaskFault as fault:
        return fault.code
    return ""


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    """The difference of a hard link in a listed folder would show a file of a folder that the policy does not list."""
    (tmp_path / "listed").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "listed" / "x").hardlink_to(secret)
    for attempt in (Files(tmp_path).fact, Files(tmp_path).original):
        with pytest.raises(TaskFault, match="has 2 names"):
            attempt("/listed/x")
    assert walk(tmp_path, "/listed/x") == "refused"
    assert secret.read_text() == "secret"
