"""Expected success: the specification's figures, the lab's, and what a simulation of aged data gives."""

from __future__ import annotations

import numpy as np
import pytest

from proveout.dsl.workloads.hlr.parameters import HLR_WEIGHTS, Hlr
from proveout.dsl.workloads.hlr.shares import HOURS, START_TIMES, Share, shares

SPECIFICATION = {
    "GetBasicSubscriberData": (1.0, 1.0),
    "GetAccessData": (0.625, 0.625),
    "GetNewDestination": (0.148, 0.204),
    "UpdateSubscriberData": (0.625, 0.625),
    "UpdateLocation": (1.0, 1.0),
    "InsertCallForwarding": (0.3125, 0.3125),
    "DeleteCallForwarding": (0.3125, 0.3125),
}


def weighted(insert: float, delete: float, **parameters: object) -> Hlr:
    weights = {**HLR_WEIGHTS, "InsertCallForwarding": insert, "DeleteCallForwarding": delete}
    return Hlr.model_validate({"weights": weights, **parameters})


@pytest.mark.parametrize("keys", [{}, {"keys": "nurand"}, {"range": [10, 20]}], ids=str)
def test_the_specification_s_figures(keys: dict[str, object]) -> None:
    found = shares(Hlr.model_validate(keys))
    assert {name: (share.fresh, share.steady) for name, share in found.items()} == {
        name: pytest.approx(pair, abs=5e-4) for name, pair in SPECIFICATION.items()
    }


def test_the_lab_s_figures() -> None:
    found = shares(Hlr.model_validate({"cardinality": "lab"}))
    assert found["GetAccessData"] == Share(fresh=1.0, steady=1.0, low=1.0, high=1.0)
    assert found["InsertCallForwarding"].fresh == pytest.approx(1 - 0.1 / 15)
    assert found["DeleteCallForwarding"].fresh == pytest.approx(0.1 / 15)
    assert found["DeleteCallForwarding"].steady == pytest.approx(0.5)


def test_reads_alone_do_not_age_the_data() -> None:
    found = shares(weighted(0, 0))
    for share in found.values():
        assert share.fresh == share.steady == share.low == share.high


def test_deletes_alone_empty_the_table() -> None:
    found = shares(weighted(0, 2))
    assert (found["GetNewDestination"].steady, found["DeleteCallForwarding"].steady) == (0.0, 0.0)
    assert found["InsertCallForwarding"].steady == pytest.approx(0.625)


@pytest.mark.parametrize(("insert", "delete"), [(2, 2), (1, 2), (3, 1), (1, 0), (0, 1)])
@pytest.mark.parametrize("age", [0.0, 0.5, 8.0])
def test_every_age_lies_between_low_and_high(insert: float, delete: float, age: float) -> None:
    """Simulated facilities, aged by random inserts and deletes, answer within the band; fresh and old ones at its named
    ends."""
    random = np.random.default_rng(11)
    facilities = 15_000
    order = random.permuted(np.tile([0, 1, 2], (facilities, 1)), axis=1)
    loaded = order < random.integers(0, 4, facilities)[:, None]
    full = loaded.copy()
    ends = np.array(START_TIMES) + random.choice(np.array(HOURS), size=(facilities, 3))
    events = random.poisson(age * (insert + delete) * facilities * 3)
    for slot, is_insert in zip(
        random.integers(0, facilities * 3, events).tolist(),
        (random.random(events) < insert / (insert + delete)).tolist(),
        strict=True,
    ):
        row, column = divmod(slot, 3)
        if is_insert and not full[row, column]:
            full[row, column], ends[row, column] = True, random.integers(1, 25)
        elif not is_insert:
            full[row, column] = False
    starts = np.array(START_TIMES)[random.integers(0, 3, facilities)]
    hits = full & (np.array(START_TIMES) <= starts[:, None]) & (ends > random.integers(1, 25, facilities)[:, None])
    share = 0.625 * 0.85 * float(hits.any(axis=1).mean())
    expected = shares(weighted(insert, delete))["GetNewDestination"]
    assert expected.low - 0.01 <= share <= expected.high + 0.01
    if age == 0.0:
        assert share == pytest.approx(expected.fresh, abs=0.01)
    if age == 8.0:
        assert share == pytest.approx(expected.steady, abs=0.01)
