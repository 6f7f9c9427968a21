"""Temporary directories that are locked while a process uses them, and removed by a later process otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proveout.core import directories


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path


def left_behind(temporary: Path, name: str = "proveout-agents-x") -> Path:
    path = temporary / name
    path.mkdir(mode=0o700)
    (path / "file").write_text("x")
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
    (temporary / "proveout-agents-file").write_text("x")
    readable = left_behind(temporary, "proveout-explain-open")
    readable.chmod(0o755)
    assert directories.sweep() == ()
    assert all((path / "file").exists() for path in (others, elsewhere, readable))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a directory of another user")
def test_a_directory_of_another_user_stays(temporary: Path) -> None:
    left = left_behind(temporary)
    os.chown(left, 65534, 65534)
    assert directories.sweep() == () and left.exists()
