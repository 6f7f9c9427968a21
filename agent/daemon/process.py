"""The process of an agent, from its command line to its exit code, and the systemd unit that starts it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import posixpath
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from proveout.agent.daemon.handlers import TABLE
from proveout.agent.daemon.servicer import ORPHAN_S, Options, serve
from proveout.agent.daemon.tasks import Handler
from proveout.agent.errors import Formatter
from proveout.agent.security.authz import Identity, received_identity
from proveout.agent.security.policy import KNOWN_FILES, Policy, is_beneath
from proveout.core import child_process
from proveout.core.errors import ProveoutError
from proveout.dsl import engines

# A local agent reads its identity from standard input, writes `listening <address>` to standard output once, and then
# redirects standard output to its log (standard error). The environment is reduced to the variables that child
# processes get (`child_process`), so that code in this process and in children finds the same variables.

LISTEN = "0.0.0.0:7443"  # coordinators dial agents; every client needs a certificate
BUG = 70  # EX_SOFTWARE of sysexits.h


def default_state_dir() -> Path:
    """State directory of a permanent agent: /var/lib/proveout for root, else below the user's state directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/proveout")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "proveout/agent"


def run(options: Options, table: Mapping[type, Handler] = TABLE, orphan_s: float = ORPHAN_S) -> NoReturn:
    """Run an agent and end the process with its exit code. An expected failure is one message on standard error.

    The process exits at once, so that a hanging thread or task of a handler cannot keep it.
    """
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.INFO)
    kept = (*child_process.RAY, *(name for engine in engines.ENGINES for name in child_process.of_engine(engine)))
    if names := child_process.left_out(*kept):
        logging.getLogger(__name__).info(child_process.left_out_message(names))
    child_process.keep_only(*kept)
    loop = asyncio.new_event_loop()
    code = BUG
    try:
        loop.run_until_complete(serve(options, _say_ready if options.local else lambda _: None, table, orphan_s))
        code = 0
    except ProveoutError as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    except BaseException:  # os._exit would hide it
        logging.exception("the agent has failed; this is a bug in proveout")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str], table: Mapping[type, Handler] = TABLE, orphan_s: float = ORPHAN_S) -> NoReturn:
    """`run` with the options of a command line. A ProveoutError is one message on standard error."""
    try:
        options = _options(arguments)
    except ProveoutError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    run(options, table, orphan_s)


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="proveout agent")
    parser.add_argument("--listen", default=LISTEN)
    parser.add_argument("--pki", type=Path)
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--undo-dir", type=Path)
    given = parser.parse_args(arguments)
    if given.pki is None and not given.local:
        parser.error("--pki is missing: name the directory with this agent's certificate")
    return Options(
        listen=given.listen,
        pki=given.pki or _read_identity(),
        state_dir=given.state_dir or default_state_dir(),
        name=given.name,
        local=given.local,
        policy=given.policy,
        undo_dir=given.undo_dir,
    )


def _read_identity() -> Identity:
    """Read the identity from standard input, then redirect standard input to /dev/null."""
    identity = received_identity(sys.stdin.buffer.read())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    return identity


def _say_ready(address: str) -> None:
    """ProveoutError when the coordinator that started this agent has ended."""
    try:
        os.write(sys.stdout.fileno(), f"listening {address}\n".encode())
    except BrokenPipeError as error:
        what = "the coordinator that started this agent has ended"
        raise ProveoutError(what, way_out="Start the run again.") from error
    finally:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


# Not set, and why: MemoryDenyWriteExecute (Python's ctypes needs executable closures), ProcSubset=pid (the counters of
# the host are in /proc), IPAddressDeny (the network of a host is the lab's choice: add it in a drop-in), RootDirectory,
# PrivateNetwork.

USER = "proveout"
STATE = "/var/lib/proveout"
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
)
"""Capabilities to write files of other users, and to run servers, load and helper processes as other users."""

KERNEL_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SYS_RESOURCE")
"""Additional capabilities for some kernel settings and for partition tables."""

ALWAYS = """NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
LockPersonality=yes
KeyringMode=private
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
LimitNOFILE=65536
UMask=0077"""

DISKS = (
    "DevicePolicy=closed",
    "DeviceAllow=block-* rw",
    "DeviceAllow=char-sg rw",
    "DeviceAllow=/dev/mapper/control rw",
)
"""Devices for partitions, multipath and device tests; no memory, consoles or input devices."""

HEAD = """# /etc/systemd/system/proveout-agent.service: systemctl daemon-reload; systemctl enable --now proveout-agent
[Unit]
Description=proveout agent
Documentation=man:systemd.exec(5)
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=90
"""


def unit(program: str, arguments: Sequence[str], *, pki: Path, state_dir: Path, policy: Policy) -> str:
    """The text of the unit. `program` is the absolute path of `proveout`, `arguments` are its arguments.

    Home directories are hidden, unless the agent's program or files are in one. A folder of the policy may be missing
    (`-`), as on a host without multipath.
    """
    command = " ".join(_quoted(word).replace("$", "$$") for word in (program, *arguments))  # ExecStart expands `$`
    inside = any(str(path).startswith(("/home/", "/root/")) for path in (program, pki, state_dir))
    written = (str(pki), str(state_dir), *(f"-{folder}" for folder in _written(policy)))
    lines = [
        HEAD.format(command=command),
        ALWAYS,
        f"ProtectHome={'read-only' if inside else 'yes'}",
        *(_privileged(policy) if policy.source else _plain(pki, state_dir)),
        f"ReadWritePaths={' '.join(map(_quoted, written))}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _privileged(policy: Policy) -> list[str]:
    yes_no = {True: "yes", False: "no"}
    has_disks = bool(policy.devices) or policy.destructive
    return [
        f"# These settings depend on {policy.source}; print the unit again when it changes.",
        f"ProtectKernelTunables={yes_no[not _sets_the_kernel(policy)]}",
        f"PrivateDevices={yes_no[not has_disks]}",
        *(DISKS if has_disks else ()),
        f"CapabilityBoundingSet={' '.join(_capabilities(policy))}",
        f"StateDirectory={Path(STATE).name}",  # the undo journals of this machine, for any --state-dir
    ]


def _written(policy: Policy) -> Iterator[str]:
    """Folders that the policy lets plans write in: a file is replaced by another one beside it, and a database has
    files beside its own."""
    for path in policy.paths:
        yield posixpath.dirname(path) if path in KNOWN_FILES else path
    for path in policy.database_files:
        yield path if Path(path).is_dir() else posixpath.dirname(path)


def _sets_the_kernel(policy: Policy) -> bool:
    """Whether the policy needs writes below /proc/sys or /sys; udevadm writes there to apply rules."""
    beneath = any(is_beneath(path, place) for path in policy.paths for place in ("/proc", "/sys"))
    return bool(policy.sysctl) or beneath or any(Path(tool.path).name == "udevadm" for tool in policy.tools)


def _capabilities(policy: Policy) -> tuple[str, ...]:
    network = any(glob.startswith(("net.", "net*", "*", "?", "[")) for glob in policy.sysctl)
    network = network or any(is_beneath(path, "/sys/class/net") for path in policy.paths)
    network = network or not {"partition", "loss", "delay"}.isdisjoint(policy.faults)
    kernel = _sets_the_kernel(policy) or bool(policy.devices) or policy.destructive or bool(policy.tools)
    return (*CAPABILITIES, *(("CAP_NET_ADMIN",) if network else ()), *(KERNEL_CAPABILITIES if kernel else ()))


def _plain(pki: Path, state_dir: Path) -> list[str]:
    return [
        "# No policy: the agent changes nothing on this host, and an ordinary user is enough. "
        "Once, before the first start:",
        f"#   useradd --system --home-dir {STATE} {USER}; chown -R {USER}: {shlex.quote(str(pki))}",
        f"User={USER}",
        f"Group={USER}",
        "ProtectKernelTunables=yes",
        "PrivateDevices=yes",
        "DevicePolicy=closed",
        "PrivateUsers=yes",
        "ProtectProc=invisible",
        "RemoveIPC=yes",
        "SystemCallFilter=~@privileged",
        "CapabilityBoundingSet=",
        *([f"StateDirectory={state_dir.name}", "StateDirectoryMode=0700"] if str(state_dir) == STATE else []),
    ]


def _quoted(word: str) -> str:
    """Quote a word of a unit file.

    Source: systemd.syntax(7), systemd.unit(5): `%` is doubled, quotes are those of C.
    """
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if any(character in word for character in " \t;'\"\\#") else escaped
