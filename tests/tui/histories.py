"""Invented runs for the tests of the screens: events with fixed times."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from functools import reduce as fold
from typing import TypeAlias

from proveout.proto import events as e
from proveout.proto.events import FaultSeen
from proveout.proto.wire.results import TuningState
from proveout.tui.run_view import RunView, reduce

Timed: TypeAlias = e.Event | tuple[float, e.Event]
"""An event, or seconds after `START_S` and an event."""
START_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC
PLAN = {
    "stages": [
        {"id": "load", "kind": "populate"},
        {"id": "base", "kind": "ladder", "threads": [1, 4, 16], "repeat": 3},
        {"id": "cap", "kind": "search"},
    ],
    "verdicts": [{"id": "scales"}, {"id": "quick"}, {"id": "no-errors"}],
}
HOSTILE = "[red]x[/red]\x1b[31mevil\u202e"


def started(plan: object = PLAN, estimate_s: float = 180.0) -> e.RunStarted:
    return e.RunStarted(
        run_id="study-20260101-000000-abcd", epoch=1, name="study", title="Scaling", digest="d", plan=plan, version="1",
        estimate_s=estimate_s,
    )  # fmt: skip


def identity(rung: int, repeat: int, attempt: int = 1, stage: str = "base") -> e.IterationId:
    return e.IterationId(stage=stage, rung=rung, repeat=repeat, attempt=attempt)


def stage(name: str, kind: str = "ladder", iterations: int = 9, estimate_s: float = 140.0) -> e.StageStarted:
    return e.StageStarted(stage=name, kind=kind, iterations=iterations, estimate_s=estimate_s)


def done(name: str, seconds: float = 1.0) -> e.StageFinished:
    return e.StageFinished(stage=name, outcome="ok", seconds=seconds)


def begun(rung: int, repeat: int) -> e.IterationStarted:
    return e.IterationStarted(
        id=identity(rung, repeat), rate=None, starts_in_s=0.5, ramp_up_s=3, measure_s=10, ramp_down_s=2
    )


def ended(
    rung: int, repeat: int, tps: float, *, valid: bool = True, attempt: int = 1, stage: str = "base"
) -> e.IterationFinished:
    finding = e.ValidityFinding(check="client", ok=valid, evidence="the client was at 97 % of its CPU")
    times = {"avg_us": 310.0, "p50_us": 240.0, "p95_us": 900.0, "p99_us": 2150.0}
    names = ("GetSubscriberData", "GetAccessData", "UpdateLocation", HOSTILE)
    kinds = tuple(
        e.TransactionSummary(
            name=name, ok=1000 * n, logical_failures=17 * n, errors={"40001": n}, retried=0, missed=0, tps=tps / 4,
            response=times, service=times,
        )
        for n, name in enumerate(names, 1)
    )  # fmt: skip
    waits = (
        e.WaitLine(event="CPU", wait_class="CPU", seconds=8.1, db_time_fraction=0.62),
        e.WaitLine(event="WALSync", wait_class="IO", seconds=4.9, db_time_fraction=0.38, average_us=812.0),
    )
    return e.IterationFinished(
        id=identity(rung, repeat, attempt, stage), rate=None, measure_s=10.0, valid=valid, findings=(finding,), transactions=kinds,
        waits=waits, metrics={"tps": tps, "response": times},
    )  # fmt: skip


def up(host: str) -> e.AgentUp:
    return e.AgentUp(host=host, agent_version="1", machine_id="m", cores=8, offset_ns=120_000, uncertainty_ns=35_000)


def readings(host: str, busy: float) -> e.HostTick:
    gib = 2.0**30
    values = {
        "cpu.busy_fraction": busy,
        "memory.used_bytes": 5 * gib,
        "memory.total_bytes": 16 * gib,
        "disk.read_bytes_per_s[sda]": 1e6,
        "disk.write_bytes_per_s[sda]": 5e7,
        "network.received_bytes_per_s[eth0]": 3e6,
        "network.sent_bytes_per_s[eth0]": 9e6,
    }
    return e.HostTick(host=host, capture="host", readings=values)


def tick(second: int, rung: int = 4, repeat: int = 1) -> e.LoadTick:
    window = "ramp_up" if second < 3 else "measure" if second < 13 else "ramp_down"
    tps = 9000.0 * min(1.0, (second + 1) / 3) + 400.0 * (second * 7 % 5)
    return e.LoadTick(
        id=identity(rung, repeat), second=second, window=window, tps=tps, avg_us=310.0,  # type: ignore[arg-type]
        p50_us=240.0 + 10 * (second % 4), p95_us=900.0 + 40.0 * (second * 5 % 6), p99_us=2000.0 + 150.0 * (second * 3 % 7),
        errors=0,
    )  # fmt: skip


def ticks(rung: int, repeat: int, count: int) -> list[e.LoadTick]:
    return [tick(second, rung, repeat) for second in range(count)]


def silent(event: e.LoadTick, errors: int) -> e.LoadTick:
    """The same second without an answer."""
    return dataclasses.replace(event, tps=0.0, avg_us=None, p50_us=None, p95_us=None, p99_us=None, errors=errors)


def opening() -> list[e.Event]:
    return [started(), up("db1"), up("client1"), stage("load", "populate", 0, 10.0)]


def climbing() -> list[e.Event]:
    whole = [ended(rung, repeat, 3000.0 * rung**0.5 + 55.0 * repeat) for rung in (1, 4) for repeat in (1, 2, 3)]
    return [
        *opening(),
        done("load", 9.0),
        stage("base"),
        *whole,
        begun(16, 1),
        *ticks(16, 1, 9),
        readings("db1", 0.83),
        readings("client1", 0.41),
        e.HostTick(host="db1", capture="lag", readings={"lag.seconds": 0.1}),
        e.HostTick(host="db1", capture="lag", readings={"lag.seconds": 0.3}),
        e.HostTick(host="db1", capture="lag", readings={"lag.seconds": 0.5}),
        transactions(16, 1, "measure", 6.0),
        waits(16, 1, 6.0),
        agents(db1=0.4, client1=1.1),
    ]


def transactions(rung: int, repeat: int, window: str, seconds: float) -> e.TransactionsTick:
    kinds = ("GetSubscriberData", "GetAccessData", "UpdateLocation", HOSTILE)
    lines = tuple(
        e.LoadLine(
            name=name, tps=2300.0 / n, ok=int(2100 * seconds / n), logical_failures=int(200 * seconds / n),
            errors=n - 1,
            p50_us=250.0 * n, p95_us=880.0 * n, p99_us=2100.0 * n,
        )
        for n, name in enumerate(kinds, 1)
    )  # fmt: skip
    return e.TransactionsTick(id=identity(rung, repeat), window=window, seconds=seconds, transactions=lines)  # type: ignore[arg-type]


def waits(rung: int, repeat: int, seconds: float) -> e.WaitsTick:
    lines = (
        e.WaitLine(event="CPU", wait_class="CPU", seconds=5.2, db_time_fraction=0.65),
        e.WaitLine(event="WALWrite", wait_class="LWLock", seconds=2.8, db_time_fraction=0.35),
    )
    return e.WaitsTick(id=identity(rung, repeat), host="db1", capture="waits", seconds=seconds, waits=lines)


def agents(**silent_s: float) -> e.AgentsTick:
    lines = tuple(
        e.AgentLine(host=host, offset_ns=118_000, uncertainty_ns=31_000, silent_s=silence)
        for host, silence in silent_s.items()
    )
    return e.AgentsTick(lease_s=10.0, beat_s=2.0, agents=lines)


def foreseen(name: str, outcome: str) -> e.VerdictForeseen:
    return e.VerdictForeseen(
        id=name, title=f"What {name} says", severity="fail", outcome=outcome,  # type: ignore[arg-type]
        evidence="base.at(4).tps.mean is 6,110 (95 % CI 5,970 … 6,250, n = 3), wanted at least 6,000",
    )  # fmt: skip


def searching() -> list[e.Event]:
    """The ladder has ended and has two provisional verdicts; the search continues; an agent has missed its beats."""
    return [
        *climbing(),
        ended(16, 1, 9000.0),
        done("base", 120.0),
        foreseen("scales", "PASS"),
        foreseen("quick", "FAIL"),
        stage("cap", "search", 8, 60.0),
        e.ProbeFinished(
            stage="cap", probe=1, phase="bracket", rate=4000.0, accepted=True, evidence="lag does not grow"
        ),
        agents(db1=0.4, client1=6.2),
    ]


def troubled() -> list[e.Event]:
    return [
        *climbing(),
        ended(16, 1, 9000.0, valid=False),
        e.Notice(level="warning", host=HOSTILE, text=f"said {HOSTILE}"),
        e.AgentLost(host="client1", reason="no answer for 10.0 s"),
    ]


def broken() -> list[e.Event]:
    """A fault that is in place: the system does not answer from the seventh second on."""
    fault = FaultSeen(id=identity(16, 1), host="db1", fault="crash", number=1, step="begins", at_s=3.2)
    whole = climbing()
    last = max(n for n, event in enumerate(whole) if isinstance(event, e.LoadTick) and event.second < 7)
    down = [silent(second, 14) for second in ticks(16, 1, 11)[7:]]
    return [*whole[: last + 1], fault, dataclasses.replace(fault, step="in_place", after_s=0.012), *down]


LOADS_PLAN = {
    "hosts": [{"name": "db1", "roles": ["server"]}, {"name": "client1", "roles": ["client"]}],
    "stages": [
        {"id": "load", "kind": "populate"},
        {
            "id": "base", "kind": "ladder", "threads": [1, 4, 16], "repeat": 3,
            "windows": {"phases": [["calm", 4.0], ["spike", 6.0]]},
            "arrival": {
                "kind": "phased", "of": "rate",
                "levels": [
                    {"for_s": 4.0, "values": [8000.0], "at_s": [0.0]},
                    {"for_s": 6.0, "values": [12_000.0], "at_s": [0.0]},
                ],
            },
            "loads": [
                {"name": "orders", "workload": "shop", "target": "db", "share": [1, 1], "threads": None, "rate": None},
                {"name": "reports", "workload": "queries", "target": "db", "share": None, "threads": 2, "rate": 20.0},
            ],
        },
    ],
    "verdicts": [{"id": "scales"}, {"id": "quick"}],
}  # fmt: skip


def with_loads() -> list[e.Event]:
    """Two loads at the same time, of which one has phases; the second phase is under way."""

    def of_both(event: e.LoadTick) -> e.LoadTick:
        orders = e.LoadLine(name="orders", tps=event.tps, p50_us=240.0, p95_us=900.0, p99_us=2150.0, errors=0)
        reports = e.LoadLine(name="reports", tps=19.0, p50_us=41_000.0, p95_us=66_000.0, p99_us=97_000.0, errors=1)
        return dataclasses.replace(event, loads=(orders, reports))

    going = [of_both(event) for event in ticks(16, 1, 9)]
    first = dataclasses.replace(
        ended(4, 1, 6055.0), metrics={"tps": 6055.0, "loads": {"orders": {"tps": 6055.0}, "reports": {"tps": 20.0}}}
    )
    begin = dataclasses.replace(begun(16, 1), rate=10_400.0)
    opened = [started(LOADS_PLAN), up("db1"), up("client1"), stage("base")]
    return [*opened, first, begin, *going, readings("db1", 0.83), readings("client1", 0.41), agents(db1=0.4)]


def judged() -> list[e.Event]:
    def verdict(name: str, outcome: str) -> e.VerdictReached:
        return e.VerdictReached(
            id=name, title=f"What {name} says", severity="fail", outcome=outcome, check="c",  # type: ignore[arg-type]
            evidence="base.at(4).tps.mean is 6,110 (95 % CI 5,970 … 6,250, n = 3), wanted at least 6,000",
        )  # fmt: skip

    return [
        *climbing(),
        done("base", 120.0),
        e.ProbeFinished(
            stage="cap", probe=1, phase="bracket", rate=4000.0, accepted=True, evidence="lag does not grow"
        ),
        e.ProbeFinished(stage="cap", probe=2, phase="bisect", rate=8000.0, accepted=False, evidence="lag grows"),
        e.SearchFinished(stage="cap", rate=4000.0, probes=2, reason="within 10 %", upper=4400.0, confirmations=9),
        done("cap", 30.0),
        verdict("scales", "PASS"),
        verdict("quick", "FAIL"),
        verdict("no-errors", "INCONCLUSIVE"),
        e.RunFinished(status="finished", exit_code=1, reason="a verdict failed", seconds=60.0),
    ]


def tuned() -> list[e.Event]:
    """Applied and verified on two hosts; one host is reverted, on the other a change is outstanding."""

    def seen(host: str, act: str, *states: TuningState) -> e.TuningSeen:
        return e.TuningSeen(host=host, act=act, states=states)  # type: ignore[arg-type]

    def state(name: str, outcome: str, *lines: str) -> TuningState:
        return TuningState(name=name, operation="sysctl", outcome=outcome, lines=lines)  # type: ignore[arg-type]

    return [
        *opening(),
        seen(
            "db1", "apply", state("little swapping", "applied", "vm.swappiness: 60 -> 10"), state("ports", "unchanged")
        ),
        seen("client1", "apply", state(HOSTILE, "applied", "-net.core.somaxconn = 128", "+net.core.somaxconn = 4096")),
        seen("db1", "look", state("little swapping", "in_place"), state("ports", "drifted", f"ports: {HOSTILE}")),
        seen("db1", "revert", state("little swapping", "reverted")),
        seen("client1", "revert", state(HOSTILE, "residue", "net.core.somaxconn could not be written")),
    ]


def stamped(events: Sequence[Timed]) -> list[e.Stamped]:
    """A second apart, or at their own times; readings that come with a second of load have its time."""
    found: list[e.Stamped] = []
    for item in events:
        before_s = found[-1].unix_s if found else START_S
        after_s = before_s + (not isinstance(item, (e.HostTick, e.TransactionsTick, e.WaitsTick, e.AgentsTick)))
        at_s, event = (START_S + item[0], item[1]) if isinstance(item, tuple) else (after_s, item)
        found.append(e.Stamped(sequence=len(found) + 1, unix_s=at_s, event=event))
    return found


def view_of(*events: Timed, view: RunView | None = None) -> RunView:
    """The view after these events; `view`: the one before them."""
    return fold(reduce, stamped(events), view or RunView())


class Still:
    """A source that yields all its events at once and then no more, like a run between events."""

    def __init__(self, events: Sequence[e.Event]) -> None:
        self._events = stamped(events)
        self.stops, self.stop_requests = True, 0

    async def batches(self) -> AsyncIterator[Sequence[e.Stamped]]:
        yield self._events
        if not any(isinstance(item.event, e.RunFinished) for item in self._events):
            await asyncio.Event().wait()

    def now_unix_s(self) -> float:
        return self._events[-1].unix_s

    async def stop(self) -> bool:
        self.stop_requests += 1
        return self.stops
