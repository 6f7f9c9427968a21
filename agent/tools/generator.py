"""The load of a workload of kind `program`: another load generator, started at T0 as the unprivileged user.

Data flow: `RunLoad` -> the argv of the plan with its fields filled in (`template_fields`) -> the host's policy
(`commands`) -> `Program`, with the address of the target in its environment -> T0 -> its output, and the files in its
folder -> a parser -> the seconds, the numbers and the `LoadResult`.

A program whose output has times makes the whole load in one run, and so does one with windows of its own. Otherwise the
ramp-up is a run of its own, because a summary is that of a whole run.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.tools import declared_output, fio_output, generator_output, hammerdb_output
from proveout.agent.tools.generator_output import Measured, load_of
from proveout.agent.tools.listed import listed_program
from proveout.agent.tools.program import Program, ToolFolder
from proveout.agent.tools.target_address import address
from proveout.agent.tools.template_fields import PASSWORD_FILE, checked, load_fields, variables
from proveout.agent.values.value_table import NoValue
from proveout.core.untrusted_trees import read
from proveout.dsl.workloads.kinds import of_workload
from proveout.dsl.workloads.program import parameters
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import RunLoad

OVERTIME_S = 20.0
CPU_EVERY_S = 0.2
OUTPUT_MAX = 1024 * 1024
FILE_BYTES_MAX = 16 * 1024 * 1024
LOG_BYTES_MAX = 1 << 30


async def run_generator(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Run one rung. TaskFault: `refused` by the policy, `fault` or `timeout` if the program fails or hangs."""
    model = of_workload(spec.workload)
    assert isinstance(model, parameters.Program)  # noqa: S101 - the kind of the workload
    checked(spec, model)
    folder = await asyncio.to_thread(_folder, context)
    try:
        return await _Generator(context, spec, model, folder).run()
    finally:
        await asyncio.to_thread(folder.leave)


def _folder(context: TaskContext) -> ToolFolder:
    user = _unprivileged()
    return ToolFolder.enter(context.work_dir, None if user.inherited else user.uid)


def _unprivileged() -> Privileges:
    """The unprivileged user, in the group that reaches the sockets of embedded servers."""
    return replace(Privileges.for_engine(""), reads_all=False)


class _Generator:
    """One rung of one program."""

    def __init__(self, context: TaskContext, spec: RunLoad, model: parameters.Program, folder: ToolFolder) -> None:
        self._context, self._spec, self._model, self._folder = context, spec, model, folder
        self._target = address(spec.endpoint)
        self._cpu: list[tuple[int, float, int]] = []
        self._ended_ns = 0

    async def run(self) -> LoadResult:
        windows, whole = self._spec.windows, self._model.runs_whole
        if self._target.password:
            await asyncio.to_thread(self._write_password)
        ramps = [] if whole or not windows.ramp_up_s else [await self._arm(windows.ramp_up_s)]
        programs = [*ramps, await self._arm(windows.ramp_up_s + windows.measure_s if whole else windows.measure_s)]
        try:
            self._context.armed()
            t0_ns = await self._context.started()
            await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9, 0.0))
            began_ns = time.monotonic_ns()
            for ramp in ramps:
                await self._ended(ramp, windows.ramp_up_s)
                await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9 + windows.ramp_up_s, 0.0))
            start_ns = time.monotonic_ns()
            output = await self._ended(programs[-1], windows.total_s)
            measured, values = await asyncio.to_thread(self._measured, output, t0_ns, start_ns)
        finally:
            for program in programs:
                await asyncio.shield(program.kill())
        for second in measured.seconds:
            self._context.sample(second)
        result = self._result(measured, output.decode(errors="replace"), began_ns - t0_ns)
        return replace(result, values=tuple(values))

    def _write_password(self) -> None:
        """The password alone, in a new file that only the program's user reads; it goes with the folder. TaskFault when
        that user has put something in its place, which others might read."""
        path = self._folder.path / PASSWORD_FILE
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise TaskFault(
                "refused", f"{path} was made by another program, and the password is not written there"
            ) from None
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(self._target.password)
            user = _unprivileged()
            if not user.inherited and user.uid is not None:
                os.fchown(stream.fileno(), user.uid, user.uid)

    async def _arm(self, seconds: float) -> Program:
        key, folder = self._context.key, self._folder.path
        values = load_fields(key, self._spec, self._model, self._target, folder=folder, seconds=seconds)
        argv, privileged = listed_program(
            self._context.policy,
            parameters.words(self._model.argv, values),
            parameters.in_forms(self._model.argv[1:], self._spec.endpoint.engine),
        )
        privileges = INHERITED if privileged else _unprivileged()
        own = variables(values, self._target, self._folder.path)
        return await Program.arm(argv, self._folder.path, privileges, own)

    async def _ended(self, program: Program, seconds: float) -> bytes:
        """Start a program and wait for its end; return its output. TaskFault."""
        name = self._model.argv[0]
        await program.go()
        watch = asyncio.create_task(self._watch(program.pid))
        try:
            async with asyncio.timeout(seconds + OVERTIME_S):
                output = await program.output(OUTPUT_MAX)
                code = await program.ended()
                self._ended_ns = time.monotonic_ns()
        except TimeoutError:
            raise TaskFault("timeout", f"{name} did not end within {OVERTIME_S:.0f} s after its windows") from None
        finally:
            watch.cancel()
        if code not in self._model.exit_codes:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            words = program.words or output[-400:].decode(errors="replace").strip() or "it wrote no message"
            raise TaskFault("fault", f"{name} {how}: {words}", way_out="run it by hand on this host")
        return output

    async def _watch(self, pid: int) -> None:
        """Note the CPU time of the program, its threads included."""
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            while True:
                times = process.cpu_times()
                self._cpu.append((time.monotonic_ns(), times.user + times.system, process.num_threads()))
                await asyncio.sleep(CPU_EVERY_S)

    # ---- the output --------------------------------------------------------------------------------------------------

    def _measured(self, output: bytes, t0_ns: int, start_ns: int) -> tuple[Measured, tuple[tuple[str, float], ...]]:
        windows, form = self._spec.windows, self._model.output
        ahead_ns = time.time_ns() - time.monotonic_ns()
        if isinstance(form, parameters.ProgramOutput):
            found = output if form.file is None else self._file(form.file)
            unix_of_t0_s = (t0_ns + ahead_ns) / 1e9
            return declared_output.declared(found, self._model, windows, t0_ns, start_ns, unix_of_t0_s=unix_of_t0_s)
        text = output.decode(errors="replace")
        match form:
            case "sysbench":
                return generator_output.sysbench(text, windows.ramp_up_s, t0_ns, start_ns), ()
            case "pgbench":
                return generator_output.pgbench(self._logs(), windows, t0_ns, ahead_ns), ()
            case "hammerdb":
                return self._hammerdb(text, t0_ns)
            case "fio":
                return self._fio(text)

    def _hammerdb(self, output: str, t0_ns: int) -> tuple[Measured, tuple[tuple[str, float], ...]]:
        try:
            values = hammerdb_output.numbers(output)
        except NoValue as fault:
            raise TaskFault("fault", fault.what, way_out=fault.way_out) from None
        windows = self._spec.windows
        start_ns = t0_ns + round(windows.ramp_up_s * 1e9)
        measured = Measured(
            start_ns=start_ns,
            end_ns=start_ns + round(windows.measure_s * 1e9),
            load=load_of(round(values["tpm"] / 60.0 * windows.measure_s)),
            seconds=(),
        )
        return measured, tuple(values.items())

    def _fio(self, output: str) -> tuple[Measured, tuple[tuple[str, float], ...]]:
        documents = fio_output.Documents()
        found = [document for line in output.splitlines() if (document := documents.take(line)) is not None]
        if not found:
            raise fio_output.garbled("it has no JSON; is `--output-format=json+` among the arguments?")
        run, values = fio_output.whole_run(found[-1])
        measured = Measured(
            start_ns=self._ended_ns - run.runtime_ms * 1_000_000,
            end_ns=self._ended_ns,
            load=load_of(run.ios, histogram.merge(side.response for side in run.sides.values()), run.errors),
            seconds=(),
        )
        return measured, tuple(values.items())

    def _file(self, name: str) -> bytes:
        try:
            return _content(self._folder.path / name, FILE_BYTES_MAX)
        except OSError as error:
            what = f"{self._model.argv[0]} has left no file {name!r} in its folder: {error.strerror}"
            raise TaskFault("fault", what, way_out="its argument names the file without a folder") from None

    def _logs(self) -> list[str]:
        found: list[str] = []
        left = LOG_BYTES_MAX
        for path in sorted(self._folder.path.glob("pgbench_log.*")):
            with suppress(OSError):  # a link, for example
                content = _content(path, left)
                left -= len(content)
                found.append(content.decode(errors="replace"))
        return found

    def _result(self, measured: Measured, output: str, skew_ns: int) -> LoadResult:
        cpu_s, threads = self._cpu_between(measured.start_ns, measured.end_ns)
        length_s = max((measured.end_ns - measured.start_ns) / 1e9, 1e-9)
        errors = measured.load.counts.errors
        return LoadResult(
            transactions=(measured.load,),
            ended_in_window=measured.load.counts.ok,
            measure_start_ns=measured.start_ns,
            measure_end_ns=measured.end_ns,
            client_cpu_fraction=cpu_s / length_s / threads,
            client_cpu_s=cpu_s,
            start_skew_ns=max(skew_ns, 0),
            seconds_produced=len(measured.seconds),
            first_errors=tuple(name for name, _ in errors),
            output=output,
        )

    def _cpu_between(self, start_ns: int, end_ns: int) -> tuple[float, int]:
        """CPU seconds in the window, and the threads that used them."""
        if len(self._cpu) < 2:
            return 0.0, 1
        at, used, threads = zip(*self._cpu, strict=True)
        inside = [count for instant, count in zip(at, threads, strict=True) if start_ns <= instant <= end_ns]
        first, last = np.interp([start_ns, end_ns], at, used)
        return max(float(last - first), 0.0), max([1, *inside])


def _content(path: Path, limit: int) -> bytes:
    """A file of at most `limit` bytes in the folder of the program, which can have put anything there. OSError as
    `read`; TaskFault when it is larger."""
    found = read(path, limit + 1)
    if len(found) > limit:
        raise TaskFault("fault", f"the file {path.name!r} is larger than {limit >> 20} MiB")
    return found
