"""Attempts of a compromised database server to reach resources outside its confinement, as data: name and code.

Flow: `program(case, …)` -> arguments for a Python interpreter that runs in the server's place, with the server's
identity and access -> exit status. The code is what native code in the server could do, so it needs no SQL and no role.
It raises OSError when the attempt is refused. `REFUSED` (status 10) is the expected result; `ESCAPED` (status 0) means
that the attempt succeeded; any other status is an error of the test. Names in the code: `key` (a private key of the agent's
user, 0600), `home` (that user's home directory, with `.ssh/authorized_keys`), `data` (the server's own data), `agent`
(the agent's process id), `socket_name` (an abstract unix socket on which the agent listens).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

ESCAPED, REFUSED = 0, 10


@dataclass(frozen=True, slots=True)
class Escape:
    """An attempt; `since` is the version of Landlock that refuses it, 0 when none is needed.

    `works`: whether the agent's user can do it without Landlock, with no capabilities and no_new_privs.
    """

    name: str
    code: str
    since: int = 1
    works: bool = True
    needs_root: bool = False
    """Whether only an agent that is root can refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The paths and the process that the attempts aim at; see above."""

    key: str
    home: str
    data: str
    agent: int
    socket_name: str


ESCAPES = (
    Escape("read-key", "open(key).read()"),
    Escape("read-key-by-root-link", "open('/proc/self/root' + key).read()"),
    Escape("read-key-by-link", "os.symlink(key, data + '/link'); open(data + '/link').read()"),
    Escape("link-key", "os.link(key, data + '/hard'); open(data + '/hard').read()"),
    Escape("move-key", "os.rename(key, data + '/moved')"),
    Escape("list-keys", "os.listdir(os.path.dirname(key))"),
    Escape("remove-key", "os.unlink(key)"),
    Escape("cut-key", "os.truncate(key, 0)", since=3),
    Escape("read-home", "os.listdir(home)"),
    Escape("append-authorized-keys", "open(home + '/.ssh/authorized_keys', 'a').write('ssh-ed25519 AAAA')"),
    Escape("add-startup-file", "open(home + '/.profile', 'x').write('id')"),
    Escape("add-in-tmp", "os.close(os.open('/tmp', os.O_TMPFILE | os.O_RDWR))"),
    Escape("add-in-shm", "os.close(os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR))"),
    Escape("make-device", "os.mknod(data + '/d', 0o600 | stat.S_IFBLK, 0)", since=0, works=False),
    Escape("run-shell", "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])"),
    Escape(
        "run-set-uid", "os.execv(next(p for p in ('/usr/bin/su', '/bin/su') if os.path.exists(p)), ['su', '--version'])"
    ),
    Escape(
        "run-own-file",
        "shutil.copy('/bin/true', data + '/own'); os.chmod(data + '/own', 0o700); os.execv(data + '/own', ['own'])",
    ),
    Escape("read-environment", "open(f'/proc/{agent}/environ', 'rb').read()", works=False),
    Escape("read-memory", "open(f'/proc/{agent}/mem', 'rb')", works=False),
    Escape("read-command-line", "open(f'/proc/{agent}/cmdline').read()"),
    # PTRACE_SEIZE
    Escape("trace-agent", "called(libc.ptrace(0x4206, agent, None, None))", works=False),
    Escape("signal-agent", "os.kill(agent, 0)", since=6),
    Escape("connect-abstract", "socket.socket(socket.AF_UNIX).connect('\\0' + socket_name)", since=6),
    Escape("listen-tcp", "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()", since=4),
    Escape(
        "inherited-files",
        textwrap.dedent("""
            for number in range(3, 1024):
                try:
                    os.fstat(number)
                except OSError:
                    continue
                sys.exit(0)
            raise OSError
        """),
        since=0,
        works=False,
    ),
    # PR_GET_NO_NEW_PRIVS: a set-uid program could raise privileges
    Escape("gain-privileges", "called(-libc.prctl(39, 0, 0, 0, 0))", since=0, works=False),
    # PR_CAPBSET_READ
    Escape(
        "bounding-set",
        "called(max(libc.prctl(23, number, 0, 0, 0) for number in range(64)) - 1)",
        since=0,
        works=False,
        needs_root=True,
    ),
    Escape("become-root", "libc.setuid(0); open('/etc/shadow').read()", works=False),
)

_PROGRAM = """
import ctypes, os, shutil, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def called(status):
    if status < 0:
        raise OSError(ctypes.get_errno(), "refused")
key, home, data, agent, socket_name = {values!r}
try:
{code}
except OSError:
    sys.exit(10)
sys.exit(0)
"""


def program(case: Escape, target: Target) -> list[str]:
    """Arguments of a Python interpreter that makes the attempt."""
    values = (target.key, target.home, target.data, target.agent, target.socket_name)
    return ["-I", "-S", "-c", _PROGRAM.format(values=values, code=textwrap.indent(case.code, "    "))]
