"""`proveout inventory import`: the text that it writes, what it names, and that `deploy` reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.coordinator.deploy.inventories import read

INI = """\
jump ansible_connection=local
[databases]
db[01:02].lab ansible_host=10.0.0.5 ansible_user=admin http_port=80
[load generators]
client1:2200 ansible_user=bench ansible_password=hush
2001-db8 ansible_host=2001:db8::7
win ansible_connection=winrm
moved ansible_host="{{ somewhere }}"
ported ansible_host=db1:2222
"""
OUT = """\
# Hosts of hosts.ini, by `proveout inventory import`. Systems and secrets: see plans/inventories.
topology:
  hosts:
    jump: {roles: [], address: local}
    db01: {roles: [server], address: "10.0.0.5:7443", ssh: "admin@10.0.0.5"}
    db02: {roles: [server], address: "10.0.0.5:7443", ssh: "admin@10.0.0.5"}
    client1: {roles: [load-generators], address: "client1:7443", ssh: "bench@client1:2200"}
    host-2001-db8: {roles: [load-generators], address: "[2001:db8::7]:7443"}
    moved: {roles: [load-generators], address: "moved:7443"}
    ported: {roles: [load-generators], address: "[db1:2222]:7443"}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("hosts.ini")
    path.write_text(INI)
    return path


def test_hosts_are_written_and_the_rest_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["inventory", "import", str(file), "--role", "databases=server"]) == 0
    said = capsys.readouterr()
    assert said.out == OUT
    notes = [line.removeprefix("note: hosts.ini:") for line in said.err.splitlines()]
    assert "7:1: host `win` is left out: it is reached by winrm, not by SSH" in notes
    assert "8:1: `ansible_host` of host `moved` is a template, and not used" in notes
    assert "9:1: the address `db1:2222` of host `ported` is not a name or an IP address" in notes
    assert "5:1: `ansible_password` is not imported (client1): left out: deploy logs in with a key" in notes
    assert any(note.startswith("3:1: `http_port` is not imported (db01.lab, db02.lab)") for note in notes)
    assert "note: group `load generators` is the role `load-generators`" in notes
    assert any("no host has the role `client`" in note for note in notes)
    assert "hush" not in said.out + said.err


def test_deploy_reads_what_was_imported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[clients]\nc[1:2].lab ansible_user=bench ansible_port=22\n")
    argv = ["inventory", "import", str(file), "--role", "clients=client", "--out", "lab.yaml"]
    assert execute(argv) == 0
    targets = read(Path("lab.yaml"))
    assert [(one.name, one.address, one.ssh) for one in targets] == [
        ("c1", "c1.lab:7443", "bench@c1.lab:22"),
        ("c2", "c2.lab:7443", "bench@c2.lab:22"),
    ]
    assert execute(argv) == 2
    assert "lab.yaml exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--role", "database=server"], "did you mean `databases`?"),
        (["--role", "databases"], "is not GROUP=ROLE"),
        (["--role", "databases=-x"], "is not GROUP=ROLE"),
    ],
)
def test_wrong_options(file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["inventory", "import", str(file), *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_file_without_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.ini").write_text("[a]\n")
    assert execute(["inventory", "import", str(tmp_path / "none.ini")]) == 2
    assert "there are no hosts in it" in capsys.readouterr().err
