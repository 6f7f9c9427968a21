"""Programs of this host, run by the agent itself, and the reboot of the host between stages of a run.

Flow of a reboot: `tuner.reboot_host` checks the policy and that the agent is a service -> `Tuner.reboot_at_end` -> the
coordinator ends the session, `Tuner.close` stores the hold (`machine.Hold`) and starts the reboot -> the agent of the
next boot finds the hold and undoes nothing before its end -> `ApplyTuning` of the same run takes the journal over
(`transaction.adopt`).
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.agent.errors import TaskFault
from proveout.core import child_process
from proveout.dsl.operations.change import WITHIN_S
from proveout.dsl.operations.facts import Output

if TYPE_CHECKING:
    from proveout.agent.daemon.tasks import TaskContext

# No shell, a fixed environment, a deadline.
#
# The caller has checked the policy before it runs a program.

OUTPUT_MAX = 1024 * 1024
PART = 65_536
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "LANG": "C"}


class Processes:
    """Runs programs as child processes. One thread runs them one after the other; another thread may interrupt."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def interrupt(self) -> None:
        """Kill the running program, if there is one, with its children; `run` then reports its failure."""
        running = self._running
        if running is not None:
            _kill(running)

    def run(self, argv: Sequence[str], within_s: float = WITHIN_S) -> Output:
        """Run a program to its end. Standard error follows standard output in the result."""
        try:
            with subprocess.Popen(
                list(argv),
                env=ENVIRONMENT,
                cwd=child_process.DIRECTORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            ) as process:
                self._running = process
                return _output(process, within_s)
        except FileNotFoundError:
            raise TaskFault("missing", f"{argv[0]} is not on this host") from None
        except subprocess.TimeoutExpired:
            raise TaskFault("timeout", f"{argv[0]} did not end within {within_s:g} s") from None
        except OSError as error:
            raise TaskFault("refused", f"cannot start {argv[0]}: {error.strerror}") from None
        finally:
            self._running = None


def _output(process: subprocess.Popen[bytes], within_s: float) -> Output:
    """The first part of both outputs at the end of the program; the bytes after `OUTPUT_MAX` are read and dropped."""
    assert process.stdout is not None and process.stderr is not None  # noqa: S101 - PIPE
    until_s = time.monotonic() + within_s
    out, err = bytearray(), bytearray()
    try:
        with selectors.DefaultSelector() as open_ones:
            open_ones.register(process.stdout, selectors.EVENT_READ, out)
            open_ones.register(process.stderr, selectors.EVENT_READ, err)
            while open_ones.get_map():
                if not (ready := open_ones.select(max(until_s - time.monotonic(), 0.0))):
                    raise subprocess.TimeoutExpired(process.args, within_s)
                for key, _ in ready:
                    if not (part := os.read(key.fd, PART)):
                        open_ones.unregister(key.fileobj)
                    key.data.extend(part[: OUTPUT_MAX - len(key.data)])
        process.wait(max(until_s - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        _kill(process)
        raise
    text = out + (b"\n" + err if process.returncode and err else b"")
    return Output(code=process.returncode, text=text.decode("utf-8", errors="replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with its children, which would go on to change the host while it is set back; those of one that
    has ended too. Until it is waited for, its number names no other group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def must(tools: Processes, argv: Sequence[str], *, within_s: float = WITHIN_S, already: Sequence[str] = ()) -> str:
    """Run a program that must succeed; returns its output. TaskFault with its last line.

    An output with one of the texts `already` is a success too."""
    done = tools.run(argv, within_s)
    if done.code != 0 and not any(text in done.text for text in already):
        last = (done.text.strip().splitlines() or ["it wrote no message"])[-1][:300]
        raise TaskFault("fault", f"{' '.join(argv)} failed with exit code {done.code}: {last}")
    return done.text


# ---- the reboot ------------------------------------------------------------------------------------------------------

SYSTEMCTL = "/usr/bin/systemctl"
CGROUP = Path("/proc/self/cgroup")

_log = logging.getLogger(__name__)


def require_reboot(context: TaskContext) -> None:
    """TaskFault `refused` by the policy, `missing` where nothing would start the agent again."""
    context.policy.allows_reboot().require()
    if not (unit := service()):
        what = "the agent of this host is not a service, so that nothing would start it after a reboot"
        raise TaskFault("missing", what, way_out="`proveout agent --unit` prints its unit")
    if Processes().run((SYSTEMCTL, "is-enabled", unit)).code:
        what = f"{unit} is not enabled, so that nothing would start this agent after a reboot"
        raise TaskFault("missing", what, way_out=f"systemctl enable {unit}")


def service() -> str:
    """The unit that this process is a service of, by its control group (cgroups(7)); "" outside of one."""
    with suppress(OSError):
        last = CGROUP.read_text(encoding="utf-8").strip().rpartition("/")[2]
        return last if last.endswith(".service") and not last.startswith("user@") else ""
    return ""


def reboot() -> bool:
    """Reboot the machine; False, with the reason in the log, when that is refused."""
    try:
        must(Processes(), (SYSTEMCTL, "reboot"))
    except TaskFault as fault:
        _log.error("the host is not rebooted: %s", fault.what)
        return False
    return True
