"""The table of workload kinds, and the questions that the compiler, the coordinator and agents ask about a workload.

A question without a description has that of the field of `extensions.WorkloadExtension` that it reads.

A kind's module is imported when a plan uses the kind, and the module with its rows and keys, which imports numpy,
when a load is built. `proveout check` therefore never imports numpy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from proveout.core.errors import ProveoutError
from proveout.dsl import engines, extensions
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.model_values import from_values, to_values
from proveout.dsl.plan.topology import Workload
from proveout.dsl.workloads.base import (
    Population,
    Request,
    TransactionType,
    WorkloadKind,
    everywhere,
    numbers,
    single_body,
)

T = TypeVar("T")

# It has no tables, no keys and no parameters, and a plan cannot name it: it does not measure a database.

KIND = "noop"

SELECT_ONE = numbers("select_one", {**everywhere("SELECT 1"), "oracle": "SELECT 1 FROM dual"}, 1)
_REQUEST: Request = (SELECT_ONE, ())


class Noop:
    """The workload kind."""

    transactions = (
        TransactionType(
            name="Noop",
            weight=1.0,
            inputs=lambda _: lambda: _REQUEST,
            body=single_body,
            statements=(SELECT_ONE,),
            single=True,
            bare=True,
        ),
    )
    population = Population()

    invariants = ()

    def keys(self, stream: int) -> None:
        """There is nothing to draw."""


BUILT_IN = ("hlr", "prepaid", "program", "sql", "tpcb", "tprocc", "tproch", "tptbm")
"""The built-in kinds: each is the object `KIND` of the package of its name in this folder."""


@cache
def built_in(kind: str) -> WorkloadExtension:
    """The description of a built-in kind; ModuleNotFoundError for any other."""
    found: WorkloadExtension = _object(f"{__package__}.{kind}:KIND")
    return found


def extension(kind: str) -> WorkloadExtension | None:
    """The description of a kind; None when there is none. Raises ProveoutError when a package's cannot be loaded."""
    return built_in(kind) if kind in BUILT_IN else extensions.workload(kind)


def names() -> tuple[str, ...]:
    """The names of all kinds, built in and installed."""
    return (*BUILT_IN, *(kind for kind in extensions.announced(extensions.WORKLOADS) if kind not in BUILT_IN))


def build(workload: Workload) -> WorkloadKind:
    """The transactions, keys and population of a compiled workload. Raises ProveoutError for an unknown kind."""
    if workload.kind == KIND:
        return Noop()
    kind, parameters = _kind(workload)
    module, _, function = kind.build.partition(":")
    if not module or not function:
        raise ProveoutError(
            f"the workload kind {workload.kind!r} has no usable `build`: {kind.build!r}",
            where=f"workload {workload.name}",
            way_out="the `build` of its WorkloadExtension must be `module:function`",
        )
    built: WorkloadKind = _object(kind.build)(parameters)
    return built


def of_workload(workload: Workload) -> BaseModel:
    """The parameters of a compiled workload. Raises pydantic.ValidationError when they do not fit the kind's model."""
    return _kind(workload)[1]


def _asked(of: Callable[[WorkloadExtension], Callable[[Any], T]]) -> Callable[[Workload], T]:
    """The question that a field of the description answers."""

    def ask(workload: Workload) -> T:
        kind, model = _kind(workload)
        return of(kind)(model)

    return ask


transactions = _asked(lambda kind: kind.transactions)
writes = _asked(lambda kind: kind.writes)
expected_rows = _asked(lambda kind: kind.rows)
is_in_order = _asked(lambda kind: kind.in_order)
updates = _asked(lambda kind: kind.updates)
has_tables = _asked(lambda kind: kind.populates)
own_values = _asked(lambda kind: kind.values)
table_names = _asked(lambda kind: kind.tables)
"""The names of the tables of the population; () when the kind does not give them."""


def part_of(workload: Workload, index: int, count: int) -> Workload:
    """The workload for one of `count` instances: with a run of the keys of its own, the same for all where the kind
    cannot divide.

    The runs are disjoint, in order, and differ by one key at most. Raises ValueError when there are fewer keys than
    instances.
    """
    if count == 1:
        return workload
    kind, model = _kind(workload)
    part = kind.part(model, index, count)
    return workload if part is model else dataclasses.replace(workload, parameters=to_values(part))


def with_range(workload: Workload, first: int, last: int) -> Workload:
    """The workload whose load touches the keys `first` … `last` only. Raises ValueError where the kind has no key
    range, or not these keys."""
    kind, model = _kind(workload)
    if "range" not in kind.load_only or "range" not in type(model).model_fields:
        raise ValueError(f"workload kind `{workload.kind}` has no key range")
    values = {**model.model_dump(by_alias=True), "range": (first, last)}
    try:
        return dataclasses.replace(workload, parameters=to_values(type(model).model_validate(values)))
    except ValidationError as error:
        raise ValueError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None


def key_range(workload: Workload) -> tuple[int, int] | None:
    """The first and the last key that a load touches; None where its kind has no key range."""
    _, model = _kind(workload)
    ends = getattr(model, "first", None), getattr(model, "last", None)
    return ends if isinstance(ends[0], int) and isinstance(ends[1], int) else None  # type: ignore[return-value]


def division_problem(workload: Workload, instances: int) -> str | None:
    """The reason why a workload cannot run on a system of that many instances; None when it can."""
    if instances < 2:
        return None
    kind, model = _kind(workload)
    if kind.division_problem is None:
        able = " and ".join(name for name in BUILT_IN if built_in(name).division_problem)
        return f"workload kind `{workload.kind}` cannot give each instance its own keys; {able} can"
    return kind.division_problem(model, instances)


def tables_in_plan(workload: Workload) -> tuple[str, ...]:
    """The tables that the plan itself names; () for every kind that brings its own."""
    return table_names(workload) if _kind(workload)[0].tables_in_plan else ()


def same_rows(one: Workload, other: Workload) -> bool:
    """Whether two workloads run on the same population: they are of one kind and differ only in the load."""
    load_only = _kind(one)[0].load_only
    rows = [{n: v for n, v in workload.parameters if n not in load_only} for workload in (one, other)]
    return one.kind == other.kind and rows[0] == rows[1]


def population_problem(workload: Workload, engine: str) -> str | None:
    """The reason why a workload cannot be loaded into `engine`; None when it can."""
    found = engines.of(engine)
    if found.instead_of_populate:
        return f"populate does not load {found.title} in this release; {found.instead_of_populate}"
    kind, model = _kind(workload)
    return kind.engine_problem(model, engine)


def load_problem(workload: Workload, engine: str) -> str | None:
    kind, model = _kind(workload)
    if engine == engines.NO_DATABASE and not kind.own_arrival:
        return "it is not a database, and only workloads of kind program run without one"
    return kind.load_problem(model, engine)


def has_own_arrival(workload: Workload) -> bool:
    """Whether an outside program makes the load, with its own arrival and connections."""
    kind = extension(workload.kind)
    return kind is not None and kind.own_arrival


def stage_problems(
    workload: Workload, *, has_rate: bool, clients: int, ramp_up_s: float, measure_s: float
) -> Iterator[str]:
    kind, model = _kind(workload)
    yield from kind.stage_problems(model, has_rate, clients, ramp_up_s, measure_s)


def invariants_after(workload: Workload) -> Literal["iteration", "stage"] | None:
    kind = extension(workload.kind)
    return kind.invariants_after if kind is not None else None


def invariants_need_population(workload: Workload) -> bool:
    """Whether the invariants hold only for rows that `populate` loaded."""
    kind = extension(workload.kind)
    return kind is not None and kind.invariants_of_population


def beside(workload: Workload, others: Iterable[Workload]) -> Workload:
    """The workload whose invariants hold for data that loads of the `others` on the same rows have changed too."""
    kind, model = _kind(workload)
    if kind.invariants_beside is None:
        return workload
    same = [of_workload(other) for other in others if same_rows(workload, other)]
    return dataclasses.replace(workload, parameters=to_values(kind.invariants_beside(model, same)))


def _kind(workload: Workload) -> tuple[WorkloadExtension, BaseModel]:
    kind = extension(workload.kind)
    if kind is None:
        raise ProveoutError(
            f"there is no workload kind {workload.kind!r}",
            where=f"workload {workload.name}",
            way_out=f"there are {', '.join(names())}; install the same release and packages on coordinator and agents",
        )
    return kind, from_values(kind.parameters, workload.parameters)


def _object(path: str) -> Any:
    """The object at `module:name`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
