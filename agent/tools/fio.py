"""The handlers of `PrepareFio` and `RunFio`: create files, prepare fio, start it at T0, and send its numbers every
second.

Flow: `ToolFolder` (or devices that `check_devices` has allowed) -> argv -> `Program`, unprivileged if it uses files ->
T0 -> lines -> `fio_output` -> a `LoadSecond` each second -> `LoadResult`. fio and its children are killed when the task
is cancelled, the lease ends, the deadline passes, or the agent dies. fio's own `--server` is never used: it has no
authentication.

Reading a device needs only an entry in the policy. Writing needs `destructive: true` in the plan and in the policy, and
a whole, empty disk that nothing uses; the check runs before every rung, because a disk may have been mounted since.
Each job is a section of its own on the command line, with its own file or its own slice of a device. Source: fio(1),
HOWTO of fio 3.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.security import data_dirs
from proveout.agent.security.policy import Policy
from proveout.agent.tools.fio_output import Documents, FioRun, garbled, snapshot
from proveout.agent.tools.program import PREFIX, Program, ToolFolder, unprivileged
from proveout.agent.tools.program_launcher import ENVIRONMENT
from proveout.agent.tuning.host import Host, Processes
from proveout.core import child_process
from proveout.dsl.operations.disks import in_use, sys_folder
from proveout.dsl.operations.facts import Fact, Facts, OutputQuery, Query
from proveout.dsl.plan.commands import FioJob
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
        work_dir, privileges = folder.path, unprivileged()
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
    making = await Program.arm(lay_out_argv(program, job), folder.path, unprivileged())
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


ALIGN_BYTES = 4096
STATUS_S = 1


def run_argv(program: str, spec: RunFio) -> tuple[str, ...]:
    """The argv of a measurement: JSON with histogram bins, once a second and at the end."""
    job, windows = spec.job, spec.windows
    timed = (
        "--time_based=1",
        f"--ramp_time={windows.ramp_up_s * 1e6:.0f}us",
        f"--runtime={windows.measure_s * 1e6:.0f}us",
        f"--iodepth={spec.iodepth}",
        "--randrepeat=0",
        "--norandommap=1",
        "--continue_on_error=io",
        "--lat_percentiles=1",
        "--clat_percentiles=0",
    )
    shown = ("--output-format=json+", f"--status-interval={STATUS_S}", "--eta=never")
    # fio itself refuses writes in a job that only reads.
    guard = () if job.writes else ("--readonly",)
    sections = _sections(job, spec.first_slice)
    return (program, *shown, *guard, *_common(job), *_pattern(job), *timed, *sections)


def lay_out_argv(program: str, job: FioJob) -> tuple[str, ...]:
    """The argv that creates the files, filled with data, so that reads and overwrites reach real blocks."""
    return (program, "--eta=never", "--create_only=1", *_common(job), "--rw=read", *_sections(job, 0))


def file_name(number: int) -> str:
    """The file of job `number`, in the work folder of fio."""
    return f"job{number}.dat"


def _common(job: FioJob) -> tuple[str, ...]:
    return (
        "--name=global",
        "--ioengine=libaio",
        f"--direct={job.direct:d}",
        "--thread=1",
        "--group_reporting=1",
        f"--bs={job.block_bytes}",
        f"--blockalign={min(job.block_bytes, ALIGN_BYTES)}",
        f"--size={job.size_bytes}",
    )


def _pattern(job: FioJob) -> tuple[str, ...]:
    if job.reads and job.writes:
        mode = "randrw" if job.random else "rw"
        return (f"--rw={mode}", f"--rwmixread={job.read_fraction * 100.0:.0f}", "--overwrite=1")
    word = "read" if job.reads else "write"
    overwrite = ("--overwrite=1",) if job.writes else ()
    return (f"--rw={'rand' if job.random else ''}{word}", *overwrite)


def _sections(job: FioJob, first_slice: int) -> Iterator[str]:
    for number in range(job.jobs):
        yield f"--name=job{number}"
        if not job.devices:
            yield f"--filename={file_name(number)}"
            continue
        # A colon ends a file name in fio.
        yield f"--filename={job.devices[number % len(job.devices)].replace(':', chr(92) + ':')}"
        yield f"--offset={(first_slice + number // len(job.devices)) * job.size_bytes}"


def check_devices(job: FioJob, policy: Policy, first_slice: int = 0) -> None:
    """TaskFault `refused`, with the reasons, if a device of the job may not be used. Blocking."""
    for device in job.devices:
        policy.allows_device(device).require()
    if job.writes:
        if not job.destructive:
            raise TaskFault("refused", "writing to devices needs `destructive: true` in the plan")
        policy.allows_destructive().require()
    slices = first_slice + -(-job.jobs // len(job.devices))
    for device in job.devices:
        _check_size(device, slices * job.size_bytes)
    reasons = [reason for device in job.devices for reason in _objections(device)] if job.writes else []
    if reasons:
        way_out = "name an empty disk that nothing uses (`wipefs --all` removes signatures)"
        raise TaskFault("refused", "; ".join(dict.fromkeys(reasons)), way_out=way_out)


def _check_size(device: str, needed: int) -> None:
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        way_out = "name devices of this host, and run its agent as root"
        raise TaskFault("refused", f"cannot open {device}: {error.strerror}", way_out=way_out) from None
    try:
        if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
            raise TaskFault("refused", f"{device} is not a block device")
        size = os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)
    if size < needed:
        message = f"{device} has {size / 1e9:.4g} GB, and the slices of its jobs end at {needed / 1e9:.4g} GB"
        raise TaskFault("refused", message, way_out="make `size` or `jobs` smaller, or name more devices")


def _objections(device: str) -> tuple[str, ...]:
    host, tools = Host(), Processes()

    def answer(query: Query) -> Fact:
        # A fixed argv that only reads; the policy applies to programs that a plan chooses.
        return tools.run(query.argv) if isinstance(query, OutputQuery) else host.answer(query)

    facts = Facts(read=answer)
    if facts.link(device) is None:
        return (f"{device} does not exist",)
    if facts.text(f"{sys_folder(device, facts)}/size") is None:
        return (f"{device} is not a whole disk",)
    return tuple(in_use(device, facts))
