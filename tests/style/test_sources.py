"""Rules over the sources: no import cycle, short functions, one meaning for each file name; processes that start without
libraries that they need later or never; and isolated starts of processes.

Every process start of the package is isolated and has an environment made for it (`proveout.core.child_process`), or is
listed here with a reason; no text goes to a shell. Looked for in the syntax: calls that start a process, uses of
`sys.executable`, and copies of the whole environment. A start is fine when it has both `cwd=` and `env=`, and what `env=`
names leads to `child_process.environment`. `ruff` (S102, S3, S5, S6) refuses calls that start a shell or execute data; the
others are looked for here.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
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
def sources() -> dict[str, str]:
    """The texts of the modules that git tracks, but for generated ones."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ours = (file for file in listed.splitlines() if file.split("/")[0] in FOLDERS and not file.endswith(GENERATED))
    return {file: (ROOT / file).read_text(encoding="utf-8") for file in ours}


def cycles(imported: dict[str, set[str]]) -> Iterator[list[str]]:
    """The groups of modules that import each other, directly or through others."""
    reached: dict[str, set[str]] = {}
    for module in imported:
        found, waiting = set[str](), [module]
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
    for file, text in sources().items():
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                if (lines := (node.end_lineno or first) - first + 1) > FUNCTION_LINES_MAX:
                    too_long.append(f"{file}: {node.name} has {lines} lines")
    assert too_long == []


# ---- imports of a start: each of these takes up to 0.2 s of CPU time, in each process

LATER = "pyarrow scipy textual vl_convert"
RUN = {
    "proveout.agent.sandbox.helper_main": "cryptography grpc importlib.metadata numpy pydantic scipy yaml",
    "proveout.agent.__main__": "numpy psycopg pydantic scipy yaml",
    "proveout.agent.load.worker": "pyarrow scipy yaml",
    "proveout.coordinator.run": f"jinja2 {LATER}",
    "proveout.cli.headless": LATER,
    "proveout.cli.run_session": LATER,
    "proveout.coordinator.report.html": LATER,
    "proveout.coordinator.report.run_document": LATER,
    "proveout.agent.engines.mysql.populate": LATER,
}
"""Module of a process of a run -> libraries that its import must not load; from the one that imports least."""
COMMANDS = {
    "proveout.cli": "pydantic yaml",
    "proveout.dsl.workloads.kinds": "numpy psycopg apsw scipy grpc",
    "proveout.dsl.expr.evaluation": "prompt_toolkit",
    "proveout.dsl.compile.compiler": "cryptography grpc jinja2 numpy psutil psycopg pyarrow scipy sqlite3 textual",
}
"""The same for commands that read plans only: `check`, `explain`."""
IMPORT = """
import importlib, sys
for module, absent in {started!r}.items():
    importlib.import_module(module)
    if module.endswith('kinds'): [*map(sys.modules[module].built_in, sys.modules[module].BUILT_IN)]
    print(*(f'{{module}}: {{name}}' for name in absent.split() if name in sys.modules), sep='\\n', end='')
"""
CHECK = """
import os, sys
from proveout.__main__ import main
sys.argv = ['proveout', 'check', 'plans/smoke.yaml']
try:
    main()
except SystemExit as ended:
    found = [name for name in ('asyncio', 'numpy', 'sqlite3') if name in sys.modules]
    print(ended.code, found, os.environ['OPENBLAS_NUM_THREADS'], file=sys.stderr)
"""

SCREEN = """
import sys
from proveout.cli import execute, run
run.wanted = lambda **_: True
run.run_with_screen = lambda *_: 3
print([execute(words.split()) for words in ('run x.yaml', 'resume x')], 'proveout.coordinator.run' in sys.modules)
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Code in a fresh process, without the runs that this checkout may have."""
    variables = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    variables["PROVEOUT_RUNS_DIR"] = "/nowhere"
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize("started", [RUN, COMMANDS], ids=["run", "commands"])
def test_processes_start_without_libraries_that_they_need_later_or_never(started: dict[str, str]) -> None:
    assert python(IMPORT.format(started=started)).stdout.splitlines() == []


def test_check_loads_no_event_loop_no_numpy_and_no_journal_and_makes_no_pool_of_threads() -> None:
    assert python(CHECK).stderr.endswith("\n0 [] 1\n")


def test_the_screen_of_a_run_does_not_load_the_run() -> None:
    assert python(SCREEN).stdout == "[3, 3] False\n"


# ---- starts of processes

STARTS = (
    *("subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output"),
    *("asyncio.create_subprocess_exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.posix_spawnp", "pty.fork"),
    *("os.execv", "os.execve", "os.execvpe", "os.execl", "os.execle", "os.execlpe", "os.spawnv", "os.spawnve"),
    *("concurrent.futures.ProcessPoolExecutor", "ProcessPoolExecutor", "runpy.run_path", "runpy.run_module"),
)
SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
COPY = "a copy of os.environ"
MADE = "child_process.environment"
SERVER = "a program of a database's, in an environment of constants (`workspace.ENVIRONMENT`) and in `/`"
REASONS = {
    "src/proveout/cli/web_screen.py:_Session._open_app_process": "the screen of this user's own run, as on a terminal: `proveout watch`",
    "coordinator/deploy/wheelhouse.py:collect": "pip, for this user, with the index and proxies that the user has set",
    "coordinator/deploy/host_program.py:Host.install": "the host's Python with -I, in an environment of constants (`host_state.run`)",
    "coordinator/deploy/host_program.py:run": "programs of the host, in an environment of constants and in `/`",
    "coordinator/deploy/host_program.py:is_running": "systemctl, in an environment of constants and in `/`",
    "coordinator/deploy/host_program.py:start": "the agent of a host without systemd, in an environment of constants and in `/`",
    "agent/engines/native_build.py:compiled": "builds the wheel; is not part of a run",
    "proto/generate.py:generate": "generates code from .proto files; is not part of a run",
    "agent/engines/embedded/supervisor.py:Supervisor._spawn": "forks the supervisor itself, then executes a server with a given environment in `/`",
    "agent/engines/embedded/supervisor.py:Supervisor.reach": "forks the supervisor itself, and executes nothing",
    "agent/engines/embedded/workspace.py:SupervisorClient.__init__": "sys.executable with -I -S: one file of the standard library's alone",
    "agent/engines/postgres/roles.py:make_roles": "sys.executable with -I -S: one file of the standard library's alone",
    "agent/engines/postgres/single_user.py:main": "becomes the server's program, in an environment of constants and in `/`",
    "agent/engines/embedded/server.py:program_output": SERVER,
    "agent/tools/program_launcher.py:_execute": "becomes the program, in an environment of constants, in the folder of its files",
    "agent/tools/program_launcher.py:_guarded": "a child that becomes the program at the start",
    "agent/tools/program_launcher.py:run_once": "a child that becomes the program at once",
    "agent/tuning/fault_host.py:HostDisturbances.make": "sys.executable with -I -S: a loop that uses the standard library alone",
    "agent/tuning/fault_host.py:_qdisc": "sys.executable with -I -S, which becomes tc in an environment of constants",
    "agent/tuning/programs.py:Processes.run": "a program of the policy, in an environment of constants",
    "agent/load/ray_node.py:start": "`ray start` below the supervisor, whose environment and folder were made",
    "agent/sandbox/privileges.py:_needed": "names the file of the interpreter, and starts nothing",
    "coordinator/live/event_feed.py:RunProcess.__init__": "the caller's own coordinator: it resolves secrets from the caller's environment and relative paths",
}
"""`file:function` -> why a start there does not go through `child_process`."""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """(function, its node, node) for all nodes within functions; "" for what is outside of all."""

    def walk(node: ast.AST, path: tuple[str, ...], inside: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from walk(child, (*path, child.name), child)
            else:
                yield ".".join(path), inside, child
                yield from walk(child, path, inside)

    yield from walk(tree, (), tree)


MAY_START = re.compile(
    r"subprocess|\brunpy\b|\bfork|posix_spawn|\bexec[vl]|\bspawnv|ProcessPoolExecutor|multiprocessing|\benviron\b"
    r"|sys\.executable|['\"]-c['\"]"
)
"""One of these is in each text with a start of a process."""


def problems(text: str) -> Iterator[tuple[str, str]]:
    """(function, what) for each start of a process that is not isolated."""
    if not MAY_START.search(text):
        return
    tree = ast.parse(text)
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for function, inside, node in calls(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
                yield function, "sys.executable"
            case ast.Dict(keys=keys, values=values) if any(
                key is None and _is_environ(value) for key, value in zip(keys, values, strict=True)
            ):
                yield function, COPY
            case ast.BinOp(left=left) if _is_environ(left):
                yield function, COPY
            case (
                ast.List(elts=[ast.Constant(value=str(program)), ast.Constant(value="-c"), *_])
                | ast.Tuple(elts=[ast.Constant(value=str(program)), ast.Constant(value="-c"), *_])
            ) if program.rpartition("/")[2] in SHELLS:
                yield function, f"{program} -c"
            case ast.Call(func=func, args=arguments, keywords=keywords):
                called = names.get(written := _dotted(func), written)
                if called == "asyncio.create_subprocess_shell":
                    yield function, called
                if called == "os.environ.copy" or (called == "dict" and any(map(_is_environ, arguments))):
                    yield function, COPY
                if called.startswith("multiprocessing.") or called in STARTS:
                    given = {word.arg: ast.unparse(word.value) for word in keywords if word.arg}
                    if "cwd" not in given or not _made(given.get("env", ""), inside):
                        yield function, called


def _dotted(node: ast.AST) -> str:
    """The text of a name, with the names before it; "" for another expression."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _is_environ(node: ast.AST) -> bool:
    return _dotted(node) == "os.environ"


def _made(environment: str, inside: ast.AST) -> bool:
    """Whether the environment is that of `child_process`, by itself or by a variable of the function."""
    if MADE in environment:
        return True
    assigned = [ast.unparse(node) for node in ast.walk(inside) if isinstance(node, ast.Assign)]
    words = {node.id for node in ast.walk(ast.parse(environment or "None")) if isinstance(node, ast.Name)}
    return any(MADE in text and words & set(text.partition("=")[0].replace(",", " ").split()) for text in assigned)


def test_starts_that_are_not_isolated_are_found_and_no_others() -> None:
    found = [
        "import subprocess\nsubprocess.run(argv)",
        "import subprocess\nsubprocess.run(argv, env=child_process.environment())",
        "import subprocess\nsubprocess.Popen(argv, cwd='/', env=os.environ)",
        "from asyncio import create_subprocess_exec as start\nstart(*argv, cwd='/')",
        "import os\nos.fork()",
        "import multiprocessing\nmultiprocessing.Process()",
        "argv = [sys.executable, '-m', 'x']",
        "env = {**os.environ, 'A': 'b'}",
        "env = os.environ | {'A': 'b'}",
        "env = dict(os.environ)",
        "run(['/bin/sh', '-c', text])",
        "import asyncio\nasyncio.create_subprocess_shell('x')",
    ]
    assert [text for text in found if not list(problems(text))] == []
    isolated = [
        "import subprocess\nsubprocess.run(argv, cwd='/', env=child_process.environment())",
        "import subprocess\ndef f():\n    own, cwd = child_process.environment(), '/'\n    subprocess.run(argv, cwd=cwd, env=own)",
        "import subprocess\nsubprocess.run(argv, cwd='/', env={**child_process.environment(), 'A': 'b'})",
    ]
    assert [text for text in isolated if list(problems(text))] == []


def test_every_process_start_is_isolated_or_has_a_reason_that_is_still_needed() -> None:
    assert len(sources()) > 300
    found = [
        (f"{file}:{function}", what)
        for file, text in sources().items()
        if file != "src/proveout/core/child_process.py"
        for function, what in problems(text)
    ]
    assert [f"{place}: {what}" for place, what in found if place not in REASONS] == []
    assert sorted(REASONS.keys() - {place for place, _ in found}) == []
