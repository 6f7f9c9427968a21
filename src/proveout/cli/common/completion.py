"""Shell completion: plan files, runs, parameters of the plan on the command line.

Data flow: the beginning of a word (and the words before it, `context.params`) -> words, or (word, description). It is
quick and ignores every error, since a shell must neither wait nor show a traceback. It reads file names, and of a plan
the parameters; no journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import typer

from proveout.core.errors import ProveoutError

Words: TypeAlias = list[str | tuple[str, str]]

RUNS_MAX = 50
SUFFIXES = (".yaml", ".yml")


def plan_files(incomplete: str) -> Words:
    """Plan files and folders that begin so.

    A folder that is the only one comes with what is in it: shells end a word that is the only one with a space.
    """
    found: Words = []
    with suppress(OSError):
        found += _files(incomplete)
        match found:
            case [str(folder)] if folder.endswith("/"):
                found += _files(folder)
    return found


def _files(incomplete: str) -> Iterator[str]:
    typed = os.path.dirname(incomplete)  # noqa: PTH120 - what was typed stays as it was typed: `./`, `~/`
    stem = incomplete[len(typed) + 1 if typed not in ("", "/") else len(typed) :]
    folder = Path(typed or ".").expanduser()
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(stem) or (path.name.startswith(".") and not stem):
            continue
        shown = incomplete[: len(incomplete) - len(stem)] + path.name
        if path.is_dir():
            yield f"{shown}/"
        elif path.suffix in SUFFIXES:
            yield shown


def runs(context: typer.Context, incomplete: str) -> Words:
    """The newest runs by name, and `latest`."""
    from proveout.coordinator.storage import run_directory

    with suppress(OSError):
        folder = run_directory.runs_directory(context.params.get("runs_dir"), os.environ)
        names = [run_directory.LATEST, *(directory.name for directory in run_directory.all_runs(folder)[:RUNS_MAX])]
        return [name for name in names if name.startswith(incomplete)]
    return []


def parameters(context: typer.Context, incomplete: str) -> Words:
    """`name=default` for each parameter of the plan on the line; of one that has choices, `name=choice` for each."""
    from proveout.dsl.schema.parameter_form import read_form

    # Words before an option that lacks its value are not in `params` yet.
    named = (context.params.get("plan"), *(context.params.get("plans") or ()), *context.args)
    plan = next((Path(word) for word in named if word is not None and Path(word).suffix in SUFFIXES), None)
    if plan is None:
        return []
    with suppress(ProveoutError, OSError):
        found: Words = [
            (f"{field.name}={value.replace(', ', ',')}", field.help or field.type)
            for field in read_form(plan).fields
            for value in field.choices or (field.default,)
        ]
        return [word for word in found if word[0].startswith(incomplete) and " " not in word[0]]
    return []
