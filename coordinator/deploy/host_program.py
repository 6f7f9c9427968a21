"""The part of `proveout deploy` that runs on a host: modules of the standard library alone, sent over SSH, as root.

Requests are lines of JSON on standard input (`{"do": "facts"}`); one with `bytes` is followed by that many bytes. Each
has one answer, a line of JSON after `MARK` on standard output: `{"ok": …}` or `{"error": …, "way_out": …}`.

A change of the host is a transaction: `begin` -> `file`, `install`, `enrol`, `service` -> `commit`. Each thing that is
made is noted in `CHANGE` before it is made. When standard input ends before `commit`, the program that runs is killed
and all of it is undone: the coordinator was interrupted or killed, or the connection broke. When this process is
killed, `CHANGE` stays, and the next `begin` or `remove` undoes it first. `commit` turns it into `DEPLOYMENT`, the list
of what `remove` takes away.

    /opt/proveout/releases/ID    an environment with proveout; `current` is a link to the one in use
    /etc/proveout/pki            keys and certificates       /etc/proveout/policy.yaml    the owner's policy
    /var/lib/proveout            journals of the agent, with undo journals
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import select
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from proveout.coordinator.deploy.host_state import (
    BLOCK,
    CHANGE,
    CURRENT,
    DEPLOYMENT,
    ENVIRONMENT,
    ETC,
    EXAMPLE,
    FORMAT,
    HOME,
    INCOMING,
    LOCK,
    PKI,
    POLICY,
    RELEASES,
    REPLACED,
    STATE,
    UNIT,
    USER,
    Refused,
    check_places,
    delete,
    existing,
    forget,
    give,
    has_systemd,
    has_user,
    hash_of,
    is_running,
    kept,
    link,
    linked,
    outstanding,
    owner,
    read_record,
    read_text,
    read_theirs,
    run,
    start,
    stop,
    take_away,
    unreachable,
    write,
)

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
            "running": bool(record) and is_running(record["mode"]),
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
        self._undo_left()
        record = read_record(DEPLOYMENT)
        if foreign := self._foreign(record):
            raise Refused(f"{foreign[0]} is not of a deployment")
        before: dict[str, Any] = {
            "release": linked(),
            "unit": read_text(UNIT),
            "example": read_text(EXAMPLE),
            "record": record,
        }
        before["running"] = bool(record) and is_running(record["mode"])
        self.change = {"format": FORMAT, "release": release, "made": [], "before": before}
        if not HOME.exists():
            HOME.mkdir(mode=0o755)
            self._note("path", str(HOME))
        elif not any(HOME.iterdir()):
            self._note("content", str(HOME), kept(HOME))
        write(CHANGE, json.dumps(self.change))
        self._make(RELEASES)
        return {}

    def _take_lock(self) -> None:
        if self._lock >= 0:
            return
        self._lock = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused("another deployment changes this host", "Wait for its end.") from error

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
        (pip,) = INCOMING.glob("pip-*.whl")
        options = ["--isolated", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet"]
        wanted: list[str | Path] = [
            "--no-index",
            "--find-links",
            INCOMING,
            "--require-hashes",
            "--no-deps",
            "--no-compile",
        ]
        python = release / "bin/python"
        self._run(python, "-I", pip / "pip", "install", *options, *wanted, "-r", INCOMING / "requirements.txt")
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
            if text and read_text(path) != text:
                if not path.exists():
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
        delete(REPLACED)
        delete(INCOMING)
        for release in RELEASES.iterdir():
            if release.name != linked():
                delete(release)
        return {}

    def undo(self) -> None:
        """Undo the change that has not been committed."""
        self.change = {}
        self._undo_left()

    def _undo_left(self) -> None:
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
        CHANGE.unlink(missing_ok=True)

    def remove(self) -> dict[str, Any]:
        """Stop the agent and remove everything that deployments have made."""
        self._take_lock()
        self._undo_left()
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
        """Release the lock."""
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
    requests: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(host, name) for name in ("facts", "begin", "install", "enrol", "service", "commit", "remove")
    }
    try:
        while line := reader.readline():
            request = json.loads(line)
            do, size = request.pop("do"), request.pop("bytes", None)
            try:
                more: dict[str, Any] = {} if size is None else {"content": reader, "size": size}
                answer: dict[str, Any] = {"ok": (host.file if do == "file" else requests[do])(**request, **more)}
            except Refused as error:
                answer = {"error": error.what, "way_out": error.way_out}
            except OSError as error:
                answer = {"error": f"{error.filename or 'a file'}: {error.strerror}", "way_out": ""}
            with contextlib.suppress(OSError):  # the connection is gone; the end of the input comes next
                writer.write(f"{MARK}{json.dumps(answer)}\n".encode())
                writer.flush()
    except EOFError:
        pass
    finally:
        if host.change:
            problem = _undone(host)
            with contextlib.suppress(OSError):
                writer.write(f"{MARK}{json.dumps({'undone': problem})}\n".encode())
                writer.flush()
        host.close()


def _undone(host: Host) -> str:
    """Undo; why it could not be, or ""."""
    try:
        host.undo()
    except (OSError, Refused) as error:
        return str(error)
    return ""


def main() -> None:
    """Serve the connection. Signals are ignored: its end is what ends the program, in order."""
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    assert isinstance(sys.stdin.buffer, BufferedReader)  # noqa: S101 - it has a descriptor
    serve(sys.stdin.buffer, sys.stdout.buffer)
