"""Real runs whose coordinator is killed (SIGKILL) while a fault is in place: the agent heals by itself when its lease
ends.

Data flow: a seed -> a kind of fault, and a moment -> `proveout run` with an embedded PostgreSQL, to whose measure window
the fault belongs -> SIGKILL of the coordinator -> the agent's processes end within the lease and the time of a healing
-> a list of errors. Checked after each: processes, the room of the disk, the changed file, tables of nftables, and the
undo journal. `fault_kills(count)` spreads the moments from before the fault to after its healing.
"""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from live_run import LiveRun
from restarts import external

from proveout.proto.events import FaultSeen, IterationStarted

LEASE_S = 2.0
HEALING_S = 20.0
"""The longest healing that is not an error: the recovery and the stop of a server on a busy machine."""
AT_S, FOR_S = 0.4, 0.8
PLAN = """
proveout: 1
name: faulty
topology:
  hosts:
    box: {{roles: [server, client], address: local}}
    other: {{roles: [other], address: local}}
  systems:
    db: {{engine: postgres, host: box, provision: embedded}}
    reached: {{engine: postgres, host: other, dsn: "{dsn}"}}
workloads:
  hlr: {{kind: hlr, population: 100}}
stages:
  - populate: {{workload: hlr, into: db}}
  - ladder:
      workload: hlr
      target: db
      from: box
      threads: [1]
      think: {{constant: 2ms}}
      ramp_up: 0s
      measure: 30s
      ramp_down: 0s
      repeat: 1
      faults:
        - {{name: struck, at: {at_s}s, {fault}}}
"""
KINDS = {
    "kill": "for: {for_s}s, kill: {{system: db}}, destructive: true",
    "stop": "for: {for_s}s, stop: {{system: db}}",
    "restart": "restart: {{system: db}}",
    "partition": "for: {for_s}s, partition: {{between: [box, other]}}",
    "fill_disk": "for: {for_s}s, fill_disk: {{folder: {folder}, up_to: 1MiB}}, on: box, destructive: true",
    "cpu_pressure": "for: {for_s}s, cpu_pressure: {{share: 20%, cpus: 1}}, on: box",
    "file": "for: {for_s}s, file: {{path: {folder}/app.conf, content: faulty}}, on: box",
}
POLICY = """
policy: 1
provision: [postgres]
faults: [partition, fill_disk, cpu_pressure]
disk_left: 0B
paths: [{{path: {folder}, i_know: files of a test}}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A kill: the kind of fault, the moment after the start of the window, the last step of the fault in the journal
    ("" before it began), the time until everything was healed, and the errors."""

    kind: str
    at_s: float
    step: str
    healed_s: float
    wrongs: tuple[str, ...]


def killed(kind: str, at_s: float, dsn: str, folder: Path) -> Killed:
    """Kill the coordinator of a run `at_s` seconds after the start of the window."""
    etc = folder / "etc"
    etc.mkdir()
    (etc / "app.conf").write_text("before")
    policy = folder / "policy" / "policy.yaml"
    policy.parent.mkdir(mode=0o700)
    policy.write_text(POLICY.format(folder=etc))
    fault = KINDS[kind].format(for_s=FOR_S, folder=etc)
    undo = folder / "undo" / "h"
    text = PLAN.format(dsn=dsn, at_s=AT_S, fault=fault)
    run = LiveRun(folder, text, "--policy", str(policy), lease_s=LEASE_S, environment={"LEASED_UNDO": str(undo)})
    try:
        started = run.until_event(IterationStarted)
        run.until_s(time.monotonic() + started.starts_in_s + started.ramp_up_s + at_s)
        left = run.below()
        run.process.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        run.process.wait()
        _, alive = psutil.wait_procs(left, timeout=LEASE_S + HEALING_S)
        healed_s = time.monotonic() - killed_s
    finally:
        run.kill()
    wrongs = [f"process {one.pid} ({one.name()}) is left" for one in alive]
    wrongs += [f"{path} is left" for path in etc.iterdir() if path.name != "app.conf"]
    wrongs += [] if (etc / "app.conf").read_text() == "before" else ["the file is not as before"]
    wrongs += [f"process {pid} keeps a CPU busy" for pid in _busy()]
    wrongs += [f"{line} is left" for line in _tables()]
    wrongs += [f"{path} is left" for path in undo.rglob("undo.sqlite")]
    steps = [event.step for event in run.all(FaultSeen)]
    return Killed(kind=kind, at_s=at_s, step=(steps or [""])[-1], healed_s=healed_s, wrongs=tuple(wrongs))


def _busy() -> list[int]:
    return [one.pid for one in psutil.process_iter(["cmdline"]) if "sched_setaffinity" in str(one.info["cmdline"])]


def _tables() -> list[str]:
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.splitlines() if "proveout_partition_" in line]


def fault_kills(count: int, progress: Callable[[int], None], seed: int = 1) -> tuple[str, list[str]]:
    """Kill `count` coordinators; the figure, and the errors."""
    drawn = random.Random(seed)
    failures: list[str] = []
    during, longest_s = 0, 0.0
    with external() as server:
        for number in range(count):
            kind = list(KINDS)[number % len(KINDS)]
            at_s = AT_S - 0.2 + (number + drawn.random()) / count * (FOR_S + 0.6)
            with tempfile.TemporaryDirectory() as folder:
                found = killed(kind, at_s, server.dsn, Path(folder))
            during += found.step in ("begins", "in_place", "healing")
            longest_s = max(longest_s, found.healed_s)
            failures += [f"{kind} at {at_s:.2f} s, after {found.step or 'nothing'}: {one}" for one in found.wrongs]
            progress(number + 1)
    return (
        f"{count} coordinators killed around a fault, {during} with the fault in place; {len(failures)} left unhealed; "
        f"healed within {longest_s:.1f} s of the kill, with a lease of {LEASE_S:g} s",
        failures,
    )
