"""Faults on a host in a folder: their steps, their instants, and their healing however they end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from fault_bench import injection, steps, tuner, until
from tuning_bench import full, host_in, picture, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.fault_injection import inject_fault
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.proto.wire.results import FaultInjected, FaultStep

SWAP = tuning("sysctl", "swap", settings={"vm.swappiness": "1"})
FILE = tuning("file", "file", path="/etc/app/a.conf", content="in place\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root, "/proc/sys/vm/swappiness", "60\n")
    put(root, "/etc/app/a.conf", "before\n")
    return root


@pytest.fixture
def context(task_context: Any, root: Path, tmp_path: Path) -> Any:
    task_context.arms, task_context.t0_ns = True, time.monotonic_ns()
    task_context.resources[RESOURCE] = Tuner(tmp_path / "undo", prepare=lambda _: host_in(root))
    return task_context


async def test_a_fault_begins_and_is_healed_at_its_instants(context: Any, root: Path) -> None:
    """By the record, in which no instant is earlier than in the plan."""
    before = picture(root)
    result = await inject_fault(context, injection(SWAP, FILE, begins_s=(0.0, 0.1), for_s=0.05))
    whole = ["begins", "in_place", "healing", "healed"]
    assert steps(context) == [(1, step) for step in whole] + [(2, step) for step in whole]
    streamed = [one.at_ns for one in context.samples]
    assert streamed == sorted(streamed)
    for number, (one, begins_s) in enumerate(zip(result.occurrences, (0.0, 0.1), strict=True), 1):
        assert (one.number, one.error, one.residue) == (number, "", ())
        assert one.begins_ns >= context.t0_ns + begins_s * 1e9
        assert one.in_place_ns and one.healing_ns and one.healed_ns
        assert one.begins_ns <= one.in_place_ns <= one.healing_ns <= one.healed_ns
        assert one.healing_ns - one.in_place_ns >= 0.05 * 1e9
        at = {step.step: step.at_ns for step in context.samples if step.number == number}
        assert list(at.values()) == [one.begins_ns, one.in_place_ns, one.healing_ns, one.healed_ns]
    assert picture(root) == before
    assert tuner(context).is_idle


async def test_a_condition_begins_a_fault_once_for_each_number_until_finish(context: Any, root: Path) -> None:
    task = asyncio.ensure_future(inject_fault(context, injection(SWAP, begins_s=(), for_s=0.0)))
    for number in (1, 1, 2):
        context.triggers.put_nowait(number)
    await until(context, 2, "healed")
    context.end()
    result = await task
    assert [one.number for one in result.occurrences] == [1, 2]
    assert (root / "proc/sys/vm/swappiness").read_text().strip() == "60"


async def test_finish_heals_at_once_and_begins_no_more(context: Any, root: Path) -> None:
    task = asyncio.ensure_future(inject_fault(context, injection(SWAP, begins_s=(0.0, 60.0), for_s=3600.0)))
    await until(context, 1, "in_place")
    assert (root / "proc/sys/vm/swappiness").read_text().strip() == "1"
    context.end()
    (one,) = (await task).occurrences
    assert one.healed_ns is not None
    assert (root / "proc/sys/vm/swappiness").read_text().strip() == "60"


@pytest.mark.parametrize("step", ["begins", "in_place", "healing"])
async def test_a_cancelled_fault_is_healed_before_its_task_ends(
    step: str, context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(root)
    for_s = 0.0 if step == "healing" else 3600.0
    sample = context.sample

    def cancel_at_step(one: FaultStep) -> None:
        sample(one)
        if one.step == step:
            task.cancel()

    monkeypatch.setattr(context, "sample", cancel_at_step)
    task = asyncio.ensure_future(inject_fault(context, injection(SWAP, FILE, for_s=for_s)))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert picture(root) == before
    assert tuner(context).is_idle
    assert steps(context)[-1] == (1, "healed")


async def test_a_healing_that_cannot_be_done_is_reported_and_retried(
    context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = type(host_in(root).files)
    with monkeypatch.context() as patch:
        patch.setattr(files, "put", full)
        (one,) = (await inject_fault(context, injection(FILE))).occurrences
        assert one.healed_ns is None
        assert "a.conf could not be undone" in one.residue[0]
        assert "No space left" in one.residue[0]
        assert steps(context)[-1] == (1, "failed")
        assert context.samples[-1].text == one.residue[0]
        assert any(level == "error" and "is not healed" in text for level, text in context.logs)
        with pytest.raises(TaskFault, match="an earlier fault on this host could not be healed"):
            await inject_fault(context, injection(SWAP))
    await inject_fault(context, injection(SWAP))
    assert (root / "etc/app/a.conf").read_text() == "before\n"
    assert tuner(context).is_idle


async def test_a_fault_that_changes_nothing_has_failed(context: Any, root: Path) -> None:
    (root / "proc/sys/vm/swappiness").write_text("1\n")
    (one,) = (await inject_fault(context, injection(FILE, SWAP))).occurrences
    assert one.error == "swap changes nothing: the host is so already"
    assert (one.in_place_ns, one.healed_ns, one.residue) == (None, None, ())
    assert (root / "etc/app/a.conf").read_text() == "before\n"
    assert tuner(context).is_idle


async def test_tunings_of_the_run_and_of_faults_do_not_undo_each_other(
    context: Any, root: Path, tmp_path: Path
) -> None:
    swappiness = root / "proc/sys/vm/swappiness"
    base = tuning("sysctl", "base", settings={"vm.swappiness": "10"})
    other = tuning("file", "other", path="/etc/app/b.conf", content="of the run\n")
    await tuner(context).apply("r", (base, other), (), tmp_path)
    task = asyncio.ensure_future(inject_fault(context, injection(SWAP, FILE, for_s=3600.0)))
    await until(context, 1, "in_place")
    assert {state.name for state in await tuner(context).look(tmp_path)} == {"base", "other"}
    undone = {state.name: state.outcome for state in await tuner(context).revert()}
    assert undone == {"base": "residue", "other": "reverted"}  # the fault has changed it since
    assert (swappiness.read_text().strip(), (root / "etc/app/a.conf").read_text()) == ("1", "in place\n")
    context.end()
    result: FaultInjected = await task
    assert result.occurrences[0].residue == ()
    assert swappiness.read_text().strip() == "10"
    assert [(state.name, state.outcome) for state in await tuner(context).revert()] == [("base", "reverted")]
    assert swappiness.read_text().strip() == "60"


async def test_the_end_of_a_session_heals_what_a_fault_has_left(
    context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(host_in(root).files), "put", lambda *_: 1 / 0)
        (one,) = (await inject_fault(context, injection(FILE))).occurrences
    assert "ZeroDivisionError" in one.residue[0]
    await tuner(context).close(keep_data=False)
    assert (root / "etc/app/a.conf").read_text() == "before\n"
    assert tuner(context).is_idle
