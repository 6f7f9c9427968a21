"""The load of a workload of kind `program`: another load generator, started at T0 as the unprivileged user."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from proveout.agent.capture.os import ProcessTree
from proveout.agent.capture.query_values import NoValue
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault, without
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.tools import fio, generator_output
from proveout.agent.tools.generator_output import Measured, load_of
from proveout.agent.tools.program import Program, ToolFolder, how_ended, listed_program
from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError
from proveout.core.path_trust import read
from proveout.dsl.plan.loads import keys_of_share
from proveout.dsl.plan.stages import lengths_s
from proveout.dsl.rules.settings import split_dsn
from proveout.dsl.workloads import program as workload_program
from proveout.dsl.workloads.kinds import of_workload
from proveout.dsl.workloads.program import ENVIRONMENT, TARGET, minutes_problem
from proveout.dsl.workloads.program import Program as ProgramModel
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

LIBPQ = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
"""Words of a conninfo -> variables of libpq."""
_EZCONNECT = re.compile(
    r"(?:tcps?:)?(?://)?(?P<host>\[[0-9A-Fa-f:]+\]|[^/:\s()=]+)(?::(?P<port>\d+))?/(?P<service>[^/?:\s]+)"
)


@record
class Address:
    """A target: fields of arguments, variables of the environment, and the password."""

    fields: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    password: str = field(default="", repr=False)


def address(endpoint: Endpoint) -> Address:
    """The address of a system. TaskFault `invalid` where its dsn cannot be taken apart."""
    read = _ENGINES.get(endpoint.engine)
    if read is None:
        raise TaskFault("invalid", f"a program cannot take its target from a dsn of {endpoint.engine}")
    return read(endpoint)


def _postgres(endpoint: Endpoint) -> Address:
    from psycopg import Error  # noqa: PLC0415 - only where a program needs such a target
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        words = {name: str(value) for name, value in conninfo_to_dict(endpoint.dsn).items() if value is not None}
    except Error:
        raise TaskFault("invalid", f"the dsn of system {endpoint.system!r} is not a conninfo of libpq") from None
    fields = {
        "host": words.get("host", ""),
        "port": words.get("port", "5432"),
        "user": words.get("user", ""),
        "database": words.get("dbname", ""),
    }
    variables = {LIBPQ[name]: value for name, value in words.items() if name in LIBPQ}
    return Address(fields=fields, variables=variables, password=words.get("password", ""))


def _mysql(endpoint: Endpoint) -> Address:
    from proveout.agent.engines.mysql.dsn import parse  # noqa: PLC0415 - as above

    try:
        found = parse(endpoint.dsn)
    except ProveoutError as fault:
        raise TaskFault("invalid", fault.what, way_out=fault.way_out) from None
    fields = {
        "host": found.host,
        "port": str(found.port),
        "user": found.user,
        "database": found.database or "",
        "socket": found.unix_socket or "",
    }
    return Address(fields=fields, variables={"MYSQL_PWD": found.password}, password=found.password)


def _oracle(endpoint: Endpoint) -> Address:
    user, slash, rest = endpoint.dsn.partition("/")
    password, at, target = rest.rpartition("@")
    if not slash or not at:
        raise TaskFault("invalid", f"the dsn of system {endpoint.system!r} is not user/password@connect-string")
    match = _EZCONNECT.match(target.strip())
    parts = {"host": match["host"], "port": match["port"] or "1521", "database": match["service"]} if match else {}
    return Address(fields={"user": user.strip(), "connect_string": target.strip(), **parts}, password=password)


_ENGINES: Mapping[str, Callable[[Endpoint], Address]] = {
    "postgres": _postgres,
    "mysql": _mysql,
    "oracle": _oracle,
    "timesten": _oracle,
    "sqlite": lambda end: Address(fields={"database": end.dsn}),
    "duckdb": lambda end: Address(fields={"database": split_dsn(end.dsn)[0]}),
    "none": lambda _: Address(fields={}),
}


PASSWORD_FILE = "password"  # noqa: S105 - a file's name
KEY_PARTS = 7


def checked(spec: RunLoad, model: ProgramModel) -> None:
    """Refuse what a program cannot do, as the compiler does. TaskFault `invalid`."""
    share = spec.share
    if share.think_s is not None or spec.session or spec.pool.kind != "local":
        raise TaskFault("invalid", "a program makes its own connections: no think time, settings or pool")
    if share.levels or spec.windows.phases or spec.windows.passes:
        raise TaskFault("invalid", "a program has one rate, and windows of a fixed length")
    has_rate = bool(model.fields & {"rate", "total_rate"})
    if has_rate != (share.rate is not None):
        raise TaskFault("invalid", "a rate of the stage and the field {rate} of the program belong together")
    if problem := minutes_problem(model, spec.windows.ramp_up_s, spec.windows.measure_s):
        raise TaskFault("invalid", problem)


def load_fields(
    key: str, spec: RunLoad, model: ProgramModel, target: Address, *, folder: Path, seconds: float
) -> Mapping[str, str]:
    """The value of each field; `key` is that of the task, `seconds` the length of this run. TaskFault `invalid` for a
    field that the arguments have and that has no value."""
    share, windows = spec.share, spec.windows
    parts = key.split("/")
    stage, rung, repeat, attempt = parts[1:5] if len(parts) >= KEY_PARTS else ("", "", "", "")
    first, last = _range(model.range, share) if model.range else ("", "")
    found = {
        "threads": str(share.count),
        "total_threads": str(share.total),
        "first_thread": str(share.first),
        "rate": "" if share.rate is None else _plain(share.rate * share.count / share.total),
        "total_rate": "" if share.rate is None else _plain(share.rate),
        "range_from": first,
        "range_to": last,
        "seconds": str(math.ceil(seconds)),
        **{f"{one.name}_s": str(math.ceil(length_s)) for one, length_s in lengths_s(windows).items()},
        "ramp_up_min": str(math.ceil(windows.ramp_up_s / 60.0)),
        "measure_min": str(math.ceil(windows.measure_s / 60.0)),
        "stage": stage,
        "rung": rung,
        "repeat": repeat,
        "attempt": attempt,
        "seed": str(spec.seed % 2**31),
        **{name: target.fields.get(name, "") for name in TARGET},
        "password_file": str(folder / PASSWORD_FILE) if target.password else "",
    }
    lacking = sorted(name for name in model.fields if not found[name])
    if lacking:
        what = f"the field {{{lacking[0]}}} has no value: the dsn of system {spec.endpoint.system!r} does not give it"
        raise TaskFault("invalid", what, way_out="leave the field away, or give the dsn of the system that part")
    return found


def variables(values: Mapping[str, str], target: Address, folder: Path) -> dict[str, str]:
    """The environment of the program: each field, the password, the folder, and the variables of database clients."""
    own = {f"{ENVIRONMENT}{name.upper()}": value for name, value in values.items() if value}
    own[f"{ENVIRONMENT}FOLDER"] = str(folder)
    if target.password:
        own[f"{ENVIRONMENT}PASSWORD"] = target.password
    return {**own, **{name: value for name, value in target.variables.items() if value}}


def _range(whole: tuple[int, int], share: LoadShare) -> tuple[str, str]:
    """The first and the last key of this host, by the share of its threads."""
    mine = keys_of_share(whole, share.first, share.first + share.count, share.total)
    if not mine:
        keys = whole[1] - whole[0] + 1
        raise TaskFault("invalid", f"a range of {keys} keys gives a host of {share.count} threads none")
    return str(mine[0]), str(mine[-1])


def _plain(rate: float) -> str:
    """A rate without exponent."""
    return f"{rate:.6f}".rstrip("0").rstrip(".")


# A program whose output has times makes the whole load in one run, and so does one with windows of its own. Otherwise
# the ramp-up is a run of its own, because a summary is that of a whole run.

OVERTIME_S = 20.0
CPU_EVERY_S = 0.2
OUTPUT_MAX = FILE_BYTES_MAX = 16 * 1024 * 1024
KEPT_MAX = 1024 * 1024
"""Characters of an output that the run keeps."""
LOG_BYTES_MAX = 1 << 30


async def run_generator(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Run one rung. TaskFault: `refused` by the policy, `fault` or `timeout` if the program fails or hangs."""
    model = of_workload(spec.workload)
    assert isinstance(model, ProgramModel)  # noqa: S101 - the kind of the workload
    checked(spec, model)
    user = _unprivileged()
    folder = await asyncio.to_thread(ToolFolder.enter, context.work_dir, None if user.inherited else user.uid)
    try:
        return await _Generator(context, spec, model, folder).run()
    finally:
        await asyncio.to_thread(folder.leave)


def kept(output: str) -> str:
    """The output as the run keeps it: of a long one both ends."""
    half = KEPT_MAX // 2
    left_out = len(output) - 2 * half
    if left_out <= 0:
        return output
    return f"{output[:half]}\n[{left_out:,} characters are left out here]\n{output[-half:]}"


def _unprivileged() -> Privileges:
    """The unprivileged user, in the group that reaches the sockets of embedded servers."""
    return replace(Privileges.for_engine(""), reads_all=False)


class _Generator:
    """One rung of one program."""

    def __init__(self, context: TaskContext, spec: RunLoad, model: ProgramModel, folder: ToolFolder) -> None:
        self._context, self._spec, self._model, self._folder = context, spec, model, folder
        self._target = address(spec.endpoint)
        self._cpu: list[tuple[int, float, int]] = []
        self._ended_ns = 0

    async def run(self) -> LoadResult:
        windows, whole = self._spec.windows, self._model.runs_whole
        if self._target.password:
            await asyncio.to_thread(self._write_password)
        programs: list[Program] = []
        try:
            if windows.ramp_up_s and not whole:
                programs.append(await self._arm(windows.ramp_up_s))
            programs.append(await self._arm(windows.measured_to_s if whole else windows.measure_s))
            self._context.armed()
            t0_ns = await self._context.started()
            await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9, 0.0))
            began_ns = time.monotonic_ns()
            for ramp in programs[:-1]:
                await self._ended(ramp, windows.ramp_up_s)
                await asyncio.sleep(max((t0_ns - time.monotonic_ns()) / 1e9 + windows.ramp_up_s, 0.0))
            start_ns = time.monotonic_ns()
            output = await self._ended(programs[-1], windows.total_s)
            measured, values = await asyncio.to_thread(self._measured, output, t0_ns, start_ns)
        finally:
            await asyncio.shield(asyncio.gather(*(program.kill() for program in programs)))
        self._context.sample_all(measured.seconds)
        # the program has got the password, and may write it
        text = kept(without(output.decode(errors="replace"), self._target.password))
        result = self._result(measured, text, began_ns - t0_ns)
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
            workload_program.words(self._model.argv, values),
            workload_program.in_forms(self._model.argv[1:], self._spec.endpoint.engine),
        )
        privileges = INHERITED if privileged else _unprivileged()
        own = variables(values, self._target, self._folder.path)
        return await Program.arm(argv, self._folder.path, privileges, own)

    async def _ended(self, program: Program, seconds: float) -> bytes:
        """Start a program and wait for its end; return its output. TaskFault."""
        name = self._model.argv[0]
        self._cpu.clear()  # each program counts from 0
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
            words = program.words or output[-400:].decode(errors="replace").strip() or "it wrote no message"
            words = without(words, self._target.password)
            raise TaskFault("fault", f"{name} {how_ended(code)}: {words}", way_out="run it by hand on this host")
        return output

    async def _watch(self, pid: int) -> None:
        """Note the CPU time of the program and of those that it starts, as a script does."""
        tree = ProcessTree(pid)
        while True:
            self._cpu.append((time.monotonic_ns(), *tree.cpu_and_threads()))
            await asyncio.sleep(CPU_EVERY_S)

    # ---- the output --------------------------------------------------------------------------------------------------

    def _measured(self, output: bytes, t0_ns: int, start_ns: int) -> tuple[Measured, tuple[tuple[str, float], ...]]:
        windows, form = self._spec.windows, self._model.output
        ahead_ns = time.time_ns() - time.monotonic_ns()
        if isinstance(form, workload_program.ProgramOutput):
            found = output if form.file is None else self._file(form.file)
            unix_of_t0_s = (t0_ns + ahead_ns) / 1e9
            return generator_output.declared(found, self._model, windows, t0_ns, start_ns, unix_of_t0_s=unix_of_t0_s)
        text = output.decode(errors="replace")
        match form:
            case "sysbench":
                return generator_output.sysbench(text, t0_ns, start_ns), ()
            case "pgbench":
                return generator_output.pgbench(self._logs(), windows, t0_ns, ahead_ns), ()
            case "hammerdb":
                return self._hammerdb(text, t0_ns)
            case "fio":
                return self._fio(text)

    def _hammerdb(self, output: str, t0_ns: int) -> tuple[Measured, tuple[tuple[str, float], ...]]:
        try:
            values = generator_output.numbers(output)
        except NoValue as fault:
            raise TaskFault("fault", fault.what, way_out=fault.way_out) from None
        windows = self._spec.windows
        start_ns = t0_ns + round(windows.ramp_up_s * 1e9)
        measured = Measured(
            start_ns=start_ns,
            end_ns=start_ns + round(windows.measure_s * 1e9),
            load=load_of(round(values["tpm"] / 60.0 * windows.measure_s)),
        )
        return measured, tuple(values.items())

    def _fio(self, output: str) -> tuple[Measured, tuple[tuple[str, float], ...]]:
        documents = fio.Documents()
        found = [document for line in output.splitlines() if (document := documents.take(line)) is not None]
        if not found:
            raise fio.garbled("it has no JSON; is `--output-format=json+` among the arguments?")
        run, values = fio.whole_run(found[-1])
        measured = Measured(
            start_ns=self._ended_ns - run.runtime_ms * 1_000_000,
            end_ns=self._ended_ns,
            load=load_of(run.ios, histogram.merge(side.response for side in run.sides.values()), run.errors),
        )
        return measured, tuple(values.items())

    def _file(self, name: str) -> bytes:
        try:
            return _content(self._folder.path / name, FILE_BYTES_MAX)
        except OSError as error:
            what = f"{self._model.argv[0]} has left no file {name!r} in its folder: {error.strerror}"
            raise TaskFault("fault", what, way_out="its argument names the file without a folder") from None

    def _logs(self) -> list[bytes]:
        found: list[bytes] = []
        left = LOG_BYTES_MAX
        for path in sorted(self._folder.path.glob("pgbench_log.*")):
            with suppress(OSError):  # a link, for example
                content = _content(path, left)
                left -= len(content)
                found.append(content)
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
