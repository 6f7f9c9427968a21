"""The files that a database server and its helper programs may use, as `confinement.Access` for the supervisor.

Flow: `of_server(program, …)` for the server itself, which may execute only its own program; `of_helper(…)` for programs
that run before any SQL of a plan does (`initdb`, `mariadb-install-db`, `cp`), which may execute all programs of the
system.

Home directories, `/tmp`, `/dev/shm`, `/proc` and the agent's own folders are in no list.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from proveout.agent.engines.embedded.confinement import Access

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
"""Programs and libraries of the system."""
CONFIGURATION = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static",
    "/etc/timezone",
)
"""Files that libraries read: the loader, name services, time zones, certificates of authorities."""
KERNEL = (
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/fs",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/version",
    "/sys/devices/system",
    "/sys/kernel/mm",
)
"""Sizes of memory and huge pages, processors, random numbers."""
BESIDE_PROGRAMS = ("bin", "sbin", "libexec", "lib", "lib64", "share")
"""Folders of an installation beside that of its programs."""
NULL = "/dev/null"

_ELF_64 = b"\x7fELF\x02\x01"
_INTERPRETER = 3
_PATH_BYTES_MAX = 4096


def of_server(program: Path, *, read: Iterable[Path], write: Iterable[Path]) -> Access:
    """`program`, what lies beside it, `read` and `write`. It executes itself and the loader that its file names."""
    loader = interpreter(program)
    executed = (str(program), loader) if loader else SYSTEM  # a script, or a form of program that is not known here
    return {
        "read": [*SYSTEM, *CONFIGURATION, *KERNEL, *_beside(program), *map(str, read)],
        "execute": list(executed),
        "write": [NULL, *map(str, write)],
    }


def of_helper(program: Path, *, read: Iterable[Path] = (), write: Iterable[Path]) -> Access:
    """`program` and what lies beside it, all programs of the system, `read` and `write`."""
    return {
        "read": [*CONFIGURATION, *KERNEL, *map(str, read)],
        "execute": [*SYSTEM, *_beside(program)],
        "write": [NULL, *map(str, write)],
    }


def _beside(program: Path) -> list[str]:
    return [str(program.parent.parent / name) for name in BESIDE_PROGRAMS]


def interpreter(program: Path) -> str:
    """The loader that a 64-bit little-endian ELF program names; "" for all else. Source: elf(5), PT_INTERP."""
    try:
        with program.open("rb") as file:
            head = file.read(64)
            if len(head) < 64 or not head.startswith(_ELF_64):
                return ""
            (table,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            for number in range(count):
                file.seek(table + number * size)
                kind, _, start, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
                if kind == _INTERPRETER and length <= _PATH_BYTES_MAX:
                    file.seek(start)
                    return file.read(length).rstrip(b"\0").decode()
    except (OSError, struct.error, UnicodeDecodeError):
        return ""
    return ""
