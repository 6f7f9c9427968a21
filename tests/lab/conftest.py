"""Fixtures of the lab's tests; their classes are in `hand_made`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hand_made import OBJECTION, Lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The guide's four hosts in their initial state; at the end their processes are ended and they are removed."""
    if OBJECTION:
        pytest.skip(OBJECTION)
    made = Lab()
    try:
        made.up()
        yield made
    finally:
        made.down()
