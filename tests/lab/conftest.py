"""Fixtures of the lab's tests; what they give is in `hand_made`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hand_made import OBJECTION, Lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The guide's four hosts with nothing on them; whatever was started there is ended, and they are removed."""
    if OBJECTION:
        pytest.skip(OBJECTION)
    made = Lab()
    try:
        made.up()
        yield made
    finally:
        made.down()
