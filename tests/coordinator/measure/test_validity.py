"""Each finding on both sides of its limit, and whether it voids, for an iteration of a ladder and of a probe; and what
the effects of a fault leave to be judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from records import ladder_stage, load_result, observations, plan_of, samples, search_stage
from simulated_load import LENIENT

from proveout.coordinator.measure import faults, validity
from proveout.coordinator.measure.captures import Recording, Window
from proveout.coordinator.measure.load_merge import Observed, streams_of
from proveout.coordinator.measure.summarise import summarise
from proveout.dsl.plan.phases import Level, mean_level
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Fault, Ladder, Limits, Open, Phased, Search, Windows
from proveout.dsl.plan.topology import Capture, Expression, Host, System
from proveout.dsl.workloads.hlr import HLR_TRANSACTIONS
from proveout.proto.events import FaultMeasured, FaultOnLoad, IterationFinished, ValidityFinding
from proveout.proto.wire import results as wire
from proveout.proto.wire.histogram import bin_ns

S, MS, T0, RAMP_S = 1_000_000_000, 1_000_000, 50_000_000_000, 1
WINDOWS = Windows(ramp_up_s=RAMP_S, measure_s=10, ramp_down_s=1)
TYPES = {
    "GetBasicSubscriberData": (35, 1.0),
    "GetNewDestination": (10, 0.15),
    "GetAccessData": (35, 0.625),
    "UpdateSubscriberData": (2, 0.625),
    "UpdateLocation": (14, 1.0),
    "InsertCallForwarding": (2, 0.3125),
    "DeleteCallForwarding": (2, 0.3125),
}
"""The weight of each transaction, and the share of those that succeed."""
NAMES = tuple(TYPES)


def ladder(**changes: Any) -> Ladder:
    return ladder_stage(**{"workload": "hlr", "windows": WINDOWS, **changes})


def search(**changes: Any) -> Search:
    return search_stage(**{"workload": "hlr", "probe": WINDOWS, "confirm": WINDOWS, **changes})


def plan(stage: Ladder | Search, *, addresses: Mapping[str, str] | None = None, dsn: str | None = None) -> Plan:
    at = {"s1": "server:7700", "c1": "client:7700"} | dict(addresses or {})
    return plan_of(
        stage,
        hosts=tuple(Host(name=name, roles=(), address=address) for name, address in at.items()),
        systems=(System(name="db", engine="postgres", host="s1", provision=None if dsn else "embedded", dsn=dsn),),
        workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 100_000),)),),
        captures=(Capture(name="host", kind="os", every_s=1.0, hosts=("s1", "c1")),),
    )


def mix(
    total: int, *, errors: int = 0, late_ns: int = 1000, of: Mapping[str, tuple[int, float]] = TYPES
) -> tuple[wire.TransactionLoad, ...]:
    loads = []
    for name, (weight, success) in of.items():
        count = total * weight // 100
        ok, failed = round(count * success), (("08006", errors),) if errors and weight == 35 else ()
        counts = wire.TransactionCounts(name=name, ok=ok, logical_failures=count - ok, errors=failed)
        times, late = (bin_ns(np.full(count, ns)) for ns in (2 * MS, late_ns))
        loads.append(wire.TransactionLoad(counts=counts, response=times, service=times, schedule=late))
    return tuple(loads)


def second(number: int, ok: int, bad: int = 0, first: int = RAMP_S) -> wire.LoadSecond:
    """A second of one transaction; those from `first` on are in the measure window."""
    counts = wire.TransactionCounts(name=NAMES[0], ok=ok, errors=(("57P01", bad),) * bool(bad))
    load = wire.TransactionLoad(counts=counts, service=bin_ns(np.full(ok, 2 * MS)))
    window: Any = "measure" if number >= first else "ramp_up"
    return wire.LoadSecond(second=number, window=window, start_ns=T0 + number * S, duration_s=1.0, transactions=(load,))


def judged(
    stage: Ladder | Search | None = None,
    *,
    per_second: Sequence[int] = (1000,) * 10,
    ramp_up: Sequence[int] = (),
    load: Mapping[str, Any] | None = None,
    captures: Mapping[tuple[str, str], list[wire.CaptureSample]] | None = None,
    addresses: Mapping[str, str] | None = None,
    dsn: str | None = None,
    **about: Any,
) -> IterationFinished:
    """An iteration with that many transactions in each second; `load`: other fields of its result."""
    stage, total, first = stage or ladder(), sum(per_second), len(ramp_up) or RAMP_S
    start = T0 + first * S
    fields: dict[str, Any] = {
        "transactions": mix(total),
        "ended_in_window": total,
        "measure_start_ns": start,
        "measure_end_ns": start + len(per_second) * S,
        "seconds_produced": len(per_second),
    }
    counts = enumerate((*ramp_up, *per_second), first - len(ramp_up))
    return summarise(
        observations(
            stage,
            plan=plan(stage, addresses=addresses, dsn=dsn),
            loads={"c1": load_result(**(fields | dict(load or {})))},
            seconds={"c1": [second(n, ok, first=first) for n, ok in counts]},
            recordings={key: Recording(found) for key, found in (captures or {}).items()},
            t0_ns=T0,
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


# ---- both sides of each limit --------------------------------------------------------------------------------------


def late(us: float, *, runqueue: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A load of 10,000 transactions of 2 ms whose answers were handled with this delay."""
    times = bin_ns(np.full(100, round(us * 1e3)))
    waited = {"runqueue_s": runqueue * 10, "runqueue_fraction": runqueue}
    return {"handling": (wire.Handling(late=times, **({"answers": 10_000, "stamped": 0} | waited | fields)),)}


def os_capture(
    host: str, busy: float, ours: float, *, steal: float = 0.0, stalled: Mapping[str, float] | None = None
) -> dict[tuple[str, str], list[wire.CaptureSample]]:
    """Samples of a host with 4 cores, of which that many are in use."""
    grows = {
        "cpu.user_s_total": busy,
        "cpu.system_s_total": 0.0,
        "cpu.iowait_s_total": 0.0,
        "cpu.idle_s_total": 4.0 - busy - steal,
        "cpu.steal_s_total": steal,
        "ours.cpu_s_total": ours,
    } | {f"pressure.{kind}_us_total": 1e6 * share for kind, share in (stalled or {}).items()}
    at = range(-1, 14)
    values = {T0 / S + n: {"cpu.cores": 4.0} | {name: each * (n + 1) for name, each in grows.items()} for n in at}
    return {("host", host): samples(values)}


def stalls(*spans: tuple[float, float]) -> dict[str, Any]:
    return {"stalls": tuple(wire.Stall(start_ns=round(start * S), end_ns=round(end * S)) for start, end in spans)}


def starts(*seconds: int) -> dict[str, Any]:
    return {"server_starts_ms": tuple(1_700_000_000_000 + 1000 * at for at in seconds)}


def case(name: str, check: str, ok: bool | None, state: str, evidence: str = "", **about: Any) -> Any:
    """`ok`: None without a finding. `state`: that of the iteration: it "counts", is a "breach" of the plan, or "void"."""
    return pytest.param(check, ok, state, evidence, about, id=name)


LATE = {"transactions": mix(10_000, late_ns=9 * MS)}
BUSY = {"client_cpu_fraction": 0.97}
ON_SERVER = {"c1": "server:7700"}
LOCAL = {"s1": "local", "c1": "local"}
AT_RATE: dict[str, Any] = {"stage": ladder(arrival=Open(rate=1000.0)), "rate": 1000.0}
PROBE: dict[str, Any] = {"stage": search(), "rate": 1000.0}
NOTHING: dict[str, Any] = {"per_second": [0] * 10}
RISING = [500 + 100 * at for at in range(10)]
FULL = os_capture("c1", 3.6, 3.6)
SHIFTED = {name: (weight, TYPES[name][1]) for name, weight in zip(NAMES, (30, 15, 35, 2, 14, 2, 2), strict=True)}
ALL_WELL = {"transactions": mix(10_000, of={name: (weight, 1.0) for name, (weight, _) in TYPES.items()})}
RAMP = ladder(arrival=Phased(levels=(Level(for_s=10.0, at_s=(0.0, 10.0), values=(100.0, 1900.0)),)))
CLIMB: dict[str, Any] = {
    "stage": RAMP,
    "rate": 1000.0,
    "per_second": (200, 400, 600, 800, 1000, 1000, 1200, 1400, 1600, 1800),
}
NOISE = [int(count) for count in np.random.default_rng(5).poisson(6, 60)]
assert np.std(NOISE, ddof=1) / np.mean(NOISE) > Limits().tps_cv_max
PLANNED = ladder(faults=(Fault(name="crash", tunings=(), for_s=1.0, when=Expression(text="live.tps > 1")),))
ELSEWHERE = "postgresql://db/x"
SINCE = "since the iteration before, at 22:18:20 UTC (before that at 22:13:20)"
PAUSED = "a load process of c1 did not run for {} s (limit 10 s)"


def paused(seconds: float, **about: Any) -> dict[str, Any]:
    return {"stage": ladder(limits=LENIENT), "load": {"pause_longest_ns": round(seconds * S)}} | about


@pytest.mark.parametrize(
    ("check", "ok", "state", "evidence", "about"),
    [
        case("throughput rises", "steady-state", False, "counts",
             "TPS not steady: drift +26.4 % ± 0 % over 10 s (limit 10 %)", per_second=[1000 + 30 * n for n in range(10)]),
        case("throughput swings", "steady-state", False, "counts",
             "TPS not shown to be steady: drift -5.5 % ± 17 % over 10 s (limit 10 %)",
             per_second=[1000, 1400, 900, 1300, 950, 1250, 1000, 1350, 900, 1300]),
        case("a ramp of the plan", "steady-state", True, "counts", "100/s to 1,900/s", **CLIMB),
        case("the rate of a ramp", "rate-held", True, "counts", **CLIMB),
        case("throughput stalls", "variation", False, "counts",
             per_second=[1000, 0, 1000, 1000, 0, 1000, 0, 1000, 1000, 0]),
        case("a short window", "variation", False, "counts", per_second=[1000, 0, 1000]),
        case("counting noise of a slow load", "variation", True, "counts", per_second=NOISE),
        case("one boot id is one machine", "client-cpu", False, "counts", load=BUSY, boots={"s1": "b", "c1": "b"}),
        case("two boot ids", "client-cpu", False, "void", load=BUSY, boots={"s1": "b", "c1": "c"}),
        case("no boot ids", "client-cpu", False, "void", load=BUSY, boots={"s1": "", "c1": ""}),
        case("busy, but the rate was held", "client-cpu", False, "counts", load=BUSY, **AT_RATE),
        case("busy and late", "client-cpu", False, "void", load=BUSY | LATE, **AT_RATE),
        case("busy and late in a probe", "client-cpu", False, "counts", load=BUSY | LATE, **PROBE),
        case("answers wait for less than a tenth", "client-handling", True, "counts", load=late(190.0)),
        case("answers wait for more", "client-handling", False, "void", load=late(210.0)),
        case("on the server", "client-handling", False, "counts", load=late(210.0), addresses=ON_SERVER),
        case("four answers a transaction", "client-handling", False, "void", load=late(60.0, answers=40_000)),
        case("a blocking driver: 100 µs for a CPU", "client-handling", True, "counts",
             load=late(0.0, answers=0, runqueue=0.1)),
        case("a blocking driver: 300 µs", "client-handling", False, "void", load=late(0.0, answers=0, runqueue=0.3)),
        case("far from the ceiling", "client-ceiling", True, "counts",
             "this client can do 2,000/s with this driver; the run reached 50 %",
             load={"ceiling_apart_per_s": 2000.0}),
        case("near the ceiling", "client-ceiling", False, "void", "the run reached 95.2 %",
             load={"ceiling_apart_per_s": 1050.0}),
        case("near it, on the server", "client-ceiling", False, "counts", "client and system share a machine",
             load={"ceiling_shared_per_s": 1050.0}, addresses=ON_SERVER),
        case("no ceiling", "client-ceiling", None, "counts", load={"ceiling_apart_per_s": None}),
        case("all cores of a client", "client-host:c1", False, "void", captures=FULL),
        case("not all cores", "client-host:c1", True, "counts", captures=os_capture("c1", 3.3, 3.3)),
        case("all cores, rate held", "client-host:c1", False, "counts", captures=FULL, **AT_RATE),
        case("all cores in a probe", "client-host:c1", False, "counts", captures=FULL, stage=search(), rate=2000.0),
        case("99 % of a rate", "rate-held", True, "counts", stage=ladder(arrival=Open(rate=1010.2)), rate=1010.2),
        case("less", "rate-held", False, "breach", stage=ladder(arrival=Open(rate=1010.4)), rate=1010.4),
        case("Poisson arrivals by chance", "rate-held", True, "counts", rate=1025.0,
             stage=ladder(arrival=Open(rate=1025.0, distribution="poisson"))),
        case("a backlog from before the window", "rate-held", False, "counts", "achieved 900/s of 1,000/s due, 90 %",
             load={"transactions": mix(9_000)}, **PROBE),
        case("a probe above the capacity", "rate-held", False, "counts", stage=search(), rate=2000.0),
        case("starts are late", "schedule", False, "counts", "response times include it", load=LATE, **AT_RATE),
        case("a late start", "start-skew", False, "void", load={"start_skew_ns": 60 * MS}),
        case("half as late", "start-skew", True, "counts", load={"start_skew_ns": 30 * MS}),
        case("half as late and uncertain", "start-skew", False, "void", load={"start_skew_ns": 30 * MS},
             clocks={"c1": (0, 25 * MS)}),
        case("a window before T0", "clock", False, "void", clocks={"c1": (2 * S, 0)}),
        case("a clock at both ends", "clock", True, "counts", "± 2 ms at the end, and moved by up to 3 ms",
             clocks={"c1": (0, MS)}, clock_ends={"c1": (3 * MS, 2 * MS)}),
        case("a clock uncertain at the end", "clock", False, "void", clocks={"c1": (0, MS)},
             clock_ends={"c1": (0, 60 * MS)}),
        case("errors", "errors", False, "breach", "server closed the connection",
             load={"transactions": mix(10_000, errors=40), "first_errors": ("server closed the connection",)}),
        case("errors within the plan's limit", "errors", True, "counts",
             stage=ladder(limits=Limits(errors_fraction_max=0.02)), load={"transactions": mix(10_000, errors=40)}),
        case("errors of a probe", "errors", False, "counts", load={"transactions": mix(10_000, errors=40)}, **PROBE),
        case("a probe that is not steady", "steady-state", False, "counts", per_second=RISING, **PROBE),
        case("lost samples", "samples", False, "void", load={"samples_lost": 1}),
        case("lost samples of a probe", "samples", False, "void", load={"samples_lost": 3}, **PROBE),
        case("lost seconds", "seconds", False, "counts", "10 per-second records", load={"seconds_produced": 20}),
        case("another mix", "mix", False, "breach", load={"transactions": mix(10_000, of=SHIFTED)}),
        case("too many successes", "logical-failures", False, "breach", load=ALL_WELL),
        case("no rate is an answer for another load", "logical-failures", False, "breach", load=ALL_WELL, **PROBE),
        case("nothing ended", "load", False, "breach", **NOTHING),
        case("nothing ended, as samples were lost", "samples", False, "void", load={"samples_lost": 1}, **NOTHING),
        case("nothing ended in a probe", "load", False, "counts", **NOTHING, **PROBE),
        case("other load", "other-load:s1", False, "counts", captures=os_capture("s1", 3.0, 2.0)),
        case("own load", "other-load:c1", True, "counts", captures=os_capture("c1", 1.0, 1.0)),
        case("a server that runs already", "other-load:s1", None, "counts", dsn="host=x",
             captures=os_capture("s1", 3.0, 0.1)),
        case("local agents are one tree", "other-load:local", True, "counts", load=BUSY, addresses=LOCAL,
             captures={**os_capture("s1", 3.0, 2.9), **os_capture("c1", 3.0, 2.9)}),
        case("other load beside local agents", "other-load:local", False, "counts", addresses=LOCAL,
             captures={**os_capture("s1", 3.9, 2.9), **os_capture("c1", 3.9, 2.9)}),
        case("stolen CPU of a client", "steal:c1", False, "counts", captures=os_capture("c1", 1.0, 1.0, steal=0.5)),
        case("it is no other load", "other-load:c1", True, "counts", captures=os_capture("c1", 1.0, 1.0, steal=0.5)),
        case("stolen CPU of a server", "steal:s1", False, "counts", dsn="host=x",
             captures=os_capture("s1", 1.0, 1.0, steal=0.5)),
        *(
            case(f"pressure of {host}: {stalled}", f"pressure:{host}", ok, "counts",
                 captures=os_capture(host, 1.0, 1.0, stalled=stalled))
            for host, stalled, ok in (
                ("c1", {"cpu": 0.19, "memory": 0.04, "io": 0.9}, True),
                ("c1", {"cpu": 0.21, "memory": 0.0}, False),
                ("s1", {"cpu": 0.9, "memory": 0.04, "io": 0.9}, True),
                ("s1", {"memory": 0.06}, False),
            )
        ),
        case("no pause", "pause:load@c1", None, "counts", **paused(1.9)),
        case("a pause of 2 s", "pause:load@c1", False, "counts", PAUSED.format(2), **paused(2.0)),
        case("a pause of 9.9 s", "pause:load@c1", False, "counts", PAUSED.format(9.9), **paused(9.9)),
        case("a pause of 10 s", "pause:load@c1", False, "void", PAUSED.format(10), **paused(10.0)),
        case("a pause of 10 s in a probe", "pause:load@c1", False, "void",
             **paused(10.0, stage=search(limits=LENIENT), rate=1000.0)),
        case("an agent is silent", "pause:agent@c1", False, "counts", "no answer from c1 for 6.4 s",
             silences={"s1": 2.1, "c1": 6.4}),
        case("an agent is silent for 2 s", "pause:agent@s1", None, "counts", silences={"s1": 2.1, "c1": 6.4}),
        case("no restart", "restart:db", None, "counts", load=starts()),
        case("a start known to the second", "restart:db", None, "counts", load=starts(0, 1)),
        case("a restart", "restart:db", False, "counts",
             "the server was started again during the iteration, at 22:18:20 UTC (before that at 22:13:20)", load=starts(0, 300)),
        case("a planned restart", "restart:db", None, "counts", stage=PLANNED, load=starts(0, 300)),
        case("a restart of another's server", "restart:db", False, "counts", SINCE, dsn=ELSEWHERE,
             load=starts(300, 300),
             before=judged(dsn=ELSEWHERE, load=starts(0, 0))),
        case("a server of the plan", "restart:db", None, "counts", load=starts(300, 300),
             before=judged(load=starts(0, 0))),
        case("pauses apart", "pauses", False, "counts", "measure for at least four times their distance",
             load=stalls((1.0, 1.3), (8.0, 8.3)), **PROBE),
        case("one pause", "pauses", False, "counts", ", once: measure", load=stalls((1.0, 1.3)), **PROBE),
        case("pauses that the window spans", "pauses", True, "counts",
             load=stalls((0.5, 0.8), (3.0, 3.3), (5.5, 5.8), (8.0, 8.3)), **PROBE),
        case("two rare arrivals", "pauses", None, "counts", load=stalls((3.0, 4.0)), stage=search(), rate=2.0),
    ],
)  # fmt: skip
def test_a_check_on_each_side_of_its_limit(check: str, ok: bool | None, state: str, evidence: str, about: Any) -> None:
    found = judged(**about)
    findings = [finding for finding in found.findings if finding.check == check]
    assert [finding.ok for finding in findings] == ([] if ok is None else [ok])
    assert ("void" if not found.valid else "counts" if found.is_typical else "breach") == state
    for finding in findings:
        assert evidence in finding.evidence
        assert (finding.voids and not finding.ok) == (state == "void")
        assert finding.breach or state != "breach"


def test_a_refusal_is_not_that_of_another_load() -> None:
    assert validity.is_refusal(of(judged(stage=search(), rate=2000.0), "rate-held"))
    assert validity.is_refusal(of(judged(**NOTHING, **PROBE), "load"))
    assert not validity.is_refusal(of(judged(load=ALL_WELL, **PROBE), "logical-failures"))


WARM_UP = tuple(range(300, 2000, 100))


@pytest.mark.parametrize(
    ("seconds", "used", "steady_from_s", "ok", "evidence"),
    [
        ((300, 600, 800, 900, *(1000,) * 14), 8, 4, True, "8s; steady from 4s on"),
        ((300, 600, 800, *(1000,) * 15), 3, 3, True, "3s; steady from 3s on"),
        (WARM_UP, 8, None, False, "8s; none of the windows of 10s that begin between 2s and 8s is shown to be steady"),
        (WARM_UP, 3, None, True, "3s; none of the windows of 10s that begin between 2s and 3s is shown to be steady"),
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


def test_transactions_without_an_answer_are_warnings_with_their_share_and_age() -> None:
    """Of 10,000 due, 9,900 ended, 60 began and waited for up to 3 s, and 40 never began."""
    first, *others = mix(9_900)
    counts = dataclasses.replace(first.counts, missed=40)
    ages, never = bin_ns(np.linspace(S, 3 * S, 60).astype(np.int64)), bin_ns(np.full(40, 2 * S))
    waiting = dataclasses.replace(
        first, counts=counts, service_at_least=ages, response_at_least=ages, schedule_at_least=never
    )
    hangs = (wire.Hang(worker=1, transaction=NAMES[2], waited_ns=12_345 * S),)
    found = judged(rate=1000.0, load={"transactions": (waiting, *others), "hangs": hangs, "hung": 2})
    assert found.metrics["due"]["count"] == 10_000
    for check, evidence in {
        "missed": "40 transactions (0.4 % of those due) never began: percentiles above 99.6 % are not given",
        "unfinished": "60 transactions had no answer within 1 s after the load; the oldest waited for 12,300 s: percentiles "
        "among them are lower bounds",
        "hung:c1": "2 of the terminals of c1 ended no transaction in the measure window; one of load worker 1 waited for "
        "GetAccessData for 12,300 s, until the end of the load, without an answer",
    }.items():
        finding = of(found, check)
        assert (finding.ok, finding.voids, finding.breach, finding.evidence) == (False, False, False, evidence)
    assert {"missed", "unfinished"}.isdisjoint(finding.check for finding in judged(rate=1000.0).findings)


# ---- the effects of a fault are its result; what happens outside of its time is judged as always -----------------


def fault(begins_s: float = 2.0, **changes: Any) -> FaultMeasured:
    fields: dict[str, Any] = {"fault": "crash", "number": 1, "begins_s": begins_s, "in_place_s": begins_s,
                              "healing_s": begins_s + 1.0, "healed_s": begins_s + 1.5}  # fmt: skip
    return FaultMeasured(**(fields | changes))


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ((), ()),
        ((fault(),), ((2.0, 3.5),)),
        ((fault(recovery_s=4.0),), ((2.0, 6.0),)),
        ((fault(recovery_at_least_s=8.0, recovery_level=0.95),), ((2.0, 10.0),)),
        ((fault(recovery_at_least_s=3.0, recovery_level=0.95), fault(5.0, recovery_s=2.0)), ((2.0, 7.0),)),
        ((fault(recovery_at_least_s=3.0, outage_from_s=2.1, outage_s=2.9),), ((2.0, 5.0),)),
        ((fault(recovery_s=0.5, loads=(FaultOnLoad(host="c1", recovery_s=5.0),)),), ((2.0, 7.0),)),
        ((fault(healed_s=None, residue=("x",)),), ((2.0, 10.0),)),
        ((fault(in_place_s=None, healing_s=None, healed_s=None, error="no"),), ((2.0, 2.0),)),
    ],
)
def test_a_fault_disturbs_from_its_begin_until_it_is_healed_and_the_load_is_back(
    measured: tuple[FaultMeasured, ...], expected: tuple[tuple[float, float], ...]
) -> None:
    assert faults.spans(measured, 10.0) == expected


@pytest.mark.parametrize(
    ("found", "left"),
    [
        ((1.0, 5.0), [(1.0, 2.0), (3.5, 5.0)]),
        ((1.0, 2.0), [(1.0, 2.0)]),
        ((0.0, 9.0), [(0.0, 2.0), (3.5, 7.0), (8.0, 9.0)]),
    ],
)
def test_the_part_of_an_outage_outside_of_faults_is_left(
    found: tuple[float, float], left: list[tuple[float, float]]
) -> None:
    assert list(faults.outside([found], [(2.0, 3.5), (7.0, 8.0)])) == left


def findings(
    counts: Sequence[tuple[int, int]],
    *disturbed: tuple[float, float],
    rate: float | None = None,
    stage: Ladder | None = None,
) -> dict[str, ValidityFinding]:
    """The findings on errors, outage and rate of an iteration with (ended, errors) in each second, in whose empty
    seconds nothing ended."""
    stage, total, failed = stage or ladder(), sum(ok for ok, _ in counts), sum(bad for _, bad in counts)
    window = Window(start_ns=T0 + RAMP_S * S, end_ns=T0 + (RAMP_S + len(counts)) * S)
    dead = [index for index, (ok, _) in enumerate(counts) if not ok]
    stall = wire.Stall(start_ns=dead[0] * S, end_ns=(dead[-1] + 1) * S, waiting=((NAMES[0], 4),), errors=9)
    load = load_result(
        transactions=mix(total), ended_in_window=total, measure_start_ns=window.start_ns,
        measure_end_ns=window.end_ns, seconds_produced=len(counts), stalls=(stall,),
    )  # fmt: skip
    seconds = [second(RAMP_S + index, *each) for index, each in enumerate(counts)]
    (stream,) = streams_of(stage, 4, rate, {"c1": load}, {"c1": seconds})
    about: dict[str, Any] = {
        "rate": rate,
        "loads": stream.loads,
        "seconds": stream.seconds,
        "window": window,
        "t0_ns": T0,
    }
    shared = observations(stage, plan=plan(stage), **about)
    seen = Observed(
        **{each.name: getattr(shared, each.name) for each in dataclasses.fields(shared)},
        stream=dataclasses.replace(stream, summaries=()),
        metrics={
            "measure_s": float(len(counts)),
            "errors": {"count": failed, "fraction": failed / (total + failed)},
            "threads": 4,
            "client": {"cpu_fraction": 0.3},
        },
        tps_per_second=[float(ok) for ok, _ in counts],
        disturbed=disturbed,
    )
    return {f.check: f for f in validity.judge(seen) if f.check in ("errors", "outage:db", "rate-held")}


def broken(*about: Any, **more: Any) -> set[str]:
    return {check for check, finding in findings(*about, **more).items() if not finding.ok}


DOWN = [(1000, 0)] * 2 + [(0, 800)] * 4 + [(1000, 0)] * 4


def test_errors_and_an_outage_of_a_fault_are_its_result_and_elsewhere_they_count() -> None:
    both = {"errors", "outage:db"}
    assert broken(DOWN) == both
    assert not broken(DOWN, (1.9, 6.2))
    assert findings(DOWN, (1.9, 6.2))["errors"].evidence == (
        "0 technical errors, 0 % (limit 0.1 %), outside of the faults"
    )
    assert broken(DOWN, (7.0, 8.0)) == both
    assert broken([*DOWN[:-1], (1000, 500)], (1.9, 6.2)) == {"errors"}
    assert "from 2.5 s after the start" in findings(DOWN, (1.9, 2.5))["outage:db"].evidence, "after the recovery"


def test_a_rate_is_held_outside_of_faults() -> None:
    down = [(100, 0)] * 3 + [(0, 0)] * 3 + [(100, 0)] * 4
    held = findings(down, (2.9, 6.1), rate=100.0)["rate-held"]
    assert (held.ok, held.evidence) == (True, "achieved 100/s of 100/s due, 100 % (limit 99 %), outside of the faults")
    assert "rate-held" in broken([*down[:-1], (20, 0)], (2.9, 6.1), rate=100.0)
    nothing = findings(down, (0.0, 10.0), rate=100.0)["rate-held"]
    assert nothing.evidence == "not judged: no second of the window is without a fault"


def test_a_fault_in_a_spike_leaves_the_rate_of_the_other_seconds_to_be_judged() -> None:
    """4 s at 100/s, a spike of 4 s at 1,000/s of which 2 s are lost, 4 s at 100/s: 466/s on average."""
    levels = tuple(Level(for_s=4.0, values=(rate,)) for rate in (100.0, 1000.0, 100.0))
    about: dict[str, Any] = {"rate": mean_level(levels), "stage": ladder(arrival=Phased(levels=levels))}
    spike = [(1000, 0), (0, 900), (0, 900), (1000, 0)]
    for calm, held in (([(100, 0)] * 4, True), ([(90, 0), *[(100, 0)] * 3], True), ([(70, 0)] * 4, False)):
        after = calm if not held else [(100, 0)] * 4
        assert ("rate-held" not in broken([*calm, *spike, *after], (5.0, 7.0), **about)) is held, "10 of 2,800 are few"


@pytest.mark.parametrize(
    ("changes", "ok", "voids", "breach", "evidence"),
    [
        ({}, True, False, False, "in place from 2 s to 3.5 s: errors and outages until the load is back are its result"),
        ({"in_place_s": None, "healing_s": None, "healed_s": None, "error": "nft: no such program"}, False, True, False,
         "it could not begin at 2 s: nft: no such program"),
        ({"healed_s": None, "residue": ("table x",)}, False, False, True,
             "it began at 2 s and was not healed: table x"),
        ({"in_place_s": 12.9, "healing_s": 12.9, "healed_s": 14.0}, False, True, False,
         "planned at 2 s for 1 s, begun at 2 s, and in place only at 12.9 s, after the measure window of 10 s"),
        ({"in_place_s": 9.5, "healing_s": 10.5, "healed_s": 10.8}, False, True, False,
         "planned at 2 s for 1 s, and in place for 500 ms only, from 9.5 s to 10 s, in the measure window of 10 s"),
        ({"in_place_s": None}, False, True, False,
         "planned at 2 s for 1 s, begun at 2 s, and never in place in the measure window of 10 s"),
        ({"in_place_s": 2.06, "healing_s": 3.0}, True, False, False,
         "in place from 2.06 s to 3.5 s: errors and outages until the load is back are its result"),
        ({"healed_s": 11.0}, False, False, False, "in place from 2 s to 11 s, after the end of the measure window"),
    ],
)  # fmt: skip
def test_a_finding_on_each_occurrence(
    changes: dict[str, Any], ok: bool, voids: bool, breach: bool, evidence: str
) -> None:
    planned = Fault(name="crash", tunings=(), for_s=1.0, at_s=2.0)
    (found,) = faults.judge(ladder(faults=(planned,)), [fault(**changes)], 10.0)
    assert (found.check, found.ok, found.voids, found.breach) == ("fault:crash", ok, voids, breach)
    assert found.evidence == evidence


def test_a_planned_occurrence_that_did_not_come_voids_and_a_condition_that_did_not_hold_warns() -> None:
    drawn = Fault(name="crash", tunings=(), for_s=1.0, between_s=(1.0, 8.0), times=2)
    spill = Fault(name="spill", tunings=(), for_s=1.0, when=Expression(text="live.tps > 9"), times=3)
    found = {one.check: one for one in faults.judge(ladder(faults=(drawn, spill)), [fault()], 10.0)}
    assert {check: (one.ok, one.voids) for check, one in found.items()} == {
        "fault:crash": (True, False), "fault:spill": (False, False), "fault:crash/2": (False, True),
    }  # fmt: skip
    assert found["fault:spill"].evidence == ("it did not begin: live.tps > 9 held in no second of the measure window")
