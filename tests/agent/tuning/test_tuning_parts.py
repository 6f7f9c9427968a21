"""The parts that change a host: files, kernel attributes, programs, units, packages, and the policy; and the resolution of
paths: the walk refuses links and what lies outside of the root, as openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS
does, also while another process swaps folders.

The outputs of systemctl and rpm are stand-ins by their manuals. Not proven here: that a real systemd behaves so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
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
from proveout.dsl.operations.facts import NONE, Original, Output, UnitFact
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


# ---- paths ---------------------------------------------------------------------------------------------------------------

CONTENT = Original(exists=True, content=b"new", mode=0o644, uid=os.geteuid(), gid=os.getegid())


def walk(root: Path, path: str) -> str:
    """Write to the path by the walk: "" on success, else the code of the fault."""
    try:
        Files(root).put(path, CONTENT)
    except TaskFault as fault:
        return fault.code
    return ""


def plain(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)


def linked(target: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / "a").mkdir()
        (root / "real" / "b").mkdir(parents=True)
        (root / "a" / "b").symlink_to(target)

    return make


def a_file(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "b").write_text("")


PLACES = [
    pytest.param(plain, "/a/b/x", "", id="plain"),
    pytest.param(linked("../real/b"), "/a/b/x", "refused", id="a link that stays beneath"),
    pytest.param(linked("/tmp"), "/a/b/x", "refused", id="a link that leads out"),
    pytest.param(linked("/proc/self/root/tmp"), "/a/b/x", "refused", id="a magic link"),
    pytest.param(a_file, "/a/b/x", "refused", id="a file on the way"),
    pytest.param(plain, "/a/../../x", "refused", id="it climbs out"),
    pytest.param(plain, "/a/none/x", "missing", id="not there"),
]


@pytest.mark.parametrize(("make", "path", "code"), PLACES)
def test_the_walk_follows_no_link_and_stays_beneath_the_root(
    make: Callable[[Path], None], path: str, code: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    assert walk(root, path) == code


@pytest.mark.parametrize("path", ["/a/./b", "/a//b", "/a/../b/c"])
def test_paths_with_dots_or_empty_parts_are_refused(path: str, tmp_path: Path) -> None:
    """The write checks paths itself, as paths to undo come from the journal without other checks."""
    plain(tmp_path)
    with pytest.raises(TaskFault, match="is not a plain path"):
        Files(tmp_path).put(path, CONTENT)


def test_folders_swapped_during_a_write_do_not_redirect_it(tmp_path: Path) -> None:
    """A user with write access to the parent repeatedly swaps a folder with a link; every write goes to the folder or is
    refused."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a" / "b").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "x").write_text("untouched")
    link, folder, aside = root / "a" / "link", root / "a" / "b", root / "a" / "aside"
    link.symlink_to(elsewhere)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            folder.rename(aside)
            link.rename(folder)
            folder.rename(link)
            aside.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        codes = {walk(root, "/a/b/x") if number % 2 else gone(root) for number in range(200)}
    finally:
        over.set()
        swapping.join()
    assert codes <= {"", "refused", "missing"}
    assert [path.name for path in elsewhere.iterdir()] == ["x"]
    assert (elsewhere / "x").read_text() == "untouched"


def gone(root: Path) -> str:
    try:
        Files(root).put("/a/b/x", NONE)
    except TaskFault as fault:
        return fault.code
    return ""


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    """The difference of a hard link in a listed folder would show a file of a folder that the policy does not list."""
    (tmp_path / "listed").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "listed" / "x").hardlink_to(secret)
    for attempt in (Files(tmp_path).fact, Files(tmp_path).original):
        with pytest.raises(TaskFault, match="has 2 names"):
            attempt("/listed/x")
    assert walk(tmp_path, "/listed/x") == "refused"
    assert secret.read_text() == "secret"
