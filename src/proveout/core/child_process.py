"""Start child processes of proveout with a clean environment, and set how their garbage is collected.

Flow: `python(module, …)` -> argv; `environment(…)` -> variables; `DIRECTORY` -> working directory.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import re
import site
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

# Argv. `-I` keeps out the working directory, `PYTHONPATH` and every other `PYTHON*` variable, and the user's own site
# folder with its `usercustomize`. An installation that `-I` would not find is named to the child instead: the user's
# site folder when proveout is installed there (`PYTHONUSERBASE`), otherwise the one folder that holds the package
# (`PYTHONPATH`), as for a checkout. `.pth` files and `sitecustomize` of the installation itself count as the
# installation. `PROVEOUT_PASS_ENV=PYTHONPATH` gives children the absolute folders of `PYTHONPATH` after all, for a
# driver that is not installed.
#
# Environment. Nothing is inherited but `NAMES` and `LC_*`. So a child has no password, token or CI secret of its
# starter, no `LD_PRELOAD`, and none of the variables that redirect a database client (`PGSERVICEFILE`, `PGPASSFILE`,
# `TNS_ADMIN`, `ODBCINI` …). `PROVEOUT_PASS_ENV` names further ones, separated by commas: the owner of a permanent agent
# sets it in the agent's unit, a caller of `proveout run` for the local agents of that run. A plan cannot set it.
# `ALWAYS` is set in all.

DIRECTORY = "/"
"""The working directory of child processes: only root writes there. Paths in tasks are absolute."""

LOAD_WORKER_NAME = "proveout-load"
"""The process name of load workers, as `ps` and `top` show it; the `os` capture separates their CPU time by it."""

PASS_ENV = "PROVEOUT_PASS_ENV"  # noqa: S105 -- the name of a variable

NAMES: Mapping[str, str] = {
    "GRPC_VERBOSITY": "how much gRPC writes to the log",
    "HOME": "the state and the client certificates of an ordinary user; `unprivileged.environment` replaces root's",
    "LANG": "messages of programs",
    "LD_LIBRARY_PATH": "only folders of the Python installation itself, and of TimesTen's client where that is wanted",
    "LOGNAME": "the database user of a dsn that names none",
    "PATH": "where programs are found; only absolute folders",
    "PROVEOUT_PASS_ENV": "children of children get the same",
    "PROVEOUT_PURE_PYTHON": "leave the compiled hot path aside",
    "SSL_CERT_DIR": "certificate authorities of the host, for captures from `https://`",
    "SSL_CERT_FILE": "the same, as one file",
    "TMPDIR": "where temporary folders are made; absolute",
    "TZ": "times in logs",
    "USER": "as LOGNAME",
    "XDG_STATE_HOME": "where an agent of an ordinary user keeps its state",
}
"""The variables that a child inherits, with the reason; `LC_*` as well."""

ALWAYS: dict[str, str] = {"OPENBLAS_NUM_THREADS": "1"}
"""Set in every child, unless `PROVEOUT_PASS_ENV` names it: nothing uses the thread pool of numpy's linear algebra,
which costs memory and some 15 ms of CPU time at the start of each process."""

RAY = (
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_TLS_CA_CERT",
    "RAY_TLS_SERVER_CERT",
    "RAY_TLS_SERVER_KEY",
    "RAY_TMPDIR",
    "RAY_USE_TLS",
)
"""The credentials for an existing Ray cluster; only agents and drivers that join one receive them."""

ENGINES: Mapping[str, tuple[str, ...]] = {
    "oracle": ("PROVEOUT_ORACLE_CLIENT",),
    "timesten": ("LD_LIBRARY_PATH", "TIMESTEN_HOME"),
}
"""Further variables for processes that use an engine's client: the folder of Oracle's client libraries, and those that
TimesTen's `ttenv` sets."""

_CLIENT = re.compile(
    r"(PG[A-Z_]+|MYSQL_\w+|MARIADB_\w+|TNS_ADMIN|TWO_TASK|ORACLE_\w+|TIMESTEN_\w+|ODBC\w+|LD_PRELOAD|LD_LIBRARY_PATH|LIBMYSQL\w+)"
)
_NO_BYTECODE = ("-B",) if sys.dont_write_bytecode else ()
"""A child writes no bytecode where its starter writes none."""
_WORD = re.compile(r"[^\s,]+")


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """Argv of `python -m module arguments…`, isolated."""
    return (*interpreter(), "-m", module, *arguments)


def interpreter() -> tuple[str, ...]:
    """This interpreter with the flags that isolate it; `-m` or `-c` follows."""
    flags = _origin()[0]
    if "PYTHONPATH" in passed_on():
        flags = tuple(flag if flag != "-I" else "-P" for flag in flags)
    return (sys.executable, *flags, *_NO_BYTECODE)


def coordinator(*arguments: str) -> tuple[str, ...]:
    """Argv of a `proveout` command for the same user and terminal. It keeps the caller's `PYTHONPATH`, as the caller's
    own command does."""
    return (sys.executable, "-P", *_NO_BYTECODE, "-m", "proveout", *arguments)


def environment(*more: str, without: Collection[str] = ()) -> dict[str, str]:
    """The environment of a child: `ALWAYS`, `NAMES`, `LC_*`, what `PROVEOUT_PASS_ENV` names, and `more`. Never those in
    `without`."""
    wanted = NAMES.keys() | passed_on() | set(more)
    found = {name: value for name, value in os.environ.items() if name in wanted or name.startswith("LC_")}
    found |= {name: _absolute(found[name]) for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in found}
    if "LD_LIBRARY_PATH" in found and "LD_LIBRARY_PATH" not in passed_on():
        found["LD_LIBRARY_PATH"] = _libraries(found["LD_LIBRARY_PATH"], found.get("TIMESTEN_HOME", ""))
    found = {name: value for name, value in (ALWAYS | found).items() if value and name not in without}
    return _leading_here(found)


def of_engine(engine: str) -> tuple[str, ...]:
    """The further variables for processes that connect to systems of an engine."""
    return ENGINES.get(engine, ())


def coordinator_environment() -> dict[str, str]:
    """The environment of such a command: all of the caller's, as it resolves the secrets of a plan."""
    return _leading_here(dict(os.environ))


def _leading_here(variables: dict[str, str]) -> dict[str, str]:
    """With what leads a child to this installation, before what is there."""
    own = _origin()[1].items()
    return variables | {name: os.pathsep.join(filter(None, (value, variables.get(name)))) for name, value in own}


def passed_on() -> frozenset[str]:
    """The variables that `PROVEOUT_PASS_ENV` names."""
    return frozenset(_WORD.findall(os.environ.get(PASS_ENV, "")))


def left_out(*more: str) -> tuple[str, ...]:
    """Names of variables that are set, that database clients would read, and that children do not get."""
    kept = environment(*more)
    return tuple(sorted(name for name in os.environ if _CLIENT.fullmatch(name) and name not in kept))


def left_out_message(names: Collection[str]) -> str:
    """The log message about `left_out`."""
    return f"not passed on to processes of the agent: {', '.join(names)}; name those that it needs in {PASS_ENV}"


def keep_only(*more: str) -> None:
    """Reduce the environment of this process itself to what `environment` gives, so that work done in it finds the
    same."""
    kept = environment(*more)
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    os.environ.update(kept)


def _absolute(folders: str) -> str:
    """A search path without the entries that depend on the working directory."""
    return os.pathsep.join(folder for folder in folders.split(os.pathsep) if folder.startswith("/"))


def _libraries(folders: str, timesten: str) -> str:
    """Of a library path the folders below the Python installation, which may have a shared libpython, and below
    TimesTen's home."""
    prefixes = tuple(f"{os.path.realpath(home)}/" for home in (sys.base_prefix, timesten) if home.startswith("/"))
    return os.pathsep.join(
        folder for folder in folders.split(os.pathsep) if f"{os.path.realpath(folder)}/".startswith(prefixes)
    )


@functools.cache
def _origin() -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Flags and variables with which a child finds this very installation; see the module."""
    root = os.path.realpath(Path(__file__).parents[2])
    if sys.flags.isolated or any(_leads_to(root, folder) for folder in site.getsitepackages()):
        return ("-I",), {}
    if site.ENABLE_USER_SITE and _leads_to(root, site.getusersitepackages()):
        return ("-P",), {"PYTHONUSERBASE": site.getuserbase()}
    return ("-P", "-s"), {"PYTHONPATH": root}


def _leads_to(root: str, folder: str) -> bool:
    """Whether a site folder is where the package is, or names it in a `.pth` file (an editable installation)."""
    if os.path.realpath(folder) == root:
        return True
    try:
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in Path(folder).glob("*.pth")]
    except OSError:
        return False
    return any(os.path.realpath(line) == root for text in texts for line in text.splitlines() if line.startswith("/"))


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage seldom: with the default threshold, a coordinator of a thousand agents spends a sixth of its time
    in the collector.

    May be nested: the first exit restores the thresholds that it found.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def release_memory() -> None:
    """Return unused memory to the operating system: cycles of objects, Arrow's pool, the C library's arenas. Takes
    milliseconds.

    Without it, a long run keeps the memory of its largest iteration in each thread.
    """
    gc.collect()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # the C library lacks malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
