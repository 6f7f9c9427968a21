"""The command line: a module for the verbs of one subject, imported only when one of them is used.

Data flow: argv -> the verb's module (`VERBS`) -> exit code. An expected failure is a `ProveoutError`, printed as
one message; its `exit_code` is the process's (0 fine, 1 a verdict failed, 2 plan or command line wrong, 3 inconclusive,
4 infrastructure, 130 interrupted).
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from keyword import iskeyword
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from proveout import __version__
from proveout.core import directories, linux

VERBS: tuple[str, ...] = (
    "bench",
    "new",
    "import",
    "run",
    "resume",
    "watch",
    "tui",
    "runs",
    "report",
    "compare",
    "versus",
    "noise",
    "trend",
    "check",
    "explain",
    "schema",
    "doctor",
    "ceiling",
    "prove",
    "agent",
    "deploy",
    "inventory",
    "pki",
    "audit",
)
"""The verbs in the order of the help.

Verb `x` is the function, or the group of verbs, `function_of("x")` of its module; `epilog_of("x")` are its examples.
A `Command` of the module parses its words.
"""

_MODULES = {
    "resume": "run",
    "tui": "watch",
    **dict.fromkeys(("runs", "noise", "trend"), "history"),
    "schema": "check",
    **dict.fromkeys(("deploy", "inventory"), "lab"),
    "audit": "pki",
    "import": "importing",
}
"""The modules of verbs that share one with another verb."""

EPILOG = """
  proveout bench
  proveout run plans/hlr-cache-embedded.yaml
  proveout explain plans/hlr-cache-embedded.yaml
  proveout VERB --help
"""

_ClickError: Any = typer.BadParameter.__mro__[2]
"""Base of all command line errors; typer brings its own copy of click and does not export this one."""


GONE = (errno.EPIPE, errno.EIO)
"""The errors of a pipe without a reader, and of a terminal that has been closed."""
NOT_PRINTED = 4


class Stream(io.FileIO):
    """A standard stream that does not fail: text that cannot be written is lost, and `fault` is the first reason. A run
    goes on, and is undone, without its terminal, and a command has its own exit code with `| head` behind it."""

    fault: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as fault:
            self.fault = self.fault or fault
            return len(data)

    @classmethod
    def in_place_of(cls, before: TextIO | None, descriptor: int) -> tuple[Stream, TextIO]:
        """The stream of a descriptor, and it as text: characters that its encoding has not are escapes. A descriptor
        that is closed is opened, so that no file of the command gets its number."""
        if before is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        raw = cls(descriptor, "wb", closefd=False)
        lines = isinstance(before, io.TextIOWrapper) and (before.line_buffering or before.write_through)
        encoding = "utf-8" if before is None else before.encoding
        return raw, io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines)


def main() -> None:
    """Entry point of the `proveout` command."""
    for number in {*linux.ending_signals()} - {signal.SIGINT}:  # they end it as Ctrl-C does, with all that it undoes
        signal.signal(number, signal.default_int_handler)
    directories.sweep()
    output, sys.stdout = Stream.in_place_of(sys.stdout, 1)
    _, sys.stderr = Stream.in_place_of(sys.stderr, 2)
    code = execute(sys.argv[1:])
    sys.stdout.flush()
    if output.fault is not None and output.fault.errno not in GONE:
        sys.stderr.write(f"error: standard output cannot be written: {output.fault.strerror}\n")
        code = code or NOT_PRINTED
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Messages go to stderr."""
    from proveout.core.errors import INTERRUPTED, ProveoutError

    try:
        if not arguments:  # the home screen where one can be shown, and the help elsewhere
            from proveout.cli.run import wanted

            arguments = ("tui",) if wanted(headless=False) else ()
        code = _application(arguments)(args=list(arguments), prog_name="proveout", standalone_mode=False)
    except ProveoutError as error:
        from proveout.cli.options import show_error

        show_error(error)
        return error.exit_code
    except _ClickError as error:
        error.show()
        return int(error.exit_code)
    except OSError as fault:  # of a place: a folder that may not be entered, a name that is too long, a full disk
        place = fault.filename or ("the working directory" if isinstance(fault, FileNotFoundError) else None)
        if place is None and not directories.is_full(fault):
            raise
        from proveout.cli.options import show_error

        way_out = "Check the path, your user's rights on it, and the space there."
        show_error(ProveoutError(fault.strerror or str(fault), where=str(place or ""), way_out=way_out))
        return ProveoutError.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer makes it of a Ctrl-C within a verb
        typer.echo("interrupted", err=True)
    return code if isinstance(code, int) else 0


def _application(arguments: Sequence[str]) -> typer.Typer:
    """The application with the given verb, or with all verbs."""
    application = typer.Typer(
        help="Prove out a database system: run a declarative test plan and judge what it measured.",
        epilog=_examples(EPILOG),
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback()(_options)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for verb in (asked,) if asked in VERBS else VERBS:
        module, found = importlib.import_module(module_of(verb)), function_of(verb)
        examples = _examples(epilog_of(verb))
        if isinstance(found, typer.Typer):
            application.add_typer(found, name=verb, epilog=examples)
        else:
            application.command(verb, cls=getattr(module, "Command", TyperCommand), epilog=examples)(found)
    return application


def module_of(verb: str) -> str:
    """The module of a verb: `proveout.cli.run`."""
    return f"{__name__}.{_MODULES.get(verb, verb)}"


def function_of(verb: str) -> Any:
    """The function of a verb, or its group of verbs; `import_` is that of `import`, a keyword of Python."""
    return getattr(importlib.import_module(module_of(verb)), f"{verb}_" if iskeyword(verb) else verb)


def epilog_of(verb: str) -> str:
    """The examples of a verb."""
    module = importlib.import_module(module_of(verb))
    return str(getattr(module, f"{verb.upper()}_EPILOG", None) or module.EPILOG)


def _examples(text: str) -> str:
    """An epilog that is shown line by line, not re-wrapped (`\\b` is click's sign for that)."""
    return f"\b\nExamples:{text.rstrip()}"


def _version(on: bool) -> None:
    if on:
        typer.echo(f"proveout {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Settings of every verb."""
