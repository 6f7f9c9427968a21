"""The address of a host by which the other nodes of its Ray cluster reach it."""

from __future__ import annotations

import psutil
import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.load.ray_task import own_address


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


def test_a_node_has_its_advertised_address_or_that_of_its_route_to_the_others() -> None:
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
