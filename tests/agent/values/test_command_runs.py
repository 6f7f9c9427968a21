"""Commands on a host: the policy decides, the program is bounded in time and size, and its values are read."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eventually import PATIENCE_S

from proveout.agent.capture import command_values, kinds
from proveout.agent.capture.command_values import run_command
from proveout.agent.engines.adapter import Tick
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING, Policy, Tool
from proveout.dsl.plan.commands import Command, MeasuredValue
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.tasks import RunCapture, RunCommand

SHELL = Tool(path="/bin/sh", arguments=("-c", "*"))
"""A file cannot list a shell; a policy made by hand can, and stands for a program of the host."""
VALUE = MeasuredValue(name="a", column="a")


def shell(script: str, **more: Any) -> RunCommand:
    return RunCommand(command=Command(argv=("/bin/sh", "-c", script), **more), values=(VALUE,))


@pytest.fixture
def context(task_context: Any) -> Any:
    task_context.policy = Policy(commands=(SHELL,))
    return task_context


async def test_the_values_and_the_raw_output_of_a_program(context: Any) -> None:
    done = await run_command(context, shell("echo a=12; echo b=x"))
    assert done.values == (("a", 12.0),)
    assert done.output == "a=12\nb=x\n"
    assert done.elapsed_s > 0.0
    assert (await run_command(context, shell("echo a=1; exit 3", exit_codes=(0, 3)))).values == (("a", 1.0),)
    ended = await run_command(context, shell("exec 3>&1; { yes; echo a=$? >&3; } | head -n 1 >/dev/null"))
    assert ended.values == (("a", 128.0 + signal.SIGPIPE),), "a writer ends with its reader, as in a shell"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change to another user")
async def test_a_program_of_a_root_agent_runs_as_the_unprivileged_user(context: Any) -> None:
    spec = shell('echo "a=$(id -u)"; grep -c . /etc/shadow 2>&1 || true')
    unprivileged = await run_command(context, spec)
    assert unprivileged.values[0][1] > 0.0 and "denied" in unprivileged.output
    context.policy = Policy(commands=(replace(SHELL, privileged=True),))
    assert (await run_command(context, spec)).values == (("a", 0.0),)


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("echo a=1; exit 3", "fault", "ended with exit code 3: a=1"),
        ("echo broken >&2; kill -9 $$", "fault", "killed by signal 9: broken"),
        ("tail -f /dev/null >/dev/null & echo not well >&2; exit 4", "fault", "ended with exit code 4: not well"),
        ("sleep 60", "timeout", r"did not end within 0\.2 s"),
        ("yes", "fault", "longer than 1,048,576 bytes"),
        ("echo b=1", "missing", "no column 'a'"),
    ],
)
async def test_a_hostile_program_is_a_clear_fault(context: Any, script: str, code: str, words: str) -> None:
    with pytest.raises(TaskFault, match=words) as caught:
        await run_command(context, shell(script, within_s=0.2 if "sleep" in script else 20.0))
    assert caught.value.code == code


async def test_without_an_entry_a_command_is_refused_with_the_line_to_add(task_context: Any) -> None:
    task_context.policy = NOTHING
    spec = RunCommand(command=Command(argv=("df", "-k", "a, b")), values=(VALUE,))
    with pytest.raises(TaskFault, match="the command df") as caught:
        await run_command(task_context, spec)
    assert caught.value.code == "refused"
    assert "df, arguments: [-k, 'a, b']}` under `commands`" in caught.value.way_out


# ---- captures --------------------------------------------------------------------------------------------------------


SPEC = RunCapture(
    capture=Capture(name="c", kind="command", every_s=60.0, command=Command(argv=("df",)), values=(VALUE,))
)


def observed(
    monkeypatch: pytest.MonkeyPatch, context: Any, *outputs: bytes | TaskFault
) -> tuple[command_values.CommandObserver, list[str]]:
    """An observer of a program with these outputs, and what it keeps of them; its work runs at once in this thread."""
    left, kept = [*outputs], list[str]()

    def answer(_: object, work: Any) -> bytes:
        work.close()
        found = left.pop(0)
        if isinstance(found, TaskFault):
            raise found
        return found

    monkeypatch.setattr(command_values.CommandObserver, "_on_loop", answer)
    program: Any = command_values.SampledProgram(context.policy, SPEC.capture.command)
    loop: Any = None
    return command_values.CommandObserver(SPEC, program, loop, kept), kept


TICK = Tick(at_ns=1, report=True, last=False)


def test_a_run_that_fails_costs_its_sample(monkeypatch: pytest.MonkeyPatch, context: Any) -> None:
    outputs = (b"a=2", TaskFault("timeout", "slow"), b"a=x", b"a=3")
    observer, kept = observed(monkeypatch, context, *outputs)
    found = [observer.look(TICK) for _ in range(4)]
    assert [None if sample is None else sample[0].value for sample in found] == [2.0, None, None, 3.0]
    assert "".join(kept).count("# ") == 3 and "a=x" in kept[1]


async def test_a_program_that_does_not_end_with_the_load_costs_its_sample(
    monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:
    runs: list[bytes] = []

    async def output(_: object) -> bytes:
        if runs:
            context.end()
            await asyncio.Event().wait()
        runs.append(b"a=1")
        return runs[0]

    monkeypatch.setattr(kinds, "END_S", 0.0)
    monkeypatch.setattr(command_values.SampledProgram, "output", output)
    done = await command_values.capture(context, SPEC)
    assert (done.samples, done.lost, done.output.count("a=1")) == (0, 2, 1)


async def test_a_first_run_can_be_cancelled_and_must_give_values(monkeypatch: pytest.MonkeyPatch, context: Any) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def output(_: object) -> bytes:
        began.set()
        await release.wait()
        return b"b=1"

    monkeypatch.setattr(command_values.SampledProgram, "output", output)
    running = asyncio.ensure_future(command_values.capture(context, SPEC))
    await began.wait()
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
    release.set()
    assert ended
    with pytest.raises(TaskFault, match="capture 'c': metric"):
        await command_values.capture(context, SPEC)


def test_the_outputs_kept_of_a_capture_are_bounded(monkeypatch: pytest.MonkeyPatch, context: Any) -> None:
    observer, kept = observed(monkeypatch, context, *[b"a=1\n" + b"x" * 400_000] * 5)
    for _ in range(5):
        observer.look(TICK)
    assert len("".join(kept)) < 1_100_000
    assert "".join(kept).count("later outputs are not kept") == 1


# ---- one process for all samples of a capture --------------------------------------------------------------------------


def sampled(*argv: str, within_s: float = 30.0) -> command_values.SampledProgram:
    policy = Policy(source="p", commands=(Tool(path=argv[0], arguments=("*",)),))
    return command_values.SampledProgram(policy, Command(argv=argv, within_s=within_s, exit_codes=(0, 3)))


async def test_the_samples_of_a_program_share_one_repeater() -> None:
    program = sampled("/bin/sh", "-c", "echo $PPID; cat; exit 3")
    try:
        found = [await program.output() for _ in range(3)]
    finally:
        await program.close()
    assert len({*found}) == 1, "all have one parent, and an empty standard input"
    assert not Path(f"/proc/{found[0].decode().strip()}").exists()


@pytest.mark.parametrize(
    ("argv", "within_s", "words"),
    [
        (("/bin/sh", "-c", "echo out; echo not well >&2; exit 4"), 30.0, "/bin/sh ended with exit code 4: not well"),
        (("/bin/sh", "-c", "echo $$; sleep 60"), 0.3, r"did not end within 0\.3 s"),
        (("/usr/bin/yes",), 30.0, "longer than 1,048,576 bytes"),
        (("/etc/passwd",), 30.0, "exit code 127: cannot start /etc/passwd: Permission denied"),
    ],
    ids=["fails", "hangs", "without end", "cannot start"],
)
async def test_a_program_that_gives_no_output_is_a_fault_and_is_run_again(
    argv: tuple[str, ...], within_s: float, words: str
) -> None:
    program = sampled(*argv, within_s=within_s)
    try:
        for _ in range(2):
            with pytest.raises(TaskFault, match=words):
                await program.output()
    finally:
        await program.close()
