"""`proveout deploy` over real sshds on hosts made of namespaces, each with file systems of its own.

The first release is of this checkout and environment, without packages that an agent without a load does not import;
the second is a wheel that leads to this environment's packages, which hosts have below /run. systemd is a stand-in
(`systemctl`) that starts the unit's command as its user. Not tested: other machines, another Python or C library than
this one's, sudo that works, and the sandbox of the unit.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from eventually import eventually
from hand_made import OBJECTION
from ssh_hosts import SHARED, SSHD, SshLab, make_wheels, write_wheel

OBJECTIONS = OBJECTION or (
    "" if SSHD and shutil.which("ssh") else "needs OpenSSH's ssh and sshd (apt-get install openssh-server)"
)
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(bool(OBJECTIONS), reason=OBJECTIONS if "root" in OBJECTIONS else f"{OBJECTIONS}, as root"),
]
PACKAGES = (
    "annotated-doc", "annotated-types", "cffi", "colorama", "cryptography", "grpcio", "protobuf", "psutil", "pydantic",
    "pydantic_core", "PyYAML", "shellingham", "typer", "typing-inspection", "typing_extensions",
)  # fmt: skip
MIB = 1 << 20
RACER = """
import ctypes, os, pwd
libc = ctypes.CDLL(None)
user = pwd.getpwnam("proveout").pw_uid
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.mkdir("folder")
os.symlink("/etc", "link")
number = 0
while True:
    libc.renameat2(-100, b"folder", -100, b"link", 2)  # RENAME_EXCHANGE
    number += 1
    try:
        os.mkdir(f"new{number % 7}")
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheelhouses of a release and of the next one."""
    first, second = make_wheels(tmp_path_factory.mktemp("first"), *PACKAGES, "pip"), tmp_path_factory.mktemp("second")
    own = metadata.distribution("proveout")
    about = second / f"proveout-{own.version}.dist-info"
    about.mkdir()
    texts = {
        f"{about.name}/METADATA": f"Metadata-Version: 2.1\nName: proveout\nVersion: {own.version}\n",
        f"{about.name}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about.name}/entry_points.txt": own.read_text("entry_points.txt") or "",
        "paths.pth": "".join(f"{place}\n" for place in SHARED),
    }
    texts[f"{about.name}/RECORD"] = "".join(f"{name},,\n" for name in (*texts, f"{about.name}/RECORD"))
    for name, text in texts.items():
        (second / name).write_text(text)
    write_wheel(second, metadata.Distribution.at(about))
    write_wheel(second, metadata.distribution("pip"))
    shutil.copy(next(second.glob("pip-*.whl")), second / "pip-99.0-py3-none-any.whl")  # one of two pips installs
    return first, second


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    folder = tmp_path_factory.mktemp("lab")
    bare = folder / "bare"
    bare.mkdir()
    hosts: dict[str, dict[str, object]] = {
        name: {} for name in ("db1", "managed", "foreign", "stranger", "open", "killed")
    }
    hosts |= {"full": {"opt_bytes": 8 * MIB}, "old": {"path": str(bare)}}
    made = SshLab(folder, hosts)
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_a_host_from_the_first_deployment_to_its_removal(lab: SshLab, houses: tuple[Path, Path]) -> None:
    """Dry run, deployment beside hosts that cannot be used, an interrupted upgrade, an upgrade, a policy, removal."""
    host, one = lab.hosts["db1"], lab.inventory("db1")
    give_systemctl(lab, "db1")
    before = host.files()
    said = lab.deploy(one, "--dry-run", "--wheelhouse", str(houses[0]))
    assert "db1: enrol with 10.77.0.1:7444 as agent/db1" in said
    assert host.files() == before

    deploy_beside_hosts_that_cannot_be_used(lab, houses[0])
    deployed = settled(lab, "db1")

    # Ctrl-C in an upgrade: the host has its release, its keys and its agent, and a deployment of that release is none
    argv = lab.argv(one, "--wheelhouse", str(houses[1]))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if "installing" in line)
        running.send_signal(signal.SIGINT)
        assert "interrupted: everything was undone" in running.stderr.read()
    assert running.returncode == 130
    assert "1 unchanged" in lab.deploy(one, "--wheelhouse", str(houses[0]))
    assert settled(lab, "db1") == deployed
    kept = [place for place in host.files() if place.startswith("var/lib/proveout/audit")]

    # an agent that serves a run is left alone, whatever changes
    lab.shell("db1", "mkdir /var/lib/proveout/work-1")
    assert "1 unchanged" in lab.deploy(one, "--wheelhouse", str(houses[0]))
    for change in (("--wheelhouse", str(houses[1])), ("--remove",)):
        assert "its agent serves a run (Wait for the end of that run" in lab.deploy(one, *change, code=4)
    lab.shell("db1", "rmdir /var/lib/proveout/work-1")

    # an upgrade to a service, with another role and so another template of a policy, keeps journal and keys
    one.write_text(one.read_text().replace("[client]", "[server]"))
    assert "1 changed" in lab.deploy(one, "--wheelhouse", str(houses[1]), service=True)
    after = host.files()
    assert after["etc/proveout/pki/agent.key"] == deployed["etc/proveout/pki/agent.key"]
    assert [place for place in kept if place not in after] == []
    (release,) = {place.split("/")[3] for place in after if place.startswith("opt/proveout/releases/")}
    assert not [place for place in deployed if release in place]
    unit = lab.shell("db1", "test -e /run/enabled.service && cat /etc/systemd/system/proveout-agent.service")
    assert "ExecStart=/opt/proveout/current/bin/proveout agent --listen 0.0.0.0:7443" in unit
    assert "User=proveout" in unit

    # a first policy makes the agent root, with keys of root's
    lab.shell("db1", "echo 'policy: 1' > /etc/proveout/policy.yaml")
    assert "1 changed" in lab.deploy(one, "--wheelhouse", str(houses[1]), service=True)
    key = host.files()["etc/proveout/pki/agent.key"].split()
    assert key[1] == "0:0"
    assert key[2] != after["etc/proveout/pki/agent.key"].split()[2]
    assert "User=" not in lab.shell("db1", "cat /etc/systemd/system/proveout-agent.service")

    # another policy by option, while the owner has one
    policy = lab.folder / "policy.yaml"
    policy.write_text("policy: 1\nsysctl: [vm.swappiness]\n")
    assert "it has another policy than the one of --policy" in lab.deploy(
        one, "--wheelhouse", str(houses[1]), "--policy", str(policy), code=4, service=True
    )

    # removal leaves the owner's policy, and nothing else
    lab.deploy(one, "--remove", "--dry-run")
    assert "1 removed" in lab.deploy(one, "--remove")
    left = host.files()
    assert left.keys() - before.keys() == {"etc/proveout", "etc/proveout/policy.yaml"}
    lab.shell("db1", "rm -r /etc/proveout && test ! -e /run/enabled.service")
    assert host.files() == before
    assert "1 absent" in lab.deploy(one, "--remove")
    assert "revoked" in lab.proveout("pki", "list", str(lab.folder / "authority"))


def deploy_beside_hosts_that_cannot_be_used(lab: SshLab, house: Path) -> None:
    """One host's failure does not stop the others, and changes nothing there."""
    lab.shell("open", "chmod o+w /opt")
    lab.shell("managed", "useradd --create-home --shell /bin/sh --password '*' visitor")
    lab.shell("foreign", "mkdir /opt/proveout && echo mine > /opt/proveout/notes")
    bad = {name: lab.hosts[name].files() for name in ("full", "old", "foreign", "stranger", "open")}
    lines = (lab.folder / "known_hosts").read_text().splitlines(keepends=True)
    stranger, address = (lab.hosts[name].host.address for name in ("stranger", "managed"))
    (lab.folder / "known_hosts").write_text("".join(line for line in lines if not line.startswith(stranger)))
    logins = {"user": f"visitor@{address}", "ghost": f"ghost@{address}:22", "away": "10.77.0.99"}
    said = lab.deploy(lab.inventory("db1", *bad, logins=logins), "--wheelhouse", str(house), code=4)
    assert "1 deployed, 8 failed" in said
    assert "not done: full, old, foreign, stranger, open, user, ghost, away" in said
    for why in (
        "are needed (Make room there. Nothing was changed)",
        "no Python 3.11 or newer is found there",
        "/opt/proveout exists, and deploy has not made it",
        "the key of the host is not known",
        "other users can replace /opt/proveout: other users can write /opt (chmod go-w /opt",
        "no root rights: ",
        "the login is refused: ",
        "no connection: ",
    ):
        assert why in said
    assert {name: lab.hosts[name].files() for name in bad} == bad


def settled(lab: SshLab, name: str) -> dict[str, str]:
    """The files of a host but for those that a running agent writes."""
    moving = ("opt/proveout/agent.", "var/lib/proveout/", "etc/proveout/pki/denied")
    return {place: said for place, said in lab.hosts[name].files().items() if not place.startswith(moving)}


def give_systemctl(lab: SshLab, name: str) -> None:
    """The host's stand-in for systemd."""
    stand_in = Path(__file__).with_name("systemctl")
    lab.shell(name, f"mkdir -p /usr/local/sbin /run/systemd/system && cp {stand_in} /usr/local/sbin/systemctl")


def test_a_failed_start_of_a_unit_leaves_nothing(lab: SshLab, houses: tuple[Path, Path]) -> None:
    """Another program has the port."""
    give_systemctl(lab, "managed")
    before = lab.hosts["managed"].files()
    lab.shell("managed", "setsid python3 -m http.server 7443 >/dev/null 2>&1 </dev/null & echo $! > /run/other")
    said = lab.deploy(lab.inventory("managed"), "--wheelhouse", str(houses[1]), code=4, service=True)
    assert "everything was undone" in said
    lab.shell("managed", "kill $(cat /run/other); test ! -e /run/enabled.service")
    assert lab.hosts["managed"].files() == before


@pytest.mark.soak  # tests/core/test_trust.py races each operation by itself
def test_a_deployment_beside_racers(lab: SshLab, houses: tuple[Path, Path]) -> None:
    """Processes of the agent's user exchange folders in its trees for links to /etc, and put a pipe in place of a
    certificate, while the trees become root's with a policy, and are given back, again and again; they do not keep the
    user from being removed."""
    host, one, house = lab.hosts["managed"], lab.inventory("managed"), houses[0]
    give_systemctl(lab, "managed")
    before = host.files()
    assert "1 deployed" in lab.deploy(one, "--wheelhouse", str(house), service=True)
    lab.shell("managed", f"cat > /run/racer.py <<'END'\n{RACER}\nEND")
    for place in ("/var/lib/proveout", "/etc/proveout/pki"):
        lab.shell("managed", f"cd {place} && {{ setsid python3 /run/racer.py >/dev/null 2>&1 </dev/null & }}")
    lab.shell("managed", "cd /etc/proveout/pki && rm agent.pem && mkfifo agent.pem && chown proveout agent.pem")
    outside = files_outside(lab)
    planted = "/var/lib/proveout/undo.sqlite"
    lab.shell("managed", f"echo 'policy: 1' > /etc/proveout/policy.yaml && touch {planted} && chown proveout {planted}")
    said = lab.deploy(one, "--wheelhouse", str(house), code=4, service=True)
    assert f"{planted} lists changes of an agent that was not root" in said
    assert "everything was undone" in said
    for line in (f"rm {planted}", "rm /etc/proveout/policy.yaml"):
        lab.shell("managed", line)
        assert "1 changed" in lab.deploy(one, "--wheelhouse", str(house), service=True)
    assert files_outside(lab) == outside
    assert "1 removed" in lab.deploy(one, "--remove")
    assert host.files() == before


def files_outside(lab: SshLab) -> dict[str, str]:
    """The files that are not of the deployment, read while the racers stand still."""
    lab.shell("managed", "pkill -STOP -f [r]acer.py")
    trees = ("etc/proveout", "opt/proveout", "var/lib/proveout", "etc/systemd/system/proveout")
    found = {place: said for place, said in lab.hosts["managed"].files().items() if not place.startswith(trees)}
    lab.shell("managed", "pkill -CONT -f [r]acer.py")
    return found


def test_a_killed_deployment_is_undone_while_a_program_runs(lab: SshLab, houses: tuple[Path, Path]) -> None:
    """The host does not wait for the end of what it has started: here that does not come."""
    host, one = lab.hosts["killed"], lab.inventory("killed")
    before = but_for_bytecode(host.files())
    lab.shell("killed", 'echo \'import time; open("/run/hangs", "w"); time.sleep(1e6)\' > /run/hang.py')
    lab.shell("killed", "mount --bind /run/hang.py $(python3.11 -c 'import venv; print(venv.__path__[0])')/__main__.py")
    argv = lab.argv(one, "--wheelhouse", str(houses[1]))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        eventually(lambda: lab.shell("killed", "ls /run/hangs || :"), (host.folder / "sshd.log").read_text)
        assert but_for_bytecode(host.files()) != before
        running.kill()
    eventually(lambda: but_for_bytecode(host.files()) == before, (host.folder / "sshd.log").read_text)
    assert lab.shell("killed", "pgrep -f '[-]m venv' || :") == ""


def but_for_bytecode(files: dict[str, str]) -> dict[str, str]:
    """Without what the host's Python has written for itself."""
    return {place: said for place, said in files.items() if "__pycache__" not in place}
