"""The numbers of a task, held against what a host can be asked to do, before anything is started for it.

Flow: `session` gets a Task -> `objection(spec)` -> None, or why the task is refused as invalid. A coordinator compiles its plans against
tighter bounds; an agent does not trust it to have done so, because a task with a NaN in it would spin, and one with a million
processes would take the host down.
"""

from __future__ import annotations

import math

from proveout.dsl import session_settings
from proveout.dsl.plan import Windows
from proveout.proto.tasks import CompareSystems, LoadShare, PopulateSystem, RunCapture, RunLoad, TaskSpec

LONGEST_S = 31 * 86_400.0
SHORTEST_S = 0.001
TERMINALS_MAX = 1_000_000
RATE_MAX = 1e9
WORKERS_MAX = 4096


def objection(spec: TaskSpec) -> str | None:
    """What no host can do of a task, None when it may be tried."""
    match spec:
        case RunCapture(capture=capture):
            possible = SHORTEST_S <= capture.every_s <= LONGEST_S
            return None if possible else f"a sample every {capture.every_s} s is not possible"
        case RunLoad():
            return _windows(spec.windows) or _share(spec.share) or _workers(spec.workers) or _session(spec)
        case PopulateSystem(workers=workers):
            return _workers(workers)
        case CompareSystems(drain_timeout_s=timeout_s):
            return None if 0.0 <= timeout_s <= LONGEST_S else f"{timeout_s} s is no time to drain in"
        case _:
            return None


def _session(spec: RunLoad) -> str | None:
    found = (session_settings.objection(spec.endpoint.engine, name, value) for name, value in spec.session)
    return next((reason for reason in found if reason), None)


def _windows(windows: Windows) -> str | None:
    parts = (windows.ramp_up_s, windows.measure_s, windows.ramp_down_s)
    if not all(0.0 <= part <= LONGEST_S for part in parts) or windows.measure_s <= 0.0:
        return f"windows of {parts[0]}, {parts[1]} and {parts[2]} s are not possible"
    return None


def _share(share: LoadShare) -> str | None:
    if not (share.first >= 0 and share.count >= 1 and share.first + share.count <= share.total <= TERMINALS_MAX):
        return f"terminals {share.first} to {share.first + share.count} of {share.total} are not possible"
    rates = [rate for rate in (share.rate, share.rate_to) if rate is not None]
    if not all(math.isfinite(rate) and 0.0 <= rate <= RATE_MAX for rate in rates):
        return f"a rate of {rates} per second is not possible"
    if share.think_s is not None and not 0.0 <= share.think_s <= LONGEST_S:
        return f"a think time of {share.think_s} s is not possible"
    return None


def _workers(workers: int) -> str | None:
    return None if 0 <= workers <= WORKERS_MAX else f"{workers} worker processes are not possible"
