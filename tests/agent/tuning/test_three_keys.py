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
from proveout.dsl.plan.tuning_step import Tuning

DEVICE = "/dev/disk/by-id/wwn-0x600a"
OTHER_NAME = "/dev/disk/by-id/scsi-3600a"
COMMAND = Command(argv=("/usr/bin/reload", "all"), device=DEVICE)
STATEMENT = Statement(system="asm", text="CREATE", destructive=True, devices=((DEVICE, OTHER_NAME),))


class NotedDatabases(Databases):
    """Databases that record statements and run none."""

    def __init__(self, done: list[tuple[str, ...]]) -> None:
        super().__init__()
        self._done = done

    def run(self, system: str, statement: str) -> None:
        self._done.append((system, statement))


def run(
    agreed: bool, policy: Policy, tmp_path: Path, journal: UndoJournal
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """(outcome, lines, actions) of a step that overwrites the device, for any operation."""
    tools = StubTools()
    host = host_in(tmp_path / "root", policy=policy, tools=tools)
    host.databases = NotedDatabases(tools.done)
    tuning = Tuning(name="x", operation="partition", hosts=("h",), parameters=(), destructive=agreed)
    (state,) = Transaction(host=host, journal=journal, run="r").apply((tuning,))
    return state.outcome, state.lines, tools.done


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
    monkeypatch.setattr(Host, "facts", lambda _self, _operation: {})
    policy = replace(POLICY, destructive=allowed, devices=(DEVICE,) if listed else ())
    outcome, lines, done = run(agreed, policy, tmp_path, journal)
    if agreed and allowed and listed:
        assert outcome == "applied"
        assert done == [("/usr/bin/reload", "all") if change is COMMAND else ("asm", "CREATE")]
        return
    assert outcome == "refused"
    assert done == []
    text = " ".join(lines)
    assert ("the plan has no `destructive: true` for it" in text) is not agreed
    if agreed:
        assert ("steps that destroy data are not allowed" in text) is not allowed
        assert (f"the device {DEVICE} is not allowed" in text) is not listed


@pytest.mark.parametrize(
    "device",
    ["/dev/sdb", "sdb", "/dev/mapper/data", "/dev/disk/by-path/pci-0", "/dev/disk/by-id/../../sda", "serial:", "*"],
)
def test_a_device_name_that_is_not_persistent_is_refused(device: str) -> None:
    policy = Policy(source="/etc/proveout/policy.yaml", devices=(device,), destructive=True)
    assert not policy.allows_device(device)


def test_one_listed_name_of_a_device_suffices() -> None:
    listed = Policy(source="/p", devices=(OTHER_NAME,), destructive=True)
    assert listed.allows_device_of((DEVICE, OTHER_NAME))
    assert listed.allows_device_of((f"{OTHER_NAME}-part2",))
    assert not listed.allows_device_of((DEVICE,))
    assert not listed.allows_device_of(()), "a device without a persistent name cannot be listed"
