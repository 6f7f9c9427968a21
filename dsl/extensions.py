"""Workloads and drivers of other packages, by entry points: looked up when a kind or an engine is not built in, never before.

A package announces them in its metadata, in the groups WORKLOADS and DRIVERS, under the name that plans use. Reading the
names costs some milliseconds and runs none of its code; `load` imports it, and what fails there is an expected failure
that names the package. What is built in cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel

from proveout.core.errors import ProveoutError

WORKLOADS, DRIVERS = "proveout.workloads", "proveout.drivers"


def _nothing(_: Any, __: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadExtension:
    """What an entry point of the group WORKLOADS is: all that the compiler asks of a kind.

    `parameters` is a strict pydantic model that forbids extra keys; the functions take one. `build` is `module:function`
    and makes a `workloads.base.WorkloadKind` of it; it is imported where the load runs, so that only its module needs
    numpy. `writes` is whether a load changes data, `engine_problem` why an engine cannot be populated with it or None,
    `rows` about how many rows the population has.
    """

    parameters: type[BaseModel]
    transactions: Callable[[Any], tuple[str, ...]]
    build: str
    writes: Callable[[Any], bool] = lambda _: True
    engine_problem: Callable[[Any, str], str | None] = _nothing
    rows: Callable[[Any], float] = lambda _: 0.0


def announced(group: str) -> tuple[str, ...]:
    """The names in a group, sorted."""
    return tuple(sorted(set(entry_points(group=group).names)))


@cache
def load(group: str, name: str) -> Any:
    """What a package announces under a name; None when nobody does. Raises ProveoutError when it cannot be had."""
    found = tuple(entry_points(group=group, name=name))
    if not found:
        return None
    packages = sorted({_package(entry) for entry in found})
    if len(packages) > 1:
        raise ProveoutError(f"{name!r} is announced by {' and by '.join(packages)}", way_out="uninstall one of them")
    try:
        return found[0].load()
    except Exception as error:
        raise ProveoutError(
            f"{name!r} of package {packages[0]} cannot be loaded: {type(error).__name__}: {error}",
            way_out=f"repair or uninstall {packages[0]}",
        ) from error


def workload(kind: str) -> WorkloadExtension | None:
    """The extension for a kind of workload; None when there is none. Raises ProveoutError when it is not usable."""
    found = load(WORKLOADS, kind)
    if found is None or isinstance(found, WorkloadExtension):
        return found
    raise ProveoutError(
        f"the workload {kind!r} is announced as {type(found).__name__}",
        way_out="its entry point must be a proveout.dsl.extensions.WorkloadExtension",
    )


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
