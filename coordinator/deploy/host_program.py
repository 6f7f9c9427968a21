"""The part of `proveout deploy` that runs on a host: modules of the standard library alone, sent over SSH, as root.

Requests are lines of JSON on standard input (`{"do": "facts"}`); each is answered by one line.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from proveout.core.path_trust import empty, exposure_above, exposure_of, give_away, read, remove

# The agent's user owns `PKI` and `STATE`, and can be changing them: they are given away and removed by `path_trust`,
# and read by `read_theirs`. All other places are in folders that only root can write (`check_places`).

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
JOURNAL_PARTS = 20
"""Parts of a folder's path, of which an undo journal's has half."""
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
    """The release that `current` leads to; "" when there is none, or its program is gone."""
    try:
        return CURRENT.readlink().name if (CURRENT / "bin/proveout").exists() else ""
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
            begin = log.tell()  # earlier agents wrote the text up to here
            started = subprocess.Popen(
                [str(CURRENT / "bin/proveout"), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env={**ENVIRONMENT, "HOME": str(STATE)}, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                start_new_session=True, umask=0o077,
            )  # fmt: skip
        write(PID, f"{started.pid} {born(started.pid)}")
        until_s = time.monotonic() + START_S
        while "listens at" not in logged(begin):
            if is_cut():
                raise EOFError
            if started.poll() is not None:
                raise Refused(f"the agent ended at once: {logged(begin)[-600:]}")
            if time.monotonic() > until_s:
                raise Refused(f"the agent does not listen after {START_S:.0f} s: {logged(begin)[-600:]}")
            time.sleep(POLL_S)


def logged(begin: int) -> str:
    """The text in the agent's log from an offset on, the first `BLOCK` bytes of it."""
    with LOG.open("rb") as stream:
        stream.seek(begin)
        return stream.read(BLOCK).decode(errors="replace").strip()


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
    found: list[str] = []
    for folder, below, files, _ in os.fwalk(STATE) if STATE.is_dir() else ():
        found += [f"{folder}/{UNDO_JOURNAL}"] if UNDO_JOURNAL in files else []
        if len(Path(folder).parts) >= JOURNAL_PARTS:  # the agent's user can make folders of any depth
            below.clear()
    return found


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


# Requests are lines of JSON on standard input (`{"do": "facts"}`); one with `bytes` is followed by that many bytes.
# Each has one answer, a line of JSON after `MARK` on standard output: `{"ok": …}` or `{"error": …, "way_out": …}`.
#
# A change of the host is a transaction: `begin` -> `file`, `install`, `enrol`, `service` -> `commit`. Each thing that
# is made is noted in `CHANGE` before it is made. When standard input ends before `commit`, the program that runs is
# killed and all of it is undone: the coordinator was interrupted or killed, or the connection broke. When this process
# is killed, `CHANGE` stays, and the next `begin` or `remove` undoes it first. `commit` turns it into `DEPLOYMENT`, the
# list of what `remove` takes away.
#
#     /opt/proveout/releases/ID    an environment with proveout; `current` is a link to the one in use
#     /etc/proveout/pki            keys and certificates       /etc/proveout/policy.yaml    the owner's policy
#     /var/lib/proveout            journals of the agent, with undo journals

MARK = "proveout-deploy "


class Host:
    """The state of one connection: the change that is being made, {} for none."""

    def __init__(self, reader: BufferedReader) -> None:
        self.change: dict[str, Any] = {}
        self._reader, self._lock = reader, -1

    def _run(self, *argv: str | Path, environment: Mapping[str, str] = ENVIRONMENT) -> str:
        """Run a program that ends with the connection."""
        return run(*argv, environment=environment, is_cut=self._is_cut)

    def _is_cut(self) -> bool:
        """Whether the connection has ended. The next request comes after the answer, so there is nothing else to
        read."""
        return bool(select.select([self._reader], [], [], 0)[0]) and not self._reader.peek(1)

    def facts(self, authority: str) -> dict[str, Any]:
        """The facts of this host, and whether it reaches the authority; changes nothing."""
        check_places()
        record = read_record(DEPLOYMENT)
        base = Path(sys.base_prefix).resolve()
        running = bool(record) and is_running(record["mode"])
        free = {str(place): shutil.disk_usage(existing(place)).free for place in (HOME, STATE)}
        return {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "libc": list(platform.libc_ver()),
            "closed": next((str(path) for path in (base, *base.parents) if not path.stat().st_mode & 0o001), ""),
            "systemd": has_systemd(),
            "free": free,
            "deployment": record,
            "interrupted": bool(read_record(CHANGE)),
            "foreign": self._foreign(record),
            "release": linked(),
            "running": running,
            # an agent has such a folder during each session, and removes those of a killed one when it starts
            "busy": running and any(STATE.glob("work-*")),
            "policy": hash_of(POLICY),
            "unit": hash_of(UNIT),
            "ca": read_theirs(PKI / "ca.pem"),
            "certificate": read_theirs(PKI / "agent.pem"),
            "authority": read_theirs(PKI / "authority").strip(),
            "keys_of_root": PKI.exists() and PKI.stat().st_uid == 0,
            "authority_problem": unreachable(authority) if authority else "",
        }

    def _foreign(self, record: Mapping[str, Any]) -> list[str]:
        """Places that `deploy` uses and that something else has made."""
        if record or read_record(CHANGE):
            return []
        folders = (place for place in (HOME, PKI, STATE) if place.is_dir() and any(place.iterdir()))
        return [str(place) for place in (*folders, UNIT) if place.exists()]

    def begin(self, release: str) -> dict[str, Any]:
        """Lock the host, undo what a killed deployment left, and note the state before."""
        self._take_lock()
        os.umask(0o022)
        self.undo()
        record = read_record(DEPLOYMENT)
        if foreign := self._foreign(record):
            raise Refused(f"{foreign[0]} is not of a deployment")
        before = {
            "release": linked(),
            "unit": read_text(UNIT),
            "example": read_text(EXAMPLE),
            "record": record,
            "running": bool(record and linked()) and is_running(record["mode"]),
        }
        self.change = {"format": FORMAT, "release": release, "made": [], "before": before}
        if not HOME.exists():
            HOME.mkdir(mode=0o755)
            try:
                self._note("path", str(HOME))
            except OSError:  # nothing else says that it is to be removed
                delete(HOME)
                raise
        elif not any(HOME.iterdir()):
            self._note("content", str(HOME), kept(HOME))
        write(CHANGE, json.dumps(self.change))
        self._make(RELEASES)
        return {}

    def _take_lock(self) -> None:
        if self._lock >= 0:
            return
        lock = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock), LOCK.stat()):  # its holder has just removed it
                raise FileNotFoundError
        except OSError as error:
            os.close(lock)
            raise Refused("another deployment changes this host", "Wait for its end.") from error
        self._lock = lock

    def _note(self, *what: str) -> None:
        """Note a thing before it is made: its kind, its name."""
        self.change["made"].append(list(what))
        write(CHANGE, json.dumps(self.change))

    def _make(self, folder: Path, mode: int = 0o755) -> None:
        """Make a folder; one that is there and empty is used, and emptied again."""
        if not folder.exists():
            self._note("path", str(folder))
            folder.mkdir(mode=mode)
        elif not any(folder.iterdir()):
            self._note("content", str(folder), kept(folder))

    def _make_etc(self) -> None:
        """Make /etc/proveout, which may hold files of the host's owner."""
        if not ETC.exists():
            self._note("folder", str(ETC))
            ETC.mkdir(mode=0o755)

    def file(self, name: str, sha256: str, content: BinaryIO, size: int) -> dict[str, Any]:
        """Take a file of the wheelhouse, and check its hash. Reads all of it in every case."""
        left, digest, problem = size, hashlib.sha256(), None
        try:
            if name != Path(name).name or not self.change:
                raise Refused(f"{name!r} is not the name of a file")
            self._make(INCOMING, 0o700)
            with (INCOMING / name).open("wb") as stream:
                while left and (block := content.read(min(left, BLOCK))):
                    left -= len(block)
                    digest.update(block)
                    stream.write(block)
        except (OSError, Refused) as error:
            problem = error
        while left and (block := content.read(min(left, BLOCK))):
            left -= len(block)
        if left:
            raise EOFError
        if problem is not None:
            raise problem
        if digest.hexdigest() != sha256:
            raise Refused(f"{name} arrived with another hash", "Deploy again.")
        return {}

    def install(self, requirements: str) -> dict[str, Any]:
        """Make the environment of the release from the files that have arrived."""
        release = RELEASES / self.change["release"]
        self._note("path", str(release))
        delete(release)  # of a deployment that was killed
        self._run(sys.executable, "-I", "-m", "venv", "--without-pip", release)
        write(INCOMING / "requirements.txt", requirements)
        pip = next(INCOMING.glob("pip-*.whl"))
        options = ["--isolated", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet"]
        options += ["--no-index", "--require-hashes", "--no-deps", "--no-compile", "--find-links", str(INCOMING)]
        python = release / "bin/python"
        self._run(python, "-I", pip / "pip", "install", *options, "-r", INCOMING / "requirements.txt")
        self._run(python, "-I", "-m", "compileall", "-q", "-j", "0", *release.glob("lib/python*/site-packages"))
        said = self._run(release / "bin/proveout", "--version")
        delete(INCOMING)
        return {"said": said.strip()}

    def enrol(self, authority: str, ca_hash: str, token: str) -> dict[str, Any]:
        """Make keys and have them certified. Keys of before are kept until `commit`."""
        self._make_etc()
        self._make(STATE, 0o700)
        if PKI.exists():
            self._note("replaced", str(PKI))
            delete(REPLACED)
            PKI.rename(REPLACED)
        self._note("path", str(PKI))
        environment = {**ENVIRONMENT, "PROVEOUT_ENROL_TOKEN": token}
        argv: list[str | Path] = ["pki", "enrol", authority, "--ca-hash", ca_hash, "--pki", PKI]
        program = RELEASES / (self.change["release"] or linked()) / "bin/proveout"
        return {"said": self._run(program, *argv, environment=environment).strip()}

    def service(self, name: str, listen: str, mode: str, policy: str, example: str) -> dict[str, Any]:
        """Write the policy and its template, make the user and the unit, and start the agent of the release."""
        change, old = self.change, self.change["before"]["record"]
        if old:
            stop(old["mode"])
        if change["release"]:
            link(change["release"])
        self._make_etc()
        self._make(STATE, 0o700)
        for path, text in ((POLICY, policy), (EXAMPLE, example)):
            is_ours = ["file", str(path), hash_of(path)] in old.get("made", [])
            if text and read_text(path) != text and (is_ours or not path.exists()):
                self._note("file", str(path), hashlib.sha256(text.encode()).hexdigest())
                write(path, text)
        if not has_user():
            self._note("user", USER)
            shell = next((one for one in ("/usr/sbin/nologin", "/sbin/nologin") if Path(one).exists()), "/bin/false")
            run("useradd", "--system", "--home-dir", STATE, "--no-create-home", "--shell", shell, USER)
        was_roots = STATE.stat().st_uid == 0
        for folder in (PKI, STATE):
            if left := give(folder, owner()):
                raise Refused(
                    f"{left[0]} belongs to another user, or has several names", "Find out whose it is, and remove it."
                )
        if owner() == "root" and not was_roots and (left := outstanding()):
            raise Refused(
                f"{left[0]} lists changes of an agent that was not root, and root would undo them",
                "Remove it, when nothing in it is to be undone.",
            )
        arguments = ["agent", "--listen", listen, "--pki", str(PKI), "--state-dir", str(STATE), "--name", name]
        program = str(CURRENT / "bin/proveout")
        if mode == "systemd":
            if not UNIT.exists():
                self._note("path", str(UNIT))
            write(UNIT, run(program, *arguments, "--print-unit"))
            run("systemctl", "daemon-reload")
        elif UNIT.exists():
            UNIT.unlink()
        settings = {"name": name, "listen": listen, "mode": mode, "arguments": arguments}
        change["settings"] = settings
        write(CHANGE, json.dumps(change))
        start(mode, arguments, self._is_cut)
        return {"start": " ".join([program, *arguments]), "user": owner()}

    def commit(self) -> dict[str, Any]:
        """Make the change permanent, and remove what it has replaced."""
        change, before = self.change, self.change["before"]
        made = [one for one in [*before["record"].get("made", []), *change["made"]] if _stays(one)]
        made = [one for index, one in enumerate(made) if one not in made[:index]]
        record = {"format": FORMAT, "made": made, "release": linked(), "policy": hash_of(POLICY), "unit": hash_of(UNIT)}
        write(DEPLOYMENT, json.dumps({**record, **change["settings"]}))
        CHANGE.unlink()
        self.change = {}
        for path in (REPLACED, INCOMING, *(one for one in RELEASES.iterdir() if one.name != linked())):
            with contextlib.suppress(OSError):  # it is deployed, and the next deployment removes what is left
                delete(path)
        return {}

    def undo(self) -> None:
        """Undo the change that has not been committed, of this connection or of one that was killed."""
        left = read_record(CHANGE)
        if not left:
            return
        before, settings = left["before"], left.get("settings", {})
        record = before["record"]
        touched = bool(settings) or linked() != before["release"]
        if touched:
            stop(settings.get("mode") or record.get("mode", "process"))
        if before["release"] and linked() != before["release"]:
            link(before["release"])
        for path, text in ((UNIT, before["unit"]), (EXAMPLE, before["example"])):
            if text and text != read_text(path):
                write(path, text)
        if not record:
            forget()
        take_away(left["made"])
        for folder in (PKI, STATE):
            if record and folder.exists():
                give(folder, owner())  # what is left was not the agent's
        if touched and has_systemd():
            run("systemctl", "daemon-reload")
        if before["running"] and not is_running(record["mode"]):
            start(record["mode"], record["arguments"])
        if record:  # `commit` may have been killed between the two
            write(DEPLOYMENT, json.dumps(record))
        CHANGE.unlink(missing_ok=True)

    def remove(self) -> dict[str, Any]:
        """Stop the agent and remove everything that deployments have made."""
        self._take_lock()
        self.undo()
        record = read_record(DEPLOYMENT)
        if not record:
            return {"removed": []}
        stop(record["mode"])
        if left := outstanding():
            start(record["mode"], record["arguments"])
            raise Refused(
                f"the agent has changes of this host that are not undone: {left[0]}",
                "See its log; it undoes them when it can, or `proveout agent` says what is left.",
            )
        forget()
        take_away(record["made"])
        if record["mode"] == "systemd":
            run("systemctl", "daemon-reload")
        return {"removed": [one[1] for one in record["made"]]}

    def close(self) -> None:
        if self._lock >= 0:
            LOCK.unlink(missing_ok=True)
            os.close(self._lock)


def _stays(made: list[str]) -> bool:
    """Whether a thing is still there after `commit`, and not part of a folder that is removed as a whole."""
    passing = Path(made[1]) == INCOMING or RELEASES in Path(made[1]).parents
    return made[0] in ("user", "content", "file", "folder") or (made[0] == "path" and not passing)


def serve(reader: BufferedReader, writer: BinaryIO) -> None:
    """Answer requests until the end of the input; then undo a change that was not committed."""
    host = Host(reader)

    def say(answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the connection is gone; the end of the input comes next
            writer.write(f"{MARK}{json.dumps(answer)}\n".encode())
            writer.flush()

    requests: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(host, name)
        for name in ("facts", "begin", "file", "install", "enrol", "service", "commit", "remove")
    }
    try:
        while line := reader.readline():
            request = json.loads(line)
            do, size = request.pop("do"), request.pop("bytes", None)
            try:
                more: dict[str, Any] = {} if size is None else {"content": reader, "size": size}
                say({"ok": requests[do](**request, **more)})
            except Refused as error:
                say({"error": error.what, "way_out": error.way_out})
            except OSError as error:
                say({"error": f"{error.filename or 'a file'}: {error.strerror}", "way_out": ""})
    except EOFError:
        pass
    finally:
        if host.change:
            problem = ""
            try:
                host.undo()
            except (OSError, Refused) as error:
                problem = str(error)
            say({"undone": problem})
        host.close()


def main() -> None:
    """Serve the connection. Signals are ignored: its end is what ends the program, in order."""
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    assert isinstance(sys.stdin.buffer, BufferedReader)  # noqa: S101 - it has a descriptor
    serve(sys.stdin.buffer, sys.stdout.buffer)
