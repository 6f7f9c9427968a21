"""Operations that destroy data need three permissions: `destructive` in the plan, `destructive` in the policy, and the
device in the policy."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tuning_bench import POLICY, StubTools, host_in

from proveout.agent.security.policy import Policy
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import Change, Command, Statement
from proveout.dsl.operations.operation import Step
from proveout.dsl.plan.stages import Tuning

DEVICE = "/dev/disk/by-id/wwn-0x600a"
OTHER_NAME = "/dev/disk/by-id/scsi-3600a"
COMMAND = Command(argv=("/usr/bin/reload", "all"), device=DEVICE)
STATEMENT = Statement(system="asm", text="CREATE", destructive=True, devices=((DEVICE, OTHER_NAME),))


@pytest.mark.parametrize("change", [COMMAND, STATEMENT], ids=["command", "statement"])
@pytest.mark.parametrize(("agreed", "allowed", "listed"), itertools.product((False, True), repeat=3))
def test_all_three_permissions_are_required(
    change: Change,
    agreed: bool,
    allowed: bool,
    listed: bool,
    tmp_path: Path,
    journal: UndoJournal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destroy = Step(changes=(change,))
    steps = iter([destroy, destroy, Step()])  # read, applied, verified
    operation = SimpleNamespace(destructive=True, changes=lambda _facts: next(steps))
    monkeypatch.setattr(transaction, "operation_of", lambda _tuning: operation)
    monkeypatch.setattr(Host, "facts", lambda _self: {})
    tools = StubTools()
    monkeypatch.setattr(Databases, "run", lambda _self, *statement: tools.done.append(statement))
    policy = replace(POLICY, destructive=allowed, devices=(DEVICE,) if listed else ())
    host = host_in(tmp_path / "root", policy=policy, tools=tools)
    tuning = Tuning(name="x", operation="partition", hosts=("h",), parameters=(), destructive=agreed)
    (state,) = Transaction(host=host, journal=journal, run="r").apply((tuning,))
    if agreed and allowed and listed:
        assert state.outcome == "applied"
        assert tools.done == [("/usr/bin/reload", "all") if change is COMMAND else ("asm", "CREATE")]
        return
    assert (state.outcome, tools.done) == ("refused", [])
    text = " ".join(state.lines)
    assert ("the plan has no `destructive: true` for it" in text) is not agreed
    if agreed:
        assert ("steps that destroy data are not allowed" in text) is not allowed
        assert (f"the device {DEVICE} is not allowed" in text) is not listed


def test_the_program_that_undoes_a_command_needs_the_policy_too(tmp_path: Path) -> None:
    for command in (Command(argv=("/usr/bin/mkfs",)), Command(undo=("/usr/bin/mkfs",))):
        assert "the program /usr/bin/mkfs is not allowed" in host_in(tmp_path).objections((command,))[0]


def test_one_listed_name_of_a_device_suffices() -> None:
    listed = Policy(source="/p", devices=(OTHER_NAME,), destructive=True)
    assert listed.allows_device_of((DEVICE, OTHER_NAME))
    assert listed.allows_device_of((f"{OTHER_NAME}-part2",))
    assert not listed.allows_device_of((DEVICE,))
    assert not listed.allows_device_of(()), "a device without a persistent name cannot be listed"
    for device in ("sdb", "/dev/mapper/data", "/dev/disk/by-id/../../sda", "serial:", "*"):
        assert not Policy(source="/p", devices=(device,)).allows_device(device), "not a lasting name"
