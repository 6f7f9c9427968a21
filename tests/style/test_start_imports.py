"""The processes of a run, and commands that only read plans, start without libraries that they need later or never:
each takes up to 0.2 s of CPU time, in each process.

Looked for in fresh processes: the modules of each are imported from the one that imports least to the one that imports
most.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = {
    "proveout.agent.sandbox.helper_main": "cryptography grpc importlib.metadata numpy pydantic scipy yaml",
    "proveout.agent.__main__": "numpy psycopg pydantic scipy yaml",
    "proveout.agent.load.worker": "pyarrow scipy yaml",
    "proveout.coordinator.run": "jinja2 pyarrow scipy textual vl_convert",
    "proveout.cli.headless": "pyarrow scipy textual vl_convert",
    "proveout.cli.run_session": "pyarrow scipy textual vl_convert",
    "proveout.coordinator.report.html": "pyarrow scipy textual vl_convert",
    "proveout.coordinator.report.run_document": "pyarrow scipy textual vl_convert",
    "proveout.agent.engines.mysql.populate": "pyarrow scipy textual vl_convert",
}
"""Module of a process of a run -> libraries that its import must not load."""
COMMANDS = {
    "proveout.cli": "pydantic yaml",
    "proveout.dsl.workloads.kinds": "numpy psycopg apsw scipy grpc",
    "proveout.dsl.expr.evaluation": "prompt_toolkit",
    "proveout.dsl.compile.compiler": "cryptography grpc jinja2 numpy psutil psycopg pyarrow scipy sqlite3 textual",
}
"""The same for commands that read plans only: `check`, `explain`."""


@pytest.mark.parametrize("started", [RUN, COMMANDS], ids=["run", "commands"])
def test_processes_start_without_libraries_that_they_need_later_or_never(started: dict[str, str]) -> None:
    code = (
        "import importlib, sys\n"
        f"for module, absent in {started!r}.items():\n"
        "    importlib.import_module(module)\n"
        "    if module.endswith('kinds'): [*map(sys.modules[module].built_in, sys.modules[module].BUILT_IN)]\n"
        "    print(*(f'{module}: {name}' for name in absent.split() if name in sys.modules), sep='\\n', end='')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == []


def test_check_loads_no_event_loop_no_numpy_and_no_journal_and_makes_no_pool_of_threads() -> None:
    plan = Path(__file__).parents[2] / "plans" / "smoke.yaml"
    code = (
        "import os, sys\n"
        "from proveout.__main__ import main\n"
        f"sys.argv = ['proveout', 'check', {str(plan)!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    found = [name for name in ('asyncio', 'numpy', 'sqlite3') if name in sys.modules]\n"
        "    print(ended.code, found, os.environ['OPENBLAS_NUM_THREADS'], file=sys.stderr)\n"
    )
    variables = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.endswith("\n0 [] 1\n")
