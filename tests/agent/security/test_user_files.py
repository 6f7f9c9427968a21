"""Database files that a dsn names: which of them an agent opens."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.security import data_dirs, policy_file
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint, InspectSystem, SnapshotSystem, TaskSpec

OWN = Policy(own=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "shop.db"
    path.parent.mkdir()
    path.touch()
    return path


def end(path: Path | str) -> Endpoint:
    return Endpoint(system="shop", engine="sqlite", dsn=str(path))


def listing(*paths: Path) -> Policy:
    return Policy(source="/etc/lab/policy.yaml", database_files=tuple(map(str, paths)))


def refusal(policy: Policy, path: Path | str) -> str:
    with pytest.raises(TaskFault) as caught:
        data_dirs.require(policy, end(path))
    return f"{caught.value.code}: {caught.value.what} ({caught.value.way_out})"


def test_a_policy_lists_files_and_folders_and_without_it_none_is_opened(file: Path) -> None:
    for policy in (listing(file), listing(file.parent), OWN):
        data_dirs.require(policy, end(file))
    for policy in (NOTHING, listing(file.parent / "shop"), listing(Path("/srv"))):
        text = refusal(policy, file)
        assert text.startswith(f"refused: opening the database file {file} is not allowed"), text
        assert f"add `- {file}` under `database_files`" in text
    assert "belongs to the agent itself" in refusal(listing(Path("/var/lib")), "/var/lib/proveout/journal.sqlite")


@pytest.mark.parametrize("task", ["inspect", "snapshot"])
def test_every_task_on_a_named_file_is_checked(task: str, file: Path, tmp_path: Path) -> None:
    system = System(name="shop", engine="sqlite", host="h", dsn=str(file))
    specs: dict[str, TaskSpec] = {
        "inspect": InspectSystem(endpoint=end(file)),
        "snapshot": SnapshotSystem(system=system, data_root="", action="restore"),
    }
    with pytest.raises(TaskFault, match="is not allowed on this host"):
        data_dirs.localized(NOTHING, tmp_path / "state" / "work", specs[task])
    data_dirs.localized(listing(file), tmp_path / "state" / "work", specs[task])


def test_links_devices_folders_and_missing_files_are_refused(file: Path) -> None:
    folder = file.parent
    (folder / "link.db").symlink_to(file)
    (folder.parent / "way").symlink_to(folder)
    for path in (folder / "link.db", folder.parent / "way" / "shop.db"):
        text = refusal(OWN, path)
        assert "behind the symbolic link" in text
        assert text.endswith(f"{file})"), "the path without links"
    for path in (Path("/dev/null"), folder):
        assert "is not a regular file" in refusal(OWN, path)
    assert refusal(OWN, folder / "gone.db").startswith(f"missing: the database file {folder}/gone.db of system 'shop'")
    assert f"there is no {folder}/sub" in refusal(OWN, folder / "sub" / "gone.db")
    assert not (folder / "gone.db").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_permanent_agent_opens_no_file_that_another_user_can_replace(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        file = folder / "shop.db"
        file.touch()
        for path in (folder, file):
            os.chown(path, 61234, 61234)
        folder.chmod(0o755)
        data_dirs.require(listing(folder), end(file))
        for mode, owner in ((0o777, 61234), (0o775, 61234), (0o755, 61235)):
            folder.chmod(mode)
            os.chown(folder, owner, owner)
            assert "other users can put another file in the place" in refusal(listing(folder), file)
            data_dirs.require(OWN, end(file))


def test_a_policy_file_lists_database_files(tmp_path: Path) -> None:
    def read(lines: str) -> Any:
        path = tmp_path / "policy.yaml"
        path.write_text(f"policy: 1\n{lines}\n")
        path.chmod(0o644)
        return policy_file.read(path)

    found = read("database_files: [/data/shop.db, /srv/databases]")
    assert found.allows_database_file("/srv/databases/x/y.db")
    assert not found.allows_path("/data/shop.db"), "plans may open it, not write files there"
    assert "/data/shop.db, /srv/databases" in policy_file.describe(found)
    for wrong in ("/", "data/x.db", "/etc/passwd"):
        with pytest.raises(ProveoutError, match="policy is not valid"):
            read(f"database_files: [{wrong}]")
