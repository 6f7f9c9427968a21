"""`block_queue` on a real kernel: the queue of a separate loop device; skipped on hosts without loop devices or without a
choice of schedulers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tuning_bench import tuning

from proveout.agent.security.policy import Policy
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal

ATTRIBUTES = ("scheduler", "nr_requests", "rq_affinity", "nomerges", "read_ahead_kb")
OWN = {"iosched/read_expire": "120", "iosched/async_depth": "700"}


@pytest.fixture
def queue(disk: str) -> Path:
    """The kernel's folder of a queue that is longer than possible without a scheduler; its scheduler is not the default."""
    folder = Path("/sys/block") / Path(os.path.realpath(disk)).name / "queue"
    if "mq-deadline" not in (folder / "scheduler").read_text():
        pytest.skip("this kernel has no other scheduler")
    (folder / "scheduler").write_text("mq-deadline")
    (folder / "nr_requests").write_text("1000")
    for name, value in OWN.items():
        (folder / name).write_text(value)
    return folder


def as_it_is(queue: Path) -> dict[str, str]:
    return {name: (queue / name).read_text() for name in (*ATTRIBUTES, *OWN) if (queue / name).exists()}


@pytest.mark.parametrize("length", [{}, {"nr_requests": 64}], ids=["scheduler", "and length"])
def test_another_scheduler_and_back(length: dict[str, int], queue: Path, journal: UndoJournal) -> None:
    """Without a scheduler the kernel refuses a length of 1000, with one it starts at 256: only the right order of reverts
    restores 1000."""
    before = as_it_is(queue)
    one = tuning("block_queue", devices=[queue.parent.name], scheduler=["none"], rq_affinity=2, nomerges=1, **length)
    host = Host(policy=Policy(source="/etc/proveout/policy.yaml", paths=("/sys/block",)))
    transaction = Transaction(host=host, journal=journal, run="r")
    assert [state.outcome for state in transaction.apply((one,))] == ["applied"]
    assert "[none]" in as_it_is(queue)["scheduler"]
    assert {state.outcome for state in revert.look(host, journal)} == {"in_place"}
    assert [state.outcome for state in transaction.apply((one,))] == ["unchanged"]
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert as_it_is(queue) == before


def test_another_length_and_back(queue: Path, journal: UndoJournal) -> None:
    """The depth of the scheduler follows the length of the queue."""
    before = as_it_is(queue)
    one = tuning("block_queue", devices=[queue.parent.name], nr_requests=64)
    host = Host(policy=Policy(source="/etc/proveout/policy.yaml", paths=("/sys/block",)))
    assert [state.outcome for state in Transaction(host=host, journal=journal, run="r").apply((one,))] == ["applied"]
    assert as_it_is(queue)["iosched/async_depth"] == "64\n"
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert as_it_is(queue) == before


def test_a_length_that_the_kernel_refuses_changes_nothing(queue: Path, journal: UndoJournal) -> None:
    before = as_it_is(queue)
    one = tuning("block_queue", devices=[queue.parent.name], scheduler=["none"], nr_requests=100_000)
    host = Host(policy=Policy(source="/etc/proveout/policy.yaml", paths=("/sys/block",)))
    failed, *undone = Transaction(host=host, journal=journal, run="r").apply((one,))
    assert failed.outcome == "failed", failed.lines
    assert "nr_requests to '100000': Invalid argument" in failed.lines[0]
    assert {state.outcome for state in undone} == {"reverted"}
    assert as_it_is(queue) == before
