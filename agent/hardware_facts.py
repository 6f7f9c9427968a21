"""Facts of a host's hardware that Linux gives an ordinary user: sockets, caches and frequencies of the CPU, network
interfaces with speed and MTU, host bus adapters, disks, machine and BIOS; where the agent is root also its memory
modules.

Flow: `/sys` -> `hardware(sys)` -> `host_facts`, for the environment's fingerprint. Only interfaces and disks with a
device behind them are read, bonds too: those of containers differ from one start to the next. BIOS settings and RAID
levels need a vendor's tool and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from proveout.agent.smbios import memory_modules

SECTOR_BYTES = 512
VIRTUAL_DISKS = ("loop", "ram", "zram", "sr", "fd")


def hardware(sys: Path = Path("/sys")) -> Iterator[tuple[str, str | int]]:
    """(name, value) of each fact that is there."""
    cpus = sys / "devices/system/cpu"
    packages = {_text(folder / "topology/physical_package_id") for folder in cpus.glob("cpu[0-9]*")} - {""}
    if packages:
        yield "cpu_sockets", len(packages)
    for name, file in (("cpu_base_khz", "base_frequency"), ("cpu_max_khz", "cpuinfo_max_freq")):
        if khz := _text(cpus / "cpu0/cpufreq" / file):
            yield name, khz
    for index in sorted(cpus.glob("cpu0/cache/index[0-9]*")):
        level, kind, size = (_text(index / part) for part in ("level", "type", "size"))
        if level and size:
            yield f"cpu_cache.l{level}{'' if kind == 'Unified' else kind.lower()[:1]}", size
    dmi = sys / "class/dmi/id"
    for name, files in (("machine", ("sys_vendor", "product_name")), ("bios", ("bios_vendor", "bios_version"))):
        if words := " ".join(filter(None, (_text(dmi / file) for file in files))):
            yield name, words
    yield from memory_modules(_bytes(sys / "firmware/dmi/tables/DMI"))
    yield from _interfaces(sys / "class/net")
    for host in sorted((sys / "class/fc_host").glob("host*")):
        yield f"hba.{host.name}", " ".join(filter(None, (_text(host / "symbolic_name"), _text(host / "speed"))))
    for disk in sorted((sys / "block").glob("*")):
        if disk.name.startswith(VIRTUAL_DISKS) or not (disk / "device").exists():
            continue
        size_bytes = int(_text(disk / "size") or 0) * SECTOR_BYTES
        model = " ".join(filter(None, (_text(disk / "device/vendor"), _text(disk / "device/model"))))
        yield f"disk.{disk.name}", f"{model}, {size_bytes} bytes".removeprefix(", ")


def _interfaces(folder: Path) -> Iterator[tuple[str, str | int]]:
    for interface in sorted(folder.glob("*")):
        bond = _text(interface / "bonding/mode")
        if not bond and not (interface / "device").exists():
            continue
        speed, mtu = _text(interface / "speed"), _text(interface / "mtu")
        if mtu.isdecimal():
            yield f"net.{interface.name}.mtu", int(mtu)
        if speed.isdecimal():  # -1, or an error: no cable, or a virtual function without a speed
            yield f"net.{interface.name}.speed_mbits", int(speed)
        if bond:
            yield f"net.{interface.name}.bond", f"{bond}: {_text(interface / 'bonding/slaves')}"


def _text(path: Path) -> str:
    """The first line's words; "" when it cannot be read."""
    try:
        return " ".join(path.read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return ""


def _bytes(path: Path) -> bytes:
    """The whole file; empty when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
