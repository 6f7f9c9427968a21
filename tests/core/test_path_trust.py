"""Trust in files: whether other users can change or replace a file, by any link or folder on its path."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from proveout.core import path_trust
from proveout.core.errors import ProveoutError

THEIRS = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def plain(base: Path) -> Path:
    (base / "own" / "file").write_text("")
    return base / "own" / "file"


def folder_of_others(base: Path) -> Path:
    (base / "theirs" / "file").write_text("")
    return base / "theirs" / "file"


def missing_in_a_folder_of_others(base: Path) -> Path:
    return base / "theirs" / "none" / "file"


def missing_in_a_sticky_folder(base: Path) -> Path:
    return base / "sticky" / "file"


def missing_below_a_link(base: Path) -> Path:
    (base / "own" / "link").symlink_to(base / "sticky" / "file")
    return base / "own" / "link"


def in_a_sticky_folder(base: Path) -> Path:
    (base / "sticky" / "file").write_text("")
    return base / "sticky" / "file"


def link_of_others(base: Path) -> Path:
    link = base / "sticky" / "link"
    link.symlink_to(plain(base))
    os.lchown(link, THEIRS, THEIRS)
    return link


def chain_through_others(base: Path) -> Path:
    (base / "theirs" / "middle").symlink_to(plain(base))
    (base / "link").symlink_to("theirs/middle")
    return base / "link"


def folders_through_others(base: Path) -> Path:
    (base / "theirs" / "middle").symlink_to(plain(base).parent)
    (base / "link").symlink_to(base / "theirs" / "middle")
    return base / "link" / "file"


def own_links(base: Path) -> Path:
    (base / "own" / "middle").symlink_to("../own/file")
    (base / "link").symlink_to(base / "own" / ".." / "own")
    plain(base)
    return base / "link" / "middle"


def links_in_a_circle(base: Path) -> Path:
    (base / "a").symlink_to(base / "b")
    (base / "b").symlink_to(base / "a")
    return base / "a"


BELONGS = ("{base}/theirs belongs to another user", "chown root {base}/theirs")
WRITES = ("other users can write {base}/sticky", "chmod go-w {base}/sticky")


@needs_root
@pytest.mark.parametrize(
    ("lay", "expected"),
    [
        (plain, None),
        (folder_of_others, BELONGS),
        (missing_in_a_folder_of_others, BELONGS),
        (missing_in_a_sticky_folder, WRITES),
        (missing_below_a_link, WRITES),
        (in_a_sticky_folder, None),
        (link_of_others, ("the link {base}/sticky/link belongs to another user", "chown -h root {base}/sticky/link")),
        (chain_through_others, BELONGS),
        (folders_through_others, BELONGS),
        (own_links, None),
        (links_in_a_circle, None),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_paths_on_which_other_users_can_replace_the_file(
    lay: Callable[[Path], Path], expected: tuple[str, str] | None, tmp_path: Path
) -> None:
    for name in ("own", "theirs", "sticky"):
        (tmp_path / name).mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    os.chown(tmp_path / "theirs", THEIRS, THEIRS)
    found = path_trust.exposure_above(lay(tmp_path))
    exposure = None if found is None else (found.what, found.way_out)
    assert exposure == (None if expected is None else tuple(text.format(base=tmp_path) for text in expected))


def test_names_of_a_path_include_all_links_on_it(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    link = own_links(tmp_path)
    assert path_trust.names_of(link) == (
        str(link),
        f"{tmp_path}/link",
        f"{tmp_path}/own/middle",
        f"{tmp_path}/own/file",
    )
    assert path_trust.names_of(tmp_path, tmp_path) == (str(tmp_path),)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProveoutError, match="is not a regular file"):
        path_trust.check_own_file(tmp_path, "ca.pem", "")
    path_trust.check_own_file(tmp_path / "none", "ca.pem", "")


@needs_root
@pytest.mark.parametrize("name", ["", "-wal", "-shm", "-journal"])
def test_an_undo_journal_includes_the_auxiliary_files_of_sqlite(name: str, tmp_path: Path) -> None:
    journal = tmp_path / "undo.sqlite"
    journal.write_text("")
    path_trust.check_undo_journal(journal)
    (tmp_path / f"undo.sqlite{name}").write_text("")
    os.chown(tmp_path / f"undo.sqlite{name}", THEIRS, THEIRS)
    with pytest.raises(ProveoutError, match="the undo journal belongs to another user"):
        path_trust.check_undo_journal(journal)


@needs_root
def test_an_unprivileged_agent_trusts_its_own_user_and_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group-writable file is trusted when the group has no other members, as on many systems."""
    folder, file = tmp_path / "state", tmp_path / "state" / "journal.sqlite"
    folder.mkdir()
    file.write_text("")
    for path in (folder, file):
        os.chown(path, THEIRS, THEIRS)
        path.chmod(path.stat().st_mode | 0o020)
    monkeypatch.setattr(os, "geteuid", lambda: THEIRS)
    me = SimpleNamespace(pw_name="me", pw_uid=THEIRS, pw_gid=THEIRS)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="me", gr_mem=[]))
    path_trust.check_own_journal(file, "the journal", "")
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="me", gr_mem=["you"]))
    with pytest.raises(ProveoutError, match="other users can write the folder of the journal"):
        path_trust.check_own_journal(file, "the journal", "")
