"""The extras of the installed release, and the command that installs the packages of one.

Source: the metadata of the installation (`Requires-Dist`). The commands name the packages themselves, never proveout:
it is installed from a repository or a wheel, and an index may have another program of this name.
"""

from __future__ import annotations

import re

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
