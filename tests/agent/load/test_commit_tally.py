"""The account of a terminal's commits against a simulated database whose truth is known: seeded transactions, crashes
that lose the last commits, connections that are cut before and after COMMIT, and repeated transactions."""

from __future__ import annotations

import random
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.transaction import Tally
from proveout.dsl.workloads.base import Outcome, TransactionType
from proveout.dsl.workloads.commits import COUNT_COMMIT, load_id, tracked
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.hlr_workload import build
from proveout.proto.wire.histogram import READINGS_MAX, of, together
from proveout.proto.wire.results import CommitReading

ROW = (7, 3)
KINDS = {kind.name: kind for kind in build(Hlr(population=100)).transactions}


def single() -> TransactionType:
    """A transaction of one statement that writes."""
    return replace(KINDS["GetBasicSubscriberData"], name="One", statements=(KINDS["UpdateLocation"].statements[-1],))


def test_a_transaction_that_writes_ends_with_the_count_of_its_commit() -> None:
    """The order of the statements that it sends is in `test_pipelines`."""
    kind = KINDS["UpdateLocation"]
    made = tracked(kind, ROW)
    assert [step.statement for step in made.steps] == [*(step.statement for step in kind.steps), COUNT_COMMIT]
    keys = build(Hlr(population=100)).keys(1)
    assert made.inputs(keys)()[-1] == ROW
    assert single().single
    alone = tracked(single(), ROW)
    assert not (alone.single or alone.bare), "a single statement becomes a transaction of two"
    assert alone.statements == (*single().statements, COUNT_COMMIT)
    assert tracked(KINDS["GetAccessData"], ROW) is KINDS["GetAccessData"], "one that only reads stays as it is"


def test_each_load_of_each_attempt_has_rows_of_its_own() -> None:
    ids = {load_id("run", f"ladder/{rung}/1/{attempt}") for rung in range(50) for attempt in range(3)}
    assert len(ids) == 150
    assert all(0 <= one < 2**63 for one in ids)


# ---- against the truth ---------------------------------------------------------------------------------------------


class Simulated:
    """A database with one row, whose commits become durable late; the truth beside the tally of a client."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tally = Tally(ROW)
        kind, self.times = self.tally.counted(single(), Recorder(1).times)
        assert COUNT_COMMIT in kind.statements
        self.commits: list[tuple[int, bool]] = []
        """Each commit that is there: its transaction, and whether it was acknowledged."""
        self.flushed = self.transactions = self.now = 0
        self.truth = CommitReading(since_ns=0, at_ns=0)
        self.found: list[CommitReading] = []
        self.base = 0

    def commit(self, *, acknowledged: bool, times: int = 1) -> None:
        self.transactions += 1
        self.commits += [(self.transactions, acknowledged)] * times
        if acknowledged:
            self.times[Outcome.COMMIT].extend((self.now, self.now, self.now))

    def cut(self) -> None:
        """The connection is lost at a COMMIT that the server gets, or does not."""
        self.tally.lose(self.now)
        self.tally.doubt(self.now)
        if self.random.random() < 0.5:
            self.commit(acknowledged=False)

    def crash(self) -> int:
        """Lose the commits that are not flushed; the acknowledged ones among them."""
        kept = self.random.randint(self.flushed, len(self.commits))
        gone, self.commits = self.commits[kept:], self.commits[:kept]
        self.tally.lose(self.now)
        return sum(acknowledged for _, acknowledged in gone)

    def read(self) -> CommitReading:
        self.now += 1
        return self.tally.settle(len(self.commits), self.now)


@given(st.integers(0, 2**32 - 1))
def test_the_account_equals_the_truth_whatever_happens(seed: int) -> None:
    """Lost, unknown, committed and duplicates of each reading are those of the simulation, to the last one."""
    world = Simulated(seed)
    assert astuple(world.read())[2:] == (0, 0, 0, 0, 0)
    for _ in range(world.random.randint(1, 12)):
        duplicates = 0
        for _ in range(world.random.randint(0, 20)):
            world.now += 1
            twice = world.random.random() < 0.05
            world.commit(acknowledged=True, times=2 if twice else 1)
            duplicates += twice
            if world.random.random() < 0.3:
                world.flushed = len(world.commits)
        before = len(world.commits)
        lost = unknown = committed = 0
        match world.random.choice(["cut", "crash", "crash in doubt", "end"]):
            case "cut" if not duplicates:  # a commit that is there twice looks like one without an answer
                world.cut()
                unknown, committed = 1, len(world.commits) - before
            case "crash" if not duplicates:  # and hides one that is lost
                lost = world.crash()
            case "crash in doubt" if not duplicates:
                world.cut()
                unknown, last = 1, world.transactions if len(world.commits) > before else None
                lost = world.crash()
                committed = int(last is not None and (last, False) in world.commits[-1:])
        reading = world.read()
        assert (reading.lost, reading.unknown, reading.unknown_committed, reading.duplicates) == (
            lost,
            unknown,
            committed,
            duplicates,
        )
        world.flushed = len(world.commits)


@pytest.mark.parametrize(
    ("history", "duplicates"),
    [
        ("committed, run again, answered", 1),
        ("absent, run again, answered", 0),
        ("committed, run again, failed, another answered", 0),
        ("committed, not run again, another answered", 0),
        ("committed, run again, committed, run again, answered", 2),
    ],
)
def test_a_transaction_that_is_run_again_after_it_has_committed_is_a_duplicate(history: str, duplicates: int) -> None:
    tally = Tally(ROW)
    _, times = tally.counted(single(), Recorder(1).times)
    row = found = now = 0
    tally.settle(row, now)
    for step in history.split(", "):
        now += 10
        match step:
            case "committed" | "absent":
                tally.lose(now)
                tally.doubt(7)
                row += step == "committed"
                found += tally.settle(row, now).duplicates
            case "answered" | "another answered":
                times[Outcome.COMMIT].extend((5, 7 if step == "answered" else 8, now))
                row += 1
    last = tally.settle(row, now + 10)
    assert (last.lost, last.unknown) == (0, 0)
    assert found + last.duplicates == duplicates


@pytest.mark.parametrize(("checked", "committed"), [(True, True), (True, False), (False, True)])
def test_a_checked_transaction_that_has_committed_is_not_to_be_run_again(checked: bool, committed: bool) -> None:
    tally = Tally(ROW, checked=checked)
    assert tally.due
    tally.settle(0, 0)
    assert not tally.due
    tally.lose(10)
    tally.lose(20)
    tally.doubt(7)
    assert tally.due, "a lost connection makes a reading due, once"
    reading = tally.settle(int(committed), 40)
    assert (reading.unknown, reading.unknown_committed) == (1, int(committed))
    assert reading.since_ns == 10, "the last answer before the first loss"
    assert not tally.accepts(8), "another transaction"
    assert tally.accepts(7) == (checked and committed)


def test_readings_are_bounded_and_lose_no_count() -> None:
    far = [CommitReading(since_ns=n * 10**9, at_ns=(n + 1) * 10**9, lost=1, unknown=2) for n in range(3 * READINGS_MAX)]
    nothing = [CommitReading(since_ns=5, at_ns=6)] * 10
    found = together([*far, *nothing])
    assert len(found) == READINGS_MAX
    assert (sum(one.lost for one in found), sum(one.unknown for one in found)) == (len(far), 2 * len(far))
    assert together([far[0], far[0]]) == (CommitReading(since_ns=0, at_ns=10**9, lost=2, unknown=4),)
    assert together(nothing) == ()
    assert of((5, 9, 1, 2, 1, 0, 0), 5) == CommitReading(since_ns=0, at_ns=4, lost=1, unknown=2, unknown_committed=1)
