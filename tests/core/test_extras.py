"""The command that installs the packages of an extra, from the metadata of the installation."""

from __future__ import annotations

import shlex
from importlib import metadata

import pytest

from proveout.core import errors

REQUIRES = [
    "numpy>=2.0",
    "psycopg[binary]>=3.2; extra == 'postgres'",
    'proveout[postgres]; extra == "embedded"',
    'pgserver>=0.6; extra == "embedded"',
    'proveout[embedded,postgres]; extra == "all"',
]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)


@pytest.mark.usefixtures("installed")
def test_an_extra_has_the_requirements_of_the_extras_that_it_includes_each_once() -> None:
    both = ("psycopg[binary]>=3.2", "pgserver>=0.6")
    assert errors.requirements() == {"postgres": both[:1], "embedded": both, "all": both}


@pytest.mark.usefixtures("installed")
def test_the_command_names_packages_and_never_proveout() -> None:
    assert errors.install_command("proveout[embedded]") == "pip install 'psycopg[binary]>=3.2' 'pgserver>=0.6'"
    assert errors.install_command("some-engine>=2") == "pip install 'some-engine>=2'"


def test_the_command_of_every_extra_of_this_release_names_packages() -> None:
    for extra in errors.requirements():
        words = shlex.split(errors.install_command(f"proveout[{extra}]"))
        assert words[:2] == ["pip", "install"]
        assert len(words) > 2
        assert not [word for word in words if word.startswith("proveout")]
