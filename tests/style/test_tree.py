"""The tree of sources: no import cycle, short functions, and one meaning for each file name."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agent", "coordinator", "dsl", "proto", "src", "tui")
GENERATED = ("_pb2.py", "_pb2_grpc.py")
FUNCTION_LINES_MAX = 70

SAME_CONCEPT = {
    "__init__", "__main__",
    # the parts of an engine, one package for each
    "adapter", "capture_connection", "checkpoint", "copy", "dsn", "errors", "lag", "populate", "propagation", "protocol", "provision",
    "native_session", "settings", "driver", "sizes", "sql", "waits",
    # the parts of a workload kind, one package for each
    "invariants", "keys", "parameters", "rows", "shares", "statements", "tables", "workload",
    # the same concept on both sides of the wire, or at compile time, in a plan and in results
    "faults", "loads", "messages", "renewal", "results", "session", "session_settings", "stages", "tasks", "topology", "tuning",
    # tables of what there is: engines, operations, captures, workload kinds
    "kinds", "table",
    # handlers of tasks, one module for each concern of the agent
    "handlers",
    # a verb and the module that does the work
    "ceiling", "resume", "run",
    # renderers of a report and of a comparison
    "document", "html", "json_schema", "markdown", "terminal", "text",
    # the two screens of the TUI
    "app", "model", "screen",
    # of the database, and of tuning
    "transaction",
}  # fmt: skip
"""Basenames that may occur more than once, because they mean the same in each place."""


@cache
def sources() -> tuple[str, ...]:
    """The modules that git tracks, but for generated ones."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(f for f in listed.splitlines() if f.split("/")[0] in FOLDERS and not f.endswith(GENERATED))


def cycles(imported: dict[str, set[str]]) -> Iterator[list[str]]:
    """The groups of modules that import each other, directly or through others."""
    reached: dict[str, set[str]] = {}
    for module in imported:
        found, waiting = set(), [module]
        while waiting:
            for other in imported[waiting.pop()] - found:
                found.add(other)
                waiting.append(other)
        reached[module] = found
    shown: set[str] = set()
    for module in sorted(imported):
        if module in reached[module] and module not in shown:
            group = sorted(other for other in reached[module] if module in reached[other])
            shown.update(group)
            yield group


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_import_cycle() -> None:
    graph = grimp.build_graph("proveout")
    found = cycles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    assert not list(found)


def test_a_cycle_is_found() -> None:
    assert list(cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}})) == [["b", "c"], ["d"]]


def test_one_meaning_for_each_file_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in sources():
        places[Path(file).stem].append(file)
    assert not {name: files for name, files in places.items() if len(files) > 1 and name not in SAME_CONCEPT}


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_short(folder: str) -> None:
    too_long = []
    for file in (file for file in sources() if file.startswith(f"{folder}/")):
        for function in functions(ast.parse((ROOT / file).read_text())):
            first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
            if (lines := (function.end_lineno or first) - first + 1) > FUNCTION_LINES_MAX:
                too_long.append(f"{file}: {function.name} has {lines} lines")
    assert not too_long
