"""A release: sdist -> wheel -> clean environment -> the first plan runs there, with the compiled hot path and without.

The sdist and the wheel hold what the links of `src/proveout` lead to. The wheel of the sdist is that of the tree, byte
for byte. Nothing promises that a package index has proveout.

A plan runs in an environment of its own, with HOME and PATH as its only variables. Installing the dependencies there is
skipped where pip cannot reach any source of them.
"""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import vocabulary

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dsl", "coordinator", "agent", "proto", "tui", "plans")
BUILD = (sys.executable, "-m", "build", "--no-isolation")
PROMISE = re.compile(r"pip install (-\S+ )*['\"]?proveout(?!\S* @)")
"""A command that takes proveout from an index; `proveout @ git+…` does not."""


def _run(*argv: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=600, check=False, env=environment)


def _built(tree: Path, out: Path, *what: str, **variables: str) -> Path:
    """Build, and return the newest archive in `out`."""
    made = _run(*BUILD, *what, "--outdir", str(out), cwd=tree, **variables)
    assert made.returncode == 0, made.stdout + made.stderr
    return max(out.iterdir(), key=lambda file: file.stat().st_mtime_ns)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(ROOT, tmp_path_factory.mktemp("sdist"), "--sdist")


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        checked: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        archive.extractall(folder, **checked)
    (tree,) = folder.iterdir()
    return tree


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(unpacked, tmp_path_factory.mktemp("wheel"), "--wheel")


@pytest.fixture(scope="module")
def pure(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(unpacked, tmp_path_factory.mktemp("pure"), "--wheel", PROVEOUT_PURE_PYTHON="1")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel and its dependencies, without extras."""
    folder = tmp_path_factory.mktemp("machine") / "venv"
    made = _run(sys.executable, "-m", "venv", "--without-pip", str(folder), cwd=folder.parent)
    assert made.returncode == 0, made.stderr
    install = _install(folder, "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    if any(sign in install.stderr for sign in ("Failed to establish a new connection", "name resolution")):
        pytest.skip("no source of the dependencies can be reached")
    assert install.returncode == 0, install.stderr
    return folder


def _install(folder: Path, *what: str) -> subprocess.CompletedProcess[str]:
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check")
    return _run(*pip, "install", "--quiet", "--no-compile", *what, cwd=folder.parent)


def _alone(environment: Path, *argv: str, cwd: Path) -> str:
    """Run a command with nothing but HOME and PATH; its output."""
    path = f"PATH={environment / 'bin'}:/usr/bin:/bin"
    done = _run("env", "-i", f"HOME={cwd}", path, *argv, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
def test_the_archives_hold_the_files_of_the_tree(sdist: Path, wheel: Path, pure: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert [member.name for member in archive if not (member.isfile() or member.isdir())] == [], "links"
    tracked = _run("git", "ls-files", *FOLDERS, cwd=ROOT)
    ours = _built(ROOT, tmp_path, "--wheel")
    assert ours.name == wheel.name
    with zipfile.ZipFile(ours) as one, zipfile.ZipFile(wheel) as other, zipfile.ZipFile(pure) as python:
        names = set(other.namelist())
        assert {f"proveout/{name}" for name in tracked.stdout.split()} - names == set()
        assert one.namelist() == other.namelist()
        assert [name for name in names if one.read(name) != other.read(name)] == []
        compiled = {name for name in names if name.endswith(".so")}
        assert names - set(python.namelist()) == compiled
        assert pure.name.endswith("-py3-none-any.whl")
        assert bool(compiled) is not wheel.name.endswith("-py3-none-any.whl"), "pure without a compiler"
        (licence,) = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
        assert other.read(licence) == (ROOT / "LICENSE").read_bytes()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        assert b"\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n" in other.read(metadata)


@pytest.mark.soak
def test_the_first_plan_runs_in_a_clean_environment(environment: Path, wheel: Path, pure: Path, tmp_path: Path) -> None:
    """Plans, schema, starters; starter -> check -> run -> report; then the same with the wheel that has no compiled
    modules. Without extras a run keeps samples and has the numbers of figures; the package of an extra is named with the
    command that installs it."""
    (plans,) = environment.glob("lib/python*/site-packages/proveout/plans")
    assert _alone(environment, "proveout", "schema", cwd=tmp_path) == (ROOT / "plans/plan.schema.json").read_text()
    listed = _alone(environment, "proveout", "new", cwd=tmp_path)
    assert all(starter.stem in listed for starter in (ROOT / "plans" / "starters").glob("*.yaml"))
    _alone(environment, "proveout", "check", str(plans / "hlr-cache-embedded.yaml"), cwd=tmp_path)
    extra = ("pyarrow", "scipy", "textual", "vl_convert")
    find = f"import importlib.util as u; print(*(n for n in {extra} if u.find_spec(n)))"
    assert _alone(environment, "python", "-c", find, cwd=tmp_path).split() == []

    _alone(environment, "proveout", "new", "sqlite", "first.yaml", cwd=tmp_path)
    hot_path = "not compiled" if wheel.name.endswith("-py3-none-any.whl") else "compiled"
    for installed, expected in ((wheel, hot_path), (pure, "not compiled")):
        if installed is pure:
            again = _install(environment, "--no-deps", "--force-reinstall", str(pure))
            assert again.returncode == 0, again.stderr
        assert f"hot path                {expected}" in _alone(environment, "proveout", "doctor", cwd=tmp_path)
        short = ("-p", "measure=1s", "-p", "threads=1", "-p", "subscribers=1_000")
        said = _alone(environment, "proveout", "run", "first.yaml", "--headless", *short, cwd=tmp_path)
        assert re.search(r"^PASS +no-errors", said, re.MULTILINE)
        run = max((tmp_path / "runs").iterdir())
        report = (run / "report.html").read_text()
        assert [
            part for part in ("<svg", "<style", "<figure", "a picture needs vl_convert") if part not in report
        ] == []
        assert sorted(run.glob("samples/*.load.jsonl.gz"))
    path = f"PATH={environment / 'bin'}:/usr/bin:/bin"
    for words, package in (
        (("report", str(run), "--parquet", "rows.parquet"), "pyarrow"),
        (("watch", str(run)), "textual"),
    ):
        done = _run("env", "-i", f"HOME={tmp_path}", path, "proveout", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert re.search(rf"needs {package}, .*\n  Install it with: pip install '{package}>=", done.stderr)


def test_nothing_promises_that_an_index_has_the_program() -> None:
    bad = ("pip install proveout", "pip install -U 'proveout[all]'", 'pip install "proveout"')
    assert [text for text in bad if not PROMISE.search(text)] == []
    files = [name for name in vocabulary.select_files([]) if name != "tests/style/test_packaging.py"]
    texts = ((name, (ROOT / name).read_text(errors="replace")) for name in (*files, "constraints.txt"))
    assert [f"{name}: {found[0]}" for name, text in texts for found in PROMISE.finditer(text)] == []


def test_every_extra_is_on_the_page_about_installing_and_every_dependency_has_one_tested_version() -> None:
    """Each is in constraints.txt, or pinned by its extra because it cannot be installed with those versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    rows = re.findall(r"^\| ([`\w, ]+) \|", (ROOT / "docs/guide/install.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(extras)
    groups = [project["dependencies"], *extras.values()]
    required = {one for group in groups for one in group if not one.startswith("proveout[")}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = {_package(line) for line in lines if "==" in line}
    assert [one for one in sorted(required) if _package(one) not in tested and "==" not in one] == []


def _package(requirement: str) -> str:
    return re.split(r"[\[=<>~!; ]", requirement)[0].lower().replace("_", "-")
