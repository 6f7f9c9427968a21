"""Attempts of a compromised database server to reach resources outside its confinement, as data: name, purpose, code.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Escape:
    """An attempt; `since` is the version of Landlock that refuses it, 0 when none is needed.

    `works`: whether the agent's user can do it without Landlock, with no capabilities and no_new_privs.
    """

    name: str
    tries: str
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
    Escape(name="read-key", tries="read the agent's key", code="open(key).read()"),
    Escape(
        name="read-key-by-root-link", tries="read it by /proc/self/root", code="open('/proc/self/root' + key).read()"
    ),
    Escape(
        name="read-key-by-link",
        tries="read it by a symbolic link in the data",
        code="os.symlink(key, data + '/link'); open(data + '/link').read()",
    ),
    Escape(
        name="link-key",
        tries="give it a second name in the data",
        code="os.link(key, data + '/hard'); open(data + '/hard').read()",
    ),
    Escape(name="move-key", tries="move it into the data", code="os.rename(key, data + '/moved')"),
    Escape(name="list-keys", tries="list the folder of the keys", code="os.listdir(os.path.dirname(key))"),
    Escape(name="remove-key", tries="remove it", code="os.unlink(key)"),
    Escape(name="cut-key", tries="empty it without opening it", code="os.truncate(key, 0)", since=3),
    Escape(name="read-home", tries="list the user's home directory", code="os.listdir(home)"),
    Escape(
        name="append-authorized-keys",
        tries="let a key of its own log in",
        code="open(home + '/.ssh/authorized_keys', 'a').write('ssh-ed25519 AAAA')",
    ),
    Escape(name="add-startup-file", tries="make a start-up file", code="open(home + '/.profile', 'x').write('id')"),
    Escape(name="add-in-tmp", tries="make a file in /tmp", code="os.close(os.open('/tmp', os.O_TMPFILE | os.O_RDWR))"),
    Escape(
        name="add-in-shm",
        tries="make a file in /dev/shm",
        code="os.close(os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR))",
    ),
    Escape(
        name="make-device",
        tries="make a device file",
        code="os.mknod(data + '/d', 0o600 | stat.S_IFBLK, 0)",
        since=0,
        works=False,
    ),
    Escape(name="run-shell", tries="run a shell", code="os.execv('/bin/sh', ['sh', '-c', 'exit 0'])"),
    Escape(
        name="run-set-uid",
        tries="run a set-uid program",
        code="os.execv(next(p for p in ('/usr/bin/su', '/bin/su') if os.path.exists(p)), ['su', '--version'])",
    ),
    Escape(
        name="run-own-file",
        tries="run a program that it has written",
        code="shutil.copy('/bin/true', data + '/own'); os.chmod(data + '/own', 0o700); os.execv(data + '/own', ['own'])",
    ),
    Escape(
        name="read-environment",
        tries="read the agent's environment",
        code="open(f'/proc/{agent}/environ', 'rb').read()",
        works=False,
    ),
    Escape(name="read-memory", tries="open the agent's memory", code="open(f'/proc/{agent}/mem', 'rb')", works=False),
    Escape(
        name="read-command-line", tries="read the agent's command line", code="open(f'/proc/{agent}/cmdline').read()"
    ),
    Escape(
        name="trace-agent",
        tries="trace the agent (PTRACE_SEIZE)",
        code="called(libc.ptrace(0x4206, agent, None, None))",
        works=False,
    ),
    Escape(name="signal-agent", tries="send the agent a signal", code="os.kill(agent, 0)", since=6),
    Escape(
        name="connect-abstract",
        tries="connect to an abstract unix socket of the user's",
        code="socket.socket(socket.AF_UNIX).connect('\\0' + socket_name)",
        since=6,
    ),
    Escape(
        name="listen-tcp",
        tries="listen on a TCP port",
        code="s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
        since=4,
    ),
    Escape(
        name="inherited-files",
        tries="use a descriptor that it has inherited",
        code=textwrap.dedent("""
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
    Escape(
        name="gain-privileges",
        tries="have privileges that a set-uid program could raise (PR_GET_NO_NEW_PRIVS)",
        code="called(-libc.prctl(39, 0, 0, 0, 0))",
        since=0,
        works=False,
    ),
    Escape(
        name="bounding-set",
        tries="have a capability in the bounding set (PR_CAPBSET_READ)",
        code="called(max(libc.prctl(23, number, 0, 0, 0) for number in range(64)) - 1)",
        since=0,
        works=False,
        needs_root=True,
    ),
    Escape(name="become-root", tries="become root", code="libc.setuid(0); open('/etc/shadow').read()", works=False),
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
