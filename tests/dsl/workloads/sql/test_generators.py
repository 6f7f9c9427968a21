"""The generators of `kind: sql`: their distributions against the exact ones, and their ranges."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import scipy
from driven import assert_alike

from proveout.dsl.workloads.random_streams import words
from proveout.dsl.workloads.sql import Generator
from proveout.dsl.workloads.sql_workload import HEAD_MAX, draw, zipf_ranks

N = 100_000
P_MIN = 1e-6


def drawn(given: dict[str, Any], count: int = N, seed: int = 3) -> list[Any]:
    one = draw(Generator.model_validate(given))
    values: list[Any] = one.make(words(seed, 99, 1, count, one.each)).tolist()
    assert len(values) == count
    return values


def assert_fits(values: list[Any], expected: dict[Any, float]) -> None:
    counts = Counter(values)
    assert set(counts) <= set(expected)
    assert_alike([counts[value] for value in expected], [*expected.values()])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"uniform": [1, 10]}, dict.fromkeys(range(1, 11), 1.0)),
        ({"uniform": [0.5, 0.75], "digits": 2}, dict.fromkeys([i / 100 for i in range(50, 76)], 1.0)),
        ({"pick": ["a", "b", "c"]}, {"a": 1.0, "b": 1.0, "c": 1.0}),
        ({"pick": {"10": 7, "20": 2, "30": 1, "40": 0}}, {10: 7.0, 20: 2.0, 30: 1.0}),
        ({"zipf": [5, 24], "theta": 0.8}, {4 + r: r**-0.8 for r in range(1, 21)}),
    ],
    ids=str,
)
def test_discrete(given: dict[str, Any], expected: dict[Any, float]) -> None:
    assert_fits(drawn(given), expected)


@pytest.mark.parametrize(("low", "high"), [(10, 20.5), (0, 2**61)])
def test_fractions_and_wide_ranges(low: int, high: float) -> None:
    values = np.array(drawn({"uniform": [low, high]}), dtype=np.float64)
    assert low <= values.min() <= values.max() < high
    assert scipy.stats.kstest(values, scipy.stats.uniform(low, high - low).cdf).pvalue > P_MIN


def test_nurand_is_the_specifications() -> None:
    """((U(0, A) | U(1, P)) mod P) + 1, counted out over all pairs."""
    population, constant = 100, 7
    pairs = Counter((a | b) % population + 1 for a in range(constant + 1) for b in range(1, population + 1))
    assert_fits(drawn({"nurand": [1, population], "a": constant}), dict(pairs))
    assert min(drawn({"nurand": [501, 600]}, 10_000)) >= 501


@pytest.mark.parametrize("theta", [0.99, 1.0, 1.5])
def test_zipf_beyond_the_head(theta: float) -> None:
    """Ranks past the exact head: the shares of blocks of ranks are those of the exact sums."""
    ranks = 5 * HEAD_MAX
    random = np.random.default_rng(5).random(N)
    found = zipf_ranks(random, ranks, theta)
    assert found.min() >= 1
    assert found.max() <= ranks
    edges = np.array([0, 1, 10, 1_000, HEAD_MAX, 2 * HEAD_MAX, 3 * HEAD_MAX, ranks])
    weights = np.arange(1, ranks + 1, dtype=np.float64) ** -theta
    share = np.add.reduceat(weights, edges[:-1]) / weights.sum()
    counted = np.histogram(found, bins=edges + 0.5)[0]
    assert scipy.stats.chisquare(counted, share * len(found)).pvalue > P_MIN


def test_text() -> None:
    values = drawn({"text": [2, 5], "alphabet": "xyz"}, 60_000)
    assert_fits([len(v) for v in values], dict.fromkeys((2, 3, 4, 5), 1.0))
    assert_fits([c for v in values for c in v], dict.fromkeys("xyz", 1.0))
    assert {len(v) for v in drawn({"text": 7}, 1_000)} == {7}
    assert set(drawn({"text": 0}, 10)) == {""}
    assert all(v.isalpha() and v.islower() for v in drawn({"text": [1, 9]}, 1_000))


def test_uuid_and_timestamp() -> None:
    ids = drawn({"uuid": "random"}, 5_000)
    assert len(set(ids)) == len(ids)
    assert {uuid.UUID(v).version for v in ids} == {4}
    moments = [
        datetime.fromisoformat(v) for v in drawn({"timestamp": ["2024-02-28 23:59:58", "2024-02-29 00:00:01"]}, 8_000)
    ]
    seconds = [int((m - datetime(2024, 2, 28, 23, 59, 58)).total_seconds()) for m in moments]
    assert_fits(seconds, dict.fromkeys(range(4), 1.0))


def test_no_rows_at_all() -> None:
    """A small table has no row in most slices of a large population."""
    ranges = [{kind: [1, 9]} for kind in ("uniform", "nurand", "zipf", "text")]
    others = [{"uniform": [1, 9.5]}, {"pick": {"a": 1, "b": 2}}, {"text": 0}, {"uuid": "random"}]
    for given in (*ranges, *others, {"timestamp": ["2024-01-01", "2024-01-02"]}):
        assert drawn(given, 0) == []
