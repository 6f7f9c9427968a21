"""The wheels that `proveout deploy` copies to hosts: those of this installation, which pip gets, or a folder of the
user's.

Flow: `collect(extras, folder)` -> pip makes the wheel of proveout from where this one was installed, and downloads its
dependencies at the versions that are here; or the folder of `--wheelhouse` -> `read(folder)` -> `Wheelhouse`. Sources:
PEP 425 (tags in file names), PEP 610 (direct_url.json).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from proveout.core import child_process
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError

NAME = "proveout"
INSTALLER = "pip"
"""The installer goes along: hosts need neither pip nor ensurepip."""
SUMS = "SHA256SUMS"
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_")
_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)


class WheelhouseError(ProveoutError):
    """A wheelhouse cannot be made or used."""

    exit_code = 2


@record
class Wheel:
    """A wheel: its file, size in bytes, unpacked size in bytes, and SHA-256 in hexadecimal."""

    path: Path
    size: int
    unpacked: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the distribution, normalised."""
        return _normal(_parts(self.path)["name"])

    @property
    def version(self) -> str:
        return _parts(self.path)["version"]

    @property
    def pythons(self) -> frozenset[str]:
        """The versions of Python that it is for, as its tag has them: cp311, py3, abi3 counts as py3."""
        parts = _parts(self.path)
        return frozenset(("py3",) if parts["abi"].endswith("abi3") else parts["python"].split("."))

    @property
    def platform(self) -> str:
        """Its platform tags, joined by dots."""
        return _parts(self.path)["platform"]


@record
class Wheelhouse:
    """All wheels of an installation."""

    wheels: tuple[Wheel, ...]

    @property
    def version(self) -> str:
        """The version of proveout in it."""
        return next(wheel.version for wheel in self.wheels if wheel.name == NAME)

    @property
    def release(self) -> str:
        """The name of the environment that is made of it: the version, and a digest of all hashes."""
        text = "\n".join(f"{wheel.path.name} {wheel.sha256}" for wheel in self.wheels)
        return f"{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def size(self) -> int:
        """Bytes to copy."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def unpacked(self) -> int:
        """Bytes of the installed files, without bytecode."""
        return sum(wheel.unpacked for wheel in self.wheels)

    @property
    def requirements(self) -> str:
        """The requirements file: exact versions with their hashes."""
        found: dict[tuple[str, str], list[str]] = {}
        for wheel in self.wheels:
            if wheel.name != INSTALLER:
                found.setdefault((wheel.name, wheel.version), []).append(f"--hash=sha256:{wheel.sha256}")
        return "".join(f"{name}=={version} {' '.join(hashes)}\n" for (name, version), hashes in sorted(found.items()))

    def objection(self, python: str, machine: str, libc: Sequence[str]) -> str:
        """The reason why it cannot be installed for a Python (`3.11.2`) on a machine (`x86_64`) with a C library
        (`("glibc", "2.36")`); "" when it can."""
        tags = {f"cp{''.join(python.split('.')[:2])}", "py3"}
        by_name: dict[str, list[Wheel]] = {}
        for wheel in self.wheels:
            by_name.setdefault(wheel.name, []).append(wheel)
        for name, wheels in by_name.items():
            fitting = [wheel for wheel in wheels if wheel.pythons & tags]
            if not fitting:
                return f"{name} is for {' or '.join(sorted(set().union(*(wheel.pythons for wheel in wheels))))}"
            if not any(_is_for(wheel.platform, machine, libc) for wheel in fitting):
                return f"{name} is for {fitting[0].platform}"
        return ""


def _is_for(platform: str, machine: str, libc: Sequence[str]) -> bool:
    """Whether a platform tag, of several joined by dots, is for a machine. Source: PEP 600."""
    for tag in platform.split("."):
        needed = _GLIBC.match(tag)
        if tag == "any" or (tag.endswith(machine) and needed is None and not tag.startswith(("musl", "macosx"))):
            return True
        if needed is not None and tag.endswith(machine) and libc[0] == "glibc":
            return tuple(map(int, needed.groups())) <= tuple(map(int, libc[1].split(".")[:2]))
    return False


# ---- a folder of wheels --------------------------------------------------------------------------------------------


def read(folder: Path) -> Wheelhouse:
    """The wheels in a folder. Their hashes must be those of SHA256SUMS, if it has one.

    WheelhouseError when proveout or pip is not in it, or a file has another hash.
    """
    paths = sorted(folder.glob("*.whl"))
    wheels = [_wheel(path) for path in paths]
    if sum(wheel.name == NAME for wheel in wheels) != 1:
        raise WheelhouseError(
            f"{sum(wheel.name == NAME for wheel in wheels)} wheels of proveout are in it, not 1",
            where=str(folder),
            way_out="Put the wheel of `make dist` there, with those of all its dependencies (`pip download`).",
        )
    sums, found = _sums(folder / SUMS), {wheel.path.name: wheel.sha256 for wheel in wheels}
    for name in sorted({*sums, *found}) if sums else ():
        if sums.get(name) != found.get(name):
            reason = "is missing" if name not in found else "has another hash" if name in sums else "is not listed"
            raise WheelhouseError(f"{name} {reason}", where=str(folder / SUMS), way_out="Make the wheelhouse again.")
    if not any(wheel.name == INSTALLER for wheel in wheels):
        raise WheelhouseError(
            "no wheel of pip is in it, which installs the others on hosts",
            where=str(folder),
            way_out=f"Put it there: pip download --no-deps --dest {folder} pip.",
        )
    return Wheelhouse(wheels=tuple(wheels))


def _sums(path: Path) -> dict[str, str]:
    """File name -> hash, of the output of sha256sum."""
    if not path.exists():
        return {}
    try:
        lines = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        return {name.lstrip("*").removeprefix("./"): sha256 for sha256, name in lines}
    except ValueError as error:
        way_out = f"Make it there: sha256sum *.whl > {SUMS}"
        raise WheelhouseError("not the output of sha256sum", where=str(path), way_out=way_out) from error


def _wheel(path: Path) -> Wheel:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(one.file_size for one in archive.infolist())
        content = path.read_bytes()
        _parts(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise WheelhouseError(f"not a wheel: {error}", where=str(path)) from error
    return Wheel(path=path, size=len(content), unpacked=unpacked, sha256=hashlib.sha256(content).hexdigest())


def _parts(path: Path) -> Mapping[str, str]:
    match = _WHEEL.fullmatch(path.name)
    if match is None:
        raise WheelhouseError("not the name of a wheel", where=str(path))
    return match.groupdict()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- the wheels of this installation --------------------------------------------------------------------------------


def collect(extras: Sequence[str], folder: Path) -> Wheelhouse:
    """Have pip put the wheels of this installation with some of its extras into a new folder, and pip's own.

    pip's own configuration applies. WheelhouseError when pip fails, as without a network.
    """
    here = sorted(f"{one.name}=={one.version}\n" for one in metadata.distributions() if _normal(one.name) != NAME)
    versions = folder / "versions.txt"
    versions.write_text("".join(here), encoding="utf-8")
    options = ("--quiet", "--wheel-dir", str(folder), "--constraint", str(versions))
    done = subprocess.run(
        (*child_process.interpreter(), "-m", "pip", "wheel", *options, _requirement(extras), INSTALLER),
        env=child_process.coordinator_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
        raise WheelhouseError(
            f"pip cannot get the wheels of this installation: {'; '.join(errors)}",
            way_out="It needs a package index, and the files that this proveout was installed from. On a machine "
            "without a network name a folder with all wheels: --wheelhouse DIR (the commands: docs/guide/deploy.md).",
        )
    return read(folder)


def _requirement(extras: Sequence[str]) -> str:
    """proveout with extras, as pip finds it again: the folder, file or repository that it was installed from, else its
    version."""
    own = metadata.distribution(NAME)
    origin = json.loads(own.read_text("direct_url.json") or "{}")
    name = f"{NAME}[{','.join(extras)}]"
    if "vcs_info" in origin:
        return f"{name} @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    return f"{name} @ {origin['url']}" if origin else f"{name}=={own.version}"
