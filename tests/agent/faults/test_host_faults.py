"""Faults of the host: room of a disk and time of CPUs, and their healing by the next agent after a kill at each step;
partition, loss and delay with real nftables, in network namespaces, between real sockets."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import psutil
import pytest
from eventually import PATIENCE_S, eventually
from tuning_bench import disturbance

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.fault_host import _PROBE, HostDisturbances
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.programs import Processes
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import Command
from proveout.dsl.operations.facts import (
    AddressQuery,
    BusyQuery,
    DisturbanceQuery,
    Fact,
    Facts,
    Output,
    OutputQuery,
    PlaceFact,
    PlaceQuery,
    QdiscQuery,
)
from proveout.dsl.operations.faults import Delay, NetworkPartition
from proveout.dsl.operations.operation import Misfit
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan.stages import Tuning
from proveout.dsl.plan.topology import Host as PlanHost
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import TuningState

pytestmark = pytest.mark.server
FAULTS = ("fill_disk", "cpu_pressure", "partition", "loss", "delay")
T = TypeVar("T")


def begin(host: Host, journal: UndoJournal, tuning: Tuning, fault: str = "f") -> TuningState:
    (state,) = Transaction(host=host, journal=journal, run="r", fault=fault).apply([tuning])
    return state


def heal(host: Host, journal: UndoJournal) -> None:
    assert [one.outcome for one in tuning_transaction.revert(host, journal, fault="f")] == ["reverted"]


@contextlib.contextmanager
def in_place(folder: Path, tuning: Tuning, *hosts: Host) -> Iterator[None]:
    journals = [UndoJournal(folder / f"undo{number}") for number in range(len(hosts))]
    for host, journal in zip(hosts, journals, strict=True):
        state = begin(host, journal, tuning)
        assert state.outcome == "applied", state
    yield
    for host, journal in zip(hosts, journals, strict=True):
        heal(host, journal)
        journal.close()


# ---- disks and CPUs --------------------------------------------------------------------------------------------------

ROOM = 8 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounts take root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def host_of(
    folder: Path, *, left_bytes: int = 0, listed: bool = True, disturbed: HostDisturbances | None = None
) -> Host:
    paths = (str(folder),) if listed else ()
    policy = Policy(source="/etc/proveout/policy.yaml", faults=FAULTS, paths=paths, disk_left_bytes=left_bytes)
    return Host(policy=policy, scratch=folder, disturbances=disturbed or HostDisturbances(host="h"))


def free(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def full(folder: Path, **size: str) -> Tuning:
    return disturbance("fill_disk", folder=str(folder), **size)


def test_a_disk_is_filled_down_to_a_rest_and_emptied(disk: Path, tmp_path: Path) -> None:
    before = free(disk)
    with in_place(tmp_path, full(disk, leave="64KiB"), host_of(disk)):
        assert free(disk) == 64 << 10
        with pytest.raises(OSError, match="No space left on device"):
            (disk / "other").write_bytes(b"x" * (128 << 10))
        (disk / "other").unlink()
    assert (free(disk), list(disk.iterdir())) == (before, [])
    with in_place(tmp_path, full(disk, up_to="3MiB"), host_of(disk)):
        assert before - free(disk) == 3 << 20
    assert free(disk) == before


def test_what_cannot_be_taken_is_refused(disk: Path, tmp_path: Path) -> None:
    for host, size, says in (
        (host_of(disk, left_bytes=1 << 20), {"leave": "64KiB"}, "only 65536 bytes would be left of the file system"),
        (host_of(disk), {"up_to": "9MiB"}, "has 8 MiB free, less than `up_to: 9MiB`"),
        (host_of(disk), {"leave": "1GiB"}, "bytes free already"),
        (host_of(disk, listed=False), {"leave": "1MiB"}, f"the path {disk}/.proveout-fill-"),
    ):
        state = begin(host, UndoJournal(tmp_path / "undo"), full(disk, **size))
        assert (state.outcome, says in state.lines[0]) == ("refused", True), state
    link = tmp_path / "link"
    link.symlink_to(disk)
    (disk / "folder").mkdir()
    for folder in (link, link / "folder"):
        state = begin(host_of(link), UndoJournal(tmp_path / "undo"), full(folder, up_to="1MiB"))
        assert (state.outcome, "'link' in" in state.lines[0]) == ("refused", True), state
    assert [one.name for one in disk.rglob("*")] == ["folder"]


def test_cpus_are_busy_and_idle_again(tmp_path: Path) -> None:
    disturbed = HostDisturbances(host="h")
    host, journal = host_of(tmp_path, disturbed=disturbed), UndoJournal(tmp_path / "undo")
    assert begin(host, journal, disturbance("cpu_pressure", share="50%", cpus=1)).outcome == "applied"
    (busy,) = (found for found in psutil.Process().children() if "sched_setaffinity" in " ".join(found.cmdline()))
    eventually(lambda: busy.cpu_affinity() == [min(os.sched_getaffinity(0))], "it has bound itself to a CPU")
    eventually(lambda: busy.cpu_times().user > 0.0, "it is busy")
    refused = begin(host, journal, disturbance("cpu_pressure", share="60%", cpus=1), fault="g")
    assert refused.lines == ("another fault keeps CPUs of this host busy",)
    heal(host, journal)
    assert not busy.is_running()
    assert getattr(disturbed.answer(BusyQuery()), "busy", None) == ()


def test_busy_processes_end_with_their_agent(tmp_path: Path) -> None:
    code = (
        "import os, signal; from proveout.agent.tuning.fault_host import HostDisturbances as Of\n"
        "from proveout.dsl.operations.change import BusyCpus\n"
        "of = Of(); of.make(BusyCpus(cpus=(min(os.sched_getaffinity(0)),), share=0.1))\n"
        "print(next(iter(of._busy.values())).pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    eventually(lambda: not psutil.pid_exists(int(done.stdout)), "it has ended")


class KilledError(BaseException):
    """The agent is killed here."""


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("kind", ["fill_disk", "cpu_pressure"])
def test_the_next_agent_heals_after_a_kill_at_each_step(
    kind: str, step: int, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed agent undoes nothing: its processes are gone, its files are not."""
    before, steps = free(disk), iter(range(100))

    def watch(_step: str) -> None:
        if next(steps) == step:
            raise KilledError

    wanted = full(disk, leave="1MiB") if kind == "fill_disk" else disturbance("cpu_pressure", cpus=1, share="10%")
    killed, journal = HostDisturbances(host="h"), UndoJournal(tmp_path / "undo")
    host = host_of(disk, disturbed=killed)
    transaction = Transaction(host=host, journal=journal, run="r", fault="f", watch=watch, notice=watch)
    with monkeypatch.context() as patch, contextlib.suppress(KilledError):
        patch.setattr(tuning_transaction, "revert", lambda *_, **__: ())
        transaction.apply([wanted])
    killed._release()
    journal.close()
    found = UndoJournal(tmp_path / "undo")
    assert {state.outcome for state in tuning_transaction.end(host_of(disk), found)} <= {"reverted"}
    assert (free(disk), list(disk.iterdir()), found.outstanding()) == (before, [], ())
    found.close()


# ---- networks --------------------------------------------------------------------------------------------------------

in_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft", "tc"))), reason="needs root, ip, nft and tc"
)
A, B = "10.231.0.1", "10.231.0.2"
DATABASE, AGENT = 5432, 7443
CLONE_NEWNET = 0x40000000
ANSWER_S = 0.3
"""The wait for a packet that must not come."""


def ran(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


class InNamespace(Processes):
    """Programs in a network namespace."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        return super().run(("ip", "netns", "exec", self._name, *argv), within_s)


class Placed(HostDisturbances):
    """An agent in a network namespace."""

    addresses: tuple[str, ...] = ()

    def answer(self, query: DisturbanceQuery) -> Fact:
        if isinstance(query, PlaceQuery):
            return PlaceFact(host=self.host, port=AGENT, addresses=(*self.addresses, "127.0.0.1"))
        return super().answer(query)


@dataclass(frozen=True)
class Place:
    """A host in a namespace, and a thread in it, whose sockets are the namespace's."""

    name: str
    namespace: str
    address: str
    thread: concurrent.futures.ThreadPoolExecutor

    def do(self, work: Callable[[], T]) -> T:
        return self.thread.submit(work).result(timeout=2 * PATIENCE_S)

    def host(self, folder: Path) -> Host:
        placed = Placed(host=self.name)
        placed.addresses = (self.address,)
        host = host_of(folder, disturbed=placed)
        host.tools = InNamespace(self.namespace)
        return host

    def tables(self) -> str:
        return ran("ip", "netns", "exec", self.namespace, "nft", "list", "tables")

    def listener(self, address: str, port: int) -> socket.socket:
        return self.do(lambda: socket.create_server((address, port)))

    def reaches(self, address: str, port: int, within_s: float = PATIENCE_S) -> bool:
        def connect() -> bool:
            with contextlib.suppress(TimeoutError), socket.create_connection((address, port), timeout=within_s):
                return True
            return False

        return self.do(connect)

    def is_cut_from(self, address: str, port: int) -> bool:
        return not self.reaches(address, port, ANSWER_S)


@pytest.fixture
def places() -> Iterator[tuple[Place, Place]]:
    """Two hosts, `a` and `b`, with a cable between them."""
    libc = ctypes.CDLL(None, use_errno=True)
    suffix = secrets.token_hex(3)
    names = [f"pv-{suffix}-{side}" for side in "ab"]
    with contextlib.ExitStack() as stack:
        found = []
        for name in names:
            ran("ip", "netns", "add", name)
            stack.callback(ran, "ip", "netns", "delete", name)
        ran("ip", "link", "add", "eth1", "netns", names[0], "type", "veth", "peer", "name", "eth1", "netns", names[1])
        for side, name, address in zip("ab", names, (A, B), strict=True):
            ran("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth1")
            ran("ip", "-n", name, "link", "set", "lo", "up")
            ran("ip", "-n", name, "link", "set", "eth1", "up")
            thread = stack.enter_context(concurrent.futures.ThreadPoolExecutor(max_workers=1))
            with Path("/run/netns", name).open("rb") as namespace:
                assert thread.submit(libc.setns, namespace.fileno(), CLONE_NEWNET).result() == 0
            found.append(Place(name=side, namespace=name, address=address, thread=thread))
        yield found[0], found[1]


def cut(key: str, direction: Literal["both", "to", "from"] = "both", **more: object) -> Tuning:
    ends = [
        {"hosts": ["a"], "addresses": [A], "agents": [], "loopback": []},
        {"hosts": ["b"], "addresses": [B], "agents": [AGENT], "loopback": []},
    ]
    return disturbance(key, between=[["a"], ["b"]], direction=direction, ends=ends, **more)


@in_namespaces
@pytest.mark.parametrize("where", ["a", "b"])
def test_a_partition_cuts_two_hosts_but_not_agents_nor_loopbacks(
    where: str, places: tuple[Place, Place], tmp_path: Path
) -> None:
    a, b = places
    with b.listener(B, DATABASE), b.listener(B, AGENT), b.listener("127.0.0.1", DATABASE):
        assert a.reaches(B, DATABASE)
        with in_place(tmp_path, cut("partition"), (a if where == "a" else b).host(tmp_path)):
            assert a.is_cut_from(B, DATABASE)
            assert a.reaches(B, AGENT)
            assert b.reaches("127.0.0.1", DATABASE)
            assert b.reaches(B, DATABASE)
        assert a.reaches(B, DATABASE)
    assert (a.tables(), b.tables()) == ("", "")


@in_namespaces
@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_partition_of_one_direction_lets_the_other_pass(
    direction: Literal["to", "from"], places: tuple[Place, Place], tmp_path: Path
) -> None:
    a, b = places
    with in_place(tmp_path, cut("partition", direction), a.host(tmp_path), b.host(tmp_path)):
        there, back = datagrams(a, b, 1), datagrams(b, a, 1)
    assert (there, back) == ((0, 1) if direction == "to" else (1, 0))


@in_namespaces
@pytest.mark.parametrize("direction", ["both", "to"])
def test_a_loss_drops_a_share_of_the_packets(
    direction: Literal["both", "to"], places: tuple[Place, Place], tmp_path: Path
) -> None:
    a, b = places
    assert datagrams(a, b, 400) == 400
    with in_place(tmp_path, cut("loss", direction, share="50%"), a.host(tmp_path), b.host(tmp_path)):
        came = datagrams(a, b, 400)
    assert 130 < came < 270, "seven standard deviations; of two draws for each packet 100 come"
    assert (a.tables(), b.tables()) == ("", "")


@in_namespaces
def test_systems_on_one_machine_are_cut_at_their_ports(places: tuple[Place, Place], tmp_path: Path) -> None:
    a, _ = places
    hosts = [PlanHost(name=name, roles=(name,), address="local") for name in ("a", "server")]
    dsn = f"host=127.0.0.1 port={DATABASE} dbname=x"
    system = System(name="db", engine="postgres", host="server", dsn=dsn)
    made = NetworkPartition(between=[["a"], ["server"]]).placed(([hosts[0]], [hosts[1]]), {"db": system})
    assert not isinstance(made, Misfit)
    with a.listener("127.0.0.1", DATABASE), a.listener("127.0.0.1", DATABASE + 1):
        with in_place(tmp_path, disturbance("partition", **made.model_dump()), a.host(tmp_path)):
            assert a.is_cut_from("127.0.0.1", DATABASE)
            assert a.reaches("127.0.0.1", DATABASE + 1)
        assert a.reaches("127.0.0.1", DATABASE)


def test_a_packet_of_a_loss_has_its_draw_as_it_leaves_from_an_address_that_is_not_in_the_plan() -> None:
    """As of a network for the data beside that of the agents: the receiver does not know it."""
    place, absent = (
        PlaceFact(host="a", port=0, addresses=(A, "10.99.0.1")),
        Output(code=1, text="No such file or directory"),
    )
    answers = {PlaceQuery: lambda _: place, AddressQuery: lambda of: (of.name,), OutputQuery: lambda _: absent}
    operation = operation_of(cut("loss", "to", share="2%"))
    (made,) = operation.changes(Facts(read=lambda query: answers[type(query)](query))).changes
    assert isinstance(made, Command)
    accepted, drawn = (rule for rule in made.argv[1].split("; ") if "daddr" in rule)
    assert accepted.endswith(f" output ip daddr {{ {B} }} ip saddr {{ {A} }} accept")
    assert drawn.endswith(f" output ip daddr {{ {B} }} numgen random mod 10000 < 200 drop")


def test_what_arrives_is_dropped_before_it_is_forwarded_to_a_container() -> None:
    """Such packets pass no chain of the hook input."""
    operation = operation_of(cut("partition"))
    place = PlaceFact(host="b", port=AGENT, addresses=(B,))
    absent = Output(code=1, text="Error: No such file or directory")
    addresses = {A: (A,)}  # its own names are not looked up, which may take long
    answers = {PlaceQuery: lambda _: place, AddressQuery: lambda of: addresses[of.name], OutputQuery: lambda _: absent}
    (made,) = operation.changes(Facts(read=lambda query: answers[type(query)](query))).changes
    assert isinstance(made, Command)
    arriving = next(rule for rule in made.argv[1].split("; ") if "saddr" in rule)
    assert arriving.endswith(f" prerouting ip saddr {{ {A} }} drop")


def datagrams(one: Place, other: Place, count: int) -> int:
    """The number of datagrams, of `count`, that arrive."""

    def receiver() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind((other.address, 0))
        made.settimeout(ANSWER_S)
        return made

    def send(port: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(count):
                with contextlib.suppress(PermissionError):  # how nftables drops what a host sends itself
                    sender.sendto(b"x", (other.address, port))

    def received(of: socket.socket) -> int:
        came = 0
        with contextlib.suppress(TimeoutError):
            while came < count:
                of.recv(1)
                came += 1
        return came

    with other.do(receiver) as listening:
        one.do(lambda: send(listening.getsockname()[1]))
        return other.do(lambda: received(listening))


def delayed(shown: str, netem: str = "yes", code: int = 0) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(refusals, argvs) of a delay on an interface with these disciplines."""
    operation = Delay(interfaces=["eth1"], time="20ms", jitter="1.5ms")
    query = OutputQuery(("tc", "qdisc", "show", "dev", "eth1"), fault="delay")
    facts = Facts({QdiscQuery("netem"): netem, query: Output(code=code, text=shown)})
    step = operation.changes(facts)
    return step.refusals, [change.argv for change in step.changes if hasattr(change, "argv")]


def test_a_delay_is_for_interfaces_with_the_discipline_of_the_kernel() -> None:
    netem = ("netem", "limit", "216000", "delay", "20000us", "1500us")
    argv = ("tc", "qdisc", "add", "dev", "eth1", "root", "handle", "5050:", *netem)
    assert delayed("qdisc noqueue 0: root refcnt 2\n") == ((), [argv])
    assert delayed("qdisc netem 5050: root refcnt 9 limit 1000 delay 20ms\n") == ((), [])
    own = "eth1 has a queueing discipline of its own already: qdisc htb 1:"
    assert delayed("qdisc htb 1: root refcnt 2 r2q 10\n")[0] == (own,)
    assert delayed("Cannot find device", code=1)[0] == ("this host has no network interface eth1",)
    assert "cannot delay packets by netem: Error: x" in delayed("qdisc noqueue 0: root\n", netem="Error: x")[0][0]


@in_namespaces
def test_a_fault_of_the_network_is_refused_without_the_right_to_undo_it() -> None:
    """As in a container without CAP_NET_ADMIN: what failed to begin would be left as not healed."""
    denied = "netlink: Error: cache initialization failed: Operation not permitted"
    operation = NetworkPartition(between=[["a"], ["b"]])
    query = OutputQuery(("nft", "list", "table", "inet", operation.table), fault="partition")
    step = operation.changes(Facts({query: Output(code=1, text=f"\n{denied}\n")}))
    assert step.refusals == (f"nft cannot be used on this host: {denied}",)
    without = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    probe = [*without, sys.executable, "-I", "-S", "-c", _PROBE, "netem"]
    assert "CAP_NET_ADMIN" in subprocess.run(probe, capture_output=True, text=True, check=False).stderr


def test_a_look_for_netem_that_cannot_begin_says_nothing_about_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*_: object, **_named: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", no_process)
    with pytest.raises(TaskFault, match=r"cannot start .*: Resource temporarily unavailable"):
        HostDisturbances().answer(QdiscQuery("netem"))


@in_namespaces
def test_a_delay_is_in_place_or_refused_where_the_kernel_has_no_netem(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    a, _ = places
    host, journal = a.host(tmp_path), UndoJournal(tmp_path / "undo")
    state = begin(host, journal, disturbance("delay", interfaces="eth1", time="20ms"))
    if HostDisturbances().answer(QdiscQuery("netem")) == "yes":
        assert state.outcome == "applied"
        heal(host, journal)
    else:
        assert state.outcome == "refused"
        assert "this host cannot delay packets by netem" in state.lines[0]
    assert "netem" not in ran("ip", "netns", "exec", a.namespace, "tc", "qdisc", "show", "dev", "eth1")
