"""The names of all metrics that a running coordinator exports: pure data, from which the text, the reference and its
tests are made.

Names and units follow https://prometheus.io/docs/specs/om/open_metrics_spec: base units (seconds, bytes, ratio), the
unit last in the name, counters' samples end in `_total`. A *stateset* has one series per state, 1 for the one that it
is in; an *info* is 1 with the facts as labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass

Kind: TypeAlias = Literal["gauge", "counter", "stateset", "info"]

SUFFIX: Mapping[Kind, str] = {"gauge": "", "counter": "_total", "stateset": "", "info": "_info"}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family; `states` only for a stateset. `unit` ("" for none) is the end of `name`."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    states: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name of its samples, which queries use."""
        return self.name + SUFFIX[self.kind]


RUN = Family(
    "proveout_run", "info", "The run: its name, plan and version.", ("run", "plan", "title", "digest", "version")
)
RUN_START = Family("proveout_run_start_time_seconds", "gauge", "When this coordinator began, Unix time.", (), "seconds")
RUN_ESTIMATE = Family(
    "proveout_run_estimate_seconds", "gauge", "The estimated duration of the whole run.", (), "seconds"
)

STAGE_STATES = ("waiting", "running", "ok", "failed", "skipped")
STAGE = Family("proveout_stage", "stateset", "The state of each stage.", ("stage", "kind"), "", STAGE_STATES)
STAGE_ITERATIONS = Family(
    "proveout_stage_iterations",
    "gauge",
    "The maximum number of iterations of the stage, without reruns.",
    ("stage",),
)
STAGE_PROGRESS = Family(
    "proveout_stage_progress_ratio",
    "gauge",
    "The finished part of the host's task (populate …).",
    ("stage", "host"),
    "ratio",
)

ITERATION_THREADS = Family("proveout_iteration_threads", "gauge", "The rung of the iteration under way.", ("stage",))
ITERATION_REPEAT = Family("proveout_iteration_repeat", "gauge", "The repeat of the iteration under way.", ("stage",))
ITERATION_ATTEMPT = Family("proveout_iteration_attempt", "gauge", "The attempt of the iteration under way.", ("stage",))
ITERATION_RATE = Family(
    "proveout_iteration_intended_transactions_per_second",
    "gauge",
    "The intended rate of the iteration under way; none for closed arrival.",
    ("stage",),
)
WINDOWS = ("ramp_up", "measure", "ramp_down")
WINDOW = Family("proveout_window", "stateset", "The window that the load is in.", ("stage",), "", WINDOWS)
ITERATIONS = Family(
    "proveout_iterations", "counter", "Iterations that have ended: valid, invalid or void.", ("stage", "outcome")
)

FAULT = Family(
    "proveout_fault_in_place",
    "gauge",
    "Whether a fault is in place on the host, 0 or 1: from its begin until it is healed.",
    ("stage", "fault", "host"),
)

LOAD_RATE = Family(
    "proveout_load_transactions_per_second", "gauge", "Throughput of the newest second of load.", ("stage", "rung")
)
LOAD_RESPONSE = Family(
    "proveout_load_response_seconds",
    "gauge",
    "Response time in the newest second of load: avg, p50, p99.",
    ("stage", "rung", "statistic"),
    "seconds",
)
LOAD_ERRORS = Family("proveout_load_errors", "counter", "Technical errors, in all windows.", ("stage",))
TRANSACTIONS = Family(
    "proveout_transactions",
    "counter",
    "Transactions in the measure windows of the iterations that have ended: ok, logical_failure or error.",
    ("stage", "transaction", "outcome"),
)

LOAD_TRANSACTION_RATE = Family(
    "proveout_load_transaction_type_per_second",
    "gauge",
    "Throughput of a transaction type in the window so far.",
    ("stage", "rung", "transaction"),
)
LOAD_TRANSACTION_RESPONSE = Family(
    "proveout_load_transaction_type_response_seconds",
    "gauge",
    "Response time of a transaction type in the window so far: p50, p95, p99.",
    ("stage", "rung", "transaction", "statistic"),
    "seconds",
)

RUNG_RATE = Family(
    "proveout_rung_transactions_per_second",
    "gauge",
    "Throughput of the rung's newest valid iteration.",
    ("stage", "rung"),
)
STATISTICS = ("avg", "p50", "p90", "p95", "p99", "p999", "max")
RUNG_RESPONSE = Family(
    "proveout_rung_response_seconds",
    "gauge",
    f"Response time of the rung's newest valid iteration: {', '.join(STATISTICS)}.",
    ("stage", "rung", "statistic"),
    "seconds",
)
PROBE_RATE = Family(
    "proveout_probe_transactions_per_second", "gauge", "The rate of the search's newest probe.", ("stage",)
)
PROBE_ACCEPTED = Family("proveout_probe_accepted", "gauge", "Whether that rate was accepted, 0 or 1.", ("stage",))
SEARCH_RATE = Family(
    "proveout_search_transactions_per_second", "gauge", "The rate that a search has found.", ("stage",)
)

HOST_UP = Family("proveout_host_up", "gauge", "Whether the host's agent answers, 0 or 1.", ("host",))
HOST_CORES = Family("proveout_host_cores", "gauge", "The host's cores.", ("host",))
CLOCK_OFFSET = Family(
    "proveout_host_clock_offset_seconds", "gauge", "The agent's clock less the coordinator's.", ("host",), "seconds"
)
HOST_SILENCE = Family(
    "proveout_host_silence_seconds",
    "gauge",
    "Since the agent's last answer; its lease ends after 10.",
    ("host",),
    "seconds",
)
CLOCK_BOUND = Family(
    "proveout_host_clock_uncertainty_seconds", "gauge", "The bound of the error of that offset.", ("host",), "seconds"
)

VERDICT_STATES = ("PENDING", "PASS", "FAIL", "INCONCLUSIVE")
VERDICT = Family("proveout_verdict", "stateset", "The verdicts.", ("verdict", "severity"), "", VERDICT_STATES)
FORESEEN = Family(
    "proveout_verdict_foreseen",
    "stateset",
    "The provisional outcome of a verdict on the results so far.",
    ("verdict", "severity"),
    "",
    VERDICT_STATES[1:],
)
NOTICES = Family("proveout_notices", "counter", "Notices of the run: info, warning or error.", ("level",))
DROPPED = Family("proveout_series_dropped", "counter", "Updates left out because there were too many series.")


def _reading(name: str, about: str, unit: str, *labels: str) -> Family:
    return Family(name, "gauge", about, ("host", *labels), unit)


READINGS: Mapping[str, tuple[Family, float]] = {
    "cpu.busy_fraction": (_reading("proveout_host_cpu_busy_ratio", "CPU in use, of all cores.", "ratio"), 1.0),
    "memory.used_bytes": (_reading("proveout_host_memory_used_bytes", "Memory in use.", "bytes"), 1.0),
    "memory.total_bytes": (_reading("proveout_host_memory_total_bytes", "Memory that there is.", "bytes"), 1.0),
    "disk.read_bytes_per_s": (
        _reading("proveout_host_disk_read_bytes_per_second", "Read from the disk.", "bytes_per_second", "device"),
        1.0,
    ),
    "disk.write_bytes_per_s": (
        _reading("proveout_host_disk_write_bytes_per_second", "Written to the disk.", "bytes_per_second", "device"),
        1.0,
    ),
    "disk.busy_s_per_s": (
        _reading("proveout_host_disk_busy_ratio", "Time with a request under way.", "ratio", "device"),
        1.0,
    ),
    "network.received_bytes_per_s": (
        _reading("proveout_host_network_received_bytes_per_second", "Received.", "bytes_per_second", "interface"),
        1.0,
    ),
    "network.sent_bytes_per_s": (
        _reading("proveout_host_network_sent_bytes_per_second", "Sent.", "bytes_per_second", "interface"),
        1.0,
    ),
    "pressure.cpu_us_per_s": (
        _reading("proveout_host_pressure_cpu_ratio", "Time in which some task waited for CPU (PSI).", "ratio"),
        1e-6,
    ),
    "pressure.io_us_per_s": (
        _reading("proveout_host_pressure_io_ratio", "Time in which some task waited for I/O (PSI).", "ratio"),
        1e-6,
    ),
    "lag.seconds": (_reading("proveout_lag_seconds", "Replication lag.", "seconds", "capture"), 1.0),
    "lag.bytes": (_reading("proveout_lag_bytes", "Log that is not applied yet.", "bytes", "capture"), 1.0),
}
"""Readings of captures (as `live.ticks` names them) -> family and factor. Whatever else is captured is not
exported."""

FAMILIES: tuple[Family, ...] = (
    RUN,
    RUN_START,
    RUN_ESTIMATE,
    STAGE,
    STAGE_ITERATIONS,
    STAGE_PROGRESS,
    ITERATION_THREADS,
    ITERATION_REPEAT,
    ITERATION_ATTEMPT,
    ITERATION_RATE,
    WINDOW,
    FAULT,
    ITERATIONS,
    LOAD_RATE,
    LOAD_RESPONSE,
    LOAD_ERRORS,
    TRANSACTIONS,
    LOAD_TRANSACTION_RATE,
    LOAD_TRANSACTION_RESPONSE,
    RUNG_RATE,
    RUNG_RESPONSE,
    PROBE_RATE,
    PROBE_ACCEPTED,
    SEARCH_RATE,
    HOST_UP,
    HOST_CORES,
    CLOCK_OFFSET,
    CLOCK_BOUND,
    HOST_SILENCE,
    *(family for family, _ in READINGS.values()),
    VERDICT,
    FORESEEN,
    NOTICES,
    DROPPED,
)
"""All of them, in the order of the text."""
