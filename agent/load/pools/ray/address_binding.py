"""Limits a process and its descendants to one address: a bind to all addresses becomes a bind to this one.

Flow: the supervisor of a Ray node calls `confine(address)` before it starts Ray -> a seccomp filter, inherited by every
descendant, passes each bind(2) to a thread of the supervisor -> a stream socket that binds to 0.0.0.0 or :: is fetched
(pidfd_getfd), bound to `address` with the same port, and the caller gets success; every other bind proceeds unchanged.

Ray 2.60 binds its gRPC servers to all addresses as soon as a node's own address is not loopback, for any setting
(`node_ip_address` is only announced to other nodes). The filter needs neither privileges nor a program in another
language, and covers every process that Ray starts. It does not stop a hostile program, which could change the address
while the filter reads it. Source: seccomp(2), seccomp_unotify(2), pidfd_getfd(2); Linux 5.6.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import platform
import queue
import socket
import struct
import threading
from pathlib import Path
from typing import TypeAlias

from proveout.core import linux
from proveout.core.data_classes import dataclass

SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
PIDFD_GETFD = 438
CONTINUE = 1
ALLOW, USER_NOTIF = 0x7FFF0000, 0x7FC00000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
SOCKADDR_MAX = 128

NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags; of the call its number, architecture, instruction pointer, six arguments."""
ANSWER = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, error, flags."""


def _ioctl(number: int, size: int, direction: int = 3) -> int:
    return direction << 30 | size << 16 | ord("!") << 8 | number


RECEIVE, SEND = _ioctl(0, NOTIFICATION.size), _ioctl(1, ANSWER.size)
IS_VALID = _ioctl(2, 8, direction=1)

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The kernel's numbers of an architecture and of two of its system calls."""

    audit: int
    bind: int
    seccomp: int


CALLS = {
    "x86_64": Calls(audit=0xC000003E, bind=49, seccomp=317),
    "aarch64": Calls(audit=0xC00000B7, bind=200, seccomp=277),
}


def confine(address: str) -> None:
    """Bind this process and its descendants permanently to `address` (of this host, IPv4 or IPv6) in place of all
    addresses.

    Call it in the main thread, before any child or thread starts. OSError if the kernel has no such filter, or has one
    already.
    """
    calls = CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, f"the system call filter does not support {platform.machine()}")
    there = ipaddress.ip_address(address)
    listeners: queue.SimpleQueue[int] = queue.SimpleQueue()
    # The thread starts before the filter, so that the filter does not apply to it: it would wait for its own answer
    threading.Thread(target=_serve, args=(listeners, there), daemon=True).start()
    listeners.put(_install(calls))


def _install(calls: Calls) -> int:
    """Install the filter; returns the descriptor of its notifications."""
    program = b"".join(
        struct.pack("=HBBI", code, if_true, if_false, value)
        for code, if_true, if_false, value in (
            (LOAD, 0, 0, ARCHITECTURE_AT),
            (JUMP_IF_EQUAL, 0, 3, calls.audit),
            (LOAD, 0, 0, NUMBER_AT),
            (JUMP_IF_EQUAL, 0, 1, calls.bind),
            (RETURN, 0, 0, USER_NOTIF),
            (RETURN, 0, 0, ALLOW),
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    linux.set_no_new_privileges()
    kept = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(kept)))
    return _checked(libc.syscall(calls.seccomp, SET_MODE_FILTER, NEW_LISTENER, header))


def _serve(listeners: queue.SimpleQueue[int], address: Address) -> None:
    """Answer each bind, until no filtered process is left."""
    listener = listeners.get()
    while True:
        notification = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the calling process has ended meanwhile
                continue
            return
        answer = ANSWER.pack(*_answer(listener, notification, address))
        try:
            fcntl.ioctl(listener, SEND, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise


def _answer(listener: int, notification: bytes | bytearray, address: Address) -> tuple[int, int, int, int]:
    """The fields of `ANSWER` to a notification."""
    number, thread, _, _, _, _, descriptor, pointer, length, *_ = NOTIFICATION.unpack(notification)
    try:
        given = _memory(thread, pointer, min(length, SOCKADDR_MAX))
        if (port := wildcard_port(given)) is None:
            return number, 0, 0, CONTINUE
        with _fetched(listener, number, thread, descriptor) as theirs:
            if theirs.type != socket.SOCK_STREAM:
                return number, 0, 0, CONTINUE
            theirs.bind(confined(theirs.family, address, port))
    except OSError as error:
        return number, 0, -(error.errno or errno.EIO), 0
    return number, 0, 0, 0


def wildcard_port(given: bytes) -> int | None:
    """The port of a `struct sockaddr` for all addresses of the host; None for any other address.

    >>> wildcard_port(bytes.fromhex("0200" "1f90" "00000000" "0000000000000000"))
    8080
    >>> wildcard_port(bytes.fromhex("0200" "1f90" "7f000001" "0000000000000000"))
    """
    family = int.from_bytes(given[:2], "little" if struct.pack("=H", 1)[0] else "big")
    port = int.from_bytes(given[2:4], "big")
    if family == socket.AF_INET and len(given) >= 8:
        return port if given[4:8] == bytes(4) else None
    if family == socket.AF_INET6 and len(given) >= 24:
        whole = ipaddress.IPv6Address(given[8:24])
        is_any = whole == ipaddress.IPv6Address(0) or whole.ipv4_mapped == ipaddress.IPv4Address(0)
        return port if is_any else None
    return None


def confined(family: int, address: Address, port: int) -> tuple[str, int]:
    """The address for a socket of that family: `address`, on an IPv6 socket as a mapped IPv4 address.

    >>> confined(socket.AF_INET6, ipaddress.ip_address("192.0.2.1"), 80)
    ('::ffff:192.0.2.1', 80)
    """
    mapped = family == socket.AF_INET6 and address.version == 4
    return (f"::ffff:{address}" if mapped else str(address)), port


def _memory(thread: int, pointer: int, length: int) -> bytes:
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, length, pointer)
    finally:
        os.close(memory)


def _fetched(listener: int, number: int, thread: int, descriptor: int) -> socket.socket:
    """The caller's socket, through a descriptor in this process."""
    status = Path(f"/proc/{thread}/status").read_text()
    process = int(status.partition("Tgid:")[2].split(maxsplit=1)[0])
    pidfd = os.pidfd_open(process)
    try:
        # Check that the waiting process still has this pid
        fcntl.ioctl(listener, IS_VALID, struct.pack("=Q", number))
        libc = ctypes.CDLL(None, use_errno=True)
        return socket.socket(fileno=_checked(libc.syscall(PIDFD_GETFD, pidfd, descriptor, 0)))
    finally:
        os.close(pidfd)


def _checked(status: int) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return status
