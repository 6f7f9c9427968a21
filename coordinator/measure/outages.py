"""Detect outages of the system under test and disturbances of its machines in an iteration. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from proveout.coordinator.measure.captures import checked
from proveout.coordinator.measure.faults import SpanOfSeconds, outside, union
from proveout.coordinator.measure.load_merge import WHOLE_S, Observed, length_s, merge_loads
from proveout.core.data_classes import record
from proveout.core.numbers import number, quantity, together
from proveout.dsl.plan.loads import target_host
from proveout.dsl.plan.phases import level_at
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Measuring, Phased, Tool
from proveout.dsl.plan.topology import Host
from proveout.proto.events import IterationFinished, ValidityFinding
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import common
from proveout.proto.wire.results import Histogram, Stall

# - **Stalls** (`proto.wire.histogram`): exact times without the end of a transaction. A transaction that waited through
#   one counts by the improbability of its wait. With n other transactions of its type, q = max(1 %, 1 / (n + 1)) of
#   them took longer than v. The probability of a wait w is taken as 1 where w <= v, and as q (v / w)² beyond: a heavier
#   tail than that of a log-normal distribution. The negative logarithms of the probabilities of all waits are added;
#   from `SURPRISE_MIN` on the stall is attributed to the system. A query of 30 s among others of 30 s, or the only one
#   of its type, is therefore not a stall, and a wait of 10 s after a million of 2 ms is one.
# - **Trickles**: whole seconds with less than `TRICKLE_FRACTION` of the usual throughput (and of the rate that is due),
#   in which transactions took at least `TRICKLE_SLOWDOWN` times as long as usual.
#
# The usual behaviour is never taken from the dead time alone: it comes from all seconds of the load, including the
# ramps, and from the valid earlier iterations of the same rung.

OUTAGE = "outage:"
TOLD_S = 2.0
OUTAGE_FRACTION = 1 / 3
"""Down for this share of the measure window is an outage, however short the window is."""
OUTAGE_SHORTEST_S = 1.0
SURPRISE_MIN = 10.0
"""Natural logarithm of one over the chance of the waits: about 1 in 22,000."""
TAIL = 0.01
EXPECTED_MIN = 20.0
"""Transactions that were to end in a time with errors, or in a second, for their absence to say something."""
TRICKLE_FRACTION = 0.05
TRICKLE_SLOWDOWN = 5.0


def bound_s(limit_s: float, window_s: float) -> float:
    """The permitted down time in a measure window: `limits: {pause: …}`, and in short windows a third of them."""
    return min(limit_s, max(min(OUTAGE_SHORTEST_S, 0.9 * window_s), OUTAGE_FRACTION * window_s))


def judge(seen: Observed) -> Iterator[ValidityFinding]:
    """One finding when the system was down for at least `TOLD_S`, otherwise none."""
    window_s = min(length_s(load) for load in seen.loads.values())
    down, what = _down(seen, window_s)
    longest = max(down, key=_length, default=(0.0, 0.0))
    total_s = sum(map(_length, down))
    bound = bound_s(seen.limits.pause_s_max, window_s)
    share = bound_s(math.inf, window_s)
    is_outage = _length(longest) >= bound or total_s >= share
    if not is_outage and _length(longest) < min(TOLD_S, bound):
        return
    longest_text, total, window, limit, most = together("pause_s", _length(longest), total_s, window_s, bound, share)
    text = f"{what} for {longest_text}, from {longest[0]:.1f} s after the start of the measure window on"
    if len(down) > 1:
        text += f", and for {total} in all"
        limit += f" at once, {most} in all"
    text += f" (window {window}, limit {limit})"
    name = seen.stage.id if isinstance(seen.stage, Tool) else seen.stage.target
    check = f"{OUTAGE}{name}" if is_outage else f"pause:{name}"
    yield ValidityFinding(check=check, ok=False, evidence=text, voids=False, breach=is_outage and not seen.is_probe)


def _length(span: SpanOfSeconds) -> float:
    return span[1] - span[0]


def _down(seen: Observed, window_s: float) -> tuple[Sequence[SpanOfSeconds], str]:
    """The times in which the system was down, in order, within the measure window; and what that means, in words."""
    if isinstance(seen.stage, Tool):
        spans, what = _silent_seconds(seen), "no I/O ended"
    else:
        shared = common(load.stalls for load in seen.loads.values())
        usual = _Usual.of(seen, stalled=bool(shared))
        ours = [stall for stall in shared if _is_of_the_system(stall, usual, window_s)]
        slow, what = _trickle(seen, usual), "no transaction ended"
        spans = [*((stall.start_ns / 1e9, stall.end_ns / 1e9) for stall in ours), *slow]
        if slow:
            what += f", or less than {TRICKLE_FRACTION:.0%} of the usual {number(usual.per_second)}/s,"
    clipped = outside(((max(start, 0.0), min(end, window_s)) for start, end in spans), seen.disturbed)
    # A paused load process sent no transactions; `judge_pauses` reports it.
    kept = [span for span in clipped if _length(span) > 0.0 and _paused_s(seen, span) < _length(span) / 2]
    return union(kept), what


def _paused_s(seen: Observed, span: SpanOfSeconds) -> float:
    """The time of the span in which a load process was paused, of the host where that was shortest."""
    paused = (union((one.start_ns / 1e9, one.end_ns / 1e9) for one in load.pauses) for load in seen.loads.values())
    return _length(span) - max(sum(map(_length, outside([span], pauses))) for pauses in paused)


# ---- what is usual -----------------------------------------------------------------------------------------------


@record
class _Usual:
    """The usual behaviour of the system: from this load and the valid earlier iterations of the same rung. `services`
    are of loads that stalled: to add them up is much work."""

    loaded_s: float
    services: Mapping[str, Histogram]
    earlier: Sequence[IterationFinished]
    per_second: float

    @classmethod
    def of(cls, seen: Observed, *, stalled: bool) -> _Usual:
        parts = [seen.seconds.get(host, ()) for host in seen.loads]
        # By end time, so that each transaction counts once: those of a window's result may have ended after it.
        kept = chain.from_iterable(parts) if stalled else ()
        merged = merge_loads(second.transactions for second in kept)
        # Threads begin one after the other in the first half of the ramp-up.
        ramps_s = (sum(second.duration_s for second in part if second.window == "ramp_up") for part in parts)
        settled_s = -max(ramps_s, default=0.0) / 2
        settled = [second.count for second in seen.stream.rows.values() if second.start_s >= settled_s]
        own = float(max(settled, default=0))  # a trickle may leave only a second of the ramp as it usually is
        rates = [float(item.metrics.get("tps", 0.0)) for item in seen.earlier]
        return cls(
            loaded_s=max((sum(second.duration_s for second in part) for part in parts), default=0.0),
            services={item.counts.name: item.service for item in merged},
            earlier=seen.earlier,
            per_second=max(own, float(np.median(rates)) if rates else 0.0),
        )

    def expected(self, length_s: float, window_s: float) -> float:
        """Transactions that usually end in such a time."""
        others_s = max(self.loaded_s, window_s) - length_s
        ended = sum(map(histogram.count, self.services.values()))
        rates = [float(item.metrics.get("tps", 0.0)) for item in self.earlier]
        return length_s * max(ended / others_s if others_s > 0.0 else 0.0, *rates, 0.0)

    def chance(self, name: str, waited_ns: float, waiting: int) -> float:
        """Of a wait of this length of a transaction; 1 where nothing is known of its type."""
        chances = [self._own(name, waited_ns, waiting)]
        for item in self.earlier:
            for recorded in (summary for summary in item.transactions if summary.name == name):
                count = recorded.ok + recorded.logical_failures
                most_us = recorded.service.get("p99_us" if count * TAIL >= 1.0 else "max_us", 0.0)
                chances.append(_tail(waited_ns, count, most_us * 1e3))
        known = [chance for chance in chances if chance is not None]
        return max(known, default=1.0)

    def _own(self, name: str, waited_ns: float, waiting: int) -> float | None:
        """The chance by this load's other transactions of the type: without those that waited, which are its
        longest."""
        held = self.services.get(name, Histogram())
        lows = histogram.lowest_ns(np.asarray(held.indices, dtype=np.int64))
        slow = sum(count for low, count in zip(lows, held.counts, strict=True) if low >= 0.99 * waited_ns)
        count = histogram.count(held)
        others = count - min(waiting, slow)
        if others < 1:
            return None
        rank = (1.0 - _share(others)) * others / count
        return _tail(waited_ns, others, float(histogram.percentile_ns(held, 100.0 * rank) or 0))

    def service_ns(self, name: str, ended: int, spent_ns: int) -> float | None:
        """Mean service time of a type by its transactions outside of slow seconds, or in earlier iterations; None when
        it is not known."""
        if ended:
            return spent_ns / ended
        recorded = [s.service["avg_us"] for i in self.earlier for s in i.transactions if s.name == name and s.service]
        return float(np.median(recorded)) * 1e3 if recorded else None


def _share(others: int) -> float:
    return max(TAIL, 1.0 / (others + 1))


def _tail(waited_ns: float, others: int, most_ns: float) -> float | None:
    """The chance of a wait among `others` transactions, of which `_share` took longer than `most_ns`; None when there
    are none."""
    if others < 1:
        return None
    return 1.0 if waited_ns <= most_ns else _share(others) * (most_ns / waited_ns) ** 2


# ---- stalls ------------------------------------------------------------------------------------------------------


def _is_of_the_system(stall: Stall, usual: _Usual, window_s: float) -> bool:
    length_ns = stall.end_ns - stall.start_ns
    if stall.errors and usual.expected(length_ns / 1e9, window_s) >= EXPECTED_MIN:
        return True
    surprise = 0.0
    for name, waiting in stall.waiting:
        chance = usual.chance(name, length_ns / 2, waiting)
        surprise += waiting * math.log(1.0 / max(chance, 1e-300))
    return surprise >= SURPRISE_MIN


# ---- trickles ----------------------------------------------------------------------------------------------------


def _trickle(seen: Observed, usual: _Usual) -> list[SpanOfSeconds]:
    """Whole seconds of the window in which hardly anything ended, and that slowly; not of loads that take turns, which
    are idle in between."""
    if isinstance(seen.stage, Ladder) and seen.stage.versus_s:
        return []
    slow = {
        at: row
        for at, row in seen.stream.rows.items()
        if (due := min(usual.per_second, _offered(seen, row.start_s))) >= EXPECTED_MIN
        and row.count <= TRICKLE_FRACTION * due
    }
    times = _times(seen, slow) if slow else {}
    took_ns = normal_ns = 0.0
    for (second, name), (ended, spent_ns) in times.items():
        fine = times.get((None, name), (0, 0))
        if second is not None and ended and (mean_ns := usual.service_ns(name, *fine)) is not None:
            took_ns += spent_ns
            normal_ns += ended * mean_ns
    if normal_ns <= 0.0 or took_ns < TRICKLE_SLOWDOWN * normal_ns:
        return []
    return [(row.start_s, row.start_s + 1.0) for row in slow.values() if row.measured]


def _times(seen: Observed, slow: Collection[int]) -> dict[tuple[int | None, str], tuple[int, int]]:
    """Transactions that ended, and their service time, ns, by type: of each of the slow seconds, and of all other whole
    ones, None, together."""
    found: dict[tuple[int | None, str], tuple[int, int]] = {}
    for second in chain.from_iterable(seen.seconds.get(host, ()) for host in seen.loads):
        if second.duration_s >= WHOLE_S and second.second in seen.stream.rows:
            for item in second.transactions:
                key = second.second if second.second in slow else None, item.counts.name
                ended, spent_ns = found.get(key, (0, 0))
                ended += item.counts.ok + item.counts.logical_failures
                found[key] = ended, spent_ns + item.service.sum_ns
    return found


def _offered(seen: Observed, start_s: float) -> float:
    """Arrivals that are due in a second; without bound where they follow no schedule."""
    if seen.rate is None:
        return math.inf
    stage = seen.stage
    if isinstance(stage, Ladder) and isinstance(stage.arrival, Phased):
        return level_at(stage.arrival.levels, start_s + 0.5)
    return seen.rate


# ---- outside programs --------------------------------------------------------------------------------------------


def _silent_seconds(seen: Observed) -> list[SpanOfSeconds]:
    """Of a tool only the seconds are known: the longest run without any I/O, where its other seconds or earlier
    iterations expect some."""
    began, seconds = longest_silence(seen.tps_per_second)
    window_s = min(length_s(load) for load in seen.loads.values())
    ended = sum(load.ended_in_window for load in seen.loads.values())
    rates = [float(item.metrics.get("tps", 0.0)) for item in seen.earlier]
    others_s = window_s - seconds
    usual = max([ended / others_s if others_s > 0.0 else 0.0, *rates])
    return [(float(began), float(began + seconds))] if seconds * usual >= EXPECTED_MIN else []


def longest_silence(per_second: Sequence[float]) -> tuple[int, int]:
    """The longest run of zeros: the index of its first, and how many; (0, 0) when there is none."""
    best, began = (0, 0), 0
    for index, value in enumerate((*per_second, 1.0)):
        if value > 0.0:
            if index - began > best[1]:
                best = (began, index - began)
            began = index + 1
    return best


# - `other-load`: CPU used by other processes, only on machines without a server that proveout does not provision.
# - `steal`: CPU that the hypervisor gave to other guests, on every machine.
# - `pressure` (PSI, Documentation/accounting/psi.rst of Linux): memory stalls on every machine, because a database or a
#   load that waits for memory measures the pager; CPU stalls on machines that only generate load, where they delay the
#   schedule. A server's own stalls for CPU and I/O are its response to the load and are not judged.
# - `pause`: the time for which a load process or an agent did not run (a stopped process, a virtual machine that is
#   migrated, no free CPU). A pause of at least `TOLD_S` is a warning. From the stage's limit `pause` on (10 s by
#   default, the length of a lease) a pause of a load process voids the iteration, also that of a search's probe. The
#   silence of an agent is a warning, as a silence of a whole lease loses the agent, and pauses of load processes are
#   measured by these processes. Pauses of the system under test: `outages`.

LOCAL = "local"
OTHER_CPU_MAX = 0.10
STEAL_MAX = 0.05
MEMORY_STALL_MAX = 0.05
CLIENT_STALL_MAX = 0.20
SILENCE_TOLD_S = 5.5
"""A beat, and 2.5 s that a busy machine may add: without any pause an answer comes every 3 s."""


def judge_machines(seen: Observed) -> Iterator[ValidityFinding]:
    """The findings of every machine with an os capture, or one finding for the absence of any."""
    found = False
    for machine, hosts in hosts_by_machine(seen.plan, seen.boots).items():
        trees = [(host, tree) for host in hosts if (tree := seen.metrics.get("hosts", {}).get(host))]
        if not trees:
            continue
        found = True
        name = LOCAL if machine == LOCAL else hosts[0]
        yield from _other_load(seen, machine, name, hosts, trees)
        yield from _steal(name, trees[0][1])
        yield from _pressure(seen, machine, name, trees[0][1])
    if not found:
        yield checked("other-load", True, "not judged: no os capture")


def shares_machine(plan: Plan, stage: Measuring, boots: Mapping[str, str]) -> bool:
    """Whether a client of the stage runs on the machine of its target. `boots`: the boot id of each host, where it is
    known."""
    target = plan.host(target_host(plan, stage))
    return any(same_machine(plan.host(client), target, boots) for client in stage.clients)


def same_machine(one: Host, other: Host, boots: Mapping[str, str]) -> bool:
    boot = boots.get(one.name)
    return machine_of(one, boots) == machine_of(other, boots) or (bool(boot) and boot == boots.get(other.name))


def machine_of(host: Host, boots: Mapping[str, str]) -> str:
    """The identity of a host's machine."""
    return LOCAL if host.is_local else boots.get(host.name) or host.address.rpartition(":")[0]


def hosts_by_machine(plan: Plan, boots: Mapping[str, str]) -> dict[str, list[str]]:
    """The plan's machines, each with its hosts."""
    machines: dict[str, list[str]] = {}
    for host in plan.hosts:
        machines.setdefault(machine_of(host, boots), []).append(host.name)
    return machines


def _other_load(
    seen: Observed, machine: str, name: str, hosts: list[str], trees: list[tuple[str, Mapping[str, Any]]]
) -> Iterator[ValidityFinding]:
    external = {
        machine_of(seen.plan.host(system.host), seen.boots) for system in seen.plan.systems if system.provision is None
    }
    complete = len(trees) == len(hosts) or machine == LOCAL
    if machine in external or not complete or "cpu" not in trees[0][1]:
        return
    cores = _cores(seen, trees[0][0])
    used = [float(tree.get("ours", {}).get("cpu_cores", 0.0)) for _, tree in trees]
    # Local agents are one process tree, which each of them reports whole.
    ours = max(used) if machine == LOCAL else sum(used)
    cpu = trees[0][1]["cpu"]
    here = float(cpu["busy_fraction"]) - float(cpu.get("steal_fraction", 0.0))  # what is stolen: `_steal`
    other = max(here - ours / cores, 0.0)
    share, limit = together("fraction", other, OTHER_CPU_MAX)
    text = f"{share} of the CPU used by others (limit {limit})"
    yield checked(f"other-load:{name}", other <= OTHER_CPU_MAX, text)


def _steal(name: str, tree: Mapping[str, Any]) -> Iterator[ValidityFinding]:
    steal = tree.get("cpu", {}).get("steal_fraction")
    if steal is not None:
        share, limit = together("fraction", steal, STEAL_MAX)
        text = f"{share} of the CPU stolen by the hypervisor (limit {limit})"
        yield checked(f"steal:{name}", steal <= STEAL_MAX, text)


def _pressure(seen: Observed, machine: str, name: str, tree: Mapping[str, Any]) -> Iterator[ValidityFinding]:
    """Share of the window in which some task waited for a resource that it should have had."""
    stalls = tree.get("pressure", {})
    serving = {machine_of(seen.plan.host(system.host), seen.boots) for system in seen.plan.systems}
    limits = {"memory": MEMORY_STALL_MAX} | ({} if machine in serving else {"cpu": CLIENT_STALL_MAX})
    known = {kind: float(stalls[f"{kind}_fraction"]) for kind in limits if f"{kind}_fraction" in stalls}
    if known:
        pairs = ((kind, together("fraction", share, limits[kind])) for kind, share in known.items())
        words = (f"{kind} {share} (limit {limit})" for kind, (share, limit) in pairs)
        fine = all(share <= limits[kind] for kind, share in known.items())
        yield checked(f"pressure:{name}", fine, f"time in which some task waited: {', '.join(words)}")


def _cores(seen: Observed, host: str) -> float:
    counted = [
        cores
        for (_, captured), recording in seen.recordings.items()
        if captured == host and (cores := recording.mean("cpu.cores", seen.on(host))) is not None
    ]
    return max(counted, default=1.0)


def judge_pauses(seen: Observed) -> Iterator[ValidityFinding]:
    limit_s = seen.limits.pause_s_max
    for host, load in seen.loads.items():
        paused_s = load.pause_longest_ns / 1e9
        if paused_s >= min(TOLD_S, limit_s):
            paused, limit = together("pause_s", paused_s, limit_s)
            text = f"a load process of {host} did not run for {paused} (limit {limit})"
            yield checked(f"pause:load@{host}", False, text, voids=paused_s >= limit_s)
    yield from judge_silences(seen)


def judge_silences(seen: Observed) -> Iterator[ValidityFinding]:
    """A finding for each agent that did not answer for longer than usual."""
    for host, silent_s in seen.silences.items():
        if silent_s >= SILENCE_TOLD_S:
            silent = quantity(silent_s, "silent_s")
            text = f"no answer from {host} for {silent}: its agent, the network or this coordinator stood still"
            yield checked(f"pause:agent@{host}", False, text)
