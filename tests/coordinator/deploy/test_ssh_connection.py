"""The hosts of an inventory, the command of a login, what the end of an `ssh` process means, records and lock of the host
program, and the outcome of an interruption."""

from __future__ import annotations

import asyncio
import datetime
import errno
import io
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proveout.cli import execute
from proveout.coordinator.certificates import Issued, Member
from proveout.coordinator.deploy import deployment, host_program, inventories
from proveout.coordinator.deploy.deployment import Access, Outcome
from proveout.coordinator.deploy.host_program import Host, Refused
from proveout.coordinator.deploy.ssh_connection import Connection, Ending, HostError, Login, Target, reason, split
from proveout.core.errors import PlanError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("admin@db1.lab", ("admin@db1.lab", "")),
        ("admin@db1.lab:2222", ("admin@db1.lab", "2222")),
        ("admin@[2001:db8::7]:2222", ("admin@2001:db8::7", "2222")),
        ("2001:db8::7", ("2001:db8::7", "")),
    ],
)
def test_logins(text: str, parts: tuple[str, str]) -> None:
    assert split(text) == parts


def test_the_command_is_in_batch_mode_and_the_script_is_one_argument() -> None:
    target = Target(name="db1", roles=(), address="db1.lab:7443", ssh="admin@db1.lab:22")
    argv = Login(config=Path("/etc/lab/ssh_config"), pythons=("python3.11", "/opt/a b/python3")).argv(target)
    assert "BatchMode=yes" in argv
    assert not [word for word in argv if "StrictHostKeyChecking" in word]
    assert argv[argv.index("-F") + 1] == "/etc/lab/ssh_config"
    assert argv[-3:-1] == ["--", "admin@db1.lab"]
    assert "\n" not in argv[-1]  # csh has no quoted text of several lines
    # as the login shell of the host executes it, with programs that are not Python
    done = subprocess.run(
        ["/bin/sh", "-c", argv[-1]], capture_output=True, text=True, check=False, env={"PATH": "/nowhere"}
    )
    assert done.returncode == 97, done.stderr


@pytest.mark.parametrize(
    ("code", "lines", "what"),
    [
        (97, [], "no Python 3.11 or newer"),
        (255, ["Host key verification failed."], "the key of the host is not known"),
        (255, ["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "Host key verification failed."], "another key"),
        (255, ["root@db1: Permission denied (publickey)."], "the login is refused"),
        (255, ["ssh: connect to host db1 port 22: Connection refused"], "no connection: ssh: connect to host db1"),
        (1, ["sudo: a password is required"], "no root rights: sudo: a password is required"),
        (127, ["/bin/sh: 5: exec: sudo: not found"], "no root rights"),
        (1, ["bob is not in the sudoers file."], "no root rights"),
        (1, ["a login script: become root by sudo", "Killed"], "the connection has ended: Killed"),
        (0, [], "the connection has ended: exit code 0"),
    ],
)
def test_reasons(code: int, lines: list[str], what: str) -> None:
    assert what in reason(code, lines)[0]


@pytest.mark.parametrize(
    ("ssh", "host", "what"),
    [
        ("-oProxyCommand=x", "db1", "lab.yaml:3:"),
        ("db1", "db9", "the inventory has no host `db9`"),
        ("db1", "db1", "error: --ca is missing"),
    ],
)
def test_an_inventory_that_cannot_be_used(
    ssh: str, host: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"topology:\n  hosts:\n    db1: {{roles: [client], address: 'db1:7443', ssh: '{ssh}'}}\n")
    assert execute(["deploy", "-i", str(path), "--host", host]) == 2
    said = capsys.readouterr().err
    assert what in said and "getting the wheels" not in said


@pytest.mark.parametrize("host", ["null", "{roles: [client], address: null}"])
def test_a_host_without_an_address_is_not_left_out(host: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"topology:\n  hosts:\n    db1: {{address: 'db1:7443'}}\n    db2: {host}\n")
    with pytest.raises(PlanError, match="1 problem"):
        inventories.read(path)


def connected() -> Host:
    return Host(io.BufferedReader(cast(Any, io.BytesIO())))


def test_a_deployment_that_is_refused_leaves_the_lock_to_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_program, "LOCK", tmp_path / "lock")
    holder = connected()
    holder._take_lock()
    for _ in range(2):
        other = connected()
        for _ in range(2):
            with pytest.raises(Refused, match="another deployment"):
                other._take_lock()
        other.close()
    holder.close()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_at_the_beginning_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder stayed, and was in the way of the next deployment."""
    for name in ("HOME", "LOCK", "DEPLOYMENT", "CHANGE", "CURRENT", "UNIT", "EXAMPLE", "PKI", "STATE"):
        monkeypatch.setattr(host_program, name, tmp_path / "HOME" / name if name == "CHANGE" else tmp_path / name)

    def full(path: Path, text: str) -> None:
        path.with_name(f".{path.name}.new").touch()
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(host_program, "write", full)
    monkeypatch.setattr(os, "umask", lambda _: 0o022)
    host = connected()
    with pytest.raises(OSError, match="No space left"):
        host.begin("")
    host.close()
    assert not list(tmp_path.iterdir())


def test_a_commit_that_was_killed_is_undone_with_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed between the new record and the end of the change."""
    for name in ("DEPLOYMENT", "CHANGE", "CURRENT", "UNIT", "EXAMPLE", "PKI", "STATE", "PID"):
        monkeypatch.setattr(host_program, name, tmp_path / name)
    monkeypatch.setattr(host_program, "has_systemd", lambda: False)
    earlier = {"format": 1, "mode": "process", "listen": "0.0.0.0:7443", "made": []}
    before = {"release": "", "unit": "", "example": "", "record": earlier, "running": False}
    settings = {"mode": "process", "listen": "0.0.0.0:7444"}
    change = {"format": 1, "release": "", "made": [], "before": before, "settings": settings}
    host_program.CHANGE.write_text(json.dumps(change))
    host_program.DEPLOYMENT.write_text(json.dumps(earlier | settings))
    connected().undo()
    assert json.loads(host_program.DEPLOYMENT.read_text()) == earlier
    assert not host_program.CHANGE.exists()


def test_a_release_without_its_program_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`deploy` called a host unchanged whose /opt/proveout/releases was deleted while its agent ran."""
    for name in ("HOME", "CURRENT"):
        monkeypatch.setattr(host_program, name, tmp_path if name == "HOME" else tmp_path / name.lower())
    program = tmp_path / "releases/1-2/bin/proveout"
    program.parent.mkdir(parents=True)
    host_program.link("1-2")
    assert host_program.linked() == ""
    program.touch()
    assert host_program.linked() == "1-2"


def test_undo_journals_are_found_whatever_is_in_the_agents_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deployment can be removed where its owner has removed it, and where the agent's user has made deep folders."""
    monkeypatch.setattr(host_program, "STATE", tmp_path / "state")
    assert host_program.outstanding() == []
    (tmp_path / "state" / "a").mkdir(parents=True)
    (tmp_path / "state" / "a" / "undo.sqlite").touch()
    monkeypatch.chdir(tmp_path / "state")
    for _ in range(1500):  # more than Python calls
        os.mkdir("b")  # noqa: PTH102 - a Path cannot be as long
        os.chdir("b")
    os.chdir(tmp_path)
    assert host_program.outstanding() == [str(tmp_path / "state" / "a" / "undo.sqlite")]
    host_program.delete(tmp_path / "state")


def test_a_deployment_is_committed_where_the_release_before_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new certificate was revoked then, as that of a deployment that failed."""
    for name in ("DEPLOYMENT", "CHANGE", "CURRENT", "UNIT", "POLICY", "RELEASES", "INCOMING", "REPLACED"):
        monkeypatch.setattr(host_program, name, tmp_path / name)
    (tmp_path / "RELEASES" / "before").mkdir(parents=True)
    (tmp_path / "CHANGE").touch()

    def busy(path: Path) -> None:
        raise OSError(16, "Device or resource busy", str(path))

    monkeypatch.setattr(host_program, "delete", busy)
    host = connected()
    host.change = {"before": {"record": {}}, "made": [], "settings": {"mode": "process"}}
    assert host.commit() == {}
    assert json.loads(host_program.DEPLOYMENT.read_text())["mode"] == "process"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_agent_that_ends_at_once_is_not_taken_for_one_that_ran_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOG", "PID", "STATE", "CURRENT"):
        monkeypatch.setattr(host_program, name, tmp_path / name)
    monkeypatch.setattr(host_program, "owner", lambda: "root")
    host_program.LOG.write_text("the agent listens at 0.0.0.0:7443\n")
    program = tmp_path / "CURRENT" / "bin" / "proveout"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no such address\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(Refused, match=r"the agent ended at once: no such address$"):
        host_program.start("process", [])


def test_a_host_whose_certificate_cannot_be_read_is_enrolled_again() -> None:
    order = cast(deployment.Order, SimpleNamespace(credentials=SimpleNamespace(ca=b"authority")))
    target = Target(name="db1", roles=(), address="db1.lab:7443", ssh="db1")
    facts = {"ca": "authority", "certificate": "-----BEGIN CERTIFICATE-----\nMII"}
    why = deployment._enrolment(target, order, facts, datetime.datetime.now(datetime.UTC), is_root=False)
    assert why == " (its certificate cannot be read)"


async def test_a_host_that_refuses_to_begin_keeps_its_certificates() -> None:
    """Another deployment changes it, whose new certificate was revoked."""
    target = Target(name="db1", roles=(), address="db1.lab:7443", ssh="db1")
    member = Member(role="agent", name="db1")
    others = Issued(serial=7, member=member, ends_unix_s=0, how="enrol", revoked_unix_s=None)

    async def refused(do: str, **_: object) -> None:
        raise HostError(f"{do}: another deployment changes this host")

    async def close() -> Ending:
        return Ending()

    work = deployment._Work(
        target=target,
        access=Access(login=Login(), ledger=cast(Any, SimpleNamespace(issued=lambda: (others,)))),
        connection=cast(Any, SimpleNamespace(ask=refused, close=close)),
        tell=lambda _: None,
    )
    with pytest.raises(HostError, match="begin"):
        await work._make(cast(Any, SimpleNamespace(wheelhouse=None)), deployment.Steps(mode="process"))
    assert await work.give_up() == "unchanged"


async def test_a_deployment_that_is_undone_revokes_the_certificate_that_it_has_made() -> None:
    """Not the one that the agent of before has renewed meanwhile, and has after the undo."""
    member = Member(role="agent", name="db1")
    hows = {1: "enrol", 2: "renew", 3: "enrol"}
    issued = [Issued(serial=n, member=member, ends_unix_s=0, how=how, revoked_unix_s=None) for n, how in hows.items()]
    revoked: list[str] = []

    async def close() -> Ending:
        return Ending(undone=True)

    work = deployment._Work(
        target=Target(name="db1", roles=(), address="db1.lab:7443", ssh="db1"),
        access=Access(login=Login(), ledger=cast(Any, SimpleNamespace(issued=lambda: issued, revoke=revoked.append))),
        connection=cast(Any, SimpleNamespace(close=close)),
        tell=lambda _: None,
        began=True,
        serials=frozenset({1}),
    )
    assert (await work.give_up(), revoked) == ("everything was undone", ["3"])


@pytest.mark.parametrize("lines", [(), ("restart the agent",)])
async def test_an_agent_that_serves_a_run_is_left_alone(
    lines: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was restarted or removed where the inventory has another address or name for it now, and a host without a
    change had failed."""
    monkeypatch.setattr(deployment, "steps_of", lambda *_: deployment.Steps(mode="process", lines=lines))

    async def facts(do: str, **_: object) -> dict[str, object]:
        assert do == "facts"
        return {"deployment": {"made": []}, "interrupted": False, "running": True, "busy": True, "release": "1"}

    work = deployment._Work(
        target=Target(name="db1", roles=(), address="db1.lab:7444", ssh="db1"),
        access=Access(login=Login()),
        connection=cast(Any, SimpleNamespace(ask=facts)),
        tell=lambda _: None,
    )
    with pytest.raises(HostError, match="its agent serves a run"):
        await work.remove()
    order = cast(Any, SimpleNamespace(authority="lead:7444", credentials=None))
    if lines:
        with pytest.raises(HostError, match="its agent serves a run"):
            await work.deploy(order)
    else:
        assert (await work.deploy(order)).state == "unchanged"


async def test_a_bug_in_the_host_program_is_a_failure_of_that_host_alone() -> None:
    """Its last answer was taken for one to the request, and the others lost their outcomes."""
    script = """read -r loader; read -r modules; read -r request
    echo 'proveout-deploy {"undone": ""}'; echo 'ValueError: a bug' >&2; exit 1"""
    login = cast(Login, SimpleNamespace(argv=lambda _: ["sh", "-c", script]))
    connection = await Connection.open(Target(name="db1", roles=(), address="db1:1", ssh="db1"), login)
    with pytest.raises(HostError, match="the connection has ended: ValueError: a bug"):
        await connection.ask("install")
    assert await connection.close() == Ending(undone=True)


@pytest.mark.parametrize(
    ("fault", "interruptions", "told"),
    [
        (None, 1, ("deployed", "done")),
        (HostError("no pip"), 1, ("failed", "no pip; everything was undone")),
        (ValueError("no answer of deploy"), 1, ("failed", "no answer of deploy; everything was undone")),
        (
            HostError("no pip"),
            2,
            ("failed", "no pip; the host undoes the change by itself, or the next deployment does"),
        ),
        (
            asyncio.CancelledError(),
            1,
            ("interrupted", "the host undoes the change by itself, or the next deployment does"),
        ),
    ],
)
async def test_the_outcome_of_an_interruption_during_the_end_of_a_connection(
    fault: BaseException | None, interruptions: int, told: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = asyncio.Event()

    async def close() -> Ending:
        await ends.wait()
        return Ending(undone=True)

    async def do(work: Any) -> Outcome:
        work.began = fault is not None
        if fault is not None:
            raise fault
        return Outcome(host="db1", state="deployed", text="done")

    async def opened(*_: object) -> SimpleNamespace:
        return SimpleNamespace(close=close)

    monkeypatch.setattr(Connection, "open", opened)
    target = Target(name="db1", roles=(), address="db1.lab:7443", ssh="db1")
    working = asyncio.create_task(deployment._guarded(target, Access(login=Login()), lambda _: None, do))
    for turn in range(30 * (interruptions + 1)):  # all that can run has run when the next one comes
        await asyncio.sleep(0)
        if turn % 30 == 29 and turn < 30 * interruptions:
            working.cancel()
    ends.set()
    outcome = await working
    assert (outcome.state, outcome.text) == told
