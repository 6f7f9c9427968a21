"""What this machine is and how it is set: the part of the environment's fingerprint that an agent tells.

Data flow: /proc, /sys and installed packages -> facts by name, sorted -> `Welcome` (a session begins) and `FactsRead` (a run begins, and
ends). Reads only, some milliseconds; what a machine does not tell is left out.

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
from pathlib import Path
from typing import TYPE_CHECKING

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
    "clocksource=", "default_hugepagesz=", "hugepages", "idle=", "intel_idle.", "intel_pstate=", "isolcpus=", "mitigations=",
    "nohz_full=", "nosmt", "numa", "processor.max_cstate=", "rcu_nocbs=", "transparent_hugepage=", "tsc=",
)  # fmt: skip
"""Of the kernel's command line, only what bears on speed: the rest is the machine's own business."""
LIBPQ_S = 30.0
DRIVERS = ("PyMySQL", "apsw", "duckdb", "mysqlclient", "oracledb", "psycopg", "psycopg-binary")
_CPU = "/sys/devices/system/cpu"


def machine_id() -> str:
    """systemd's machine id, which stays over reboots; the host's name where there is none."""
    return _line("/etc/machine-id") or platform.node()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def facts() -> tuple[tuple[str, Value], ...]:
    """Facts by name, sorted: kernel, CPU, memory, and what they are set to."""
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
    found |= {f"sysctl.{name}": _line(f"/proc/sys/{name.replace('.', '/')}") for name in SYSCTLS}
    return tuple((name, _flat(value)) for name, value in sorted(found.items()) if value not in {None, ""})


async def read_facts(context: TaskContext, spec: ReadFacts) -> FactsRead:
    """The handler of `ReadFacts`: the facts of the machine, its drivers' versions, and where systems keep their data."""
    return FactsRead(facts=await asyncio.to_thread(_all_facts, spec.directories, spec.tools))


def _all_facts(directories: tuple[tuple[str, str], ...], tools: tuple[str, ...]) -> tuple[tuple[str, Value], ...]:
    found = dict(facts()) | dict(_drivers())
    if "fio" in tools:
        from proveout.agent.tools.fio import version  # noqa: PLC0415 - only where it is asked for

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
    """Its version as libpq has it, 180000; None where it cannot be had. Another process is asked: an agent loads no client of a database."""
    argv = [*child_process.interpreter(), "-c", "from psycopg import pq; print(pq.version())"]
    own, cwd = child_process.environment(), child_process.DIRECTORY
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIBPQ_S, check=False, cwd=cwd, env=own)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


# ---- where data lies ---------------------------------------------------------------------------------------------


def storage(system: str, directory: str) -> Iterator[tuple[str, Value]]:
    """File system with its options, and the block device's queue, of a directory (or of the nearest one above it that is there)."""
    place = Path(directory)
    while not place.exists() and place != place.parent:
        place = place.parent
    mounted = _mount(os.path.realpath(place))
    if mounted is not None:
        kind, options = mounted
        yield f"storage.{system}.filesystem", kind
        yield f"storage.{system}.options", options
    device = place.stat().st_dev
    queue = _queue(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    if queue is not None:
        yield f"storage.{system}.rotational", _line(str(queue / "rotational"))
        yield f"storage.{system}.scheduler", _chosen(_line(str(queue / "scheduler"))) or "none"


def _mount(path: str) -> tuple[str, str] | None:
    """(type, options) of the file system that holds a path: that of the longest mount point above it, the last one mounted there."""
    best: tuple[int, str, str] | None = None
    for line in _line("/proc/self/mounts").splitlines():
        _, point, kind, options, *_ = line.split()
        point = point.encode().decode("unicode_escape")
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and (best is None or len(point) >= best[0]):
            best = len(point), kind, options
    return None if best is None else best[1:]


def _queue(device: Path) -> Path | None:
    """The queue of a block device, of the whole disk when it is a partition."""
    if not device.exists():
        return None
    real = device.resolve()
    return next((place / "queue" for place in (real, real.parent) if (place / "queue").is_dir()), None)


# ---- reading -----------------------------------------------------------------------------------------------------


def _virtualisation() -> str:
    """What the machine runs in, as far as it says so: container and hypervisor, by their own names."""
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
