"""The cost of a transaction from counters that grow by known amounts, on every kind of topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from records import ladder_stage, load_result, observations, plan_of, samples

from proveout.coordinator.measure.captures import Recording, Window
from proveout.coordinator.measure.transaction_cost import Cost, transaction_cost
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Ladder
from proveout.dsl.plan.topology import Capture, Host, System

S = 1_000_000_000
WINDOW = Window(start_ns=0, end_ns=10 * S)
LOAD = load_result(ended_in_window=5_000, client_cpu_s=0.5)
"""500 transactions a second, for 100 µs of client CPU each."""

GROWTH = {
    "cpu.user_s_total": 0.75,
    "cpu.system_s_total": 0.25,
    "cpu.idle_s_total": 3.0,
    "cpu.context_switches_total": 5_000.0,
    "disk.reads_total": 50.0,
    "disk.read_bytes_total": 409_600.0,
    "disk.write_bytes_total": 819_200.0,
    "network.received_bytes_total": 100_000.0,
    "network.sent_bytes_total": 400_000.0,
    "ours.cpu_s_total": 0.6,
    "ours.servers_cpu_s_total": 0.4,
    "ours.servers_read_bytes_total": 4_096.0,
    "ours.servers_written_bytes_total": 8_192.0,
    "ours.servers_context_switches_total": 1_000.0,
}
"""Of a counter, per second."""
WAITS = {"wal.bytes_total": 128_000.0, "io.reads_total": 25.0}


def recording(growth: Mapping[str, float], **gauges: float) -> Recording:
    levels = {f"network.{name}": value for name, value in gauges.items()}
    labelled = {f"{name}[vda]" if name.startswith("disk.") else name: each for name, each in growth.items()}
    at = (0, 5, 10)
    return Recording(samples({s: {name: 100.0 + each * s for name, each in labelled.items()} | levels for s in at}))


def plan(*, address: str = "db:7700", engine: str = "postgres", **system: Any) -> Plan:
    how = system or {"provision": "embedded"}
    ladder = ladder_stage("x", workload="hlr", target="cache", clients=("client",), captures=("host", "waits"))
    return plan_of(
        ladder,
        hosts=(
            Host(name="db", roles=("server",), address=address, price_per_hour=3.6, currency="EUR"),
            Host(name="client", roles=("client",), address="local" if address == "local" else "client:7700"),
        ),
        systems=(System(name="cache", engine=engine, host="db", **how),),
        workloads=(Workload(name="hlr", kind="hlr", parameters=()),),
        captures=(
            Capture(name="host", kind="os", every_s=1.0, hosts=("db", "client")),
            Capture(name="waits", kind="waits", every_s=1.0, system="cache"),
        ),
    )


BOTH = {("host", "db"): recording(GROWTH), ("host", "client"): recording(GROWTH), ("waits", "db"): recording(WAITS)}


def cost(
    of: Plan,
    recordings: Mapping[tuple[str, str], Recording] = BOTH,
    boots: Mapping[str, str] | None = None,
    loads: int = 1,
) -> Cost:
    stage = of.stages[0]
    assert isinstance(stage, Ladder)
    seen = observations(stage, plan=of, recordings=recordings, boots=boots or {}, window=WINDOW)
    return transaction_cost(seen, stage, [LOAD] * loads)


def test_a_server_with_a_machine_of_its_own_costs_all_of_it() -> None:
    found = cost(plan())
    assert found.metrics == pytest.approx(
        {
            "server_cpu_us": 2_000.0,
            "client_cpu_us": 100.0,
            "reads": 0.1,
            "read_bytes": 819.2,
            "written_bytes": 1_638.4,
            "wal_bytes": 256.0,
            "network_bytes": 1_000.0,
            "context_switches": 10.0,
            "price_per_million": 2.0,  # 3.6 EUR an hour are 0.001 EUR a second, for 500 transactions
        }
    )
    assert found.sources["server_cpu_us"] == "all CPU of host db"
    assert found.sources["price_per_million"] == "EUR, by the price of db"


def test_on_one_machine_with_the_client_only_the_servers_processes_count() -> None:
    found = cost(plan(address="local"))
    assert found.metrics["server_cpu_us"] == pytest.approx(800.0)
    assert found.metrics["read_bytes"] == pytest.approx(8.192)
    assert found.metrics["written_bytes"] == pytest.approx(16.384)
    assert found.metrics["context_switches"] == pytest.approx(2.0)
    assert found.metrics["reads"] == pytest.approx(0.05)
    assert found.sources["server_cpu_us"] == "the processes of the servers on db"
    assert found.sources["reads"] == "reads that the database counts, also from the page cache: cache"


@pytest.mark.parametrize("same", [True, False])
def test_the_network_is_that_between_namespaces(same: bool) -> None:
    recordings = {
        ("host", "db"): recording(GROWTH, namespace=7.0),
        ("host", "client"): recording(GROWTH, namespace=7.0 if same else 8.0),
    }
    found = cost(plan(), recordings, {"db": "boot", "client": "boot"})
    assert found.metrics.get("network_bytes") == (None if same else pytest.approx(1_000.0))
    assert ("reach each other by lo" in found.sources["network_bytes"]) == same
    assert found.sources["server_cpu_us"] == "the processes of the servers on db", "one kernel, one boot id"


def test_without_captures_nothing_is_zero() -> None:
    found = cost(plan(), {})
    assert found.metrics.keys() == {"client_cpu_us", "price_per_million"}
    assert found.sources["server_cpu_us"] == "not captured: no os capture of host db"
    assert found.sources["wal_bytes"] == "not captured: no waits capture of system cache"


def test_a_server_with_a_dsn_on_the_clients_machine_is_the_host_without_proveout() -> None:
    found = cost(plan(address="local", dsn="host=/tmp dbname=x"))
    assert found.metrics["server_cpu_us"] == pytest.approx((1.0 - 0.6) / 500 * 1e6), "local agents are one process tree"
    assert "without proveout's own" in found.sources["server_cpu_us"]
    assert "written_bytes" not in found.metrics and "context_switches" not in found.metrics


def test_a_database_in_files_has_no_server() -> None:
    found = cost(plan(address="local", engine="sqlite"))
    assert found.metrics.keys() == {"client_cpu_us", "price_per_million"}
    assert "runs in the processes of the load" in found.sources["server_cpu_us"]


def test_no_transaction_has_no_cost() -> None:
    assert not cost(plan(), loads=0).metrics
