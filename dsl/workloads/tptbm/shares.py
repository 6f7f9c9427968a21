"""Expected share of success of each TPTBM transaction, as far as it can be computed.

Inserts always do. Reads, updates and deletes find their row unless an earlier transaction has deleted it. How many rows
that is depends on all that was run since the population, which one iteration does not know; but reads and updates draw
their rows alike, so they must miss alike. A load over rows that nothing deletes must not miss at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from proveout.dsl.workloads.tptbm.parameters import Tptbm

Z = 5.0
ANYTHING = (0.0, 1.0)
ALWAYS = (1.0, 1.0)


def expected(
    parameters: Tptbm, counts: Mapping[str, tuple[int, int]], earlier: Iterable[Tptbm] = ()
) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share; `counts` are (ok, logical failures) of the iteration itself.

    A read's range is estimated from the updates (Wilson's interval at z = 5), all of 0 … 1 when there are none.
    """
    deleted = any(one.weights["Delete"] > 0 for one in (parameters, *earlier))
    if not deleted:
        return dict.fromkeys(parameters.weights, ALWAYS)
    return {"Read": interval(*counts.get("Update", (0, 0))), "Update": ANYTHING, "Insert": ALWAYS, "Delete": ANYTHING}


def interval(ok: int, failed: int) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) when nothing was counted."""
    count = ok + failed
    if not count:
        return ANYTHING
    share, weight = ok / count, Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
