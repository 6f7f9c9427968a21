"""Workload kinds and drivers: the object that describes a kind, and the entry points of other packages.

A package announces workloads and drivers in its metadata, in the groups WORKLOADS and DRIVERS, under the name that
plans use. Listing the names takes some milliseconds and runs no code of the package; `load` imports it, and an error
there is an expected failure that names the package. Entry points are looked up only for a kind or an engine that is not
built in, and cannot replace a built-in one. The built-in kinds are described by the same object
(`proveout.dsl.workloads.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from proveout.dsl.source.nodes import Map, Problems

WORKLOADS, DRIVERS = "proveout.workloads", "proveout.drivers"
LOAD_ONLY = frozenset(
    {"binds", "in_order", "keys", "ops_per_transaction", "profile", "range", "transactions", "weights"}
)


def _no_problem(_: Any, __: Any) -> str | None:
    return None


@record
class WorkloadExtension:
    """Description of a workload kind: an entry point of the group WORKLOADS, or a row of `workloads.kinds`.

    Required:
    - `parameters`: a strict pydantic model that forbids extra keys; every function below takes an instance of it.
    - `transactions`: the names of the transactions.
    - `build`: `module:function`, which makes a `workloads.base.WorkloadKind` of the parameters. The module is imported
      where the load runs, so that it is the only one that needs numpy.

    Optional:
    - `writes`: whether a load changes data.
    - `rows`: the expected number of rows of the population, for `explain`; `tables`: the names of its tables.
    - `populates`: whether there is a population to load.
    - `tables_in_plan`: whether the plan names the tables, so that expressions can read `sizes.tables.<name>`.
    - `load_only`: parameters that change the load and not the rows.
    - `in_order`: whether the transactions are a set of queries that run in order, instead of a mix. `updates`: the
      names of the transactions of such a set that are not queries, whose times are reported apart.
    - `engine_problem`, `load_problem`: why an engine cannot be populated with it, or cannot run it; None when it can.
    - `part`: the parameters for one of `count` instances of a cluster (model, index, count), with a share of the keys
      of its own; `division_problem`: why the keys cannot be divided among that many instances. None: they never can.
    - `check`: further checks of the plan text at its positions (model, its node, path in the plan, problems).
    - `invariants_after`: when invariants are checked besides the population: after every iteration, or at the end of
      every stage that ran a load. `invariants_of_population`: they hold only for rows that `populate` loaded.
      `invariants_beside`: the parameters whose invariants hold after other loads on the same rows too (model, theirs);
      None where the invariants do not depend on the load.
    - `own_arrival`: an outside program makes the load: no think times, settings of connections or Ray pools.
      `values`: the names of the numbers that it gives beside the load's own, and how those of several hosts become one
      (`one`: there must be one host). `stage_problems`: why it cannot run a stage's load (model, whether there is a
      rate, number of client hosts, ramp-up and measure window in s).
    """

    parameters: type[BaseModel]
    transactions: Callable[[Any], tuple[str, ...]]
    build: str
    writes: Callable[[Any], bool] = lambda _: True
    engine_problem: Callable[[Any, str], str | None] = _no_problem
    rows: Callable[[Any], float] = lambda _: 0.0
    tables: Callable[[Any], tuple[str, ...]] = lambda _: ()
    populates: Callable[[Any], bool] = lambda _: True
    tables_in_plan: bool = False
    load_only: frozenset[str] = LOAD_ONLY
    in_order: Callable[[Any], bool] = lambda _: False
    updates: Callable[[Any], tuple[str, ...]] = lambda _: ()
    load_problem: Callable[[Any, str], str | None] = _no_problem
    part: Callable[[Any, int, int], Any] = lambda model, _, __: model
    division_problem: Callable[[Any, int], str | None] | None = None
    check: Callable[[Any, Map, str, Problems], None] = lambda _, __, ___, ____: None
    invariants_after: Literal["iteration", "stage"] | None = None
    invariants_of_population: bool = False
    invariants_beside: Callable[[Any, Sequence[Any]], Any] | None = None
    own_arrival: bool = False
    values: Callable[[Any], Mapping[str, str]] = lambda _: {}
    stage_problems: Callable[[Any, bool, int, float, float], Iterable[str]] = lambda *_: ()


def announced(group: str) -> tuple[str, ...]:
    """The names in a group, sorted."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - only where a plan names something of a package

    return tuple(sorted(set(entry_points(group=group).names)))


@cache
def load(group: str, name: str) -> Any:
    """The object announced under a name; None when there is none. Raises ProveoutError when it cannot be loaded."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - as in `announced`

    found = tuple(entry_points(group=group, name=name))
    if not found:
        return None
    packages = sorted({entry.dist.name if entry.dist is not None else entry.module for entry in found})
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
    """The extension for a workload kind; None when there is none. Raises ProveoutError when it is not usable."""
    found = load(WORKLOADS, kind)
    if found is None or isinstance(found, WorkloadExtension):
        return found
    raise ProveoutError(
        f"the workload {kind!r} is announced as {type(found).__name__}",
        way_out="its entry point must be a proveout.dsl.extensions.WorkloadExtension",
    )
