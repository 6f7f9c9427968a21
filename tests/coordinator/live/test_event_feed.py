"""Watching a run: live events over the socket and stored ones from the journal, in the order of their emission."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eventually import PATIENCE_S, eventually_async

from proveout.coordinator.live import event_feed
from proveout.coordinator.live.event_feed import Tail
from proveout.coordinator.storage.journal import Journal
from proveout.proto import events as e

POLL_S = 0.02


def progress(done: float) -> e.StageProgress:
    return e.StageProgress(stage="load", host="c", done=done, total=9, unit="rows")


def notice(text: str) -> e.Notice:
    return e.Notice(level="info", host="", text=text)


class Watcher:
    """Collects the events of a tail."""

    def __init__(self, directory: Path) -> None:
        self.tail = Tail(directory, POLL_S)
        self.seen: list[e.Stamped] = []
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        async for batch in self.tail.batches():
            self.seen.extend(batch)

    @property
    def events(self) -> list[object]:
        return [stamped.event for stamped in self.seen]

    async def until(self, count: int) -> None:
        await eventually_async(lambda: len(self.seen) >= count or self.task.done(), f"{count} events")
        assert len(self.seen) >= count, self.events

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[SimpleNamespace]:
    """A run that serves its feed: `store` and `live` give it events."""
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    with Journal(directory) as journal:
        async with event_feed.serving(directory, interrupts) as listener:

            def give(stamp: Callable[[Any], e.Stamped]) -> Callable[..., Any]:
                return lambda *events: [*map(listener, map(stamp, events))]

            about = {"listener": listener, "interrupts": interrupts}
            yield SimpleNamespace(store=give(journal.append), live=give(journal.live), **about)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[SimpleNamespace]:
    async with serving(tmp_path) as made:
        yield made


async def test_several_watch_one_run_and_each_sees_all_of_it_in_order(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / "run"  # longer than a socket's address may be
    deep.mkdir(parents=True)
    ended = e.RunFinished(status="finished", exit_code=0, reason="r", seconds=1.0)
    async with serving(deep) as run:
        assert stat.S_IMODE((deep / event_feed.SOCKET).stat().st_mode) == 0o600
        run.store(notice("one"))
        run.live(progress(1))
        watchers = [Watcher(deep), Watcher(deep)]
        for watcher in watchers:
            await watcher.until(2)  # also the live event before it connected
        run.live(progress(2))
        run.store(notice("two"))
        run.live(progress(3))
        for watcher in watchers:
            await watcher.until(5)
        run.store(ended)
        await eventually_async(lambda: all(watcher.task.done() for watcher in watchers), "the end of all")
    expected = [notice("one"), progress(1), progress(2), notice("two"), progress(3), ended]
    assert [watcher.events for watcher in watchers] == [expected, expected]
    assert not (deep / event_feed.SOCKET).exists()


async def test_a_watcher_that_disconnects_or_sends_garbage_does_not_affect_others(
    run: SimpleNamespace, tmp_path: Path
) -> None:
    run.store(notice("one"))
    stays = Watcher(tmp_path)
    _, writer = await event_feed.connect(tmp_path)
    writer.write(b"x" * 200_000)
    writer.close()
    run.live(progress(1))
    await stays.until(2)  # it is connected
    _, gone = await event_feed.connect(tmp_path)
    gone.transport.abort()
    ticks = [e.HostTick(host="h", capture="c", readings={"x": float(number)}) for number in range(50)]
    run.live(*ticks)
    await stays.until(52)
    assert stays.events[-1] == ticks[-1]
    await stays.end()


async def test_a_watcher_that_does_not_read_misses_live_events_and_does_not_delay_the_run(
    run: SimpleNamespace, tmp_path: Path
) -> None:
    reader, writer = await event_feed.connect(tmp_path)
    run.live(progress(0))
    await reader.readline()  # it is served
    run.live(*[e.StageProgress(stage="s", host="h", done=1, total=2, unit="u", note="n" * 100_000)] * 200)
    (served,) = run.listener._watchers
    assert served.transport.get_write_buffer_size() < event_feed.BACKLOG_BYTES + 200_000
    writer.transport.abort()


async def test_a_stop_of_a_watcher_reaches_the_queue_of_interrupts(run: SimpleNamespace, tmp_path: Path) -> None:
    run.store(notice("one"))
    run.live(progress(1))
    watcher = Watcher(tmp_path)
    await watcher.until(2)
    assert await watcher.tail.stop()
    await eventually_async(lambda: not run.interrupts.empty(), "an interrupt")
    await watcher.end()


async def test_stop_waits_for_a_run_that_has_just_begun_to_serve_its_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []
    connect: Callable[[Path], Any] = event_feed.connect
    monkeypatch.setattr(event_feed, "connect", lambda directory: tries.append(directory) or connect(directory))  # type: ignore[func-returns-value]
    monkeypatch.setattr(event_feed, "STOP_S", PATIENCE_S)
    with Journal(tmp_path):
        stopping = asyncio.create_task(Tail(tmp_path, POLL_S).stop())
        await eventually_async(lambda: len(tries) > 1, "a second try")
        interrupts: asyncio.Queue[None] = asyncio.Queue()
        async with event_feed.serving(tmp_path, interrupts):
            assert await stopping
            await eventually_async(lambda: not interrupts.empty(), "an interrupt")


async def test_a_tail_of_a_run_without_a_coordinator_ends_and_cannot_stop_it(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(notice("one"))
    tail = Tail(tmp_path, POLL_S)
    assert [stamped.event for batch in [b async for b in tail.batches()] for stamped in batch] == [notice("one")]
    assert not await tail.stop()


async def test_a_watcher_of_a_resume_that_is_about_to_begin_does_not_take_the_end_before_for_its_own(
    run: SimpleNamespace, tmp_path: Path
) -> None:
    end = e.RunFinished(status="interrupted", exit_code=130, reason="r", seconds=1.0)
    run.store(end)
    watcher = Watcher(tmp_path)
    await watcher.until(1)
    run.store(notice("it goes on"))
    await watcher.until(2)
    run.store(end)
    await asyncio.wait_for(watcher.task, PATIENCE_S)
    assert watcher.events == [end, notice("it goes on"), end]


async def test_a_late_watcher_receives_the_newest_event_of_each_kind_of_this_iteration(
    run: SimpleNamespace, tmp_path: Path
) -> None:
    one, two = (e.IterationId(stage="s", rung=1, repeat=repeat, attempt=1) for repeat in (1, 2))
    begin = e.IterationStarted(id=two, rate=None, starts_in_s=0.0, ramp_up_s=0, measure_s=9, ramp_down_s=0)
    old, newest = (e.TransactionsTick(id=of, window="measure", seconds=1.0, transactions=()) for of in (one, two))
    agents = [e.AgentsTick(lease_s=lease_s, beat_s=2.0, agents=()) for lease_s in (10.0, 11.0)]
    ended = e.StageFinished(stage="load", outcome="ok", seconds=1.0)
    run.live(old, e.WaitsTick(id=one, host="h", capture="c", seconds=1.0, waits=()), *agents, progress(1))
    run.store(ended, begin)
    run.live(newest)
    late = Watcher(tmp_path)
    await late.until(4)
    await late.end()
    assert all(event in late.events for event in (ended, begin, agents[1], newest))
    assert len(late.events) == 4, "without the progress of an ended stage"
