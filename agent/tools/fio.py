"""The handlers of `PrepareFio` and `RunFio`: create files, prepare fio, start it at T0, and send its numbers every
second.

Flow: `ToolFolder` (or devices that `check_devices` has allowed) -> argv -> `Program`, unprivileged if it uses files ->
T0 -> lines -> `Documents` -> a `LoadSecond` each second -> `LoadResult`. fio and its children are killed when the task
is cancelled, the lease ends, the deadline passes, or the agent dies. fio's own `--server` is never used: it has no
authentication.

Reading a device needs only an entry in the policy. Writing needs `destructive: true` in the plan and in the policy, and
a whole, empty disk that nothing uses; the check runs before every rung, because a disk may have been mounted since.
Each job is a section of its own on the command line, with its own file or its own slice of a device. Source: fio(1),
HOWTO of fio 3.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.security import data_dirs
from proveout.agent.security.policy import Policy
from proveout.agent.tools.program import PREFIX, Program, ToolFolder, how_ended, unprivileged
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.programs import Processes
from proveout.core.data_classes import field, record
from proveout.core.path_trust import is_link_free
from proveout.dsl.operations.disks import in_use, sys_folder
from proveout.dsl.operations.facts import Fact, Facts, OutputQuery, Query
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Done, Histogram, LoadResult, LoadSecond, TransactionCounts, TransactionLoad
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
        t0_ns = await context.started()
        await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9, 0.0))
        await armed.go()
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
    with contextlib.suppress(TaskFault):
        found = Processes().run((program, "--version"), VERSION_S) if program else None
        return found.text.strip()[:80] if found and found.code == 0 else ""
    return ""


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
        if not await asyncio.to_thread(is_link_free, base):
            what = f"a link leads to {base}, or other users can put one in its place"
            raise TaskFault("refused", what, way_out="write the path without links, below folders of root alone")
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


async def _follow(context: TaskContext, armed: Program, spec: RunFio, t0_ns: int) -> LoadResult:
    documents, course, found = Documents(), FioRun(spec.windows, t0_ns), False
    kinds = [name for name, there in (("read", spec.job.reads), ("write", spec.job.writes)) if there]
    async for line in armed.lines():
        document = documents.take(line)
        if document is None:
            continue
        found = True
        second = course.take(snapshot(document, kinds), time.monotonic_ns())
        if second is not None:
            context.sample(second)
    code = await armed.ended()
    if code != 0:
        raise _failed(f"fio {how_ended(code)}", armed.words or "; ".join(documents.words))
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
            yield f"--filename=job{number}.dat"
            continue
        # A colon ends a file name in fio.
        yield f"--filename={job.devices[number % len(job.devices)].replace(':', chr(92) + ':')}"
        yield f"--offset={(first_slice + number // len(job.devices)) * _slice_bytes(job)}"


def _slice_bytes(job: FioJob) -> int:
    """From the begin of a slice of a device to that of the next one: fio aligns I/Os to where a slice begins."""
    return -(-job.size_bytes // ALIGN_BYTES) * ALIGN_BYTES


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
        _check_size(device, slices * _slice_bytes(job))
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


# Output of fio -> cumulative counts -> seconds and result of a load. Pure.
#
# Flow: lines of standard output -> `Documents` (JSON objects whose braces have lines of their own; other lines are kept
# as messages) -> `snapshot` -> `FioRun`, which makes a `LoadSecond` of the difference to the last snapshot, and a
# `LoadResult` of the last one.
#
# fio resets its counts at the end of its ramp. Its bins (json+) have the middle of each bin in ns; they are added to
# our histograms by that value, within 1 % of the measured one. Sum, minimum and maximum are fio's own, exact. Source:
# HOWTO of fio 3, "JSON+ output".

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024
SLIVER_S = 0.5
"""A shorter interval without an I/O is a repetition of fio's last report; a whole second without one is a result."""
COUNT_END = 2**63
WORDS_MAX = 12
WORD_LENGTH_MAX = 300
_EMPTY = Histogram()


class Documents:
    """The JSON objects in fio's output; `words` are the last lines outside of them."""

    def __init__(self) -> None:
        self.words: deque[str] = deque(maxlen=WORDS_MAX)
        self._lines: list[str] = []
        self._size = 0

    def take(self, line: str) -> Mapping[str, Any] | None:
        """The object that the line completes, if any. TaskFault `fault` for invalid JSON or an object without end."""
        text = line.rstrip("\r\n")
        if not self._lines and text != "{":
            if text.strip():
                self.words.append(text[:WORD_LENGTH_MAX])
            return None
        self._lines.append(text)
        self._size += len(text)
        if self._size > DOCUMENT_BYTES_MAX:
            raise garbled("an object that does not end")
        if text != "}":
            return None
        whole, self._lines, self._size = "\n".join(self._lines), [], 0
        try:
            found = json.loads(whole)
        except ValueError as error:
            raise garbled(str(error)) from None
        return found if isinstance(found, dict) else {}


def garbled(why: str) -> TaskFault:
    """The fault for output that cannot be parsed."""
    return TaskFault("fault", f"cannot parse the output of fio: {why}", way_out="install fio 3.1 or later on that host")


@record
class Side:
    """Number and response times of reads, or of writes, that have succeeded since fio's last reset."""

    ios: int = 0
    response: Histogram = _EMPTY


@record
class Snapshot:
    """All counts at one instant. `runtime_ms`: time since the reset; `cpu_fraction`: of one core, mean of the jobs."""

    runtime_ms: int
    sides: Mapping[str, Side] = field(default_factory=dict)
    errors: int = 0
    first_error: str = ""
    cpu_fraction: float = 0.0
    cpu_s: float = 0.0

    @property
    def has_latencies(self) -> bool:
        return any(side.response.counts for side in self.sides.values())

    @property
    def ios(self) -> int:
        """I/Os of both kinds."""
        return sum(side.ios for side in self.sides.values())


def snapshot(document: Mapping[str, Any], kinds: Sequence[str]) -> Snapshot:
    """The counts in a document, of all its jobs. TaskFault `fault` if a field is missing or not a number."""
    try:
        jobs = list(document["jobs"])
        sides = {
            name: Side(
                ios=sum(_succeeded(job, name) for job in jobs),
                response=histogram.merge(_histogram(job[name]["lat_ns"]) for job in jobs),
            )
            for name in kinds
        }
        cpu = [(_number(job["usr_cpu"]) + _number(job["sys_cpu"])) / 100.0 for job in jobs]
        failed = (int(_number(job.get("first_error", 0))) or int(_number(job.get("error", 0))) for job in jobs)
        error = next(filter(None, failed), 0)
        return Snapshot(
            runtime_ms=max(int(_number(job[name]["runtime"])) for job in jobs for name in kinds),
            sides=sides,
            errors=sum(int(_number(job.get("total_err", 0))) for job in jobs),
            first_error=os.strerror(error) if error else "",
            cpu_fraction=sum(cpu) / len(cpu),
            cpu_s=sum(used * _number(job["job_runtime"]) / 1e3 for used, job in zip(cpu, jobs, strict=True)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise garbled(f"{type(error).__name__}: {error}") from None


def _succeeded(job: Mapping[str, Any], name: str) -> int:
    """The I/Os of a kind that have succeeded: those with a latency. `total_ios` has failed ones too; it stands for
    them in the ramp, where fio counts no latencies."""
    begun, failed = int(_number(job[name]["total_ios"])), int(_number(job.get("total_err", 0)))
    return int(_number(job[name]["lat_ns"]["N"])) or max(begun - failed, 0)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < COUNT_END:
        raise ValueError(f"{value!r} is not a count")
    return float(value)


def _histogram(latency: Mapping[str, Any]) -> Histogram:
    """Histogram of fio's bins; empty where no I/O has finished (N = 0)."""
    bins = latency.get("bins") or {}
    total = int(_number(latency["N"]))
    if not total or not bins:
        return _EMPTY
    middles, counts = [int(name) for name in bins], [int(_number(count)) for count in bins.values()]
    return binned(
        middles,
        counts,
        sum_ns=round(_number(latency["mean"]) * sum(counts)),
        min_ns=int(_number(latency["min"])),
        max_ns=int(_number(latency["max"])),
    )


def binned(middles_ns: Sequence[int], counts: Sequence[int], *, sum_ns: int, min_ns: int, max_ns: int) -> Histogram:
    """The histogram of a program's bins, each counted at its middle."""
    indices = histogram.indices_of(np.asarray(middles_ns, dtype=np.int64))
    return histogram.from_dense(
        np.bincount(indices, counts).astype(np.int64), sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns
    )


def _since(before: Side, now: Side) -> Side:
    """The difference of two counts. Its minimum and maximum are exact to one bin only."""
    counts = _counted(now.response) - _counted(before.response)  # those above 0
    if not counts:
        return Side(ios=max(now.ios - before.ios, 0))
    kept = sorted(counts)
    low, high = int(histogram.lowest_ns(np.asarray(kept[0]))), int(histogram.highest_ns(np.asarray(kept[-1])))
    fresh = Histogram(
        indices=tuple(kept),
        counts=tuple(counts[index] for index in kept),
        sum_ns=max(now.response.sum_ns - before.response.sum_ns, 0),
        min_ns=max(low, now.response.min_ns),
        max_ns=min(high, now.response.max_ns),
    )
    return Side(ios=max(now.ios - before.ios, 0), response=fresh)


def _counted(response: Histogram) -> Counter[int]:
    return Counter(dict(zip(response.indices, response.counts, strict=True)))


def whole_run(document: Mapping[str, Any]) -> tuple[Snapshot, dict[str, float]]:
    """The counts of all jobs of a run that has ended, and `iops`, `mb_per_s`, `read_iops`, `write_iops`. TaskFault."""
    every = snapshot(document, ("read", "write"))
    found = replace(every, sides={name: side for name, side in every.sides.items() if side.ios} or {"read": Side()})
    seconds = found.runtime_ms / 1e3
    if seconds <= 0.0:
        raise garbled("it has measured no time")
    if any(side.ios and not side.response.counts for side in found.sides.values()):
        raise garbled("it has no bins of `lat_ns`; is `--lat_percentiles=1` among the arguments?")
    try:
        moved = sum(_number(job[name]["io_bytes"]) for job in document["jobs"] for name in found.sides)
    except (KeyError, TypeError, ValueError) as error:
        raise garbled(f"{type(error).__name__}: {error}") from None
    rates = {f"{name}_iops": side.ios / seconds for name, side in found.sides.items()}
    return found, {"iops": found.ios / seconds, "mb_per_s": moved / seconds / 1e6, **rates}


class FioRun:
    """One run of fio from its snapshots; times are ns of the agent's monotonic clock."""

    def __init__(self, windows: Windows, t0_ns: int) -> None:
        self._windows, self._t0_ns = windows, t0_ns
        self._last = Snapshot(runtime_ms=0)
        self._last_ns = t0_ns
        self._measuring = windows.ramp_up_s == 0.0
        self._seconds = 0
        self._second = -1

    def take(self, now: Snapshot, at_ns: int) -> LoadSecond | None:
        """The second that ends with this snapshot; None if it repeats the last one."""
        again = now.runtime_ms < self._last.runtime_ms or now.ios < self._last.ios
        # In its ramp fio counts I/Os without latencies; at its end all counts are reset.
        if again or (now.has_latencies and not self._measuring):
            self._measuring, self._last = True, Snapshot(runtime_ms=0)
        before = self._last
        self._last, self._last_ns = now, at_ns
        new_s = (now.runtime_ms - before.runtime_ms) / 1e3
        if new_s <= 0.0 or (new_s < SLIVER_S and now.ios == before.ios):
            return None
        start_ns = at_ns - round(new_s * 1e9)
        self._second = max(self._second + 1, round((start_ns - self._t0_ns) / 1e9))
        self._seconds += 1
        window: Literal["ramp_up", "measure"] = "measure" if self._measuring else "ramp_up"
        new = {name: _since(before.sides.get(name, Side()), side) for name, side in now.sides.items()}
        loads = tuple(_load(name, side, ()) for name, side in new.items())
        return LoadSecond(second=self._second, window=window, start_ns=start_ns, duration_s=new_s, transactions=loads)

    def result(self) -> LoadResult:
        """The result of the measure window. TaskFault `fault` if fio has not measured all of it."""
        last = self._last
        if last.runtime_ms < self._windows.measure_s * 1e3 * 0.99:
            raise TaskFault(
                "fault", f"fio measured only {last.runtime_ms / 1e3:.3g} s of {self._windows.measure_s:.3g} s"
            )
        start_ns = self._last_ns - last.runtime_ms * 1_000_000
        began_ns = start_ns - round(self._windows.ramp_up_s * 1e9)
        errors = ((last.first_error or "error", last.errors),) if last.errors else ()
        names = list(last.sides)
        return LoadResult(
            transactions=tuple(
                _load(name, side, errors if name == names[0] else ()) for name, side in last.sides.items()
            ),
            ended_in_window=last.ios,
            measure_start_ns=start_ns,
            measure_end_ns=self._last_ns,
            client_cpu_fraction=last.cpu_fraction,
            client_cpu_s=last.cpu_s,
            start_skew_ns=max(began_ns - self._t0_ns, 0),
            seconds_produced=self._seconds,
            first_errors=(last.first_error,) if last.errors else (),
        )


def _load(name: str, side: Side, errors: tuple[tuple[str, int], ...]) -> TransactionLoad:
    counts = TransactionCounts(name=name, ok=side.ios, errors=errors)
    return TransactionLoad(counts=counts, response=side.response, service=side.response, ended=side.ios)
