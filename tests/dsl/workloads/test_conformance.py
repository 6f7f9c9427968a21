"""Conformance: correct loads of any size pass; loads with the deviations of known wrong implementations do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from driven import SHOP, compiled, findings
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.workloads.conformance import Seen, band, conform
from proveout.dsl.workloads.hlr import HLR_TRANSACTIONS, HLR_WEIGHTS, Hlr, shares
from proveout.dsl.workloads.hlr_workload import HlrWorkload

HLR = compiled("hlr", {"population": 100_000})
Counts = dict[str, tuple[int, int]]


def load(
    total: int,
    seed: int = 1,
    age: str = "fresh",
    *,
    weights: Any = HLR_WEIGHTS,
    success: dict[str, float] | None = None,
) -> Counts:
    """The counts of a correct HLR load of `total` transactions; with other weights or success shares, of a wrong one."""
    random = np.random.default_rng(seed)
    mix = np.array([weights[name] for name in HLR_TRANSACTIONS])
    counts = dict(zip(HLR_TRANSACTIONS, map(int, random.multinomial(total, mix / mix.sum())), strict=True))
    expected = {name: share[0 if age == "fresh" else -1] for name, share in shares(Hlr()).items()} | (success or {})
    ok = {name: int(random.binomial(count, expected[name])) for name, count in counts.items()}
    return {name: (ok[name], count - ok[name]) for name, count in counts.items()}


@pytest.mark.parametrize("total", [0, 300, 5_000_000])
@pytest.mark.parametrize("age", ["fresh", "steady"])
def test_a_correct_load_conforms(total: int, age: str) -> None:
    for seed in range(20):
        found = findings(HLR, load(total, seed, age))
        assert set(found) == {"mix", "logical-failures"}
        assert all(finding.ok for finding in found.values()), found


def test_too_few_transactions_are_not_judged_with_the_reason() -> None:
    assert "too few" in findings(HLR, load(6))["mix"].evidence
    assert findings(HLR, {})["logical-failures"].evidence == "not judged: no transaction ended"


def test_a_wrong_mix_is_detected_and_a_negligible_deviation_is_not() -> None:
    found = findings(HLR, load(20_000, weights={**HLR_WEIGHTS, "GetAccessData": 38.0}))["mix"]
    assert not found.ok
    assert "farthest off: GetAccessData" in found.evidence
    assert findings(HLR, load(50_000_000, weights={**HLR_WEIGHTS, "GetAccessData": 35.05}))["mix"].ok


def test_a_transaction_that_the_plan_leaves_out_must_not_run() -> None:
    reads = compiled("hlr", {"population": 100_000, "weights": {"GetAccessData": 1}})
    found = findings(reads, {"GetAccessData": (62, 38), "UpdateLocation": (1, 0)})["mix"]
    assert (found.ok, found.evidence) == (False, "UpdateLocation ran, which the plan's weights leave out")
    assert findings(reads, {"GetAccessData": (62, 38)})["mix"].ok
    evidence = findings(reads, {"GetAccessData": (625, 375)})["logical-failures"].evidence
    assert evidence == "success is as specified: GetAccessData 62.50% of 1,000 (expected 53.97% to 71.03%)"


def test_errors_belong_to_the_mix() -> None:
    """A tenth of the reads end in errors and still count in the mix."""
    seen = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in load(100_000).items()]
    reads = seen[0]
    tenth = reads.ok // 10
    spared = [Seen(name=reads.name, ok=reads.ok - tenth, logical_failures=0, others=tenth), *seen[1:]]
    forgotten = [Seen(name=reads.name, ok=reads.ok - tenth, logical_failures=0), *seen[1:]]
    assert [conform(HLR, counted)[0].ok for counted in (spared, forgotten)] == [True, False]


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("GetAccessData", 0.25),  # types drawn once for all subscribers
        ("GetNewDestination", 0.09),  # start times 0, 8, 6
        ("UpdateSubscriberData", 0.375),  # an inverted test
        ("DeleteCallForwarding", 0.2),
        ("UpdateLocation", 0.9999),
    ],
)
def test_wrong_shares_of_success_are_detected(name: str, share: float) -> None:
    found = findings(HLR, load(200_000, success={name: share}))["logical-failures"]
    assert not found.ok
    assert name in found.evidence
    assert found.evidence.count("expected") == 1


def test_data_aged_by_an_earlier_load_widens_the_band() -> None:
    seen = load(50_000, success={"DeleteCallForwarding": 0.1, "InsertCallForwarding": 0.525})
    weights = {"GetAccessData": 1, "DeleteCallForwarding": 9}
    reads_and_deletes = compiled("hlr", {"population": 100_000, "weights": weights})
    assert not findings(HLR, seen)["logical-failures"].ok
    assert findings(HLR, seen, [reads_and_deletes])["logical-failures"].ok


TPTBM = {"Read": (80_000, 0), "Update": (10_000, 0), "Insert": (5_000, 0), "Delete": (5_000, 0)}
PREPAID = {
    "Authorize": (58_500, 6_500), "CheckBalance": (10_000, 0), "UpdateProfile": (5_000, 0),
    "ChangeBalance": (14_990, 10), "FindLowBalances": (5_000, 0),
}  # fmt: skip
TPCB = {"TpcbLike": (2_500, 0), "SimpleUpdate": (2_500, 0), "SelectOnly": (5_000, 0)}
TPROCC = {"Payment": (10_000, 0)} | dict.fromkeys(("OrderStatus", "Delivery", "StockLevel"), (1_000, 0))
OF_SHOP = {"Show": (60_000, 0), "Count": (20_000, 0), "Buy": (17_000, 3_000)}
HALF = {"weights": {"TpcbLike": 1, "SimpleUpdate": 1, "SelectOnly": 2}}
READS = {"weights": {"Read": 1.0}}


@pytest.mark.parametrize(
    ("kind", "parameters", "seen", "conforms"),
    [
        ("tptbm", {}, TPTBM, (True, True)),
        # many rows deleted: reads and updates miss alike
        (
            "tptbm",
            {},
            TPTBM | {"Read": (40_100, 39_900), "Update": (5_000, 5_000), "Delete": (100, 4_900)},
            (True, True),
        ),
        ("tptbm", {}, TPTBM | {"Update": (9_000, 1_000)}, (True, False)),
        ("tptbm", {}, TPTBM | {"Update": (5_000, 0), "Insert": (10_000, 0)}, (False, True)),  # 80-10-5-5 misread
        ("tptbm", READS, {"Read": (99_000, 1_000)}, (True, False)),  # without deletes nothing misses
        ("prepaid", {}, PREPAID, (True, True)),
        ("prepaid", {}, PREPAID | {"Authorize": (50_000, 15_000)}, (True, False)),
        ("prepaid", {}, PREPAID | {"ChangeBalance": (13_000, 2_000)}, (True, False)),
        ("tpcb", HALF, TPCB, (True, True)),
        ("tpcb", HALF, TPCB | {"SelectOnly": (4_999, 1)}, (True, False)),
        ("tprocc", {}, TPROCC | {"NewOrder": (9_900, 100)}, (True, True)),
        ("tprocc", {}, TPROCC | {"NewOrder": (9_700, 300)}, (True, False)),
        ("sql", SHOP, OF_SHOP, (True, True)),
        ("sql", SHOP, OF_SHOP | {"Buy": (15_000, 5_000)}, (True, False)),
    ],
)
def test_loads_of_the_other_kinds(kind: str, parameters: Any, seen: Counts, conforms: tuple[bool, bool]) -> None:
    found = findings(compiled(kind, parameters), seen)
    assert (found["mix"].ok, found["logical-failures"].ok) == conforms, found


def test_an_earlier_load_may_have_deleted_what_reads_miss() -> None:
    reads, earlier = compiled("tptbm", READS), compiled("tptbm", {})
    assert findings(reads, {"Read": (99_000, 1_000)}, [earlier])["logical-failures"].ok


@given(low=st.floats(0.01, 0.99), width=st.floats(0, 0.2), count=st.integers(1, 10**7), more=st.integers(1, 10**6))
def test_the_band_narrows_with_more_data(low: float, width: float, count: int, more: int) -> None:
    high = min(0.99, low + width)
    wide, narrow = band(low, high, count, 1e5), band(low, high, count + more, 1e5)
    assert 0 <= wide[0] <= narrow[0] <= low <= high <= narrow[1] <= wide[1] <= 1


def test_few_hot_subscribers_make_a_wider_band() -> None:
    few = Hlr.model_validate({"population": 20_000, "keys": "nurand"})
    assert 1_000 < HlrWorkload(few).sample < 20_000
    assert band(0.6, 0.6, 10**6, HlrWorkload(few).sample)[1] > band(0.6, 0.6, 10**6, 20_000)[1]
