"""Command line of fio: a typed job -> argv. Pure; no shell, no job file. Source: fio(1), HOWTO of fio 3.

Each job is a section of its own, so that each has its own file, or its own slice of a device. `group_reporting`
combines their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from proveout.dsl.plan.fio_job import FioJob
from proveout.proto.wire.tasks import RunFio

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
