"""Options that several verbs share."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from proveout.cli.common import completion

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")

PlanFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A plan file.", autocompletion=completion.plan_files)
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        metavar="NAME=VALUE",
        help="Give a parameter of the plan another value.",
        autocompletion=completion.parameters,
    ),
]
Inventory: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--inventory",
        metavar="FILE",
        help="A file that supplies or replaces the topology.",
        autocompletion=completion.plan_files,
    ),
]


Labels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="Store a label with the run: commit=1a2b3c4. `runs`, reports and `trend` show it. May be given again.",
    ),
]
RunsDir: TypeAlias = Annotated[
    Path | None, typer.Option(help="The folder of run directories [default: $PROVEOUT_RUNS_DIR, or ./runs].")
]
Pki: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The coordinator's certificate, for agents that run already [default: $PROVEOUT_PKI]."
    ),
]
PolicyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="The policy of agents on this machine (`address: local`); without one they change nothing.",
    ),
]


class Annotations(StrEnum):
    """Annotations of failed verdicts and of errors of the plan, in the log; `auto`: those of GitHub in a GitHub job."""

    auto = "auto"
    github = "github"
    none = "none"


AnnotationsOption: TypeAlias = Annotated[
    Annotations,
    typer.Option(
        "--annotations",
        help="Annotate failed verdicts and errors of the plan at their line of it, in the log; automatic in a GitHub "
        "job; `github` implies --headless.",
    ),
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("-q", "--quiet", help="Print errors, and the sentence of the verdicts, and nothing else.")
]
CodeQuality: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write what failed as GitLab's code quality report.")
]
GitlabMetrics: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the main figures as GitLab's metrics report.")
]
MetricsAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="ADDR",
        help="Serve OpenMetrics while it runs, for Prometheus: PORT (on loopback), HOST:PORT, or the path of a "
        "Unix socket.",
    ),
]


def parse_overrides(words: list[str] | None) -> dict[str, str]:
    """`name=value` words as a mapping. Raises typer.BadParameter for anything else, and for a name given twice."""
    return _pairs(words, "-p")


def parse_labels(words: list[str] | None) -> dict[str, str]:
    """The labels of a run. Raises typer.BadParameter as `parse_overrides`, and for a name that is not a plain word."""
    found = _pairs(words, "--label")
    for name in found:
        if not _LABEL.fullmatch(name):
            raise typer.BadParameter(
                f"{name!r} is not a name: letters, digits, `_`, `.` and `-`, at most 40", param_hint="--label"
            )
    return found


def _pairs(words: list[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint=option)
        if name.strip() in found:
            raise typer.BadParameter(f"{name.strip()!r} is given twice", param_hint=option)
        found[name.strip()] = value
    return found
