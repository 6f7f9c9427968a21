"""Data folders of a run's systems and tools on a host: the coordinator's choice only if the policy of the host allows
it.

Flow: a task -> `localized(policy, work_dir, spec)` -> the same task with folders that this agent may use. An agent that
is the child of a run uses the folder of the run. So does an agent whose policy lists the folder, if no symbolic link is
on the path and no other user can put one there. Any other agent uses a folder below its own state directory, named by a
hash of the coordinator's path. Without this, any user who can run plans could create folders, and remove files,
anywhere on the host as root.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

from proveout.agent.engines.embedded.data_store import ELSEWHERE, STORE_PREFIX
from proveout.agent.errors import TaskFault
from proveout.agent.security import user_files
from proveout.agent.security.policy import Policy, is_beneath, is_plain_path
from proveout.core.path_trust import is_link_free
from proveout.dsl import engines
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

FOLDER = "systems"


def localized(policy: Policy, work_dir: Path, spec: TaskSpec) -> TaskSpec:
    """The task with folders of this agent; `work_dir` is the session's. TaskFault `refused` for a foreign file in place
    of a provisioned one.
    """
    for end in endpoints(spec):
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


def endpoints(spec: TaskSpec) -> tuple[Endpoint, ...]:
    """The systems of a task."""
    several: tuple[Endpoint, ...] = getattr(spec, "endpoints", ())
    return (*several, *(getattr(spec, name) for name in ("endpoint", "source", "sink") if hasattr(spec, name)))


def _check_file(policy: Policy, work_dir: Path, end: Endpoint) -> None:
    """A system that is a file lies in a folder of an agent if an agent has made it, so that a coordinator cannot name
    another file; else the policy lists it."""
    if not end.provisioned:
        user_files.require(policy, end)
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


def remove_leftovers(spec: StopSystem) -> None:
    """Remove the rest of a system without data from the agent's own folder: its log, and the folder if it is empty
    then.
    """
    shutil.rmtree(Path(spec.data_root) / spec.system, ignore_errors=True)
    with contextlib.suppress(OSError):
        Path(spec.data_root).rmdir()
