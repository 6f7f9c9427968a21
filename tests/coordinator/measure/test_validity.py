"""Each finding on both sides of its limit, and whether it voids, for an iteration of a ladder and a probe."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from records import ladder_stage, load_result, observations, plan_of, samples, search_stage
from simulated_load import LENIENT

from proveout.coordinator.measure.captures import Recording
from proveout.coordinator.measure.summarise import summarise
from proveout.coordinator.measure.validity import is_refusal
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Closed, Fault, Ladder, Limits, Open, Phased, Search, Windows
from proveout.dsl.plan.topology import Capture, Expression, Host, System
from proveout.dsl.workloads.hlr import HLR_TRANSACTIONS
from proveout.proto.events import IterationFinished, ValidityFinding
from proveout.proto.wire.histogram import bin_ns
from proveout.proto.wire.results import (
    CaptureSample,
    Handling,
    Hang,
    LoadSecond,
    Stall,
    TransactionCounts,
    TransactionLoad,
)

S, MS, T0, RAMP_S = 1_000_000_000, 1_000_000, 50_000_000_000, 1
WINDOWS = Windows(ramp_up_s=RAMP_S, measure_s=10, ramp_down_s=1)
WEIGHTS = (35, 10, 35, 2, 14, 2, 2)
SUCCESS = (1.0, 0.15, 0.625, 0.625, 1.0, 0.3125, 0.3125)
NAMES = (
    "GetBasicSubscriberData",
    "GetNewDestination",
    "GetAccessData",
    "UpdateSubscriberData",
    "UpdateLocation",
    "InsertCallForwarding",
    "DeleteCallForwarding",
)


def ladder(**changes: Any) -> Ladder:
    return ladder_stage(**({"workload": "hlr", "windows": WINDOWS} | changes))


def search(**changes: Any) -> Search:
    return search_stage(**({"workload": "hlr", "probe": WINDOWS, "confirm": WINDOWS} | changes))


def plan(stage: Ladder | Search, *, client: str = "client:7700", dsn: str | None = None) -> Plan:
    return plan_of(
        stage,
        hosts=(Host(name="s1", roles=(), address="server:7700"), Host(name="c1", roles=(), address=client)),
        systems=(System(name="db", engine="postgres", host="s1", provision=None if dsn else "embedded", dsn=dsn),),
        workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 100_000),)),),
        captures=(Capture(name="host", kind="os", every_s=1.0, hosts=("s1", "c1")),),
    )


def mix(
    total: int, *, weights: Sequence[int] = WEIGHTS, errors: int = 0, late_ns: int = 1000
) -> tuple[TransactionLoad, ...]:
    loads = []
    for name, weight, success in zip(NAMES, weights, SUCCESS, strict=True):
        count = total * weight // 100
        ok = round(count * success)
        counts = TransactionCounts(
            name=name,
            ok=ok,
            logical_failures=count - ok,
            errors=(("08006", errors),) if errors and weight == 35 else (),
        )
        response = bin_ns(np.full(count, 2 * MS))
        loads.append(
            TransactionLoad(
                counts=counts, response=response, service=response, schedule=bin_ns(np.full(count, late_ns))
            )
        )
    return tuple(loads)


def judged(
    stage: Ladder | Search | None = None,
    *,
    per_second: Sequence[int] = (1000,) * 10,
    ramp_up: Sequence[int] = (),
    rate: float | None = None,
    client: str = "client:7700",
    dsn: str | None = None,
    load: dict[str, Any] | None = None,
    transactions: tuple[TransactionLoad, ...] | None = None,
    captures: dict[tuple[str, str], list[CaptureSample]] | None = None,
    clocks: dict[str, tuple[int, int]] | None = None,
    produced: int | None = None,
    boots: dict[str, str] | None = None,
    silences: dict[str, float] | None = None,
    clock_ends: dict[str, tuple[int, int]] | None = None,
    before: IterationFinished | None = None,
) -> IterationFinished:
    stage = stage or ladder()
    total = sum(per_second)
    start = T0 + (len(ramp_up) or RAMP_S) * S
    fields: dict[str, Any] = {
        "transactions": transactions if transactions is not None else mix(total),
        "ended_in_window": total,
        "measure_start_ns": start,
        "measure_end_ns": start + len(per_second) * S,
        "seconds_produced": len(per_second) if produced is None else produced,
    }
    seconds = [
        LoadSecond(
            second=(start - T0) // S + index,
            window="measure" if index >= 0 else "ramp_up",
            start_ns=start + index * S,
            duration_s=1.0,
            transactions=(TransactionLoad(counts=TransactionCounts(name=NAMES[0], ok=count)),),
        )
        for index, count in enumerate((*ramp_up, *per_second), -len(ramp_up))
    ]
    about = {"rate": rate, "clocks": clocks or {}, "boots": boots or {}, "silences": silences or {}, "before": before}
    return summarise(
        observations(
            stage,
            plan=plan(stage, client=client, dsn=dsn),
            loads={"c1": load_result(**(fields | (load or {})))},
            seconds={"c1": seconds},
            recordings={key: Recording(found) for key, found in (captures or {}).items()},
            t0_ns=T0,
            clock_ends=clock_ends or {},
            **about,
        )
    )


def of(found: IterationFinished, check: str) -> ValidityFinding:
    return next(finding for finding in found.findings if finding.check == check)


def test_a_good_iteration_is_valid_and_every_finding_has_evidence() -> None:
    found = judged()
    assert found.valid, [finding for finding in found.findings if not finding.ok]
    assert all(finding.ok and finding.evidence for finding in found.findings)
    system = {"steady-state", "variation", "errors", "mix", "logical-failures"}
    measurement = {"client-cpu", "start-skew", "clock", "other-load", "samples"}
    assert {finding.check for finding in found.findings} == system | measurement
    assert set(NAMES) == set(HLR_TRANSACTIONS)
    assert of(found, "other-load").evidence == "not judged: no os capture"


@pytest.mark.parametrize(
    ("per_second", "evidence"),
    [
        (
            [1000 + 30 * second for second in range(10)],
            "TPS not steady: drift +26.4 % ± 0 % over 10 s (limit 10 %)",
        ),
        (
            [1000, 1400, 900, 1300, 950, 1250, 1000, 1350, 900, 1300],  # large swings
            "TPS not shown to be steady: drift -5.5 % ± 17 % over 10 s (limit 10 %)",
        ),
    ],
)
def test_throughput_not_proven_steady_is_a_warning(per_second: list[int], evidence: str) -> None:
    found = judged(per_second=per_second)
    assert of(found, "steady-state").evidence == evidence
    assert not of(found, "steady-state").ok
    assert found.valid


RISING = tuple(range(300, 2000, 100))


@pytest.mark.parametrize(
    ("seconds", "used", "steady_from_s", "ok", "evidence"),
    [
        ((300, 600, 800, 900, *(1000,) * 14), 8, 4, True, "8s; steady from 4s on"),
        ((300, 600, 800, *(1000,) * 15), 3, 3, True, "3s; steady from 3s on"),
        (RISING, 8, None, False, "8s; none of the windows of 10s that begin between 2s and 8s is shown to be steady"),
        (RISING, 3, None, True, "3s; none of the windows of 10s that begin between 2s and 3s is shown to be steady"),
    ],
)
def test_the_end_of_the_warm_up_is_the_first_window_that_is_shown_to_be_steady(
    seconds: tuple[int, ...], used: int, steady_from_s: int | None, ok: bool, evidence: str
) -> None:
    auto = ladder(windows=Windows(ramp_up_s=8, ramp_up_least_s=2, measure_s=10, ramp_down_s=1))
    found = judged(auto, ramp_up=seconds[:used], per_second=seconds[used : used + 10])
    assert found.steady_from_s == steady_from_s
    assert len(found.series["tps"]) == len(seconds[used : used + 10]), "the ramp-up is not in the numbers of the window"
    assert found.valid, "the behaviour of the system does not void"
    assert (of(found, "ramp-up").ok, of(found, "ramp-up").evidence) == (ok, evidence)


def test_a_throughput_that_stalls_varies_too_much() -> None:
    found = judged(per_second=[1000, 0, 1000, 1000, 0, 1000, 0, 1000, 1000, 0])
    assert not of(found, "variation").ok
    assert found.valid, "variation of the system does not void"
    assert not of(judged(per_second=[1000, 0, 1000]), "variation").ok, "short windows are judged too"


def test_counting_noise_of_a_slow_load_does_not_count_as_variation() -> None:
    per_second = [int(count) for count in np.random.default_rng(5).poisson(6, 60)]
    assert np.std(per_second, ddof=1) / np.mean(per_second) > Limits().tps_cv_max
    assert of(judged(per_second=per_second), "variation").ok


def test_hosts_with_the_same_boot_id_are_one_machine() -> None:
    busy = {"client_cpu_fraction": 0.97}
    assert judged(load=busy, boots={"s1": "b", "c1": "b"}).valid  # network namespaces, containers
    assert not judged(load=busy, boots={"s1": "b", "c1": "c"}).valid
    assert not judged(load=busy, boots={"s1": "", "c1": ""}).valid  # unknown


def test_the_clock_is_judged_at_both_ends_of_the_window() -> None:
    fine = judged(clocks={"c1": (0, MS)}, clock_ends={"c1": (3 * MS, 2 * MS)})
    assert "± 2 ms at the end, and moved by up to 3 ms" in of(fine, "clock").evidence
    assert of(fine, "clock").ok
    assert not of(judged(clocks={"c1": (0, MS)}, clock_ends={"c1": (0, 60 * MS)}), "clock").ok


def late(us: float, *, runqueue: float = 0.0, **fields: int) -> dict[str, Any]:
    """Return a load of 10,000 transactions of 2 ms whose answers were handled with this delay."""
    times = bin_ns(np.full(100, round(us * 1e3)))
    waited = {"runqueue_s": runqueue * 10, "runqueue_fraction": runqueue}
    return {"handling": (Handling(late=times, **({"answers": 10_000, "stamped": 0} | waited | fields)),)}


@pytest.mark.parametrize(
    ("load", "client", "ok", "valid"),
    [
        (late(190.0), "client:7700", True, True),
        (late(210.0), "client:7700", False, False),
        (late(210.0), "server:7700", False, True),
        (late(60.0, answers=40_000), "client:7700", False, False),  # four answers a transaction
        (late(0.0, answers=0, runqueue=0.1), "client:7700", True, True),  # a blocking driver: 100 µs for a CPU
        (late(0.0, answers=0, runqueue=0.3), "client:7700", False, False),
    ],
)
def test_handling_delays_above_a_tenth_of_the_service_time_void_as_a_client_bottleneck(
    load: dict[str, Any], client: str, ok: bool, valid: bool
) -> None:
    found = judged(load=load, client=client)
    assert of(found, "client-handling").ok is ok
    assert found.valid is valid


@pytest.mark.parametrize(
    ("per_s", "client", "ok", "valid"),
    [
        (2000.0, "client:7700", True, True),
        (1050.0, "client:7700", False, False),
        (1050.0, "server:7700", False, True),
        (None, "client:7700", None, True),
    ],
)
def test_a_rate_near_the_ceiling_is_a_client_bottleneck(
    per_s: float | None, client: str, ok: bool | None, valid: bool
) -> None:
    """The load reached 1,000/s. On the server's machine, client and server share the cores, so the finding is a
    warning."""
    which = "ceiling_shared_per_s" if client.startswith("server") else "ceiling_apart_per_s"
    found = judged(load={which: per_s}, client=client)
    assert found.valid is valid
    assert [finding.ok for finding in found.findings if finding.check == "client-ceiling"] == (
        [] if ok is None else [ok]
    )
    if per_s:
        assert f"the run reached {1000.0 / per_s * 100:.3g} %" in of(found, "client-ceiling").evidence
        assert found.metrics["client"]["ceiling_per_s"] == per_s


def test_a_ramp_is_not_judged_for_steady_state() -> None:
    stage = ladder(arrival=Phased(levels=(Level(for_s=10.0, at_s=(0.0, 10.0), values=(100.0, 1900.0)),)))
    found = judged(stage, rate=1000.0, per_second=(200, 400, 600, 800, 1000, 1000, 1200, 1400, 1600, 1800))
    assert found.valid
    assert "100/s to 1,900/s" in of(found, "steady-state").evidence
    assert of(found, "rate-held").ok


def test_a_busy_open_client_voids_only_when_the_rate_was_not_achieved() -> None:
    stage = ladder(arrival=Open(rate=1000.0))
    held = judged(stage, rate=1000.0, load={"client_cpu_fraction": 0.97})
    assert held.valid
    assert not of(held, "client-cpu").ok
    late = judged(stage, rate=1000.0, load={"client_cpu_fraction": 0.97}, transactions=mix(10_000, late_ns=9 * MS))
    assert not late.valid


@pytest.mark.parametrize(("rate", "held"), [(1000.0, True), (1010.2, True), (1010.4, False)])
def test_a_rate_is_achieved_from_99_percent(rate: float, held: bool) -> None:
    found = judged(ladder(arrival=Open(rate=rate)), rate=rate)
    assert of(found, "rate-held").ok is held
    assert of(found, "rate-held").breach
    assert found.valid, "that the system did not keep up counts"
    late = judged(ladder(arrival=Open(rate=rate)), rate=rate, transactions=mix(10_000, late_ns=9 * MS))
    assert late.valid and not of(late, "schedule").ok, "response times include late starts"


def test_a_backlog_from_before_the_window_does_not_count_as_achieved_rate() -> None:
    """Of the 1,000/s that ended in the window, 900/s were due in it."""
    found = judged(search(), rate=1000.0, transactions=mix(9_000))
    assert found.metrics["tps"] == pytest.approx(1000.0)
    assert not of(found, "rate-held").ok
    assert "achieved 900/s of 1,000/s due, 90 %" in of(found, "rate-held").evidence


@pytest.mark.parametrize(
    ("pauses", "spanned"),
    [
        ([(1.0, 1.3), (8.0, 8.3)], False),
        ([(0.5, 0.8), (3.0, 3.3), (5.5, 5.8), (8.0, 8.3)], True),
    ],
)
def test_pauses_further_apart_than_half_of_a_probes_window_have_a_finding(
    pauses: list[tuple[float, float]], spanned: bool
) -> None:
    stalls = tuple(Stall(start_ns=round(start * S), end_ns=round(end * S)) for start, end in pauses)
    finding = of(judged(search(), rate=1000.0, load={"stalls": stalls}), "pauses")
    assert (finding.ok, finding.voids) == (spanned, False)
    assert spanned or "measure for at least four times their distance" in finding.evidence


def test_times_between_two_rare_arrivals_are_not_pauses() -> None:
    stalls = (Stall(start_ns=3 * S, end_ns=4 * S),)
    found = judged(search(), rate=2.0, load={"stalls": stalls})
    assert not [finding for finding in found.findings if finding.check == "pauses"]


def test_poisson_arrivals_may_miss_their_rate_by_chance() -> None:
    constant, poisson = ladder(arrival=Open(rate=1025.0)), ladder(arrival=Open(rate=1025.0, distribution="poisson"))
    assert not of(judged(constant, rate=1025.0), "rate-held").ok
    assert of(judged(poisson, rate=1025.0), "rate-held").ok


def test_a_late_start_voids_and_the_clock_counts_into_it() -> None:
    assert not judged(load={"start_skew_ns": 60 * MS}).valid
    assert judged(load={"start_skew_ns": 30 * MS}).valid
    assert not judged(load={"start_skew_ns": 30 * MS}, clocks={"c1": (0, 25 * MS)}).valid


def test_a_window_before_t0_shows_that_the_clocks_disagree() -> None:
    found = judged(clocks={"c1": (2 * S, 0)})
    assert not of(found, "clock").ok
    assert not found.valid


def test_transactions_without_an_answer_are_warnings_with_their_share_and_age() -> None:
    """Of 10,000 due, 9,900 ended, 60 began and waited for up to 3 s, and 40 never began."""
    first, *others = mix(9_900)
    counts = dataclasses.replace(first.counts, missed=40)
    ages, never = np.linspace(S, 3 * S, 60).astype(np.int64), bin_ns(np.full(40, 2 * S))
    waiting = dataclasses.replace(
        first, counts=counts, service_at_least=bin_ns(ages), response_at_least=bin_ns(ages), schedule_at_least=never
    )
    hangs = (Hang(worker=1, transaction=NAMES[2], waited_ns=12 * S),)
    found = judged(rate=1000.0, transactions=(waiting, *others), load={"hangs": hangs, "hung": 2})
    assert found.metrics["due"]["count"] == 10_000
    for check, evidence in {
        "missed": "40 transactions (0.4 % of those due) never began: percentiles above 99.6 % are not given",
        "unfinished": "60 transactions had no answer within 1 s after the load; the oldest waited for 12 s: percentiles "
        "among them are lower bounds",
        "hung:c1": "2 of the terminals of c1 ended no transaction in the measure window; one of load worker 1 waited for "
        "GetAccessData for 12 s, until the end of the load, without an answer",
    }.items():
        finding = of(found, check)
        assert (finding.ok, finding.voids, finding.breach, finding.evidence) == (False, False, False, evidence)
    assert {"missed", "unfinished"}.isdisjoint(finding.check for finding in judged(rate=1000.0).findings)


def test_errors_over_the_limit_count_as_a_breach_and_quote_the_first() -> None:
    transactions = mix(10_000, errors=40)
    found = judged(transactions=transactions, load={"first_errors": ("server closed the connection",)})
    assert found.valid
    assert not found.is_typical
    assert of(found, "errors").breach
    assert "server closed the connection" in of(found, "errors").evidence
    assert judged(ladder(limits=Limits(errors_fraction_max=0.02)), transactions=transactions).is_typical


def test_lost_samples_void_and_lost_seconds_warn() -> None:
    assert not judged(load={"samples_lost": 1}).valid
    found = judged(produced=12)
    assert found.valid
    assert of(found, "seconds").evidence.startswith("2 ")


def test_another_mix_and_other_success_shares_are_breaches() -> None:
    shifted = judged(transactions=mix(10_000, weights=(30, 15, 35, 2, 14, 2, 2)))
    assert not of(shifted, "mix").ok
    assert of(shifted, "mix").breach
    assert shifted.valid

    def succeeding(item: TransactionLoad) -> TransactionLoad:
        ok = item.counts.ok + item.counts.logical_failures
        return dataclasses.replace(item, counts=dataclasses.replace(item.counts, ok=ok, logical_failures=0))

    all_well = tuple(map(succeeding, mix(10_000)))
    other = of(judged(transactions=all_well), "logical-failures")
    assert not other.ok
    assert other.breach
    probe = of(judged(search(), rate=1000.0, transactions=all_well), "logical-failures")
    assert probe.breach, "no rate is an answer for another load"
    assert not is_refusal(probe)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"rate": 2000.0},
        {"rate": 1000.0, "transactions": mix(10_000, errors=500)},
        {"rate": 1000.0, "per_second": [500 + 100 * second for second in range(10)]},
        {"rate": 1000.0, "load": {"client_cpu_fraction": 0.99}, "transactions": mix(10_000, late_ns=9 * MS)},
    ],
)
def test_overload_of_the_system_does_not_void_a_probe(spoiled: dict[str, Any]) -> None:
    found = judged(search(), **spoiled)
    assert found.valid
    assert any(not finding.ok for finding in found.findings)


def test_no_ended_transaction_is_a_breach_of_a_ladder_and_an_answer_of_a_probe() -> None:
    nothing: dict[str, Any] = {"per_second": [0] * 10, "transactions": mix(0)}
    assert of(judged(**nothing), "load").breach
    assert judged(**nothing).valid
    assert not judged(load={"samples_lost": 1}, **nothing).valid, "unless the measurement is why"
    assert judged(search(), rate=1000.0, **nothing).is_typical
    assert not judged(search(), rate=1000.0, load={"samples_lost": 3}).valid, "a broken measurement voids a probe"


def os_capture(
    *, busy_cores: float, ours_cores: float, steal_cores: float = 0.0, stalled: dict[str, float] | None = None
) -> list[CaptureSample]:
    cores, numbers = 4, {}
    for second in range(-1, 14):
        values = {
            "cpu.cores": cores,
            "cpu.user_s_total": busy_cores * (second + 1),
            "cpu.system_s_total": 0.0,
            "cpu.iowait_s_total": 0.0,
            "cpu.idle_s_total": (cores - busy_cores - steal_cores) * (second + 1),
            "cpu.steal_s_total": steal_cores * (second + 1),
            "ours.cpu_s_total": ours_cores * (second + 1),
        }
        values |= {f"pressure.{kind}_us_total": 1e6 * share * (second + 1) for kind, share in (stalled or {}).items()}
        numbers[T0 / S + second] = values
    return samples(numbers)


def test_other_load_on_a_machine_is_a_warning() -> None:
    captures = {
        ("host", "s1"): os_capture(busy_cores=3.0, ours_cores=2.0),
        ("host", "c1"): os_capture(busy_cores=1.0, ours_cores=1.0),
    }
    found = judged(captures=captures)
    assert not of(found, "other-load:s1").ok
    assert of(found, "other-load:c1").ok
    assert found.valid


def test_stolen_cpu_is_other_load() -> None:
    found = judged(captures={("host", "c1"): os_capture(busy_cores=1.0, ours_cores=1.0, steal_cores=0.5)})
    assert not of(found, "steal:c1").ok
    found = judged(
        dsn="host=server", captures={("host", "s1"): os_capture(busy_cores=1.0, ours_cores=1.0, steal_cores=0.5)}
    )
    assert not of(found, "steal:s1").ok, "on any machine"
    assert found.valid


@pytest.mark.parametrize(
    ("host", "stalled", "ok"),
    [
        ("c1", {"cpu": 0.19, "memory": 0.04, "io": 0.9}, True),
        ("c1", {"cpu": 0.21, "memory": 0.0}, False),
        ("s1", {"cpu": 0.9, "memory": 0.04, "io": 0.9}, True),
        ("s1", {"memory": 0.06}, False),
    ],
)
def test_resource_pressure_is_a_warning_unless_the_load_causes_it(
    host: str, stalled: dict[str, float], ok: bool
) -> None:
    found = judged(captures={("host", host): os_capture(busy_cores=1.0, ours_cores=1.0, stalled=stalled)})
    assert of(found, f"pressure:{host}").ok is ok
    assert found.valid


def test_a_client_with_all_cores_busy_is_a_bottleneck_though_no_worker_is_busy() -> None:
    busy = {("host", "c1"): os_capture(busy_cores=3.6, ours_cores=3.6)}
    assert not judged(captures=busy).valid
    assert not of(judged(captures=busy), "client-host:c1").ok
    assert judged(captures={("host", "c1"): os_capture(busy_cores=3.3, ours_cores=3.3)}).valid
    held = judged(ladder(arrival=Open(rate=1000.0)), rate=1000.0, captures=busy)
    assert held.valid, "an open rate that was held shows that it was not"
    assert not of(held, "client-host:c1").ok
    assert judged(search(), rate=2000.0, captures=busy).valid


def test_a_server_that_runs_already_does_not_count_as_other_load() -> None:
    found = judged(dsn="host=server", captures={("host", "s1"): os_capture(busy_cores=3.0, ours_cores=0.1)})
    assert not any(finding.check.startswith("other-load:s1") for finding in found.findings)


def test_local_agents_are_one_tree_counted_once() -> None:
    captures = {("host", name): os_capture(busy_cores=3.0, ours_cores=2.9) for name in ("s1", "c1")}
    stage = ladder(arrival=Closed())
    study = plan(stage)
    local = dataclasses.replace(study, hosts=tuple(dataclasses.replace(host, address="local") for host in study.hosts))
    start = T0 + RAMP_S * S
    about = {"transactions": mix(10_000), "ended_in_window": 10_000, "client_cpu_fraction": 0.99}
    load = load_result(**about, measure_start_ns=start, measure_end_ns=start + 10 * S, seconds_produced=0)
    about = {"loads": {"c1": load}, "t0_ns": T0, "recordings": {key: Recording(one) for key, one in captures.items()}}
    found = summarise(observations(stage, plan=local, **about))
    assert of(found, "other-load:local").ok
    assert found.valid


@pytest.mark.parametrize(
    ("starts_ms", "found"),
    [
        ((), []),
        ((1_700_000_000_000, 1_700_000_001_000), []),  # known to the second
        (
            (1_700_000_000_000, 1_700_000_300_000),
            ["the server was started again during the iteration, at 22:18:20 UTC (before that at 22:13:20)"],
        ),
    ],
)
def test_a_restart_of_the_server_is_a_warning(starts_ms: tuple[int, ...], found: list[str]) -> None:
    ended = judged(load={"server_starts_ms": starts_ms})
    assert [f.evidence for f in ended.findings if f.check == "restart:db" and not f.ok] == found
    assert ended.valid
    crash = Fault(name="crash", tunings=(), for_s=1.0, when=Expression(text="live.tps > 1"))
    planned = judged(ladder(faults=(crash,)), load={"server_starts_ms": starts_ms})
    assert not [f for f in planned.findings if f.check == "restart:db"]


@pytest.mark.parametrize(("dsn", "found"), [("postgresql://db/x", True), (None, False)])
def test_a_restart_between_iterations_is_a_warning_where_nothing_of_the_plan_does_it(
    dsn: str | None, found: bool
) -> None:
    before = judged(dsn=dsn, load={"server_starts_ms": (1_700_000_000_000, 1_700_000_000_000)})
    ended = judged(dsn=dsn, load={"server_starts_ms": (1_700_000_300_000,) * 2}, before=before)
    text = "the server was started again since the iteration before, at 22:18:20 UTC (before that at 22:13:20)"
    assert [f.evidence for f in ended.findings if f.is_restart] == [text] * found


@pytest.mark.parametrize(
    ("stage", "paused_s", "reported", "valid"),
    [
        (ladder(limits=LENIENT), 1.9, False, True),
        (ladder(limits=LENIENT), 2.0, True, True),
        (ladder(limits=LENIENT), 9.9, True, True),
        (ladder(limits=LENIENT), 10.0, True, False),
        (search(limits=LENIENT), 10.0, True, False),
    ],
)
def test_a_pause_of_a_load_process_is_reported_from_2_s_and_voids_from_10_s(
    stage: Ladder | Search, paused_s: float, reported: bool, valid: bool
) -> None:
    found = judged(stage, rate=1000.0, load={"pause_longest_ns": round(paused_s * S)})
    assert found.valid is valid
    assert [f.evidence for f in found.findings if f.check == "pause:load@c1"] == (
        [f"a load process of c1 did not run for {paused_s:.3g} s (limit 10 s)"] if reported else []
    )


def test_an_agent_without_an_answer_for_less_than_a_lease_has_a_warning() -> None:
    found = judged(silences={"s1": 2.1, "c1": 6.4})
    assert found.valid
    assert [f.check for f in found.findings if f.check.startswith("pause")] == ["pause:agent@c1"]
    assert of(found, "pause:agent@c1").evidence.startswith("no answer from c1 for 6.4 s")
