"""Raw results with known truth go in; the numbers that come out are computed here by hand or by another library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from records import ladder_stage, load_result, observations, plan_of

from proveout.coordinator.measure.captures import Recording
from proveout.coordinator.measure.summarise import measure_window, summarise
from proveout.dsl import metrics as vocabulary
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Closed, Windows
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.proto.wire.histogram import bin_ns
from proveout.proto.wire.results import (
    CaptureSample,
    Handling,
    LoadResult,
    LoadSecond,
    Reading,
    SessionResult,
    TransactionCounts,
    TransactionLoad,
)

S = 1_000_000_000
MS = 1_000_000
T0 = 1_000 * S
RAMP_S, MEASURE_S = 2, 5
OFFSETS = {"db1": 0, "client1": 7 * S, "client2": -3 * S}
CLOCKS = {host: (offset, 100_000) for host, offset in OFFSETS.items()}


def plan(*, arrival: Any = None, addresses: Mapping[str, str] | None = None) -> Plan:
    at = addresses or {host: f"{host}:7700" for host in OFFSETS}
    ladder = ladder_stage(
        "baseline",
        workload="hlr",
        target="cache",
        clients=("client1", "client2"),
        windows=Windows(ramp_up_s=RAMP_S, measure_s=MEASURE_S, ramp_down_s=1),
        arrival=arrival or Closed(),
        captures=("host", "waits", "lag"),
    )
    return plan_of(
        ladder,
        hosts=tuple(Host(name=name, roles=("client",), address=at[name]) for name in OFFSETS),
        systems=(
            System(name="cache", engine="postgres", host="db1", provision="embedded", propagates_to="backend"),
            System(name="backend", engine="postgres", host="db1", provision="embedded"),
        ),
        workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 1000),)),),
        captures=(
            Capture(name="host", kind="os", every_s=1.0, hosts=tuple(OFFSETS)),
            Capture(name="waits", kind="waits", every_s=1.0, system="cache"),
            Capture(name="lag", kind="lag", every_s=0.5, system="cache"),
        ),
    )


def transaction(
    name: str, ns: Sequence[int], *, logical: int = 0, errors: tuple[tuple[str, int], ...] = ()
) -> TransactionLoad:
    counts = TransactionCounts(name=name, ok=len(ns) - logical, logical_failures=logical, errors=errors, retried=1)
    times = bin_ns(ns)
    late = bin_ns([1000] * len(ns))
    return TransactionLoad(counts=counts, response=times, service=times, schedule=late, ended=len(ns))


def load(host: str, transactions: tuple[TransactionLoad, ...], **changes: Any) -> LoadResult:
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
        "handling": (Handling(late=bin_ns([1000] * 100), answers=500, runqueue_s=0.1, runqueue_fraction=0.05),),
        "sessions": SessionResult(
            connect=bin_ns([2 * MS, 4 * MS]),
            attempts=3,
            failed=1,
            pool_wait=bin_ns([0, 0, 0, 8 * MS]),
            waited=1,
            rerun=2,
        ),
    }
    return load_result(**(fields | changes))


def second(host: str, number: int, transactions: tuple[TransactionLoad, ...]) -> LoadSecond:
    start = T0 + (RAMP_S + number) * S + OFFSETS[host]
    return LoadSecond(
        second=RAMP_S + number, window="measure", start_ns=start, duration_s=1.0, transactions=transactions
    )


def os_samples(host: str, *, busy: float, cores: int = 4) -> list[CaptureSample]:
    """Idle in the ramps, `busy` of all cores in the measure window; samples at odd instants, 1 Hz."""
    samples = []
    for tick in range(-1, 10):
        since_t0_s = tick + 0.3
        measured_s = min(max(since_t0_s - RAMP_S, 0.0), MEASURE_S)
        user = measured_s * cores * busy
        readings = {
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
        }
        disks = [
            Reading(metric=f"disk.{what}_total", label=device, value=factor * measured_s)
            for device, factor in (("sda", 1.0), ("sdb", 2.0))
            for what in ("read_bytes", "write_bytes", "reads", "writes")
        ]
        at = T0 + round(since_t0_s * S) + OFFSETS[host]
        named = [Reading(metric=metric, value=value) for metric, value in readings.items()]
        samples.append(CaptureSample(capture="host", at_ns=at, readings=(*named, *disks)))
    return samples


def wait_samples() -> list[CaptureSample]:
    """In the measure window 1.5 s of WALSync and 0.5 s on CPU pass per second; before it another event, that must not
    show."""
    samples = []
    for tick in range(-1, 10):
        measured_s = min(max(tick - RAMP_S, 0.0), MEASURE_S)
        readings = [Reading(metric="wait.seconds_total", label="Lock:tuple", value=float(min(max(tick, 0), RAMP_S)))]
        if measured_s:
            readings.append(Reading(metric="wait.seconds_total", label="IO:WalSync", value=1.5 * measured_s))
            readings.append(Reading(metric="wait.seconds_total", label="CPU", value=0.5 * measured_s))
        samples.append(CaptureSample(capture="waits", at_ns=T0 + tick * S, readings=tuple(readings)))
    return samples


def lag_samples() -> list[CaptureSample]:
    """Lag grows 0.1 s a second from T0 on; before it, it is enormous."""
    samples = []
    for tick in range(-4, 20):
        seconds = tick / 2 * 0.1 if tick >= 0 else 99.0
        readings = (Reading(metric="lag.seconds", value=seconds), Reading(metric="lag.bytes", value=seconds * 1e6))
        samples.append(CaptureSample(capture="lag", at_ns=T0 + tick * S // 2, readings=readings))
    return samples


SLOW = [20 * MS] * 10 + [2 * MS] * 90
QUICK = [1 * MS] * 400


def evidence(**changes: Any) -> Any:
    seconds = {
        host: [
            second(host, n, (transaction("Get", QUICK[:80]), transaction("Put", SLOW[n::5]))) for n in range(MEASURE_S)
        ]
        for host in ("client1", "client2")
    }
    loads = {
        host: load(host, (transaction("Get", QUICK), transaction("Put", SLOW, logical=25, errors=(("40001", 2),))))
        for host in ("client1", "client2")
    }
    study = changes.pop("plan", plan())
    captures = {
        ("host", "db1"): os_samples("db1", busy=0.5),
        ("host", "client1"): os_samples("client1", busy=0.25),
        ("host", "client2"): os_samples("client2", busy=0.1),
        ("waits", "db1"): wait_samples(),
        ("lag", "db1"): lag_samples(),
    }
    recordings = {key: Recording(found) for key, found in changes.pop("captures", captures).items()}
    about = {"plan": study, "loads": loads, "seconds": seconds, "recordings": recordings, "clocks": CLOCKS, "t0_ns": T0}
    return summarise(observations(study.stages[0], **(about | changes)))


def test_agents_are_merged_and_percentiles_taken_after() -> None:
    found = evidence()
    response = found.metrics["response"]
    reference = HdrHistogram(1, 3_600 * S, 3)
    for ns in 2 * (QUICK + SLOW):
        reference.record_value(ns)
    assert found.metrics["tps"] == pytest.approx(1000 / MEASURE_S)
    assert response["avg_us"] == pytest.approx(np.mean(QUICK + SLOW) / 1e3)
    for name, percentile in (("p50_us", 50), ("p90_us", 90), ("p95_us", 95), ("p99_us", 99), ("p999_us", 99.9)):
        assert response[name] == pytest.approx(reference.get_value_at_percentile(percentile) / 1e3, rel=1e-3)
    assert (response["min_us"], response["max_us"]) == (1000.0, 20000.0)


def test_counts_and_shares() -> None:
    found = evidence()
    put = next(item for item in found.transactions if item.name == "Put")
    assert (put.ok, put.logical_failures, put.errors, put.retried) == (150, 50, {"40001": 4}, 2)
    assert put.tps == pytest.approx(200 / MEASURE_S)
    assert found.metrics["transactions"]["Put"]["logical_fraction"] == 0.25
    assert found.metrics["errors"] == {"count": 4, "fraction": pytest.approx(4 / 1004)}
    assert found.metrics["client"]["cpu_s"] == 4.0
    assert found.metrics["client"]["cpu_us"] == pytest.approx(4.0 / 1000 * 1e6)


def test_captures_are_cut_to_the_measure_window_on_their_own_clocks() -> None:
    found = evidence()
    hosts = found.metrics["hosts"]
    assert found.metrics["cpu"] == hosts["db1"]["cpu"]
    # Samples lie 0.3 s beside the window's ends: a straight line there loses 0.3 × 0.7 s of the window's load at each
    # end.
    seen = 1 - 2 * 0.3 * 0.7 / MEASURE_S
    for host, busy in (("db1", 0.5), ("client1", 0.25), ("client2", 0.1)):
        assert hosts[host]["cpu"]["busy_fraction"] == pytest.approx(busy * seen)
    assert hosts["db1"]["memory"]["used_fraction"] == pytest.approx(0.25)
    assert hosts["db1"]["disk"]["reads_per_s"] == pytest.approx(3.0 * seen)
    edges = hosts["db1"]["load_average"]
    assert (edges["begin_1m"], edges["end_1m"]) == pytest.approx((1.0, 1.0 + MEASURE_S), abs=0.5)
    assert hosts["db1"]["pressure"]["cpu_fraction"] == pytest.approx(0.25 * seen)
    assert hosts["db1"]["ours"]["cpu_cores"] == pytest.approx(1.0 * seen)
    assert hosts["db1"]["ours"]["servers_cores"] == pytest.approx(0.5 * seen)
    assert hosts["db1"]["ours"]["load_cores"] == pytest.approx(0.25 * seen)


def test_waits_are_shares_of_db_time_in_the_window() -> None:
    found = evidence()
    assert [(line.event, line.wait_class) for line in found.waits] == [("WalSync", "IO"), ("CPU", "CPU")]
    assert [line.seconds for line in found.waits] == pytest.approx([7.5, 2.5])
    assert [line.db_time_fraction for line in found.waits] == pytest.approx([0.75, 0.25])
    waits = {"db_time_s": 10.0, "cpu_fraction": 0.25, "active_sessions": 2.0}
    assert {name: value for name, value in found.metrics["waits"].items() if name != "systems"} == pytest.approx(waits)
    assert found.metrics["waits"]["systems"] == {"cache": pytest.approx(waits)}


def test_lag_has_its_slope() -> None:
    lag = evidence().metrics["lag"]
    assert lag["slope"] == pytest.approx(0.1)
    assert lag["slope_lower"] == pytest.approx(0.1)
    assert lag["slope_upper"] == pytest.approx(0.1)
    assert lag["max_s"] == lag["end_s"] == pytest.approx(0.7)
    assert lag["avg_s"] == pytest.approx(0.45)
    assert lag["max_bytes"] == pytest.approx(0.7e6)


def test_a_lag_with_few_readings_has_no_bounds_and_a_finding_tells_the_remedy() -> None:
    found = evidence(captures={("lag", "db1"): lag_samples()[::3]})
    assert not {"slope_lower", "slope_upper"} & set(found.metrics["lag"])
    assert found.metrics["lag"]["slope"] == pytest.approx(0.1)
    finding = next(item for item in found.findings if item.check == "slope:lag@db1")
    assert (finding.ok, finding.voids) == (False, False)
    assert "4 readings of the lag; the bounds of its slope need 6" in finding.evidence
    assert not [item for item in evidence().findings if item.check.startswith("slope:")]


def paths(tree: Mapping[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in tree.items():
        found |= paths(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name}
    return found


def test_the_tree_has_exactly_the_names_of_the_vocabulary() -> None:
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
    expected -= not_captured
    assert paths(evidence().metrics) == expected
    assert not {"cpu", "hosts", "waits", "lag"} & set(evidence(captures={}).metrics), "what was not captured is absent"


def test_connects_and_waits_for_a_connection_are_those_of_all_hosts() -> None:
    metrics = evidence().metrics
    hosts = len(OFFSETS) - 1
    assert metrics["connect"]["count"] == 3 * hosts
    assert metrics["connect"]["avg_us"] == pytest.approx(3_000, rel=1e-3)
    assert metrics["connect_failures"] == {"count": hosts}
    assert metrics["pool_wait"]["fraction"] == pytest.approx(0.25)
    assert metrics["pool_wait"]["max_us"] == pytest.approx(8_000)
    assert metrics["rerun"] == {"count": 2 * hosts}


def test_a_capture_that_ended_early_gives_no_number() -> None:
    early = [sample for sample in os_samples("db1", busy=0.5) if sample.at_ns < T0 + (RAMP_S + 2) * S]
    found = evidence(captures={("host", "db1"): early})
    assert "hosts" not in found.metrics
    finding = next(item for item in found.findings if item.check == "capture:host@db1")
    assert not finding.ok
    assert not finding.voids


def test_a_restarted_counter_gives_no_number() -> None:
    def reset(at: int, one: Reading) -> Reading:
        return replace(one, value=0.0) if at > 5 and one.metric == "ours.cpu_s_total" else one

    broken = [
        replace(sample, readings=tuple(reset(at, one) for one in sample.readings))
        for at, sample in enumerate(os_samples("db1", busy=0.5))
    ]
    host = evidence(captures={("host", "db1"): broken}).metrics["hosts"]["db1"]
    assert "cpu_cores" not in host["ours"]
    assert "busy_fraction" in host["cpu"]


def test_per_second_series_sums_agents_and_leaves_incomplete_seconds_out() -> None:
    found = evidence()
    assert found.series["tps"] == (200.0,) * MEASURE_S
    assert len(found.series["response.avg_us"]) == MEASURE_S
    loads = {
        "client1": load("client1", (transaction("Get", QUICK),)),
        "client2": load("client2", (transaction("Get", QUICK),)),
    }
    one = [second("client1", n, (transaction("Get", QUICK[:80]),)) for n in range(MEASURE_S)]
    partly = evidence(loads=loads, seconds={"client1": one, "client2": one[:0]})
    assert "tps" not in partly.series


def test_the_window_is_where_all_clients_measured() -> None:
    first = load("client1", ())
    late = load("client2", (), measure_start_ns=T0 + RAMP_S * S + OFFSETS["client2"] + 10 * MS)
    window = measure_window({"client1": first, "client2": late}, CLOCKS)
    assert window.start_ns == T0 + RAMP_S * S + 10 * MS
    assert window.end_ns == T0 + (RAMP_S + MEASURE_S) * S


def test_nothing_ended_is_a_breach_that_counts_and_says_the_first_error() -> None:
    dead = {"client1": load("client1", (), first_errors=("connection refused",))}
    found = evidence(loads=dead, seconds={}, captures={})
    assert found.valid
    assert found.findings[0].breach
    assert found.metrics["tps"] == 0.0
    assert "connection refused" in found.findings[0].evidence
    assert "response" not in found.metrics


def test_the_window_of_passes_ends_with_the_last_client() -> None:
    first = load("client1", ())
    longer = load("client2", (), measure_end_ns=T0 + (RAMP_S + MEASURE_S) * S + OFFSETS["client2"] + 3 * S)
    window = measure_window({"client1": first, "client2": longer}, CLOCKS, to_last=True)
    assert window.end_ns == T0 + (RAMP_S + MEASURE_S + 3) * S
