"""Facts of a host: kernel, CPU, memory modules by SMBIOS, disks, network interfaces, settings."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.core import child_process
from proveout.core.data_classes import record
from proveout.dsl import engines
from proveout.dsl.plan.topology import Value
from proveout.proto.wire.results import FactsRead
from proveout.proto.wire.tasks import ReadFacts

if TYPE_CHECKING:
    from proveout.agent.daemon.tasks import TaskContext


# Source: DMTF DSP0134 (SMBIOS reference specification 3.7), 6.1.2 structure header, 6.1.3 strings, 7.18 memory device.

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


@record
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
        texts = tuple(item.decode("latin-1") for item in strings)
        yield Structure(kind=kind, data=table[at : at + length], strings=texts)
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
    """The words of a file; "" when it cannot be read."""
    return " ".join(_line(path).split())


def _bytes(path: Path) -> bytes:
    """The whole file; empty when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


# Sources: proc(5), Documentation/admin-guide/sysctl and /mm/hugetlbpage, /ABI/testing/sysfs-* of Linux.

SYSCTLS = (
    "fs.aio-max-nr",
    "fs.file-max",
    "kernel.numa_balancing",
    "kernel.sched_autogroup_enabled",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_congestion_control",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
KERNEL_OPTIONS = (
    "clocksource=", "default_hugepagesz=", "hugepages", "idle=", "intel_idle.", "intel_pstate=", "isolcpus=",
    "mitigations=", "nohz_full=", "nosmt", "numa", "processor.max_cstate=", "rcu_nocbs=", "transparent_hugepage=",
    "tsc=",
)  # fmt: skip
"""Options of the kernel command line that affect performance; other options are not reported."""
LIBPQ_S = 30.0
DRIVERS = sorted({name for engine in engines.ENGINES.values() for name in engine.clients} - {"libpq"})
_CPU = "/sys/devices/system/cpu"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def machine_id() -> str:
    """systemd's machine id, which survives reboots; the host name if there is none."""
    return _line("/etc/machine-id") or platform.node()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def facts() -> tuple[tuple[str, Value], ...]:
    """Facts by name, sorted: kernel, CPU, memory, and their settings."""
    found: dict[str, Value] = {
        "architecture": platform.machine(),
        "boot_id": _line(BOOT_ID),
        "clock_source": _line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "cpu_governor": _line(f"{_CPU}/cpu0/cpufreq/scaling_governor"),
        "cpu_model": _field("/proc/cpuinfo", "model name"),
        "cpu_no_turbo": _line(f"{_CPU}/intel_pstate/no_turbo"),
        "cpu_smt": _line(f"{_CPU}/smt/control"),
        "cpus": os.cpu_count(),
        "cpus_allowed": cores(),
        "distribution": _field("/etc/os-release", "PRETTY_NAME", separator="="),
        "host_name": platform.node(),
        "huge_page_size": _field("/proc/meminfo", "Hugepagesize"),
        "kernel": platform.release(),
        "kernel_options": " ".join(o for o in _line("/proc/cmdline").split() if o.startswith(KERNEL_OPTIONS)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_limit": _line("/sys/fs/cgroup/memory.max"),
        "microcode": _field("/proc/cpuinfo", "microcode"),
        "numa_nodes": _line("/sys/devices/system/node/online"),
        "python": platform.python_version(),
        "swap": _field("/proc/meminfo", "SwapTotal"),
        "transparent_hugepages": _chosen(_line("/sys/kernel/mm/transparent_hugepage/enabled")),
        "transparent_hugepages_defrag": _chosen(_line("/sys/kernel/mm/transparent_hugepage/defrag")),
        "tuned_profile": _line("/etc/tuned/active_profile"),
        "virtualisation": _virtualisation(),
    }
    found |= dict(hardware())
    found |= {f"sysctl.{name}": _line(f"/proc/sys/{name.replace('.', '/')}") for name in SYSCTLS}
    return tuple((name, _flat(value)) for name, value in sorted(found.items()) if value not in {None, ""})


async def read_facts(context: TaskContext, spec: ReadFacts) -> FactsRead:
    """The handler of `ReadFacts`: facts of the machine, versions of drivers, and storage of the systems."""
    return FactsRead(facts=await asyncio.to_thread(_all_facts, spec.directories, spec.tools))


def _all_facts(directories: tuple[tuple[str, str], ...], tools: tuple[str, ...]) -> tuple[tuple[str, Value], ...]:
    found = dict(facts()) | dict(_drivers())
    if "fio" in tools:
        from proveout.agent.tools.fio import version  # noqa: PLC0415 - needed only if requested

        found |= {"tool.fio": version() or "not installed"}
    for system, directory in directories:
        found |= dict(storage(system, directory))
    return tuple(sorted(found.items()))


def _drivers() -> Iterator[tuple[str, Value]]:
    for name in DRIVERS:
        try:
            yield f"driver.{name}", metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if (version := _libpq()) is not None:
        yield "driver.libpq", version


@functools.cache
def _libpq() -> int | None:
    """Version number of libpq, 180000; None if it is not available. Read in a child process: an agent loads no database
    client. Calls the library in psycopg's binary package directly, because importing psycopg takes 0.1 s.
    """
    for code in (*_bundled_libpq(), ("from psycopg import pq; print(pq.version())",)):
        argv = [*child_process.interpreter(), "-c", *code]
        own, cwd = child_process.environment(), child_process.DIRECTORY
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=LIBPQ_S, check=False, cwd=cwd, env=own)
            return int(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
    return None


def _bundled_libpq() -> Iterator[tuple[str, str]]:
    """Python code and its argument for each libpq in psycopg's binary package."""
    binary = find_spec("psycopg_binary")
    if binary is not None and binary.origin is not None:
        for library in Path(binary.origin).parents[1].glob("psycopg_binary.libs/libpq-*"):
            yield "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).PQlibVersion())", str(library)


# ---- storage -----------------------------------------------------------------------------------------------------


def storage(system: str, directory: str) -> Iterator[tuple[str, Value]]:
    """File system, options and block device queue of a directory, or of its nearest existing parent."""
    folder = Path(directory)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    mounted = _mount(os.path.realpath(folder))
    if mounted is not None:
        kind, options = mounted
        yield f"storage.{system}.filesystem", kind
        yield f"storage.{system}.options", options
    device = folder.stat().st_dev
    queue = _queue(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    if queue is not None:
        yield f"storage.{system}.rotational", _line(queue / "rotational")
        yield f"storage.{system}.scheduler", _chosen(_line(queue / "scheduler")) or "none"


def _mount(path: str) -> tuple[str, str] | None:
    """(type, options) of the file system of a path: that of the longest mount point above it, and of the last mount
    there.
    """
    best: tuple[int, str, str] | None = None
    for line in _line("/proc/self/mounts").splitlines():
        _, point, kind, options, *_ = line.split()
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and (best is None or len(point) >= best[0]):
            best = len(point), kind, options
    return None if best is None else best[1:]


def _queue(device: Path) -> Path | None:
    """The queue of a block device; for a partition, that of the whole disk."""
    if not device.exists():
        return None
    real = device.resolve()
    return next((folder / "queue" for folder in (real, real.parent) if (folder / "queue").is_dir()), None)


# ---- reading -----------------------------------------------------------------------------------------------------


def _virtualisation() -> str:
    """Container and hypervisor of the machine, by their own names, as far as they are visible."""
    container = ""
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        container = "container"
    container = _line("/run/systemd/container") or container
    product = " ".join(filter(None, map(_line, ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"))))
    guest = " hypervisor " in f"{_field('/proc/cpuinfo', 'flags')} "
    machine = _line("/sys/hypervisor/type") or (f"virtual machine ({product or 'unnamed'})" if guest else product)
    return ", ".join(filter(None, (container, machine)))


def _flat(value: Value) -> Value:
    return " ".join(value.split()) if isinstance(value, str) else value


def _line(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _field(path: str, name: str, separator: str = ":") -> str:
    for line in _line(path).splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip().strip('"')
    return ""


def _chosen(choices: str) -> str:
    """`madvise` of `always [madvise] never`."""
    return choices.partition("[")[2].partition("]")[0]
