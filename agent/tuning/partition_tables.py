"""The first and last bytes of a disk, which a new partition table overwrites: read them before, and write them back.

Blocking; TaskFault.

Flow: `KeepSpans` -> `kept` before the table is made -> the undo journal -> `put_back` after the table has been removed.
A device is opened by the name that the host's policy lists, and exclusively: a device that is mounted or in use is not
written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from proveout.agent.errors import TaskFault

Spans = Sequence[tuple[int, int]]
"""(offset, length), bytes."""
SIZE_MAX_BYTES = 1024 * 1024


def kept(root: Path, device: str, spans: Spans) -> bytes:
    """The bytes of the spans, one after the other."""
    if sum(length for _, length in spans) > SIZE_MAX_BYTES:
        raise TaskFault(
            "refused",
            f"the change overwrites more than {SIZE_MAX_BYTES >> 10} KiB of {device}, the limit of the undo journal",
        )
    try:
        descriptor = os.open(_real(root, device), os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = [os.pread(descriptor, length, offset) for offset, length in spans]
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TaskFault("refused", f"cannot read {device}: {error.strerror}") from error
    if [len(one) for one in found] != [length for _, length in spans]:
        raise TaskFault("refused", f"{device} is shorter than its reported size")
    return b"".join(found)


def put_back(root: Path, device: str, spans: Spans, content: bytes) -> None:
    """Write the bytes from `kept` back; durable on return."""
    try:
        descriptor = os.open(_real(root, device), os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
        try:
            at = 0
            for offset, length in spans:
                os.pwrite(descriptor, content[at : at + length], offset)
                at += length
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TaskFault("refused", f"cannot write {device}: {error.strerror}") from error


def _real(root: Path, device: str) -> str:
    real, folder = os.path.realpath(root / device.lstrip("/")), os.path.realpath(root / "dev")
    if not real.startswith(f"{folder}/"):
        raise TaskFault("refused", f"{device} is not a link to a device in /dev")
    return real
