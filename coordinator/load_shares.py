"""Distribution of a load's terminals over the client hosts. Pure; used to send loads and to find hosts whose load is
missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, TypeAlias

from proveout.dsl.plan.stages import Ladder, Search
from proveout.proto.wire.tasks import LoadShare

Distribution: TypeAlias = Literal["constant", "poisson"]


def present_hosts(hosts: Iterable[str], without: Collection[str]) -> tuple[str, ...]:
    """The hosts of a stage that are not lost."""
    return tuple(host for host in hosts if host not in without)


def load_hosts(stage: Ladder | Search, without: Collection[str] = ()) -> tuple[str, ...]:
    """The hosts with load tasks: all clients, or for a Ray pool the first, whose agent drives the cluster."""
    clients = present_hosts(stage.clients, without)
    return clients if stage.pool.kind == "local" else clients[:1]


def load_shares(
    clients: Sequence[str], threads: int, rate: float | None, distribution: Distribution = "constant"
) -> dict[str, LoadShare]:
    """Distribute `threads` terminals over the client hosts as evenly as possible; hosts without any are left out.

    >>> {h: (s.first, s.count) for h, s in load_shares(["a", "b"], 5, None).items()}
    {'a': (0, 3), 'b': (3, 2)}
    """
    given: dict[str, LoadShare] = {}
    for index, host in enumerate(clients):
        first = -(-threads * index // len(clients))
        count = -(-threads * (index + 1) // len(clients)) - first
        if count:
            given[host] = LoadShare(first=first, count=count, total=threads, rate=rate, distribution=distribution)
    return given
