"""The wheels that `proveout deploy` copies to hosts: this installation, packed again, or a folder of the user's.

Flow: `pack(extras, folder)` -> the distributions that proveout requires, from the metadata of this environment -> a
wheel of each from its installed files -> `Wheelhouse`; or `read(folder)` -> `Wheelhouse`. Neither a network nor a
compiler is needed, and hosts get exactly the versions and files that are here.

A wheel of a distribution is its installed files but for bytecode and the scripts that an installer generates. proveout
itself, where it is installed for editing, is packed from its folder. Source: PEP 427 (wheels), PEP 376 (RECORD),
PEP 425 (tags in file names).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path

from proveout.core import child_process
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError

NAME = "proveout"
INSTALLER = "pip"
"""The installer goes along: hosts need neither pip nor ensurepip."""
SUMS = "SHA256SUMS"
LEVEL = 1
EPOCH = (1980, 1, 1, 0, 0, 0)
LEFT_OUT = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*(?:;(?P<marker>.*))?")
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)


class WheelhouseError(ProveoutError):
    """A wheelhouse cannot be made or used."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """The version of the distribution."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
            if not any(wheel.pythons & tags for wheel in wheels):
                return f"{name} is for {' or '.join(sorted(set().union(*(wheel.pythons for wheel in wheels))))}"
            if not any(_is_for(wheel.platform, machine, libc) for wheel in wheels):
                return f"{name} is for {wheels[0].platform}"
        return ""


def _is_for(platform: str, machine: str, libc: Sequence[str]) -> bool:
    """Whether a platform tag, of several joined by dots, is for a machine. Source: PEP 600."""
    for tag in platform.split("."):
        needed = _GLIBC.match(tag)
        if tag == "any" or (tag.endswith(machine) and needed is None and "musl" not in tag):
            return True
        if needed is not None and tag.endswith(machine) and libc[0] == "glibc":
            return tuple(map(int, needed.groups())) <= tuple(map(int, libc[1].split(".")[:2]))
    return False


# ---- a folder of wheels --------------------------------------------------------------------------------------------


def read(folder: Path) -> Wheelhouse:
    """The wheels in a folder, with pip's when it is not there. Their hashes must be those of SHA256SUMS, if it has one.

    WheelhouseError when there is no proveout in it, or a file has another hash.
    """
    paths = sorted(folder.glob("*.whl"))
    wheels = [_wheel(path) for path in paths]
    if sum(wheel.name == NAME for wheel in wheels) != 1:
        raise WheelhouseError(
            f"{sum(wheel.name == NAME for wheel in wheels)} wheels of proveout are in it, not 1",
            where=str(folder),
            way_out="Put the wheel of `make dist` there, with those of all its dependencies (`pip download`).",
        )
    for name, sha256 in _sums(folder / SUMS).items():
        wheel = next((one for one in wheels if one.path.name == name), None)
        if wheel is None or wheel.sha256 != sha256:
            reason = "is missing" if wheel is None else "has another hash"
            raise WheelhouseError(f"{name} {reason}", where=str(folder / SUMS), way_out="Make the wheelhouse again.")
    if not any(wheel.name == INSTALLER for wheel in wheels):
        wheels.append(_wheel(packed(distribution(INSTALLER), _cache())))
    return Wheelhouse(wheels=tuple(sorted(wheels, key=lambda wheel: wheel.path.name)))


def _sums(path: Path) -> dict[str, str]:
    """File name -> hash, of the output of sha256sum."""
    if not path.exists():
        return {}
    lines = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return {name.lstrip("*").removeprefix("./"): sha256 for sha256, name in lines}


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


# ---- packing this installation -------------------------------------------------------------------------------------


def pack(extras: Sequence[str], folder: Path | None = None) -> Wheelhouse:
    """The wheelhouse of this installation with some of its extras; wheels are kept in `folder` [a cache of the user's].

    WheelhouseError when a package of an extra is not installed here.
    """
    place = folder or _cache()
    found = [*closure(extras), distribution(INSTALLER)]
    paths = {packed(distribution, place) for distribution in found}
    return Wheelhouse(wheels=tuple(_wheel(path) for path in sorted(paths, key=lambda path: path.name)))


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "proveout" / "wheelhouse"


def closure(extras: Iterable[str]) -> tuple[metadata.Distribution, ...]:
    """proveout with all that it requires here. A requirement with a marker that is not an extra counts if installed."""
    found: dict[str, metadata.Distribution] = {}
    done: dict[str, set[str]] = {}
    waiting: list[tuple[str, frozenset[str], bool]] = [(NAME, frozenset(extras), True)]
    while waiting:
        name, wanted, needed = waiting.pop()
        if name in done and wanted <= done[name]:
            continue
        try:
            distribution = found.get(name) or metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if needed:
                raise WheelhouseError(
                    f"{name} is not installed here, so it cannot be copied",
                    way_out="Install it in this environment, leave its --extra out, or name a --wheelhouse.",
                ) from None
            continue
        found[name] = distribution
        done[name] = done.get(name, set()) | wanted
        waiting += _required(distribution, done[name])
    return tuple(found.values())


def _required(distribution: metadata.Distribution, extras: set[str]) -> Iterator[tuple[str, frozenset[str], bool]]:
    """(name, extras, whether it must be there) of each requirement."""
    for line in distribution.requires or ():
        match = _REQUIREMENT.match(line)
        if match is None:
            continue
        marker = match["marker"] or ""
        named = _EXTRA.findall(marker)
        if named and not extras & set(named):
            continue
        wanted = frozenset(word.strip() for word in (match["extras"] or "").split(",") if word.strip())
        yield _normal(match["name"]), wanted, not _EXTRA.sub("", marker).strip(" ()and")


def distribution(name: str) -> metadata.Distribution:
    """An installed distribution. WheelhouseError when it is not."""
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise WheelhouseError(
            f"{name} is not installed in this environment", way_out="Install it: python -m ensurepip, or name a folder "
            "with its wheel: --wheelhouse DIR."
        ) from None  # fmt: skip


def packed(distribution: metadata.Distribution, folder: Path) -> Path:
    """The wheel of an installed distribution, in `folder`. One of the same name and version is taken as it is, but for
    proveout's own."""
    own = _normal(distribution.name) == NAME
    files = dict(_files(distribution))
    text = _about(distribution, files) if own else (distribution.read_text("WHEEL") or "")
    tags = sorted({line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Tag:")})
    columns = [".".join(dict.fromkeys(sorted(tag.split("-")[place] for tag in tags))) for place in range(3)]
    name, _, version = _info(distribution).removesuffix(".dist-info").partition("-")
    path = folder / f"{name}-{version}-{'-'.join(columns)}.whl"
    if path.exists() and not own:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, _info(distribution), files, text)
    except OSError as error:
        raise WheelhouseError(f"cannot pack {distribution.name}: {error}", where=str(folder)) from error
    return path


def _info(distribution: metadata.Distribution) -> str:
    """The folder of its metadata, `grpcio-1.85.1.dist-info`."""
    for file in distribution.files or ():
        if file.parts[0].endswith(".dist-info"):
            return file.parts[0]
    raise WheelhouseError(
        f"{distribution.name} was not installed from a wheel, so it cannot be copied",
        way_out="Install it with pip, or name a --wheelhouse.",
    )


def _files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """(place in the wheel, file) of each file that is there: some installations leave the tests of packages out."""
    info = _info(distribution)
    scripts = {entry.name for entry in distribution.entry_points if entry.group.endswith("_scripts")}
    editable = '"editable": true' in (distribution.read_text("direct_url.json") or "").replace('":true', '": true')
    if editable and _normal(distribution.name) != NAME:
        raise WheelhouseError(
            f"{distribution.name} is installed for editing, so it cannot be copied",
            way_out="Build its wheel, and name a folder with all wheels: --wheelhouse DIR.",
        )
    for file in distribution.files or ():
        inside = file.parts[0] == info
        if file.suffix in (".pyc", ".pth") and not inside and (editable or file.suffix == ".pyc"):
            continue
        if inside and file.name in (*LEFT_OUT, "WHEEL"):
            continue
        path = Path(str(distribution.locate_file(file)))
        if not path.is_file():
            continue
        if file.parts[0] != "..":
            if inside or not editable:
                yield file.as_posix(), path
        elif file.name not in scripts:
            yield from _data(info, file, path)
    if editable:
        yield from _sources()


def _data(info: str, file: metadata.PackagePath, path: Path) -> Iterator[tuple[str, Path]]:
    """A file outside the packages: a script, or data below the environment; headers are for compilers and left out."""
    below = [part for part in file.parts if part != ".."]
    data = info.removesuffix(".dist-info") + ".data"
    if below[0] == "bin":
        yield f"{data}/scripts/{'/'.join(below[1:])}", path
    elif below[0] != "include":
        yield f"{data}/data/{'/'.join(below)}", path


def _sources() -> Iterator[tuple[str, Path]]:
    """The files of proveout's own folder, with what its links lead to."""
    root = Path(child_process.__file__).parents[1]
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    for folder, below, names in os.walk(root, followlinks=True):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            path = Path(folder, name)
            if not name.endswith(".so") or name.endswith(suffix):
                yield f"{NAME}/{path.relative_to(root).as_posix()}", path


def _about(distribution: metadata.Distribution, files: Mapping[str, Path]) -> str:
    """The file WHEEL of proveout: for this Python and platform when it has compiled modules."""
    text = distribution.read_text("WHEEL") or ""
    if not any(place.endswith(".so") for place in files):
        return text
    python = f"cp{sysconfig.get_config_var('py_version_nodot')}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    kept = [line for line in text.splitlines() if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    return "\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {python}-{python}-{platform}", ""])


def _write(path: Path, info: str, files: Mapping[str, Path], about: str) -> None:
    """Write a wheel; the same files give the same bytes."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    record: list[str] = []
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            texts = ((place, file.read_bytes(), file.stat().st_mode) for place, file in sorted(files.items()))
            for place, content, mode in chain(texts, [(f"{info}/WHEEL", about.encode(), 0o644)]):
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record.append(f"{place},sha256={digest},{len(content)}")
                _add(archive, place, content, mode)
            _add(archive, f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode(), 0o644)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _add(archive: zipfile.ZipFile, place: str, content: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(place, EPOCH)
    entry.external_attr = (0o100000 | (0o755 if mode & 0o111 else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
