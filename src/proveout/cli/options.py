"""Options that several verbs share, with the completion of their values in a shell, and error messages: what failed,
where, and what to do; plan problems with their line and a caret.

Text from files, hosts and databases is untrusted: characters that a terminal would act on are shown as escapes.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from proveout.core.data_classes import record
from proveout.core.errors import PlanError, PlanProblem, ProveoutError
from proveout.core.numbers import count_of, safe_lines

WIDTH_MAX = 110


class Unusable(ProveoutError):
    """The command line, or what it names, cannot be used as it is; nothing was started."""

    exit_code = 2


def show_error(error: ProveoutError) -> None:
    """Print an expected failure."""
    out = sys.stderr
    if not isinstance(error, PlanError):
        out.write(f"error: {safe_lines(str(error))}\n")
        return
    for problem in error.problems:
        out.write(f"{describe(problem)}\n\n")
    out.write(f"{count_of(len(error.problems), 'problem')}\n")


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, each column as wide as its widest cell."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def note_unchecked(directory: Path) -> None:
    """Print a note about the parts of a journal that cannot be checked for damage."""
    from proveout.coordinator.storage.journal import unchecked

    if what := unchecked(directory):
        sys.stderr.write(f"note: {safe_lines(directory.name)}: {what}\n")


def describe(problem: PlanProblem) -> str:
    """`file:line:col: message`, the line with a caret, and what was expected or meant.

    Several lines, no newline at the end.
    """
    where = problem.where
    place = safe_lines(str(where) if where.line else where.file)
    lines = [f"{place}: {safe_lines(problem.message)}"]
    if problem.source_line.strip():
        from rich.cells import cell_len

        line, column = _cut(problem.source_line, where.column)
        number = f"{where.line}"
        before, rest = (safe_lines(part.replace("\t", r"\x09")) for part in (line[: column - 1], line[column - 1 :]))
        lines.append(f"  {number} | {before}{rest}")  # a tab is often the error itself
        lines.append(f"  {' ' * len(number)} | {' ' * cell_len(before)}^")
    key = f" (at {safe_lines(problem.key)})" if problem.key and not where.line else ""
    if problem.hint:
        lines.append(f"  {safe_lines(problem.hint)}{key}")
    return "\n".join(lines)


def _cut(line: str, column: int) -> tuple[str, int]:
    """A long line around its column: (the part shown, the column in it)."""
    if len(line) <= WIDTH_MAX:
        return line, max(column, 1)
    start = max(0, min(column - 1 - WIDTH_MAX // 2, len(line) - WIDTH_MAX))
    before = "…" if start else ""
    after = "…" if start + WIDTH_MAX < len(line) else ""
    return f"{before}{line[start : start + WIDTH_MAX]}{after}", max(column - start + len(before), 1)


EVERY_S = 0.1
LATE_S = 0.5
"""A shorter wait shows no progress."""


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows `12 of 340 runs read` while the block runs; the line is removed at its end."""
    moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    begun_s = shown_s = time.monotonic()
    shown = False

    def show(done: int, total: int) -> None:
        nonlocal shown, shown_s
        now_s = time.monotonic()
        if moving and now_s - begun_s >= LATE_S and now_s - shown_s >= EVERY_S:
            shown, shown_s = True, now_s
            sys.stderr.write(f"\r\x1b[K{done} of {total} {what}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


Words: TypeAlias = list[str | tuple[str, str]]

RUNS_MAX = 50
SUFFIXES = (".yaml", ".yml")
STARTERS = Path(__file__).parents[1] / "plans" / "starters"
"""The plans that `proveout new` writes."""


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


def is_plan_file(word: str) -> bool:
    """Whether a word of the command line means a file: one that is there, or a name with the suffix of plans."""
    return Path(word).suffix in SUFFIXES or os.path.isfile(word)  # noqa: PTH113 - it never raises


HEAD_BYTES = 64 * 1024


def has_key(path: Path, *names: str) -> bool:
    """Whether the begin of a file has one of these keys at its top, in lines or in braces. OSError."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    key = rf"""^(?:\{{(?s:(?:.*?[\s,{{])?))?["']?(?:{"|".join(names)})["']?\s*:"""
    return re.search(key.encode(), head, re.MULTILINE) is not None


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
        folder = run_directory.runs_directory(context.params.get("runs_dir"))
        names = [run_directory.LATEST, *(directory.name for directory in run_directory.all_runs(folder)[:RUNS_MAX])]
        return [name for name in names if name.startswith(incomplete)]
    return []


def parameters(context: typer.Context, incomplete: str) -> Words:
    """`name=default` for each parameter of the plan on the line; of one that has choices, `name=choice` for each."""
    from proveout.dsl.schema.parameters import read_form

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


verb_group = partial(typer.Typer, no_args_is_help=True, rich_markup_mode=None)
"""A group of verbs."""


def file_option(help: str, metavar: str = "FILE") -> Any:
    return typer.Option(metavar=metavar, help=help)


_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")

RunName: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's name or directory, or `latest`.", autocompletion=runs)
]
PlanFile: TypeAlias = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.", autocompletion=plan_files)]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-p", metavar="NAME=VALUE", help="Give a parameter of the plan another value.", autocompletion=parameters
    ),
]
Inventory: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--inventory",
        metavar="FILE",
        help="A file that supplies or replaces the topology.",
        autocompletion=plan_files,
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


def _absolute(path: Path) -> Path:
    return path.absolute()


def name_and_port(param: typer.CallbackParam, text: str) -> str:
    """An option's value. typer.BadParameter; gRPC would take port 99999 for 34463."""
    name, colon, port = text.rpartition(":")
    if not (name and colon and port.isdecimal() and int(port) < 1 << 16):
        raise typer.BadParameter(f"{text!r} is not name:port", param_hint=param.opts[0])
    return text


RUNS = Path("runs")
RunsDir: TypeAlias = Annotated[
    Path,
    typer.Option(
        envvar="PROVEOUT_RUNS_DIR",
        show_envvar=False,
        show_default=False,
        callback=_absolute,
        help="The folder of run directories [default: $PROVEOUT_RUNS_DIR, or ./runs].",
    ),
]
Pki: TypeAlias = Annotated[
    Path | None,
    file_option("The coordinator's certificate, for agents that run already [default: $PROVEOUT_PKI].", "DIR"),
]
PolicyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="The policy of agents on this machine (`address: local`); without one they change nothing.",
    ),
]


Annotations: TypeAlias = Literal["auto", "github", "none"]
"""Annotations of failed verdicts and of errors of the plan, in the log; `auto`: those of GitHub in a GitHub job."""
AnnotationsOption: TypeAlias = Annotated[
    Annotations,
    typer.Option(
        "--annotations",
        help="Annotate failed verdicts and errors of the plan at their line of it, in the log; automatic in a GitHub "
        "job; `github` turns the screen off.",
    ),
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("-q", "--quiet", help="Print errors, and the sentence of the verdicts, and nothing else.")
]
ForPrograms: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs.")]
Headless: TypeAlias = Annotated[bool, typer.Option("--headless", help="Plain lines, no screen.")]
CodeQuality: TypeAlias = Annotated[Path | None, file_option("Write what failed as GitLab's code quality report.")]
GitlabMetrics: TypeAlias = Annotated[Path | None, file_option("Write the main figures as GitLab's metrics report.")]
Instead: TypeAlias = Annotated[Path | None, file_option("Instead of the file that `run` named.")]
MetricsAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="ADDR",
        help="Serve OpenMetrics while it runs, for Prometheus: PORT (on loopback), HOST:PORT, or the path of a "
        "Unix socket.",
    ),
]


@record
class Access:
    """Credentials and folders that the command line names."""

    pki: Path | None = None
    policy: Path | None = None
    runs_dir: Path = RUNS


PKI_VARIABLE = "PROVEOUT_PKI"


def pki_folder(named: Path | str | None) -> Path | None:
    """The folder of the coordinator's certificate: the one that is named, else that of the variable."""
    found = named or os.environ.get(PKI_VARIABLE)
    return Path(found) if found else None


def names(given: list[str] | None) -> list[str]:
    """The names of an option that may be given again, each time with several, separated by commas."""
    return [name.strip() for words in given or () for name in words.split(",") if name.strip()]


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


def not_utf_8(text: str) -> bool:
    """Whether a word of the command line has bytes that no journal, plan or message to an agent can have."""
    return re.search("[\ud800-\udfff]", text) is not None


def _pairs(words: list[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint=option)
        if not_utf_8(word):
            raise typer.BadParameter(f"{word!r} is not UTF-8", param_hint=option)
        if name.strip() in found:
            raise typer.BadParameter(f"{name.strip()!r} is given twice", param_hint=option)
        found[name.strip()] = value
    return found


def refuse(reason: str, **options: object) -> None:
    """Refuse options that are given where they have no meaning. typer.BadParameter."""
    for name, value in options.items():
        if not (value is None or value is False or value in ("", [])):
            dashes = "" if name.isupper() else "-" if len(name) == 1 else "--"
            raise typer.BadParameter(reason, param_hint=f"{dashes}{name.replace('_', '-')}")


def typed(path: str | os.PathLike[str]) -> str:
    """A path as a word of a command that is shown: in quotes where it has blanks or other letters."""
    return shlex.quote(os.fspath(path))


def words(
    parameters: Iterable[str] | None,
    files: Mapping[str, str | os.PathLike[str] | None],
    labels: Iterable[str] | None = None,
) -> list[str]:
    """The options as words of a command line, paths absolute: `words(["a=1"], {"runs_dir": …})` -> `-p a=1 --runs-dir
    …`.
    """
    found = [word for parameter in parameters or () for word in ("-p", parameter)]
    found += [word for label in labels or () for word in ("--label", label)]
    for name, path in files.items():
        found += [] if path is None else [f"--{name.replace('_', '-')}", str(Path(path).absolute())]
    return found
