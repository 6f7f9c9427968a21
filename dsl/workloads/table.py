"""The explicit table of workload kinds: a compiled `plan.Workload` -> a `WorkloadKind` ready to run.

The kinds' modules import numpy, so they are imported when one is built, not when this module is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from proveout.dsl.errors import ProveoutError
from proveout.dsl.plan import Workload
from proveout.dsl.workloads import noop
from proveout.dsl.workloads.base import WorkloadKind
from proveout.dsl.workloads.parameters import KINDS, of_workload

_BUILDERS: dict[str, tuple[str, str]] = {
    "hlr": ("proveout.dsl.workloads.hlr", "build"),
    "sql": ("proveout.dsl.workloads.sql", "build"),
}


def build(workload: Workload) -> WorkloadKind:
    """The transactions, keys and population of a compiled workload. Raises ProveoutError for a kind that is not built in."""
    if workload.kind == noop.KIND:
        return noop.Noop()
    if workload.kind not in _BUILDERS:
        raise ProveoutError(
            f"no workload kind is called {workload.kind!r}",
            where=f"workload {workload.name}",
            way_out=f"this release has {', '.join(KINDS)}; run the same release on coordinator and agents",
        )
    module, function = _BUILDERS[workload.kind]
    make: Any = getattr(import_module(module), function)
    kind: WorkloadKind = make(of_workload(workload))
    return kind
