"""A run with hostile names, as recorded events and as a run directory with samples: for the tests of reports.

Data flow: `history` -> events of two ladders, an `sql` stage and a verdict; `run_directory` -> the same on disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import records

from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto import events as e
from proveout.proto.wire import histogram

HOSTILE = "</script><script>alert(1)</script><img src=http://192.0.2.1/x onerror=alert(2)>\x1b[31m\u202e'\"&{{7*7}}"
BEGUN_S = 1_700_000_000.0


def latency(avg_us: float) -> dict[str, float]:
    factors = {"min": 0.2, "avg": 1.0, "p50": 0.8, "p90": 2.0, "p95": 3.0, "p99": 5.0, "max": 20.0}
    return {f"{name}_us": avg_us * factor for name, factor in factors.items()}


def iteration(
    stage: str, rung: int, repeat: int, tps: float, at_s: float, *, valid: bool = True
) -> e.IterationFinished:
    avg_us = rung / tps * 1e6
    names = {"GetSubscriber": 0.7, HOSTILE: 0.3}
    metrics: dict[str, Any] = {
        "tps": tps,
        "response": latency(avg_us),
        "transactions": {name: {"tps": tps * share, "response": latency(avg_us)} for name, share in names.items()},
        "hosts": {"box": {"cpu": {"busy_fraction": 0.5, "user_fraction": 0.4, "peak": {"busy_fraction": 0.7}}}},
        "waits": {"db_time_s": 2.0},
        "lag": {"avg_s": 0.01, "p99_s": 0.02, "max_s": 0.03, "slope": 0.001, "slope_lower": -0.001,
        "slope_upper": 0.003},
        "solve_s": 500.0 / tps,
        "update_s": 50.0 / tps,
        "geomean_s": 50.0 / tps,
        "cost": {"server_cpu_us": 4e5 / tps, "client_cpu_us": 1e5 / tps, "reads": 0.0, "price_per_million": 90 / tps},
        "nopm": tps * 27,
        "tpm": tps * 60,
    }  # fmt: skip
    return records.iteration(
        stage, rung, repeat, metrics, measure_s=2.0, valid=valid,
        findings=(
            e.ValidityFinding(check="mix", ok=True, evidence="as asked"),
            e.ValidityFinding(check="steady-state", ok=valid, evidence=f"moved {HOSTILE}"),
        ),
        transactions=tuple(
            records.summary(
                name, ok=int(tps * share), logical_failures=3, errors={"deadlock": 2}, retried=1, tps=tps * share,
                response=latency(avg_us), service=latency(avg_us),
            )
            for name, share in names.items()
        ),
        waits=(e.WaitLine(event=HOSTILE, wait_class="IO", seconds=1.5, db_time_fraction=0.75),),
        started_unix_s=BEGUN_S + at_s,
        cost={"server_cpu_us": f"all CPU of host {HOSTILE}", "network_bytes": f"not captured: {HOSTILE}"},
        sizes=(
            e.SizeLine(system="base", table=HOSTILE, part="table", name=HOSTILE, start_bytes=1e6, end_bytes=3e6),
            e.SizeLine(system="base", table=HOSTILE, part="index", name=HOSTILE, start_bytes=1e6, end_bytes=1e6),
        ),
    )  # fmt: skip


def plan(*names: str) -> dict[str, Any]:
    stage = {"kind": "ladder", "workload": "hlr", "threads": [1, 4], "clients": ["box"], "arrival": {"kind": "closed"}}
    return {
        "hosts": [{"name": "box", "roles": ["client"], "address": "local"}, {"name": HOSTILE, "roles": ["server"],
        "address": "local", "price_per_hour": 3.2, "currency": HOSTILE}],
        "systems": [
            {"name": "base", "host": HOSTILE, "engine": "postgres", "propagates_to": None},
            {"name": "cache", "host": HOSTILE, "engine": "postgres", "propagates_to": "base"},
        ],
        "stages": [{"id": "slow", "target": "base", **stage}, {"id": "fast", "target": "cache", **stage},
        {"id": "refresh", "kind": "sql", "statements": ["UPDATE"]}],
        "figures": list(names),
        "without_figures": ["others"] if names else [],
    }  # fmt: skip


def history(*names: str) -> list[e.Stamped]:
    events: list[e.Event] = [
        records.run_started(plan(*names), "r-1", name="study", title=HOSTILE, digest="sha256:0"),
        e.AgentUp(host="box", agent_version="1", machine_id="m", cores=2, offset_ns=0, uncertainty_ns=1),
        e.SystemUp(system="base", host=HOSTILE, engine="postgres", version=HOSTILE, provisioned=True),
        e.FactsTaken(when="start", host="box", facts={"kernel": HOSTILE}),
    ]  # fmt: skip
    at_s = 1.0
    for stage, tps in (("slow", 100.0), ("fast", 300.0)):
        events.append(records.begun(stage))
        for rung in (1, 4):
            for repeat in (1, 2):
                events.append(
                    iteration(stage, rung, repeat, tps * rung**0.5 + repeat, at_s, valid=(rung, repeat) != (4, 2))
                )
                at_s += 4.0
        events.append(records.ended(stage))
    events += [
        records.begun("refresh", "sql"),
        *(e.ValuesTaken(stage="refresh", repeat=n, values={"elapsed_s": 1.0 + n, HOSTILE: 2.0 * n}) for n in (1, 2)),
        records.ended("refresh"),
        e.VerdictReached(id="v", title=HOSTILE, severity="fail", outcome="FAIL", check="1 > 2",
        evidence=f"one; {HOSTILE}"),
        records.run_finished(exit_code=1, reason="a verdict failed"),
    ]  # fmt: skip
    return [e.Stamped(sequence=n, unix_s=BEGUN_S + n * 0.001, event=event) for n, event in enumerate(events, 1)]


def load_row(ns: int, second: int, window: str, rung: int) -> dict[str, Any]:
    """A second of one transaction: 90 of 1 ms, 10 of 20 ms for each thread; one error."""
    response = histogram.bin_ns([1_000_000] * 90 * rung + [20_000_000] * 10 * rung)
    return {
        "host": "box", "second": second, "window": window, "host_ns": ns, "coordinator_ns": ns, "duration_s": 1.0,
        "transaction": HOSTILE, "ok": 100 * rung, "logical_failures": 0, "retried": 0, "missed": 0, "errors": 1,
        "response_indices": list(response.indices), "response_counts": list(response.counts),
        "response_sum_ns": response.sum_ns, "response_min_ns": response.min_ns, "response_max_ns": response.max_ns,
    }  # fmt: skip


def store_samples(folder: Path, item: e.IterationFinished, ns: int = 5_000_000_000) -> None:
    """Return 4 s of samples of one host: 1 s ramp-up, 2 s measure, 1 s ramp-down; 25 % busy; the lag grows by 1 ms a
    second."""
    stem = f"{item.id.stage}-{item.id.rung}-{item.id.repeat}-1"
    windows = ["ramp_up", "measure", "measure", "ramp_down"]
    load = [load_row(ns + n * 10**9, n, window, item.id.rung) for n, window in enumerate(windows)]
    pq.write_table(pa.Table.from_pylist(load), folder / f"{stem}.load.parquet")
    samples = [
        {"host": "box", "capture": "c", "coordinator_ns": ns + n * 250_000_000, "metric": metric, "label": label,
         "value": value}
        for n in range(17)
        for metric, label, value in (
            ("cpu.user_s_total", "", 100 + n * 0.25),
            ("cpu.idle_s_total", "", 100 + n * 0.75),
            ("lag.seconds", "", 0.01 + n * 0.00025),
            ("wait.seconds_total", f"IO:{HOSTILE}", n * 0.25),
            ("wait.seconds_total", "CPU", n * 0.5),
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(samples), folder / f"{stem}.captures.parquet")


def iterations(results: RunResults) -> list[e.IterationFinished]:
    return [item for stage in results.stages.values() for item in stage.iterations]


def run_directory(tmp_path: Path) -> RunDirectory:
    """A run directory with the plan, the command and the samples of every iteration of `history`."""
    made = RunDirectory(tmp_path / "r-1")
    for part in (made.path / "plan", made.samples):
        part.mkdir(parents=True)
    (made.path / "plan" / "study.yaml").write_text(f"name: study  # {HOSTILE.replace(chr(27), '')}\n")
    (made.path / "plan" / "plan.json").write_text("{}")
    command = {
        "plan": "/x/study.yaml",
        "overrides": {"a": "1; rm -rf /"},
        "inventory": None,
        "pki": None,
        "policy": "/etc/policy.yaml",
        "outputs": {},
    }
    (made.path / "command.json").write_text(json.dumps(command))
    for item in iterations(load_results(history())):
        store_samples(made.samples, item)
    return made
