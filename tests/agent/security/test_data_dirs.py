"""Data folders of a run and database files that a dsn names: the coordinator's choice only if the policy of the host allows it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from policy_attacks import policy_of

from proveout.agent.daemon.handlers import TABLE
from proveout.agent.errors import TaskFault
from proveout.agent.security import data_dirs, policy_file
from proveout.agent.security.policy import NOTHING, Policy
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import FactsRead, SystemStarted
from proveout.proto.wire.tasks import (
    Endpoint,
    InspectSystem,
    ReadFacts,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    TaskSpec,
)

LITE = System(name="lite", engine="sqlite", host="h", provision="embedded")


def at(tmp_path: Path, policy: Policy) -> Any:
    return SimpleNamespace(policy=policy, work_dir=tmp_path / "state" / "work-1")


def root(context: Any, wanted: str) -> Path:
    return data_dirs.data_root(context.policy, context.work_dir, wanted)


def localized(context: Any, spec: TaskSpec) -> TaskSpec:
    return data_dirs.localized(context.policy, context.work_dir, spec)


@pytest.mark.parametrize("wanted", ["/etc/systemd/system", "/srv/../etc", "relative", "/srv/runs/x"])
def test_without_a_policy_the_agent_uses_a_folder_of_its_own(wanted: str, tmp_path: Path) -> None:
    context = at(tmp_path, NOTHING)
    own = root(context, wanted)
    assert own.parent == tmp_path / "state" / "systems"
    assert own == root(context, wanted), "a resume finds it again"
    assert own != root(context, wanted + "2")


def test_a_listed_folder_and_the_child_of_a_run_use_the_wanted_folder(tmp_path: Path) -> None:
    listed = Policy(source="/etc/proveout/policy.yaml", paths=("/srv/runs",))
    assert root(at(tmp_path, listed), "/srv/runs/one") == Path("/srv/runs/one")
    assert root(at(tmp_path, listed), "/srv/other").is_relative_to(tmp_path)
    assert root(at(tmp_path, listed), "/srv/runs/../other").is_relative_to(tmp_path)
    assert root(at(tmp_path, Policy(own=True)), "/anywhere") == Path("/anywhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_listed_folder_with_a_link_is_not_used(tmp_path: Path) -> None:
    listed, victim = tmp_path / "listed", tmp_path / "victim"
    for folder in (listed / "own", victim):
        folder.mkdir(parents=True)
    (listed / "link").symlink_to(victim)
    context = at(tmp_path, Policy(source="/etc/proveout/policy.yaml", paths=(str(listed),)))
    own = tmp_path / "state" / "systems"
    assert root(context, f"{listed}/own/new") == listed / "own" / "new"
    assert root(context, f"{listed}/link").parent == own
    assert root(context, f"{listed}/link/new").parent == own
    (listed / "own").chmod(0o1777)
    assert root(context, f"{listed}/own/new").parent == own
    (listed / "own").chmod(0o755)
    os.chown(listed, 12345, 12345)
    assert root(context, f"{listed}/own").parent == own
    assert root(at(tmp_path, Policy(own=True)), f"{listed}/link") == listed / "link"


def test_every_task_that_names_a_folder_is_checked(tmp_path: Path) -> None:
    context = at(tmp_path, NOTHING)
    own = str(root(context, "/etc"))
    named: tuple[TaskSpec, ...] = (
        StartSystem(system=LITE, data_root="/etc"),
        StopSystem(system="lite", data_root="/etc", remove=True),
        SnapshotSystem(system=LITE, data_root="/etc", action="save"),
    )
    for spec in named:
        assert cast(Any, localized(context, spec)).data_root == own
    nowhere = localized(context, StartSystem(system=LITE, data_root=""))
    assert data_dirs.is_own(context.work_dir, Path(cast(Any, nowhere).data_root)), "not the agent's current directory"
    facts = localized(context, ReadFacts(directories=(("lite", "/etc"),)))
    assert facts == ReadFacts(directories=(("lite", own),))


async def test_a_coordinator_cannot_create_or_remove_folders(task_context: Any, tmp_path: Path) -> None:
    """All tasks in a permanent agent: a system is started, inspected, stopped and removed."""
    task_context.policy = Policy(provision=("sqlite",))
    task_context.work_dir = tmp_path / "state" / "work-1"
    task_context.work_dir.mkdir(parents=True)
    wanted = tmp_path / "wanted"
    started = await TABLE[StartSystem](task_context, StartSystem(system=LITE, data_root=str(wanted)))
    assert isinstance(started, SystemStarted)
    assert not wanted.exists()
    own = root(task_context, str(wanted))
    assert (own / "lite").is_dir()
    found = await TABLE[ReadFacts](task_context, ReadFacts(directories=(("lite", str(wanted)),)))
    assert isinstance(found, FactsRead)
    await TABLE[StopSystem](task_context, StopSystem(system="lite", data_root=str(wanted), remove=True))
    assert not own.exists()
    mine = tmp_path / "wanted" / "lite"
    mine.mkdir(parents=True)
    (mine / "system.json").write_text("{}")
    await TABLE[StopSystem](task_context, StopSystem(system="lite", data_root=str(wanted), remove=True))
    assert (mine / "system.json").exists()


# ---- database files --------------------------------------------------------------------------------------------------

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


def test_every_task_on_a_named_file_is_checked(file: Path, tmp_path: Path) -> None:
    system = System(name="shop", engine="sqlite", host="h", dsn=str(file))
    specs: tuple[TaskSpec, ...] = (
        InspectSystem(endpoint=end(file)),
        SnapshotSystem(system=system, data_root="", action="restore"),
    )
    for spec in specs:
        with pytest.raises(TaskFault, match="is not allowed on this host"):
            localized(at(tmp_path, NOTHING), spec)
        localized(at(tmp_path, listing(file)), spec)


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
    found = policy_of(tmp_path, "database_files: [/data/shop.db, /srv/databases]")
    assert found.allows_database_file("/srv/databases/x/y.db")
    assert not found.allows_path("/data/shop.db"), "plans may open it, not write files there"
    assert "/data/shop.db, /srv/databases" in policy_file.describe(found)
    for wrong in ("/", "data/x.db", "/etc/passwd"):
        with pytest.raises(ProveoutError, match="policy is not valid"):
            policy_of(tmp_path, f"database_files: [{wrong}]")
