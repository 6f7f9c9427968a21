"""Sockets of a process that is restricted to one address."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.load.ray_task import own_address

HELD = "127.0.0.7"

CHILD = """
import json, socket, sys, threading
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
taken = socket.socket(); taken.bind(("127.0.0.7", 0))

def at(family, kind, address, v6only=0):
    one = socket.socket(family, kind)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
    try:
        one.bind(address)
    except OSError as error:
        return error.errno
    if kind == STREAM:
        one.listen()
    return one.getsockname()[0]

def tried():
    return {
        "every": at(socket.AF_INET, STREAM, ("0.0.0.0", 0)),
        "every, IPv6": at(socket.AF_INET6, STREAM, ("::", 0)),
        "every, mapped": at(socket.AF_INET6, STREAM, ("::ffff:0.0.0.0", 0)),
        "IPv6 only": at(socket.AF_INET6, STREAM, ("::", 0), v6only=1),
        "one": at(socket.AF_INET, STREAM, ("127.0.0.9", 0)),
        "datagrams": at(socket.AF_INET, DATAGRAM, ("0.0.0.0", 0)),
        "taken": at(socket.AF_INET, STREAM, ("0.0.0.0", taken.getsockname()[1])),
        "not of this host": at(socket.AF_INET, STREAM, ("192.0.2.1", 0)),
    }

found = []
thread = threading.Thread(target=lambda: found.append(tried()))
thread.start()
thread.join()
print(json.dumps(found[0]))
"""

GUARD = """
import subprocess, sys
from proveout.agent.load.ray_node import confine
confine(sys.argv[1])
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[2]]).returncode)
"""


def test_children_of_a_restricted_process_bind_to_its_address_instead_of_all() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GUARD, HELD, CHILD], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "every": HELD,
        "every, IPv6": f"::ffff:{HELD}",
        "every, mapped": f"::ffff:{HELD}",
        "IPv6 only": 22,  # EINVAL: no IPv4 address fits
        "one": "127.0.0.9",
        "datagrams": "0.0.0.0",
        "taken": 98,  # EADDRINUSE
        "not of this host": 99,  # EADDRNOTAVAIL
    }


def outer() -> str:
    """An address of this host that is not loopback."""
    found = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == 2 and not entry.address.startswith("127.")
    ]
    if not found:
        pytest.skip("this host has no address but loopback")
    return found[0]


def test_a_node_binds_to_its_advertised_address_or_to_its_route_to_the_others() -> None:
    address = outer()
    assert own_address(address, "") == address
    assert own_address("127.0.0.1", "") == "127.0.0.1"
    assert own_address("", f"{address}:6379") == address
    assert own_address("192.0.2.1", f"{address}:1") == address  # an address of another host is ignored


@pytest.mark.parametrize(("name", "towards"), [("", ""), ("192.0.2.1", ""), ("", "127.0.0.1:6379")])
def test_a_node_without_an_address_is_refused(name: str, towards: str) -> None:
    with pytest.raises(TaskFault, match="cannot find the address of this host") as raised:
        own_address(name, towards)
    assert raised.value.code == "refused"
