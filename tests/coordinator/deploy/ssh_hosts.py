"""Hosts with a real sshd: network namespaces with file systems of their own, and a host `lead` that deploys to them.

Data flow: `docs/lab/network` makes the namespaces -> on each host a process namespace and a mount namespace, in which
/etc, /home, /opt, /root, /usr/local and /var are overlays over the machine's own folders, and /run has but this checkout
and the packages of this environment, not to be written -> sshd.
`SshHost.files()` reads what a host has changed, from the upper folders of its overlays. `lead` has an authority with its
server, a coordinator's certificate and a configuration of ssh with known hosts.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eventually import eventually
from network import Host, Network

LEAD = Host(name="lead", address="10.77.0.1", role="control")
OVERLAYS = ("etc", "home", "opt", "root", "usr/local", "var")
HIDDEN = ("etc/proveout", "opt/proveout", "var/lib/proveout")
"""Folders of agents of this machine, which change meanwhile: a host does not have them."""
PROVEOUT = (sys.executable, "-m", "proveout")
AUTHORITY = f"{LEAD.address}:7444"
PORT = 7443
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
BACKUPS = ("etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-", "etc/.pwd.lock")
"""Files that useradd and userdel of the distribution leave: copies of the databases of before."""

RELEASES = "/opt/proveout/releases/"
SHARED = ("/run/checkout/src", "/run/packages")
"""The folders in which a host finds the modules of this environment."""

MOUNTS = """
set -e
for own in {hidden}; do
  mkdir -p "$1/upper/${{own%/*}}"
  mknod "$1/upper/$own" c 0 0
done
for place in {overlays}; do
  mkdir -p "$1/upper/$place" "$1/work/$place"
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=$1/upper/$place,workdir=$1/work/$place" "/$place"
done
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/checkout /run/packages
mount -o bind,ro "{checkout}" /run/checkout
mount -o bind,ro "{packages}" /run/packages
cp "$3" /run/authorized_keys
[ -z "$2" ] || mount -t tmpfs -o "size=$2,mode=755" tmpfs /opt
exec {sshd} -D -e -f "$1/sshd_config"
"""
CONFIG = """
Port 22
HostKey {folder}/host_key
AuthorizedKeysFile /run/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv PATH={path}
"""


class SshHost:
    """A host: its folders, its network and its sshd. `opt_bytes` limits its /opt, `path` is that of a login."""

    def __init__(self, network: Network, host: Host, folder: Path, *, opt_bytes: int = 0, path: str = "") -> None:
        self.network, self.host, self.folder = network, host, folder / host.name
        self.opt_bytes, self.path = opt_bytes, path or "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"

    def start(self, public_key: Path) -> subprocess.Popen[bytes]:
        self.folder.mkdir()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key"))
        config = CONFIG.format(folder=self.folder, path=self.path)
        (self.folder / "sshd_config").write_text(config)
        places = {"checkout": Path(__file__).parents[3], "packages": sysconfig.get_path("platlib")}
        mounts = MOUNTS.format(overlays=" ".join(OVERLAYS), hidden=" ".join(HIDDEN), sshd=SSHD, **places)
        space = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        argv = [*space, "sh", "-c", mounts, "sh", str(self.folder), str(self.opt_bytes or ""), str(public_key)]
        return started(self.network.command(self.host, *argv), self.folder / "sshd.log", "Server listening")

    @property
    def known(self) -> str:
        """Its line of known_hosts."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"{self.host.address} {kind} {key}\n"

    def files(self) -> dict[str, str]:
        """Place -> mode and content of all that differs from the machine's own folders."""
        upper = self.folder / "upper"
        found: dict[str, str] = {}
        for path in sorted(upper.rglob("*")):
            place = str(path.relative_to(upper))
            own = None if place.startswith(HIDDEN) else Path("/", place)
            if (
                place in BACKUPS
                or place in OVERLAYS
                or (path.is_dir() and not path.is_symlink() and own and own.is_dir())
            ):
                continue
            if (said := described(path)) != (described(own) if own else "absent"):
                found[place] = said
        return found


def described(path: Path) -> str:
    """Mode, owner and content of a file, a folder or a link; "absent" for none, also for a whiteout of an overlay."""
    if not os.path.lexists(path) or path.is_char_device():
        return "absent"
    about = path.lstat()
    if path.is_symlink():
        content = str(path.readlink())
    elif RELEASES in str(path):  # thousands of files; their wheels have hashes
        content = str(about.st_size)
    else:
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"
    return f"{about.st_mode:o} {about.st_uid}:{about.st_gid} {content}"


def started(argv: Sequence[str], log: Path, ready: str) -> subprocess.Popen[bytes]:
    """A program that has written a word into its log."""
    with log.open("wb") as stream:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)
    try:
        eventually(lambda: ready in log.read_text(), log.read_text)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


class SshLab:
    """`lead` and its hosts."""

    def __init__(self, folder: Path, names: Mapping[str, Mapping[str, Any]]) -> None:
        hosts = [Host(name=name, address=f"10.77.0.{11 + index}", role="server") for index, name in enumerate(names)]
        self.network = Network(f"pv{secrets.token_hex(4)}", (LEAD, *hosts))
        self.folder = folder
        self.hosts = {one.name: SshHost(self.network, one, folder, **names[one.name]) for one in hosts}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.key = folder / "key"

    def up(self) -> None:
        self.network.up()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        for host in self.hosts.values():
            self.processes.append(host.start(self.key.with_name("key.pub")))
        (self.folder / "known_hosts").write_text("".join(host.known for host in self.hosts.values()))
        (self.folder / "ssh_config").write_text(
            f"Host *\n  User root\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known_hosts\n"
            "  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
        )
        authority, log = str(self.folder / "authority"), self.folder / "authority.log"
        self.proveout("pki", "init", authority)
        self.proveout("pki", "issue", authority, "lead", "--role", "coordinator", "--out", str(self.pki))
        serve = ("pki", "serve", authority, "--listen", AUTHORITY, "--address", LEAD.address)
        self.processes.append(started(self.network.command(LEAD, *PROVEOUT, *serve), log, "listening"))

    def down(self) -> None:
        self.network.down()
        for process in self.processes:
            process.wait()
        for host in self.hosts.values():
            shutil.rmtree(host.folder, ignore_errors=True)

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    def inventory(self, *names: str, logins: Mapping[str, str] = MappingProxyType({})) -> Path:
        """An inventory of hosts, and of names that are reached by a login."""
        hosts = {name: f'address: "{self.hosts[name].host.address}:{PORT}"' for name in names}
        hosts |= {name: f'address: "{name}:{PORT}", ssh: "{login}"' for name, login in logins.items()}
        path = self.folder / f"{'-'.join(hosts)}.yaml"
        lines = [f"    {name}: {{roles: [client], {place}}}\n" for name, place in hosts.items()]
        path.write_text("topology:\n  hosts:\n" + "".join(lines))
        return path

    def argv(self, inventory: Path, *more: str, service: bool = False) -> list[str]:
        """The command line of a deployment, on lead."""
        config = ["--ssh-config", str(self.folder / "ssh_config")]
        own = ["--ca", str(self.folder / "authority"), "--pki", str(self.pki), *config]
        if "--remove" not in more:
            own += ["--authority", AUTHORITY, *([] if service else ["--no-service"])]
        return self.network.command(LEAD, *PROVEOUT, "deploy", "-i", str(inventory), *own, *more)

    def deploy(self, inventory: Path, *more: str, code: int = 0, service: bool = False) -> str:
        done = subprocess.run(
            self.argv(inventory, *more, service=service), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def proveout(self, *argv: str) -> str:
        return run(*self.network.command(LEAD, *PROVEOUT, *argv))

    def shell(self, name: str, line: str) -> str:
        """Run a line of shell on a host, over ssh."""
        ssh = ["ssh", "-F", str(self.folder / "ssh_config"), self.hosts[name].host.address, line]
        return run(*self.network.command(LEAD, *ssh))


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}{done.stderr}"
    return done.stdout


def make_wheels(folder: Path, *packages: str) -> Path:
    """Wheels of this checkout's proveout, without compiled modules, and of packages of this environment; no network."""
    env = {**os.environ, "PROVEOUT_PURE_PYTHON": "1"}
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    subprocess.run(build, cwd=Path(__file__).parents[3], env=env, check=True, capture_output=True)
    installed = [sysconfig.get_path("purelib")]  # Ray in this process has copies of its own
    for package in packages:
        write_wheel(folder, next(iter(metadata.distributions(name=package, path=installed))))
    return folder


def write_wheel(folder: Path, distribution: metadata.Distribution) -> None:
    """The wheel of an installed distribution; of its files outside the packages there are only scripts, which pip
    makes."""
    files = [file for file in distribution.files or () if file.parts[0] != ".." and file.suffix != ".pyc"]
    (info,) = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
    tag = (distribution.read_text("WHEEL") or "").rpartition("Tag: ")[2].strip()
    with zipfile.ZipFile(folder / f"{info.removesuffix('.dist-info')}-{tag}.whl", "w") as archive:
        for file in files:
            archive.write(Path(str(distribution.locate_file(file))), str(file))
