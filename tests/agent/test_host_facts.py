"""Facts of a host, read from the /proc of this machine, from a tree like that of /sys, and from SMBIOS tables, which are made
here byte by byte as the specification lays them out."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from proveout.agent import host_facts
from proveout.agent.host_facts import hardware, memory_modules, structures


def test_the_essential_facts_exist() -> None:
    found = dict(host_facts.facts())
    assert found["kernel"] == os.uname().release
    assert found["cpus"] == os.cpu_count()
    assert {"cpu_model", "memory_bytes", "clock_source", "sysctl.vm.swappiness", "python"} <= found.keys()
    assert list(found) == sorted(found)
    assert all(value not in ("", None) for value in found.values())


@pytest.mark.parametrize("is_bundled", [True, False])
def test_the_version_of_libpq_is_that_of_psycopg(is_bundled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("psycopg.pq")
    assert list(host_facts._bundled_libpq())
    if not is_bundled:
        monkeypatch.setattr(host_facts, "_bundled_libpq", lambda: [("print('no library')", "")])
    assert host_facts._libpq.__wrapped__() == pq.version()


def test_storage_is_that_of_the_nearest_existing_directory(tmp_path: Path) -> None:
    there = dict(host_facts.storage("db", str(tmp_path)))
    assert there["storage.db.filesystem"]
    assert dict(host_facts.storage("db", str(tmp_path / "not" / "yet"))) == there


def test_the_longest_mount_point_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw,noatime 0 0\n/dev/c /données\\040x btrfs rw 0 0\n"
    monkeypatch.setattr(host_facts, "_line", lambda path: mounts.strip())
    assert host_facts._mount("/data/db") == ("xfs", "rw,noatime")
    assert host_facts._mount("/database") == ("ext4", "rw")
    assert host_facts._mount("/données x/db") == ("btrfs", "rw")


FILES = {
    "devices/system/cpu/cpu0/topology/physical_package_id": "0",
    "devices/system/cpu/cpu1/topology/physical_package_id": "1",
    "devices/system/cpu/cpu2/topology/physical_package_id": "1",
    "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3700000\n",
    "devices/system/cpu/cpu0/cache/index0/level": "1",
    "devices/system/cpu/cpu0/cache/index0/type": "Data",
    "devices/system/cpu/cpu0/cache/index0/size": "32K",
    "devices/system/cpu/cpu0/cache/index3/level": "3",
    "devices/system/cpu/cpu0/cache/index3/type": "Unified",
    "devices/system/cpu/cpu0/cache/index3/size": "36608K",
    "class/net/eth0/device/vendor": "0x15b3",
    "class/net/eth0/mtu": "9000\n",
    "class/net/eth0/speed": "25000\n",
    "class/net/down0/device/vendor": "0x15b3",
    "class/net/down0/mtu": "1500",
    "class/net/down0/speed": "-1",
    "class/net/bond0/mtu": "9000",
    "class/net/bond0/bonding/mode": "802.3ad 4",
    "class/net/bond0/bonding/slaves": "eth0 eth1",
    "class/net/veth7/mtu": "1500",
    "class/fc_host/host3/symbolic_name": "LPe32002",
    "class/fc_host/host3/speed": "32 Gbit",
    "block/sda/device/vendor": "DELL    ",
    "block/sda/device/model": "PERC H740P",
    "block/sda/size": "2048",
    "block/loop0/size": "8",
    "class/dmi/id/sys_vendor": "Dell Inc.",
    "class/dmi/id/product_name": "PowerEdge R740\n",
    "class/dmi/id/bios_version": "2.9.4",
}


def test_each_fact_that_is_there(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert dict(hardware(tmp_path)) == {
        "cpu_sockets": 2,
        "cpu_max_khz": "3700000",
        "cpu_cache.l1d": "32K",
        "cpu_cache.l3": "36608K",
        "net.bond0.mtu": 9000,
        "net.bond0.bond": "802.3ad 4: eth0 eth1",
        "net.down0.mtu": 1500,
        "net.eth0.mtu": 9000,
        "net.eth0.speed_mbits": 25000,
        "hba.host3": "LPe32002 32 Gbit",
        "disk.sda": "DELL PERC H740P, 1048576 bytes",
        "machine": "Dell Inc. PowerEdge R740",
        "bios": "2.9.4",
    }


def test_a_host_without_these_files_has_no_facts(tmp_path: Path) -> None:
    assert list(hardware(tmp_path)) == []


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
