"""The explicit table of workload kinds: a compiled `plan.Workload` -> a `WorkloadKind` ready to run.

The kinds' modules import numpy, so they are imported when one is built, not when this module is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from proveout.core.errors import ProveoutError
from proveout.dsl import extensions
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads import noop
from proveout.dsl.workloads.base import WorkloadKind
from proveout.dsl.workloads.parameters import of_workload

_BUILDERS: dict[str, tuple[str, str]] = {
    "hlr": ("proveout.dsl.workloads.hlr.workload", "build"),
    "tprocc": ("proveout.dsl.workloads.tprocc.workload", "build"),
    "sql": ("proveout.dsl.workloads.sql.workload", "build"),
    "prepaid": ("proveout.dsl.workloads.prepaid.workload", "build"),
    "tptbm": ("proveout.dsl.workloads.tptbm.workload", "build"),
}


def build(workload: Workload) -> WorkloadKind:
    """The transactions, keys and population of a compiled workload. Raises ProveoutError for a kind that nobody has."""
    if workload.kind == noop.KIND:
        return noop.Noop()
    parameters = of_workload(workload)
    module, function = _BUILDERS.get(workload.kind) or _announced(workload)
    make: Any = getattr(import_module(module), function)
    kind: WorkloadKind = make(parameters)
    return kind


def _announced(workload: Workload) -> tuple[str, str]:
    """Where another package builds its kind."""
    extension = extensions.workload(workload.kind)
    module, _, function = extension.build.partition(":") if extension else ("", "", "")
    if not module or not function:
        raise ProveoutError(
            f"the workload kind {workload.kind!r} does not say how it is built",
            where=f"workload {workload.name}",
            way_out="the `build` of its WorkloadExtension is `module:function`",
        )
    return module, function
