"""The parts of `host_program`: programs, files and the agent's process on a host. The standard library only.

The agent's user owns `PKI` and `STATE`, and can be changing them: they are given away and removed by `untrusted_trees`,
and read by `read_theirs`. All other places are in folders that only root can write (`check_places`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proveout.core.path_trust import exposure_above, exposure_of
from proveout.core.untrusted_trees import empty, give_away, read, remove

FORMAT = 1
HOME = Path("/opt/proveout")
RELEASES, CURRENT, INCOMING = HOME / "releases", HOME / "current", HOME / "incoming"
DEPLOYMENT, CHANGE = HOME / "deployment.json", HOME / "change.json"
PID, LOG = HOME / "agent.pid", HOME / "agent.log"
ETC, STATE = Path("/etc/proveout"), Path("/var/lib/proveout")
PKI, POLICY, EXAMPLE = ETC / "pki", ETC / "policy.yaml", ETC / "policy.yaml.example"
REPLACED = ETC / "pki.replaced"
UNIT, SERVICE = Path("/etc/systemd/system/proveout-agent.service"), "proveout-agent.service"
LOCK = Path("/run/proveout-deploy.lock")
USER = "proveout"
UNDO_JOURNAL = "undo.sqlite"
BLOCK = 1 << 18
END_S, START_S, PROGRAM_S, DIAL_S, POLL_S = 90.0, 60.0, 900.0, 5.0, 0.1
ENVIRONMENT = {
    "PATH": f"{CURRENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
}


class Refused(Exception):
    """A request cannot be done; `way_out` says what to do."""

    def __init__(self, what: str, way_out: str = "") -> None:
        self.what, self.way_out = what, way_out
        super().__init__(what)


def stays() -> bool:
    """The connection of what must be done whether there is one or not."""
    return False


def run(*argv: str | Path, environment: Mapping[str, str] = ENVIRONMENT, is_cut: Callable[[], bool] = stays) -> str:
    """Run a program; its output. Refused with its last words when it fails; EOFError when the connection ends
    meanwhile, after it and its children are killed."""
    ends_s = time.monotonic() + PROGRAM_S
    try:
        with subprocess.Popen(
            argv, env=dict(environment), cwd="/", text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        ) as running:  # fmt: skip
            while True:
                try:
                    output, errors = running.communicate(timeout=POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    cut = is_cut()
                    if cut or time.monotonic() > ends_s:
                        os.killpg(running.pid, signal.SIGKILL)
                    if cut:
                        raise EOFError from None
    except OSError as error:
        raise Refused(f"{argv[0]} cannot be run: {error}") from error
    if running.returncode:
        words = (errors.strip() or output.strip())[-600:]
        raise Refused(f"{Path(argv[0]).name} failed with exit code {running.returncode}: {words}")
    return output


# ---- files ---------------------------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """The text of a file; "" when there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def read_theirs(path: Path) -> str:
    """The text of a file in a folder that the agent's user owns; "" when there is none, or something else."""
    try:
        return read(path, BLOCK).decode(errors="replace")
    except OSError:
        return ""


def read_record(path: Path) -> dict[str, Any]:
    """A record; {} when there is none."""
    text = read_text(path)
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        raise Refused(
            f"{path} cannot be read: {error}", f"Remove {HOME} when no agent of this host needs it."
        ) from error
    if found and found.get("format") != FORMAT:
        raise Refused(f"{path} is of another release of proveout", "Use that release's `deploy --remove` first.")
    return dict(found)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file as a whole, durably."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)


def link(release: str) -> None:
    """Let `current` lead to a release, in one step."""
    beside = HOME / ".current.new"
    beside.unlink(missing_ok=True)
    beside.symlink_to(Path("releases") / release)
    beside.replace(CURRENT)


def linked() -> str:
    """The release that `current` leads to; "" when there is none."""
    try:
        return CURRENT.readlink().name
    except OSError:
        return ""


def delete(path: Path) -> None:
    """Remove a file, a link or a folder; nothing when it is not there."""
    if path.is_dir() and not path.is_symlink():
        remove(path)
    else:
        path.unlink(missing_ok=True)


def check_places() -> None:
    """Refused when a user other than root can put something else at a place of `deploy`, or owns what is there; the
    agent's user may own `PKI` and `STATE`."""
    try:
        theirs = {0, pwd.getpwnam(USER).pw_uid}
    except KeyError:
        theirs = {0}
    for place in (HOME, ETC, STATE, UNIT, PKI):
        exposure = exposure_above(place)
        if exposure is None and os.path.lexists(place):
            is_theirs = place in (STATE, PKI) and place.stat().st_uid in theirs
            exposure = None if is_theirs else exposure_of(place)
        if exposure is not None:
            raise Refused(f"other users can replace {place}: {exposure.what}", exposure.way_out)


def hash_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal; "" when there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


# ---- the agent -----------------------------------------------------------------------------------------------------


def has_systemd() -> bool:
    """Whether systemd runs this host. Source: sd_booted(3)."""
    return Path("/run/systemd/system").is_dir()


def has_user() -> bool:
    """Whether the user of agents exists."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True


def born(pid: int) -> str:
    """The start of a process in clock ticks since the boot; "" when it has ended. Source: proc_pid_stat(5)."""
    fields = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def background() -> int:
    """The process of an agent without systemd; 0 when none runs."""
    pid, _, start = read_text(PID).partition(" ")
    return int(pid) if pid.isdigit() and start and born(int(pid)) == start.strip() else 0


def is_running(mode: str) -> bool:
    """Whether the agent runs, as a service or in the background."""
    if mode == "systemd":
        asked = subprocess.run(
            ["systemctl", "is-active", "--quiet", SERVICE], env=ENVIRONMENT, cwd="/", check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return asked.returncode == 0
    return background() > 0


def owner() -> str:
    """The user that the agent runs as: root when the host has a policy."""
    return "root" if POLICY.exists() else USER


def start(mode: str, arguments: list[str], is_cut: Callable[[], bool] = stays) -> None:
    """Start the agent, and wait until it has not ended at once. EOFError when the connection ends meanwhile."""
    if mode == "systemd":
        run("systemctl", "enable", SERVICE)
        run("systemctl", "restart", SERVICE)
    elif mode == "process":
        user = pwd.getpwnam(owner())
        with LOG.open("ab") as log:
            started = subprocess.Popen(
                [str(CURRENT / "bin/proveout"), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env={**ENVIRONMENT, "HOME": str(STATE)}, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                start_new_session=True, umask=0o077,
            )  # fmt: skip
        write(PID, f"{started.pid} {born(started.pid)}")
        until_s = time.monotonic() + START_S
        while "listens at" not in read_text(LOG)[-4000:]:
            if is_cut():
                raise EOFError
            if started.poll() is not None:
                raise Refused(f"the agent ended at once: {read_text(LOG).strip()[-600:]}")
            if time.monotonic() > until_s:
                raise Refused(f"the agent does not listen after {START_S:.0f} s: {read_text(LOG).strip()[-600:]}")
            time.sleep(POLL_S)


def stop(mode: str) -> None:
    """Stop the agent and wait for its end: it reverts its changes of the host meanwhile."""
    if mode == "systemd":
        with contextlib.suppress(Refused):
            run("systemctl", "disable", "--now", SERVICE)
    pid = background()
    if pid:
        os.kill(pid, signal.SIGTERM)
        until_s = time.monotonic() + END_S
        while background() == pid and time.monotonic() < until_s:
            time.sleep(POLL_S)
        if background() == pid:
            os.kill(pid, signal.SIGKILL)
    PID.unlink(missing_ok=True)


def outstanding() -> list[str]:
    """Undo journals: changes of the host that no agent has undone."""
    return [f"{folder}/{UNDO_JOURNAL}" for folder, _, files, _ in os.fwalk(STATE) if UNDO_JOURNAL in files]


def forget() -> None:
    """Remove files of a deployment that are not in its list. Its record goes with its folder."""
    for path in (CURRENT, PID, LOG, REPLACED):
        delete(path)


def kept(folder: Path) -> str:
    """Owner, group and mode of a folder, as `take_away` restores them."""
    about = folder.stat()
    return f"{about.st_uid} {about.st_gid} {about.st_mode & 0o7777}"


def take_away(made: list[list[str]]) -> None:
    """Remove what was made, the newest first; the folder with the records last, when the rest is removed.

    Kinds: `path` (a file or folder with all in it), `file` (as it was written), `folder` (when it is empty), `content`
    (of a folder that was there), `replaced`, `user`.
    """
    problems: list[Exception] = []
    newest_first = made[::-1]
    for kind, what, *before in sorted(newest_first, key=lambda one: one[1] == str(HOME)):
        if problems and what == str(HOME):
            break
        try:
            _take(kind, Path(what), *before)
        except (OSError, Refused) as error:  # the rest is taken away in any case
            problems.append(error)
    if problems:
        raise problems[0]


def _take(kind: str, what: Path, before: str = "") -> None:
    if kind == "path" or (kind == "file" and hash_of(what) == before):
        delete(what)
    elif kind == "folder":
        with contextlib.suppress(OSError):  # files of others are in it
            what.rmdir()
    elif kind == "content":
        empty(what)
        user, group, mode = map(int, before.split())
        os.chown(what, user, group)
        what.chmod(mode)
    elif kind == "replaced" and REPLACED.exists():
        delete(what)
        REPLACED.rename(what)
    elif kind == "user" and has_user():
        end_processes(pwd.getpwnam(str(what)).pw_uid)
        run("userdel", what)


def end_processes(uid: int) -> None:
    """Kill the processes of a user that sees the same root folder (containers use the same numbers), until none is
    left: `userdel` refuses while there are."""
    until_s = time.monotonic() + END_S
    while (found := list(_processes(uid))) and time.monotonic() < until_s:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none starts another
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        time.sleep(POLL_S / 10)


def _processes(uid: int) -> Iterator[int]:
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if place.stat().st_uid == uid and born(int(place.name)) and (place / "root").samefile("/"):
                yield int(place.name)


def give(folder: Path, user: str) -> list[str]:
    """Give a folder with its content to a user, when it is another's; the paths in it that are not given."""
    entry = pwd.getpwnam(user)
    if folder.stat().st_uid == entry.pw_uid:
        return []
    return give_away(folder.resolve(), entry.pw_uid, entry.pw_gid, (pwd.getpwnam(USER).pw_uid,))


def unreachable(address: str) -> str:
    """The reason why nothing answers at `name:port`; "" when something does."""
    name, _, port = address.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), DIAL_S).close()
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def existing(path: Path) -> Path:
    """The nearest folder that there is."""
    return next(place for place in (path, *path.parents) if place.is_dir())
