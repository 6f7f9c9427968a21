"""`tool` stages: a pattern with what overrides it -> the job that fio does on each host, checked as far as a plan can be.

Source of the patterns: the four Iometer patterns of the storage study (4k random read; 8k random, 70 % read; 1 MiB sequential read;
1 MiB sequential write).
"""

from __future__ import annotations

import posixpath
import re
from typing import Protocol

from proveout.dsl import schema
from proveout.dsl.fio_job import FioJob
from proveout.dsl.plan import Limits

SECTOR = 512
_MIB = 1024 * 1024
PATTERNS = {
    "random-read-4k": (True, 4096, 1.0),
    "mixed-8k-70-30": (True, 8192, 0.7),
    "sequential-read-1m": (False, _MIB, 1.0),
    "sequential-write-1m": (False, _MIB, 0.0),
}
"""Pattern -> (random, bytes of an I/O, share of reads)."""

_DEVICE = re.compile(r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*")


class _Problem(Protocol):
    def __call__(self, message: str, *path: str | int, hint: str = "") -> None: ...


def tool_job(entry: schema.ToolEntry, problem: _Problem) -> FioJob | None:
    """The job of a stage; None when a problem was noted."""
    random, block, reads = PATTERNS[entry.pattern]
    random = random if entry.random is None else entry.random
    block = block if entry.block is None else entry.block
    target = entry.target or schema.ToolTarget.model_validate({})
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
    fine = [_sizes(job, problem), _target(job, target, problem), _consent(job, problem)]
    return job if all(fine) else None


def tool_limits(entry: schema.ToolLimitsEntry) -> Limits:
    """The limits of a tool; those of a load's threads do not concern it."""
    return Limits(
        errors_fraction_max=entry.errors,
        start_skew_ms_max=entry.start_skew * 1e3,
        tps_slope_fraction_max=entry.iops_slope,
        tps_cv_max=entry.iops_cv,
        pause_s_max=entry.pause,
    )


def _sizes(job: FioJob, problem: _Problem) -> bool:
    if job.block_bytes % SECTOR:
        problem("an I/O is of whole sectors of 512 bytes", "block", hint="block: 8k")
        return False
    if job.size_bytes < job.block_bytes:
        problem(f"a job works on less than one I/O of {job.block_bytes} bytes", "size", hint="size: 5GB")
        return False
    return True


def _target(job: FioJob, target: schema.ToolTarget, problem: _Problem) -> bool:
    if (target.directory is None) == (target.devices is None) and target.model_fields_set:
        problem("a tool works in a directory or on devices", "target", hint="leave one of them out")
        return False
    plain = posixpath.normpath(job.directory) == job.directory and job.directory.startswith("/")
    if target.directory is not None and (not plain or job.directory.startswith("//")):
        problem("a directory is an absolute path without `.` and `..`", "target", "directory", hint="/data/fio")
        return False
    for index, device in enumerate(job.devices):
        if not _DEVICE.fullmatch(device):
            message = f"`{device}` does not name a device for good: /dev/disk/by-id/NAME"
            problem(message, "target", "devices", index)
            return False
        if device in job.devices[:index]:
            problem(f"`{device}` is there twice", "target", "devices", index)
            return False
    return True


def _consent(job: FioJob, problem: _Problem) -> bool:
    if job.devices and job.writes and not job.destructive:
        hint = "destructive: true; the agents' policies have to allow it too"
        problem("writing to devices destroys what they hold", "target", "devices", hint=hint)
        return False
    if job.destructive and not (job.devices and job.writes):
        problem("nothing is destroyed by this stage", "destructive", hint="leave `destructive` out")
        return False
    return True
