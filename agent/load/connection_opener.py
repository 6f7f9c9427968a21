"""Opens the connections of a load before T0, several at a time.

Flow: numbers -> the first connection alone, so that a wrong password is tried once in a worker -> threads take the
other numbers in order -> the opened sessions by number. Connecting and preparing release the GIL while they wait. The
number of threads is bounded: a server accepts a limited number of connections at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 8


def open_all(
    numbers: Sequence[int],
    connect: Callable[[int], T],
    *,
    at_once: int = AT_ONCE,
    give_up: Callable[[Callable[[float], object]], object],
) -> dict[int, T]:
    """Call `connect` for each number; returns its results by number. Raises the first exception of
    `connect`; no number is begun after it.

    Before it is raised, `give_up(settle)` ends the attempts under way; `settle(seconds)` waits for them for that time.
    """
    first, *others = numbers
    opened = {first: connect(first)}
    waiting = deque(others)
    failures: list[BaseException] = []
    ends: list[Future[None]] = [Future() for _ in range(min(at_once, len(others)))]

    def work(end: Future[None]) -> None:
        try:
            while not failures and waiting:
                try:
                    number = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    break
                opened[number] = connect(number)
        except BaseException as failure:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(failure)
            end.set_exception(failure)
        else:
            end.set_result(None)

    for end in ends:
        threading.Thread(target=work, args=(end,), name="connect", daemon=True).start()
    wait(ends, return_when=FIRST_EXCEPTION)
    if failures:
        give_up(lambda seconds: wait(ends, seconds))
        raise failures[0]
    return opened
