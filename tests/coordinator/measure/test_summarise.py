"""Raw results with known truth go in; the numbers that come out are computed here by hand or by another library."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from records import ladder_stage, load_result, observations, plan_of, samples, summary

from proveout.coordinator.measure.captures import Recording, Window
from proveout.coordinator.measure.load_merge import whole_seconds
from proveout.coordinator.measure.summarise import measure_window, nopm, order_metrics, summarise, tpm
from proveout.coordinator.results.results import rung_tree
from proveout.dsl import metrics as vocabulary
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Load, Windows
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.proto.events import IterationFinished, ValidityFinding
from proveout.proto.wire import results as wire
from proveout.proto.wire.histogram import bin_ns

S = 1_000_000_000
MS = 1_000_000
T0 = 1_000 * S
RAMP_S, MEASURE_S = 2, 5
OFFSETS = {"db1": 0, "client1": 7 * S, "client2": -3 * S}
CLOCKS = {host: (offset, 100_000) for host, offset in OFFSETS.items()}
CLIENTS = ("client1", "client2")
SLOW = [20 * MS] * 10 + [2 * MS] * 90
QUICK = [1 * MS] * 400


def plan(**changes: Any) -> Plan:
    ladder = ladder_stage(
        "baseline",
        **{"workload": "hlr", "target": "cache", "clients": CLIENTS, "captures": ("host", "waits", "lag")} | changes,
        windows=Windows(ramp_up_s=RAMP_S, measure_s=MEASURE_S, ramp_down_s=1),
    )
    query = (("transactions", (("total", (("statements", (("q", "SELECT 1"),)),)),)),)
    return plan_of(
        ladder,
        hosts=tuple(Host(name=name, roles=("client",), address=f"{name}:7700") for name in OFFSETS),
        systems=(
            System(name="cache", engine="postgres", host="db1", provision="embedded", propagates_to="backend"),
            System(name="backend", engine="postgres", host="db1", provision="embedded"),
        ),
        workloads=(
            Workload(name="hlr", kind="hlr", parameters=(("population", 1000),)),
            Workload(name="report", kind="sql", parameters=query),
        ),
        captures=(
            Capture(name="host", kind="os", every_s=1.0, hosts=tuple(OFFSETS)),
            Capture(name="waits", kind="waits", every_s=1.0, system="cache"),
            Capture(name="lag", kind="lag", every_s=0.5, system="cache"),
        ),
    )


def transaction(
    name: str, ns: Sequence[int], *, logical: int = 0, errors: tuple[tuple[str, int], ...] = ()
) -> wire.TransactionLoad:
    counts = wire.TransactionCounts(name=name, ok=len(ns) - logical, logical_failures=logical, errors=errors, retried=1)
    times, late = bin_ns(ns), bin_ns([1000] * len(ns))
    return wire.TransactionLoad(counts=counts, response=times, service=times, schedule=late, ended=len(ns))


def load(host: str, *transactions: wire.TransactionLoad, **changes: Any) -> wire.LoadResult:
    start = T0 + RAMP_S * S + OFFSETS[host]
    fields: dict[str, Any] = {
        "transactions": transactions,
        "ended_in_window": sum(t.counts.ok + t.counts.logical_failures for t in transactions),
        "measure_start_ns": start,
        "measure_end_ns": start + MEASURE_S * S,
        "client_cpu_fraction": 0.4,
        "client_cpu_s": 2.0,
        "start_skew_ns": 2 * MS,
        "seconds_produced": MEASURE_S,
        "ceiling_shared_per_s": 10_000.0,
        "ceiling_apart_per_s": 20_000.0,
        "handling": (wire.Handling(late=bin_ns([1000] * 100), answers=500, runqueue_s=0.1, runqueue_fraction=0.05),),
        "sessions": wire.SessionResult(
            connect=bin_ns([2 * MS, 4 * MS]), attempts=3, failed=1, pool_wait=bin_ns([0, 0, 0,
                 8 * MS]), waited=1, rerun=2
        ),
    }  # fmt: skip
    return load_result(**(fields | changes))


def second(host: str, number: int, *transactions: wire.TransactionLoad) -> wire.LoadSecond:
    start = T0 + (RAMP_S + number) * S + OFFSETS[host]
    return wire.LoadSecond(
        second=RAMP_S + number, window="measure", start_ns=start, duration_s=1.0, transactions=transactions
    )


def os_samples(host: str, *, busy: float, cores: int = 4) -> list[wire.CaptureSample]:
    """Idle in the ramps, `busy` of all cores in the measure window; samples at odd instants, 1 Hz."""
    found = {}
    for tick in range(-1, 10):
        since_t0_s = tick + 0.3
        measured_s = min(max(since_t0_s - RAMP_S, 0.0), MEASURE_S)
        user = measured_s * cores * busy
        found[(T0 + round(since_t0_s * S) + OFFSETS[host]) / S] = {
            "cpu.cores": cores,
            "cpu.user_s_total": user,
            "cpu.system_s_total": 0.0,
            "cpu.iowait_s_total": 0.0,
            "cpu.idle_s_total": (since_t0_s + 2.0) * cores - user,
            "cpu.steal_s_total": 0.0,
            "memory.total_bytes": 1000.0,
            "memory.available_bytes": 750.0,
            "load_average.1m": 1.0 + measured_s,
            "network.received_bytes_total": 100.0 * measured_s,
            "network.sent_bytes_total": 10.0 * measured_s,
            "pressure.cpu_us_total": measured_s * 0.25e6,
            "pressure.io_us_total": 0.0,
            "pressure.memory_us_total": 0.0,
            "ours.cpu_s_total": user / 2,
            "ours.servers_cpu_s_total": user / 4,
            "ours.load_cpu_s_total": user / 8,
            "ours.rss_bytes": 4096.0,
        } | {
            f"disk.{what}_total[{device}]": factor * measured_s
            for device, factor in (("sda", 1.0), ("sdb", 2.0))
            for what in ("read_bytes", "write_bytes", "reads", "writes")
        }
    return samples(found)


def wait_samples() -> list[wire.CaptureSample]:
    """In the measure window 1.5 s of WALSync and 0.5 s on CPU pass per second; before it another event, that must not
    show."""
    found = {}
    for tick in range(-1, 10):
        measured_s = min(max(tick - RAMP_S, 0.0), MEASURE_S)
        seconds = {"IO:WalSync": 1.5 * measured_s, "CPU": 0.5 * measured_s} if measured_s else {}
        seconds["Lock:tuple"] = float(min(max(tick, 0), RAMP_S))
        found[T0 / S + tick] = {f"wait.seconds_total[{name}]": value for name, value in seconds.items()}
    return samples(found, "waits")


def lag_samples() -> list[wire.CaptureSample]:
    """Lag grows 0.1 s a second from T0 on; before it, it is enormous."""
    seconds = {tick / 2: tick / 2 * 0.1 if tick >= 0 else 99.0 for tick in range(-4, 20)}
    return samples({T0 / S + at: {"lag.seconds": lag, "lag.bytes": lag * 1e6} for at, lag in seconds.items()}, "lag")


CAPTURED = {
    ("host", "db1"): os_samples("db1", busy=0.5),
    ("host", "client1"): os_samples("client1", busy=0.25),
    ("host", "client2"): os_samples("client2", busy=0.1),
    ("waits", "db1"): wait_samples(),
    ("lag", "db1"): lag_samples(),
}


def finished(
    captures: Mapping[tuple[str, str], list[wire.CaptureSample]] = CAPTURED, **changes: Any
) -> IterationFinished:
    study = changes.pop("plan", plan())
    put = transaction("Put", SLOW, logical=25, errors=(("40001", 2),))
    about: dict[str, Any] = {
        "loads": {host: load(host, transaction("Get", QUICK), put) for host in CLIENTS},
        "seconds": {
            host: [second(host, n, transaction("Get", QUICK[:80]), transaction("Put", SLOW[n::5])) for n in range(5)]
            for host in CLIENTS
        },
        "recordings": {key: Recording(found) for key, found in captures.items()},
    }
    return summarise(observations(study.stages[0], plan=study, clocks=CLOCKS, t0_ns=T0, **(about | changes)))


@pytest.fixture(scope="module")
def found() -> IterationFinished:
    """The iteration of two clients with all captures."""
    return finished()


def of(item: IterationFinished, check: str) -> ValidityFinding:
    return next(finding for finding in item.findings if finding.check == check)


def test_agents_are_merged_and_percentiles_taken_after(found: IterationFinished) -> None:
    response = found.metrics["response"]
    reference = HdrHistogram(1, 3_600 * S, 3)
    for ns in 2 * (QUICK + SLOW):
        reference.record_value(ns)
    assert found.metrics["tps"] == pytest.approx(1000 / MEASURE_S)
    assert response["avg_us"] == pytest.approx(np.mean(QUICK + SLOW) / 1e3)
    for name, percentile in (("p50_us", 50), ("p90_us", 90), ("p95_us", 95), ("p99_us", 99), ("p999_us", 99.9)):
        assert response[name] == pytest.approx(reference.get_value_at_percentile(percentile) / 1e3, rel=1e-3)
    assert (response["min_us"], response["max_us"]) == (1000.0, 20000.0)


def test_counts_and_shares(found: IterationFinished) -> None:
    put = next(item for item in found.transactions if item.name == "Put")
    assert (put.ok, put.logical_failures, put.errors, put.retried) == (150, 50, {"40001": 4}, 2)
    assert put.tps == pytest.approx(200 / MEASURE_S)
    assert found.metrics["transactions"]["Put"]["logical_fraction"] == 0.25
    assert found.metrics["errors"] == {"count": 4, "fraction": pytest.approx(4 / 1004)}
    assert found.metrics["client"]["cpu_s"] == 4.0
    assert found.metrics["client"]["cpu_us"] == pytest.approx(4.0 / 1000 * 1e6)


def test_captures_are_cut_to_the_measure_window_on_their_own_clocks(found: IterationFinished) -> None:
    """Samples lie 0.3 s beside the window's ends: a straight line there loses 0.3 × 0.7 s of its load at each end."""
    hosts, seen = found.metrics["hosts"], 1 - 2 * 0.3 * 0.7 / MEASURE_S
    assert found.metrics["cpu"] == hosts["db1"]["cpu"]
    for host, busy in (("db1", 0.5), ("client1", 0.25), ("client2", 0.1)):
        assert hosts[host]["cpu"]["busy_fraction"] == pytest.approx(busy * seen)
    server = hosts["db1"]
    assert server["memory"]["used_fraction"] == pytest.approx(0.25)
    assert server["disk"]["reads_per_s"] == pytest.approx(3.0 * seen)
    edges = server["load_average"]
    assert (edges["begin_1m"], edges["end_1m"]) == pytest.approx((1.0, 1.0 + MEASURE_S), abs=0.5)
    assert server["pressure"]["cpu_fraction"] == pytest.approx(0.25 * seen)
    ours = {"cpu_cores": 1.0, "servers_cores": 0.5, "load_cores": 0.25}
    assert {name: server["ours"][name] / seen for name in ours} == pytest.approx(ours)


def test_waits_are_shares_of_db_time_in_the_window(found: IterationFinished) -> None:
    assert [(line.event, line.wait_class) for line in found.waits] == [("WalSync", "IO"), ("CPU", "CPU")]
    assert [line.seconds for line in found.waits] == pytest.approx([7.5, 2.5])
    assert [line.db_time_fraction for line in found.waits] == pytest.approx([0.75, 0.25])
    waits = {"db_time_s": 10.0, "cpu_fraction": 0.25, "active_sessions": 2.0}
    assert {name: value for name, value in found.metrics["waits"].items() if name != "systems"} == pytest.approx(waits)
    assert found.metrics["waits"]["systems"] == {"cache": pytest.approx(waits)}


def test_lag_has_its_slope_and_with_few_readings_no_bounds_but_a_finding(found: IterationFinished) -> None:
    lag = found.metrics["lag"]
    assert [lag[name] for name in ("slope", "slope_lower", "slope_upper")] == pytest.approx([0.1] * 3)
    assert lag["max_s"] == lag["end_s"] == pytest.approx(0.7)
    assert lag["avg_s"] == pytest.approx(0.45)
    assert lag["max_bytes"] == pytest.approx(0.7e6)
    few = finished({("lag", "db1"): lag_samples()[::3]})
    assert not {"slope_lower", "slope_upper"} & set(few.metrics["lag"])
    assert few.metrics["lag"]["slope"] == pytest.approx(0.1)
    finding = of(few, "slope:lag@db1")
    assert (finding.ok, finding.voids) == (False, False)
    assert "4 readings of the lag; the bounds of its slope need 6" in finding.evidence
    assert not [item for item in found.findings if item.check.startswith("slope:")]


def paths(tree: Mapping[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in tree.items():
        found |= paths(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name}
    return found


def test_the_tree_has_exactly_the_names_of_the_vocabulary(found: IterationFinished) -> None:
    waits = CAPTURES["waits"].numbers
    expected = paths(
        {
            **vocabulary.LOAD,
            "transactions": {"Get": vocabulary.TRANSACTION, "Put": vocabulary.TRANSACTION},
            "cpu": vocabulary.CPU,
            "hosts": dict.fromkeys(OFFSETS, vocabulary.OS_HOST),
            "waits": {**waits, "systems": {"cache": waits}},
            "lag": CAPTURES["lag"].numbers,
            "cost": vocabulary.COST,
        }
    )
    not_captured = {f"cost.{name}" for name in ("wal_bytes", "context_switches", "price_per_million")}
    assert paths(found.metrics) == expected - not_captured
    assert not {"cpu", "hosts", "waits", "lag"} & set(finished({}).metrics), "what was not captured is absent"


def test_connects_and_waits_for_a_connection_are_those_of_all_hosts(found: IterationFinished) -> None:
    metrics = found.metrics
    assert metrics["connect"]["count"] == 3 * len(CLIENTS)
    assert metrics["connect"]["avg_us"] == pytest.approx(3_000, rel=1e-3)
    assert metrics["connect_failures"] == {"count": len(CLIENTS)}
    assert metrics["pool_wait"]["fraction"] == pytest.approx(0.25)
    assert metrics["pool_wait"]["max_us"] == pytest.approx(8_000)
    assert metrics["rerun"] == {"count": 2 * len(CLIENTS)}


def test_a_capture_that_ended_early_and_a_restarted_counter_give_no_number() -> None:
    whole = os_samples("db1", busy=0.5)
    early = finished({("host", "db1"): [sample for sample in whole if sample.at_ns < T0 + (RAMP_S + 2) * S]})
    assert "hosts" not in early.metrics
    finding = of(early, "capture:host@db1")
    assert (finding.ok, finding.voids) == (False, False)
    readings = [
        [replace(one, value=0.0) if one.metric == "ours.cpu_s_total" and at > 5 else one for one in sample.readings]
        for at, sample in enumerate(whole)
    ]
    broken = [replace(sample, readings=tuple(each)) for sample, each in zip(whole, readings, strict=True)]
    host = finished({("host", "db1"): broken}).metrics["hosts"]["db1"]
    assert "cpu_cores" not in host["ours"] and "busy_fraction" in host["cpu"]


def test_per_second_series_sums_agents_and_leaves_incomplete_seconds_out(found: IterationFinished) -> None:
    assert found.series["tps"] == (200.0,) * MEASURE_S
    assert len(found.series["response.avg_us"]) == MEASURE_S
    one = [second("client1", n, transaction("Get", QUICK[:80])) for n in range(MEASURE_S)]
    partly = finished(
        loads={host: load(host, transaction("Get", QUICK)) for host in CLIENTS},
        seconds={"client1": one, "client2": []},
    )
    assert "tps" not in partly.series


def test_seconds_take_as_much_memory_with_many_transaction_types_as_with_one() -> None:
    def kept(types: int) -> int:
        parts = [second("client1", n, *(transaction(f"t{at}", [MS]) for at in range(types))) for n in range(50)]
        tracemalloc.start()
        rows = whole_seconds({"client1": load("client1")}, {"client1": parts})
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [row.count for row in rows.values()] == [types] * 50
        return taken

    assert kept(40) < 1.5 * kept(1)


def test_the_window_is_where_all_clients_measured_and_of_passes_it_ends_with_the_last() -> None:
    start, end = T0 + RAMP_S * S, T0 + (RAMP_S + MEASURE_S) * S
    first, offset = load("client1"), OFFSETS["client2"]
    late = load("client2", measure_start_ns=start + offset + 10 * MS)
    window = measure_window({"client1": first, "client2": late}, CLOCKS)
    assert (window.start_ns, window.end_ns) == (start + 10 * MS, end)
    longer = load("client2", measure_end_ns=end + offset + 3 * S)
    assert measure_window({"client1": first, "client2": longer}, CLOCKS, to_last=True).end_ns == end + 3 * S
    get = transaction("Get", QUICK)
    both = {"client1": load("client1", get), "client2": load("client2", get, measure_end_ns=end + offset + 3 * S)}
    found = finished(loads=both, seconds={}).metrics
    assert found["transactions"]["Get"]["tps"] == found["tps"], "each host by the length of its own window"


def test_nothing_ended_is_a_breach_that_counts_and_says_the_first_error() -> None:
    dead = {"client1": load("client1", first_errors=("connection refused",))}
    found = finished({}, loads=dead, seconds={})
    assert found.valid and found.findings[0].breach
    assert "connection refused" in found.findings[0].evidence
    assert found.metrics["tps"] == 0.0 and "response" not in found.metrics
    found_out = Windows(ramp_up_s=8, ramp_up_least_s=2, measure_s=MEASURE_S, ramp_down_s=1)
    auto = replace(plan(), stages=(replace(plan().stages[0], windows=found_out),))
    assert not of(finished({}, loads=dead, seconds={}, plan=auto), "ramp-up").ok


# ---- several loads in one iteration: sums of those with shares, numbers and findings of each ---------------------


def of_loads(**changes: Any) -> IterationFinished:
    """Two loads with half of the threads each, and a report beside them."""
    half: dict[str, Any] = {"workload": "hlr", "share": (1, 2)}
    parts = (
        Load(name="one", target="cache", clients=("client1",), **half),
        Load(name="two", target="backend", clients=CLIENTS, **half),
        Load(name="nightly", workload="report", target="cache", clients=("client2",), threads=1),
    )
    get, put = transaction("GetAccessData", QUICK), transaction("UpdateLocation", [3 * MS] * 100)
    report = transaction("total", [900 * MS] * 5)
    loads = {
        "one.client1": load("client1", get, committed=(("GetAccessData", 450),)),
        "two.client1": load("client1", put),
        "two.client2": load("client2", get, put, committed=(("GetAccessData", 470),)),
        "nightly.client2": load("client2", report),
    }
    seconds = {
        source: [
            second(source.partition(".")[2], n, *(transaction(t.counts.name, [MS] * 20) for t in each.transactions))
            for n in range(MEASURE_S)
        ]
        for source, each in loads.items()
    }
    changed = {source: replace(each, **changes.get(source, {})) for source, each in loads.items()}
    study = plan(loads=parts, workload="", target="", captures=())
    return finished({}, plan=study, loads=changed, seconds=seconds)


def test_the_rung_has_the_sum_of_the_shares_and_each_load_its_own_numbers() -> None:
    item = of_loads()
    tree = item.metrics
    assert tree["tps"] == pytest.approx(1000 / MEASURE_S) and tree["threads"] == 4
    assert {name: (each["tps"], each["threads"]) for name, each in tree["loads"].items()} == {
        "one": (80.0, 2), "two": (120.0, 2), "nightly": (1.0, 1),
    }  # fmt: skip
    assert tree["response"]["max_us"] == 3000.0 and tree["loads"]["nightly"]["response"]["max_us"] == 900_000.0
    assert tree["loads"]["two"]["transactions"]["UpdateLocation"]["tps"] == pytest.approx(40.0)
    assert "transactions" not in tree and "ceiling_per_s" not in tree["client"]
    assert [one.label for one in item.transactions] == [
        "one.GetAccessData", "two.UpdateLocation", "two.GetAccessData", "nightly.total",
    ]  # fmt: skip
    assert item.committed == {"one.GetAccessData": 450, "two.GetAccessData": 470} and item.beside == ("nightly",)
    assert item.series["tps"] == (80.0,) * 5 and item.series["loads.nightly.tps"] == (20.0,) * 5
    tree = rung_tree([replace(item, id=replace(item.id, repeat=number)) for number in (1, 2)])
    assert tree["loads"]["nightly"]["tps"]["mean"] == 1.0 and tree["tps"]["values"] == [200.0, 200.0]


def test_findings_name_the_load_and_a_late_one_voids_the_iteration() -> None:
    item = of_loads(**{"two.client2": {"start_skew_ns": 80 * MS}})
    broken = [(finding.check, finding.load) for finding in item.findings if not finding.ok and finding.voids]
    assert broken == [("start-skew", "two")] and not item.valid
    counts = [sum(finding.check == check for finding in item.findings) for check in ("mix", "other-load")]
    assert counts == [3, 1], "of each load, and of the machines once"


# ---- NOPM and TPM of an iteration of TPROC-C ---------------------------------------------------------------------

ORDERS = [summary("Payment", ok=100, tps=10.0), summary("NewOrder", ok=990, logical_failures=10, tps=100.0)]
WINDOW = Window(start_ns=10 * S, end_ns=20 * S)


def counters(*names: str) -> Recording:
    """Counters that grow by 90 and 10 a second, also outside the window."""
    rates = {"database.commits_total": 90.0, "database.rollbacks_total": 10.0}
    return Recording(samples({at: {name: 1_000 + rates[name] * at for name in names} for at in range(0, 30, 3)}))


def test_only_committed_new_orders_count_and_tpm_is_what_the_database_counted_in_the_window() -> None:
    assert nopm(ORDERS) == pytest.approx(100.0 * 60 * 0.99)
    assert nopm(ORDERS[:1]) is None
    assert nopm([summary("NewOrder", ok=0, tps=0.0)]) is None
    both = counters("database.commits_total", "database.rollbacks_total")
    assert tpm(both, WINDOW) == pytest.approx(6_000.0)
    assert tpm(counters("database.commits_total"), WINDOW) is None
    assert order_metrics("hlr", ORDERS, (both, WINDOW)) == {}, "other workloads have neither"
    assert order_metrics("tprocc", ORDERS, None) == {"nopm": pytest.approx(5_940.0), "tpm": None}
