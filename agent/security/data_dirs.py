"""Files of a host that tasks may use: data folders of systems and tools, and database files that a dsn names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.data_store import ELSEWHERE, STORE_PREFIX
from proveout.agent.engines.embedded.workspace import POLL_S, PREDECESSOR_S, is_locked
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy, is_beneath, is_plain_path
from proveout.core.path_trust import is_link_free, walk
from proveout.dsl import engines
from proveout.dsl.rules import settings
from proveout.proto.wire.tasks import (
    Endpoint,
    PrepareFio,
    ReadFacts,
    RunFio,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    TaskSpec,
)

# A file that is missing is a fault here, so that no later step makes it.


def path_of(end: Endpoint) -> Path:
    """The path of the file of an endpoint."""
    return Path(settings.split_dsn(end.dsn)[0] if end.engine == "duckdb" else end.dsn)


def require(policy: Policy, end: Endpoint) -> None:
    """TaskFault `refused` or `missing` if the file may not be opened, or is not there."""
    path = path_of(end)
    policy.allows_database_file(str(path)).require()
    what = f"the database file {path} of system {end.system!r}"
    if "\0" in str(path):
        raise TaskFault("refused", f"the path of the database file {str(path)!r} cannot be resolved")
    steps = list(walk(path))
    for at, found in steps:
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise TaskFault(
                "refused",
                f"{what} is behind the symbolic link {at}",
                way_out=f"write the path without links into the dsn: {os.path.realpath(path)}",
            )
    at, found = steps[-1]
    if found is None:
        raise _not_found(what, path, at)
    if not stat.S_ISREG(found.st_mode):
        raise TaskFault("refused", f"{what} is not a regular file", way_out="name a database file in the dsn")
    if not policy.own:
        _require_safe_folders(what, steps[:-1], found.st_uid)


def _not_found(what: str, path: Path, at: Path) -> TaskFault:
    """The fault for a file that cannot be found: it is missing, or a folder is closed to the agent."""
    if os.access(at.parent, os.X_OK):
        missing = "" if at == path else f": there is no {at}"
        way_out = (
            "correct the path in the dsn, or make the file; proveout makes only systems with `provision: embedded`"
        )
        return TaskFault("missing", f"{what} does not exist{missing}", way_out=way_out)
    return TaskFault("refused", f"{what} cannot be reached: the agent's user cannot enter {at.parent}")


def _require_safe_folders(what: str, folders: list[tuple[Path, os.stat_result | None]], owner: int) -> None:
    """TaskFault `refused` if a user other than root, the agent's user and the owner can replace the file."""
    for at, found in folders:
        assert found is not None  # noqa: S101 - the file below it was found
        loose = found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX
        if loose or found.st_uid not in (0, os.geteuid(), owner):
            raise TaskFault(
                "refused",
                f"other users can put another file in the place of {what}, through {at}",
                way_out=f"let only the file's owner write there: chown OWNER {at}; chmod go-w {at}",
            )


FOLDER = "systems"
REMOVAL = "removal-"


def localized(policy: Policy, work_dir: Path, spec: TaskSpec) -> TaskSpec:
    """The task with folders of this agent; `work_dir` is the session's. TaskFault `refused` for a foreign file in place
    of a provisioned one.
    """
    for end in spec.asked:
        if engines.of(end.engine).in_files:
            _check_file(policy, work_dir, end)
    if isinstance(spec, SnapshotSystem) and spec.system.is_named_file:
        named = Endpoint(system=spec.system.name, engine=spec.system.engine, dsn=str(spec.system.dsn))
        _check_file(policy, work_dir, named)
    match spec:
        case StartSystem() | StopSystem() | SnapshotSystem():
            return replace(spec, data_root=str(data_root(policy, work_dir, spec.data_root)))
        case PrepareFio() | RunFio() if spec.data_root:
            return replace(spec, data_root=str(data_root(policy, work_dir, spec.data_root)))
        case ReadFacts(directories=directories):
            local = tuple((system, str(data_root(policy, work_dir, wanted))) for system, wanted in directories)
            return replace(spec, directories=local)
    return spec


def _check_file(policy: Policy, work_dir: Path, end: Endpoint) -> None:
    """A system that is a file lies in a folder of an agent if an agent has made it, so that a coordinator cannot name
    another file; else the policy lists it."""
    if not end.provisioned:
        require(policy, end)
    elif not _is_of_an_agent(policy, work_dir, end.dsn):
        raise TaskFault(
            "refused",
            f"the file {end.dsn!r} of system {end.system!r} was not made by an agent of this host",
            way_out="let the plan start the system on this host in the same run",
        )


def _is_of_an_agent(policy: Policy, work_dir: Path, file: str) -> bool:
    if policy.own:
        return True
    if not is_plain_path(file):
        return False
    listed = bool(policy.allows_path(file)) and is_link_free(Path(file))
    return listed or is_beneath(file, str(_own(work_dir))) or file.startswith(f"{ELSEWHERE}/{STORE_PREFIX}")


def data_root(policy: Policy, work_dir: Path, wanted: str) -> Path:
    """The local folder for the coordinator's folder `wanted`."""
    if policy.own or (policy.allows_path(f"{wanted}/{FOLDER}") and is_link_free(Path(wanted, FOLDER))):
        return Path(wanted)
    return _own(work_dir) / hashlib.sha256(wanted.encode()).hexdigest()[:16]


def is_own(work_dir: Path, folder: Path) -> bool:
    """Whether the agent keeps this folder for a run, and removes it when it is empty."""
    return folder.parent == _own(work_dir)


def _own(work_dir: Path) -> Path:
    return work_dir.parent / FOLDER


def remove_leftovers(folder: Path) -> None:
    """Remove the rest of a system without data from the agent's own folder: its log, and the folder if it is empty
    then.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


@contextlib.contextmanager
def noted(work_dir: Path, removed: Path) -> Iterator[None]:
    """While a system is removed, a link in the session's folder names its folder: when the agent is killed meanwhile,
    its next start removes the rest (`finish_removals`)."""
    note = work_dir / f"{REMOVAL}{removed.name}"
    with contextlib.suppress(OSError):  # on a full disk it is removed all the same
        note.symlink_to(removed)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def finish_removals(work_dir: Path) -> None:
    """Remove the systems that a killed agent was removing in the session with this folder. Blocking: its supervisor may
    still be stopping the server."""
    for note in work_dir.glob(f"{REMOVAL}*"):
        folder, until_s = note.readlink(), time.monotonic() + PREDECESSOR_S
        while folder.is_dir() and is_locked(folder) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        with contextlib.suppress(TaskFault, OSError):  # it cannot be read, or removed: the agent starts all the same
            data_store.remove(folder)
        if is_own(work_dir, folder.parent):
            remove_leftovers(folder)
