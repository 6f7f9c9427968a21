"""Checked types of the texts in a tuning: names, paths and values that cannot be read as anything else.

No value of a tuning goes through a shell, but values in files and argvs are read by other programs. So no value can
contain a line break, begin like an option, or lead out of its folder.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proveout.dsl.operations.linux_names import UNIT_KINDS
from proveout.dsl.schema.scalar_types import custom

PATH_MAX = 1024
_PATH = re.compile(r"/[A-Za-z0-9._+@:=,%/-]*[A-Za-z0-9_+@=%-]")
_OF_OPERATIONS = {
    "/etc/fstab": "mount",
    "/etc/multipath": "multipath",
    "/etc/multipath.conf": "multipath",
    "/etc/security/limits.conf": "limits",
    "/etc/security/limits.d": "limits",
    "/etc/sysctl.conf": "sysctl",
    "/etc/sysctl.d": "sysctl",
    "/etc/udev": "udev_rules",
}
"""Configuration files that can make root run a program, and the one operation that may write each of them."""
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]{0,200}")
_OWN_UNITS = re.compile(
    r"(ssh|sshd|dbus|dbus-broker|NetworkManager|network|networking|init|systemd-[a-z-]+|proveout[a-z-]*)(@.*)?\.[a-z]+"
    r"|(reboot|soft-reboot|poweroff|halt|kexec|exit|shutdown|final|umount|emergency|rescue|ctrl-alt-del|runlevel[0-9]"
    r"|suspend|hibernate|hybrid-sleep|suspend-then-hibernate|sysinit|basic|local-fs|multi-user|graphical|default)\.target"
)
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:-]{0,127}")
_OCTAL = re.compile(r"0?[0-7]{3}")


def no_control(value: str) -> str:
    """Text on one line: no control characters, no line or paragraph separators, no surrogates."""
    for character in value:
        if (
            ord(character) < 32
            or 127 <= ord(character) < 160
            or character in "\u2028\u2029\ufeff"
            or _is_bidi(character)
        ):
            raise custom(f"{character!r} cannot stand here: one line of plain text")
    return value


def _is_bidi(character: str) -> bool:
    return "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"


def _path(value: str) -> str:
    if not value.startswith("/"):
        raise custom(f"`{value}` is not an absolute path")
    parts = value.split("/")[1:]
    if ".." in parts or "." in parts or "" in parts:
        raise custom(f"`{value}` is not a plain path: no `..`, `.`, `//` or `/` at the end")
    if not _PATH.fullmatch(value) or any(part.startswith("-") for part in parts):
        raise custom(f"`{value}` is not a path that can be used here: ASCII letters, digits and . _ + @ : = , % -")
    return value


def _path_of_no_operation(value: str) -> str:
    for place, operation in _OF_OPERATIONS.items():
        if value == place or value.startswith(f"{place}/"):
            raise custom(f"`{value}` can only be written by `{operation}`, which checks its contents")
    return value


def unit_name(value: str) -> str:
    """A unit with its kind, `tuned` being `tuned.service`; those that the host cannot be reached without are
    refused."""
    if not _UNIT.fullmatch(value):
        raise custom(f"`{value}` is not the name of a systemd unit")
    whole = value if value.rpartition(".")[2] in UNIT_KINDS else f"{value}.service"
    if _OWN_UNITS.fullmatch(whole):
        raise custom(f"`{whole}` is left alone: the host, or its agent, could not be reached without it")
    return whole


def _account(value: str) -> str:
    if not _ACCOUNT.fullmatch(value):
        raise custom(f"`{value}` is not the name of a user or group")
    return value


def _package(value: str) -> str:
    if not _PACKAGE.fullmatch(value):
        raise custom(f"`{value}` is not the name of a package")
    return value


def _mode(value: object) -> object:
    """Permission bits, written "0644": YAML's own numbers are decimal."""
    if isinstance(value, str) and _OCTAL.fullmatch(value):
        return int(value, 8)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value  # from the compiled plan
    raise custom(f'{value} is not a mode: write it as "0644", in quotes')


Line: TypeAlias = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(no_control)]
AbsolutePath: TypeAlias = Annotated[str, Field(min_length=2, max_length=PATH_MAX), AfterValidator(_path)]
OwnPath: TypeAlias = Annotated[AbsolutePath, AfterValidator(_path_of_no_operation)]
"""The path of a file that no other operation is there for."""
UnitName: TypeAlias = Annotated[str, Field(min_length=1, max_length=210), AfterValidator(unit_name)]
Account: TypeAlias = Annotated[str, AfterValidator(_account)]
PackageName: TypeAlias = Annotated[str, AfterValidator(_package)]
Mode: TypeAlias = Annotated[
    int, BeforeValidator(_mode), WithJsonSchema({"type": "string", "pattern": "^0?[0-7]{3}$", "description": '"0644"'})
]
