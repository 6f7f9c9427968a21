"""The name of a disk out of its vital product data, page 0x83, as the kernel shows it in /sys/block/*/device/vpd_pg83.

Source: SPC-5, 7.7.6 (device identification page); names as scsi_id(8) makes them: the type of the designator, then its
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

PAGE = 0x83
_BINARY, _OF_THE_UNIT = 1, 0
_EUI64, _NAA = 2, 3
_NAA_LENGTHS = {2: 8, 3: 8, 5: 8, 6: 16}
_RANKS = {6: 4, 5: 3, 3: 2, 2: 1}
HEAD = 4


def wwid(page: bytes) -> str | None:
    """The worldwide name: NAA (the longest first), else EUI-64; None where the page has none, or is cut short."""
    found = [(rank, name) for rank, name in _names(page) if rank]
    return max(found, default=(0, None), key=lambda pair: pair[0])[1]


def _names(page: bytes) -> Iterator[tuple[int, str]]:
    for code_set, association, kind, value in _designators(page):
        if code_set != _BINARY or association != _OF_THE_UNIT or not value:
            continue
        if kind == _NAA and len(value) == _NAA_LENGTHS.get(value[0] >> 4):
            yield 10 + _RANKS[value[0] >> 4], f"3{value.hex()}"
        elif kind == _EUI64 and len(value) in (8, 12, 16):
            yield 1, f"2{value.hex()}"


def _designators(page: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(code set, association, type, bytes); nothing of a page that is another or is cut short."""
    if len(page) < HEAD or page[1] != PAGE:
        return
    end = HEAD + int.from_bytes(page[2:4], "big")
    at = HEAD
    while at + HEAD <= min(end, len(page)):
        length = page[at + 3]
        value = page[at + HEAD : at + HEAD + length]
        if len(value) < length:
            return
        yield page[at] & 0x0F, (page[at + 1] >> 4) & 0x03, page[at + 1] & 0x0F, value
        at += HEAD + length
