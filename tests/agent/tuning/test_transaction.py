"""The interpreter of tunings: all or nothing, verified, undone in reverse order after a fault at any step."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_bench import POLICY, StubUnits, host_in, picture, put, tuning

from proveout.agent.security.policy import NOTHING
from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.facts import UnitFact

SYSCTLS = tuning(
    "sysctl", "kernel", settings={"vm.swappiness": "10", "kernel.shmmni": "8192"}, file="/etc/sysctl.d/97-x.conf"
)
MORE = tuning("sysctl", "more", settings={"vm.dirty_ratio": "5"}, file="/etc/sysctl.d/10-y.conf")
BOTH = (SYSCTLS, MORE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root, "/proc/sys/vm/swappiness", "60\n")
    put(root, "/proc/sys/vm/dirty_ratio", "20\n")
    put(root, "/proc/sys/kernel/shmmni", "4096\n")
    old = put(root, "/etc/sysctl.d/10-y.conf", "# by hand\nvm.dirty_ratio = 20\n", mode=0o640)
    os.utime(old, ns=(10**18, 10**18))
    os.setxattr(old, "user.note", b"keep me")
    if os.geteuid() == 0:
        os.chown(old, 65534, 65534)
    return root


def run(host: Host, journal: UndoJournal) -> Transaction:
    return Transaction(host=host, journal=journal, run="r1")


def test_a_forbidden_change_is_refused_before_any_change(root: Path, journal: UndoJournal) -> None:
    before = picture(root)
    (state,) = run(host_in(root, policy=NOTHING), journal).apply((SYSCTLS,))
    assert state.outcome == "refused"
    assert "/etc/sysctl.d/97-x.conf is not allowed on this host" in state.lines[0]
    allowed = POLICY
    forbidden = tuning("sysctl", "forbidden", settings={"fs.file-max": "1"})
    put(root, "/proc/sys/fs/file-max", "2\n")
    states = run(host_in(root, policy=allowed), journal).apply((SYSCTLS, forbidden))
    assert [(state.name, state.outcome) for state in states] == [("forbidden", "refused")]
    assert "fs.file-max is not allowed on this host" in states[0].lines[0]
    assert "/etc/proveout/policy.yaml" in states[0].lines[0]
    (root / "proc/sys/fs/file-max").unlink()
    (root / "proc/sys/fs").rmdir()
    assert picture(root) == before


def test_a_file_of_parameters_needs_the_policy_for_each(root: Path, journal: UndoJournal) -> None:
    """Also where each has its value already, as the file applies at the next boot."""
    before, policy = picture(root), replace(POLICY, sysctl=("kernel.*",))
    (swappiness,) = (root / "proc/sys/vm/swappiness").read_text().split()
    so_already = tuning("sysctl", settings={"vm.swappiness": swappiness}, file="/etc/sysctl.d/99-z.conf")
    (state,) = run(host_in(root, policy=policy), journal).apply((so_already,))
    assert state.outcome == "refused"
    assert "the kernel setting vm.swappiness is not allowed on this host" in state.lines[0]
    assert picture(root) == before


def test_a_value_that_the_kernel_ignores_fails_and_the_rest_is_undone(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts a write and sets another value, which only reading back shows."""
    before, host = picture(root), host_in(root)
    write = type(host.texts).write

    def ignore(self: object, path: str, text: str) -> None:
        if not path.endswith("dirty_ratio"):
            write(self, path, text)  # type: ignore[arg-type]

    monkeypatch.setattr(type(host.texts), "write", ignore)
    failed, *undone = run(host, journal).apply(BOTH)
    assert (failed.name, failed.outcome) == ("more", "failed")
    assert failed.lines[:2] == (
        "the changes were written, but the host still differs from the plan:",
        "/proc/sys/vm/dirty_ratio: 20 -> 5",
    )
    assert {state.outcome for state in undone} == {"reverted"}
    assert picture(root) == before


def test_changes_of_other_processes_are_reported_and_kept(root: Path, journal: UndoJournal) -> None:
    host = host_in(root)
    run(host, journal).apply(BOTH)
    put(root, "/proc/sys/vm/swappiness", "33\n")
    put(root, "/etc/sysctl.d/10-y.conf", "vm.dirty_ratio = 7\n")
    looked = tuning_transaction.look(host, journal)
    assert [(state.name, state.outcome) for state in looked] == [("kernel", "drifted"), ("more", "drifted")]
    drift = "/proc/sys/vm/swappiness is 33, neither 10 as the plan set it nor 60 as it was before"
    assert looked[0].lines == (drift,)
    states = tuning_transaction.revert(host, journal)
    assert {(state.name, state.outcome) for state in states} == {
        ("kernel", "drifted"),
        ("kernel", "reverted"),
        ("more", "drifted"),
        ("more", "reverted"),
    }
    assert (root / "proc/sys/vm/swappiness").read_text() == "33\n"
    assert (root / "etc/sysctl.d/10-y.conf").read_text() == "vm.dirty_ratio = 7\n"
    assert (root / "proc/sys/kernel/shmmni").read_text() == "4096\n"


@pytest.mark.parametrize(
    ("at", "found", "left", "outcome"),
    [
        ("keep the originals", "7001", "7001", "drifted"),  # more than the operation requests: set by another process
        ("verify", "20", "4", "reverted"),  # as many as the kernel could allocate
    ],
)
def test_fewer_huge_pages_than_requested_are_reverted_and_more_are_drift(
    root: Path, journal: UndoJournal, at: str, found: str, left: str, outcome: str
) -> None:
    pages = put(root, "/proc/sys/vm/nr_hugepages", "4\n")
    put(root, "/proc/meminfo", "MemTotal: 4194304 kB\nHugepagesize: 2048 kB\n")

    def watch(step: str) -> None:
        if step.endswith(at):
            pages.write_text(f"{found}\n")

    transaction = Transaction(host=host_in(root), journal=journal, run="r1", watch=watch)
    state, *undone = transaction.apply((tuning("huge_pages", pages=32),))
    assert state.outcome == "failed"
    assert [one.outcome for one in undone] == [outcome]
    assert pages.read_text() == f"{left}\n"


def test_a_second_change_of_the_same_run_is_not_drift(root: Path, journal: UndoJournal) -> None:
    before, host = picture(root), host_in(root)
    run(host, journal).apply(BOTH)
    later = tuning("sysctl", "later", settings={"vm.swappiness": "1"})
    run(host, journal).apply((later,))
    assert {state.outcome for state in tuning_transaction.look(host, journal)} == {"in_place"}
    put(root, "/proc/sys/vm/swappiness", "10\n")
    assert {state.name: state.outcome for state in tuning_transaction.look(host, journal)}["later"] == "drifted"
    put(root, "/proc/sys/vm/swappiness", "1\n")
    assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_the_tunings_of_one_list_are_reverted_by_name_and_the_others_stay(root: Path, journal: UndoJournal) -> None:
    before, host = picture(root), host_in(root)
    run(host, journal).apply(BOTH)
    later = tuning("sysctl", "later", settings={"vm.swappiness": "1"})
    run(host, journal).apply((later,))
    states = tuning_transaction.revert(host, journal, tunings=frozenset({"later"}))
    assert [(state.name, state.outcome) for state in states] == [("later", "reverted")]
    assert (root / "proc/sys/vm/swappiness").read_text() == "10\n"
    assert {state.name: state.outcome for state in tuning_transaction.look(host, journal)} == {
        "kernel": "in_place",
        "more": "in_place",
    }
    assert {state.outcome for state in tuning_transaction.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_a_tuning_with_keep_is_reported_and_reverted_only_where_its_transaction_fails(
    root: Path, journal: UndoJournal
) -> None:
    before, host = picture(root), host_in(root)
    keep = tuning("sysctl", "kept", keep=True, settings={"vm.swappiness": "10"})
    missing = tuning("sysctl", "missing", settings={"vm.no_such_thing": "1"})
    states = run(host, journal).apply((keep, missing))
    assert [(state.name, state.outcome) for state in states] == [("missing", "refused"), ("kept", "reverted")]
    assert picture(root) == before
    run(host, journal).apply((keep, MORE))
    assert [(state.name, state.outcome, state.keep) for state in tuning_transaction.kept(journal)] == [
        ("kept", "kept", True)
    ]
    tuning_transaction.revert(host, journal)
    assert (root / "proc/sys/vm/swappiness").read_text() == "10\n"
    assert (root / "proc/sys/vm/dirty_ratio").read_text() == "20\n"


def test_a_dependent_unit_is_restarted_after_the_change_and_after_its_revert(root: Path, journal: UndoJournal) -> None:
    seen: list[str] = []
    units = StubUnits(tuned=UnitFact(active=True, enabled=True))
    act = units.act

    def noted(unit: str, verb: str) -> None:
        seen.append((root / "proc/sys/vm/swappiness").read_text().strip())
        act(unit, verb)

    units.act = noted  # type: ignore[method-assign]
    host = host_in(root, units=units)
    change = tuning("sysctl", restart="tuned.service", settings={"vm.swappiness": "10"})
    assert [state.outcome for state in run(host, journal).apply((change,))] == ["applied"]
    tuning_transaction.revert(host, journal)
    assert units.done == ["restart tuned.service", "restart tuned.service"]
    assert seen == ["10", "60"]


def test_no_change_is_made_when_the_journal_cannot_be_written(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(root)

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UndoJournal, "_open", full)
    (state,) = run(host_in(root), journal).apply((SYSCTLS,))
    assert state.outcome == "failed"
    assert "cannot store the originals" in state.lines[0]
    assert picture(root) == before
