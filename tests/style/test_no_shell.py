"""No module passes text to a shell, or foreign data to a function that executes it: a check of every call in the
syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "coordinator", "dsl", "proto", "src/proveout/cli", "src/proveout/pytest_plugin", "tui")
CALLS = frozenset(
    {
        *("os.system", "os.popen", "os.spawnl", "os.spawnlp", "os.spawnvp", "os.execlp", "os.execvp", "pty.spawn"),
        *("subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
        *(
            "pickle.load",
            "pickle.loads",
            "marshal.load",
            "marshal.loads",
            "shelve.open",
            "dill.loads",
            "cloudpickle.loads",
        ),
        *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "eval", "exec"),
    }
)
SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})


def problems(text: str) -> Iterator[str]:
    """Yield the forbidden calls of a module as `line: call`."""
    tree = ast.parse(text)
    names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in ast.walk(tree)
             if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if names.get(called, called) in CALLS:
                yield f"{node.lineno}: {called}"
            for word in node.keywords:
                if word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False):
                    yield f"{node.lineno}: shell={ast.unparse(word.value)}"
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 1:
            first, second = node.elts[:2]
            if all(isinstance(each, ast.Constant) for each in (first, second)):
                program, option = getattr(first, "value", ""), getattr(second, "value", "")
                if option == "-c" and str(program).rpartition("/")[2] in SHELLS:
                    yield f"{node.lineno}: {program} -c"


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system('x')",
        "from subprocess import getoutput as g\ng('x')",
        "import subprocess\nsubprocess.run('x', shell=True)",
        "import subprocess\nsubprocess.run('x', shell=flag)",
        "run(['/bin/sh', '-c', text])",
        "eval('1')",
        "import pickle\npickle.loads(b'')",
    ],
)
def test_forbidden_calls_are_found(text: str) -> None:
    assert list(problems(text))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_have_no_forbidden_calls(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    assert [f"{file}:{one}" for file in files for one in problems(file.read_text())] == []
