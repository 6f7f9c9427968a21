"""The replay of a run as a source of events: every event once, in order of time, live events between journalled ones."""

from __future__ import annotations

from collections.abc import Sequence

import histories

from proveout.proto.events import IterationStarted, LoadTick, Stamped
from proveout.tui.services import FromStart, Place, Replay


def moving(begun: Stamped) -> Sequence[Stamped]:
    """A tick every 0.4 s: some before the next journalled event, some after."""
    assert isinstance(begun.event, IterationStarted)
    ticks = histories.ticks(16, 1, 3)
    return [
        Stamped(sequence=begun.sequence, unix_s=begun.unix_s + 0.4 * n, event=tick) for n, tick in enumerate(ticks, 1)
    ]


async def to_the_end(source: Replay) -> list[Stamped]:
    """All events of a replay until its end."""
    seen: list[Stamped] = []
    async for batch in source.batches():
        seen += batch
        if source.is_over:
            break
    return seen


async def test_live_events_come_between_journalled_ones_at_any_speed() -> None:
    kept = histories.stamped([*histories.opening(), histories.begun(16, 1), histories.ended(16, 1, 9000.0)])
    for speed in (1000.0, 1e6):
        source = Replay(kept, speed, step_s=0.001, moving=moving)
        source.seek("begin")
        seen = await to_the_end(source)
        kinds = [type(stamped.event).__name__ for stamped in seen]
        assert kinds[-4:] == ["IterationStarted", "LoadTick", "LoadTick", "IterationFinished"]
        assert [stamped.unix_s for stamped in seen] == sorted(stamped.unix_s for stamped in seen)
        ticks = [stamped.event.second for stamped in seen if isinstance(stamped.event, LoadTick)]
        assert ticks == [0, 1]  # the third is after the end of the journal and is not waited for


def three_iterations() -> list[Stamped]:
    events = [
        event for repeat in (1, 2, 3) for event in (histories.begun(16, repeat), histories.ended(16, repeat, 9e3))
    ]
    return histories.stamped([*histories.opening(), *events])


async def sought(*places: Place, paused: bool = True) -> tuple[int, tuple[int, int]]:
    """The number of events that a replay has shown at the last of these places, and the iteration that it names."""
    source = Replay(three_iterations(), 1.0, step_s=0.001, moving=moving)
    source.paused = paused
    batches = source.batches()
    last = await anext(batches)
    for place in places:
        source.seek(place)
        last = await anext(batches)
    assert isinstance(last, FromStart)
    return len([one for one in last if not isinstance(one.event, LoadTick)]), source.place


async def test_a_replay_can_begin_at_its_end_and_go_to_any_iteration() -> None:
    opening = len(histories.opening())
    assert await sought() == (opening + 6, (3, 3))
    assert await sought("begin") == (1, (0, 3))
    assert await sought("previous") == (opening + 5, (3, 3))
    assert await sought("previous", "previous") == (opening + 3, (2, 3))
    assert await sought("previous", "previous", "next") == (opening + 5, (3, 3))
    assert await sought("begin", "next") == (opening + 1, (1, 3))
    assert await sought("begin", "previous") == (1, (0, 3))
    assert await sought("end", "next") == (opening + 6, (3, 3))


async def test_a_paused_replay_shows_an_iteration_at_its_end_and_one_that_plays_its_begin() -> None:
    for paused, seconds in ((True, [0, 1]), (False, [])):
        source = Replay(three_iterations(), 1.0, step_s=0.001, moving=moving)
        source.paused = paused
        batches = source.batches()
        await anext(batches)
        source.seek("begin")
        await anext(batches)
        source.seek("next")
        shown = await anext(batches)
        assert [one.event.second for one in shown if isinstance(one.event, LoadTick)] == seconds
        assert source.place == (1, 3)


async def test_a_sought_iteration_has_its_live_events_once() -> None:
    source = Replay(three_iterations(), 1e6, step_s=0.001, moving=moving)
    batches = source.batches()
    whole = await anext(batches)
    assert [one.unix_s for one in whole] == sorted(one.unix_s for one in whole)
    assert sum(isinstance(one.event, LoadTick) for one in whole) == 2  # of the last iteration only
    source.seek("previous")
    seen = [*await anext(batches), *await anext(batches)]
    assert [one.event.second for one in seen if isinstance(one.event, LoadTick)] == [0, 1]


async def test_two_seeks_at_once_add_up() -> None:
    source = Replay(three_iterations())
    source.paused = True
    batches = source.batches()
    await anext(batches)
    source.seek("previous")
    source.seek("previous")
    await anext(batches)
    assert source.place == (2, 3)
