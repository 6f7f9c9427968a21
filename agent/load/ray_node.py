"""A Ray node that the agent starts, limited to one address, with its secrets and a supervisor process.

`python -m proveout.agent.load.ray_node PARENT-PID PRIVILEGES`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime
import errno
import fcntl
import ipaddress
import json
import os
import platform
import queue
import secrets as random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio
import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process, linux
from proveout.core.data_classes import dataclass
from proveout.core.json_data import json_line
from proveout.proto.wire.tasks import ClusterSecrets

# Ray 2.60 binds its gRPC servers to all addresses as soon as a node's own address is not loopback, for any setting
# (`node_ip_address` is only announced to other nodes). The filter needs neither privileges nor a program in another
# language, and covers every process that Ray starts. It does not stop a hostile program, which could change the address
# while the filter reads it. Source: seccomp(2), seccomp_unotify(2), pidfd_getfd(2); Linux 5.6.

SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
PIDFD_GETFD = 438
CONTINUE = 1
ALLOW, USER_NOTIF = 0x7FFF0000, 0x7FC00000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
SOCKADDR_MAX = 128

NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags; of the call its number, architecture, instruction pointer, six arguments."""
ANSWER = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, error, flags."""


def _ioctl(number: int, size: int, direction: int = 3) -> int:
    return direction << 30 | size << 16 | ord("!") << 8 | number


RECEIVE, SEND = _ioctl(0, NOTIFICATION.size), _ioctl(1, ANSWER.size)
IS_VALID = _ioctl(2, 8, direction=1)

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The kernel's numbers of an architecture and of two of its system calls."""

    audit: int
    bind: int
    seccomp: int


CALLS = {
    "x86_64": Calls(audit=0xC000003E, bind=49, seccomp=317),
    "aarch64": Calls(audit=0xC00000B7, bind=200, seccomp=277),
}


def confine(address: str) -> None:
    """Bind this process and its descendants permanently to `address` (of this host, IPv4 or IPv6) in place of all
    addresses.

    Call it in the main thread, before any child or thread starts. OSError if the kernel has no such filter, or has one
    already.
    """
    calls = CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, f"the system call filter does not support {platform.machine()}")
    there = ipaddress.ip_address(address)
    listeners: queue.SimpleQueue[int] = queue.SimpleQueue()
    # The thread starts before the filter, so that the filter does not apply to it: it would wait for its own answer
    threading.Thread(target=_serve, args=(listeners, there), daemon=True).start()
    listeners.put(_install(calls))


def _install(calls: Calls) -> int:
    """Install the filter; returns the descriptor of its notifications."""
    program = b"".join(
        struct.pack("=HBBI", code, if_true, if_false, value)
        for code, if_true, if_false, value in (
            (LOAD, 0, 0, ARCHITECTURE_AT),
            (JUMP_IF_EQUAL, 0, 3, calls.audit),
            (LOAD, 0, 0, NUMBER_AT),
            (JUMP_IF_EQUAL, 0, 1, calls.bind),
            (RETURN, 0, 0, USER_NOTIF),
            (RETURN, 0, 0, ALLOW),
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    linux.set_no_new_privileges()
    kept = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(kept)))
    return _checked(libc.syscall(calls.seccomp, SET_MODE_FILTER, NEW_LISTENER, header))


def _serve(listeners: queue.SimpleQueue[int], address: Address) -> None:
    """Answer each bind, until no filtered process is left."""
    listener = listeners.get()
    while True:
        notification = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the calling process has ended meanwhile
                continue
            return
        answer = ANSWER.pack(*_answer(listener, notification, address))
        try:
            fcntl.ioctl(listener, SEND, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise


def _answer(listener: int, notification: bytes | bytearray, address: Address) -> tuple[int, int, int, int]:
    """The fields of `ANSWER` to a notification."""
    number, thread, _, _, _, _, descriptor, pointer, length, *_ = NOTIFICATION.unpack(notification)
    try:
        given = _memory(thread, pointer, min(length, SOCKADDR_MAX))
        if (port := wildcard_port(given)) is None:
            return number, 0, 0, CONTINUE
        with _fetched(listener, number, thread, descriptor) as theirs:
            if theirs.type != socket.SOCK_STREAM:
                return number, 0, 0, CONTINUE
            theirs.bind(confined_to_address(theirs.family, address, port))
    except OSError as error:
        return number, 0, -(error.errno or errno.EIO), 0
    return number, 0, 0, 0


def wildcard_port(given: bytes) -> int | None:
    """The port of a `struct sockaddr` for all addresses of the host; None for any other address.

    >>> wildcard_port(bytes.fromhex("0200" "1f90" "00000000" "0000000000000000"))
    8080
    >>> wildcard_port(bytes.fromhex("0200" "1f90" "7f000001" "0000000000000000"))
    """
    family = int.from_bytes(given[:2], "little" if struct.pack("=H", 1)[0] else "big")
    port = int.from_bytes(given[2:4], "big")
    if family == socket.AF_INET and len(given) >= 8:
        return port if given[4:8] == bytes(4) else None
    if family == socket.AF_INET6 and len(given) >= 24:
        whole = ipaddress.IPv6Address(given[8:24])
        is_any = whole == ipaddress.IPv6Address(0) or whole.ipv4_mapped == ipaddress.IPv4Address(0)
        return port if is_any else None
    return None


def confined_to_address(family: int, address: Address, port: int) -> tuple[str, int]:
    """The address for a socket of that family: `address`, on an IPv6 socket as a mapped IPv4 address.

    >>> confined(socket.AF_INET6, ipaddress.ip_address("192.0.2.1"), 80)
    ('::ffff:192.0.2.1', 80)
    """
    mapped = family == socket.AF_INET6 and address.version == 4
    return (f"::ffff:{address}" if mapped else str(address)), port


def _memory(thread: int, pointer: int, length: int) -> bytes:
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, length, pointer)
    finally:
        os.close(memory)


def _fetched(listener: int, number: int, thread: int, descriptor: int) -> socket.socket:
    """The caller's socket, through a descriptor in this process."""
    status = Path(f"/proc/{thread}/status").read_text()
    process = int(status.partition("Tgid:")[2].split(maxsplit=1)[0])
    pidfd = os.pidfd_open(process)
    try:
        # Check that the waiting process still has this pid
        fcntl.ioctl(listener, IS_VALID, struct.pack("=Q", number))
        libc = ctypes.CDLL(None, use_errno=True)
        return socket.socket(fileno=_checked(libc.syscall(PIDFD_GETFD, pidfd, descriptor, 0)))
    finally:
        os.close(pidfd)


def _checked(status: int) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return status


VALID_DAYS = 31
SKEW_H = 24
PROBE_S = 5.0
PROBED = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"


class Secrets:
    """The token of a cluster, and the authority that signs the certificates of its nodes."""

    def __init__(self, secrets: ClusterSecrets) -> None:
        self._secrets = secrets

    @classmethod
    def new(cls) -> Secrets:
        """New secrets for a cluster of this host only."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("proveout ray authority")
        certificate = (
            _certificate(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        token = random.token_hex(32)
        return cls(ClusterSecrets(token=token, authority=_pem(certificate), authority_key=_key_pem(key)))

    def write(self, directory: Path) -> dict[str, str]:
        """Write a node's files into its private directory, 0600, with a new certificate for this host's addresses."""
        authority = x509.load_pem_x509_certificate(self._secrets.authority.encode())
        issuer = serialization.load_pem_private_key(self._secrets.authority_key.encode(), password=None)
        assert isinstance(issuer, ec.EllipticCurvePrivateKey)  # noqa: S101 - `new` makes no other
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate(_name("proveout ray node"), authority.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName(_names_of_this_host()), critical=False)
            .sign(issuer, hashes.SHA256())
        )
        for name, text in (
            ("token", self._secrets.token),
            ("authority.pem", self._secrets.authority),
            ("node.pem", _pem(certificate)),
            ("node.key", _key_pem(key)),
        ):
            _write_private(directory / name, text)
        return self.environment(directory)

    def environment(self, directory: Path) -> dict[str, str]:
        """Environment of a process of the cluster, after `write` for this directory."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(directory / "token"),
            "RAY_USE_TLS": "1",
            "RAY_TLS_CA_CERT": str(directory / "authority.pem"),
            "RAY_TLS_SERVER_CERT": str(directory / "node.pem"),
            "RAY_TLS_SERVER_KEY": str(directory / "node.key"),
            "RAY_USAGE_STATS_ENABLED": "0",
            # The metrics endpoint needs no token; nothing here uses it
            "RAY_enable_metrics_collection": "0",
            "RAY_TMPDIR": str(directory / "t"),
            # Ray's default is 15: load workers would wait for all other work on the host
            "RAY_worker_niceness": "0",
            # A lost node is detected within 6 s, below the agents' lease of 10 s
            "RAY_health_check_initial_delay_ms": "2000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
        }


async def is_open(address: str) -> bool:
    """Whether the cluster with its GCS at `name:port` answers a call without token and certificate."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(PROBED, request_serializer=bytes, response_deserializer=bytes)
        try:
            await call(b"", timeout=PROBE_S)
        except grpc.aio.AioRpcError:
            return False
    return True


async def answers(address: str) -> bool:
    """Whether anything listens at `name:port`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _names_of_this_host() -> list[x509.GeneralName]:
    addresses = {
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }
    names = {"localhost", socket.gethostname()}
    return [
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses | {"127.0.0.1"})),
        *(x509.DNSName(name) for name in sorted(names)),
    ]


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=SKEW_H))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


# `python -m proveout.agent.load.ray_node PARENT-PID PRIVILEGES`.

MODULE = "proveout.agent.load.ray_node"
START_S = 90.0
END_S = 8.0
TERMINATE_S = 2.0
LINES_MAX = 5
REAP_MS = 1000
LOOPBACK = "127.0.0.1"
DESKTOP = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray use 127.0.0.1 as the host's own address, as on a desktop.

With that address as an option, Ray replaces it.
"""
OBJECT_STORE_BYTES = 128 << 20
"""Ray's shared memory per node: histograms pass through it, and are not kept."""


class RayNode:
    """A node that this agent has started, and its supervisor (a `tasks.Resource`)."""

    def __init__(
        self,
        supervisor: Process,
        directory: Path,
        secrets: Secrets,
        *,
        address: str,
        cpus: int,
        bound: str,
        privileges: Privileges,
    ) -> None:
        self._supervisor, self.directory, self.secrets, self.address = supervisor, directory, secrets, address
        self.cpus, self._bound, self.privileges = cpus, bound, privileges
        self.shared = False
        """Whether other hosts are in its cluster; this agent must not form such a cluster again."""

    @classmethod
    async def start(
        cls, *, cpus: int, secrets: Secrets, privileges: Privileges, head: str = "", bound: str = LOOPBACK
    ) -> RayNode:
        """Start a node: the head of a new cluster, or one that joins the `head` at `name:port`.

        `cpus` is the number of workers. The node listens at `bound` and at loopback; with the default, other nodes
        cannot join. TaskFault with Ray's messages if it does not start,
        `refused` if it listens at other addresses.
        """
        # Ray's sockets have long names below it, and the kernel allows 107 bytes: TMPDIR may be too long
        directory = Path(tempfile.mkdtemp(prefix="pvray-", dir="/tmp"))
        await asyncio.to_thread(_write_secrets, directory, secrets, privileges)
        supervisor = await asyncio.create_subprocess_exec(
            *child_process.python(MODULE, str(os.getpid()), privileges.to_argument()),
            stdin=PIPE,
            stdout=PIPE,
            cwd=child_process.DIRECTORY,
            env=privileges.environment(child_process.environment()),
        )
        node = cls(supervisor, directory, secrets, address=head, cpus=cpus, bound=bound, privileges=privileges)
        try:
            async with asyncio.timeout(START_S):
                node.address = await node._start_ray(head) or head
            await asyncio.to_thread(node._check_listeners)
        except BaseException as error:
            await asyncio.shield(node.close(keep_data=False))
            if isinstance(error, TimeoutError):
                raise TaskFault("timeout", f"a Ray node did not start within {START_S:.0f} s") from None
            raise
        return node

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that connects to the cluster."""
        return self.secrets.environment(self.directory) | (DESKTOP if self._bound == LOOPBACK else {})

    @property
    def confinement(self) -> str:
        """The address for `ray_node` in processes of the cluster; `-` if Ray listens on loopback by itself."""
        return "-" if self._bound == LOOPBACK else self._bound

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return self._supervisor.returncode is None

    async def close(self, *, keep_data: bool) -> None:
        """End the node and remove its directory; idempotent."""
        assert self._supervisor.stdin is not None  # noqa: S101 - PIPE
        self._supervisor.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._supervisor.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._supervisor.kill()
            await self._supervisor.wait()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    def listeners(self) -> dict[tuple[str, int], str]:
        """Listening sockets of its processes: (address, port) -> command."""
        found: dict[tuple[str, int], str] = {}
        for process in psutil.Process(self._supervisor.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                name = process.name()
                for one in process.net_connections("tcp"):
                    if one.status == psutil.CONN_LISTEN:
                        found[one.laddr.ip.removeprefix("::ffff:"), one.laddr.port] = name
        return found

    def _check_listeners(self) -> None:
        """TaskFault if a process of the node listens at another address."""
        own = {self._bound, LOOPBACK, "::1"}
        if astray := [f"{name} at {ip}:{port}" for (ip, port), name in self.listeners().items() if ip not in own]:
            raise TaskFault(
                "refused", f"Ray listens at other addresses than {self._bound}: {', '.join(sorted(astray))}"
            )

    async def _start_ray(self, head: str) -> str:
        assert self._supervisor.stdin is not None and self._supervisor.stdout is not None  # noqa: S101 - PIPE
        request = {
            "directory": str(self.directory),
            "argv": _argv(self.directory / "t", self.cpus, head, self._bound),
            "environment": self.environment,
            "bound": self.confinement,
        }
        self._supervisor.stdin.write(json_line(request))
        line = await self._supervisor.stdout.readline()
        answer = json.loads(line) if line else {"words": "its supervisor has ended"}
        if "address" not in answer:
            raise TaskFault(
                "fault",
                f"cannot start Ray on this host: {answer['words']}",
                way_out="check that the extra `ray` is installed, that there is enough memory, and that "
                "this is Linux 5.6 or later",
            )
        return str(answer["address"])


def _write_secrets(directory: Path, secrets: Secrets, privileges: Privileges) -> None:
    secrets.write(directory)
    privileges.give(*directory.iterdir(), directory)  # the folder last: its names are root's before


def _argv(directory: Path, cpus: int, head: str, bound: str) -> list[str]:
    argv = [*child_process.python("ray.scripts.scripts", "start")]
    if head:
        argv.append(f"--address={head}")
    else:
        argv += [
            "--head",
            "--port=0",
            f"--ray-client-server-port={_free_port()}",
        ]
        argv += ["--include-dashboard=false", "--no-monitor"]
    if bound != LOOPBACK:
        argv.append(f"--node-ip-address={bound}")
    return [
        *argv,
        f"--temp-dir={directory}",
        f"--num-cpus={cpus}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--disable-usage-stats",
    ]


def _free_port() -> int:
    """A free port for Ray's client server, which cannot be disabled or choose a port; its default may be in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- the supervisor
# ----------------------------------------------------------------------------------------------------


def confined(bound: str) -> dict[str, str]:
    """Confine later child processes to an address; `{"words": …}` if the kernel cannot do that."""
    if bound == "-":
        return {}
    try:
        confine(bound)
    except OSError as error:
        return {"words": f"the node cannot be confined to {bound}, and would listen at all addresses ({error})"}
    return {}


def start(directory: Path, argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Run `ray start`: `{"address": …}` of the head, or `{"words": …}` if it fails."""
    # Output to a file: the daemons would keep a pipe open
    log = directory / "start.log"
    with log.open("wb") as out:
        done = subprocess.run(
            argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        return {"words": "\n".join(log.read_text(errors="replace").splitlines()[-LINES_MAX:])}
    current = directory / "t" / "ray_current_cluster"
    return {"address": current.read_text().strip() if current.exists() else ""}


def reap() -> None:
    """Reap ended children of the daemons, which this process has inherited."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end(directory: Path) -> None:
    """Terminate, then kill, all descendants, and remove the directory."""
    for action in ("terminate", "kill"):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                getattr(child, action)()
        psutil.wait_procs(children, timeout=TERMINATE_S)
    shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Run the process."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    linux.become_child_subreaper()
    parent = os.pidfd_open(int(sys.argv[1]))
    Privileges.from_argument(sys.argv[2]).drop()
    request = json.loads(sys.stdin.readline() or "{}")
    directory = Path(request["directory"])
    try:
        answer = confined(request["bound"]) or start(directory, request["argv"], request["environment"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if "address" in answer:
            waiting = select.poll()
            waiting.register(0, select.POLLIN)
            waiting.register(parent, select.POLLIN)
            while not waiting.poll(REAP_MS):
                reap()
    finally:
        end(directory)


if __name__ == "__main__":
    main()
