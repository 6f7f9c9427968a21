"""Memory modules from SMBIOS tables, which are made here byte by byte as the specification lays them out."""

from __future__ import annotations

import struct

import pytest

from proveout.agent.host_facts import memory_modules, structures

GIB_MIB = 1024


def structure(kind: int, formatted: bytes, *strings: str) -> bytes:
    header = struct.pack("<BBH", kind, 4 + len(formatted), 0x1100)
    texts = b"".join(text.encode() + b"\0" for text in strings) if strings else b"\0"
    return header + formatted + texts + b"\0"


def module(
    size: int,
    *,
    extended: int = 0,
    kind: int = 0x1A,
    speed: int = 2933,
    configured: int = 2666,
    technology: int = 0x03,
    made: tuple[str, str] = ("Samsung", "M393A8G40MB2  "),
) -> bytes:
    """A memory device of SMBIOS 3.2, from offset 4 to 0x29."""
    start = struct.pack("<HHHHHBBBBBHHBBBB", 0x1000, 0xFFFE, 72, 64, size, 9, 0, 1, 2, kind, 0, speed, 3, 4, 0, 5)
    rest = struct.pack("<BIHHHHB", 2, extended, configured, 1200, 1200, 1200, technology)
    return structure(17, start + rest, "A1", "bank", made[0], "SERIAL-7", made[1])


TABLE = (
    structure(0, b"\1\2\0\xf0\3", "Dell Inc.", "2.9.4", "12/06/2019")
    + module(32767, extended=64 * GIB_MIB)
    + module(32767, extended=64 * GIB_MIB)
    + module(0)
    + module(0xFFFF)
    + module(
        32767, extended=256 * GIB_MIB, kind=0x1F, configured=0, speed=2666, technology=7, made=("Intel", "Unknown")
    )
    + structure(127, b"")
    + module(8 * GIB_MIB)
)


def test_alike_modules_are_one_entry_and_empty_slots_none() -> None:
    assert dict(memory_modules(TABLE)) == {
        "memory_module_count": 3,
        "memory_modules_bytes": 384 * 2**30,
        "memory_modules": "2 × 64 GiB DDR4 2666 MT/s, Samsung M393A8G40MB2; "
        "1 × 256 GiB Optane persistent memory 2666 MT/s, Intel",
    }


def test_a_structure_of_an_old_version_is_shorter() -> None:
    old = structure(17, struct.pack("<HHHHHBBBBB", 1, 0xFFFE, 72, 64, 512, 9, 0, 0, 0, 0x12))
    assert dict(memory_modules(old))["memory_modules"] == "1 × 512 MiB DDR"
    kib = structure(17, struct.pack("<HHHHHBBBBB", 1, 0xFFFE, 72, 64, 0x8000 | 512, 9, 0, 0, 0, 0x12))
    assert dict(memory_modules(kib))["memory_modules_bytes"] == 512 * 1024


@pytest.mark.parametrize("cut", range(0, len(TABLE), 7))
def test_a_table_that_is_cut_anywhere_gives_what_is_whole(cut: int) -> None:
    found = list(structures(TABLE[:cut]))
    assert found == list(structures(TABLE))[: len(found)]


@pytest.mark.parametrize("table", [b"", b"\x11", b"\x11\x00\x00\x00\x00\x00", b"\x11\xff\x00\x00" + b"a" * 20])
def test_other_bytes_give_no_facts(table: bytes) -> None:
    assert list(memory_modules(table)) == []
