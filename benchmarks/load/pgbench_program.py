"""pgbench as the other side of `pgbench.py`: HLR's transactions as its scripts, its runs and figures.

A run counts as long as its `-T`; CPU is that of its process, user and system, less what a run of one transaction per
connection needs: starting and connecting. Under `-R` the percentiles come from a sampled log of single transactions,
in which a latency counts from the scheduled start, as ours counts from the intended one.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Figures, Times, worker_count

from proveout.dsl.workloads.hlr import statements as hlr

SUBSCRIBERS = 100_000
SAMPLED = 0.1  # share of the transactions that are logged under -R: writing all of them would cost pgbench CPU


def pg(statement: hlr.Statement, *values: str) -> str:
    """A statement of ours in pgbench's placeholders."""
    return re.sub(r"\$(\d)", lambda match: values[int(match[1]) - 1], statement.text["postgres"])


def scripts() -> dict[str, str]:
    """The seven transactions of HLR for pgbench."""
    s_id = f"\\set s random(1, {SUBSCRIBERS})\n"
    kind, start = "\\set t random(1, 4)\n", "\\set b 8 * random(0, 2)\n"
    find = pg(hlr.FIND_NUMBER, "lpad(:s::text, 15, '0')") + " \\gset\n"
    insert = (
        "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx)"
        " SELECT s_id, sf_type, :b, :e, :n FROM special_facility WHERE s_id = :s_id AND sf_type = :t"
        " ON CONFLICT DO NOTHING;\n"
    )
    number = "\\set n random(100000000000000, 999999999999999)\n"
    return {
        "GetBasicSubscriberData": s_id + pg(hlr.GET_SUBSCRIBER, ":s") + ";\n",
        "GetAccessData": s_id + kind + pg(hlr.GET_ACCESS, ":s", ":t") + ";\n",
        "GetNewDestination": s_id
        + kind
        + start
        + "\\set e random(1, 24)\n"
        + pg(hlr.GET_DESTINATION, ":s", ":t", ":b", ":e")
        + ";\n",
        "UpdateSubscriberData": s_id
        + kind
        + "\\set v random(0, 1)\n\\set d random(0, 255)\nBEGIN;\n"
        + pg(hlr.SET_BIT, ":v", ":s")
        + ";\n"
        + pg(hlr.SET_DATA_A, ":d", ":s", ":t")
        + ";\nCOMMIT;\n",
        "UpdateLocation": s_id
        + "\\set l random(1, 4294967295)\nBEGIN;\n"
        + find
        + pg(hlr.SET_LOCATION, ":l", ":s_id")
        + ";\nCOMMIT;\n",
        "InsertCallForwarding": s_id
        + kind
        + start
        + "\\set e random(1, 24)\n"
        + number
        + "BEGIN;\n"
        + find
        + pg(hlr.GET_FACILITIES, ":s_id")
        + ";\n"
        + insert
        + "COMMIT;\n",
        "DeleteCallForwarding": s_id
        + kind
        + start
        + "BEGIN;\n"
        + find
        + pg(hlr.DELETE_FORWARDING, ":s_id", ":t", ":b")
        + ";\nCOMMIT;\n",
    }


BUILT_IN: Mapping[str, str] = {"TpcbLike": "tpcb-like", "SimpleUpdate": "simple-update", "SelectOnly": "select-only"}


@dataclass(frozen=True)
class _Run:
    """One run: figures that it printed, CPU of the process."""

    tps: float
    count: int
    cpu_s: float
    connect_s: float


@dataclass
class Pgbench:
    """A pgbench program, with HLR's scripts in a folder."""

    program: Path
    dsn: str
    folder: Path

    def __post_init__(self) -> None:
        for name, text in scripts().items():
            (self.folder / name).write_text(text)

    def run(self, weights: Mapping[str, float], connections: int, seconds: int, rate: float | None = None) -> Figures:
        """Run for some seconds, closed or at a `rate`; `weights` are of HLR's transactions or of the built-in
        scripts."""
        chosen = self._chosen(weights)
        argv = ["-T", str(seconds), *chosen]
        log = self.folder / "log"
        if rate is not None:
            argv += ["-R", f"{rate:.0f}", "--log", f"--log-prefix={log}", f"--sampling-rate={SAMPLED}"]
        run = self._run(connections, argv)
        start = self._run(connections, ["-t", "1", *chosen])
        cpu_us = (run.cpu_s - start.cpu_s) / max(1, run.count - start.count) * 1e6
        times = Times() if rate is None else self._times(log)
        return Figures(run.tps, cpu_us, connect_s=run.connect_s, times=times)

    def _chosen(self, weights: Mapping[str, float]) -> list[str]:
        pairs = [(name, weight) for name, weight in weights.items() if weight]
        if pairs[0][0] in BUILT_IN:
            return [word for name, weight in pairs for word in ("-b", f"{BUILT_IN[name]}@{weight:.0f}")]
        return [word for name, weight in pairs for word in ("-f", f"{self.folder / name}@{weight:.0f}")]

    def _run(self, connections: int, arguments: Sequence[str]) -> _Run:
        jobs = str(worker_count(connections))
        argv = [self.program, "-n", "-M", "prepared", "-j", jobs, "-c", str(connections), *arguments, self.dsn]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"pgbench failed: {done.stderr.strip()[-2000:]}")
        return _Run(
            tps=_number(r"tps = ([\d.]+)", done.stdout),
            count=int(_number(r"actually processed: (\d+)", done.stdout)),
            cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            connect_s=_number(r"initial connection time = ([\d.]+) ms", done.stdout) / 1e3,
        )

    def _times(self, log: Path) -> Times:
        """Percentiles of the logs of all threads, which are removed: a line has the latency and, last, the lag, µs."""
        latency, lag = [], []
        for path in log.parent.glob(f"{log.name}.*"):
            for line in path.read_text().splitlines():
                words = line.split()
                latency.append(float(words[2]))
                lag.append(float(words[-1]))
            path.unlink()
        return Times(
            lag_p50_us=_at(lag, 0.5),
            lag_p99_us=_at(lag, 0.99),
            response_p50_us=_at(latency, 0.5),
            response_p99_us=_at(latency, 0.99),
        )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0
