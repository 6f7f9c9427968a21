"""The interpreter of tunings: permitted, all or nothing, verified, undone in reverse order after a fault at any step."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from eventually import eventually_async
from tuning_bench import POLICY, StubTools, StubUnits, full, host_in, picture, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING, Policy, Tool
from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.files import Files
from proveout.agent.tuning.host import Attributes, Host
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Stopped, Transaction
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import Change, Command, KeepSpans, Statement
from proveout.dsl.operations.facts import Original, Output, Rows, UnitFact
from proveout.dsl.operations.operation import Step
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import TuningState
from proveout.proto.wire.tasks import Endpoint

SYSCTLS = tuning(
    "sysctl", "kernel", settings={"vm.swappiness": "10", "kernel.shmmni": "8192"}, file="/etc/sysctl.d/97-x.conf"
)
MORE = tuning("sysctl", "more", settings={"vm.dirty_ratio": "5"}, file="/etc/sysctl.d/10-y.conf")
LATER = tuning("sysctl", "later", settings={"vm.swappiness": "1"})
MISSING = tuning("sysctl", "missing", settings={"vm.no_such_thing": "1"})
FILE = tuning("file", path="/etc/app/a.conf", content="new\n")
SYSCTL = tuning("sysctl", settings={"vm.swappiness": "10"})
RULES = "/etc/udev/rules.d/66-asm.rules"
UDEV = tuning("udev_rules", file=RULES, rules=[{"match": {"KERNEL": "sd*"}, "assign": {"OWNER": "grid"}}])
UDEV_POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d",),
    udev_devices=("KERNEL==sd*",),
    tools=(Tool(path="/usr/bin/udevadm", arguments=("control", "trigger", "settle", "--*")),),
)
SWAPPINESS, SHMMNI, DIRTY = "proc/sys/vm/swappiness", "proc/sys/kernel/shmmni", "proc/sys/vm/dirty_ratio"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path, text in {
        SWAPPINESS: "60\n", DIRTY: "20\n", SHMMNI: "4096\n", "etc/app/a.conf": "old\n", RULES[1:]: "# by hand\n",
    }.items():  # fmt: skip
        put(root, path, text)
    old = put(root, "/etc/sysctl.d/10-y.conf", "# by hand\nvm.dirty_ratio = 20\n", mode=0o640)
    os.utime(old, ns=(10**18, 10**18))
    os.setxattr(old, "user.note", b"keep me")
    if os.geteuid() == 0:
        os.chown(old, 65534, 65534)
    return root


def apply(host: Host, journal: UndoJournal, *tunings: Tuning) -> tuple[TuningState, ...]:
    return Transaction(host=host, journal=journal, run="r").apply(tunings)


def revert(host: Host, journal: UndoJournal) -> list[tuple[str, str]]:
    return named(tuning_transaction.revert(host, journal))


def named(states: Sequence[TuningState]) -> list[tuple[str, str]]:
    return [(state.name, state.outcome) for state in states]


# ---- permission ------------------------------------------------------------------------------------------------------


def test_a_forbidden_change_is_refused_before_any_change(root: Path, journal: UndoJournal) -> None:
    put(root, "/proc/sys/fs/file-max", "2\n")
    before = picture(root)
    (state,) = apply(host_in(root, policy=NOTHING), journal, SYSCTLS)
    assert state.outcome == "refused"
    assert "/etc/sysctl.d/97-x.conf is not allowed on this host" in state.lines[0]
    states = apply(host_in(root), journal, SYSCTLS, tuning("sysctl", "forbidden", settings={"fs.file-max": "1"}))
    assert named(states) == [("forbidden", "refused")]
    assert "fs.file-max is not allowed on this host" in states[0].lines[0]
    assert "/etc/proveout/policy.yaml" in states[0].lines[0]
    assert picture(root) == before


def test_a_file_of_parameters_needs_the_policy_for_each(root: Path, journal: UndoJournal) -> None:
    """Also where each has its value already, as the file applies at the next boot."""
    before, policy = picture(root), replace(POLICY, sysctl=("kernel.*",))
    so_already = tuning("sysctl", settings={"vm.swappiness": "60"}, file="/etc/sysctl.d/99-z.conf")
    (state,) = apply(host_in(root, policy=policy), journal, so_already)
    assert state.outcome == "refused"
    assert "the kernel setting vm.swappiness is not allowed on this host" in state.lines[0]
    assert picture(root) == before


DEVICE = "/dev/disk/by-id/wwn-0x600a"
OTHER_NAME = "/dev/disk/by-id/scsi-3600a"
COMMAND = Command(argv=("/usr/bin/reload", "all"), device=DEVICE)
STATEMENT = Statement(system="asm", text="CREATE", destructive=True, devices=((DEVICE, OTHER_NAME),))


@pytest.mark.parametrize("change", [COMMAND, STATEMENT], ids=["command", "statement"])
@pytest.mark.parametrize(("agreed", "allowed", "listed"), itertools.product((False, True), repeat=3))
def test_what_destroys_data_needs_the_plan_the_policy_and_the_device_in_the_policy(
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
    monkeypatch.setattr(tuning_transaction, "operation_of", lambda _tuning: operation)
    monkeypatch.setattr(Host, "facts", lambda _self: {})
    tools = StubTools()
    monkeypatch.setattr(Databases, "run", lambda _self, *statement: tools.done.append(statement))
    policy = replace(POLICY, destructive=allowed, devices=(DEVICE,) if listed else ())
    one = Tuning(name="x", operation="partition", hosts=("h",), parameters=(), destructive=agreed)
    (state,) = apply(host_in(tmp_path / "root", policy=policy, tools=tools), journal, one)
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


# ---- all or nothing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "outcome"), [(0, "applied"), (1, "failed")])
def test_a_validator_checks_the_new_content_before_the_change(
    code: int, outcome: str, root: Path, journal: UndoJournal
) -> None:
    tools = StubTools(app_check=Output(code=code, text="line 1: no"))
    change = tuning("file", path="/etc/app/a.conf", content="new\n", validator="app-check")
    state, *_ = apply(host_in(root, tools=tools), journal, change)
    assert state.outcome == outcome
    assert (root / "etc/app/a.conf").read_text() == ("old\n" if code else "new\n")
    assert [Path(argv[0]).name for argv in tools.done] == ["app-check"]
    assert not code or "the validator app-check does not accept" in state.lines[0]


@pytest.mark.parametrize(
    ("made", "lines"),
    [
        ("20", ["the changes were written, but the host still differs from the plan:", "/proc/sys/vm/dirty_ratio: 20 -> 5"]),
        ("8", ["/proc/sys/vm/dirty_ratio was 8 after it was set to 5, so it was set back (give a value that the kernel keeps as it is)"]),
    ],
)  # fmt: skip
def test_a_value_that_the_kernel_ignores_or_changes_fails_and_all_is_undone(
    made: str, lines: list[str], root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts a write and sets another value, which only reading back shows."""
    before, host = picture(root), host_in(root)
    write: Callable[[object, str, str], None] = type(host.texts).write

    def rounded(self: object, path: str, text: str) -> None:
        write(self, path, made if path.endswith("dirty_ratio") and text == "5" else text)

    monkeypatch.setattr(type(host.texts), "write", rounded)
    failed, *undone = apply(host, journal, SYSCTLS, MORE)
    assert (failed.name, failed.outcome) == ("more", "failed")
    assert [*failed.lines[:2]] == lines
    assert {state.outcome for state in undone} == {"reverted"}
    assert picture(root) == before


def test_no_change_is_made_when_the_journal_cannot_be_written(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(root)
    monkeypatch.setattr(UndoJournal, "open", full)
    (state,) = apply(host_in(root), journal, SYSCTLS)
    assert state.outcome == "failed"
    assert "cannot store the originals" in state.lines[0]
    assert picture(root) == before


def test_a_tuning_with_keep_is_reported_and_reverted_only_where_its_transaction_fails(
    root: Path, journal: UndoJournal
) -> None:
    before, host, keep = picture(root), host_in(root), replace(SYSCTL, name="kept", keep=True)
    assert named(apply(host, journal, keep, MISSING)) == [("missing", "refused"), ("kept", "reverted")]
    assert picture(root) == before
    apply(host, journal, keep, MORE)
    (kept,) = tuning_transaction.kept(journal)
    assert (kept.name, kept.outcome, kept.keep) == ("kept", "kept", True)
    revert(host, journal)
    assert (root / SWAPPINESS).read_text() == "10\n"
    assert (root / DIRTY).read_text() == "20\n"


def test_a_failed_tuning_names_a_program_that_nothing_undoes(root: Path, journal: UndoJournal) -> None:
    one = tuning("command", keep=True, verify={"exists": ["/dev/none"]}, apply=[["/usr/bin/reload", "all"]])
    failed, left = apply(host_in(root), journal, one)
    assert (failed.outcome, left.outcome) == ("failed", "kept")
    assert left.lines == ("what /usr/bin/reload all has done stays: the plan has no program that undoes it",)


def test_a_dependent_unit_is_restarted_after_the_change_and_after_its_revert(root: Path, journal: UndoJournal) -> None:
    seen: list[str] = []
    units = StubUnits(tuned=UnitFact(active=True, enabled=True))
    act = units.act

    def noted(unit: str, verb: str) -> None:
        seen.append((root / SWAPPINESS).read_text().strip())
        act(unit, verb)

    units.act = noted  # type: ignore[method-assign]
    host = host_in(root, units=units)
    (state,) = apply(host, journal, replace(SYSCTL, restart="tuned.service"))
    assert state.outcome == "applied"
    revert(host, journal)
    assert units.done == ["try-restart tuned.service", "try-restart tuned.service"], "what does not run stays so"
    assert seen == ["10", "60"]
    assert "does not run" not in "".join(state.lines)
    units.units["tuned.service"] = UnitFact(active=False, enabled=True)  # as a oneshot unit is after it has run
    dependent = replace(SYSCTL, restart="tuned.service")
    for state in (
        *Transaction(host=host, journal=journal, run="r").plan([dependent]),
        *apply(host, journal, dependent),
    ):
        assert state.lines[-1] == "  tuned.service does not run, so it is not restarted"
    revert(host, journal)
    (absent,) = apply(host, journal, replace(SYSCTL, restart="irqbalance.service"))
    assert (absent.outcome, absent.lines) == (
        "refused",
        ("this host has no unit irqbalance.service, which would be restarted",),
    )


def test_a_stop_during_the_last_verification_undoes_all(root: Path, journal: UndoJournal) -> None:
    before, steps = picture(root), list[str]()

    def watch(step: str) -> None:
        if steps and steps[-1].endswith("verify"):
            raise Stopped(step)
        steps.append(step)

    with pytest.raises(Stopped):
        Transaction(host=host_in(root), journal=journal, run="r", watch=watch).apply([SYSCTL])
    assert picture(root) == before


# ---- changes of others -----------------------------------------------------------------------------------------------


def test_changes_of_other_processes_are_reported_and_kept(root: Path, journal: UndoJournal) -> None:
    host = host_in(root)
    apply(host, journal, SYSCTLS, MORE)
    put(root, SWAPPINESS, "33\n")
    put(root, "/etc/sysctl.d/10-y.conf", "vm.dirty_ratio = 7\n")
    looked = tuning_transaction.look(host, journal)
    assert named(looked) == [("kernel", "drifted"), ("more", "drifted")]
    drift = "/proc/sys/vm/swappiness is 33, neither 10 as the plan set it nor 60 as it was before"
    assert looked[0].lines == (drift,)
    assert sorted(revert(host, journal)) == [
        (name, outcome) for name in ("kernel", "more") for outcome in ("drifted", "reverted")
    ]
    assert (root / SWAPPINESS).read_text() == "33\n"
    assert (root / "etc/sysctl.d/10-y.conf").read_text() == "vm.dirty_ratio = 7\n"
    assert (root / SHMMNI).read_text() == "4096\n"


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

    transaction = Transaction(host=host_in(root), journal=journal, run="r", watch=watch)
    states = transaction.apply((tuning("huge_pages", pages=32),))
    assert [state.outcome for state in states] == ["failed", outcome]
    assert pages.read_text() == f"{left}\n"
    pages.write_text("4\n")
    transaction = Transaction(host=host_in(root), journal=journal, run="r")
    assert named(transaction.apply((tuning("huge_pages", pages=32),))) == [("huge_pages", "applied")]
    pages.write_text("20\n")
    assert revert(host_in(root), journal) == [("huge_pages", "drifted")], "it had as many as it was to have"


@pytest.mark.parametrize("name", ["vm.nr_hugepages", "vm.nr_hugepages_mempolicy"])
def test_fewer_huge_pages_than_a_parameter_requests_are_reverted(name: str, root: Path, journal: UndoJournal) -> None:
    pages = put(root, f"/proc/sys/{name.replace('.', '/')}", "4\n")

    def watch(step: str) -> None:
        if step.endswith("verify"):
            pages.write_text("20\n")

    transaction = Transaction(host=host_in(root), journal=journal, run="r", watch=watch)
    states = transaction.apply((tuning("sysctl", settings={name: "32"}),))
    assert [state.outcome for state in states] == ["failed", "reverted"]
    assert pages.read_text() == "4\n"


def test_a_second_change_of_the_same_run_is_not_drift_and_is_reverted_alone_by_name(
    root: Path, journal: UndoJournal
) -> None:
    before, host = picture(root), host_in(root)
    apply(host, journal, SYSCTLS, MORE)
    apply(host, journal, LATER)
    assert {state.outcome for state in tuning_transaction.look(host, journal)} == {"in_place"}
    put(root, SWAPPINESS, "10\n")
    assert dict(named(tuning_transaction.look(host, journal)))["later"] == "drifted"
    put(root, SWAPPINESS, "1\n")
    states = tuning_transaction.revert(host, journal, tunings=frozenset({"later"}))
    assert named(states) == [("later", "reverted")]
    assert (root / SWAPPINESS).read_text() == "10\n"
    assert named(tuning_transaction.look(host, journal)) == [("kernel", "in_place"), ("more", "in_place")]
    apply(host, journal, LATER)
    assert {outcome for _, outcome in revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_what_a_later_change_covers_is_undone_after_it(root: Path, journal: UndoJournal) -> None:
    """Of a file, an attribute, a unit and a setting of a database; other changes are undone at once, with the
    restart that follows, which comes again at the end."""
    units = StubUnits(tuned=UnitFact(active=True, enabled=True))
    databases = Stored()
    host = host_in(root, units=units)
    host.databases = databases
    first, second = (
        (
            tuning("file", f"file {n}", path="/etc/app/a.conf", content=f"{n}\n", restart="irqbalance.service"),
            tuning("sysctl", f"kernel {n}", settings={"vm.swappiness": n, **({} if n == "2" else {"vm.dirty_ratio": "5"})}),
            tuning("service", f"unit {n}", unit="tuned", state="running" if n == "2" else "stopped"),
            replace(tuning("postgres_settings", f"db {n}", system="db", settings={"work_mem": f"{n}MB"}), system="db"),
        )
        for n in ("1", "2")
    )  # fmt: skip
    units.units["irqbalance.service"] = UnitFact(active=True, enabled=True)
    before = picture(root)
    for some in (first, second):
        assert {state.outcome for state in apply(host, journal, *some)} == {"applied"}
    covered = picture(root)
    units.done.clear()
    states = tuning_transaction.revert(host, journal, tunings=frozenset(one.name for one in first))
    assert {state.outcome for state in states} == {"in_place", "reverted"}
    assert (databases.stored, units.done) == ("2MB", [])
    assert picture(root) == covered | {DIRTY: before[DIRTY]}
    states = tuning_transaction.revert(host, journal, tunings=frozenset(one.name for one in second))
    assert {state.outcome for state in states} == {"reverted"}
    assert (databases.stored, units.units["tuned.service"].active) == (None, True)
    assert picture(root) == before
    assert journal.outstanding() == ()


class Stored(Databases):
    """A PostgreSQL with one setting."""

    stored: str | None = None

    def __init__(self) -> None:
        super().__init__()

    def of(self, run: str) -> Databases:
        return self

    def rows(self, system: str, statement: str) -> Rows:
        if "pg_file_settings" in statement:
            return (("work_mem", self.stored),) if self.stored else ()
        return (("work_mem", self.stored or "4MB", "kB", "string", "user", "configuration file"),)

    def run(self, system: str, statement: str) -> None:
        if statement.startswith("ALTER SYSTEM"):
            self.stored = statement.partition("'")[2].rstrip("'") or None


@pytest.mark.parametrize(
    ("wanted", "path", "text", "of", "step"),
    [
        (FILE, "etc/app/a.conf", "by hand\n", UndoJournal, "intend"),
        (FILE, "etc/app/a.conf", "by hand\n", Host, "validate"),
        (SYSCTL, SWAPPINESS, "33\n", UndoJournal, "intend"),
    ],
    ids=["file", "file, while it is checked", "sysctl"],
)
def test_a_concurrent_change_by_another_process_is_not_overwritten(
    wanted: Tuning,
    path: str,
    text: str,
    of: type,
    step: str,
    root: Path,
    journal: UndoJournal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., None] = getattr(of, step)

    def slow(*arguments: object) -> None:
        real(*arguments)
        (root / path).write_text(text)

    monkeypatch.setattr(of, step, slow)
    failed, *undone = apply(host_in(root), journal, wanted)
    assert failed.outcome == "failed"
    assert f"/{path} was changed by another process just now" in failed.lines[0]
    assert (root / path).read_text() == text
    assert [state.outcome for state in undone] == ["drifted"]
    assert journal.outstanding() == ()


# ---- what cannot be undone, and what waits for it ----------------------------------------------------------------------


def test_the_temporary_file_of_a_killed_agent_is_removed(root: Path, journal: UndoJournal) -> None:
    put(root, "/etc/app/.a.conf.mine", "somebody else's")
    put(root, "/etc/app/.a.conf.proveout-old", "somebody else's too")
    before, host = picture(root), host_in(root)
    apply(host, journal, FILE)
    put(root, "/etc/app/.a.conf.proveout-0123456789ab", "ne", mode=0o600)
    assert revert(host, journal) == [("file", "reverted")]
    assert picture(root) == before


def test_a_kept_tuning_stays_when_the_journal_cannot_be_written(root: Path, journal: UndoJournal) -> None:
    def fail(action: int | None) -> None:
        def judge(kind: int, *_: object) -> int:
            return sqlite3.SQLITE_DENY if kind == action else sqlite3.SQLITE_OK

        journal.open().set_authorizer(judge)

    host = host_in(root)
    apply(host, journal, replace(FILE, keep=True))
    fail(sqlite3.SQLITE_DELETE)
    assert named(tuning_transaction.end(host, journal)) == [("file", "kept")]
    assert (root / "etc/app/a.conf").read_text() == "new\n"
    assert journal.outstanding() == ()
    assert not journal.is_written
    fail(None)
    assert journal.is_written


@pytest.mark.parametrize(
    "twice",
    [(FILE, tuning("file", "again", path="/etc/app/a.conf", content="newer\n")), (SYSCTL, LATER)],
    ids=["file", "text"],
)
def test_two_changes_of_one_path_are_both_undone_or_none(
    twice: Sequence[Tuning], root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the second step cannot be undone, its value must not count as another process's drift of the first, which
    would then be dropped."""
    before, host = picture(root), host_in(root)
    for one in twice:
        apply(host, journal, one)
    with monkeypatch.context() as patch:
        patch.setattr(type(host.files), "put", full)
        patch.setattr(type(host.texts), "write", full)
        assert {outcome for _, outcome in revert(host, journal)} == {"residue"}
    assert len(journal.outstanding()) == 2
    assert {outcome for _, outcome in revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_a_reload_waits_until_the_file_is_restored(
    root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, before = StubTools(), picture(root)
    host = host_in(root, policy=UDEV_POLICY, tools=tools)
    apply(host, journal, UDEV)
    tools.done.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", full)
        revert(host, journal)
    assert tools.done == []
    revert(host, journal)
    assert [argv[1] for argv in tools.done] == ["control", "trigger", "settle"]
    assert picture(root) == before


class RedoLogs(Databases):
    """A database with two groups of redo logs, whose disk groups may be full."""

    full = False

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def rows(self, system: str, statement: str) -> Rows:
        groups = (("1", "1", "1073741824", "CURRENT"), ("2", "1", "1073741824", "INACTIVE"))
        members = (("1", "+DATA/a"), ("2", "+DATA/b"))
        return (("1", "0"),) if "v$instance" in statement else members if "v$logfile" in statement else groups

    def run(self, system: str, statement: str) -> None:
        if self.full and "ADD LOGFILE" in statement:
            raise TaskFault("fault", "ORA-15041")
        self.done += re.findall("ADD LOGFILE|DROP LOGFILE|SWITCH LOGFILE|CHECKPOINT", statement)


def test_a_failed_statement_undoes_the_rest_and_new_redo_groups_stay_until_the_old_ones_are_restored(
    root: Path, journal: UndoJournal
) -> None:
    """The revert of other operations does not wait for it."""
    before, host = picture(root), host_in(root)
    host.databases = database = RedoLogs()
    redo = tuning("oracle_redo", system="orcl", groups=2, size="2G", disk_groups=["REDO1"])
    apply(host, journal, SYSCTL)
    database.full = True
    failed, residue = apply(host, journal, redo)
    assert (failed.outcome, failed.lines, residue.outcome) == ("failed", ("ORA-15041",), "residue")
    undone = {state.operation: state for state in tuning_transaction.revert(host, journal)}
    assert {kind: state.outcome for kind, state in undone.items()} == {"oracle_redo": "residue", "sysctl": "reverted"}
    assert sum("DROP LOGFILE" in line for line in undone["oracle_redo"].lines) == 2
    assert picture(root) == before
    assert database.done == []
    database.full = False
    assert revert(host, journal) == [("oracle_redo", "reverted")]
    assert database.done == ["ADD LOGFILE"] * 2 + ["SWITCH LOGFILE", "CHECKPOINT"] + ["DROP LOGFILE"] * 2


def test_a_failed_probe_of_a_disk_is_not_drift(root: Path, journal: UndoJournal) -> None:
    """A failed blkid gives no facts: the contents of the disk's ends stay outstanding and are restored later."""
    disk = put(root, "/dev/disk/by-id/x", "made")
    change = KeepSpans(device="/dev/disk/by-id/x", spans=((0, 4),), probe=("/usr/sbin/blkid", "x"))
    tools = StubTools(blkid=Output(code=1, text=""))
    host = host_in(root, policy=UDEV_POLICY, tools=tools)
    journal.intend("r", UDEV, [(change, Original(exists=True, content=b"mine"))])
    assert revert(host, journal) == [("udev_rules", "residue")]
    tools.answers = {"blkid": Output(code=2, text="")}
    assert revert(host, journal) == [("udev_rules", "reverted")]
    assert disk.read_text() == "mine"


@pytest.mark.parametrize(("provisioned", "outcome"), [(True, "reverted"), (False, "residue")])
def test_an_unreachable_system_is_residue_unless_the_run_provisioned_it(
    provisioned: bool, outcome: str, tmp_path: Path, journal: UndoJournal
) -> None:
    endpoint = Endpoint(system="db", engine="postgres", dsn=f"host={tmp_path} dbname=x", provisioned=provisioned)
    journal.remember((endpoint,), "r")
    change = replace(tuning("thp", enabled="never"), system="db")
    journal.intend("r", change, [(Statement(system="db", text="ALTER SYSTEM …", undo="ALTER SYSTEM RESET x"), None)])
    host = host_in(tmp_path)
    host.databases = Databases(journal.reached(), run="r")
    assert revert(host, journal) == [("thp", outcome)]
    assert bool(journal.outstanding()) is not provisioned


# ---- several at a time -----------------------------------------------------------------------------------------------


async def test_a_queued_transaction_does_not_block_the_next(root: Path, tmp_path: Path) -> None:
    """The first call has nothing to undo, so its journal is closed; the second, which waited, makes a change; the revert
    finds it."""
    before = picture(root)
    tuner = Tuner(tmp_path / "undo", prepare=lambda _: host_in(root))
    first, second = await asyncio.gather(
        tuner.apply("r", [SYSCTL, MISSING], (), tmp_path), tuner.apply("r", [FILE], (), tmp_path)
    )
    assert first[0].outcome == "refused"
    assert [state.outcome for state in second] == ["applied"]
    assert [state.outcome for state in await tuner.revert()] == ["reverted"]
    assert picture(root) == before
    assert tuner.is_idle


async def test_a_cancelled_transaction_is_undone_also_when_the_next_waits_already(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, before = threading.Event(), threading.Event(), picture(root)
    write = Attributes.write

    def slow(self: Attributes, path: str, text: str) -> None:
        begun.set()
        assert goes_on.wait(60.0)
        write(self, path, text)

    monkeypatch.setattr(Attributes, "write", slow)
    monkeypatch.setattr("proveout.agent.tuning.tuner.STOP_S", 0.0)
    tuner = Tuner(tmp_path / "undo", prepare=lambda _: host_in(root))
    first = asyncio.ensure_future(tuner.apply("r", (SYSCTLS,), (), tmp_path))
    assert await asyncio.to_thread(begun.wait, 60.0)
    first.cancel()
    await asyncio.sleep(0)
    second = asyncio.ensure_future(tuner.apply("r", (FILE,), (), tmp_path))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not first.done(), "its thread still changes the host"
    assert not second.done()
    goes_on.set()
    assert [state.outcome for state in await second] == ["applied"]
    assert first.cancelled()
    await tuner.revert(tunings=frozenset({FILE.name}))
    assert picture(root) == before


async def test_a_revert_continues_after_its_close_is_cancelled(root: Path, tmp_path: Path) -> None:
    """A session cancels its close while a program hangs; when the program ends, the host is reverted without a restart of
    the agent."""
    hangs, begun, before = threading.Event(), threading.Event(), picture(root)

    class Hanging(StubTools):
        def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
            begun.set()
            assert hangs.wait(60.0)
            return super().run(argv)

    tuner = Tuner(tmp_path / "undo", UDEV_POLICY, prepare=lambda _: host_in(root, policy=UDEV_POLICY, tools=Hanging()))
    applying = asyncio.ensure_future(tuner.apply("r", (UDEV,), (), tmp_path))
    assert await asyncio.to_thread(begun.wait, 60.0)
    closing = asyncio.ensure_future(tuner.close(keep_data=False))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert picture(root) != before
    hangs.set()
    await asyncio.wait({applying})
    await eventually_async(lambda: tuner.is_idle, "the host is reverted, though no task waits for it")
    assert picture(root) == before
    assert isinstance(applying.exception(), Stopped) or applying.result()
