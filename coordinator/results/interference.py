"""The interference of the loads of a stage: the numbers of each together with the others, over those alone. Pure.

Data flow: the trees of estimates of a rung of all loads, and of the same rung of the ladders that run each load alone
-> `with_interference` -> `loads.<load>.interference` of the former, with the names of `metrics.INTERFERENCE`.

All ladders took turns, so both sides of a ratio have one block: it is computed from the pairs of the same repeat
(`statistics.ratio`), and a drift of the machine does not enter it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proveout.core import statistics
from proveout.core.json_data import at_path
from proveout.dsl.metrics import INTERFERENCE, LOADS
from proveout.proto.events import Metrics

GROUP = "interference"
PATHS: Mapping[str, tuple[str, ...]] = {
    "tps_ratio": ("tps",),
    "avg_ratio": ("response", "avg_us"),
    "p50_ratio": ("response", "p50_us"),
    "p95_ratio": ("response", "p95_us"),
    "p99_ratio": ("response", "p99_us"),
    "solve_ratio": ("solve_s",),
}
"""The number of a load that each ratio is of."""
assert PATHS.keys() == INTERFERENCE.keys()  # noqa: S101


def with_interference(tree: Metrics, alone: Mapping[str, Mapping[str, Any]]) -> Metrics:
    """The tree of a rung with the ratios of each of its loads; `alone`: the tree of that rung by load.

    A load that was not measured alone at the rung has none, and a ratio is left out where one side is missing.
    """
    for name, load in tree.get(LOADS, {}).items():
        found = ratios(load, at_path(alone.get(name, {}), LOADS, name) or {})
        if found:
            load[GROUP] = found
    return tree


def ratios(together: Mapping[str, Any], alone: Mapping[str, Any]) -> Metrics:
    """The ratios of a load, together over alone; of a load at a fixed rate that of the throughput is left out."""
    fixed = (at_path(together, "rate") or {}).get("mean", 0.0) > 0.0
    found: Metrics = {}
    for name, path in PATHS.items():
        left, right = at_path(together, *path), at_path(alone, *path)
        if not left or not right or (fixed and name == "tps_ratio"):
            continue
        found[name] = statistics.ratio(dict(left), dict(right))
        if lacking := max(left.get("missing", 0), right.get("missing", 0)):
            found[name]["missing"] = lacking
    return found
