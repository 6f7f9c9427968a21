"""Confine a program of the supervisor: no new privileges, no capabilities, and only the files in a list.

Flow: `give_up_privileges(uid, gid)` in a fresh child -> `landlock_version()` is 0 when the kernel has no Landlock ->
`restrict(access)` denies the child, and all that it starts, every file and folder but those in `access`. None of it can
be taken back. Only the standard library is imported, and no pathlib: `supervisor` starts with this module.

`access` maps `read`, `execute` and `write` to lists of paths; access to a folder holds for everything below it.
`execute` includes `read`, and `write` includes `read`, but not `execute`. A path that does not exist is passed over.
`listen` lists the TCP ports that it may listen on. Where the kernel supports it, three more things are denied: to
listen on other TCP ports, to connect to abstract unix sockets of others, and to send signals to processes outside.
Sources: landlock(7), include/uapi/linux/landlock.h, capabilities(7).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from proveout.core import linux
    from proveout.core.linux import LIBC
else:  # imported by a supervisor that runs from its file
    import linux
    from linux import LIBC

Access = Mapping[str, Sequence[str]]

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on all architectures that Landlock runs on
VERSION_FLAG, RULE_PATH_BENEATH, RULE_NET_PORT = 1, 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
ALL_BY_VERSION = ((1, (1 << 13) - 1), (2, 1 << 13), (3, TRUNCATE), (5, IOCTL_DEV))
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = READ_FILE | READ_DIR
RIGHTS = {
    "read": READ,
    "execute": READ | EXECUTE,
    "write": ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV),
}
BIND_TCP = 1
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3
NETWORK_SINCE, SCOPES_SINCE = 4, 6


def landlock_version() -> int:
    """The version of the kernel's Landlock interface; 0 when the kernel lacks Landlock, or has it switched off."""
    return max(0, int(LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)))


def restrict(access: Access) -> None:
    """Deny this process every file but those in `access`; nothing where there is no Landlock. OSError when the kernel
    refuses.

    The process needs no_new_privs.
    """
    version = landlock_version()
    if version == 0:
        return
    files = sum(rights for since, rights in ALL_BY_VERSION if version >= since)
    network = BIND_TCP if version >= NETWORK_SINCE else 0
    scopes = SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if version >= SCOPES_SINCE else 0
    ruleset = struct.pack("=QQQ", files, network, scopes)  # an older kernel takes zeros behind its own fields
    size = ctypes.c_size_t(len(ruleset))
    descriptor = linux.checked(LIBC.syscall(CREATE_RULESET, ruleset, size, 0), "landlock")
    try:
        for kind, rights in RIGHTS.items():
            for path in access.get(kind, ()):
                _allow(descriptor, path, rights & files)
        for port in access.get("listen", ()) if version >= NETWORK_SINCE else ():
            _add(descriptor, RULE_NET_PORT, struct.pack("=QQ", BIND_TCP, int(port)))
        linux.checked(LIBC.syscall(RESTRICT_SELF, descriptor, 0), "landlock")
    finally:
        os.close(descriptor)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= OF_FILES
        _add(ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, opened))
    finally:
        os.close(opened)


def _add(ruleset: int, kind: int, rule: bytes) -> None:
    linux.checked(LIBC.syscall(ADD_RULE, ruleset, kind, rule, 0), "landlock")


def give_up_privileges(identity: tuple[int, int] | None) -> None:
    """Become `identity` (uid, gid), None for the user that the process has; no capability and no set-uid program brings
    any back.

    OSError when the kernel refuses.
    """
    linux.set_no_new_privileges()
    linux.empty_bounding_set()
    if identity is not None:
        uid, gid = identity
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    linux.set_capabilities(0)
