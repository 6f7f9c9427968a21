"""Trust in files and folders: whether other users can change or replace a file, by any link or folder on its path; trees
that another user owns, and changes meanwhile, which root gives away and removes without a way out of them; and temporary
directories that are locked while a process uses them, and removed by a later process otherwise."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import thorough

from proveout.core import directories, path_trust
from proveout.core.errors import ProveoutError

USER, OTHER = 61_900, 61_901
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


# ---- paths

OWN_LINKS = {"own/middle": "../own/file", "link": "{base}/own/../own"}
BELONGS = ("{base}/theirs belongs to another user", "chown root {base}/theirs")
WRITES = ("other users can write {base}/sticky", "chmod go-w {base}/sticky")
LINK = ("the link {base}/sticky/link belongs to another user", "chown -h root {base}/sticky/link")


def lay(base: Path, file: str, links: dict[str, str]) -> None:
    """Folders of one's own, of another user, and of all (sticky), with a file, and links in an order; in the last one they
    are another user's."""
    for name in ("own", "theirs", "sticky"):
        (base / name).mkdir()
    (base / "sticky").chmod(0o1777)
    if file:
        (base / file).touch()
    for name, target in links.items():
        (base / name).symlink_to(target.format(base=base))
        if name.startswith("sticky/"):
            os.lchown(base / name, USER, USER)


@needs_root
@pytest.mark.parametrize(
    ("file", "links", "path", "expected"),
    [
        ("own/file", {}, "own/file", None),
        ("theirs/file", {}, "theirs/file", BELONGS),
        ("", {}, "theirs/none/file", BELONGS),
        ("", {}, "sticky/file", WRITES),
        ("", {"own/link": "{base}/sticky/file"}, "own/link", WRITES),
        ("sticky/file", {}, "sticky/file", None),
        ("own/file", {"sticky/link": "{base}/own/file"}, "sticky/link", LINK),
        ("own/file", {"theirs/middle": "{base}/own/file", "link": "theirs/middle"}, "link", BELONGS),
        ("own/file", {"theirs/middle": "{base}/own", "link": "{base}/theirs/middle"}, "link/file", BELONGS),
        ("own/file", OWN_LINKS, "link/middle", None),
        ("", {"a": "{base}/b", "b": "{base}/a"}, "a", None),
    ],
)
def test_paths_on_which_other_users_can_replace_the_file(
    file: str, links: dict[str, str], path: str, expected: tuple[str, str] | None, tmp_path: Path
) -> None:
    lay(tmp_path, file, links)
    os.chown(tmp_path / "theirs", USER, USER)
    found = path_trust.exposure_above(tmp_path / path)
    exposure = None if found is None else (found.what, found.way_out)
    assert exposure == (None if expected is None else tuple(text.format(base=tmp_path) for text in expected))


def test_names_of_a_path_include_all_links_on_it(tmp_path: Path) -> None:
    lay(tmp_path, "own/file", OWN_LINKS)
    names = ("link/middle", "link", "own/middle", "own/file")
    assert path_trust.names_of(tmp_path / "link/middle") == tuple(f"{tmp_path}/{name}" for name in names)
    assert path_trust.names_of(tmp_path, tmp_path) == (str(tmp_path),)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProveoutError, match="is not a regular file"):
        path_trust.check_own_file(tmp_path, "ca.pem", "")
    path_trust.check_own_file(tmp_path / "none", "ca.pem", "")


@needs_root
@pytest.mark.parametrize("name", ["", "-wal", "-shm", "-journal"])
def test_an_undo_journal_includes_the_auxiliary_files_of_sqlite(name: str, tmp_path: Path) -> None:
    journal = tmp_path / "undo.sqlite"
    journal.touch()
    path_trust.check_undo_journal(journal)
    (tmp_path / f"undo.sqlite{name}").touch()
    os.chown(tmp_path / f"undo.sqlite{name}", USER, USER)
    with pytest.raises(ProveoutError, match="the undo journal belongs to another user"):
        path_trust.check_undo_journal(journal)


@needs_root
def test_an_unprivileged_agent_trusts_its_own_user_and_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group-writable file is trusted when the group has no other members, as on many systems."""
    folder, file = tmp_path / "state", tmp_path / "state" / "journal.sqlite"
    folder.mkdir()
    file.touch()
    for path in (folder, file):
        os.chown(path, USER, USER)
        path.chmod(path.stat().st_mode | 0o020)
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me", pw_uid=USER, pw_gid=USER))
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="me", gr_mem=[]))
    path_trust.check_own_journal(file, "the journal", "")
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="me", gr_mem=["you"]))
    with pytest.raises(ProveoutError, match="other users can write the folder of the journal"):
        path_trust.check_own_journal(file, "the journal", "")


# ---- trees of another user

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


@needs_root
@pytest.mark.thorough
def test_nothing_outside_is_given_beside_a_racer(tree: Path, outside: Path) -> None:
    with racing(tree, outside):
        for _ in range(ROUNDS):
            assert path_trust.give_away(tree, 0, 0) == []
            assert owners(tree) == {0}
            assert path_trust.give_away(tree, USER, USER) == []
    assert owners(outside) == {0}
    assert tree.stat().st_mode & 0o777 == 0o750


@needs_root
def test_a_folder_is_removed_beside_a_racer(tmp_path: Path, outside: Path) -> None:
    for number in range(5):
        folder = tmp_path / f"tree{number}"
        folder.mkdir()
        os.chown(folder, USER, USER)
        with racing(folder, outside):
            path_trust.remove(folder)
            assert not folder.exists()
    assert (outside / "inner" / "secret").read_text() == "root's"


@needs_root
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


@needs_root
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


@needs_root
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


# ---- temporary directories


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left_behind(temporary: Path, name: str = "proveout-agents-x") -> Path:
    path = temporary / name
    path.mkdir(mode=0o700)
    (path / "file").touch()
    return path


def test_it_is_private_and_removed_with_its_owner_or_by_the_next(temporary: Path) -> None:
    with directories.make("agents") as path:
        assert path.stat().st_mode & 0o777 == 0o700
        assert directories.sweep() == () and path.exists()
    assert list(temporary.iterdir()) == []
    left = left_behind(temporary)
    assert directories.sweep() == (left,) and not left.exists()


def test_a_child_with_the_inherited_descriptor_keeps_the_lock_after_its_parent(temporary: Path) -> None:
    private = directories.make("agents")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(private.descriptor,))
    try:
        os.close(private.descriptor)  # as when the starter is killed
        assert directories.sweep() == () and private.path.exists()
    finally:
        child.kill()
        child.communicate()
    assert directories.sweep() == (private.path,)


def test_other_files_and_directories_stay(temporary: Path) -> None:
    others = left_behind(temporary, "proveout-other-x")
    elsewhere = left_behind(temporary, "elsewhere")
    (temporary / "proveout-agents-link").symlink_to(elsewhere)
    (temporary / "proveout-agents-file").touch()
    readable = left_behind(temporary, "proveout-explain-open")
    readable.chmod(0o755)
    assert directories.sweep() == ()
    assert all((path / "file").exists() for path in (others, elsewhere, readable))


@needs_root
def test_a_directory_of_another_user_stays(temporary: Path) -> None:
    left = left_behind(temporary)
    os.chown(left, OTHER, OTHER)
    assert directories.sweep() == () and left.exists()
