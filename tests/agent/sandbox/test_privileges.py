"""Privileges of the workers of a root agent, read from the kernel: none remain, and files are used as their owner."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import PATIENCE_S, eventually_async

from proveout.agent.errors import TaskFault
from proveout.agent.load.local_pool import Pool, WorkerProcess
from proveout.agent.load.populate import Worker
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.agent.security.policy import NOTHING, Policy
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up")


def status(pid: int) -> dict[str, list[str]]:
    """The lines of /proc/PID/status."""
    rows = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: value.split() for name, _, value in rows}


def check(pid: int) -> None:
    found, account = status(pid), privileges.account()
    assert account is not None
    assert found["Uid"] == found["Gid"] == [str(account.uid)] * 4
    assert found["Groups"] == [str(account.group)]
    assert [found[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")] == [["0" * 16]] * 5
    assert found["NoNewPrivs"] == ["1"]


@as_root
async def test_workers_of_a_root_agent_run_as_the_unprivileged_user() -> None:
    worker = await WorkerProcess.start("postgres", Privileges.for_engine("postgres"))
    check(worker.pid)
    environment = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    assert b"HOME=/nonexistent" in environment
    await worker.end()
    loader = await Worker.start("postgres", lambda _: None, Privileges.for_engine("postgres"))
    # The worker sends no message when it has started; no_new_privs is set before the last capability is dropped.
    await eventually_async(
        lambda: status(loader.pid)["NoNewPrivs"] == ["1"] and status(loader.pid)["CapEff"] == ["0" * 16], "its drop"
    )
    check(loader.pid)
    await loader.close_pipe(PATIENCE_S)


@as_root
def test_a_file_is_used_as_its_owner_where_the_policy_allows_it(package_folder: Path) -> None:
    """Files that the policy does not list, and files that the agent has created, are used as the unprivileged user."""
    file, unprivileged = package_folder / "data.sqlite", Privileges.for_engine("postgres")
    listed, local = Policy(source="/etc/lab/policy.yaml", paths=(str(package_folder),)), Policy(own=True)
    assert Privileges.for_engine("sqlite") == Privileges.for_engine("sqlite", str(file), NOTHING) == unprivileged
    file.touch()
    os.chown(file, 61234, 61235)
    for policy in (listed, local):
        owner = Privileges.for_engine("sqlite", str(file), policy)
        assert (owner.uid, owner.gid, owner.group) == (61234, 61235, 61235)
    elsewhere = Policy(source="/etc/lab/policy.yaml", paths=("/etc/udev/rules.d",))
    assert Privileges.for_engine("sqlite", str(file), elsewhere) == unprivileged
    (package_folder / "link").symlink_to(file)
    assert Privileges.for_engine("sqlite", str(package_folder / "link"), listed).uid == 61234
    made = Endpoint(system="s", engine="sqlite", dsn=str(file), provisioned=True)
    assert Privileges.for_endpoint(made, local) == unprivileged
    assert Privileges.for_engine("postgres", "host=db", local) == unprivileged


@as_root
async def test_a_worker_with_other_privileges_is_not_reused() -> None:
    pool = Pool()
    of_owner = Privileges(uid=61234, gid=61235, group=61235, reads_all=True)
    (owner,) = await pool.acquire(1, "sqlite", of_owner)
    assert status(owner.pid)["Uid"] == ["61234"] * 4
    assert status(owner.pid)["Gid"] == ["61235"] * 4
    pool.release([owner])
    (other,) = await pool.acquire(1, "postgres", Privileges.for_engine("postgres"))
    assert other is not owner
    check(other.pid)
    (again,) = await pool.acquire(1, "sqlite", of_owner)
    assert again is owner
    await pool.close(keep_data=False)


@as_root
async def test_a_worker_cannot_read_the_memory_or_files_of_another() -> None:
    """Both are the same user, but the /proc files of a process that is not dumpable belong to root. A worker can still
    signal another; this is documented."""
    worker = await WorkerProcess.start("postgres", Privileges.for_engine("postgres"))
    argument = Privileges.for_engine("postgres").to_argument()
    code = f"""
import ctypes, errno, os, sys
from proveout.agent.sandbox.privileges import Privileges
privileges = Privileges.from_argument({argument!r})
privileges.drop(), privileges.seal()
for name in ("environ", "mem", "fd", "maps"):
    path = f"/proc/{worker.pid}/{{name}}"
    try:
        os.listdir(path) if name == "fd" else open(path, "rb").read(1)
    except PermissionError:
        continue
    sys.exit(f"{{path}} was shown")
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
there = ctypes.create_string_buffer(16)
span = (ctypes.c_size_t * 2)(ctypes.addressof(there), 16)
for what, made in (
    ("traced", lambda: libc.ptrace(PTRACE_ATTACH, {worker.pid}, None, None)),
    ("seized", lambda: libc.ptrace(PTRACE_SEIZE, {worker.pid}, None, None)),
    ("read", lambda: libc.process_vm_readv({worker.pid}, span, 1, span, 1, 0)),
    ("written", lambda: libc.process_vm_writev({worker.pid}, span, 1, span, 1, 0)),
):
    if made() != -1 or ctypes.get_errno() != errno.EPERM:
        sys.exit(f"the other could be {{what}}: {{ctypes.get_errno()}}")
if libc.prctl(3, 0, 0, 0, 0) != 0:
    sys.exit("it would leave a core file")
try:
    os.pidfd_open({worker.pid}), os.kill({worker.pid}, 0)
except PermissionError:
    sys.exit("they are not the same user, and this test shows nothing")
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    await worker.end()
    assert (done.returncode, done.stderr) == (0, "")


@as_root
def test_dropped_privileges_cannot_be_regained(tmp_path: Path) -> None:
    """The process, and programs that it starts, can write no file, signal no process and regain no privilege."""
    (tmp_path / "file").write_text("")
    code = f"""
import os, subprocess, sys
from proveout.agent.sandbox.privileges import Privileges
Privileges.from_argument({Privileges.for_engine("postgres").to_argument()!r}).drop()
for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.kill({os.getpid()}, 0),
                lambda: open({str(tmp_path / "file")!r}, "w"), lambda: os.chmod({str(tmp_path / "file")!r}, 0o777)):
    try:
        attempt()
    except PermissionError:
        continue
    sys.exit("this was allowed")
print(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    account = privileges.account()
    assert account is not None
    assert f"Uid:\t{account.uid}\t{account.uid}" in done.stdout
    assert "NoNewPrivs:\t1" in done.stdout


@as_root
def test_a_package_behind_a_link_through_a_closed_folder_is_imported(tmp_path: Path) -> None:
    """A clone whose own folder is closed to other users: its packages are links to folders beside `src`."""
    clone = tmp_path / "clone"
    (clone / "toy").mkdir(parents=True)
    (clone / "toy" / "__init__.py").touch()
    (clone / "toy" / "later.py").write_text("WHERE = __file__")
    (clone / "src").mkdir()
    (clone / "src" / "toy").symlink_to("../toy")
    clone.chmod(0o700)
    code = """
import os, sys
import toy
from proveout.agent.sandbox.privileges import import_by_descriptors
import_by_descriptors()
os.setuid(65534)
import toy.later
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={"PYTHONPATH": str(clone / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_program_that_other_users_may_not_read_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    file = tmp_path / "proveout" / "agent" / "sandbox" / "privileges.py"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    with pytest.raises(TaskFault, match="other users may not read") as caught:
        privileges._need_readable(file)
    assert caught.value.way_out == f"make the program readable: `chmod -R go+rX {tmp_path / 'proveout'}`"
    file.chmod(0o644)
    privileges._need_readable(file)
    (tmp_path / "proveout").chmod(0o700)
    assert not privileges._everybody_reads(file)
    assert privileges._everybody_reads(Path("/bin/sh"))


def test_dropping_privileges_without_root_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "account", lambda: None)
    assert Privileges.for_engine("postgres") == INHERITED
    assert INHERITED.environment({"HOME": "/home/me"}) == {"HOME": "/home/me"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    INHERITED.drop()


def test_privileges_survive_the_command_line_and_others_are_refused() -> None:
    owner = Privileges(uid=61234, gid=61235, group=61236, reads_all=True)
    for value in (INHERITED, owner, Privileges(uid=1, gid=1, group=1)):
        assert Privileges.from_argument(value.to_argument()) == value
    for text in ("", "1", "1,2,3", "a,b,c,d", "1,2,3,4,5"):
        with pytest.raises(ValueError):
            Privileges.from_argument(text)


@as_root
def test_the_capability_for_reading_is_not_in_the_bounding_set() -> None:
    """The capability is effective until `seal`, also in a started program; set-uid programs can restore no other."""
    code = """
import subprocess, sys
from pathlib import Path
from proveout.agent.sandbox.privileges import Privileges
privileges = Privileges.from_argument("61234,61235,61235,1")
privileges.drop()
print(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True).stdout)
privileges.seal()
print(Path("/proc/self/status").read_text())
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name, values in (("CapBnd", [0, 0]), ("CapEff", [1 << 2, 0])):
        assert [int(line.split()[1], 16) for line in output.splitlines() if line.startswith(name)] == values
