"""The replay of a run as a source of events: every event once, in order of time, live events between journalled ones."""

from __future__ import annotations

from collections.abc import Sequence

import histories

from proveout.proto.events import IterationStarted, LoadTick, Stamped
from proveout.tui.run.event_source import Pace, Replay


def moving(begun: Stamped) -> Sequence[Stamped]:
    """A tick every 0.4 s: some before the next journalled event, some after."""
    assert isinstance(begun.event, IterationStarted)
    ticks = histories.ticks(16, 1, 3)
    return [
        Stamped(sequence=begun.sequence, unix_s=begun.unix_s + 0.4 * n, event=tick) for n, tick in enumerate(ticks, 1)
    ]


async def replayed(speed: float) -> list[Stamped]:
    begun = histories.begun(16, 1)
    kept = histories.stamped([*histories.opening(), begun, histories.ended(16, 1, 9000.0)])
    kept[-1] = Stamped(sequence=kept[-1].sequence, unix_s=kept[-2].unix_s + 1.0, event=kept[-1].event)
    source = Replay(kept, Pace(speed=speed), step_s=0.001, moving=moving)
    return [stamped async for batch in source.batches() for stamped in batch]


async def test_live_events_come_between_journalled_ones_at_any_speed() -> None:
    for speed in (100.0, 1000.0, 1e6):
        seen = await replayed(speed)
        kinds = [type(stamped.event).__name__ for stamped in seen]
        assert kinds[-4:] == ["IterationStarted", "LoadTick", "LoadTick", "IterationFinished"]
        assert [stamped.unix_s for stamped in seen] == sorted(stamped.unix_s for stamped in seen)
        ticks = [stamped.event.second for stamped in seen if isinstance(stamped.event, LoadTick)]
        assert ticks == [0, 1]  # the third is after the end of the journal and is not waited for


async def test_without_samples_the_replay_has_the_journal_only() -> None:
    events = histories.stamped(histories.judged())
    source = Replay(events, Pace(speed=1e6), step_s=0.001)
    assert [stamped async for batch in source.batches() for stamped in batch] == events
