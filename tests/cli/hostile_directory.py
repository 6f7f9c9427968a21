"""Hostile files of a directory and variables of an environment in which `proveout run` is started: the corpus, as data,
and the detection of effects.

Flow: `lay(folder)` writes every file of `VECTORS` -> `variables(folder)` is the environment of the run -> each file that
is executed or imported appends `name pid` to `CANARY`; an inherited variable is found in `/proc/PID/environ`. Used by
`test_hostile_directory.py`; can be imported by longer tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CANARY = "canary.log"
SECRET = "canary-7Hq2"
"""Part of the value of each variable that a child must not inherit."""

WRITE_C = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
    char line[64];
    int fd = open("%s", O_WRONLY | O_APPEND | O_CREAT, 0666);
    int size = snprintf(line, sizeof line, "ld-preload %%d\\n", getpid());
    if (fd >= 0) { if (write(fd, line, size) < 0) {} close(fd); }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One attempt. `files`: path below the folder -> content; `{write}` is a statement that records the vector's name and
    process, `{folder}` the folder. `variables`: set in the caller's environment. `by_coordinator`: effects in the
    coordinator itself are the caller's own choice.
    """

    name: str
    tries: str
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    by_coordinator: bool = False


def _module(name: str) -> Vector:
    return Vector(name=name, tries="is imported in place of the real module", files={f"plan/{name}.py": "{write}\n"})


MODULES = (
    *(
        "queue",
        "grpc",
        "psutil",
        "secrets",
        "sqlite3",
        "ssl",
        "socket",
        "subprocess",
        "tempfile",
        "logging",
        "json",
        "random",
    ),
    *(
        "typer",
        "yaml",
        "numpy",
        "cryptography",
        "psycopg",
        "apsw",
        "google",
        "site",
        "proveout_agent",
        "hashlib",
        "uuid",
        "shutil",
    ),
)
SHELL = "#!/bin/sh\necho {name} $$ >> {folder}/" + CANARY + "\nexit 1\n"

VECTORS = (
    *map(_module, MODULES),
    Vector(name="asyncio", tries="a package in place of the real one", files={"plan/asyncio/__init__.py": "{write}\n"}),
    Vector(name="proveout-part", tries="a part of proveout itself", files={"plan/agent/__init__.py": "{write}\n"}),
    Vector(
        name="cwd-sitecustomize", tries="site imports it at the start", files={"plan/sitecustomize.py": "{write}\n"}
    ),
    Vector(
        name="cwd-usercustomize", tries="site imports it at the start", files={"plan/usercustomize.py": "{write}\n"}
    ),
    Vector(name="cwd-pth", tries="site executes a line of it", files={"plan/hostile.pth": "import os; {write}\n"}),
    Vector(
        name="pythonpath",
        tries="PYTHONPATH leads to a sitecustomize and a usercustomize",
        files={"path/sitecustomize.py": "{write}\n", "path/usercustomize.py": "{write}\n"},
        variables={"PYTHONPATH": "{folder}/path"},
        by_coordinator=True,
    ),
    Vector(
        name="userbase",
        tries="PYTHONUSERBASE leads to a user site",
        files={
            f"user/lib/python3.{minor}/site-packages/hostile.pth": "import os; {write}\n" for minor in range(11, 15)
        },
        variables={"PYTHONUSERBASE": "{folder}/user"},
        by_coordinator=True,
    ),
    Vector(
        name="pythonstartup",
        tries="is executed by an interactive Python",
        files={"startup.py": "{write}\n"},
        variables={"PYTHONSTARTUP": "{folder}/startup.py"},
    ),
    Vector(
        name="ld-preload",
        tries="a library is loaded before all others",
        files={"preload.c": WRITE_C.replace("%s", "{folder}/" + CANARY).replace("%%", "%")},
        variables={"LD_PRELOAD": "{folder}/preload.so"},
        by_coordinator=True,
    ),
    Vector(
        name="ld-library-path",
        tries="the libraries of a client are looked for there",
        variables={"LD_LIBRARY_PATH": f"{{folder}}/{SECRET}"},
    ),
    Vector(
        name="path",
        tries="programs are looked for in the working directory",
        files={
            f"plan/{name}": SHELL for name in ("postgres", "initdb", "mariadbd", "fio", "python", "python3", "uname")
        },
        variables={"PATH": ".:" + "{PATH}"},
    ),
    *(
        Vector(name=name.lower(), tries="a secret of the caller's is inherited", variables={name: SECRET})
        for name in ("PGPASSWORD", "MYSQL_PWD", "CI_SECRET", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "RAY_AUTH_TOKEN")
    ),
    *(
        Vector(name=name.lower(), tries="a database client is led elsewhere", variables={name: f"{{folder}}/{SECRET}"})
        for name in (
            *("PGSERVICEFILE", "PGPASSFILE", "PGSYSCONFDIR", "PGSSLROOTCERT", "MYSQL_HOME", "MYSQL_TEST_LOGIN_FILE"),
            *("TNS_ADMIN", "ORACLE_HOME", "ODBCINI", "ODBCSYSINI", "TIMESTEN_HOME", "OPENSSL_CONF", "KRB5_CONFIG"),
        )
    ),
    *(
        Vector(name=name.lower(), tries="a database client is led elsewhere", variables={name: SECRET})
        for name in (
            "PGHOST",
            "PGHOSTADDR",
            "PGSERVICE",
            "PGOPTIONS",
            "PGDATABASE",
            "MYSQL_HOST",
            "TWO_TASK",
            "http_proxy",
        )
    ),
    Vector(
        name="home",
        tries="files of the home directory lead a database client elsewhere",
        files={
            "home/.my.cnf": f"[client]\npassword={SECRET}\nhost=nowhere\n",
            "home/.pgpass": f"*:*:*:*:{SECRET}\n",
            "home/.pg_service.conf": "[x]\nhost=nowhere\n",
        },
        variables={"HOME": "{folder}/home"},
    ),
)
"""`site` and the imports of the interpreter before proveout's first line (`BEFORE`) cannot be excluded for `python -m
proveout`.
"""

BEFORE = ("importlib", "contextlib", "functools", "types", "warnings", "collections", "operator", "keyword", "reprlib")
"""Modules that `python -m` itself imports from the working directory: use the `proveout` command, or `python -P -m
proveout`.
"""


def lay(folder: Path) -> None:
    """Write all files, world-readable; compile the C files when a compiler is installed."""
    (folder / CANARY).touch()
    (folder / CANARY).chmod(0o666)
    for vector in VECTORS:
        note = f"open({str(folder / CANARY)!r}, 'a').write('{vector.name} %d\\n' % __import__('os').getpid())"
        for name, text in vector.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(
                text.replace("{write}", note).replace("{folder}", str(folder)).replace("{name}", vector.name)
            )
            place.chmod(0o600 if place.name == ".pgpass" else 0o755)
    compiler = shutil.which("cc")
    if compiler:
        argv = [compiler, "-shared", "-fPIC", "-o", str(folder / "preload.so"), str(folder / "preload.c")]
        subprocess.run(argv, check=True)


def variables(folder: Path) -> dict[str, str]:
    """The caller's environment with all hostile variables."""
    found = dict(os.environ)
    for vector in VECTORS:
        for name, value in vector.variables.items():
            found[name] = value.replace("{folder}", str(folder)).replace("{PATH}", os.environ.get("PATH", ""))
    if not (folder / "preload.so").exists():
        found["LD_PRELOAD"] = ""
    return found


def obeyed(folder: Path) -> list[tuple[str, int]]:
    """(vector, process) for each file that was executed or imported."""
    lines = (folder / CANARY).read_text().splitlines()
    return [(name, int(pid)) for name, pid in (line.split() for line in lines)]


def inherited(environ: bytes, given: Mapping[str, str]) -> list[str]:
    """The variables of the vectors that an environment (the bytes of `/proc/PID/environ`) has inherited from `given`."""
    names = {name for vector in VECTORS for name in vector.variables} - {"PATH", "HOME"}
    found = [entry.decode(errors="replace") for entry in environ.split(b"\0") if entry]
    wrong = [entry for entry in found if SECRET in entry or entry in {f"{name}={given[name]}" for name in names}]
    paths = [entry for entry in found if entry.startswith("PATH=")]
    return wrong + [path for path in paths if not all(part.startswith("/") for part in path[5:].split(":"))]
