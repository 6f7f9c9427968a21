"""A Ray node that the agent starts, with its secrets and a supervisor process.

`python -m proveout.agent.load.ray_node PARENT-PID PRIVILEGES FOLDER`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import secrets as random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc
import grpc.aio
import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.helper import Child, spawn
from proveout.agent.sandbox.privileges import Privileges
from proveout.core import child_process, linux
from proveout.core.json_data import json_line
from proveout.proto.wire.tasks import ClusterSecrets

VALID_DAYS = 31
SKEW_H = 24
PROBE_S = 5.0
PROBED = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"


def write_credentials(directory: Path, secrets: ClusterSecrets | None, privileges: Privileges) -> None:
    """Write a node's token, authority, certificate and key into its private directory, 0600, and give all to its user.

    The certificate is new, and is valid for all addresses of this host. Without `secrets`, for a cluster of this host
    only, the token is new too, and the certificate is its own authority.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proveout ray node")])
    issuer_key = key
    if secrets is not None:
        issuer = x509.load_pem_x509_certificate(secrets.authority.encode()).subject
        loaded = serialization.load_pem_private_key(secrets.authority_key.encode(), password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)  # noqa: S101 - the coordinator makes no other
        issuer_key = loaded
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=SKEW_H))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(_names_of_this_host()), critical=False)
        .sign(issuer_key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for name, text in (
        ("token", secrets.token if secrets else random.token_hex(32)),
        ("authority.pem", secrets.authority if secrets else certificate),
        ("node.pem", certificate),
        ("node.key", key_pem.decode()),
    ):
        (directory / name).touch(0o600)
        (directory / name).write_text(text)
    privileges.give(*directory.iterdir(), directory)  # the folder last: its names are root's before


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


MODULE = "proveout.agent.load.ray_node"
START_S = 90.0
END_S = 8.0
TERMINATE_S = 2.0
LINES_MAX = 5
REAP_MS = 1000
LOOPBACK = "127.0.0.1"
DESKTOP = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray use 127.0.0.1 as the host's own address, as on a desktop, and listen there only.

With that address as an option, Ray replaces it. With any other, Ray 2.60 listens at all addresses, for any setting.
"""
OBJECT_STORE_BYTES = 128 << 20
"""Ray's shared memory per node: histograms pass through it, and are not kept."""


class RayNode(Child):
    """The supervisor of a node that this agent has started (a `tasks.Resource`)."""

    def __init__(
        self,
        supervisor: Process,
        directory: Path,
        *,
        address: str,
        cpus: int,
        at: str,
        privileges: Privileges,
    ) -> None:
        super().__init__(supervisor)
        self.directory, self.address = directory, address
        self.cpus, self._at, self.privileges = cpus, at, privileges
        self.shared = False
        """Whether other hosts are in its cluster; this agent must not form such a cluster again."""

    @classmethod
    async def start(
        cls, *, cpus: int, secrets: ClusterSecrets | None, privileges: Privileges, head: str = "", at: str = LOOPBACK
    ) -> RayNode:
        """Start a node: the head of a new cluster, or one that joins the `head` at `name:port`.

        `cpus` is the number of workers. Other nodes reach it at the address `at`, and Ray listens at all addresses of
        the host; with the default it listens at loopback only, and other nodes cannot join. TaskFault with Ray's
        messages if it does not start, `refused` if with the default it listens at another address.
        """
        # Ray's sockets have long names below it, and the kernel allows 107 bytes: TMPDIR may be too long
        directory = Path(tempfile.mkdtemp(prefix="pvray-", dir="/tmp"))
        try:
            await asyncio.to_thread(write_credentials, directory, secrets, privileges)
            supervisor = await spawn(MODULE, privileges, str(directory))
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        node = cls(supervisor, directory, address=head, cpus=cpus, at=at, privileges=privileges)
        try:
            async with asyncio.timeout(START_S):
                node.address = await node._start_ray(head) or head
            if at == LOOPBACK:
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
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.directory / "token"),
            "RAY_USE_TLS": "1",
            "RAY_TLS_CA_CERT": str(self.directory / "authority.pem"),
            "RAY_TLS_SERVER_CERT": str(self.directory / "node.pem"),
            "RAY_TLS_SERVER_KEY": str(self.directory / "node.key"),
            "RAY_USAGE_STATS_ENABLED": "0",
            # The metrics endpoint needs no token; nothing here uses it
            "RAY_enable_metrics_collection": "0",
            "RAY_TMPDIR": str(self.directory / "t"),
            # Ray's default is 15: load workers would wait for all other work on the host
            "RAY_worker_niceness": "0",
            # A lost node is detected within 6 s, below the agents' lease of 10 s
            "RAY_health_check_initial_delay_ms": "2000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
            **(DESKTOP if self._at == LOOPBACK else {}),
        }

    def suits(self, workers: int, privileges: Privileges) -> bool:
        """Whether it runs, and can run a load of so many workers with these privileges."""
        return self.alive and (self.shared or (self.cpus >= workers and self.privileges == privileges))

    async def close(self, *, keep_data: bool) -> None:
        """End the node and remove its directory; idempotent."""
        await self.close_pipe(END_S)
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    def _check_listeners(self) -> None:
        """TaskFault if a process of the node listens at another address than loopback's."""
        astray = []
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                name = process.name()
                astray += [
                    f"{name} at {one.laddr.ip}:{one.laddr.port}"
                    for one in process.net_connections("tcp")
                    if one.status == psutil.CONN_LISTEN
                    and one.laddr.ip.removeprefix("::ffff:") not in (LOOPBACK, "::1")
                ]
        if astray:
            raise TaskFault("refused", f"Ray listens at other addresses than {LOOPBACK}: {', '.join(sorted(astray))}")

    async def _start_ray(self, head: str) -> str:
        request = {"argv": _argv(self.directory / "t", self.cpus, head, self._at), "environment": self.environment}
        self._stdin.write(json_line(request))
        line = await self._stdout.readline()
        answer = json.loads(line) if line else {"words": f"its supervisor {await self.ending()}"}
        if "address" not in answer:
            raise TaskFault(
                "fault",
                f"cannot start Ray on this host: {answer['words']}",
                way_out="check that the extra `ray` is installed, and that there is enough memory",
            )
        return str(answer["address"])


def _argv(directory: Path, cpus: int, head: str, at: str) -> list[str]:
    argv = [*child_process.python("ray.scripts.scripts", "start")]
    if head:
        argv.append(f"--address={head}")
    else:
        argv += ["--head", "--port=0", f"--ray-client-server-port={_free_port()}"]
        argv += ["--include-dashboard=false", "--no-monitor"]
    if at != LOOPBACK:
        argv.append(f"--node-ip-address={at}")
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


# ---- the supervisor --------------------------------------------------------------------------------------------------


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
    directory = Path(sys.argv[3])
    request = json.loads(sys.stdin.readline() or "{}")
    try:
        answer = start(directory, request["argv"], request["environment"])
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
