"""Conformance: correct loads of any size pass; loads with the deviations of known wrong implementations do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import chdtrc

from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import Finding, Seen, band, chi2_survival, conform
from proveout.dsl.workloads.hlr.keys import effective_subscribers
from proveout.dsl.workloads.hlr.parameters import HLR_TRANSACTIONS, HLR_WEIGHTS, Hlr
from proveout.dsl.workloads.hlr.shares import shares


def workload(**parameters: object) -> Workload:
    return Workload(
        name="hlr", kind="hlr", parameters=to_values(Hlr.model_validate({"population": 100_000, **parameters}))
    )


def load(
    total: int,
    seed: int = 1,
    age: str = "fresh",
    weights: dict[str, float] | None = None,
    success: dict[str, float] | None = None,
) -> list[Seen]:
    """The counts of a correct load of `total` transactions; with other weights or success shares, of a wrong one."""
    random = np.random.default_rng(seed)
    mix = np.array([(weights or HLR_WEIGHTS)[name] for name in HLR_TRANSACTIONS])
    counts = random.multinomial(total, mix / mix.sum())
    expected = {name: getattr(share, age) for name, share in shares(Hlr.model_validate({})).items()} | (success or {})
    ok = {name: int(random.binomial(n, expected[name])) for name, n in zip(HLR_TRANSACTIONS, counts, strict=True)}
    return [
        Seen(name=name, ok=ok[name], logical_failures=int(n) - ok[name])
        for name, n in zip(HLR_TRANSACTIONS, counts, strict=True)
    ]


def findings(seen: list[Seen], **parameters: object) -> dict[str, Finding]:
    return {finding.check: finding for finding in conform(workload(**parameters), seen)}


@pytest.mark.parametrize("total", [0, 1, 10, 50, 300, 5_000, 200_000, 5_000_000])
@pytest.mark.parametrize("age", ["fresh", "steady"])
def test_a_correct_load_conforms(total: int, age: str) -> None:
    for seed in range(20):
        found = findings(load(total, seed, age))
        assert set(found) == {"mix", "logical-failures"}
        assert all(finding.ok for finding in found.values()), found


def test_too_few_transactions_are_not_judged_with_the_reason() -> None:
    assert "too few" in findings(load(6))["mix"].evidence
    assert findings([])["logical-failures"].evidence == "not judged: no transaction ended"


def test_a_wrong_mix_is_detected() -> None:
    found = findings(load(20_000, weights={**HLR_WEIGHTS, "GetAccessData": 38.0}))["mix"]
    assert not found.ok
    assert "farthest off: GetAccessData" in found.evidence


def test_a_mix_with_a_negligible_deviation_conforms() -> None:
    assert findings(load(50_000_000, weights={**HLR_WEIGHTS, "GetAccessData": 35.05}))["mix"].ok


def test_a_transaction_that_the_plan_leaves_out_must_not_run() -> None:
    seen = [
        Seen(name="GetAccessData", ok=62, logical_failures=38),
        Seen(name="UpdateLocation", ok=1, logical_failures=0),
    ]
    found = findings(seen, weights={"GetAccessData": 1})["mix"]
    assert (found.ok, found.evidence) == (False, "UpdateLocation ran, which the plan's weights leave out")
    assert findings(seen[:1], weights={"GetAccessData": 1})["mix"].ok


def test_errors_belong_to_the_mix() -> None:
    """A tenth of the reads end in errors and still count in the mix."""
    seen = load(100_000)
    reads = seen[0]
    tenth = reads.ok // 10
    spared = [Seen(name=reads.name, ok=reads.ok - tenth, logical_failures=0, others=tenth), *seen[1:]]
    forgotten = [Seen(name=reads.name, ok=reads.ok - tenth, logical_failures=0), *seen[1:]]
    assert findings(spared)["mix"].ok
    assert not findings(forgotten)["mix"].ok


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("GetAccessData", 0.25),  # types drawn once for all subscribers
        ("GetAccessData", 1.0),  # misses counted as success
        ("GetNewDestination", 0.09),  # start times 0, 8, 6
        ("GetNewDestination", 0.239),  # the often quoted figure
        ("UpdateSubscriberData", 0.375),  # an inverted test
        ("InsertCallForwarding", 0.4),
        ("DeleteCallForwarding", 0.2),
        ("GetBasicSubscriberData", 0.99),  # rows are missing
        ("UpdateLocation", 0.9999),
    ],
)
def test_wrong_shares_of_success_are_detected(name: str, share: float) -> None:
    found = findings(load(200_000, success={name: share}))["logical-failures"]
    assert not found.ok
    assert name in found.evidence
    assert found.evidence.count("expected") == 1


def test_one_missing_subscriber_is_detected() -> None:
    seen = [Seen(name="GetBasicSubscriberData", ok=999_999, logical_failures=1)]
    assert not findings(seen)["logical-failures"].ok


def test_evidence_names_the_numbers() -> None:
    seen = [Seen(name="GetAccessData", ok=625, logical_failures=375)]
    evidence = findings(seen, weights={"GetAccessData": 1})["logical-failures"].evidence
    assert evidence == "success is as specified: GetAccessData 62.50% of 1,000 (expected 53.97% to 71.03%)"


def test_data_aged_by_an_earlier_load_widens_the_band() -> None:
    seen = load(50_000, success={"DeleteCallForwarding": 0.1, "InsertCallForwarding": 0.525})
    reads_and_deletes = workload(weights={"GetAccessData": 1, "DeleteCallForwarding": 9})
    assert not conform(workload(), seen)[1].ok
    assert conform(workload(), seen, [reads_and_deletes])[1].ok


@given(low=st.floats(0.01, 0.99), width=st.floats(0, 0.2), count=st.integers(1, 10**7), more=st.integers(1, 10**6))
def test_the_band_narrows_with_more_data(low: float, width: float, count: int, more: int) -> None:
    high = min(0.99, low + width)
    wide, narrow = band(low, high, count, 1e5), band(low, high, count + more, 1e5)
    assert 0 <= wide[0] <= narrow[0] <= low <= high <= narrow[1] <= wide[1] <= 1


def test_few_hot_subscribers_make_a_wider_band() -> None:
    few = Hlr.model_validate({"population": 20_000, "keys": "nurand"})
    assert 1_000 < effective_subscribers(few) < 20_000
    assert band(0.6, 0.6, 10**6, effective_subscribers(few))[1] > band(0.6, 0.6, 10**6, 20_000)[1]


@pytest.mark.parametrize("degrees", range(1, 12))
def test_chi2_survival_is_scipy_s(degrees: int) -> None:
    for chi2 in (0.0, 1e-9, 0.3, 1.0, 5.0, 17.0, 80.0, 400.0):
        assert math.isclose(chi2_survival(chi2, degrees), float(chdtrc(degrees, chi2)), rel_tol=1e-9, abs_tol=1e-300)
