"""A program that runs PostgreSQL's single-user mode as another user: `python -I -S single_user.py UID GID PROGRAM
ARGUMENT…`.

It becomes that user and group (`-` for both keeps its own), can gain no privileges any more, and is replaced by the
program; standard input and output stay. A process of its own: in an agent gRPC has threads, and a fork that changes its
user runs gRPC's handlers in the child.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import NoReturn

PR_SET_NO_NEW_PRIVS = 38


def main(uid: str, gid: str, *argv: str) -> NoReturn:
    """Does not return; OSError when the kernel refuses, and nothing is run then."""
    libc = ctypes.CDLL(None, use_errno=True)
    if uid != "-":
        os.setgroups([])
        os.setresgid(int(gid), int(gid), int(gid))
        os.setresuid(int(uid), int(uid), int(uid))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    os.umask(0o077)
    os.chdir("/")
    os.execv(argv[0], argv)  # noqa: S606 - an argv array, and no shell wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
