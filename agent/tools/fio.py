"""The handlers of `PrepareFio` and `RunFio`: files made, fio armed, started at T0, followed second by second, its numbers sent.

Flow: `grounds` (or devices that `fio_devices` lets pass) -> argv (`fio_argv`) -> `Program`, armed without privileges where files are
concerned -> T0 -> lines -> `fio_output` -> a `LoadSecond` each second -> `LoadResult`. fio, and all that it has started, is killed when
the task is cancelled, its lease ends, it is late, or the agent dies. fio's own `--server` is never used: nobody asks it who calls.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext, TaskFault
from proveout.agent.sandbox.privileges import INHERITED, Privileges, account
from proveout.agent.security import data_dirs
from proveout.agent.tools.fio_argv import lay_out_argv, run_argv
from proveout.agent.tools.fio_devices import check_devices
from proveout.agent.tools.fio_output import Course, Documents, garbled, snapshot
from proveout.agent.tools.program import Program
from proveout.agent.tools.program_launcher import ENVIRONMENT
from proveout.agent.tools.tool_folder import PREFIX, Grounds
from proveout.core import child_process
from proveout.dsl.plan.fio_job import FioJob
from proveout.proto.wire.results import Done, LoadResult
from proveout.proto.wire.tasks import PrepareFio, RunFio

OVERTIME_S = 20.0
PROGRESS_S = 1.0
VERSION_S = 10.0
RESERVE_BYTES = 64 * 1024 * 1024
"""What is left free beside the files: a full file system breaks more than a measurement."""


async def prepare_fio(context: TaskContext, spec: PrepareFio) -> Done:
    """Make the files of a job, full of data, or look whether its devices may be used.

    Raises TaskFault: `missing` (no fio), `refused` (the policy, or a device in use), `disk_full`, `invalid` (fio's own objection).
    """
    began_s = time.monotonic()
    program = find()
    if spec.job.devices:
        await asyncio.to_thread(check_devices, spec.job, context.policy)
    else:
        await _lay_out(context, program, spec.job, spec.data_root)
    return Done(seconds=time.monotonic() - began_s)


async def run_fio(context: TaskContext, spec: RunFio) -> LoadResult:
    """Run one rung of a ladder of fio. Raises TaskFault as `prepare_fio`, and `fault`, `timeout` when fio fails or hangs."""
    program = find()
    if spec.job.devices:
        await asyncio.to_thread(check_devices, spec.job, context.policy, spec.first_slice)
        folder, privileges = context.work_dir, INHERITED  # only root can open a device
    else:
        grounds = await _lay_out(context, program, spec.job, spec.data_root)
        folder, privileges = grounds.path, _privileges()
    armed = await Program.arm(run_argv(program, spec), folder, privileges)
    try:
        context.armed()
        t0_ns = await _started(context, armed)
        limit_s = (t0_ns - time.monotonic_ns()) / 1e9 + spec.windows.total_s + OVERTIME_S
        try:
            async with asyncio.timeout(limit_s):
                return await _follow(context, armed, spec, t0_ns)
        except TimeoutError:
            message = f"fio did not end within {OVERTIME_S:.0f} s of the end of its windows"
            raise TaskFault("timeout", message, way_out="see whether the storage hangs (dmesg)") from None
    finally:
        await asyncio.shield(armed.kill())


def find() -> str:
    """The path of fio. TaskFault `missing` when it is not installed."""
    program = shutil.which("fio")
    if program is None:
        raise TaskFault(
            "missing", "fio is not on this host", way_out="install the package `fio` (apt install fio, dnf install fio)"
        )
    return program


def version() -> str:
    """What fio calls itself, `fio-3.33`; "" when it is not there or does not say. Blocking."""
    program = shutil.which("fio")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=False,
            cwd=child_process.DIRECTORY,
            env=ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()[:80]


# ---- files ---------------------------------------------------------------------------------------------------------


def _privileges() -> Privileges:
    """Privileges of fio on files: the unprivileged user, no supplementary group, no capability."""
    user = account()
    return INHERITED if user is None else Privileges(uid=user.uid, gid=user.uid, group=user.uid)


async def _lay_out(context: TaskContext, program: str, job: FioJob, data_root: str) -> Grounds:
    """The folder with the job's files in it, as large as they must be; made once, and kept for the stages after."""
    grounds = await _grounds(context, job, data_root)
    if grounds.has(job.jobs, job.size_bytes):
        return grounds
    needed = job.jobs * job.size_bytes
    used, free = await asyncio.to_thread(lambda: (grounds.used_bytes(), grounds.free_bytes()))
    if needed > used and needed - used + RESERVE_BYTES > free:
        message = f"{grounds.path.parent} has {free / 1e9:.3g} GB left, and {needed / 1e9:.3g} GB are asked for"
        raise TaskFault("disk_full", message, way_out="make `size` or `jobs` smaller, or name another `directory`")
    making = await Program.arm(lay_out_argv(program, job), grounds.path, _privileges())
    try:
        await making.go()
        watch = asyncio.create_task(_tell_growth(context, grounds, needed))
        try:
            words = [line async for line in making.lines() if line.strip()][-3:]
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        code = await making.ended()
    finally:
        await asyncio.shield(making.kill())
    if code != 0:
        raise _failed(f"fio could not make its files (exit code {code})", making.words or "; ".join(words))
    grounds.made.add((job.jobs, job.size_bytes))
    return grounds


async def _grounds(context: TaskContext, job: FioJob, data_root: str) -> Grounds:
    base = Path(job.directory or data_root or context.work_dir)
    if job.directory:
        context.policy.allows_path(f"{job.directory.rstrip('/')}/{PREFIX}files").require()
    name = f"fio:{base}"
    known = context.resources.get(name)
    if isinstance(known, Grounds):
        return known
    if not job.directory:
        await asyncio.to_thread(base.mkdir, mode=0o700, parents=True, exist_ok=True)
    user = account()
    uid, is_last = None if user is None else user.uid, data_dirs.is_own(context.work_dir, base)
    made = await asyncio.to_thread(Grounds.enter, base, uid, is_last=is_last)
    context.resources[name] = made
    return made


async def _tell_growth(context: TaskContext, grounds: Grounds, needed: int) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        context.progress(min(grounds.used_bytes(), needed) / 1e6, needed / 1e6, "MB", "files are made")


# ---- the run -------------------------------------------------------------------------------------------------------


async def _started(context: TaskContext, armed: Program) -> int:
    """Wait for T0 and start fio then."""
    t0_ns = await context.started()
    await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9, 0.0))
    await armed.go()
    return t0_ns


async def _follow(context: TaskContext, armed: Program, spec: RunFio, t0_ns: int) -> LoadResult:
    documents, course, found = Documents(), Course(spec.windows, t0_ns), False
    async for line in armed.lines():
        document = documents.take(line)
        if document is None:
            continue
        found = True
        second = course.take(snapshot(document, spec.job), time.monotonic_ns())
        if second is not None:
            context.sample(second)
    code = await armed.ended()
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise _failed(f"fio {how}", armed.words or "; ".join(documents.words))
    if not found:
        raise garbled("; ".join(documents.words) or "it wrote no message")
    return course.result()


def _failed(what: str, words: str) -> TaskFault:
    """fio's failure with its own words, and a way out where the words tell one."""
    said = f"{what}: {words}" if words else what
    low = words.lower()
    if "no space left" in low or "disk quota" in low:
        return TaskFault("disk_full", said, way_out="make `size` or `jobs` smaller, or name another `directory`")
    if "o_direct" in low or "invalid argument" in low:
        return TaskFault("invalid", said, way_out="this file system may not do direct I/O: `direct: false`")
    if "engine libaio" in low or "no such engine" in low:
        return TaskFault("missing", said, way_out="install a fio that has the libaio engine")
    return TaskFault("fault", said, way_out="run fio by hand on this host to see more")
