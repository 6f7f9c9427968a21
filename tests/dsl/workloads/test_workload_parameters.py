"""Parameters of workloads: valid and invalid ones, conversion to the compiled plan and back, and queries of the
compiler."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proveout.core.errors import ProveoutError
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload, to_data
from proveout.dsl.workloads.hlr import KIND
from proveout.dsl.workloads.hlr.parameters import HLR_TRANSACTIONS, Hlr
from proveout.dsl.workloads.kinds import BUILT_IN, build, built_in, of_workload, writes


def workload(model: Hlr) -> Workload:
    return Workload(name="hlr", kind="hlr", parameters=to_values(model))


def test_defaults_are_the_specification() -> None:
    model = Hlr.model_validate({})
    assert list(model.weights.items()) == list(zip(HLR_TRANSACTIONS, (35, 35, 10, 2, 14, 2, 2), strict=True))
    assert (model.keys, model.cardinality, model.partitions, model.first, model.last) == (
        "uniform",
        "tatp",
        1,
        1,
        model.population,
    )


@pytest.mark.parametrize(
    ("given_parameters", "message"),
    [
        ({"population": 0}, "greater than or equal to 1"),
        ({"population": 10_000_000_001}, "less than or equal to 10000000000"),
        ({"population": "many"}, "valid integer"),
        ({"population": True}, "valid integer"),
        ({"keys": "zipf"}, "'uniform' or 'nurand'"),
        ({"cardinality": 5}, "'tatp' or 'lab'"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"partitions": 0}, "greater than or equal to 1"),
        ({"population": 3, "partitions": 4}, "would leave some empty"),
        ({"population": 100, "range": [1, 101]}, "range [1, 101] does not lie within the subscribers 1..100"),
        ({"population": 100, "range": [5, 4]}, "range [5, 4]"),
        ({"population": 100, "range": [0, 4]}, "greater than or equal to 1"),
        ({"population": 100, "range": [1, 2, 3]}, "at most 2"),
        ({"weights": {"GetAcessData": 1}}, "no transaction is called GetAcessData"),
        ({"weights": {"GetAccessData": 0}}, "sum to 0"),
        ({"weights": {}}, "sum to 0"),
        ({"weights": {"GetAccessData": -1}}, "from 0 to 1e9"),
        ({"weights": {"GetAccessData": float("nan")}}, "from 0 to 1e9"),
        ({"weights": {"GetAccessData": "1"}}, "valid number"),
        ({"weights": [1, 2]}, "valid dictionary"),
        ({"subscribers": 5}, "Extra inputs"),
    ],
)
def test_invalid_parameters_are_refused(given_parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Hlr.model_validate(given_parameters)
    assert message in str(caught.value)


def test_a_mix_has_the_written_weights() -> None:
    model = Hlr.model_validate({"weights": {"UpdateLocation": 3, "GetAccessData": 1.5}})
    assert tuple(model.weights) == HLR_TRANSACTIONS
    assert {name: weight for name, weight in model.weights.items() if weight} == {
        "GetAccessData": 1.5,
        "UpdateLocation": 3.0,
    }


@given(
    population=st.integers(10, 10**10),
    partitions=st.integers(1, 10),
    keys=st.sampled_from(["uniform", "nurand"]),
    bounds=st.none() | st.tuples(st.integers(1, 5), st.integers(5, 10)),
    weights=st.dictionaries(st.sampled_from(HLR_TRANSACTIONS), st.floats(0.1, 100), min_size=1),
)
def test_parameters_survive_the_compiled_plan(
    population: int, partitions: int, keys: str, bounds: tuple[int, int] | None, weights: dict[str, float]
) -> None:
    given_parameters = {
        "population": population,
        "partitions": partitions,
        "keys": keys,
        "range": bounds,
        "weights": weights,
    }
    model = Hlr.model_validate(given_parameters)
    compiled = workload(model)
    assert of_workload(compiled) == model
    plain = json.loads(json.dumps(to_data(compiled)))
    again = Workload(name="hlr", kind="hlr", parameters=plain["parameters"])
    assert of_workload(again) == model


@pytest.mark.parametrize("kind", [kind for kind in BUILT_IN if kind not in ("sql", "program")])
def test_the_description_of_a_kind_agrees_with_what_is_built(kind: str) -> None:
    """Of the kinds that have defaults; the plan gives the transactions of `sql` and the `program`."""
    described = built_in(kind)
    model = described.parameters.model_validate({})
    built = build(Workload(name=kind, kind=kind, parameters=to_values(model)))
    assert tuple(transaction.name for transaction in built.transactions) == described.transactions(model)
    assert tuple(table.name for table in built.population.tables) == described.tables(model)
    assert described.load_only <= {*described.parameters.model_fields}
    low, high = (sum(ends) for ends in zip(*built.population.expected.values(), strict=True))
    assert 0.999 * low <= described.rows(model) <= 1.001 * high


def test_which_workloads_write() -> None:
    assert writes(workload(Hlr.model_validate({})))
    assert writes(workload(Hlr.model_validate({"weights": {"GetAccessData": 1, "UpdateLocation": 1}})))
    assert not writes(workload(Hlr.model_validate({"weights": {"GetAccessData": 1, "GetNewDestination": 1}})))


def test_sqlite_has_no_partitions() -> None:
    assert KIND.engine_problem(Hlr.model_validate({"partitions": 2}), "postgres") is None
    assert KIND.engine_problem(Hlr.model_validate({}), "sqlite") is None
    assert "2 partitions" in (KIND.engine_problem(Hlr.model_validate({"partitions": 2}), "sqlite") or "")


def test_an_unknown_kind_is_a_plan_error() -> None:
    with pytest.raises(ProveoutError, match="there is no workload kind 'ycsb'"):
        build(Workload(name="x", kind="ycsb", parameters=()))


def test_parameters_import_nothing_heavy() -> None:
    code = (
        "import sys; from proveout.dsl.workloads.kinds import BUILT_IN, built_in; [*map(built_in, BUILT_IN)]; "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "psycopg", "apsw", "scipy", "grpc"} & set(loaded)
