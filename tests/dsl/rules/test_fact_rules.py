"""Facts against what a plan declares and expects of them."""

from __future__ import annotations

from typing import Any

import pytest

from proveout.dsl.plan.topology import Declared, Expectation
from proveout.dsl.rules.host_rules import differing, equal, holds, measured, unmet, wanted

FACTS = {
    "cpus": 56,
    "cpu_smt": "on",
    "memory_bytes": 768 * 2**30,
    "net.ens1.mtu": 9000,
    "net.ens2.mtu": 1500,
}


def test_a_name_stands_for_a_fact_a_pattern_or_the_last_part() -> None:
    both = ["net.ens1.mtu", "net.ens2.mtu"]
    known = {"cpus": ["cpus"], "mtu": both, "net.*.mtu": both, "net.ens2.mtu": both[1:], "tu": [], "us": []}
    assert {name: list(measured(name, FACTS)) for name in known} == known


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (2, "2", True),
        ("768 GiB", 768 * 2**30, True),
        ("36608K", 36608 * 1024, True),
        ("2  x 25 GbE", "2 x 25 gbe", True),
        (False, "on", False),
        (True, 1, False),
        ("9000", 1500, False),
    ],
)
def test_values_are_equal_as_text_numbers_or_sizes(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is equal(other, one) is same


@pytest.mark.parametrize(
    ("condition", "value", "met", "words"),
    [
        ({"one_of": (28, 56)}, 56, True, "28 or 56"),
        ({"min": 16.0, "max": 16.0}, 16, True, "at least 16, at most 16"),
        ({"min": 16.0, "max": 32.0}, 36, False, "at least 16, at most 32"),
        ({"min": 16.0}, "many", False, "at least 16"),
        ({"min": float(2**34), "fact": "memory_bytes"}, 2**33, False, "at least 16 GiB"),
        ({"pattern": "5[.]4[.].*"}, "5.4.17", True, "text like 5[.]4[.].*"),
        ({"pattern": "4|5"}, "45", False, "text like 4|5"),
    ],
)
def test_a_condition(condition: dict[str, Any], value: Any, met: bool, words: str) -> None:
    expectation = Expectation(**{"fact": "f", **condition})
    assert (holds(expectation, value), wanted(expectation)) == (met, words)


def test_every_fact_that_a_name_stands_for_meets_it_and_what_is_measured_comes_first() -> None:
    expected = {"mtu": (9000,), "cpus": (28,), "raid": ("5",), "net.ens1.mtu": (9000,)}
    declared = Declared(
        name="db1",
        kind="host",
        facts=(("cpus", 28), ("raid", "10"), ("mtu", 9000)),
        expect=(
            *(Expectation(fact=fact, one_of=values) for fact, values in expected.items()),
            Expectation(fact="slots", min=4.0),
        ),
    )
    assert [str(one) for one in unmet(declared, FACTS)] == [
        "db1: mtu is 1500 (net.ens2.mtu); expected 9000",
        "db1: cpus is 56; expected 28",
        "db1: raid is 10 (declared); expected 5",
        "db1: slots is neither measured nor declared; expected at least 4",
    ]
    assert differing("mtu", 9000, FACTS) == {"net.ens2.mtu": 1500}
    assert differing("raid", "10", FACTS) == {}
