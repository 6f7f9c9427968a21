"""Whether a disk is in use, or has anything on it: what is asked of a host, and the reasons not to touch it. Source: blkid(8).

Data flow: a by-id name -> `disk_queries` (where the name leads; then all that could be in use or on it) -> facts -> `in_use`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proveout.dsl.tuning.facts import Facts, LinkQuery, OutputQuery, PathsQuery, Query, TextQuery

BLKID = "/usr/sbin/blkid"
MOUNTS, SWAPS = "/proc/self/mountinfo", "/proc/swaps"
SECTOR = 512
"""/sys/block/*/size counts in these, whatever the disk does."""
_NOTHING_FOUND = 2


def sys_folder(device: str, facts: Facts) -> str:
    """The kernel's folder of the disk that the name leads to; only whole disks have one."""
    return f"/sys/block/{(facts.link(device) or '').rpartition('/')[2]}"


def disk_queries(device: str, known: Facts) -> tuple[Query, ...]:
    """What has to be known of a disk before it is written to; asked again until nothing is new."""
    link = LinkQuery(device)
    if link not in known or known.link(device) is None:
        return (link,)
    disk = sys_folder(device, known)
    texts = (f"{disk}/size", f"{disk}/ro", f"{disk}/dev", f"{disk}/queue/logical_block_size", MOUNTS, SWAPS)
    listings = (PathsQuery(f"{disk}/{below}") for below in ("holders/*", "*/holders/*", "*/dev"))
    first: tuple[Query, ...] = (link, *(TextQuery(path) for path in texts), *listings)
    if any(query not in known for query in first):
        return first
    numbers = (TextQuery(path) for path in known.paths(f"{disk}/*/dev"))
    return (*first, *numbers, OutputQuery(probe_argv(device)))


def probe_argv(device: str) -> tuple[str, ...]:
    """The argv that looks for signatures, and changes nothing."""
    return (BLKID, "--probe", "--output", "export", device)


def in_use(device: str, facts: Facts) -> Iterator[str]:
    """Why the disk must not be written to: it is read-only, held, mounted, swap, signed or partitioned."""
    disk = sys_folder(device, facts)
    if facts.text(f"{disk}/ro") != "0":
        yield f"{device} is read-only"
    holders = (*facts.paths(f"{disk}/holders/*"), *facts.paths(f"{disk}/*/holders/*"))
    if holders:
        names = ", ".join(sorted({path.rpartition("/")[2] for path in holders}))
        yield f"{device} is held by {names} (LVM, md or device mapper)"
    numbers = {facts.text(f"{disk}/dev"), *(facts.text(path) for path in facts.paths(f"{disk}/*/dev"))}
    mounted = [line.split() for line in (facts.text(MOUNTS) or "").splitlines()]
    yield from (f"{device} is mounted at {words[4]}" for words in mounted if words[2:3] and words[2] in numbers)
    name = facts.link(device) or ""
    for line in (facts.text(SWAPS) or "").splitlines():
        if re.fullmatch(rf"{re.escape(name)}p?\d*", (line.split() or [""])[0]):
            yield f"{device} is swap"
    yield from _signature(device, facts, disk)


def _signature(device: str, facts: Facts, disk: str) -> Iterator[str]:
    said = facts.output(*probe_argv(device))
    if said.code != _NOTHING_FOUND:
        words = " ".join(
            line for line in said.text.split() if line.startswith(("TYPE=", "PTTYPE=", "LABEL=", "USAGE="))
        )
        yield f"{device} is not empty: blkid finds {words or 'something that it cannot tell'}"
    if facts.paths(f"{disk}/*/dev"):
        yield f"{device} has partitions"
