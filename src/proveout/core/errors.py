"""The root of all expected failures, plan errors, and the command that installs an extra.

Expected failures are values while they are collected (`PlanProblem`) and one exception at the edge (`PlanError`). Bugs
raise other exceptions.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from proveout.core.data_classes import record


@record
class Where:
    """A position in a plan file."""

    file: str = "<plan>"  # path as given
    line: int = 0  # from 1
    column: int = 0  # from 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Where()

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class ProveoutError(Exception):
    """An expected failure: `what` happened, `where` (file, host or task) and the `way_out`. The CLI prints just
    that."""

    exit_code = 4

    def __init__(self, what: str, *, where: str = "", way_out: str = "") -> None:
        self.what, self.where, self.way_out = what, where, way_out
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.way_out}" if self.way_out else text


def one_line(fault: BaseException) -> str:
    """A failure where there is room for a line only, as in an event: `where: what (way out)`."""
    if isinstance(fault, ProveoutError) and fault.way_out:
        text, way_out = str(fault).removesuffix(fault.way_out), fault.way_out.strip().removesuffix(".")
        return f"{' '.join(text.split())} ({' '.join(way_out.split())})"
    return " ".join(str(fault).split())


@record
class PlanProblem:
    """One thing wrong in a plan: `key` is the dotted path in the document, `hint` what was expected or meant."""

    message: str
    where: Where = NOWHERE
    key: str = ""
    hint: str = ""
    source_line: str = ""


class PlanError(ProveoutError):
    """A plan or command line that cannot be used; carries every problem found, in file order."""

    exit_code = 2

    def __init__(self, problems: tuple[PlanProblem, ...]) -> None:
        self.problems = problems
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the plan")


# Source: the metadata of the installation (`Requires-Dist`). The commands name the packages themselves, never proveout:
# it is installed from a repository or a wheel, and an index may have another program of this name.

_REQUIREMENT = re.compile(
    r"(?P<text>(?P<name>[A-Za-z0-9._-]+)(?:\[(?P<of>[a-z,]+)\])?[^;]*);.*extra == ['\"](?P<extra>\w+)['\"]"
)
_EXTRA = re.compile(r"proveout\[(?P<extra>\w+)\]")


def requirements() -> dict[str, tuple[str, ...]]:
    """The extras with their requirements as pip takes them (`psycopg[binary]>=3.2`), those of included extras too.

    Empty where proveout has no metadata.
    """
    from importlib import metadata  # noqa: PLC0415 - slow to import, and only messages need it

    try:
        required = metadata.requires("proveout") or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for line in required:
        match = _REQUIREMENT.match(line)
        if match is not None:
            included = match["of"].split(",") if match["name"] == "proveout" and match["of"] else []
            found.setdefault(match["extra"], []).extend(included or [match["text"].strip()])
    return {extra: tuple(_expanded(names, found)) for extra, names in found.items()}


def _expanded(names: list[str], known: dict[str, list[str]]) -> list[str]:
    """The names of extras replaced by what they require, each once."""
    whole = [one for name in names for one in (_expanded(known[name], known) if name in known else [name])]
    return list(dict.fromkeys(whole))


def install_command(requirement: str) -> str:
    """`pip install …` for a requirement of a package, or for an extra of ours (`proveout[mysql]`)."""
    match = _EXTRA.fullmatch(requirement)
    packages = requirements().get(match["extra"], ()) if match is not None else ()
    return " ".join(("pip install", *(f"'{one}'" for one in packages or (requirement,))))


_BRINGS = {"pyarrow": "proveout[arrow]", "textual": "proveout[tui]", "vl_convert": "proveout[figures]"}
"""Packages that proveout starts without -> what brings each."""


class NotInstalled(ProveoutError):
    """A package that a part of proveout needs, and that is loaded on its first use, is not installed."""

    exit_code = 2


def loaded(module: str, purpose: str) -> Any:
    """The module, of a package in `_BRINGS`. NotInstalled, with the command that installs it, which says that `purpose`
    needs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        way_out = f"Install it with: {install_command(_BRINGS[package])}"
        raise NotInstalled(f"{purpose} needs {package}, which is not installed", way_out=way_out) from None
