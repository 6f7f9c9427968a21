"""A second of many agents added up by columns is what adding their histograms one by one gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.coordinator.live.ticks import merge_seconds
from proveout.proto.wire import histogram
from proveout.proto.wire.columns import Loads
from proveout.proto.wire.results import TransactionCounts, TransactionLoad

COUNT = st.integers(0, 2**40)
TIMES = st.lists(st.integers(0, histogram.HIGHEST_NS), max_size=4).map(histogram.bin_ns)


def load(name: str) -> st.SearchStrategy[TransactionLoad]:
    errors = st.lists(st.tuples(st.sampled_from(["40001", "08006"]), st.integers(1, 9)), max_size=2).map(tuple)
    counts = st.builds(TransactionCounts, name=st.just(name), ok=COUNT, logical_failures=COUNT, errors=errors)
    return st.builds(TransactionLoad, counts=counts, response=TIMES, service=TIMES, schedule=TIMES)


SECOND = st.lists(st.sampled_from("abc"), max_size=3, unique=True).flatmap(lambda names: st.tuples(*map(load, names)))


def summed(errors: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    total: Counter[str] = Counter()
    for code, count in errors:
        total[code] += count
    return tuple(sorted(total.items()))


def one_by_one(seconds: Sequence[Sequence[TransactionLoad]]) -> dict[str, TransactionLoad]:
    by_name: dict[str, list[TransactionLoad]] = {}
    for item in (item for second in seconds for item in second):
        by_name.setdefault(item.counts.name, []).append(item)
    return {
        name: TransactionLoad(
            counts=TransactionCounts(
                name=name,
                ok=sum(item.counts.ok for item in items),
                logical_failures=sum(item.counts.logical_failures for item in items),
                errors=summed(error for item in items for error in item.counts.errors),
            ),
            response=histogram.merge(item.response for item in items),
        )
        for name, items in by_name.items()
    }


@settings(max_examples=40, deadline=None)
@given(st.lists(SECOND, max_size=5))
def test_the_sum_is_that_of_adding_one_by_one(seconds: list[tuple[TransactionLoad, ...]]) -> None:
    found = merge_seconds(map(Loads.of, seconds))
    expected = one_by_one(seconds)
    assert [item.counts.name for item in found] == sorted(expected, key=[i.counts.name for i in found].index)
    for item in found:
        wanted = expected[item.counts.name]
        assert (item.counts.ok, item.counts.logical_failures) == (wanted.counts.ok, wanted.counts.logical_failures)
        assert item.counts.errors == wanted.counts.errors
        assert item.response == wanted.response


def test_no_agents_make_no_second() -> None:
    assert merge_seconds([]) == ()
