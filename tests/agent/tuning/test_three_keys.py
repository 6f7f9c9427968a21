"""What destroys data takes three keys at once: the plan's word, the owner's word, and the owner's name of the device."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tuning_bench import POLICY, StubTools, host_in

from proveout.agent.policy import Policy
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo import UndoJournal
from proveout.dsl.plan import Tuning
from proveout.dsl.tuning.change import Command
from proveout.dsl.tuning.operation import Step

DEVICE = "/dev/disk/by-id/wwn-0x600a"
DESTROY = Step(changes=(Command(argv=("/usr/bin/reload", "all"), device=DEVICE),))


def run(
    agreed: bool, policy: Policy, tmp_path: Path, journal: UndoJournal
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """(outcome, what was said, programs started) of a step that overwrites the device, whatever its operation."""
    tools = StubTools()
    tuning = Tuning(name="x", operation="partition", hosts=("h",), parameters=(), destructive=agreed)
    (state,) = Transaction(host=host_in(tmp_path / "root", policy=policy, tools=tools), journal=journal, run="r").apply(
        (tuning,)
    )
    return state.outcome, state.lines, tools.done


@pytest.mark.parametrize(("agreed", "allowed", "listed"), itertools.product((False, True), repeat=3))
def test_all_three_or_nothing(
    agreed: bool, allowed: bool, listed: bool, tmp_path: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([DESTROY, DESTROY, Step()])  # looked at, made, looked at again
    operation = SimpleNamespace(destructive=True, changes=lambda _facts: next(steps))
    monkeypatch.setattr(transaction, "operation_of", lambda _tuning: operation)
    monkeypatch.setattr(Host, "facts", lambda _self, _operation: {})
    policy = replace(POLICY, destructive=allowed, devices=(DEVICE,) if listed else ())
    outcome, said, done = run(agreed, policy, tmp_path, journal)
    if agreed and allowed and listed:
        assert outcome == "applied"
        assert done == [("/usr/bin/reload", "all")]
        return
    assert outcome == "refused"
    assert done == []
    text = " ".join(said)
    assert ("the plan does not say `destructive: true`" in text) is not agreed
    if agreed:
        assert ("steps that destroy data are not allowed" in text) is not allowed
        assert (f"the device {DEVICE} is not allowed" in text) is not listed


@pytest.mark.parametrize(
    "device",
    ["/dev/sdb", "sdb", "/dev/mapper/data", "/dev/disk/by-path/pci-0", "/dev/disk/by-id/../../sda", "serial:", "*"],
)
def test_a_name_that_moves_is_no_key(device: str) -> None:
    policy = Policy(source="/etc/proveout/policy.yaml", devices=(device,), destructive=True)
    assert not policy.allows_device(device)
