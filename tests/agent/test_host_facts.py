"""Facts of a host, read from the /proc of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proveout.agent import host_facts


def test_the_essential_facts_exist() -> None:
    found = dict(host_facts.facts())
    assert found["kernel"] == os.uname().release
    assert found["cpus"] == os.cpu_count()
    assert {"cpu_model", "memory_bytes", "clock_source", "sysctl.vm.swappiness", "python"} <= found.keys()
    assert list(found) == sorted(found)
    assert all(value not in ("", None) for value in found.values())


@pytest.mark.parametrize("is_bundled", [True, False])
def test_the_version_of_libpq_is_that_of_psycopg(is_bundled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("psycopg.pq")
    assert list(host_facts._bundled_libpq())
    if not is_bundled:
        monkeypatch.setattr(host_facts, "_bundled_libpq", lambda: [("print('no library')", "")])
    assert host_facts._libpq.__wrapped__() == pq.version()


def test_storage_is_that_of_the_nearest_existing_directory(tmp_path: Path) -> None:
    there = dict(host_facts.storage("db", str(tmp_path)))
    assert there["storage.db.filesystem"]
    assert dict(host_facts.storage("db", str(tmp_path / "not" / "yet"))) == there


def test_the_longest_mount_point_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw,noatime 0 0\n/dev/c /data\\040x btrfs rw 0 0\n"
    monkeypatch.setattr(host_facts, "_line", lambda path: mounts.strip())
    assert host_facts._mount("/data/db") == ("xfs", "rw,noatime")
    assert host_facts._mount("/database") == ("ext4", "rw")
    assert host_facts._mount("/data x/db") == ("btrfs", "rw")
