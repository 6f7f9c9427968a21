"""Run a plan in a lab of network namespaces on one machine: `python docs/lab/lab.py run [options of proveout run]`
(`make lab`).

Data flow: remove the remains of an earlier lab -> make hosts (`network`), database servers (`servers`), an authority,
and an agent on each host, enrolled and started as on a real one -> `proveout run` on the host `control` -> remove
everything. A guard process waits for the end of this process and removes the lab in every case, also after SIGKILL. The
exit code is that of `proveout run`.

`up` leaves the lab running and prints how to run a plan in it; `down` removes it. Needs root.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from network import CONTROL, HOSTS, POLL_S, Host, LabError, Network, run, say
from servers import Server, programs

from proveout.coordinator.storage import journal, run_directory
from proveout.core.errors import ProveoutError
from proveout.proto.events import IterationStarted

HERE = Path(__file__).resolve().parent
PLAN = HERE.parents[1] / "plans" / "netns-lab.yaml"
DIRECTORY = Path("/var/lib/proveout-lab")
MARK = ".proveout-lab"
"""A file that marks the lab's directory: `down` removes only a directory that contains it."""
PREFIX = "proveout"
PORT = 7443
AUTHORITY = f"{CONTROL.address}:7444"
POLICIES = {"server": "database-server", "storage": "storage-node", "client": "client"}
FAULTS = "faults: [partition, loss]\n"
"""The lab's hosts may be disturbed by plans."""
LISTEN_S = 60.0
PASSWORD_VARIABLE = "PROVEOUT_HLR_PASSWORD"  # noqa: S105 - the name of it
TOOLS = ("ip", "unshare", "setpriv")
NEEDS_ROOT = 2
INTERRUPTED = 130
JUDGED = {0, 1, 3, INTERRUPTED}
"""Exit codes that need no further explanation; after any other code the ends of the agents' logs are shown."""
PROVEOUT = (sys.executable, "-m", "proveout")

SERVERS = {
    "db1": {},
    "cache1": {"wal_level": "logical", "synchronous_commit": "off", "wal_writer_delay": "10ms"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """One lab: its directory and its network."""

    directory: Path
    network: Network

    def up(self) -> None:
        """Make hosts, servers and agents. Raises LabError."""
        try:
            self.directory.mkdir(parents=True)
        except FileExistsError:
            raise LabError(f"{self.directory} exists and is not the directory of a lab") from None
        (self.directory / MARK).touch()
        for host in (CONTROL, *HOSTS):
            (self.directory / host.name).mkdir()
        self.network.up()
        own = programs(self.directory)
        password = secrets.token_urlsafe(24)
        _private(self.directory / "password").write_text(password)
        for host in HOSTS:
            if host.name in SERVERS:
                folder = self.directory / host.name / "postgresql"
                server = Server(
                    network=self.network, host=host, folder=folder, programs=own, settings=SERVERS[host.name]
                )
                server.start(password)
        self._found_authority()
        for host in HOSTS:
            self._enrol(host)
            self._start_agent(host)
        for host in HOSTS:
            self._await_agent(host)

    def _found_authority(self) -> None:
        """Make an authority on the host `control`, start its server, and issue the coordinator's certificate."""
        self._proveout(CONTROL, "pki", "init", str(self._authority))
        self._proveout(
            CONTROL, "pki", "issue", str(self._authority), "lead", "--role", "coordinator", "--out", str(self.pki)
        )
        self._start(CONTROL, "pki", "serve", str(self._authority), "--listen", AUTHORITY, "--address", CONTROL.address)
        self._await(CONTROL, "listening")

    def _enrol(self, host: Host) -> None:
        """Invite a host, and run the printed command there, with a directory of its own."""
        member = [host.name, "--address", host.address, "--authority", AUTHORITY]
        token, *said = self._proveout(CONTROL, "pki", "invite", str(self._authority), *member).split()
        said[said.index("--pki") + 1] = str(self.directory / host.name / "pki")
        name, _, value = token.partition("=")
        self._proveout(host, *said[1:], environment={name: value})

    def _start_agent(self, host: Host) -> None:
        own = self.directory / host.name
        policy = own / "policy.yaml"
        template = (HERE.parents[1] / "plans" / "policies" / f"{POLICIES[host.role]}.yaml").read_text()
        policy.write_text(template.replace("faults: []\n", "") + FAULTS)
        files = ["--pki", str(own / "pki"), "--state-dir", str(own / "state"), "--policy", str(policy)]
        self._start(host, "agent", "--listen", f"{host.address}:{PORT}", "--name", host.name, *files)

    def _await_agent(self, host: Host) -> None:
        self._await(host, "listens at")

    def _proveout(self, host: Host, *argv: str, environment: Mapping[str, str] = MappingProxyType({})) -> str:
        return run(*self.network.command(host, *PROVEOUT, *argv), environment=environment)

    def _start(self, host: Host, *argv: str) -> None:
        """Start a permanent process on a host."""
        started = self.network.command(host, *PROVEOUT, *argv)
        say("+ " + " ".join(started) + " &")
        with self._log(host).open("wb") as log:
            subprocess.Popen(started, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _await(self, host: Host, word: str) -> None:
        until_s = time.monotonic() + LISTEN_S
        while word not in self._log(host).read_text(errors="replace"):
            if time.monotonic() > until_s:
                raise LabError(f"the process started on {host.name} does not listen:\n{self._log(host).read_text()}")
            time.sleep(POLL_S)

    def _log(self, host: Host) -> Path:
        return self.directory / host.name / "proveout.log"

    @property
    def _authority(self) -> Path:
        return self.directory / CONTROL.name / "authority"

    @property
    def pki(self) -> Path:
        """The coordinator's credentials."""
        return self.directory / CONTROL.name / "pki"

    def command(self, plan: Path, options: Sequence[str]) -> list[str]:
        """`proveout run` on the host `control`."""
        argv = [*PROVEOUT, "run", str(plan), "--pki", str(self.pki), *options]
        return self.network.command(CONTROL, *argv)

    def environment(self) -> dict[str, str]:
        """The environment of the run, with the database's password in the variable of the plan's secret."""
        return {**os.environ, PASSWORD_VARIABLE: (self.directory / "password").read_text()}

    def down(self) -> None:
        """Remove everything; do nothing where no lab exists."""
        self.network.down()
        if (self.directory / MARK).exists():
            shutil.rmtree(self.directory, ignore_errors=True)

    def is_there(self) -> bool:
        """Whether any part of the lab exists on this machine."""
        return bool(self.network.left()) or (self.directory / MARK).exists()

    def logs(self) -> str:
        """The last lines of every agent's log."""
        found = []
        for host in HOSTS:
            if self._log(host).exists():
                lines = self._log(host).read_text(errors="replace").splitlines()[-8:]
                found += [f"== {host.name}", *lines]
        return "\n".join(found)


def _private(path: Path) -> Path:
    path.touch(mode=0o600)
    return path


# ---- disconnecting a host ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Disconnect `host` in the measure window of the first iteration of `stage`, for `seconds` (None: permanently)."""

    host: str
    stage: str
    seconds: float | None

    @classmethod
    def of(cls, text: str) -> Cut:
        """Parse `client2@baseline` or `client2@baseline:15`."""
        host, _, rest = text.partition("@")
        stage, _, seconds = rest.partition(":")
        if host not in {known.name for known in HOSTS} or not stage:
            raise argparse.ArgumentTypeError(f"write HOST@STAGE or HOST@STAGE:SECONDS, not {text}")
        return cls(host=host, stage=stage, seconds=float(seconds) if seconds else None)

    def watch(self, lab: Lab, runs: Path, over: threading.Event) -> None:
        """Wait for the measure window, disconnect, wait, and reconnect."""
        begun = self._begun(runs, {found.path for found in run_directory.all_runs(runs)}, over)
        if begun is None or over.wait(begun.starts_in_s + begun.ramp_up_s):
            return
        say(f"== {self.host} is disconnected in {begun.id}")
        lab.network.cut(self.host)
        if self.seconds is not None:
            over.wait(self.seconds)
            say(f"== {self.host} is reconnected")
            lab.network.mend(self.host)

    def _begun(self, runs: Path, earlier: set[Path], over: threading.Event) -> IterationStarted | None:
        while not over.wait(POLL_S):
            for found in run_directory.all_runs(runs):
                if found.path in earlier:
                    continue
                for stamped in journal.read(found.path):
                    if isinstance(stamped.event, IterationStarted) and stamped.event.id.stage == self.stage:
                        return stamped.event
        return None


# ---- the verbs -----------------------------------------------------------------------------------------------------


def run_study(lab: Lab, plan: Path, options: Sequence[str], cut: Cut | None, runs: Path) -> int:
    """Make the lab, run the plan in it, remove the lab; the run's exit code."""
    guard = _guard(lab)  # first, so that any interruption afterwards leaves nothing
    try:
        if lab.is_there():
            say("== the remains of an earlier lab are removed")
            lab.down()
        lab.up()
        return _run(lab, plan, options, cut, runs)
    except (LabError, ProveoutError):
        say(lab.logs())  # before `down` removes them
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        say("== the lab is being removed")
        assert guard.stdin is not None  # noqa: S101 - it was made with a pipe
        guard.stdin.close()
        guard.wait()
        say(
            "== the lab is removed"
            if not lab.is_there()
            else "== the lab is not removed completely: run python docs/lab/lab.py down"
        )


def _guard(lab: Lab) -> subprocess.Popen[bytes]:
    """Start the process that removes the lab when its standard input ends, for any reason."""
    prefix = lab.network.namespace("").removesuffix("-")
    argv = [sys.executable, str(HERE / "lab.py"), "guard", "--prefix", prefix, "--directory", str(lab.directory)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)


def _run(lab: Lab, plan: Path, options: Sequence[str], cut: Cut | None, runs: Path) -> int:
    argv = lab.command(plan, [*options, "--runs-dir", str(runs), *(["--headless"] if cut else [])])
    say("+ " + " ".join(argv))
    over = threading.Event()
    child = subprocess.Popen(argv, env=lab.environment())
    # Ctrl-C reaches the run directly, which ends in order; a SIGTERM to this process is forwarded as SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGINT))
    watcher = threading.Thread(target=cut.watch, args=(lab, runs, over)) if cut else None
    if watcher:
        watcher.start()
    try:
        code = child.wait()
    finally:
        over.set()
        if watcher:
            watcher.join()
    if code not in JUDGED:
        say(lab.logs())
    return code


def _objection() -> str:
    """The reason why a lab cannot be made here; empty when it can."""
    if os.geteuid() != 0:
        return "the lab needs root: it makes network namespaces"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"the lab needs {', '.join(missing)} (Debian: iproute2, util-linux)" if missing else ""


def _options(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description="A lab of network namespaces; see docs/guide/lab.md.")
    parser.add_argument("verb", choices=["run", "up", "down", "guard"])
    parser.add_argument("--plan", type=Path, default=PLAN)
    parser.add_argument("--cut", type=Cut.of, help="HOST@STAGE[:SECONDS]: disconnect that host during the run")
    parser.add_argument("--runs-dir", type=Path, default=Path(os.environ.get("PROVEOUT_RUNS_DIR") or "runs"))
    parser.add_argument("--prefix", default=PREFIX, help="of the namespaces' names")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="of the lab's files")
    return parser.parse_known_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the verb of the command line; return the exit code."""
    chosen, more = _options(arguments)
    lab = Lab(directory=chosen.directory, network=Network(chosen.prefix))
    if objection := _objection():
        say(f"error: {objection}")
        return NEEDS_ROOT
    try:
        match chosen.verb:
            case "run":
                return run_study(lab, chosen.plan.absolute(), more, chosen.cut, chosen.runs_dir.absolute())
            case "up":
                lab.down()
                lab.up()
                say(f"the lab is up. Run a plan in it:\n  export {PASSWORD_VARIABLE}=$(cat {lab.directory}/password)")
                say("  " + " ".join(lab.command(PLAN, [])))
            case "guard":
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                sys.stdin.buffer.read()
                lab.down()
            case _:
                lab.down()
    except (LabError, ProveoutError) as error:
        say(f"error: {error}")
        if logs := lab.logs():
            say(logs)
        return 4
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
