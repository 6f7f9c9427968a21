"""The parts that change a host: files, kernel attributes, programs, units and packages; and the resolution of paths: the
walk refuses links and what lies outside of the root, as openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS does, also
while another process swaps folders.

The outputs of systemctl and rpm are stand-ins by their manuals. Not proven here: that a real systemd behaves so.
"""

from __future__ import annotations

import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from eventually import eventually
from fabric_bench import is_gone
from tuning_bench import StubTools, full, put

from proveout.agent.errors import TaskFault
from proveout.agent.tuning import host as host_module
from proveout.agent.tuning.files import Files
from proveout.agent.tuning.host import Attributes, Systemd
from proveout.agent.tuning.programs import OUTPUT_MAX, Processes, must
from proveout.dsl.operations.facts import NONE, Facts, Original, Output, RowsQuery, UnitFact
from proveout.dsl.operations.host import edit
from proveout.dsl.operations.operation import Step
from proveout.dsl.operations.oracle import OracleParameters
from proveout.dsl.operations.sql import PostgresSettings


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


def test_a_list_of_mounts_is_read_to_its_end_or_not_at_all(tmp_path: Path) -> None:
    """Disks are judged by it: the last line counts on a host with thousands of containers."""
    put(
        tmp_path,
        "/proc/self/mountinfo",
        "29 1 0:26 / /x rw - tmpfs x rw\n" * 5000 + "30 1 8:16 / /data rw - xfs /dev/sdb rw\n",
    )
    assert (Attributes(tmp_path).read("/proc/self/mountinfo") or "").endswith("- xfs /dev/sdb rw")
    put(tmp_path, "/proc/self/mountinfo", "x" * (host_module.SIZE_MAX_BYTES + 1))
    with pytest.raises(TaskFault, match="mountinfo is larger than 8 MiB"):
        Attributes(tmp_path).read("/proc/self/mountinfo")


def test_programs() -> None:
    tools = Processes()
    assert tools.run(("/bin/echo", "$(id)", ";", "`x`")) == Output(code=0, text="$(id) ; `x`\n")
    with pytest.raises(TaskFault, match="/no/such is not on this host"):
        tools.run(("/no/such",))
    with pytest.raises(TaskFault, match=r"cat -- /no/such failed with exit code 1: .*No such file"):
        must(tools, ("/bin/cat", "--", "/no/such"))


def test_a_long_output_of_a_program_is_dropped_as_it_is_read() -> None:
    """Else it would take the memory of the database on the same host."""
    tracemalloc.start()
    try:
        done = Processes().run(("/usr/bin/head", "-c", "64M", "/dev/zero"))
        assert tracemalloc.get_traced_memory()[1] < 8 * OUTPUT_MAX
    finally:
        tracemalloc.stop()
    assert (done.code, len(done.text)) == (0, OUTPUT_MAX)


@pytest.mark.parametrize("last", ["wait", "exit"])
def test_a_program_that_is_too_late_ends_with_its_children(tmp_path: Path, last: str) -> None:
    """They would go on to change the host while it is set back; one that has ended itself leaves its output to them."""
    script = put(tmp_path, "/script", f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/child\n{last}\n", mode=0o755)
    with pytest.raises(TaskFault, match=r"did not end within 0\.5 s"):
        Processes().run((str(script),), 0.5)
    child = int((tmp_path / "child").read_text())
    eventually(lambda: is_gone(child), "its child has ended")


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


# ---- paths ---------------------------------------------------------------------------------------------------------------

CONTENT = Original(exists=True, content=b"new", mode=0o644, uid=os.geteuid(), gid=os.getegid())


def walk(root: Path, path: str, wanted: Original = CONTENT) -> str:
    """Put a file, or none, at the path by the walk: "" on success, else the code of the fault."""
    try:
        Files(root).put(path, wanted)
    except TaskFault as fault:
        return fault.code
    return ""


@pytest.mark.parametrize(
    ("b", "path", "code"),
    [
        pytest.param("folder", "/a/b/x", "", id="plain"),
        pytest.param("../real", "/a/b/x", "refused", id="a link that stays beneath"),
        pytest.param("/tmp", "/a/b/x", "refused", id="a link that leads out"),
        pytest.param("/proc/self/root/tmp", "/a/b/x", "refused", id="a magic link"),
        pytest.param("file", "/a/b/x", "refused", id="a file on the way"),
        pytest.param("folder", "/a/../../x", "refused", id="it climbs out"),
        pytest.param("folder", "/a/none/x", "missing", id="not there"),
    ],
)
def test_the_walk_follows_no_link_and_stays_beneath_the_root(b: str, path: str, code: str, tmp_path: Path) -> None:
    for folder in ("a", "real"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    place = tmp_path / "root/a/b"
    {"folder": place.mkdir, "file": place.touch}.get(b, lambda: place.symlink_to(b))()
    assert walk(tmp_path / "root", path) == code


@pytest.mark.parametrize("path", ["/a/./b", "/a//b", "/a/../b/c"])
def test_paths_with_dots_or_empty_parts_are_refused(path: str, tmp_path: Path) -> None:
    """The write checks paths itself, as paths to undo come from the journal without other checks."""
    (tmp_path / "a/b").mkdir(parents=True)
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
        codes = {walk(root, "/a/b/x") if number % 2 else walk(root, "/a/b/x", NONE) for number in range(200)}
    finally:
        over.set()
        swapping.join()
    assert codes <= {"", "refused", "missing"}
    assert [path.name for path in elsewhere.iterdir()] == ["x"]
    assert (elsewhere / "x").read_text() == "untouched"


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


# ---- texts of a host and of a database ---------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"[" + b" " * 2**20, b"k" + b" " * 2**20, b"k = v" + b" " * 2**20 + b"w"])
def test_hostile_lines_of_an_ini_file_are_read_in_linear_time(line: bytes) -> None:
    """With backtracking, this test would take hours."""
    assert edit(b"[db]\n" + line + b"\n[x]\n", "x", {"a": "1"}, create=False) == b"[db]\n" + line + b"\n[x]\na=1\n"


@pytest.mark.parametrize("shown", ["9" * 2**20 + "!", " " * 2**20 + "!", "1e400"])
def test_hostile_numbers_of_a_database_are_other_values(shown: str) -> None:
    """With backtracking, this test would take hours."""
    one = PostgresSettings.model_validate({"system": "db", "settings": {"work_mem": "1e401"}})
    running = (("work_mem", shown, "kB", "integer", "user", "default"),)
    found = one.changes(Facts(read=lambda query: running if "pg_settings" in query.statement else ()))
    assert (len(found.changes), found.refusals) == (3 if shown != "1e400" else 0, ())


def test_a_size_that_is_not_a_number_has_no_bound() -> None:
    one = OracleParameters.model_validate({"system": "db", "settings": {"sga_target": "\u00b2"}})

    def read(query: RowsQuery) -> tuple[tuple[str, ...], ...]:
        rows = ((name, "1", "1024", "IMMEDIATE") for name in ("sga_max_size", "sga_target"))
        return tuple(rows) if "gv$" in query.statement else (("sga_max_size", "*", "1024"),)

    assert one.changes(Facts(read=read)) != Step()
