"""The parts that change a host: files, kernel attributes, programs, units, packages, and the policy.

The outputs of systemctl and rpm are stand-ins by their manuals. Not proven here: that a real systemd behaves so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_bench import StubTools, full, host_in, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.tuning import host as host_module
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Attributes, Files, Systemd
from proveout.agent.tuning.programs import Processes, must
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import Statement
from proveout.dsl.operations.facts import Output, UnitFact
from proveout.proto.wire.tasks import Endpoint


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, files = put(tmp_path, "/etc/app/app.conf", "old"), Files(tmp_path)
    with file.open() as reader:
        files.write("/etc/app/app.conf", b"new", 0o600, "root", "root")
        assert reader.read() == "old"
    assert file.read_text() == "new"

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(TaskFault, match="No space left") as caught:
        files.write("/etc/app/app.conf", b"newer", 0o600, "root", "root")
    assert caught.value.code == "disk_full"
    with pytest.raises(TaskFault, match="no user 'nobody-at-all'"):
        files.write("/etc/app/app.conf", b"", 0o600, "nobody-at-all", "root")
    assert ([path.name for path in file.parent.iterdir()], file.read_text()) == (["app.conf"], "new")


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_only_regular_files_are_replaced(kind: str, tmp_path: Path) -> None:
    target = put(tmp_path, "/etc/app/target", "mine")
    place = target.with_name("app.conf")
    {"link": lambda: place.symlink_to(target), "directory": place.mkdir, "fifo": lambda: os.mkfifo(place)}[kind]()
    with pytest.raises(TaskFault):
        Files(tmp_path).write("/etc/app/app.conf", b"new", 0o600, "root", "root")
    assert target.read_text() == "mine"
    assert Files(tmp_path).fact("/etc/app/app.conf").kind == {"fifo": "other"}.get(kind, kind)


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


@pytest.mark.parametrize(("provisioned", "outcome"), [(True, "reverted"), (False, "residue")])
def test_an_unreachable_system_is_residue_unless_the_run_provisioned_it(
    provisioned: bool, outcome: str, tmp_path: Path
) -> None:
    journal = UndoJournal(tmp_path / "undo")
    endpoint = Endpoint(system="db", engine="postgres", dsn=f"host={tmp_path} dbname=x", provisioned=provisioned)
    journal.remember((endpoint,), "r")
    change = replace(tuning("thp", enabled="never"), system="db")
    journal.intend("r", change, [(Statement(system="db", text="ALTER SYSTEM …", undo="ALTER SYSTEM RESET x"), None)])
    host = host_in(tmp_path)
    host.databases = Databases(journal.reached(), run="r")
    assert [state.outcome for state in transaction.revert(host, journal)] == [outcome]
    assert bool(journal.outstanding()) is not provisioned
    journal.close()


def test_programs() -> None:
    tools = Processes()
    assert tools.run(("/bin/echo", "$(id)", ";", "`x`")) == Output(code=0, text="$(id) ; `x`\n")
    with pytest.raises(TaskFault, match="/no/such is not on this host"):
        tools.run(("/no/such",))
    with pytest.raises(TaskFault, match=r"cat -- /no/such failed with exit code 1: .*No such file"):
        must(tools, ("/bin/cat", "--", "/no/such"))


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


def test_parsing_the_version_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module.shutil, "which", lambda program, path: f"/usr/bin/{program}")
    for code, text, version in (
        (0, "installed 2.21-1", "2.21-1"),
        (1, "package x is not installed", None),
        (0, "config-files 1.0", None),
    ):
        assert host_module.package_version(StubTools(rpm=Output(code=code, text=text)), "x") == version


def test_a_host_without_systemd_or_a_package_manager_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = StubTools(systemctl=Output(code=1, text="System has not been booted with systemd as init system"))
    with pytest.raises(TaskFault, match="has not been booted with systemd"):
        Systemd(tools).fact("tuned.service")
    with pytest.raises(TaskFault, match=r"systemctl stop -- tuned\.service failed"):
        Systemd(tools).act("tuned.service", "stop")
    monkeypatch.setattr(host_module.shutil, "which", lambda program, path: None)
    with pytest.raises(TaskFault, match="neither rpm nor dpkg"):
        host_module.package_version(StubTools(), "x")


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
