"""The load of a workload of kind `program`: another load generator, started at T0 as the unprivileged user.

Data flow: `RunLoad` -> the argv of the plan with its fields filled in -> the host's policy (`commands`) -> `Program`,
with the address of the target in its environment -> T0 -> its output, and the log in its folder -> `generator_output`
-> the seconds, and the `LoadResult`.

pgbench makes the whole load in one run, because its log has the time of each transaction. Of sysbench the ramp-up is
a run of its own, because its summary is that of a whole run.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.tools import generator_output
from proveout.agent.tools.generator_output import Measured
from proveout.agent.tools.listed import listed_program
from proveout.agent.tools.program import Program, ToolFolder
from proveout.dsl.workloads.kinds import of_workload
from proveout.dsl.workloads.program import parameters
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, RunLoad

OVERTIME_S = 20.0
CPU_EVERY_S = 0.2
OUTPUT_MAX = 1024 * 1024
LOG_BYTES_MAX = 1 << 30
NAMES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
"""Words of a conninfo -> variables of libpq."""


async def run_generator(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Run one rung. TaskFault: `refused` by the policy, `fault` or `timeout` if the program fails or hangs."""
    if spec.share.rate is not None or spec.share.think_s is not None or spec.session or spec.pool.kind != "local":
        raise TaskFault("invalid", "a program has its own arrival and its own connections: no rate, think or session")
    model = of_workload(spec.workload)
    assert isinstance(model, parameters.Program)  # noqa: S101 - the kind of the workload
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
        self._variables = connection(spec.endpoint)
        self._cpu: list[tuple[int, float, int]] = []

    async def run(self) -> LoadResult:
        windows = self._spec.windows
        whole = self._model.output == "pgbench"
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
            measured = await asyncio.to_thread(self._measured, output, t0_ns, start_ns)
        finally:
            for program in programs:
                await asyncio.shield(program.kill())
        for second in measured.seconds:
            self._context.sample(second)
        return self._result(measured, output, began_ns - t0_ns)

    async def _arm(self, seconds: float) -> Program:
        share = self._spec.share
        values = {
            "threads": str(share.count),
            "total_threads": str(share.total),
            "seconds": str(math.ceil(seconds)),
            "seed": str(self._spec.seed % 2**31),
            "host": self._variables.get("PGHOST", ""),
            "port": self._variables.get("PGPORT", "5432"),
            "user": self._variables.get("PGUSER", ""),
            "database": self._variables.get("PGDATABASE", ""),
        }
        argv, privileged = listed_program(
            self._context.policy,
            parameters.words(self._model.argv, values),
            parameters.words(self._model.argv[1:], dict.fromkeys(values, "*")),
        )
        privileges = INHERITED if privileged else _unprivileged()
        return await Program.arm(argv, self._folder.path, privileges, self._variables)

    async def _ended(self, program: Program, seconds: float) -> str:
        """Start a program and wait for its end; return its output. TaskFault."""
        name = self._model.argv[0]
        await program.go()
        watch = asyncio.create_task(self._watch(program.pid))
        try:
            async with asyncio.timeout(seconds + OVERTIME_S):
                output = (await program.output(OUTPUT_MAX)).decode(errors="replace")
                code = await program.ended()
        except TimeoutError:
            raise TaskFault("timeout", f"{name} did not end within {OVERTIME_S:.0f} s after its windows") from None
        finally:
            watch.cancel()
        if code != 0:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            words = program.words or output.strip()[-400:] or "it wrote no message"
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

    def _measured(self, output: str, t0_ns: int, start_ns: int) -> Measured:
        windows = self._spec.windows
        if self._model.output == "sysbench":
            return generator_output.sysbench(output, windows.ramp_up_s, t0_ns, start_ns)
        ahead_ns = time.time_ns() - time.monotonic_ns()
        return generator_output.pgbench(self._logs(), windows, t0_ns, ahead_ns)

    def _logs(self) -> list[str]:
        paths = [path for path in sorted(self._folder.path.glob("pgbench_log.*")) if not path.is_symlink()]
        if sum(path.stat().st_size for path in paths) > LOG_BYTES_MAX:
            raise TaskFault("fault", f"the log of pgbench is larger than {LOG_BYTES_MAX >> 20} MiB")
        return [_read(path) for path in paths]

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


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def connection(endpoint: Endpoint) -> Mapping[str, str]:
    """The variables of libpq for a system. TaskFault `invalid` for a dsn that is not a conninfo."""
    from psycopg import Error  # noqa: PLC0415 - only where a program needs a target
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        words = conninfo_to_dict(endpoint.dsn)
    except Error:
        raise TaskFault("invalid", f"the dsn of system {endpoint.system!r} is not a conninfo of libpq") from None
    return {NAMES[name]: str(value) for name, value in words.items() if name in NAMES and value is not None}
