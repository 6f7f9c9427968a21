"""`tool` stages: a pattern with what overrides it -> the job that fio does on each host, checked as far as a plan can
be.

Source of the patterns: the four Iometer patterns of the storage study (4k random read; 8k random, 70 % read; 1 MiB
sequential read; 1 MiB sequential write).
"""

from __future__ import annotations

from typing import Protocol

from proveout.dsl.plan.fio_job import FioJob
from proveout.dsl.plan.stages import Limits
from proveout.dsl.rules.host_rules import fio_problems
from proveout.dsl.schema import stage_models

_MIB = 1024 * 1024
PATTERNS = {
    "random-read-4k": (True, 4096, 1.0),
    "mixed-8k-70-30": (True, 8192, 0.7),
    "sequential-read-1m": (False, _MIB, 1.0),
    "sequential-write-1m": (False, _MIB, 0.0),
}
"""Pattern -> (random, bytes of an I/O, share of reads)."""


class _Problem(Protocol):
    def __call__(self, message: str, *path: str | int, hint: str = "") -> None: ...


def tool_job(entry: stage_models.ToolEntry, problem: _Problem) -> FioJob | None:
    """The job of a stage; None when a problem was noted."""
    random, block, reads = PATTERNS[entry.pattern]
    random = random if entry.random is None else entry.random
    block = block if entry.block is None else entry.block
    target = entry.target or stage_models.ToolTarget.model_validate({})
    job = FioJob(
        random=random,
        block_bytes=block,
        read_fraction=reads if entry.read is None else entry.read,
        jobs=entry.jobs,
        size_bytes=entry.size,
        direct=entry.direct,
        directory=target.directory or "",
        devices=tuple(target.devices or ()),
        destructive=entry.destructive,
    )
    return job if _target(target, problem) and _job(job, problem) else None


def tool_limits(entry: stage_models.ToolLimitsEntry) -> Limits:
    """The limits of a tool; those of a load's threads do not concern it."""
    return Limits(
        errors_fraction_max=entry.errors,
        start_skew_ms_max=entry.start_skew * 1e3,
        tps_slope_fraction_max=entry.iops_slope,
        tps_cv_max=entry.iops_cv,
        pause_s_max=entry.pause,
        void_fraction_max=entry.void,
    )


def _target(target: stage_models.ToolTarget, problem: _Problem) -> bool:
    if (target.directory is None) == (target.devices is None) and target.model_fields_set:
        problem("a tool works in a directory or on devices", "target", hint="leave one of them out")
        return False
    return True


def _job(job: FioJob, problem: _Problem) -> bool:
    """Whether an agent would take the job."""
    found = list(fio_problems(job))
    for objection in found:
        problem(objection.message, *objection.at, hint=objection.way_out)
    return not found
