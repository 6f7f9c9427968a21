"""Every operation x any arguments that the schema permits x any initial state of the host: the second application
changes nothing, and a revert restores every byte, mode, owner, attribute, setting and row, also when the operation is
stopped or killed before any step.

Six examples of each run by default and twenty in `make soak`, the same ones each time as long as the same modules are
loaded (hypothesis also draws constants from them); `PROVEOUT_EXAMPLES=300` runs that many new ones.
The modules `any_…` document which parts are models and which are real.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import any_disk
import any_files
import any_kernel
import any_oracle
import any_postgres
import any_units
import pytest
import thorough
from any_host import Case, World
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.transaction import Stopped, Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.table import TUNING_KEYS
from proveout.proto.wire.results import TuningState

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root"), pytest.mark.thorough]
EXAMPLES = int(os.environ.get("PROVEOUT_EXAMPLES", "0"))
QUICK, QUICK_ON_A_DISK, QUICK_ON_A_SERVER = thorough.count(20, 6), thorough.count(20, 4), thorough.count(5, 2)
STEPS_MIN = 2
"""The steps beside the changes: keep the originals, and verify."""
CASES: Mapping[str, Callable[[], st.SearchStrategy[Case]]] = {
    "sysctl": any_kernel.sysctl,
    "huge_pages": any_kernel.huge_pages,
    "service": any_units.service,
    "file": any_files.a_file,
    "cpu_governor": any_kernel.cpu_governor,
    "thp": any_kernel.thp,
    "limits": any_files.limits,
    "udev_rules": any_files.udev_rules,
    "multipath": any_files.multipath,
    "block_queue": any_kernel.block_queue,
    "mount": any_units.mount,
    "partition": any_disk.partition,
    "zero_blocks": any_disk.zero_blocks,
    "filesystem": any_disk.filesystem,
    "mtu": any_kernel.mtu,
    "command": any_units.command,
    "ini_section": any_files.ini_section,
    "oracle_parameters": any_oracle.oracle_parameters,
    "oracle_redo": any_oracle.oracle_redo,
    "asm_disk_group": any_oracle.asm_disk_group,
}
ON_A_SERVER: Mapping[str, Callable[[str], st.SearchStrategy[Case]]] = {
    "postgres_settings": any_postgres.postgres_settings,
    "sql": any_postgres.sql,
}
NEEDS = {"partition": any_disk.PROGRAMS, "filesystem": any_disk.MAKING, "zero_blocks": any_disk.MAKING}
NEVER_CHANGES = {"package_present", "bond_present"}
KINDS = [kind for kind in TUNING_KEYS if kind not in NEVER_CHANGES]
STOPPED = ("file", "mount")
"""Operations that are stopped as well: all are reverted in the same way after a stop."""


def test_every_operation_has_cases() -> None:
    assert sorted([*CASES, *ON_A_SERVER]) == sorted(KINDS)


def cases(kind: str, request: pytest.FixtureRequest) -> st.SearchStrategy[Case]:
    """The cases of an operation, with a server for those that need one; skips when a program that they need is not
    installed."""
    missing = [program for program in NEEDS.get(kind, ()) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not on this host: {', '.join(missing)}")
    return CASES[kind]() if kind in CASES else ON_A_SERVER[kind](request.getfixturevalue("dsn"))


def profile(quick: int) -> settings:
    """Settings with the number of examples of the environment; by default a few, the same ones each time."""
    return settings(
        max_examples=EXAMPLES or quick,
        derandomize=not EXAMPLES,
        database=None,
        report_multiple_bugs=False,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def outcomes(states: tuple[TuningState, ...]) -> set[str]:
    return {state.outcome for state in states}


def run(world: World, journal: UndoJournal, watch: Callable[[str], None] = lambda _step: None) -> Transaction:
    return Transaction(host=world.host, journal=journal, run="r", watch=watch)


def new_folder(tmp_path: Path) -> Path:
    return tmp_path / secrets.token_hex(8)


# ---- applied, again, reverted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_application_changes_nothing_and_a_revert_restores_all(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    seen: Counter[str] = Counter()
    few = QUICK_ON_A_SERVER if kind in ON_A_SERVER else QUICK_ON_A_DISK if kind in NEEDS else QUICK
    drawn = cases(kind, request)

    def any_case(case: Case) -> None:
        seen[_twice_and_back(case, new_folder(tmp_path))] += 1

    for examples in (few, 20):
        if not seen["applied"]:
            profile(examples)(given(case=drawn)(any_case))()
    assert seen["applied"], f"nothing was applied in any example: {seen}"


def _twice_and_back(case: Case, folder: Path) -> str:
    """Apply twice and revert, with checks; return the outcome of the first application."""
    world, journal = case.make(folder), UndoJournal(folder / "undo")
    before = world.picture()
    (planned,) = run(world, journal).plan([case.tuning])
    assert world.picture() == before, "looking ahead has changed something"
    assert not journal.directory.exists()
    state, *undone = run(world, journal).apply([case.tuning])
    note(f"{state.outcome}: {state.lines}")
    assert state.outcome in case.outcomes
    assert outcomes(tuple(undone)) <= case.undone
    assert (planned.outcome == "refused") == (state.outcome == "refused")
    if state.outcome in ("applied", "needs_restart"):
        _again_and_back(case, world, journal, state.outcome)
    assert world.picture() == before
    assert journal.outstanding() == ()
    journal.close()
    return state.outcome


def _again_and_back(case: Case, world: World, journal: UndoJournal, outcome: str) -> None:
    once, mark = world.picture(), journal.mark()
    assert outcomes(tuning_transaction.look(world.host, journal)) <= {"in_place"}
    (again,) = run(world, journal).apply([case.tuning])
    assert again.outcome == ("unchanged" if outcome == "applied" else outcome), again.lines
    assert world.picture() == once, "applied again, something has changed"
    assert journal.mark() == mark, "applied again, there is more to undo"
    undone = tuning_transaction.revert(world.host, journal)
    assert outcomes(undone) <= case.undone, undone
    assert tuning_transaction.revert(world.host, journal) == ()


# ---- a fault before every step ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """The agent is killed: this process undoes nothing."""


@contextmanager
def without_revert() -> Iterator[None]:
    """Disable the revert at the end of a transaction, as in a killed agent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning_transaction, "revert", lambda *_args, **_named: ())
        yield


def until(k: int, fault: type[BaseException]) -> Callable[[str], None]:
    """A `watch` that raises before step `k`."""
    taken = iter(range(k + 1))

    def watch(step: str) -> None:
        if next(taken) == k:
            raise fault(step)

    return watch


def stopped_at(k: int, case: Case, folder: Path) -> bool:
    """Stop before step `k` and check that the host is as before; False when there is no such step."""
    world, journal = case.make(folder), UndoJournal(folder / "undo")
    before = world.picture()
    try:
        run(world, journal, until(k, Stopped)).apply([case.tuning])
    except Stopped:
        assert world.picture() == before
        assert journal.outstanding() == ()
        return True
    finally:
        tuning_transaction.revert(world.host, journal)
        journal.close()
    return False


def killed_at(k: int, case: Case, folder: Path) -> bool:
    """Kill before step `k` and check that the next agent restores the host from the journal; False when there is no such
    step."""
    world, journal = case.make(folder), UndoJournal(folder / "undo")
    before = world.picture()
    try:
        with without_revert():
            run(world, journal, until(k, Killed)).apply([case.tuning])
    except Killed:
        journal.close()
        found = UndoJournal(folder / "undo")
        undone = tuning_transaction.revert(world.host, found)
        found.close()
        assert outcomes(undone) <= case.undone, undone
        assert world.picture() == before
        assert not (folder / "undo").exists()
        return True
    tuning_transaction.revert(world.host, journal)
    journal.close()
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_before_any_step_restores_all(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    _each_step(kind, killed_at, request, tmp_path)


@pytest.mark.parametrize("kind", STOPPED)
def test_a_stop_before_any_step_restores_all(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    _each_step(kind, stopped_at, request, tmp_path)


def _each_step(
    kind: str, fault: Callable[[int, Case, Path], bool], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each step; by default every third one on a server."""
    steps: Counter[int] = Counter()
    stride = thorough.count(1, 3) if kind in ON_A_SERVER else 1

    @profile(1)
    @given(case=cases(kind, request))
    def any_case(case: Case) -> None:
        assume(_changes(case, new_folder(tmp_path)))
        k = 0
        while fault(k, case, new_folder(tmp_path)):
            k += stride
        steps[k] += 1

    any_case()
    assert min(steps) >= STEPS_MIN, steps


def _changes(case: Case, folder: Path) -> bool:
    """Whether the case has a permitted change."""
    world = case.make(folder)
    (state,) = run(world, UndoJournal(folder / "undo")).plan([case.tuning])
    return state.outcome == "would_change"
