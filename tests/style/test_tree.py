"""The tree of sources: no import cycle, short functions, and one meaning for each file name."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agent", "coordinator", "dsl", "proto", "src", "tui")
GENERATED = ("_pb2.py", "_pb2_grpc.py")
FUNCTION_LINES_MAX = 70

SAME_CONCEPT = {
    "__init__", "__main__",
    # the parts of an engine, one package for each
    "adapter", "captures", "driver", "native_session", "populate", "protocol", "provision", "sql",
    # the parts of a workload kind, one package for each
    "parameters", "program", "tables", "workload",
    # the same concept on both sides of the wire, or at compile time, in a plan and in results
    "errors", "faults", "host", "loads", "messages", "phases", "preflight", "results", "session", "stages", "tasks", "topology", "tuning",
    # tables of what there is, and the handlers of tasks: one module for each concern
    "handlers", "kinds", "table",
    # a verb and the module that does the work
    "ceiling", "run",
    # of the database and of tuning; of a load and of reports
    "terminal", "transaction",
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
    groups = {tuple(sorted(other for other in reached[one] if one in reached[other])) for one in imported}
    return (list(group) for group in sorted(groups - {()}))


def test_no_import_cycle() -> None:
    assert list(cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}})) == [["b", "c"], ["d"]], "one is found"
    graph = grimp.build_graph("proveout")
    assert list(cycles({one: graph.find_modules_directly_imported_by(one) for one in graph.modules})) == []


def test_one_meaning_for_each_file_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in sources():
        places[Path(file).stem].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1 and name not in SAME_CONCEPT} == {}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements below a node, without their expressions, which are most of a tree."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child
            yield from statements(child)


def test_functions_are_short() -> None:
    too_long = []
    for file in sources():
        for node in statements(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                if (lines := (node.end_lineno or first) - first + 1) > FUNCTION_LINES_MAX:
                    too_long.append(f"{file}: {node.name} has {lines} lines")
    assert too_long == []
