"""Numbers from commands: the output of a program as a table, command stages, and captures of kind `command`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from proveout.agent.capture.kinds import observe
from proveout.agent.capture.query_values import NoValue, ValueTable, read_values, shown
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import Tick
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.security.policy import Policy
from proveout.agent.tools.program import Program, how_ended, listed_program, unprivileged
from proveout.agent.tools.program_launcher import OUTPUT_MAX
from proveout.core import child_process, errors
from proveout.dsl.plan.commands import Command, MeasuredValue, OutputFormat, OutputRows
from proveout.dsl.rules.host_rules import PATTERNS
from proveout.proto.wire.results import CaptureResult, CommandDone, Reading
from proveout.proto.wire.tasks import RunCapture, RunCommand, measured_name

# JSON is that of RFC 8259: no NaN, no infinity. Regular expressions are matched by RE2, in time linear in the text.

DEPTH_MAX = 50
ROWS_MAX, CELLS_MAX = 100_000, 1_000_000
"""More than a day of seconds."""
KEY_MAX, NUMBER_MAX = 200, 80
_MARK = re.compile(r"[=:]")
_NUMBER_AND_UNIT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*[A-Za-zµ%/]+")


def decoded(output: bytes) -> str:
    """The output as text. NoValue where it is not UTF-8 text."""
    try:
        text = output.decode()
    except UnicodeDecodeError as error:
        raise NoValue(f"the output is not UTF-8 text (byte {error.start + 1})", "an option that prints text") from None
    if "\0" in text:
        raise NoValue("the output is not text: it holds NUL bytes", "an option that prints text")
    return text


def parse(text: str, form: OutputRows) -> ValueTable:
    """The rows of an output. NoValue where it has another form."""
    return _FORMS[form.format](text, form)


def _table(rows: Sequence[Mapping[str, Any]]) -> ValueTable:
    """The table of rows that may each lack some columns."""
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    if len(rows) > ROWS_MAX or len(columns) * len(rows) > CELLS_MAX:
        raise NoValue(f"the output has more than {ROWS_MAX:,} rows or {CELLS_MAX:,} values")
    return ValueTable(columns=columns, rows=[[row.get(name) for name in columns] for row in rows])


# ---- json ------------------------------------------------------------------------------------------------------------


def _json(text: str, form: OutputRows) -> ValueTable:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise NoValue("the output is JSON that is nested too deeply") from None
    except ValueError as error:
        raise NoValue(f"the output is not JSON: {error}; it begins with {shown(text)}") from None
    at = ""
    for step in filter(None, form.rows.split(".")):
        at = f"{at}.{step}" if at else step
        found = _below(found, step, at)
    items = found if isinstance(found, list) else [found]
    if len(items) > ROWS_MAX:
        raise NoValue(f"the output has more than {ROWS_MAX:,} rows")
    return _table([dict(_flat(item, "", 0)) if isinstance(item, dict | list) else {"value": item} for item in items])


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def _below(found: Any, step: str, at: str) -> Any:
    if isinstance(found, dict) and step in found:
        return found[step]
    if isinstance(found, list) and step.isdecimal() and int(step[:9]) < len(found):
        return found[int(step[:9])]
    names = ", ".join(list(found)[:8]) if isinstance(found, dict) else f"a {type(found).__name__}"
    raise NoValue(f"the output has nothing at `{at}`", f"there is {names[:400]}")


def _flat(item: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The values of nested data with dotted names; elements of lists are counted from 0."""
    if depth > DEPTH_MAX:
        raise NoValue("the output is JSON that is nested too deeply")
    parts = item.items() if isinstance(item, dict) else enumerate(item)
    for key, value in parts:
        path = f"{name}.{key}" if name else str(key)
        if isinstance(value, dict | list):
            yield from _flat(value, path, depth + 1)
        else:
            yield path, value


# ---- lines -----------------------------------------------------------------------------------------------------------


def _csv(text: str, form: OutputRows) -> ValueTable:
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=form.separator, strict=True):
            if len(rows) > ROWS_MAX:
                raise NoValue(f"the output has more than {ROWS_MAX:,} rows")
            rows += [[cell.strip() for cell in row]] if row else []
    except csv.Error as error:
        raise NoValue(f"the output is not CSV: {error}") from None
    if form.header:
        names, *rows = rows or [[]]
    else:
        names = [str(number) for number in range(1, max(map(len, rows), default=0) + 1)]
    for number, row in enumerate(rows, 2 if form.header else 1):
        if len(row) > len(names):
            raise NoValue(f"row {number} of the output has {len(row)} columns, and the first one {len(names)}")
    return ValueTable(columns=tuple(names), rows=[row + [None] * (len(names) - len(row)) for row in rows])


def _pairs(text: str, _: OutputRows) -> ValueTable:
    rows: list[dict[str, Any]] = []
    for line in map(str.strip, text.splitlines()):
        mark = _MARK.search(line, 1, KEY_MAX)
        words = (line[: mark.start()], line[mark.end() :]) if mark else line.split(maxsplit=1)
        if len(words) < 2:
            continue
        key, value = (word.strip() for word in words)
        if not rows or key in rows[-1]:
            rows.append({})
        unit = _NUMBER_AND_UNIT.fullmatch(value) if len(value) <= NUMBER_MAX else None
        rows[-1][key] = unit[1] if unit else value
    return _table(rows)


def _pattern(text: str, form: OutputRows) -> ValueTable:
    try:
        pa, pc = (errors.loaded(name, PATTERNS) for name in ("pyarrow", "pyarrow.compute"))
    except errors.NotInstalled as missing:
        raise TaskFault("missing", missing.what, way_out=f"{missing.way_out}, on this host") from None
    found = pc.extract_regex(pa.array(text.splitlines(), pa.string()), pattern=form.pattern).drop_null()
    if not len(found):
        raise NoValue(f"no line of the output matches the pattern; it begins with {shown(text)}")
    return _table(found.to_pylist())


_FORMS: Mapping[OutputFormat, Callable[[str, OutputRows], ValueTable]] = {
    "json": _json,
    "csv": _csv,
    "pairs": _pairs,
    "pattern": _pattern,
}


KEPT_MAX = OUTPUT_MAX
"""Bytes that a capture keeps of all its outputs."""


async def run_command(context: TaskContext, spec: RunCommand) -> CommandDone:
    """Run a program once and read its values. TaskFault as `SampledProgram.output`; `missing` when a value cannot be
    read."""
    program = SampledProgram(context.policy, spec.command)
    try:
        await program.arm()
        began_s = time.monotonic()
        output = await program.output()
        elapsed_s = time.monotonic() - began_s
        text, values = await asyncio.to_thread(values_of, output, spec.command, spec.values)
    except NoValue as fault:
        raise fault.about(spec.command.argv[0]) from None
    finally:
        await program.close()
    return CommandDone(elapsed_s=elapsed_s, values=values, output=text)


def values_of(
    output: bytes, command: Command, values: Sequence[MeasuredValue]
) -> tuple[str, tuple[tuple[str, float], ...]]:
    """The text of an output, and its values. NoValue."""
    text = decoded(output)
    return text, read_values(parse(text, command.output), values)


# ---- captures --------------------------------------------------------------------------------------------------------


class SampledProgram:
    """One program for all its runs: its launcher starts with the first one, and again after a failure."""

    def __init__(self, policy: Policy, command: Command) -> None:
        self._policy, self._command = policy, command
        self._program: Program | None = None

    async def output(self) -> bytes:
        """Run it once; return its output. TaskFault: `refused` by the policy, `timeout`, or `fault` for an exit code
        that is not one of success, or an output that is too long."""
        name, command = self._command.argv[0], self._command
        try:
            program = await self.arm()
            async with asyncio.timeout(command.within_s):
                code, output, words = await program.again()
        except TimeoutError:
            await self.close()
            way_out = "set `within` to a longer time, or call the program so that it ends by itself"
            what = f"{name} did not end within {command.within_s:g} s"
            raise TaskFault("timeout", what, way_out=way_out) from None
        except TaskFault as fault:
            await self.close()
            raise fault.about(name) from None
        except asyncio.CancelledError:
            await asyncio.shield(self.close())
            raise
        if code not in command.exit_codes:
            words = words or output[-300:].decode(errors="replace").strip() or "it wrote no message"
            way_out = "run it by hand on this host, or list the code in `exit_codes`"
            raise TaskFault("fault", f"{name} {how_ended(code)}: {words}", way_out=way_out)
        return output

    async def arm(self) -> Program:
        """Start the launcher, if it does not run."""
        if self._program is None:
            argv, privileged = listed_program(self._policy, self._command.argv)
            own = INHERITED if privileged else unprivileged()
            self._program = await Program.arm(argv, Path(child_process.DIRECTORY), own, repeats=True)
        return self._program

    async def close(self) -> None:
        """Kill the program and its launcher; idempotent."""
        program, self._program = self._program, None
        if program is not None:
            await asyncio.shield(program.kill())


class CommandObserver:
    """Runs a program for each sample; see `adapter.Observer`. One that fails costs its sample. Raw outputs are added to
    `outputs`."""

    def __init__(
        self, spec: RunCapture, program: SampledProgram, loop: asyncio.AbstractEventLoop, outputs: list[str]
    ) -> None:
        self._capture, self._program, self._loop, self._outputs = spec.capture, program, loop, outputs
        self._running: Future[bytes] | None = None
        self._ended = False
        self._left = KEPT_MAX

    async def check(self) -> None:
        """Run it once, on the loop, where a task can be cancelled. TaskFault where it gives no values."""
        try:
            at = datetime.now(UTC)
            await asyncio.to_thread(self._readings, at, await self._program.output())
        except TaskFault as fault:
            raise fault.about(f"capture {self._capture.name!r}") from None

    def _readings(self, at: datetime, output: bytes) -> list[Reading]:
        """The values of the run that began at `at`. NoValue."""
        self._keep(at, output)
        values = self._capture.values
        found = dict(values_of(output, self._capture.command, values)[1])
        return [Reading(metric=measured_name("command", value), value=found[value.name]) for value in values]

    def _on_loop(self, work: Coroutine[Any, Any, bytes]) -> bytes:
        """Run on the agent's loop, and wait for it in this thread."""
        running = self._running = asyncio.run_coroutine_threadsafe(work, self._loop)
        return running.result()

    def _keep(self, at: datetime, output: bytes) -> None:
        if self._left <= 0:
            return
        text = f"# {at.isoformat(timespec='milliseconds')}\n{output.decode(errors='replace')}\n"
        self._left -= len(text.encode())
        more = f"# later outputs are not kept: this file has {KEPT_MAX:,} bytes\n"
        self._outputs.append(text if self._left > 0 else more)

    def look(self, _: Tick) -> Sequence[Reading] | None:
        """One reading for each value; None when the program fails or a value cannot be read."""
        try:
            at = datetime.now(UTC)
            return None if self._ended else self._readings(at, self._on_loop(self._program.output()))
        except (TaskFault, CancelledError):  # the latter by `abort`
            return None

    def abort(self) -> None:
        """End the program that runs, and start no other."""
        self._ended = True
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """Start no other program."""
        self._ended = True


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Run the program for each sample until finished. TaskFault when the first run gives no values."""
    loop = asyncio.get_running_loop()
    outputs: list[str] = []
    program = SampledProgram(context.policy, spec.capture.command)
    observer = CommandObserver(spec, program, loop, outputs)
    try:
        await observer.check()
        result = await observe(context, spec, lambda: observer)
    finally:
        await program.close()
    return replace(result, output="".join(outputs))
