"""Every built-in workload: rows that do not depend on how the population is cut and are the same for
ever, draws that are reproducible per stream and apart between streams, arguments of the declared types, and a
description for the compiler that agrees with what is built."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from driven import built, compiled
from shop import SHOP

from proveout.core.errors import ProveoutError
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import (
    BUILT_IN,
    build,
    built_in,
    division_problem,
    key_range,
    part_of,
    with_range,
    writes,
)

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "hlr": ("hlr", {"population": 1_000, "seed": 7}),
    "hlr-lab": ("hlr", {"population": 1_000, "seed": 7, "cardinality": "lab", "keys": "nurand"}),
    "prepaid": ("prepaid", {"population": 500, "accounts_per_customer": 2, "seed": 7}),
    "sql": ("sql", SHOP | {"seed": 7}),
    "tpcb": ("tpcb", {"scale": 3, "accounts_per_branch": 70, "seed": 7}),
    "tprocc": ("tprocc", {"warehouses": 2, "seed": 7}),
    "tptbm": ("tptbm", {"key": 30, "seed": 7}),
}
SLICE = 2_000
ROWS = {
    "hlr": "ff9ca4832c5c31dd",
    "hlr-lab": "c86310598dc14a11",
    "prepaid": "3d1e50801a32e20b",
    "sql": "3ba23ae99b643201",
    "tpcb": "8c19b733b79866ea",
    "tprocc": "2619de0361633205",
    "tptbm": "33db5712d9dbcafa",
}
"""A digest of the rows of a slice of each table: a population is the same for ever."""


def slices(name: str) -> list[tuple[int, int]]:
    """The first unit and the number of units of a slice; of TPROC-C one across two warehouses, and one with customers
    of drawn names, and with orders that wait."""
    units = built(*MODELS[name]).population.units
    middle = max(1, units // 2 - SLICE // 2), min(SLICE, units)
    return [middle, (1, 4_000)] if name == "tprocc" else [middle]


@pytest.mark.parametrize("name", MODELS)
def test_a_row_does_not_depend_on_the_slicing_and_is_the_same_for_ever(name: str) -> None:
    kind, parameters = MODELS[name]
    digest, other = hashlib.sha256(), hashlib.sha256()
    for first, count in slices(name):
        for table in built(kind, parameters).population.tables:
            whole = [column.tolist() for column in table.rows(first, count)]
            for cut in (1, 70, count // 2):
                parts = table.rows(first, cut), table.rows(first + cut, count - cut)
                assert [[*one.tolist(), *two.tolist()] for one, two in zip(*parts, strict=True)] == whole, table.name
            digest.update(repr(whole).encode())
        for table in built(kind, parameters | {"seed": 8}).population.tables:
            other.update(repr([column.tolist() for column in table.rows(first, count)]).encode())
    assert digest.hexdigest()[:16] == ROWS[name]
    if name not in ("tpcb", "tptbm"):  # they have nothing at random
        assert other.digest() != digest.digest()


@pytest.mark.parametrize("name", MODELS)
def test_all_slices_together_have_the_expected_rows(name: str) -> None:
    population = built(*MODELS[name]).population
    for table in population.tables:
        firsts = range(1, population.units + 1, 10_000)
        found = (table.rows(first, min(10_000, population.units + 1 - first)) for first in firsts)
        low, high = population.expected[table.name]
        assert low <= sum(len(one[0]) for one in found) <= high, table.name


@pytest.mark.parametrize("name", MODELS)
def test_a_stream_draws_the_same_again_and_no_other_does(name: str) -> None:
    kind, parameters = MODELS[name]
    other = built(kind, parameters | {"seed": 8})
    one = built(kind, parameters)

    def drawn(index: int, stream: int, of: Any = one) -> list[Any]:
        source = of.transactions[index].inputs(of.keys(stream))
        return [source() for _ in range(300)]

    seeds = set()
    for index, transaction in enumerate(one.transactions):
        first = drawn(index, 1)
        assert drawn(index, 1) == first
        seeds.add(drawn(index, 1, other) == first)
        if len(set(map(repr, first))) > 1:  # it draws something
            others = drawn(index, 2), drawn(index, 1 << 32 | 1)
            assert [found == first for found in others] == [False] * 2, transaction.name
    assert False in seeds, "another seed draws others"


@pytest.mark.parametrize("name", [*MODELS, "procedures", "tproch"])
def test_the_first_arguments_of_a_transaction_have_the_types_of_its_statement(name: str) -> None:
    """A driver may send the inputs of a bare transaction without its body, whose only request they are."""
    more = {"procedures": ("tprocc", {"procedures": True}), "tproch": ("tproch", {"scale": 0.01})}
    one = built(*(MODELS | more)[name])
    for transaction in one.transactions:
        inputs = transaction.inputs(one.keys(0))()
        statement, arguments = next(transaction.body(inputs))
        assert statement in transaction.statements
        kinds = [isinstance(value, kind) for value, kind in zip(arguments, statement.arguments, strict=True)]
        assert all(kinds), transaction.name
        assert not transaction.bare or (statement, arguments) == inputs
    used = {id(statement): statement for kind in one.transactions for statement in kind.statements}
    assert len({statement.name for statement in used.values()}) == len(used)


@pytest.mark.parametrize("kind", [kind for kind in BUILT_IN if kind not in ("sql", "program")])
def test_the_description_of_a_kind_agrees_with_what_is_built(kind: str) -> None:
    """Of the kinds that have defaults; the plan gives the transactions of `sql` and the `program`."""
    described, one = built_in(kind), built(kind, {})
    model = described.parameters.model_validate({})
    assert tuple(transaction.name for transaction in one.transactions) == described.transactions(model)
    assert tuple(table.name for table in one.population.tables) == described.tables(model)
    assert described.load_only <= {*described.parameters.model_fields}
    low, high = (sum(ends) for ends in zip(*one.population.expected.values(), strict=True))
    assert 0.999 * low <= described.rows(model) <= 1.001 * high


@pytest.mark.parametrize(
    ("kind", "parameters", "changes"),
    [
        ("hlr", {"weights": {"GetAccessData": 1, "UpdateLocation": 1}}, True),
        ("hlr", {"weights": {"GetAccessData": 1, "GetNewDestination": 1}}, False),
        ("tprocc", {}, True),
        ("tprocc", {"weights": {"OrderStatus": 1.0, "StockLevel": 1.0}}, False),
        ("sql", SHOP, True),
        ("sql", {"transactions": {"A": {"statements": {"s": "SELECT 1"}}}}, False),
    ],
)
def test_which_workloads_write(kind: str, parameters: dict[str, Any], changes: bool) -> None:
    assert writes(compiled(kind, parameters)) is changes


@pytest.mark.parametrize(
    ("kind", "parameters", "keys"),
    [
        ("hlr", {"population": 10}, "subscribers"),
        ("prepaid", {"population": 10}, "customers"),
        ("tpcb", {"scale": 10}, "branches"),
    ],
)
def test_the_runs_of_members_cover_the_keys_and_none_is_empty(kind: str, parameters: Any, keys: str) -> None:
    workload = compiled(kind, parameters)
    runs = [key_range(part_of(workload, index, 4)) for index in range(4)]
    assert runs == [(1, 3), (4, 6), (7, 8), (9, 10)]
    assert division_problem(workload, 10) is None
    assert division_problem(workload, 11) == f"10 {keys} cannot be divided over 11 instances"
    assert key_range(with_range(workload, 5, 7)) == (5, 7)
    with pytest.raises(ValueError, match=rf"range \[5, 11\] does not lie within the {keys} 1..10"):
        with_range(workload, 5, 11)


def test_an_unknown_kind_is_a_plan_error() -> None:
    with pytest.raises(ProveoutError, match="there is no workload kind 'ycsb'"):
        build(Workload(name="x", kind="ycsb", parameters=()))


def test_columns_have_the_widths_of_their_kinds() -> None:
    """Texts are bytes of the length that their column has at most."""
    for kind, parameters in MODELS.values():
        for table in built(kind, parameters).population.tables:
            for (name, of), column in zip(table.columns, table.rows(1, 10), strict=True):
                if column.dtype.kind == "S" and "(" in of:
                    assert column.dtype.itemsize <= int(of[of.index("(") + 1 : -1]), (table.name, name)
                assert not of.startswith("int") or np.issubdtype(column.dtype, np.integer), (table.name, name)
