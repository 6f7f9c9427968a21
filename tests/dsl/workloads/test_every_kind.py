"""Every built-in workload: rows that do not depend on how the population is cut and are the same for ever, draws that are
reproducible per stream and apart between streams, arguments of the declared types, a description for the compiler that
agrees with what is built, parameters that are refused, and SQL texts.

The texts are golden files that a DBA can review: PostgreSQL's and Oracle's whole, those of the other dialects, of stored
procedures and of partitioned tables as the lines that differ (`-`, `+`) from PostgreSQL's, or from those of the workload
without them. Of statements for several numbers of rows the first and the last are there.
`PROVEOUT_UPDATE_GOLDEN=1 pytest tests/dsl/workloads/test_every_kind.py` writes them again: read the diff.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driven import SHOP, built, compiled
from pydantic import ValidationError

from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Statement, WorkloadKind
from proveout.dsl.workloads.kinds import (
    BUILT_IN,
    build,
    built_in,
    division_problem,
    key_range,
    part_of,
    same_rows,
    with_range,
    writes,
)
from proveout.dsl.workloads.program import Program, words

GOLDEN = Path(__file__).parents[2] / "golden" / "sql"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "hlr": ("hlr", {"population": 1_000}, "ff9ca4832c5c31dd"),
    "hlr-lab": ("hlr", {"population": 1_000, "cardinality": "lab", "keys": "nurand"}, "c86310598dc14a11"),
    "prepaid": ("prepaid", {"population": 500, "accounts_per_customer": 2}, "3d1e50801a32e20b"),
    "sql": ("sql", SHOP, "3ba23ae99b643201"),
    "tpcb": ("tpcb", {"scale": 3, "accounts_per_branch": 70}, "8c19b733b79866ea"),
    "tprocc": ("tprocc", {"warehouses": 2}, "2619de0361633205"),
    "tptbm": ("tptbm", {"key": 30}, "33db5712d9dbcafa"),
}
"""Kind, parameters, and a digest of the rows of a slice of each table: a population is the same for ever."""
SLICE = 2_000


def model(name: str, seed: int = 7) -> WorkloadKind:
    kind, parameters, _ = MODELS[name]
    return built(kind, parameters | {"seed": seed})


def slices(name: str) -> list[tuple[int, int]]:
    """The first unit and the number of units of a slice; of TPROC-C one across two warehouses, and one with customers
    of drawn names, and with orders that wait."""
    units = model(name).population.units
    middle = max(1, units // 2 - SLICE // 2), min(SLICE, units)
    return [middle, (1, 4_000)] if name == "tprocc" else [middle]


@pytest.mark.parametrize("name", MODELS)
def test_a_row_does_not_depend_on_the_slicing_and_is_the_same_for_ever(name: str) -> None:
    digest, other = hashlib.sha256(), hashlib.sha256()
    for first, count in slices(name):
        for table in model(name).population.tables:
            whole = [column.tolist() for column in table.rows(first, count)]
            for cut in (1, 70, count // 2):
                parts = table.rows(first, cut), table.rows(first + cut, count - cut)
                assert [[*one.tolist(), *two.tolist()] for one, two in zip(*parts, strict=True)] == whole, table.name
            digest.update(repr(whole).encode())
        for table in model(name, seed=8).population.tables:
            other.update(repr([column.tolist() for column in table.rows(first, count)]).encode())
    assert digest.hexdigest()[:16] == MODELS[name][2]
    if name not in ("tpcb", "tptbm"):  # they have nothing at random
        assert other.digest() != digest.digest()


@pytest.mark.parametrize("name", MODELS)
def test_all_slices_together_have_the_expected_rows_in_columns_of_their_kinds(name: str) -> None:
    """Texts are bytes of the length that their column has at most."""
    population = model(name).population
    for table in population.tables:
        firsts = range(1, population.units + 1, 10_000)
        found = (table.rows(first, min(10_000, population.units + 1 - first)) for first in firsts)
        low, high = population.expected[table.name]
        assert low <= sum(len(one[0]) for one in found) <= high, table.name
        for (column, of), values in zip(table.columns, table.rows(1, 10), strict=True):
            if values.dtype.kind == "S" and "(" in of:
                assert values.dtype.itemsize <= int(of[of.index("(") + 1 : -1]), (table.name, column)
            assert not of.startswith("int") or np.issubdtype(values.dtype, np.integer), (table.name, column)


@pytest.mark.parametrize("name", MODELS)
def test_a_stream_draws_the_same_again_and_no_other_does(name: str) -> None:
    one, other = model(name), model(name, seed=8)

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
    more = {"procedures": built("tprocc", {"procedures": True}), "tproch": built("tproch", {"scale": 0.01})}
    one = more[name] if name in more else model(name)
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
    ("kind", "parameters", "same"),
    [
        ("hlr", {"seed": 2}, False),
        ("tprocc", {"procedures": True}, False),
        ("tprocc", {"home": "all", "keying": True, "keys": "tpc", "mix": "paper", "thinking": True}, True),
        ("tpcb", {"seed": 2}, True),
        ("tptbm", {"seed": 2}, True),
    ],
)
def test_which_workloads_run_on_the_same_rows(kind: str, parameters: dict[str, Any], same: bool) -> None:
    assert same_rows(compiled(kind, {}), compiled(kind, parameters)) is same


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


# ---- parameters that are refused, and not in tests/golden/bad (`test_golden` holds that they survive the compiled plan)

ARGV = ["pgbench", "--client={threads}", "--time={seconds}"]
COLUMNS = {"time": "t", "tps": "n"}
PGBENCH = {"argv": ARGV, "output": "pgbench"}


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("hlr", {"population": 0}, "greater than or equal to 1"),
        ("hlr", {"population": 10_000_000_001}, "less than or equal to 10000000000"),
        ("hlr", {"keys": "zipf"}, "'uniform' or 'nurand'"),
        ("hlr", {"population": 3, "partitions": 4}, "would leave some empty"),
        ("hlr", {"weights": {"GetAccessData": float("nan")}}, "from 0 to 1e9"),
        ("tprocc", {"mix": "paper", "weights": {"Payment": 1.0}}, "give one of them"),
        ("tproch", {"scale": 0.015}, "multiple of 0.01"),
        ("tproch", {"scale": 1.5}, "a whole number"),
        ("tproch", {"scale": 10_737.0}, "10000"),  # beyond, keys of parts would not fit into four bytes
        ("tproch", {"queries": [1, 23]}, "query 23 does not exist"),
        ("tproch", {"queries": [2, 2]}, "twice"),
        ("program", PGBENCH | {"argv": ARGV[:2]}, "no argument has {seconds}"),
        ("program", PGBENCH | {"argv": ["./pgbench", *ARGV[1:]]}, "neither the absolute path"),
        ("program", PGBENCH | {"argv": [*ARGV, "a\0b"]}, "control characters"),
        ("program", PGBENCH | {"output": "csv"}, "a summary needs the metric `tps` or `transactions`"),
        ("program", PGBENCH | {"output": "csv", "metrics": {"tps": {}, "transactions": {}}}, "and not both"),
        ("program", PGBENCH | {"output": {"log": COLUMNS}, "metrics": {"tps": {}}}, "`tps` is a column of the `log`"),
        ("program", PGBENCH | {"output": {"format": "csv", "file": "../x", "log": COLUMNS}}, "not the name of a file"),
        ("program", PGBENCH | {"output": {"format": "csv", "separator": '"'}, "metrics": {"tps": {}}}, "not a quote"),
        ("program", PGBENCH | {"metrics": {"p90_ms": {}}}, "output: pgbench has numbers of its own"),
    ],
)
def test_wrong_parameters_are_refused(kind: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        built_in(kind).parameters.model_validate(parameters)
    assert message in str(caught.value)


def test_the_fields_of_a_program_s_arguments_are_filled_in() -> None:
    argv = Program.model_validate(PGBENCH).argv
    assert words(argv, {"threads": "4", "seconds": "10"}) == ("pgbench", "--client=4", "--time=10")


@pytest.mark.parametrize(
    ("parameters", "whole"),
    [
        ({"output": "pgbench"}, True),
        ({"output": "sysbench"}, False),
        ({"output": "json", "metrics": {"tps": {}}}, False),
        ({"output": {"log": COLUMNS}}, True),
        ({"output": "json", "metrics": {"tps": {}}, "argv": ["c", "{threads}", "{measure_s}"]}, True),
    ],
)
def test_a_run_of_a_program_covers_the_ramp_up_where_its_window_can_be_cut(parameters: Any, whole: bool) -> None:
    assert Program.model_validate(PGBENCH | parameters).runs_whole is whole


# ---- SQL texts

NAMES = ("tptbm", "prepaid", "tpcb")
DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "oracle", "mysql", "duckdb")
WHOLE: tuple[Dialect, ...] = ("postgres", "oracle")
PARTITIONED = {"population": 2_500_000_000, "cardinality": "lab", "partitions": 2}
TEXTS: dict[str, tuple[str, dict[str, Any], tuple[Dialect, ...]]] = {
    **{kind: (kind, {}, DIALECTS) for kind in (*NAMES, "tproch")},
    "hlr": ("hlr", {"population": 100_000}, ("oracle",)),
    "hlr-partitioned": ("hlr", PARTITIONED, ("oracle",)),
    "tprocc": ("tprocc", {}, DIALECTS[:-1]),
    "tprocc-procedures": ("tprocc", {"procedures": True}, WHOLE),
}


def statements(workload: WorkloadKind) -> list[Statement]:
    """Each once: transactions may share one."""
    used = [statement for kind in workload.transactions for statement in kind.statements]
    every = [*used, *(invariant.statement for invariant in workload.invariants)]
    return list({id(statement): statement for statement in every}.values())


def lines(name: str, dialect: Dialect) -> list[str]:
    """The texts of a workload in a dialect, in the order in which they are sent."""
    workload = built(*TEXTS[name][:2])
    population = workload.population
    found = ["-- before the load", *population.before[dialect]]
    for number, phase in enumerate(population.after[dialect], start=1):
        found += [f"-- after the load, phase {number}", *phase]
    found += ["-- removal", *population.drop[dialect]]
    every = {statement.name: statement.text[dialect] for statement in statements(workload)}
    families: dict[str, list[str]] = {}
    for statement in every:
        families.setdefault(re.sub(r"_\d+$", "", statement), []).append(statement)
    for family in families.values():
        for statement in dict.fromkeys((family[0], family[-1])):
            found += [f"-- {statement}", every[statement]]
    return [line for text in found for line in text.split("\n")]


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name, (_, _, dialects) in TEXTS.items() for dialect in dialects]
)
def test_the_texts(name: str, dialect: Dialect) -> None:
    text, plain = lines(name, dialect), name.partition("-")[0]
    if plain != name or dialect not in WHOLE:
        other = lines(plain, dialect if plain != name else "postgres")
        found = difflib.unified_diff(other, text, n=0, lineterm="")
        text = [line for line in found if not line.startswith(("---", "+++", "@@"))]
    path = GOLDEN / f"{name}-{dialect}.sql"
    if UPDATE:
        path.write_text("\n".join(text) + "\n")
    assert "\n".join(text) + "\n" == path.read_text()


@pytest.mark.parametrize("kind", NAMES)
def test_arguments_stand_in_the_order_of_their_numbers_and_once_each(kind: str) -> None:
    """Engines with unnamed placeholders bind arguments in order."""
    for statement in statements(built(kind, {})):
        for text in statement.text.values():
            assert re.findall(r"\$(\d+)", text) == [str(n) for n in range(1, len(statement.arguments) + 1)], text
