"""Facts about this machine and its settings: the agent's part of the environment fingerprint.

Flow: /proc, /sys and installed packages -> facts by name, sorted -> `Welcome` (start of a session) and `FactsRead`
(start and end of a run). Reads only, within milliseconds. Facts that a machine does not report are left out.

Sources: proc(5), Documentation/admin-guide/sysctl and /mm/hugetlbpage, /ABI/testing/sysfs-* of Linux.
"""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import subprocess
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.agent.hardware_facts import hardware
from proveout.core import child_process
from proveout.dsl.plan.values import Value
from proveout.proto.wire.results import FactsRead
from proveout.proto.wire.tasks import ReadFacts

if TYPE_CHECKING:
    from proveout.agent.daemon.tasks import TaskContext

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
DRIVERS = ("PyMySQL", "apsw", "duckdb", "mysqlclient", "oracledb", "psycopg", "psycopg-binary")
_CPU = "/sys/devices/system/cpu"


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
        "boot_id": _line("/proc/sys/kernel/random/boot_id"),
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
        yield f"storage.{system}.rotational", _line(str(queue / "rotational"))
        yield f"storage.{system}.scheduler", _chosen(_line(str(queue / "scheduler"))) or "none"


def _mount(path: str) -> tuple[str, str] | None:
    """(type, options) of the file system of a path: that of the longest mount point above it, and of the last mount
    there.
    """
    best: tuple[int, str, str] | None = None
    for line in _line("/proc/self/mounts").splitlines():
        _, point, kind, options, *_ = line.split()
        point = point.encode().decode("unicode_escape")
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


def _line(path: str) -> str:
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
