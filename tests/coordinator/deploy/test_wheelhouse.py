"""Wheels made of installed packages, what hosts they fit, and wheelhouses that cannot be used."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from proveout.coordinator.deploy import wheelhouse
from proveout.coordinator.deploy.wheelhouse import Wheel, Wheelhouse, WheelhouseError

GLIBC = ("glibc", "2.36")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """proveout and a small package."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("proveout", "typing-inspection", "pip"):
        wheelhouse.packed(wheelhouse.distribution(name), folder)
    return folder


def test_the_closure_has_extras_and_leaves_others_out() -> None:
    names = {one.name.lower() for one in wheelhouse.closure(["postgres"])}
    assert {"proveout", "grpcio", "psycopg"} <= names
    assert not {"ray", "pytest", "pymysql", "duckdb"} & names
    assert "pymysql" in {one.name.lower() for one in wheelhouse.closure(["mysql"])}


def test_the_own_package_is_packed_with_its_data_and_without_links(house: Path) -> None:
    """`test_deploy` installs it on a host."""
    with zipfile.ZipFile(next(house.glob("proveout-*.whl"))) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    wanted = {"proveout/plans/starters/ladder.yaml", "proveout/coordinator/deploy/host_program.py"}
    assert wanted <= modes.keys()
    assert {stat.S_IFMT(mode) for mode in modes.values()} == {stat.S_IFREG}


def test_the_same_installation_gives_the_same_release(house: Path, tmp_path: Path) -> None:
    again = wheelhouse.packed(wheelhouse.distribution("proveout"), tmp_path)
    assert again.read_bytes() == (house / again.name).read_bytes()
    (house / "notes.txt").write_text("not a wheel")
    assert wheelhouse.read(house).release == wheelhouse.read(house).release


def wheel(name: str) -> Wheel:
    return Wheel(path=Path(name), size=1, unpacked=1, sha256="0" * 64)


@pytest.mark.parametrize(
    ("name", "python", "machine", "libc", "fits"),
    [
        ("a-1-py3-none-any.whl", "3.13.0", "aarch64", ("", ""), True),
        ("a-1-cp311-cp311-linux_x86_64.whl", "3.11.2", "x86_64", GLIBC, True),
        ("a-1-cp311-cp311-linux_x86_64.whl", "3.12.2", "x86_64", GLIBC, False),
        ("a-1-cp311-cp311-linux_x86_64.whl", "3.11.2", "aarch64", GLIBC, False),
        ("a-1-cp311-abi3-manylinux_2_34_x86_64.whl", "3.12.0", "x86_64", GLIBC, True),
        ("a-1-cp311-abi3-manylinux_2_34_x86_64.whl", "3.12.0", "x86_64", ("glibc", "2.31"), False),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "3.11.0", "x86_64", ("glibc", "2.17"), True),
        ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", "3.11.0", "x86_64", GLIBC, False),
    ],
)
def test_wheels_fit_a_python_a_machine_and_a_c_library(
    name: str, python: str, machine: str, libc: tuple[str, str], fits: bool
) -> None:
    assert (Wheelhouse(wheels=(wheel(name),)).objection(python, machine, libc) == "") is fits


def test_folders_that_are_not_wheelhouses(house: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match="0 wheels of proveout"):
        wheelhouse.read(tmp_path)
    (tmp_path / "a-1-py3-none-any.whl").write_text("no archive")
    with pytest.raises(WheelhouseError, match="not a wheel"):
        wheelhouse.read(tmp_path)
    (tmp_path / "a-1-py3-none-any.whl").unlink()
    for file in house.glob("*.whl"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    good = wheelhouse.read(tmp_path)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("".join(f"{one.sha256}  {one.path.name}\n" for one in good.wheels))
    assert wheelhouse.read(tmp_path).release == good.release
    with zipfile.ZipFile(next(tmp_path.glob("typing*.whl")), "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(WheelhouseError, match="has another hash"):
        wheelhouse.read(tmp_path)
    sums.write_text(f"{'0' * 64}  b-1-py3-none-any.whl\n")
    with pytest.raises(WheelhouseError, match=r"b-1-py3-none-any\.whl is missing"):
        wheelhouse.read(tmp_path)


def test_an_extra_whose_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = wheelhouse.metadata.distribution

    def absent(name: str) -> wheelhouse.metadata.Distribution:
        if name == "pymysql":
            raise wheelhouse.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(wheelhouse.metadata, "distribution", absent)
    with pytest.raises(WheelhouseError, match="pymysql is not installed here"):
        wheelhouse.closure(["mysql"])
