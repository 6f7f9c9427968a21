"""Where the files of a run's systems and tools lie on a host: where the coordinator says only if the host's owner says so too.

Flow: a task -> `placed(context, spec)` -> the same task with folders that this agent may use. An agent that is the child of a run takes
the run's directory, and so does one whose policy lists the folder, if no link and nobody else can lead it elsewhere. Any other keeps such
files in a folder of its own state directory, found again by the name that the coordinator gave; else whoever may run plans could have
folders made, and files removed, anywhere as root.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext, TaskFault
from proveout.agent.engines.embedded.data_store import ELSEWHERE, STORE_PREFIX
from proveout.agent.security.path_trust import is_straight
from proveout.agent.security.policy import is_beneath, is_plain_path
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


def placed(context: TaskContext, spec: TaskSpec) -> TaskSpec:
    """The task as this agent does it. TaskFault `refused` for a file that is said to be of a system started here, and cannot be."""
    _check_files(context, spec)
    match spec:
        case StartSystem() | StopSystem() | SnapshotSystem():
            return replace(spec, data_root=str(root(context, spec.data_root)))
        case PrepareFio() | RunFio() if spec.data_root:
            return replace(spec, data_root=str(root(context, spec.data_root)))
        case ReadFacts(directories=directories):
            return replace(spec, directories=tuple((system, str(root(context, told))) for system, told in directories))
    return spec


def endpoints(spec: TaskSpec) -> tuple[Endpoint, ...]:
    """The systems that a task asks."""
    several: tuple[Endpoint, ...] = getattr(spec, "endpoints", ())
    return (*several, *(getattr(spec, name) for name in ("endpoint", "source", "sink") if hasattr(spec, name)))


def _check_files(context: TaskContext, spec: TaskSpec) -> None:
    """A provisioned system that is a file lies where agents put such files: a coordinator cannot have another one used as if it did."""
    for end in endpoints(spec):
        if engines.of(end.engine).in_files and end.provisioned and not _is_of_an_agent(context, end.dsn):
            raise TaskFault(
                "refused",
                f"{end.dsn!r} of system {end.system!r} is not a file that an agent of this host has made",
                way_out="have the system started on this host in the same run",
            )


def _is_of_an_agent(context: TaskContext, file: str) -> bool:
    policy = context.policy
    if policy.own:
        return True
    if not is_plain_path(file):
        return False
    listed = bool(policy.allows_path(file)) and is_straight(Path(file))
    return listed or is_beneath(file, str(_own(context))) or file.startswith(f"{ELSEWHERE}/{STORE_PREFIX}")


def root(context: TaskContext, told: str) -> Path:
    """The folder for what a coordinator wants in `told`."""
    if context.policy.own or (context.policy.allows_path(f"{told}/{FOLDER}") and is_straight(Path(told, FOLDER))):
        return Path(told)
    return _own(context) / hashlib.sha256(told.encode()).hexdigest()[:16]


def is_own(context: TaskContext, folder: Path) -> bool:
    """Whether it is one that the agent keeps for a run, which goes when it is empty."""
    return folder.parent == _own(context)


def _own(context: TaskContext) -> Path:
    return context.work_dir.parent / FOLDER


def tidy(spec: StopSystem) -> None:
    """Remove what is left in a folder of the agent's own of a system whose data is gone: its log, and the folder with the last."""
    shutil.rmtree(Path(spec.data_root) / spec.system, ignore_errors=True)
    with contextlib.suppress(OSError):
        Path(spec.data_root).rmdir()
