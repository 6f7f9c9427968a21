"""Numbers from commands: the program of a command stage, and captures of kind command.

Data flow: `Command` -> the host's policy -> `Program`, as the unprivileged user unless the policy lists the command as
privileged -> its output, bounded in time and size -> `ValueTable` -> numbers by name. The raw output returns with the
result, and the coordinator keeps it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proveout.agent.capture.schedule import observe
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import Tick
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.security.policy import Policy
from proveout.agent.tools.listed import listed_program
from proveout.agent.tools.program import REPEATER, Program, unprivileged
from proveout.agent.tools.program_repeater import OUTPUT_MAX
from proveout.agent.values.command_output import decoded, parse
from proveout.agent.values.value_table import NoValue, read_values
from proveout.core import child_process
from proveout.dsl.plan.commands import Command
from proveout.dsl.plan.measured_values import MeasuredValue
from proveout.proto.wire.results import CaptureResult, CommandDone, Reading
from proveout.proto.wire.tasks import RunCapture, RunCommand, measured_name

KEPT_MAX = OUTPUT_MAX
"""Bytes that a capture keeps of all its outputs."""


async def output_of(policy: Policy, command: Command) -> tuple[bytes, float]:
    """Run a program to its end; return its output, and the seconds that it took.

    TaskFault: `refused` by the policy, `timeout`, or `fault` for another exit code or an output that is too long.
    """
    argv, privileged = listed_program(policy, command.argv)
    program = await Program.arm(argv, Path(child_process.DIRECTORY), INHERITED if privileged else unprivileged())
    try:
        async with asyncio.timeout(command.within_s):
            await program.go()
            began_s = time.monotonic()
            output = await program.output(OUTPUT_MAX)
            code = await program.ended()
            elapsed_s = time.monotonic() - began_s
    except TimeoutError:
        raise _late(argv[0], command) from None
    except TaskFault as fault:
        raise TaskFault(fault.code, f"{argv[0]}: {fault.what}", way_out=fault.way_out) from None
    finally:
        await asyncio.shield(program.kill())
    _check_code(command, argv[0], code, program.words or output[-300:].decode(errors="replace").strip())
    return output, elapsed_s


def _check_code(command: Command, name: str, code: int, words: str) -> None:
    """TaskFault for an exit code that is not one of success."""
    if code in command.exit_codes:
        return
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    way_out = "run it by hand on this host, or list the code in `exit_codes`"
    raise TaskFault("fault", f"{name} {how}: {words or 'it wrote no message'}", way_out=way_out)


def _late(name: str, command: Command) -> TaskFault:
    way_out = "set `within` to a longer time, or call the program so that it ends by itself"
    return TaskFault("timeout", f"{name} did not end within {command.within_s:g} s", way_out=way_out)


async def run_command(context: TaskContext, spec: RunCommand) -> CommandDone:
    """Run a program once and read its values. TaskFault as `output_of`; `missing` when a value cannot be read."""
    output, elapsed_s = await output_of(context.policy, spec.command)
    try:
        text, values = await asyncio.to_thread(values_of, output, spec.command, spec.values)
    except NoValue as fault:
        what = f"{spec.command.argv[0]}: {fault.what}"
        raise TaskFault("missing", what, way_out=fault.way_out) from None
    return CommandDone(elapsed_s=elapsed_s, values=values, output=text)


def values_of(
    output: bytes, command: Command, values: Sequence[MeasuredValue]
) -> tuple[str, tuple[tuple[str, float], ...]]:
    """The text of an output, and its values. NoValue."""
    text = decoded(output)
    return text, read_values(parse(text, command.output), values)


# ---- captures --------------------------------------------------------------------------------------------------------


class SampledProgram:
    """One program for all samples of a capture: its repeater starts with the first one, and again after a failure."""

    def __init__(self, policy: Policy, command: Command) -> None:
        self._policy, self._command = policy, command
        self._program: Program | None = None

    async def output(self) -> bytes:
        """Run it once; return its output. TaskFault as `output_of`."""
        name, command = self._command.argv[0], self._command
        try:
            program = self._program = self._program or await self._arm()
            async with asyncio.timeout(command.within_s):
                code, output, words = await program.again()
        except TimeoutError:
            await self.close()
            raise _late(name, command) from None
        except TaskFault as fault:
            await self.close()
            raise TaskFault(fault.code, f"{name}: {fault.what}", way_out=fault.way_out) from None
        except asyncio.CancelledError:
            await asyncio.shield(self.close())
            raise
        _check_code(command, name, code, words or output[-300:].decode(errors="replace").strip())
        return output

    async def _arm(self) -> Program:
        argv, privileged = listed_program(self._policy, self._command.argv)
        own = INHERITED if privileged else unprivileged()
        return await Program.arm(argv, Path(child_process.DIRECTORY), own, module=REPEATER)

    async def close(self) -> None:
        """Kill the program and its repeater; idempotent."""
        program, self._program = self._program, None
        if program is not None:
            await asyncio.shield(program.kill())


class CommandObserver:
    """Runs a program for each sample; see `adapter.Observer`. One that fails costs its sample."""

    def __init__(self, spec: RunCapture, program: SampledProgram, loop: asyncio.AbstractEventLoop) -> None:
        self._capture, self._program, self._loop = spec.capture, program, loop
        self._running: Future[bytes] | None = None
        self._ended = False
        self._outputs: list[str] = []
        self._left = KEPT_MAX
        try:
            self._read()
        except NoValue as fault:
            what = f"capture {spec.capture.name!r}: {fault.what}"
            raise TaskFault("missing", what, way_out=fault.way_out) from None
        except TaskFault as fault:
            what = f"capture {spec.capture.name!r}: {fault.what}"
            raise TaskFault(fault.code, what, way_out=fault.way_out) from None

    def _read(self) -> list[Reading]:
        at = datetime.now(UTC)
        output = self._on_loop(self._program.output())
        self._keep(at, output)
        _, values = values_of(output, self._capture.command, self._capture.values)
        found = dict(values)
        return [
            Reading(metric=measured_name("command", value), value=found[value.name]) for value in self._capture.values
        ]

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

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """One reading for each value; None when the program fails or a value cannot be read."""
        if not tick.report:
            return []
        try:
            return None if self._ended else self._read()
        except (NoValue, TaskFault):
            return None
        except (asyncio.CancelledError, TimeoutError):  # `abort`
            return None

    @property
    def outputs(self) -> str:
        """The raw outputs so far."""
        return "".join(self._outputs)

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
    made: list[CommandObserver] = []
    program = SampledProgram(context.policy, spec.capture.command)

    def make() -> CommandObserver:
        made.append(CommandObserver(spec, program, loop))
        return made[0]

    try:
        result = await observe(context, spec, make)
    finally:
        await program.close()
    return replace(result, output="".join(observer.outputs for observer in made))
