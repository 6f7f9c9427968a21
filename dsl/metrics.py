"""The names of all numbers of an iteration, a rung and a stage in expressions, verdicts and reports.

One vocabulary for three users: the compiler makes typed samples of it (a misspelt metric fails in `check`), the
coordinator fills the same trees with measured values (a test holds the two together), and the reference documents it.

Levels: an *iteration* tree has plain numbers. A *rung* tree (`ladder.at(8)`, `ladder.peak`) has the same names, each
number being an estimate over the repeats, `{mean, median, lower, upper, cv, n, values}`; a metric whose name ends in
`_lower` or `_upper` is itself a bound, and its rung value is the plain worst of the repeats. Units stand last in names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

Tree: TypeAlias = "Mapping[str, str | Tree]"
Kind: TypeAlias = Literal["level", "signed", "extreme", "events"]
"""A quantity that cannot be negative; one that can; a maximum or far quantile; a count or share of rare events."""

LATENCY: Tree = {
    "min_us": "smallest, µs",
    "avg_us": "arithmetic mean, µs",
    "p50_us": "median, µs",
    "p90_us": "90th percentile, µs",
    "p95_us": "95th percentile, µs",
    "p99_us": "99th percentile, µs",
    "p999_us": "99.9th percentile, µs",
    "max_us": "largest, µs",
}

PEAK = "peak"
"""The group of a captured host's metrics that holds the largest value of each."""
PEAK_S = 1.0
"""Seconds that a peak of a rate is a mean over."""


def _with_peak(names: Mapping[str, str], *, levels: Sequence[str] = ()) -> Tree:
    """The names, and the peak of each over the measure window; of `levels`, of the samples."""
    over = {name: "a sample" if name in levels else f"the mean over {PEAK_S:g} s" for name in names}
    return {**names, PEAK: {name: f"{over[name]}, largest in the window: {text}" for name, text in names.items()}}


_CPU = {
    "busy_fraction": "1 - idle - iowait, of all cores",
    "user_fraction": "in user mode (with nice)",
    "system_fraction": "in kernel mode (with irq and softirq)",
    "iowait_fraction": "idle while I/O was under way",
    "idle_fraction": "idle",
    "steal_fraction": "taken by the hypervisor",
}
CPU: Tree = _with_peak(_CPU)

TRANSACTION: Tree = {
    "tps": "transactions of this type that ended in the window, per second (ok + logical failures)",
    "ok": "committed, count",
    "errors": "technical errors, count",
    "logical_fraction": "logical failures over (ok + logical failures)",
    "response": LATENCY,
    "service": LATENCY,
}

LOAD: Tree = {
    "tps": "transactions that ended in the measure window, per second of its real length",
    "threads": "terminals, all agents",
    "rate": "intended rate, 1/s (0 when arrival is closed)",
    "measure_s": "real length of the measure window, s",
    "response": LATENCY,
    "service": LATENCY,
    "schedule": LATENCY,
    "errors": {"count": "technical errors", "fraction": "over all that ended"},
    "logical": {"count": "logical failures", "fraction": "over ok + logical failures"},
    "due": {
        "count": "transactions due in the measure window, = ended + late + unfinished + missed; closed arrival: "
        "begun in it"
    },
    "begun": {"count": "of those due, begun before the load ended"},
    "ended": {"count": "of those due, ended in the measure window (with errors)"},
    "late": {"count": "of those due, ended after the measure window (with errors)"},
    "unfinished": {
        "count": "of those due, begun and without an answer within 1 s after the load",
        "fraction": "over all due",
        "age_max_us": "longest wait for an answer that had not come within 1 s after the load, µs; also of "
        "transactions begun before the window",
    },
    "missed": {"count": "of those due, never begun", "fraction": "over all due"},
    "hung": {"count": "terminals that waited for one answer for at least 90 % of the measure window, and to its end"},
    "retried": {"count": "retries after deadlock or serialization failure, or after a lost connection"},
    "rerun": {
        "count": "of these, transactions run again after a lost connection when it was not known whether they had "
        "committed (`on_disconnect: retry`): each may be a duplicate"
    },
    "connect": {
        **LATENCY,
        "count": "attempts to connect that began in the measure window; the times are of those that succeeded, until "
        "the first statement could be sent",
    },
    "connect_failures": {"count": "of these attempts, failed"},
    "pool_wait": {
        **LATENCY,
        "fraction": "transactions that found no free connection in the load's pool, over all; the times are of all",
    },
    "client": {
        "cpu_fraction": "CPU of the busiest worker process, of one core",
        "cpu_s": "CPU of all worker processes in the measure window, s",
        "cpu_us": "client CPU per transaction, µs",
        "ceiling_per_s": "the most that the clients can do with this driver, 1/s; there when `proveout ceiling` has "
        "measured all of them",
        "ceiling_fraction": "throughput over that",
        "start_skew_ms": "latest start of the load after T0, ms",
        "handling": LATENCY,
        "handling_fraction": "time that a transaction's answers waited for the client, over the service time; the "
        "larger of the shares of the median and of the mean",
        "runqueue_fraction": "time that a thread of a load worker was ready and waited for a CPU, over the measure "
        "window; the thread that waited longest",
        "runqueue_us": "the same per transaction, all threads, µs",
    },
}

LOADS = "loads"
"""The group of a stage with several loads with the same names for each, `loads.<load>.response.p99_us`. The names
outside of it are of the loads with shares together; `cpu`, `waits`, `sizes`, `lag` are of the first load's target."""

PHASE: Tree = {
    "tps": "transactions that ended in the phase, per second of its length",
    "threads": "terminals, all agents; of phases of threads the mean of those that were active",
    "rate": "mean intended rate in the phase, 1/s (0 when arrival is closed)",
    "begins_s": "start of the phase after the start of the measure window, s",
    "measure_s": "length of the phase, s",
    "response": LATENCY,
    "service": LATENCY,
    "schedule": LATENCY,
    **{
        name: LOAD[name]
        for name in ("errors", "logical", "due", "begun", "ended", "late", "unfinished", "missed", "retried")
    },
    "recovery_s": "time from the end of the phase until throughput and mean response are back within "
    "`recovered_within` of the phase before, for as many of 3 to 50 s as its scatter needs, s; whole seconds of the "
    "next phase; a lower bound where they are not back in it",
}
"""`phase("spike").…` of a rung, a load and an iteration: times and outcomes of the transactions due in the phase,
throughput by their end. Between phases of one level also `recovery_s`."""

INTERFERENCE: Tree = {
    "tps_ratio": "throughput together over throughput alone; not there at a fixed rate",
    "avg_ratio": "mean response time together over that alone",
    "p50_ratio": "median response time together over that alone",
    "p95_ratio": "95th percentile of the response time together over that alone",
    "p99_ratio": "99th percentile of the response time together over that alone",
    "solve_ratio": "time to solve together over that alone, of a set of queries",
}
"""`loads.<load>.interference.…` of a rung of a stage with `interference: true`: ratios of the two numbers, with the
interval over the pairs of the same repeat."""

VERSUS: Tree = {
    "tps_ratio": "throughput over that of the first load, each in its own slices; not there at a fixed rate",
    "avg_ratio": "mean response time over that of the first load",
    "p50_ratio": "median response time over that of the first load",
    "p95_ratio": "95th percentile of the response time over that of the first load",
    "p99_ratio": "99th percentile of the response time over that of the first load",
}
"""`loads.<load>.versus.…` of a rung of a stage with `versus`, of each load but the first: ratios of the two numbers,
with the interval over the repeats, of one repeat that of throughput and mean over its blocks."""

COMMITS: Tree = {
    "acknowledged": "commits of transactions that change rows that the client has an answer for, ramps included",
    "lost": "of those, commits that the system no longer has",
    "unknown": "transactions that change rows without an answer, ramps included",
    "unknown_committed": "of those, the ones that the system has, read back afterwards",
    "duplicates": "commits that the system has more often than once",
}
"""Of a load with `commits: tracked`."""

FAULTS = "faults"
"""The group of a stage with faults: `faults.<name>` has `FAULT`, also written `fault("name")`."""
FAULT_NUMBERS = {
    "detection_s": "from the begin of the fault to the first of more errors than usual, or to the instant at which a "
    "response exceeds 3 times the longest usual one, s",
    "outage_s": "longest time with less than 10 % of the usual throughput, from the intended time of the first "
    "transaction without an answer to the answer that ends it, s",
    "recovery_s": "from the begin of the fault to the instant from which throughput stays at 95 % of that before, and "
    "at a rate the responses of most tenths of a second at what they were, s",
    "failed": "transactions that ended with an error until the load is back, less the usual number, and those missed "
    "when the load ended first",
    "lost": "acknowledged commits that the system no longer has",
    "unknown": "commits without an answer",
    "unknown_committed": "of those, commits that the system has, read back afterwards",
    "duplicates": "commits that the system has more than once",
    "staleness_s": "age of the newest commit of a promoted standby, s",
}
"""The numbers of each occurrence of a fault."""
WRONG_COMMITS = ("lost", "unknown", "unknown_committed", "duplicates")
FAULT_COUNTS = ("failed", *WRONG_COMMITS)
FAULT: Tree = {
    "occurrences": "times that it occurred, of an iteration",
    **{name: f"{text}; an occurrence, the mean" for name, text in FAULT_NUMBERS.items()},
    "max": {name: f"{text}; the largest of all occurrences" for name, text in FAULT_NUMBERS.items()},
}
"""`run.fault("crash").outage_s`. The numbers are estimates over the repeats, each the mean of its occurrences; of one
repeat over its occurrences. `max` has plain numbers: the largest of all occurrences of all repeats."""

_IO: Tree = {
    "iops": "I/Os that ended in the measure window, per second of its real length",
    "mb_per_s": "data moved, 10^6 bytes per second",
    "response": LATENCY,
}

NODE: Tree = {**_IO, "errors": "I/Os that failed, count"}

TOOL: Tree = {
    "iops": "I/Os that ended in the measure window, per second of its real length, all hosts",
    "tps": "the same as iops: ladders of tools and of loads can be read alike",
    "mb_per_s": "data moved, 10^6 bytes per second, all hosts",
    "iodepth": "I/Os that each job keeps under way",
    "measure_s": "real length of the measure window, s",
    "response": LATENCY,
    "read": _IO,
    "write": _IO,
    "errors": {"count": "I/Os that failed", "fraction": "over all"},
    "client": {
        "cpu_fraction": "CPU of one job, of one core: the mean of a host's jobs, the busiest host",
        "cpu_s": "CPU of all jobs, s",
        "cpu_us": "CPU per I/O, µs",
        "start_skew_ms": "latest start of the program after T0, ms",
    },
}

_MEMORY = {"used_fraction": "1 - available/total", "used_bytes": "total - available"}
OS_HOST: Tree = {
    "cpu": CPU,
    "ours": _with_peak(
        {
            "cpu_cores": "CPU of all of proveout's own processes on this machine, in cores",
            "servers_cores": "CPU of the database servers that this host's agent runs, in cores",
            "load_cores": "CPU of the load workers that this host's agent runs, in cores",
            "rss_bytes": "memory of all of proveout's own processes on this machine",
        },
        levels=["rss_bytes"],
    ),
    "memory": _with_peak(_MEMORY, levels=list(_MEMORY)),
    "disk": _with_peak(
        {
            "read_bytes_per_s": "all block devices",
            "write_bytes_per_s": "all block devices",
            "reads_per_s": "all block devices",
            "writes_per_s": "all block devices",
        }
    ),
    "network": _with_peak(
        dict.fromkeys(
            ("received_bytes_per_s", "sent_bytes_per_s"),
            "all interfaces but lo and those on others (bonds, VLANs, bridges)",
        )
    ),
    "load_average": {
        "begin_1m": "tasks that ran or waited for a CPU or a disk, averaged over the minute before the measure window",
        "end_1m": "the same at the end of the measure window",
    },
    "pressure": _with_peak(
        {
            "cpu_fraction": "time in which some task waited for CPU (PSI)",
            "io_fraction": "time in which some task waited for I/O (PSI)",
            "memory_fraction": "time in which some task waited for memory (PSI)",
        }
    ),
}

COST: Tree = {
    "server_cpu_us": "CPU of the servers of the target systems, µs",
    "client_cpu_us": "CPU of the load workers of all clients, µs",
    "reads": "read operations of the servers",
    "read_bytes": "bytes that the servers read from storage",
    "written_bytes": "bytes that the servers had written to storage",
    "wal_bytes": "write-ahead log that the database made",
    "network_bytes": "bytes received and sent by the servers' hosts",
    "context_switches": "context switches of the servers",
    "price_per_million": "price of a million transactions, in the currency of the `cost` of hosts",
}
"""`cost.…`: of a transaction, that is over the transactions of all loads that ended in the measure window. The source
of each is recorded with the iteration: the whole host, or the process tree of the server."""

ORDERS: Tree = {
    "nopm": "new orders committed per minute, counted by the client (TPROC-C)",
    "tpm": "commits and rollbacks per minute, by the database's own counters (TPROC-C with a waits capture of the "
    "target)",
}

SET: Tree = {
    "solve_s": "time to solve: one pass over a set of queries in order, the sum of their mean response times, s",
    "geomean_s": "geometric mean of the queries' mean response times, s",
    "geomean_rows_s": "geometric mean of the mean response times of the queries that returned rows, s",
}

UPDATES: Tree = {
    "update_s": "sum of the mean response times of the set's transactions that change rows (RF1 and RF2), s",
}

PASSES: Tree = {
    "elapsed_s": "time from the start of the load to the end of the last pass, s",
    "pass": {
        "avg_s": "mean time of a pass of a thread, s",
        "min_s": "time of the fastest pass, s",
        "max_s": "time of the slowest pass, s",
    },
}

WAIT_EVENT: Tree = {
    "seconds": "time that sessions waited for it, s",
    "db_time_fraction": "its share of DB time",
    "count": "waits for it, where the server counts them",
    "avg_us": "mean wait, where the server counts them, µs",
}
"""`waits.event("log file sync")`."""

STATEMENT: Tree = {
    "seconds": "time of its executions in the server, s",
    "time_fraction": "its share of the time of all statements",
    "calls": "executions",
    "avg_us": "mean time of an execution in the server, µs",
    "rows": "rows that it returned or changed",
}
"""`statement("UPDATE subscriber")`, by the beginning of its text or by its id; of the statements with the most time."""

SLOPE_READINGS = 10
"""The readings that a plan takes in a window for the bounds of a slope: two in each of the 5 blocks
(`core.statistics`)."""

LIVE: Tree = {
    "tps": "transactions that ended in the last second",
    "errors_per_s": "technical errors in the last second",
    "response": {
        "avg_us": "mean response time of the last second, µs",
        "p50_us": "median response time of the last second, µs",
        "p99_us": "99th percentile of the response time of the last second, µs",
    },
}
"""`live.…` in the condition of a fault: the load in the last whole second of the measure window, all hosts."""

LIVE_LAG: Tree = {"seconds": "the newest replication lag, s; with a capture of kind lag"}
LIVE_CPU: Tree = {"busy_fraction": "CPU of the host between its two newest samples; with a capture of kind os"}

EXPORTED_GAUGE: Tree = {
    "avg": "mean over the time of the measure window, in the metric's own unit",
    "min": "smallest",
    "max": "largest",
    "end": "the last one",
}

AGE: Tree = {
    "avg": "mean over the time of the measure window, s; while a query has no answer, the age of the data of the last "
    "answer grows",
    "min": "smallest",
    "max": "largest, with the longest wait for an answer",
    "end": "at the end of the window",
}

EXPORTED_COUNTER: Tree = {"per_s": "growth per second of the measure window", "delta": "growth in the measure window"}

ESTIMATE: Tree = {
    "mean": "mean over the repeats",
    "median": "median over the repeats",
    "lower": "lower end of the 95 % confidence interval of the mean over the repeats (of `p99_us`: of the mean of the "
    "repeats' p99; of `max_us`, `p999_us` and peaks: of their median, from 6 repeats on); not there with one repeat",
    "upper": "upper end of that interval",
    "cv": "coefficient of variation of the repeats",
    "n": "number of repeats",
}

POPULATE: Tree = {
    "rows": "rows of all systems",
    "seconds": "wall time, s; of the part after a resume",
    "rows_per_s": "rows loaded in these seconds / seconds",
}
SEARCH: Tree = {
    "rate": "the highest rate confirmed, 1/s: an estimate with `mean`, `lower` (the same rate, with `confirm.times` of "
    "5 or more) and `upper` (the lowest rate shown to be too high, where there is one); in a later stage's rate "
    "(`${cap.rate}`) the number",
    "threads": "in place of `rate` of a search for threads: the most threads confirmed, as `rate`",
    "probes": "probes run",
    "confirm": LOAD,
}
SQL: Tree = {
    "seconds": "wall time of all repeats, s; of the part after a resume",
    "rows": "rows returned or affected, all statements",
}
STAGE_VALUES: Tree = {
    "elapsed_s": "time of the statements of a repeat, s; an estimate over the repeats",
    "wait_s": "time that `wait_until` waited, s; an estimate over the repeats",
    "METRIC": "each of the stage's `metrics`, an estimate over the repeats",
}
TIMED: Tree = {"seconds": "wall time, s"}
PROPAGATION: Tree = {
    "different_tables": "tables that differ between the two ends after draining",
    "drain_s": "time until all was applied after the last stage, s",
}


_EXTREMES = ("p999_us", "max_us", "max_s", "max_bytes", "max")
_SIGNED = ("slope", "grown_bytes", "avg", "min", "end")
_COUNTED = ("errors", "missed", "unfinished", "hung", "retried", "rerun", "connect_failures")
_EVENTS = (*_COUNTED, "logical")


def kind(path: Sequence[str]) -> Kind:
    """The kind of the metric at a path of names, on which the interval of its estimate depends."""
    name, path = path[-1], tuple(path)
    if name in _EXTREMES or (path[-2:-1] == (PEAK,) and path[0] in ("cpu", "hosts")):
        return "extreme"
    if name in _SIGNED:
        return "signed"
    counted = (name in ("count", "fraction") and len(path) > 1 and path[-2] in _EVENTS) or _is_of_fault(path)
    counted = counted or _is_of_commits(path)
    return "events" if counted or name in ("errors", "logical_fraction") else "level"


def load_paths(tree: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The paths of the trees of loads in that of an iteration or rung: of itself, and of each of several loads.

    >>> load_paths({"tps": 3.0, "loads": {"one": {"tps": 1.0}, "two": {"tps": 2.0}}})
    [(), ('loads', 'one'), ('loads', 'two')]
    """
    return [(), *((LOADS, name) for name in tree.get(LOADS, {}))]


def is_counted(path: Sequence[str], *, shares: bool = False) -> bool:
    """Whether the metric at a path is a number of events that were counted (`errors.count`); with `shares` also their
    share of all."""
    kept = ("count", "fraction") if shares else ("count",)
    above = path[-2] if len(path) > 1 else ""
    if not path or path[-1] == "errors" or _is_of_fault(path) or _is_of_commits(path):
        return bool(path)
    return path[-1] in kept and above in _COUNTED


def _is_of_commits(path: Sequence[str]) -> bool:
    """Whether the metric is a number of commits that went wrong."""
    return path[-1] in WRONG_COMMITS and tuple(path[-2:-1]) != ("program",)


def _is_of_fault(path: Sequence[str]) -> bool:
    """Whether the metric is a number of transactions that a fault hit (`faults.crash.lost`)."""
    names = tuple(path)
    return names[-1] in FAULT_COUNTS and FAULTS in (names[-3:-2] + names[-4:-3])


THROUGHPUT = ("tps", "nopm", "tpm", "rate", "iops", "mb_per_s")
_TIMES = ("solve_s", "geomean_s", "update_s", "elapsed_s")


def lower_is_better(path: Sequence[str]) -> bool | None:
    """Whether a smaller number is the better one; None where a change is neither better nor worse.

    >>> lower_is_better(("response", "avg_us")), lower_is_better(("tps",)), lower_is_better(("cpu", "busy_fraction"))
    (True, False, None)
    """
    if path[-1].endswith("_us") or path[-1] in _TIMES or tuple(path[-2:]) == ("errors", "fraction"):
        return True
    return False if path[-1] in THROUGHPUT or tuple(path) == ("threads",) else None


def is_largest(path: Sequence[str]) -> bool:
    """Whether the metric is the largest of all occurrences of a fault (`faults.crash.max.outage_s`), a plain number."""
    return tuple(path[-2:-1]) == ("max",) and tuple(path[-4:-3]) == (FAULTS,)


def is_bound(name: str) -> bool:
    """Whether a metric is a confidence bound, so that a rung takes the worst repeat instead of an estimate."""
    return name.endswith(("_lower", "_upper"))
