"""Opening the connections of a load: each number once, the first alone, and the end of the others after a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from proveout.agent.load.connection_opener import open_all


def never(settle: Callable[[float], object]) -> None:
    raise AssertionError("nothing has failed")


def test_every_number_is_opened_once_and_several_at_a_time() -> None:
    together = threading.Barrier(4)  # passed by four threads only

    def connect(number: int) -> int:
        if number:
            together.wait(30)
        return number * number

    assert open_all(range(9), connect, at_once=4, give_up=never) == {number: number * number for number in range(9)}


def test_a_failure_of_the_first_is_the_only_attempt() -> None:
    tried: list[int] = []

    def connect(number: int) -> int:
        tried.append(number)
        raise ValueError("wrong password")

    with pytest.raises(ValueError, match="wrong password"):
        open_all(range(9), connect, give_up=never)
    assert tried == [0]


def test_the_first_failure_ends_the_attempts_under_way() -> None:
    under_way, stopped = threading.Event(), threading.Event()
    ended: list[int] = []

    def connect(number: int) -> int:
        if number == 1:
            under_way.set()
            assert stopped.wait(30)
            ended.append(number)
        if number == 2:
            assert under_way.wait(30)
            raise ValueError("too many connections")
        return number

    def give_up(settle: Callable[[float], object]) -> None:
        stopped.set()
        settle(30.0)

    with pytest.raises(ValueError, match="too many connections"):
        open_all(range(100), connect, at_once=2, give_up=give_up)
    assert ended == [1]
