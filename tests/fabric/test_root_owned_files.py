"""Database work never runs as root: a root agent refuses files that only root can use, for each kind of task."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hostile_tasks import HONEST

from proveout.agent.daemon.handlers import TABLE
from proveout.agent.engines.driver_sql import DriverAdapter
from proveout.agent.errors import TaskFault
from proveout.agent.load import ray_task
from proveout.agent.sandbox.privileges import Privileges
from proveout.agent.security import data_dirs
from proveout.agent.security.policy import NOTHING, Policy
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire import tasks
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent has privileges to keep from databases")
USER = 61234


@dataclass(frozen=True, kw_only=True)
class RootFile:
    """A dsn with which SQL that a root agent runs would reach a file or a folder of root: below a folder that every user
    can enter, with `roots/victim.db` of root and with `mine` of a user, in which there are `links`.

    `says`: part of the refusal by `privileges`; `fault`: the beginning of that of a task, which `data_dirs` checks
    before. An attempt has succeeded when a process opens the dsn as root, or when something in `roots` has changed."""

    name: str
    dsn: str
    says: str
    fault: str = ""
    links: Mapping[str, str] = field(default_factory=dict)

    def make(self, folder: Path) -> str:
        """Return the dsn of its file."""
        mine = folder / "mine"
        mine.mkdir(exist_ok=True)
        os.chown(mine, USER, USER)
        for name, to in self.links.items():
            (mine / name).symlink_to(folder / to)
            os.chown(mine / name, USER, USER, follow_symlinks=False)
        return f"{folder}/{self.dsn}"


ROOTS, NEW, BEHIND = "belongs to root", "would be made in", "behind the symbolic link"
FILES = (
    RootFile(name="file", dsn="roots/victim.db", says=ROOTS),
    RootFile(name="new file", dsn="roots/new.db", says=NEW, fault="does not exist"),
    RootFile(name="link to a file", dsn="mine/x", links={"x": "roots/victim.db"}, says=ROOTS, fault=BEHIND),
    RootFile(name="link to no file", dsn="mine/x", links={"x": "roots/new.db"}, says=NEW, fault=BEHIND),
    RootFile(name="link on the way", dsn="mine/x/new.db", links={"x": "roots"}, says=NEW, fault=BEHIND),
    RootFile(name="dots", dsn="mine/../roots/victim.db", says=ROOTS, fault="belongs to root|without `.`"),
    RootFile(
        name="circle", dsn="mine/a", links={"a": "mine/b", "b": "mine/a"}, says="cannot be resolved", fault=BEHIND
    ),
    RootFile(
        name="a NUL", dsn="roots/victim.db\0.db", says="cannot be resolved", fault="cannot be resolved|without `.`"
    ),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="proveout-test-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        (Path(name) / "roots").mkdir(mode=0o755)
        (Path(name) / "roots" / "victim.db").touch(mode=0o644)
        yield Path(name)


def work(end: Endpoint) -> list[tasks.TaskSpec]:
    """One task of every kind that starts a process for one system."""
    kinds = (
        tasks.InspectSystem, tasks.RunSql, tasks.Checkpoint, tasks.RestoreCopy, tasks.CheckInvariants,
        tasks.PopulateSystem, tasks.RunLoad,
    )  # fmt: skip
    specs = [dataclasses.replace(HONEST[kind], endpoint=end) for kind in kinds]
    pairs = [
        dataclasses.replace(HONEST[kind], source=end, sink=end) for kind in (tasks.LinkSystems, tasks.CompareSystems)
    ]
    sizes = tasks.RunCapture(capture=Capture(name="c", kind="sizes", every_s=1.0, system="db"), endpoints=(end,))
    return [*specs, *pairs, sizes]


@pytest.mark.escape
@pytest.mark.parametrize("case", FILES, ids=lambda case: case.name)
@pytest.mark.parametrize("who", ["listed", "child of a run"])
async def test_tasks_on_a_file_of_root_are_refused(case: RootFile, who: str, folder: Path, task_context: Any) -> None:
    """A user's file has a dsn: of SQLite, and of drivers of other packages, whose files only `privileges` checks."""
    listed = Policy(source="/etc/lab/policy.yaml", paths=(str(folder),))
    task_context.policy = listed if who == "listed" else Policy(own=True)
    end = Endpoint(system="db", engine="sqlite", dsn=case.make(folder))
    before = children()
    for spec in work(end):
        with pytest.raises(TaskFault, match=case.fault or case.says) as caught:
            await TABLE[type(spec)](task_context, spec)
        assert caught.value.code in ("refused", "missing"), spec
    with pytest.raises(TaskFault, match=case.says):
        await ray_task._formed(task_context, dataclasses.replace(HONEST[tasks.RunLoad], endpoint=end))
    assert children() == before
    assert (folder / "roots" / "victim.db").stat().st_size == 0
    assert sorted(path.name for path in (folder / "roots").iterdir()) == ["victim.db"]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "acme"])
def test_engines_in_files_do_not_run_as_root(engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`acme` is the driver of another package with `in_files`."""
    monkeypatch.setattr(DriverAdapter, "in_files", property(lambda adapter: adapter._engine == "acme"))
    for case in FILES[:2]:
        with pytest.raises(TaskFault, match=case.says) as caught:
            Privileges.for_engine(engine, case.make(folder), Policy(own=True))
    assert f"chown USER {folder}/roots" in caught.value.way_out
    (folder / "ro ots").mkdir()
    with pytest.raises(TaskFault, match="belongs to root") as caught:
        Privileges.for_engine(engine, str(folder / "ro ots" / "new.db"), Policy(own=True))
    assert f"chown USER '{folder}/ro ots'" in caught.value.way_out
    chosen = Privileges.for_engine(engine, ":memory:", Policy(own=True))
    assert chosen == Privileges.for_engine("postgres")


def test_a_file_of_group_root_does_not_give_its_user_that_group(folder: Path) -> None:
    file = folder / "x.db"
    file.touch()
    os.chown(file, USER, 0)
    chosen = Privileges.for_engine("sqlite", str(file), Policy(own=True))
    assert (chosen.uid, chosen.gid, chosen.group) == (USER, USER, USER)


def test_a_ray_cluster_of_root_is_refused() -> None:
    with pytest.raises(TaskFault, match="no load runs as root") as caught:
        Privileges.for_user(0)
    assert caught.value.code == "refused"
    assert Privileges.for_user(USER).uid == USER


@pytest.mark.parametrize(
    "argv",
    [
        ("proveout.agent.load.populate_worker", "-", "sqlite"),
        ("proveout.agent.load.worker", "-", "sqlite"),
        ("proveout.agent.sandbox.helper_main", "-"),
        pytest.param(("proveout.agent.load.ray_driver", "-", "127.0.0.1:1"), marks=pytest.mark.soak),
        pytest.param(("proveout.agent.load.ray_node", "-"), marks=pytest.mark.soak),
    ],
    ids=lambda argv: argv[0],
)
async def test_database_processes_exit_when_they_run_as_root(argv: tuple[str, ...]) -> None:
    """The second safeguard, independent of the privileges on the command line."""
    command = [sys.executable, "-m", argv[0], str(os.getpid()), *argv[1:]]
    done = await asyncio.to_thread(subprocess.run, command, input=b"", capture_output=True, timeout=120, check=False)
    assert done.returncode != 0
    assert b"this process must not run as root" in done.stderr


# ---- endpoints marked as provisioned by the agent --------------------------------------------------------------------

NOT_OURS = ("/etc/passwd", "/var/lib/proveout/journal.sqlite", "/var/tmp/../../etc/x.db", "")


@pytest.mark.parametrize("dsn", NOT_OURS)
def test_a_provisioned_file_must_be_in_a_data_directory_of_an_agent(dsn: str, tmp_path: Path) -> None:
    work_dir = tmp_path / "state" / "work-1"
    end = Endpoint(system="db", engine="sqlite", dsn=dsn, provisioned=True)
    for spec in work(end):
        with pytest.raises(TaskFault, match="was not made by an agent of this host"):
            data_dirs.localized(NOTHING, work_dir, spec)
    own = dataclasses.replace(end, dsn=f"{tmp_path}/state/systems/0123456789abcdef/db/store/files/db.sqlite")
    for policy, of in ((NOTHING, own), (Policy(own=True), end)):
        task = tasks.Checkpoint(endpoint=of)
        assert data_dirs.localized(policy, work_dir, task) == task
