"""Memory modules of a host from the SMBIOS tables of its firmware: size, type, speed, maker and part number.

Flow: `/sys/firmware/dmi/tables/DMI` (root alone can read it) -> `structures` -> `memory_modules` -> `hardware_facts`.
The tables are untrusted bytes: lengths are bounded by the text, and a structure that is cut short ends the reading.
Serial numbers and asset tags are not read.

Source: DMTF DSP0134 (SMBIOS reference specification 3.7), 6.1.2 structure header, 6.1.3 strings, 7.18 memory device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proveout.core.data_classes import dataclass

MEMORY_DEVICE, END_OF_TABLE = 17, 127
STRUCTURES_MAX = 10_000
_HEADER = 4
_MIB, _KIB = 2**20, 2**10
_TYPES = {
    0x0F: "SDRAM", 0x12: "DDR", 0x13: "DDR2", 0x18: "DDR3", 0x1A: "DDR4", 0x1B: "LPDDR", 0x1C: "LPDDR2", 0x1D: "LPDDR3",
    0x1E: "LPDDR4", 0x1F: "persistent memory", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3",
}  # fmt: skip
_TECHNOLOGIES = {0x04: "NVDIMM-N", 0x05: "NVDIMM-F", 0x06: "NVDIMM-P", 0x07: "Optane persistent memory"}
_UNKNOWN = frozenset({"", "unknown", "not specified", "none", "no dimm", "undefined", "to be filled by o.e.m."})


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A structure of the tables: its formatted area with the header, and its strings (numbered from 1)."""

    kind: int
    data: bytes
    strings: tuple[str, ...]

    def number(self, offset: int, size: int) -> int:
        """A little-endian number; 0 where the structure is shorter, as those of older versions are."""
        return int.from_bytes(self.data[offset : offset + size], "little") if offset + size <= len(self.data) else 0

    def text(self, offset: int) -> str:
        """The string that the byte at `offset` numbers; "" for none and for placeholders."""
        index = self.number(offset, 1)
        text = " ".join(self.strings[index - 1].split()) if 0 < index <= len(self.strings) else ""
        return "" if text.casefold() in _UNKNOWN else text


def structures(table: bytes) -> Iterator[Structure]:
    """The structures up to the end of the table, or to one that is cut short."""
    at = 0
    for _ in range(STRUCTURES_MAX):
        kind, length = (table[at], table[at + 1]) if at + _HEADER <= len(table) else (END_OF_TABLE, 0)
        end = table.find(b"\0\0", at + length)
        if kind == END_OF_TABLE or length < _HEADER or end < 0:
            return
        strings = table[at + length : end].split(b"\0") if end > at + length else []
        yield Structure(
            kind=kind,
            data=table[at : at + length],
            strings=tuple(item.decode("latin-1") for item in strings),
        )
        at = end + 2


def memory_modules(table: bytes) -> Iterator[tuple[str, str | int]]:
    """(name, value) of the facts of the installed modules, alike ones together; none where the tables have none."""
    installed = [(size, one) for one in structures(table) if one.kind == MEMORY_DEVICE and (size := _size_bytes(one))]
    if not installed:
        return
    alike = Counter(_module(size, one) for size, one in installed)
    yield "memory_module_count", len(installed)
    yield "memory_modules_bytes", sum(size for size, _ in installed)
    yield "memory_modules", "; ".join(f"{count} × {module}" for module, count in alike.items())


def _size_bytes(device: Structure) -> int:
    """7.18.4: MiB, or KiB with the highest bit; 0x7FFF refers to the extended size; 0 empty, 0xFFFF unknown."""
    size = device.number(0x0C, 2)
    if size == 0x7FFF:
        return (device.number(0x1C, 4) & 0x7FFF_FFFF) * _MIB
    if size in (0, 0xFFFF):
        return 0
    return (size & 0x7FFF) * _KIB if size & 0x8000 else size * _MIB


def _module(size_bytes: int, device: Structure) -> str:
    """`64 GiB DDR4 2933 MT/s, Samsung M393A8G40MB2`: the speed is the configured one, else the highest."""
    size = f"{size_bytes // 2**30} GiB" if size_bytes % 2**30 == 0 else f"{size_bytes // _MIB} MiB"
    kind = _TECHNOLOGIES.get(device.number(0x28, 1)) or _TYPES.get(device.number(0x12, 1), "")
    speed = device.number(0x20, 2) or device.number(0x15, 2)
    if speed == 0xFFFF:
        speed = device.number(0x58, 4) or device.number(0x54, 4)
    made = " ".join(filter(None, (device.text(0x17), device.text(0x1A))))
    what = " ".join(filter(None, (size, kind, f"{speed} MT/s" if speed else "")))
    return f"{what}, {made}" if made else what
