"""The installation: which one child processes import, with which environment, and the command that installs the packages
of an extra, from its metadata."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from proveout.core import child_process, errors

ROOT = Path(__file__).parents[2]
SHOW = "import sys, proveout; print(sys.flags.safe_path, proveout.__file__)"
ASK = f"""
import subprocess
from proveout.core import child_process
argv = [*child_process.interpreter(), "-c", {SHOW!r}]
print(subprocess.run(argv, cwd="/", env=child_process.environment(), capture_output=True, text=True))
"""
PACKAGE = ("__init__.py", "core/__init__.py", "core/child_process.py")


def copied(folder: Path) -> Path:
    """A copy of the two tested modules, as a package."""
    (folder / "proveout" / "core").mkdir(parents=True)
    for name in PACKAGE:
        shutil.copy(ROOT / "src" / "proveout" / name, folder / "proveout" / name)
    return folder


def child_of(python: str, *, cwd: Path, **variables: str) -> str:
    environment = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run([python, "-c", ASK], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bare(folder: Path) -> str:
    """A virtual environment's Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def site_of(python: str) -> Path:
    base = str(Path(python).parents[1])
    return Path(sysconfig.get_path("purelib", vars={"base": base, "platbase": base}))


@pytest.mark.parametrize("how", ["wheel", "editable", "both", "working directory"])
def test_a_child_imports_the_installation_of_its_parent(how: str, tmp_path: Path) -> None:
    python, variables, cwd = bare(tmp_path / "venv"), {}, tmp_path
    match how:
        case "wheel":
            package = copied(site_of(python))
        case "editable":
            package = copied(tmp_path / "src")
            (site_of(python) / "_editable.pth").write_text(f"{package}\n")
        case "both":  # an installed release, and a checkout before it in the path
            copied(site_of(python))
            package = copied(tmp_path / "src")
            variables = {"PYTHONPATH": str(package)}
        case _:
            package = cwd = copied(tmp_path / "src")
    output = child_of(python, cwd=cwd, **variables)
    assert f"True {package / 'proveout' / '__init__.py'}" in output, output


def test_a_child_imports_an_installation_in_the_users_site(tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False).returncode:
        pytest.skip("needs a Python 3.11 of the system's")
    named = subprocess.run(
        [python, "-c", "import site; print(site.getusersitepackages())"],
        env={"PYTHONUSERBASE": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    package = copied(Path(named.stdout.strip()))
    output = child_of(python, cwd=tmp_path, PYTHONUSERBASE=str(tmp_path))
    assert f"True {package / 'proveout' / '__init__.py'}" in output, output


def test_the_environment_is_the_default_list_and_the_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PATH": ".:/usr/bin::bin:/bin", "TMPDIR": "here", "LC_TIME": "C", "TZ": "UTC", "PGPASSWORD": "x", "LD_PRELOAD": "/x.so",
        "LD_LIBRARY_PATH": f"/evil:{sys.base_prefix}/lib:/opt/tt/lib", "TIMESTEN_HOME": "/opt/tt", "TNS_ADMIN": "/etc/tns",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    found = child_process.environment()
    assert (found["PATH"], found["LC_TIME"], found["TZ"]) == ("/usr/bin:/bin", "C", "UTC")
    assert found["LD_LIBRARY_PATH"] == f"{sys.base_prefix}/lib"
    assert not found.keys() & {"PGPASSWORD", "LD_PRELOAD", "TNS_ADMIN", "TIMESTEN_HOME", "TMPDIR"}
    timesten = child_process.environment(*child_process.of_engine("timesten"))
    assert (
        timesten["LD_LIBRARY_PATH"] == f"{sys.base_prefix}/lib:/opt/tt/lib" and timesten["TIMESTEN_HOME"] == "/opt/tt"
    )
    monkeypatch.setenv("PROVEOUT_PASS_ENV", "TNS_ADMIN PGPASSWORD,NOT_SET")
    named = child_process.environment(without={"PGPASSWORD"})
    assert named["TNS_ADMIN"] == "/etc/tns" and "PGPASSWORD" not in named
    assert named["PROVEOUT_PASS_ENV"] == "TNS_ADMIN PGPASSWORD,NOT_SET", "children of children get the same"
    assert {"LD_PRELOAD", "TIMESTEN_HOME"} <= set(child_process.left_out())
    assert not set(child_process.left_out()) & {"TNS_ADMIN", "PGPASSWORD", "PATH"}


def test_pythonpath_reaches_children_only_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/drivers:relative")
    monkeypatch.delenv("PROVEOUT_PASS_ENV", raising=False)
    assert "/opt/drivers" not in child_process.environment().get("PYTHONPATH", "")
    monkeypatch.setenv("PROVEOUT_PASS_ENV", "PYTHONPATH")
    assert child_process.environment()["PYTHONPATH"].endswith("/opt/drivers")
    assert "-I" not in child_process.interpreter() and "-P" in child_process.interpreter()


def test_an_agent_reduces_its_own_environment() -> None:
    code = "import os; from proveout.core import child_process as c; c.keep_only(); print(sorted(os.environ))"
    environment = {"PATH": "/bin:.", "PGPASSWORD": "x", "TZ": "UTC", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['GRPC_VERBOSITY', 'LC_CTYPE', 'OPENBLAS_NUM_THREADS', 'PATH', 'TZ']", (
        "Python itself sets LC_CTYPE"
    )


REQUIRES = [
    "numpy>=2.0",
    "psycopg[binary]>=3.2; extra == 'postgres'",
    'proveout[postgres]; extra == "embedded"',
    'pgserver>=0.6; extra == "embedded"',
    'proveout[embedded,postgres]; extra == "all"',
]


def test_the_command_of_an_extra_names_the_packages_of_those_that_it_includes_once_and_never_proveout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for extra in errors.requirements():
        words = shlex.split(errors.install_command(f"proveout[{extra}]"))
        assert words[:2] == ["pip", "install"] and len(words) > 2
        assert not [word for word in words if word.startswith("proveout")]
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)
    both = ("psycopg[binary]>=3.2", "pgserver>=0.6")
    assert errors.requirements() == {"postgres": both[:1], "embedded": both, "all": both}
    assert errors.install_command("proveout[embedded]") == "pip install 'psycopg[binary]>=3.2' 'pgserver>=0.6'"
    assert errors.install_command("some-engine>=2") == "pip install 'some-engine>=2'"
