"""A program that runs PostgreSQL's single-user mode as another user: `python -I -S single_user.py UID GID PROGRAM
ARGUMENT…`.

It becomes that user and group (`-` for both keeps its own), can gain no privileges any more, and is replaced by the
program; standard input and output stay. A process of its own: in an agent gRPC has threads, and a fork that changes its
user runs gRPC's handlers in the child.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING or __name__ != "__main__":
    from proveout.core import linux
else:  # run from its file, without site-packages
    _HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up time
    _PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
    sys.path.append(f"{_PACKAGE}/core")
    import linux


def main(uid: str, gid: str, *argv: str) -> NoReturn:
    """Does not return; OSError when the kernel refuses, and nothing is run then."""
    if uid != "-":
        os.setgroups([])
        os.setresgid(int(gid), int(gid), int(gid))
        os.setresuid(int(uid), int(uid), int(uid))
    linux.set_no_new_privileges()
    os.umask(0o077)
    os.chdir("/")
    os.execv(argv[0], argv)  # noqa: S606 - an argv array, and no shell wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
