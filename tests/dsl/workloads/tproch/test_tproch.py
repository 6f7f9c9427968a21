"""TPROC-H: orders of the streams, substitution rules, refresh sets, and the rows of the population."""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import pytest
from driven import Given, built, drive

from proveout.core.errors import ProveoutError
from proveout.dsl.workloads.base import Outcome
from proveout.dsl.workloads.tproch import QUERIES, SETS, TABLES, Tproch, queries, transactions, workload
from proveout.dsl.workloads.tproch.queries import STATEMENTS, TEMPLATES
from proveout.dsl.workloads.tproch.workload import COLUMNS

SMALL = Tproch()


# ---- streams


def test_every_stream_has_all_queries_and_an_order_of_its_own() -> None:
    assert len(workload.ORDERS) == len(set(workload.ORDERS)) == 41
    assert all(sorted(order) == list(QUERIES) for order in workload.ORDERS)
    assert workload.order(41) == workload.order(0)
    assert tuple(COLUMNS) == TABLES
    assert tuple(STATEMENTS) == tuple(TEMPLATES) == QUERIES


def test_the_power_test_has_stream_0_between_the_refresh_functions_and_only_these_change_rows() -> None:
    power = built("tproch", SMALL)
    names = power.sequence(0)  # type: ignore[attr-defined]
    assert (names[:3], names[-2:]) == (["RF1", "Q14", "Q2"], ["Q12", "RF2"])
    assert sorted(names) == sorted(transactions(SMALL))
    assert [one.name for one in power.transactions if any(s.changes for s in one.statements)] == ["RF1", "RF2"]
    assert transactions(Tproch(test="refresh")) == ("RF1", "RF2")


def test_terminals_of_the_throughput_test_have_streams_from_1_on() -> None:
    one = built("tproch", {"test": "throughput", "queries": [21, 3, 4]})
    assert one.sequence(0) == ["Q21", "Q3", "Q4"]  # type: ignore[attr-defined]
    assert one.sequence(1) == ["Q4", "Q3", "Q21"]  # type: ignore[attr-defined]
    assert [one.name for one in one.transactions] == ["Q3", "Q4", "Q21"]


# ---- parameters of the queries


def drawn(number: int, stream: int = 0, seed: int = 1, count: int = 300) -> list[tuple[object, ...]]:
    parameters = queries.Parameters(seed, stream, 1.0)
    return [parameters.arguments(number) for _ in range(count)]


def test_arguments_have_the_types_of_their_statement() -> None:
    for number in QUERIES:
        places = {int(one) for one in re.findall(r"\$(\d+)", TEMPLATES[number])}
        assert places == set(range(1, len(STATEMENTS[number].arguments) + 1)), number
        for arguments in (*drawn(number, count=20), queries.validation(1.0)[number]):
            assert tuple(map(type, arguments)) == STATEMENTS[number].arguments, number


def test_the_same_stream_draws_the_same_in_every_iteration_and_others_do_not() -> None:
    assert drawn(8) == drawn(8)
    assert drawn(8) != drawn(8, stream=1)
    assert drawn(8) != drawn(8, seed=2)
    one, iteration = built("tproch", {"test": "throughput"}), 1 << 32
    assert one.keys(3)["Q8"]() == one.keys(3 + 77 * iteration)["Q8"]()
    assert one.keys(3)["Q8"]() != one.keys(4)["Q8"]()


def test_dates_are_drawn_from_their_whole_ranges() -> None:
    days = [date.fromisoformat(str(one[0])) for one in drawn(1)]
    assert (min(days), max(days)) == (date(1998, 8, 3), date(1998, 10, 2))
    for number, first, last, months in ((4, "1993-01", "1997-10", 3), (10, "1993-02", "1995-01", 3)):
        spans = [(str(low), str(high)) for low, high in drawn(number)]
        assert (min(spans)[0], max(spans)[0]) == (f"{first}-01", f"{last}-01")
        low, high = map(date.fromisoformat, spans[0])
        assert (high.year * 12 + high.month) - (low.year * 12 + low.month) == months
    assert {str(one[1]) for one in drawn(5)} == {f"{year}-01-01" for year in range(1993, 1998)}


def test_values_follow_the_rules_of_their_queries() -> None:
    assert all(one != other for one, other in drawn(7))
    assert all(len(set(one[2:])) == 8 for one in drawn(16))
    assert all(len(set(one)) == 7 for one in drawn(22))
    assert all(one[0] != one[1] for one in drawn(12))
    regions = dict(queries.NATIONS)
    assert all(one[1] == queries.REGIONS[regions[str(one[0])]] for one in drawn(8)), "its nation's region"
    discounts = {(f"{(middle - 1) / 100:.2f}", f"{(middle + 1) / 100:.2f}") for middle in range(2, 10)}
    assert {(one[2], one[3]) for one in drawn(6)} == discounts
    assert queries.fraction_of(1.0) == "0.0001000000", "of query 11, by the scale"
    assert queries.fraction_of(300.0) == "0.0000003333"


# ---- refresh sets


def keys(number: int) -> tuple[list[int], list[int]]:
    one = workload.RefreshSet(SMALL, number)
    return one.inserted_keys, one.deleted_keys


def test_sets_replace_the_population_once_and_then_again() -> None:
    first = {workload.order_key(index, 0) for index in range(1, SMALL.orders + 1)}
    present = set(first)
    for number in range(1, SETS + 1):
        inserted, deleted = keys(number)
        assert len(inserted) == len(deleted) == SMALL.set_orders == 15
        assert present.isdisjoint(inserted)
        present |= set(inserted)
        assert present.issuperset(deleted)
        present -= set(deleted)
    assert present.isdisjoint(first)
    assert len(present) == SMALL.orders
    inserted, deleted = keys(SETS + 1)
    assert present.isdisjoint(inserted)
    assert present.issuperset(deleted)
    assert len({tuple(keys(SETS * cycle + 1)[0]) for cycle in range(8)}) == 4, "generations"


def test_rows_of_a_set_follow_the_rules_of_the_population() -> None:
    orders, lines = workload.RefreshSet(Tproch(scale=1.0), 7).rows()
    assert len(orders) == 1_500
    assert 3.7 < len(lines) / len(orders) < 4.3
    by_key = {order[0]: order for order in orders}
    for line in lines:
        placed, shipped, promised, received = map(np.datetime64, (by_key[line[0]][4], *line[10:13]))
        assert 1 <= (shipped - placed).astype(int) <= 121
        assert 30 <= (promised - placed).astype(int) <= 90
        assert 1 <= (received - shipped).astype(int) <= 30
        assert line[9] == ("O" if shipped > np.datetime64("1995-06-17") else "F")
        assert 1 <= line[1] <= 200_000 and 1 <= line[2] <= 10_000
    assert all(order[1] % 3 for order in orders)
    assert {order[2] for order in orders} == {"F", "O", "P"}
    assert workload.RefreshSet(Tproch(scale=1.0), 7).rows() == (orders, lines)
    for table, made in (("orders", orders), ("lineitem", lines)):
        assert {len(row) for row in made} == {len(COLUMNS[table])}


@pytest.mark.parametrize("name", ["RF1", "RF2"])
def test_a_refresh_function_sends_its_whole_set(name: str) -> None:
    """The database answers that set number 3 is next."""
    power = built("tproch", SMALL)
    (function,) = (one for one in power.transactions if one.name == name)
    inputs = function.inputs(power.keys(0))()
    requests, outcome = drive(function, inputs, lambda statement, arguments: Given(1, ((3,),)))
    assert outcome is Outcome.COMMIT
    sent: dict[str, list[tuple[object, ...]]] = {}
    for statement, arguments in requests:
        sent.setdefault(statement, []).append(arguments)
    inserted, deleted = keys(3)
    if name == "RF2":
        for statement in ("delete-orders", "delete-lineitem"):
            assert {key for one in sent[statement] for key in one} == set(deleted)
    else:
        width = len(COLUMNS["orders"])
        batch = [one for one in sent["insert-orders-10"] for one in one[::width]]
        assert [*batch, *(one[0] for one in sent["insert-orders-1"])] == inserted


# ---- the population


def test_expected_rows_are_those_of_the_specification() -> None:
    counts = built("tproch", {"scale": 1.0}).population.expected
    assert counts["orders"] == (1_500_000, 1_500_000)
    assert counts["partsupp"] == (800_000, 800_000)
    assert counts["nation"] == (25, 25)
    low, high = counts["lineitem"]
    assert low < 6_001_215 < high  # 4.2.5.1


def test_units_make_the_whole_population_and_no_row_twice() -> None:
    pytest.importorskip(workload.PACKAGE)
    parameters = Tproch(scale=0.02)
    generator, both = workload.Generator(parameters), workload.Generator(parameters)
    for table in ("orders", "nation", "refresh_state"):
        found = [row for unit in (1, 2) for row in generator.rows(table, unit, 1)[0].tolist()]
        assert found == both.rows(table, 1, 2)[0].tolist()
        assert len(found) == len(set(found)) == parameters.rows(table)
        if table == "orders":
            assert sorted(found) == sorted(workload.order_key(index, 0) for index in range(1, 30_001))


def test_columns_are_of_their_kinds() -> None:
    pytest.importorskip(workload.PACKAGE)
    made = workload.Generator(SMALL).rows("lineitem", 1, 1)
    kinds = {name: (kind, values) for (name, kind), values in zip(COLUMNS["lineitem"], made, strict=True)}
    for kind, values in kinds.values():
        if kind.startswith(("text", "char")):
            assert values.dtype.kind == "S"
            assert values.dtype.itemsize == int(kind[kind.index("(") + 1 : -1])
        elif kind == "date":
            assert values.dtype == np.dtype("datetime64[D]")
        else:
            assert values.dtype.kind == "i"
    assert kinds["l_discount"][1].max() == 10  # hundredths


def test_a_missing_extension_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "find_spec", lambda _: None)
    with pytest.raises(ProveoutError, match="extension tpch") as refusal:
        workload.extension_library()
    assert "pip install" in refusal.value.way_out
    assert "duckdb" in refusal.value.way_out
