"""The changes that a tuning can make: a closed union, each with the data to undo it, and its text for people.

Data flow: `Operation.changes(facts)` -> `Change`s, in the order in which they are made -> `agent.tuning.transaction`
makes them, and undoes them in the reverse order. So a step that must follow the restoring of a file (a reload) stands
*before* the file's change, with an empty apply side; `around` puts a command on both sides.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from typing import Literal, TypeAlias, TypeVar, assert_never

from proveout.core.data_classes import record
from proveout.dsl.operations.facts import ABSENT, FileFact

T = TypeVar("T")
DIFF_LINES_MAX = 200
WITHIN_S = 60.0
"""The time limit of a program."""


@record
class WriteFile:
    """Make a file have this content, mode and owner. `validator` names a program of the agent's policy that must accept
    it first.

    `before` is the content by the facts, for the diff; the agent keeps the original itself, byte by byte with mode,
    owner and xattrs.
    `runs`: argvs of programs that the host will start because of the file; the agent's policy must list them as if
    it started them.
    `sysctls`: kernel parameters that the host will set because of the file; likewise.
    `writes`: paths that the host will write to because of the file; likewise.
    `governs`: of each udev rule that gives devices an owner, a mode or a name, the pairs (key, pattern) that they
    match; likewise.
    `links`: links below /dev that the host will make because of the file; likewise.
    """

    path: str
    content: bytes
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    validator: str = ""
    runs: tuple[tuple[str, ...], ...] = ()
    sysctls: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    governs: tuple[tuple[tuple[str, str], ...], ...] = ()
    links: tuple[str, ...] = ()
    before: FileFact = ABSENT
    kind: Literal["write_file"] = "write_file"

    @property
    def made(self) -> FileFact:
        """The file afterwards."""
        return FileFact(kind="file", content=self.content, mode=self.mode, owner=self.owner, group=self.group)


@record
class SetText:
    """Write an attribute below /proc or /sys. `before` is the value that undo writes; blanks between words do not
    count.

    The file of some attributes lists all choices with the current one in brackets (`always [madvise] never`): the
    operation gives the bare word, a check of the value looks for the brackets.

    Setting one attribute may set another. `part` "undo": the kernel changes this one when another is set, so it is only
    set back, after that one, and only if `only_if` (a path and its text) holds: else it was changed from outside.
    "make": what undoes it is such a change.

    `adjusted`: the kernel may make another number of what it is
    given (as many huge pages as it finds), so until the transaction has ended well one between the two is taken for its
    answer, and set back.
    """

    path: str
    before: str
    after: str
    part: Literal["", "make", "undo"] = ""
    adjusted: bool = False
    only_if: tuple[str, str] | tuple[()] = ()
    kind: Literal["set_text"] = "set_text"


UnitVerb: TypeAlias = Literal["start", "stop", "try-restart", "reload", "enable", "disable"]


@record
class UnitAction:
    """An action on a systemd unit; `undo` restores the state before. One of the two may be "": nothing is done on that
    side."""

    unit: str
    verb: UnitVerb | Literal[""]
    undo: UnitVerb | Literal[""] = ""
    kind: Literal["unit_action"] = "unit_action"


@record
class Command:
    """A program by its argv, without a shell; the agent's policy must list it. Empty on the side where nothing is to be
    run.

    Both sides must be idempotent: after a crash it is unknown whether they ran. `device` is one that it destroys data
    on; without `undo` the data is lost, so it is never undone but reported as kept.

    `of_plan`: the program and its arguments are the plan's own text, so the policy must list them with a reason.
    `lasting`: no program undoes it, which is reported like the loss of data.
    `already`: an exit code other than 0 is a success where the output has one of these texts (it was stopped before).
    `fault`: the operation of a fault that it belongs to; the policy must list that operation, and not the program.
    """

    argv: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    device: str = ""
    of_plan: bool = False
    lasting: bool = False
    already: tuple[str, ...] = ()
    fault: str = ""
    within_s: float = WITHIN_S
    kind: Literal["command"] = "command"


@record
class KeepSpans:
    """Save the data that a program is about to overwrite on a device: `spans` of (offset, length), bytes. Nothing is
    changed by it.

    To undo writes it back, after what undoes the program; but if `probe` (blkid) finds anything on the device by then
    (exit code other than 2), another process has put it there, and it is left alone.
    """

    device: str
    spans: tuple[tuple[int, int], ...]
    probe: tuple[str, ...]
    kind: Literal["keep_spans"] = "keep_spans"


@record
class Statement:
    """A statement in a system of the plan and the one that undoes it; "" where nothing is to be run. Both must be
    idempotent.

    `destructive`: it overwrites what is not the database's own (disks); the policy of the host must allow such steps.
    `devices` are these disks, each by all of its lasting names: the policy must list one of them. `place` is what
    statements stand on one another in: as long as the undoing of one there is left, those made before it are left as
    well. `consents` are the parameters that it sets only with the consent of the host's owner.
    """

    system: str
    text: str = ""
    undo: str = ""
    destructive: bool = False
    devices: tuple[tuple[str, ...], ...] = ()
    place: str = ""
    consents: tuple[str, ...] = ()
    kind: Literal["statement"] = "statement"


ServerVerb: TypeAlias = Literal["kill", "stop", "shut_down", "abort", "promote"]


@record
class ServerAction:
    """An action on the server of a system that this agent has started, and what undoes it.

    `kill`: SIGKILL for all of its processes; `stop`: SIGSTOP; `shut_down`: it disconnects its clients and writes a
    checkpoint; `abort`: it ends at once, and recovers at its start. Undoing starts it on its data at the same address,
    or continues its processes (SIGCONT). `promote`: a standby becomes a primary; the scheduler restores the roles.
    """

    system: str
    verb: ServerVerb
    kind: Literal["server_action"] = "server_action"

    @property
    def undo(self) -> Literal["start", "continue", ""]:
        if self.verb == "promote":
            return ""
        return "continue" if self.verb == "stop" else "start"


@record
class TakeSpace:
    """Take room of a file system with a file of this size, which the host allocates without writing it; undoing removes
    the file.

    `path` must not exist before. `left_bytes` stay free for users other than root. `system` is the one whose data
    directory it lies beside, "" for a folder of the policy.
    """

    path: str
    size_bytes: int
    left_bytes: int
    system: str = ""
    kind: Literal["take_space"] = "take_space"


@record
class BusyCpus:
    """Keep each of these CPUs busy for a share of its time, by child processes that end with the agent."""

    cpus: tuple[int, ...]
    share: float
    kind: Literal["busy_cpus"] = "busy_cpus"


@record
class CopyData:
    """Let the run work on a copy of the data of a system that runs already; undoing puts the original back, and drops
    the copy. `text` says what that is, for people."""

    system: str
    text: str
    kind: Literal["copy_data"] = "copy_data"


Disturbance: TypeAlias = ServerAction | TakeSpace | BusyCpus
Change: TypeAlias = WriteFile | SetText | UnitAction | Command | KeepSpans | Statement | CopyData | Disturbance


def around(found: Iterable[T], undo: Change, made: Change) -> tuple[T | Change, ...]:
    """The changes with `made` after them when they are made, and `undo` after them when they are undone; nothing around
    nothing."""
    every = tuple(found)
    return (undo, *every, made) if every else ()


def only_undoes(change: Change) -> bool:
    """Whether nothing is done when it is made: it follows the undoing of the changes that come after it."""
    match change:
        case SetText(part="undo") | KeepSpans() | UnitAction(verb="") | Command(argv=()) | Statement(text=""):
            return True
        case _:
            return False


def diff(change: Change) -> tuple[str, ...]:  # noqa: PLR0911 - one per kind of change
    match change:
        case WriteFile():
            lines = _file_diff(change)
            return (*lines, *(f"  makes the host run {shlex.join(argv)}" for argv in change.runs))
        case SetText(part="undo"):
            return (f"to undo: {change.path}: {change.before}",)
        case SetText():
            return (f"{change.path}: {change.before} -> {change.after}",)
        case UnitAction():
            return _sided(f"systemctl {change.verb} {change.unit}", f"systemctl {change.undo} {change.unit}", change)
        case Command():
            return _sided(shlex.join(change.argv), shlex.join(change.undo), change)
        case KeepSpans():
            kib = sum(length for _, length in change.spans) / 1024
            return (f"to undo: the {kib:g} KiB that this takes at both ends of {change.device}, as they were",)
        case Statement():
            lines = _sided(f"{change.system}: {change.text}", f"{change.system}: {change.undo}", change)
            return (*lines, *(f"  destroys the data on {names[0]}" for names in change.devices if names))
        case ServerAction():
            line = f"{change.verb.replace('_', ' ')} the server of {change.system}"
            return (line, f"  to undo: {change.undo} it") if change.undo else (line,)
        case TakeSpace():
            return (f"a file of {change.size_bytes / (1 << 20):,.0f} MiB: {change.path}", "  to undo: remove it")
        case CopyData():
            return (change.text, "  to undo: drop the copy, and put the original back")
        case BusyCpus():
            named = ", ".join(map(str, change.cpus))
            return (f"{change.share:.0%} of the time of CPU {named}", "  to undo: end the processes")
        case _:
            assert_never(change)


def _sided(apply: str, undo: str, change: UnitAction | Command | Statement) -> tuple[str, ...]:
    does = not only_undoes(change)
    lines = (apply,) if does else ()
    return (*lines, f"{'  ' if does else ''}to undo: {undo}") if change.undo else lines


def _file_diff(change: WriteFile) -> tuple[str, ...]:
    before, access = change.before, _access(change.made)
    old = _lines(before.content) if before.exists else []
    was = f"{_access(before)} -> " if before.exists else "new, "
    head = "" if was == f"{access} -> " else f" {was}{access}"
    body = list(difflib.unified_diff(old, _lines(change.content), lineterm="", n=1))[2:]
    if len(body) > DIFF_LINES_MAX:
        body = [*body[:DIFF_LINES_MAX], f"… and {len(body) - DIFF_LINES_MAX} lines more"]
    checked = (f"  checked by {change.validator} first",) if change.validator else ()
    return (f"{change.path}:{head}", *(f"  {line}" for line in body), *checked)


def _access(file: FileFact) -> str:
    return f"{file.mode:04o} {file.owner}:{file.group}"


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", errors="backslashreplace").splitlines()
