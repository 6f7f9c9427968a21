"""The wheels of this installation, what hosts they fit, and wheelhouses that cannot be used."""

from __future__ import annotations

import platform
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from ssh_hosts import make_wheels

from proveout.coordinator.deploy import wheelhouse
from proveout.coordinator.deploy.wheelhouse import Wheel, Wheelhouse, WheelhouseError

GLIBC = ("glibc", "2.36")


pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """proveout and two small packages."""
    return make_wheels(tmp_path_factory.mktemp("house"), "typing-inspection", "pip")


def test_the_same_files_are_the_same_release(house: Path) -> None:
    release = wheelhouse.read(house).release
    (house / "notes.txt").write_text("not a wheel")
    assert wheelhouse.read(house).release == release


@pytest.mark.soak
def test_the_wheels_of_this_installation_have_its_versions_and_extras(tmp_path: Path) -> None:
    """`test_deploy` installs such wheels on a host. Needs a source of the dependencies."""
    try:
        made = wheelhouse.collect(["mysql"], tmp_path)
    except WheelhouseError as error:
        if not any(sign in error.what for sign in ("No matching distribution", "Connection")):
            raise
        pytest.skip("no source of the dependencies can be reached")
    assert {"proveout", "pip", "grpcio", "pymysql"} <= {one.name for one in made.wheels}
    assert not {"ray", "pytest", "psycopg", "duckdb"} & {one.name for one in made.wheels}
    assert {one.name: one.version for one in made.wheels} == {
        one.name: metadata.version(one.name) for one in made.wheels
    }
    libc = platform.libc_ver()
    assert made.objection(platform.python_version(), platform.machine(), libc) == ""


def test_the_message_without_a_network_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(
        WheelhouseError, match=r"pip cannot get the wheels of this installation: .*No matching"
    ) as raised:
        wheelhouse.collect(["postgres"], tmp_path)
    assert "--wheelhouse DIR" in raised.value.way_out


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ("", "proveout[mysql]==1.5"),
        ('{"url": "file:///src", "dir_info": {"editable": true}}', "proveout[mysql] @ file:///src"),
        (
            '{"url": "https://git.example/p", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}',
            "proveout[mysql] @ git+https://git.example/p@12ab",
        ),
    ],
)
def test_pip_gets_proveout_from_where_it_was_installed(
    origin: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: proveout\nVersion: 1.5\n")
    if origin:
        (tmp_path / "direct_url.json").write_text(origin)
    monkeypatch.setattr(wheelhouse.metadata, "distribution", lambda _: metadata.Distribution.at(tmp_path))
    assert wheelhouse._requirement(["mysql"]) == wanted


def wheel(name: str) -> Wheel:
    return Wheel(path=Path(name), size=1, unpacked=1, sha256="0" * 64)


@pytest.mark.parametrize(
    ("name", "python", "machine", "libc", "fits"),
    [
        ("a-1-py3-none-any.whl", "3.13.0", "aarch64", ("", ""), True),
        ("a-1-cp311-cp311-linux_x86_64.whl", "3.11.2", "x86_64", GLIBC, True),
        ("a-1-cp311-cp311-linux_x86_64.whl", "3.12.2", "x86_64", GLIBC, False),
        ("a-1-cp311-cp311-linux_x86_64.whl", "3.11.2", "aarch64", GLIBC, False),
        ("a-1-cp311-cp311-macosx_11_0_x86_64.whl", "3.11.0", "x86_64", GLIBC, False),
        ("a-1-cp311-abi3-manylinux_2_34_x86_64.whl", "3.12.0", "x86_64", GLIBC, True),
        ("a-1-cp311-abi3-manylinux_2_34_x86_64.whl", "3.12.0", "x86_64", ("glibc", "2.31"), False),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "3.11.0", "x86_64", ("glibc", "2.17"), True),
        ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", "3.11.0", "x86_64", GLIBC, False),
        ("a-1-cp311-cp311-linux_x86_64.whl a-1-cp312-cp312-linux_aarch64.whl", "3.12.2", "x86_64", GLIBC, False),
    ],
)
def test_wheels_fit_a_python_a_machine_and_a_c_library(
    name: str, python: str, machine: str, libc: tuple[str, str], fits: bool
) -> None:
    assert (Wheelhouse(wheels=tuple(map(wheel, name.split()))).objection(python, machine, libc) == "") is fits


def test_folders_that_are_not_wheelhouses(house: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match="0 wheels of proveout"):
        wheelhouse.read(tmp_path)
    (tmp_path / "a-1-py3-none-any.whl").write_text("no archive")
    with pytest.raises(WheelhouseError, match="not a wheel"):
        wheelhouse.read(tmp_path)
    (tmp_path / "a-1-py3-none-any.whl").unlink()
    for file in house.glob("*.whl"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (pip,) = tmp_path.glob("pip-*.whl")
    pip.rename(tmp_path / "elsewhere")
    with pytest.raises(WheelhouseError, match="no wheel of pip"):
        wheelhouse.read(tmp_path)
    (tmp_path / "elsewhere").rename(pip)
    good = wheelhouse.read(tmp_path)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("".join(f"{one.sha256}  {one.path.name}\n" for one in good.wheels))
    assert wheelhouse.read(tmp_path).release == good.release
    with zipfile.ZipFile(next(tmp_path.glob("typing*.whl")), "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(WheelhouseError, match="has another hash"):
        wheelhouse.read(tmp_path)
    for name, what in (("a-1-py3-none-any.whl", "is missing"), ("z-1-py3-none-any.whl", "is not listed")):
        sums.write_text(f"{'0' * 64}  {name}\n")
        with pytest.raises(WheelhouseError, match=what):
            wheelhouse.read(tmp_path)
    for content in (b"abc\n", b"\xff\xfe"):
        sums.write_bytes(content)
        with pytest.raises(WheelhouseError, match="not the output of sha256sum"):
            wheelhouse.read(tmp_path)
