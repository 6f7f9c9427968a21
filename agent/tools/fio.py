"""The handlers of `PrepareFio` and `RunFio`: create files, prepare fio, start it at T0, and send its numbers every
second.

Flow: `tool_folder` (or devices that `fio_devices` has checked) -> argv (`fio_argv`) -> `Program`, unprivileged if it
uses files -> T0 -> lines -> `fio_output` -> a `LoadSecond` each second -> `LoadResult`. fio and its children are killed
when the task is cancelled, the lease ends, the deadline passes, or the agent dies. fio's own `--server` is never used:
it has no authentication.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.security import data_dirs
from proveout.agent.tools.fio_argv import lay_out_argv, run_argv
from proveout.agent.tools.fio_devices import check_devices
from proveout.agent.tools.fio_output import Documents, FioRun, garbled, snapshot
from proveout.agent.tools.program import Program
from proveout.agent.tools.program_launcher import ENVIRONMENT
from proveout.agent.tools.tool_folder import PREFIX, ToolFolder
from proveout.core import child_process
from proveout.dsl.plan.fio_job import FioJob
from proveout.proto.wire.results import Done, LoadResult
from proveout.proto.wire.tasks import PrepareFio, RunFio

OVERTIME_S = 20.0
PROGRESS_S = 1.0
VERSION_S = 10.0
RESERVE_BYTES = 64 * 1024 * 1024
"""Free space to leave beside the files: a full file system breaks other programs."""


async def prepare_fio(context: TaskContext, spec: PrepareFio) -> Done:
    """Create the files of a job, filled with data, or check that its devices may be used.

    Raises TaskFault: `missing` (no fio), `refused` (the policy, or a device in use), `disk_full`, `invalid` (fio
    refuses the job).
    """
    began_s = time.monotonic()
    program = find()
    if spec.job.devices:
        await asyncio.to_thread(check_devices, spec.job, context.policy)
    else:
        await _lay_out(context, program, spec.job, spec.data_root)
    return Done(seconds=time.monotonic() - began_s)


async def run_fio(context: TaskContext, spec: RunFio) -> LoadResult:
    """Run one rung of a fio ladder. TaskFault as `prepare_fio`; `fault` or `timeout` if fio fails or hangs."""
    program = find()
    if spec.job.devices:
        await asyncio.to_thread(check_devices, spec.job, context.policy, spec.first_slice)
        work_dir, privileges = context.work_dir, INHERITED  # only root can open a device
    else:
        folder = await _lay_out(context, program, spec.job, spec.data_root)
        work_dir, privileges = folder.path, _privileges()
    armed = await Program.arm(run_argv(program, spec), work_dir, privileges)
    try:
        context.armed()
        t0_ns = await _started(context, armed)
        limit_s = (t0_ns - time.monotonic_ns()) / 1e9 + spec.windows.total_s + OVERTIME_S
        try:
            async with asyncio.timeout(limit_s):
                return await _follow(context, armed, spec, t0_ns)
        except TimeoutError:
            message = f"fio did not end within {OVERTIME_S:.0f} s after the end of its windows"
            raise TaskFault("timeout", message, way_out="check whether the storage hangs (dmesg)") from None
    finally:
        await asyncio.shield(armed.kill())


def find() -> str:
    """The path of fio. TaskFault `missing` if it is not installed."""
    program = shutil.which("fio")
    if program is None:
        raise TaskFault(
            "missing",
            "fio is not installed on this host",
            way_out="install the package `fio` (apt install fio, dnf install fio)",
        )
    return program


def version() -> str:
    """The version, `fio-3.33`; "" if fio is missing or does not report it. Blocking."""
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
    user = privileges.account()
    return INHERITED if user is None else Privileges(uid=user.uid, gid=user.uid, group=user.uid)


async def _lay_out(context: TaskContext, program: str, job: FioJob, data_root: str) -> ToolFolder:
    """The folder with the job's files in their full size; created once, and kept for later stages."""
    folder = await _tool_folder(context, job, data_root)
    if folder.has(job.jobs, job.size_bytes):
        return folder
    needed = job.jobs * job.size_bytes
    used, free = await asyncio.to_thread(lambda: (folder.used_bytes(), folder.free_bytes()))
    if needed > used and needed - used + RESERVE_BYTES > free:
        message = f"{folder.path.parent} has {free / 1e9:.3g} GB left, and the files need {needed / 1e9:.3g} GB"
        raise TaskFault("disk_full", message, way_out="make `size` or `jobs` smaller, or name another `directory`")
    making = await Program.arm(lay_out_argv(program, job), folder.path, _privileges())
    try:
        await making.go()
        watch = asyncio.create_task(_report_growth(context, folder, needed))
        try:
            words = [line async for line in making.lines() if line.strip()][-3:]
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        code = await making.ended()
    finally:
        await asyncio.shield(making.kill())
    if code != 0:
        raise _failed(f"fio cannot create its files (exit code {code})", making.words or "; ".join(words))
    folder.made.add((job.jobs, job.size_bytes))
    return folder


async def _tool_folder(context: TaskContext, job: FioJob, data_root: str) -> ToolFolder:
    base = Path(job.directory or data_root or context.work_dir)
    if job.directory:
        context.policy.allows_path(f"{job.directory.rstrip('/')}/{PREFIX}files").require()
    name = f"fio:{base}"
    known = context.resources.get(name)
    if isinstance(known, ToolFolder):
        return known
    if not job.directory:
        await asyncio.to_thread(base.mkdir, mode=0o700, parents=True, exist_ok=True)
    user = privileges.account()
    uid, is_last = None if user is None else user.uid, data_dirs.is_own(context.work_dir, base)
    made = await asyncio.to_thread(ToolFolder.enter, base, uid, is_last=is_last)
    context.resources[name] = made
    return made


async def _report_growth(context: TaskContext, folder: ToolFolder, needed: int) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        context.progress(min(folder.used_bytes(), needed) / 1e6, needed / 1e6, "MB", "creating files")


# ---- the run -------------------------------------------------------------------------------------------------------


async def _started(context: TaskContext, armed: Program) -> int:
    """Wait for T0, then start fio."""
    t0_ns = await context.started()
    await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9, 0.0))
    await armed.go()
    return t0_ns


async def _follow(context: TaskContext, armed: Program, spec: RunFio, t0_ns: int) -> LoadResult:
    documents, course, found = Documents(), FioRun(spec.windows, t0_ns), False
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
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise _failed(f"fio {how}", armed.words or "; ".join(documents.words))
    if not found:
        raise garbled("; ".join(documents.words) or "it wrote no message")
    return course.result()


def _failed(what: str, words: str) -> TaskFault:
    """The fault for a failure of fio, with its output, and a way out for known errors."""
    text = f"{what}: {words}" if words else what
    low = words.lower()
    if "no space left" in low or "disk quota" in low:
        return TaskFault("disk_full", text, way_out="make `size` or `jobs` smaller, or name another `directory`")
    if "o_direct" in low or "invalid argument" in low:
        return TaskFault("invalid", text, way_out="if this file system has no direct I/O, set `direct: false`")
    if "engine libaio" in low or "no such engine" in low:
        return TaskFault("missing", text, way_out="install a build of fio with the libaio engine")
    return TaskFault("fault", text, way_out="run fio by hand on this host for details")
