"""The policy of a host as its owner writes it: YAML, strict, with the line of each mistake.

Flow: `read(path)` opens the file once, refuses one that somebody else can change (its owner must be root or the agent's own
user, and nobody else may write it or a folder on its way), reads it with the plan's own bounded reader, looks in the same way at the
programs that it lists, and gives a `policy.Policy`. `proveout agent --check-policy FILE` does the same and prints what came out.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from proveout.agent import policy
from proveout.agent.places import hand_above, hand_on, names_of
from proveout.agent.policy import Policy, Tool
from proveout.dsl import loader
from proveout.dsl.errors import PlanError, ProveoutError
from proveout.dsl.host_rules import EMBEDDED
from proveout.dsl.nodes import Problems
from proveout.dsl.typed import Name, custom
from proveout.dsl.validation import validate

BYTES_MAX = 1 << 20
DOCUMENT = loader.Document(name="policy", opening="policy: 1")

_NAMES = """
Rscript ash at awk bash batch bun busybox bwrap capsh cargo chroot chrt cpio crontab crun csh dash deno doas docker ed
emacs env expect fakeroot faketime find firejail fish flock gawk gdb gem git go groovy ionice ip irb java jshell ksh
ld.so less ltrace lua lxc lxc-attach lxc-execute machinectl make man mariadb mawk more mysql nano nc ncat newgrp nice
node nodejs nohup npm npx nsenter nvim parallel perl php pip pkexec podman prlimit psql pwsh pypy python rbash rlwrap
rsh rsync ruby runc runuser scp screen script sed setarch setpriv setsid sg sh socat sqlite sqlplus ssh
start-stop-daemon stdbuf strace su sudo systemd-nspawn systemd-run tar taskset tclsh tcsh time timeout tmux toybox
unshare vi view vim watch xargs zsh
"""
INTERPRETERS = frozenset(_NAMES.split())
"""Known programs that run whatever they are given: listing one would allow everything. An owner who lists another is its keeper."""
_VARIANT = re.compile(r"^original-|[.-](basic|gtk3?|nox|static|tiny)$|[0-9.]+$")
_LOADER = re.compile(r"ld(-.*)?\.so(\.[0-9]+)?|ld-(linux|musl).*")


class PolicyError(PlanError):
    """A policy that cannot be used; carries every problem found."""

    def __str__(self) -> str:
        said = (
            f"{found.where}: {found.message}" + (f" ({found.hint})" if found.hint else "") for found in self.problems
        )
        return "\n".join(("the policy cannot be used", *said))


def _sysctl(glob: str) -> str:
    if glob in policy.COMMANDS_OF_THE_KERNEL or not any(part.strip("*") for part in glob.split(".")):
        raise custom(f"`{glob}` cannot be allowed: it is every setting, or one that holds a command of the kernel")
    return glob


def _unit(glob: str) -> str:
    if not glob.rpartition(".")[0].strip("*?"):
        raise custom(f"`{glob}` is not a unit such as multipathd.service")
    return glob


def _root(path: str) -> str:
    if not policy.is_plain_path(path):
        raise custom(f"`{path}` is not an absolute path without `.`, `..` and doubled slashes")
    if (reason := policy.believed_by_root(path)) is not None:
        raise custom(f"`{path}` cannot be allowed: {reason}")
    wide = [kept for kept in policy.PATHS_OF_THE_HOST if policy.is_beneath(kept, path)]
    if path == "/" or wide:
        raise custom(
            f"`{path}` is too wide: it holds {wide[0] if wide else 'everything'}; list the folder that is meant"
        )
    return path


def _device(name: str) -> str:
    if not policy.DEVICE_NAME.fullmatch(name):
        raise custom(f"`{name}` does not name a device for good: write /dev/disk/by-id/NAME or serial:NUMBER")
    return name


def _engine(name: str) -> str:
    if name not in EMBEDDED:
        raise custom(f"`{name}` is not an engine that proveout can start: {', '.join(sorted(EMBEDDED))}")
    return name


def _program(path: str) -> str:
    if not policy.is_plain_path(path):
        raise custom(f"`{path}` is not the absolute path of a program")
    name = posixpath.basename(path)
    if _VARIANT.sub("", name) in INTERPRETERS or _LOADER.fullmatch(name):
        raise custom(f"`{path}` runs whatever it is given: list the program that is meant")
    return path


Word = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Program = Annotated[Word, AfterValidator(_program)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ToolEntry(_Strict):
    """A program that may be started."""

    path: Program
    arguments: list[Word] = Field(default_factory=list, max_length=200)


def _validator(argv: list[str]) -> list[str]:
    _program(argv[0])
    if sum(word.count("{file}") for word in argv[1:]) != 1:
        raise custom("a validator takes the file that it looks at once, as {file}")
    return argv


class PolicyEntry(_Strict):
    """The whole file."""

    policy: Literal[1]
    sysctl: list[Annotated[Word, AfterValidator(_sysctl)]] = Field(default_factory=list, max_length=1000)
    units: list[Annotated[Word, AfterValidator(_unit)]] = Field(default_factory=list, max_length=1000)
    paths: list[Annotated[Word, AfterValidator(_root)]] = Field(default_factory=list, max_length=1000)
    devices: list[Annotated[Word, AfterValidator(_device)]] = Field(default_factory=list, max_length=1000)
    tools: list[ToolEntry] = Field(default_factory=list, max_length=200)
    validators: dict[Name, Annotated[list[Word], Field(min_length=2), AfterValidator(_validator)]] = Field(
        default_factory=dict
    )
    destructive: bool = False
    provision: list[Annotated[Word, AfterValidator(_engine)]] = Field(default_factory=list, max_length=100)
    provision_as_agent_user: bool = False


def read(path: Path) -> Policy:
    """The policy in a file. ProveoutError when somebody else can change it, PolicyError with every line that is wrong."""
    content = _trusted(path.absolute())
    problems = Problems()
    root = loader.loads(content, str(path), problems, DOCUMENT)
    entry = validate(PolicyEntry, root, "", problems) if root is not None else None
    if problems.found or entry is None:
        raise PolicyError(problems.error().problems)
    programs = [*(Path(tool.path) for tool in entry.tools), *(Path(argv[0]) for argv in entry.validators.values())]
    for program in programs:
        _check_program(path, program)
    return Policy(
        source=str(path.absolute()),
        sysctl=tuple(entry.sysctl),
        units=tuple(entry.units),
        paths=tuple(entry.paths),
        devices=tuple(entry.devices),
        tools=tuple(Tool(path=tool.path, arguments=tuple(tool.arguments)) for tool in entry.tools),
        validators=tuple((name, tuple(argv)) for name, argv in entry.validators.items()),
        destructive=entry.destructive,
        provision=tuple(entry.provision),
        provision_as_agent_user=entry.provision_as_agent_user,
        programs=names_of(*programs),
    )


def _trusted(path: Path) -> bytes:
    """The content of a file that nobody but root and the agent's own user can change or replace."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, f"cannot read the policy: {error.strerror}", "Name a file, not a link to one.") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > BYTES_MAX:
            raise _unusable(path, f"the policy is not a regular file of at most {BYTES_MAX >> 20} MiB", "Name a file.")
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
            raise _unusable(path, "others can write the policy", f"chown root {path}; chmod 644 {path}")
        _check_folders(path)
        return os.read(descriptor, BYTES_MAX)
    finally:
        os.close(descriptor)


def _check_folders(path: Path) -> None:
    hand = hand_above(path)
    if hand is not None:
        raise _unusable(path, f"others can replace the policy: {hand.what}", hand.way_out)


def _check_program(source: Path, program: Path) -> None:
    """A program that others can change is theirs to choose; one that is not there (yet) says so when it is to be run."""
    hand = hand_above(program)
    if hand is not None:
        raise _unusable(source, f"others can replace {program}, which it lists: {hand.what}", hand.way_out)
    with contextlib.suppress(OSError):
        hand = hand_on(program)
    if hand is not None:
        raise _unusable(source, f"others can change {program}, which it lists: {hand.what}", hand.way_out)


def _unusable(path: Path, what: str, way_out: str) -> ProveoutError:
    error = ProveoutError(what, where=str(path), way_out=way_out)
    error.exit_code = 2
    return error


def describe(found: Policy) -> str:
    """What a policy allows, for people: one line for each kind, `nothing` where nothing is."""
    rows = [
        ("kernel settings", found.sysctl),
        ("units", found.units),
        ("files in", found.paths),
        ("devices", found.devices),
        ("programs", [" ".join((tool.path, *tool.arguments)) for tool in found.tools]),
        ("validators", [f"{name} ({' '.join(argv)})" for name, argv in found.validators]),
        ("destroying data", ["yes"] if found.destructive else []),
        ("servers", found.provision),
        ("servers as agent", ["yes"] if found.provision_as_agent_user else []),
    ]
    kept = [own for own in found.own_folders if any(policy.is_beneath(own, listed) for listed in found.paths)]
    rows += [("but not in", kept)] if kept else []
    return "\n".join(f"{name + ':':<17} {', '.join(values) if values else 'nothing'}" for name, values in rows)
