"""The parts that change a host: files, kernel attributes, programs, units, packages, and the policy.

The outputs of systemctl and rpm are stand-ins by their manuals. Not proven here: that a real systemd behaves so.
"""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_bench import POLICY, StubTools, StubUnits, host_in, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.tuning import host as host_module
from proveout.agent.tuning import revert
from proveout.agent.tuning.file_changes import NONE, Files
from proveout.agent.tuning.host import Systemd
from proveout.agent.tuning.programs import Processes, must
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.sysfs import Attributes, holds
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import Command, Statement
from proveout.dsl.operations.facts import ABSENT, Output, UnitFact
from proveout.proto.wire.tasks import Endpoint


def test_a_file_is_replaced_and_never_written_into(tmp_path: Path) -> None:
    file = put(tmp_path, "/etc/app/app.conf", "old")
    with file.open() as reader:
        Files(tmp_path).write("/etc/app/app.conf", b"new", 0o600, "root", "root")
        assert reader.read() == "old"
    assert file.read_text() == "new"
    assert [path.name for path in file.parent.iterdir()] == ["app.conf"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path, "/etc/app/app.conf", "old")

    def fail(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(TaskFault, match="No space left") as caught:
        Files(tmp_path).write("/etc/app/app.conf", b"new", 0o600, "root", "root")
    assert caught.value.code == "disk_full"
    assert [path.name for path in file.parent.iterdir()] == ["app.conf"]
    assert file.read_text() == "old"


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_only_regular_files_are_replaced(kind: str, tmp_path: Path) -> None:
    target = put(tmp_path, "/etc/app/target", "mine")
    place = target.with_name("app.conf")
    {"link": lambda: place.symlink_to(target), "directory": place.mkdir, "fifo": lambda: os.mkfifo(place)}[kind]()
    with pytest.raises(TaskFault):
        Files(tmp_path).write("/etc/app/app.conf", b"new", 0o600, "root", "root")
    assert target.read_text() == "mine"
    assert Files(tmp_path).fact("/etc/app/app.conf").kind == {"fifo": "other"}.get(kind, kind)


def test_missing_files_and_attributes(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert files.fact("/no/such/file") == ABSENT
    assert files.original("/no/such/file") == NONE
    with pytest.raises(TaskFault, match="the folder of /no/such/file does not exist"):
        files.write("/no/such/file", b"", 0o600, "root", "root")
    (tmp_path / "no/such").mkdir(parents=True)
    with pytest.raises(TaskFault, match="no user 'nobody-at-all'"):
        files.write("/no/such/file", b"", 0o600, "nobody-at-all", "root")


def test_attributes_must_be_below_proc_and_sys_after_resolving_links(tmp_path: Path) -> None:
    put(tmp_path, "/etc/shadow", "secret")
    device = put(tmp_path, "/sys/devices/pci0/block/sda/queue/scheduler", "[none] bfq\n")
    (tmp_path / "sys/block").mkdir()
    (tmp_path / "sys/block/sda").symlink_to(device.parent.parent)
    (tmp_path / "sys/out").symlink_to(tmp_path / "etc")
    texts = Attributes(tmp_path)
    assert texts.read("/sys/block/sda/queue/scheduler") == "[none] bfq"
    assert texts.matching("/sys/block/*/queue/scheduler") == ("/sys/block/sda/queue/scheduler",)
    assert texts.link("/sys/block/sda") == "/sys/devices/pci0/block/sda"
    for path in ("/sys/out/shadow", "/proc/../etc/shadow", "/etc/shadow"):
        with pytest.raises(TaskFault, match="is not below /proc or /sys"):
            texts.write(path, "x")
    assert (tmp_path / "etc/shadow").read_text() == "secret"


@pytest.mark.parametrize(
    ("now", "wanted", "held"),
    [
        ("10", "10", True),
        ("9000\t65500", "9000 65500", True),
        ("a [b] c", "b", True),
        ("a [b] c", "a", False),
        (None, "1", False),
    ],
)
def test_whether_an_attribute_has_a_value(now: str | None, wanted: str, held: bool) -> None:
    assert holds(now, wanted) is held


def test_one_agent_at_a_time_tunes_with_a_journal(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "/proc/sys/vm/swappiness", "60\n")
    change = tuning("sysctl", settings={"vm.swappiness": "1"})
    first, second = UndoJournal(tmp_path / "undo"), UndoJournal(tmp_path / "undo")
    Transaction(host=host_in(root), journal=first, run="r").apply((change,))
    with pytest.raises(TaskFault, match="another agent is tuning this machine"):
        revert.revert(host_in(root), second)
    revert.revert(host_in(root), first)
    first.close()
    assert revert.revert(host_in(root), second) == ()
    assert (root / "proc/sys/vm/swappiness").read_text() == "60\n"


@pytest.mark.parametrize(("provisioned", "outcome"), [(True, "reverted"), (False, "residue")])
def test_an_unreachable_system_is_residue_unless_the_run_provisioned_it(
    provisioned: bool, outcome: str, tmp_path: Path
) -> None:
    journal = UndoJournal(tmp_path / "undo")
    endpoint = Endpoint(system="db", engine="postgres", dsn=f"host={tmp_path} dbname=x", provisioned=provisioned)
    journal.remember((endpoint,))
    change = replace(tuning("thp", enabled="never"), system="db")
    journal.intend("r", change, [(Statement(system="db", text="ALTER SYSTEM …", undo="ALTER SYSTEM RESET x"), None)])
    host = host_in(tmp_path)
    host.databases = Databases(journal.reached().values())
    assert [state.outcome for state in revert.revert(host, journal)] == [outcome]
    assert bool(journal.outstanding()) is not provisioned
    journal.close()


def test_programs() -> None:
    tools = Processes()
    assert tools.run(("/bin/echo", "$(id)", ";", "`x`")) == Output(code=0, text="$(id) ; `x`\n")
    with pytest.raises(TaskFault, match="/no/such is not on this host"):
        tools.run(("/no/such",))
    with pytest.raises(TaskFault, match=r"cat -- /no/such failed with exit code 1: .*No such file"):
        must(tools, ("/bin/cat", "--", "/no/such"))


def test_a_program_that_hangs_can_be_interrupted() -> None:
    tools, outputs = Processes(), []
    thread = threading.Thread(target=lambda: outputs.append(tools.run(("/bin/sleep", "60"))))
    thread.start()
    while thread.is_alive():  # before it runs there is nothing to interrupt
        tools.interrupt()
        thread.join(0.02)
    assert outputs[0].code != 0


@pytest.mark.parametrize(
    ("output", "unit"),
    [
        ("LoadState=loaded\nActiveState=active\nUnitFileState=enabled\n", UnitFact(active=True, enabled=True, state="enabled")),
        ("LoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\n", UnitFact(active=False, enabled=False, state="disabled")),
        ("LoadState=loaded\nActiveState=failed\nUnitFileState=static\n", UnitFact(active=False, enabled=None, state="static")),
        ("LoadState=masked\nActiveState=inactive\nUnitFileState=masked\n", UnitFact(active=False, enabled=None, state="masked")),
        ("LoadState=not-found\nActiveState=inactive\nUnitFileState=\n", None),
    ],
)  # fmt: skip
def test_parsing_the_state_of_a_unit(output: str, unit: UnitFact | None) -> None:
    tools = StubTools(systemctl=Output(code=0, text=output))
    assert Systemd(tools).fact("tuned.service") == unit
    assert tools.done[0][-2:] == ("--", "tuned.service")


def test_a_host_without_systemd_is_a_fault() -> None:
    tools = StubTools(systemctl=Output(code=1, text="System has not been booted with systemd as init system"))
    with pytest.raises(TaskFault, match="has not been booted with systemd"):
        Systemd(tools).fact("tuned.service")
    with pytest.raises(TaskFault, match=r"systemctl stop -- tuned\.service failed"):
        Systemd(tools).act("tuned.service", "stop")


@pytest.mark.parametrize(
    ("code", "text", "version"),
    [(0, "installed 2.21-1", "2.21-1"), (1, "package x is not installed", None), (0, "config-files 1.0", None)],
)
def test_parsing_the_version_of_a_package(
    code: int, text: str, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module.shutil, "which", lambda program, path: f"/usr/bin/{program}")
    assert host_module.package_version(StubTools(rpm=Output(code=code, text=text)), "x") == version


def test_a_host_without_a_package_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module.shutil, "which", lambda program, path: None)
    with pytest.raises(TaskFault, match="neither rpm nor dpkg"):
        host_module.package_version(StubTools(), "x")


def test_destructive_changes_need_two_permissions_of_the_policy(tmp_path: Path) -> None:
    change = Command(argv=("/usr/bin/reload", "all"), device="/dev/disk/by-id/x")
    host = host_in(tmp_path)
    assert len(host.objections((change,))) == 2
    allowed = replace(POLICY, destructive=True, devices=("/dev/disk/by-id/x",))
    assert host_in(tmp_path, policy=allowed).objections((change,)) == ()
    assert "the program /usr/bin/mkfs is not allowed" in host.objections((Command(argv=("/usr/bin/mkfs",)),))[0]
    assert "the program /usr/bin/mkfs is not allowed" in host.objections((Command(undo=("/usr/bin/mkfs",)),))[0]


@pytest.mark.parametrize(("code", "outcome"), [(0, "applied"), (1, "failed")])
def test_a_validator_checks_the_new_content_before_the_change(code: int, outcome: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    file = put(root, "/etc/app/app.conf", "old")
    tools = StubTools(app_check=Output(code=code, text="line 1: no"))
    change = tuning("file", path="/etc/app/app.conf", content="new", validator="app-check")
    journal = UndoJournal(tmp_path / "undo")
    states = Transaction(host=host_in(root, tools=tools), journal=journal, run="r").apply((change,))
    journal.close()
    assert states[0].outcome == outcome
    assert file.read_text() == ("new" if code == 0 else "old")
    assert [Path(argv[0]).name for argv in tools.done] == ["app-check"]
    if code:
        assert "the validator app-check does not accept" in states[0].lines[0]


def test_a_unit_that_does_not_reach_its_state_is_a_failure(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "/proc/sys/vm/swappiness", "60\n")
    units = StubUnits(tuned=UnitFact(active=True, enabled=True))
    units.broken = {"disable"}
    both = (
        tuning("sysctl", settings={"vm.swappiness": "1"}),
        tuning("service", unit="tuned", state="stopped", enabled=False),
    )
    journal = UndoJournal(tmp_path / "undo")
    states = Transaction(host=host_in(root, units=units), journal=journal, run="r").apply(both)
    journal.close()
    assert [(state.name, state.outcome) for state in states] == [
        ("service", "failed"),
        ("service", "reverted"),
        ("sysctl", "reverted"),
    ]
    assert units.done == ["stop tuned.service", "disable tuned.service", "start tuned.service"]
    assert (root / "proc/sys/vm/swappiness").read_text() == "60\n"
    assert not (tmp_path / "undo").exists()


async def test_tuning_waits_for_an_agent_that_is_shutting_down(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "/proc/sys/vm/swappiness", "60\n")
    change = tuning("sysctl", settings={"vm.swappiness": "1"})
    leaving, next_one = (Tuner(tmp_path / "undo", prepare=lambda _: host_in(root)) for _ in range(2))
    await leaving.apply("r", (change,), (), tmp_path)
    applying = asyncio.create_task(next_one.apply("r", (change,), (), tmp_path))
    done, _ = await asyncio.wait({applying}, timeout=0.5)
    assert not done, "the other one has not left"
    await leaving.close(keep_data=False)
    (state,) = await applying
    assert state.outcome == "applied"
    await next_one.close(keep_data=False)
    assert (root / "proc/sys/vm/swappiness").read_text() == "60\n"
