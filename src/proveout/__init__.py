"""proveout: a declarative test-plan language with a distributed agent fabric that proves out database systems.

`proveout.run(plan)` runs a plan, `proveout.start(plan)` starts one, `proveout.open_run(…)` opens a run,
`proveout.runs(…)` reads a table of all runs; see `proveout.api`, which is loaded at its first use.
"""

import atexit
import gc
import os
import sys


def collect_less_garbage() -> None:
    """Make fewer passes of the garbage collector; its defaults take a sixth of the CPU time of a short run.

    Most of it goes into imports, and into the last passes when a process ends, which frees all memory anyway. For
    processes of proveout only.
    """
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


def restrain_libraries() -> None:
    """Keep the linear algebra of numpy from making a pool of threads, unless the user has set its size: nothing uses
    it, and its start takes some 50 ms of CPU time; and pydantic from looking for plugins among the installed packages.
    Before both are imported.

    For processes of proveout only; `child_process.ALWAYS` does the former for agents, workers and helpers.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def forget_working_directory() -> None:
    """Take the working directory off the search path: modules beside a plan must not be imported by a command that may
    run as root.

    It stays when it holds this package. For the `proveout` command only: notebooks and tests keep their search path.
    """
    try:
        here = os.path.realpath(".")
    except FileNotFoundError:  # it was removed, and nothing can be imported from it
        return
    if here != os.path.realpath(f"{__file__}/../.."):
        sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]


# `python -m proveout` looks for its `__main__` now, in the working directory first. Before all other imports.
if sys.argv[:1] == ["-m"]:
    forget_working_directory()
    collect_less_garbage()

import importlib  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from proveout.api import Chart as Chart
    from proveout.api import Run as Run
    from proveout.api import StartedRun as StartedRun
    from proveout.api import open_run as open_run
    from proveout.api import run as run
    from proveout.api import runs as runs
    from proveout.api import start as start

__version__ = "0.2.0"

# gRPC reads this once, when it is imported: below `ERROR` it writes a line of its own for each stranger whose TLS
# handshake
# fails, into whatever the terminal shows. Sessions report what matters themselves. A value that the user has set stays.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

_API = ("Chart", "Run", "StartedRun", "open_run", "run", "runs", "start")


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name in _API:
            return getattr(importlib.import_module("proveout.api"), name)
        raise AttributeError(f"module 'proveout' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*_API, "__version__"]
