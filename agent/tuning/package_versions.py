"""Which version of a package is installed: rpm or dpkg, whichever the host has. Facts only; nothing is ever installed."""

from __future__ import annotations

import shutil

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.tuning.programs import Tools


def version(tools: Tools, package: str) -> str | None:
    """The installed version; None when it is not. TaskFault where there is no package manager that can be asked."""
    for program, arguments in _QUERIES:
        found = shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if found is not None:
            done = tools.run((found, *arguments, package))
            status, _, number = done.text.strip().partition(" ")
            return number.strip() or None if done.code == 0 and status == "installed" else None
    raise TaskFault("missing", "this host has neither rpm nor dpkg to ask for a package")


_QUERIES = (
    ("rpm", ("-q", "--queryformat", "installed %{VERSION}-%{RELEASE}", "--")),
    ("dpkg-query", ("--show", "--showformat=${db:Status-Status} ${Version}", "--")),
)
