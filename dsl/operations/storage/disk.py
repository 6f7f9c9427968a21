"""Whether a disk is in use or holds data: the queries to a host, and the reasons not to touch the disk. Source:
blkid(8).

Data flow: a by-id name -> `disk_queries` (where the name leads; then all that could be in use or on it) -> facts ->
`in_use`. Of a volume that is known by another path (a partition, an alias of udev's) `name_queries` -> facts ->
`names`: what /dev/disk/by-id calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from proveout.dsl.operations.facts import Facts, LinkQuery, OutputQuery, PathsQuery, Query, TextQuery
from proveout.dsl.schema.scalar_types import custom

BLKID = "/usr/sbin/blkid"
MOUNTS, SWAPS = "/proc/self/mountinfo", "/proc/swaps"
SECTOR = 512
"""/sys/block/*/size counts in these, whatever the disk does."""
NOTHING_FOUND, AMBIVALENT = 2, 8
"""Exit code of blkid: it recognises nothing."""
BY_ID = "/dev/disk/by-id/"
BLOCK, VOLUMES = "/sys/block", "/sys/class/block"
"""Whole disks only; all block devices, partitions too."""
_DEVICE = re.compile(rf"{BY_ID}[A-Za-z0-9][A-Za-z0-9._:+-]*")
_KEYS = ("TYPE=", "PTTYPE=", "LABEL=", "USAGE=")
_LASTING = ("wwn-", "nvme-", "scsi-", "dm-uuid-")


def sys_folder(device: str, facts: Facts, tree: str = BLOCK) -> str:
    """The kernel's folder of the disk that the name leads to; in `BLOCK` only whole disks have one."""
    return f"{tree}/{(facts.link(device) or '').rpartition('/')[2]}"


def refusal(what: str, replaces: str | None = None) -> str:
    """The devices on which a change is refused, for `wanted`; `replaces`: the filesystem that may be lost."""
    lost = "not empty" if replaces is None else f"anything but the filesystem {replaces}, which is lost"
    return f"refused where the {what} is read-only, held, mounted, swap or {lost}, unless it is so already"


def disk_queries(device: str, known: Facts, tree: str = BLOCK) -> tuple[Query, ...]:
    """The queries before a disk is written to; called again until they give nothing new."""
    link = LinkQuery(device)
    if link not in known or known.link(device) is None:
        return (link,)
    disk = sys_folder(device, known, tree)
    texts = (f"{disk}/size", f"{disk}/ro", f"{disk}/dev", f"{disk}/queue/logical_block_size", MOUNTS, SWAPS)
    listings = (PathsQuery(f"{disk}/{below}") for below in ("holders/*", "*/holders/*", "*/dev"))
    first: tuple[Query, ...] = (link, *(TextQuery(path) for path in texts), *listings)
    if any(query not in known for query in first):
        return first
    numbers = (TextQuery(path) for path in known.paths(f"{disk}/*/dev"))
    return (*first, *numbers, OutputQuery(probe_argv(device)))


def name_queries(path: str, known: Facts) -> tuple[Query, ...]:
    """The queries for the names of a volume in /dev/disk/by-id; called again until they give nothing new."""
    listing = PathsQuery(f"{BY_ID}*")
    if listing not in known:
        return (LinkQuery(path), listing)
    return (LinkQuery(path), listing, *(LinkQuery(name) for name in known.paths(listing.pattern)))


def names(path: str, facts: Facts) -> tuple[str, ...]:
    """The names below /dev/disk/by-id of the device at a path, the disk's own names first."""
    real = facts.link(path)
    found = [] if real is None else [name for name in facts.paths(f"{BY_ID}*") if facts.link(name) == real]
    return tuple(sorted(found, key=lambda name: (not name.removeprefix(BY_ID).startswith(_LASTING), name)))


def probe_argv(device: str) -> tuple[str, ...]:
    """The argv that looks for signatures, and changes nothing."""
    return (BLKID, "--probe", "--output", "export", device)


def probed(device: str, facts: Facts) -> dict[str, str] | None:
    """The contents that blkid finds, by its keys (TYPE, LABEL …); empty when there is nothing, None when it cannot
    tell."""
    output = facts.output(*probe_argv(device))
    if output.code not in (0, NOTHING_FOUND):
        return None
    return dict(line.partition("=")[::2] for line in output.text.splitlines()) if output.code == 0 else {}


def device_name(value: str) -> str:
    """A whole disk or a partition by a lasting name."""
    if not _DEVICE.fullmatch(value):
        raise custom(f"`{value}` does not name a device for good: {BY_ID}NAME")
    return value


Device: TypeAlias = Annotated[str, AfterValidator(device_name)]


def in_use(device: str, facts: Facts, tree: str = BLOCK, own: str | None = None, replaces: str = "") -> Iterator[str]:
    """The reasons why the disk must not be written to: it is read-only, held, mounted, swap, signed or partitioned.

    `own`: the type of a signature that it may have, or "" for none but a partition's entry in its table. `replaces`:
    the UUID of a filesystem that it must have.
    """
    disk = sys_folder(device, facts, tree)
    if facts.text(f"{disk}/ro") != "0":
        yield f"{device} is read-only"
    holders = (*facts.paths(f"{disk}/holders/*"), *facts.paths(f"{disk}/*/holders/*"))
    if holders:
        held_by = ", ".join(sorted({path.rpartition("/")[2] for path in holders}))
        yield f"{device} is held by {held_by} (LVM, md or device mapper)"
    numbers = {facts.text(f"{disk}/dev"), *(facts.text(path) for path in facts.paths(f"{disk}/*/dev"))}
    mounted = [line.split() for line in (facts.text(MOUNTS) or "").splitlines()]
    yield from (f"{device} is mounted at {words[4]}" for words in mounted if words[2:3] and words[2] in numbers)
    own_or_part = _nodes(facts.link(device) or "")
    for line in (facts.text(SWAPS) or "").splitlines():
        if own_or_part.fullmatch((line.split() or [""])[0]):
            yield f"{device} is swap"
    yield from _signature(device, facts, disk, own, replaces)


def _nodes(node: str) -> re.Pattern[str]:
    """A device and its partitions: after a name that ends in a number the kernel puts a `p` before the partition's."""
    between = "p" if node[-1:].isdigit() else ""
    return re.compile(rf"{re.escape(node)}({between}\d+)?")


def _signature(device: str, facts: Facts, disk: str, own: str | None, replaces: str) -> Iterator[str]:
    output = facts.output(*probe_argv(device))
    found = probed(device, facts)
    words = " ".join(line for line in output.text.split() if line.startswith(_KEYS + (("UUID=",) if replaces else ())))
    finds = f"blkid finds {words or 'data that it does not recognise'}"
    if replaces and not (found and _is_filesystem(found, replaces)):
        yield f"{device} does not have the filesystem {replaces} that the plan gives up: {finds}"
    elif not replaces and output.code != NOTHING_FOUND and not (found is not None and _is_own(found, own)):
        yield f"{device} is not empty: {finds}"
    if facts.paths(f"{disk}/*/dev"):
        yield f"{device} has partitions"


def _is_own(found: dict[str, str], own: str | None) -> bool:
    """Whether all that is found is a signature of the one kind, or no signature but the partition's entry in its
    table."""
    return own is not None and found.get("TYPE", own) == own and "PTTYPE" not in found


def _is_filesystem(found: dict[str, str], uuid: str) -> bool:
    """Whether all that is found is this filesystem."""
    return found.get("UUID") == uuid and found.get("USAGE") == "filesystem" and "PTTYPE" not in found
