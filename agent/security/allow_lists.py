"""Allow-lists of a policy: folders and programs that need no reason, and the arguments that these programs accept.

Flow: `policy_file` reads an entry -> `is_known_folder(path)` or `known_arguments(program)` -> the entry is accepted, or
its owner must add `i_know: "why"`. A list of dangerous entries is never complete, so these are short lists of the
entries that tuning needs:

- folders that the tuning operations write, each through the operation that checks the content;
- folders below `DATA_FOLDERS`, for the files of fio and of databases;
- programs that the tuning operations start, or that udev rules call to identify a disk.

An argument of an entry is a text, a glob, or a text with forms of values (`FORMS`), as `--threads={count}`.

The configuration of database servers (`/etc/postgresql`, `/etc/mysql`) is not in the list: it can make the server run
programs. Use `postgres_settings` or `oracle_parameters`. Everything here is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from functools import cache

KNOWN_FOLDERS = (
    "/etc/multipath/conf.d",
    "/etc/security/limits.d",
    "/etc/sysctl.d",
    "/etc/udev/rules.d",
    "/sys/block",
    "/sys/class/net",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/hugepages",
    "/sys/kernel/mm/transparent_hugepage",
)
"""Folders that the tuning operations write. A policy lists one of them, or a folder below."""

KNOWN_FILES = ("/etc/fstab",)

DATA_FOLDERS = ("/data", "/mnt", "/srv")
"""Folders for data by hier(7) and by convention. A policy lists a folder below one of them, not the folder itself."""

PROGRAM_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")

_DISK = r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*"
_NODE = r"/dev/(%k|\$kernel|\$name|[a-z][a-z0-9]*)"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,15}"
_FILE = r"/(data|mnt|srv)/[A-Za-z0-9._+:=/-]+"

_ARGUMENTS: Mapping[str, str] = {
    "blkid": rf"--probe|--output|export|{_DISK}",
    "cmp": rf"--bytes=[0-9]+|/dev/zero|{_DISK}",
    "dd": rf"if=/dev/zero|of={_DISK}|bs=1M|count=[0-9]+|conv=notrunc,fsync",
    "fio": r"--output-format=(json|normal|terse)|--(name|rw|bs|iodepth|runtime|direct|size|numjobs|time_based|ramp_time"
    rf"|rwmixread|group_reporting|thread|ioengine=(psync|sync|libaio|io_uring))(=[A-Za-z0-9_.,:-]+)?|--filename={_DISK}"
    rf"|--(filename|directory)={_FILE}",
    "mkfs.ext4": rf"-q|-F|-L|{_LABEL}|{_DISK}",
    "mkfs.xfs": rf"-q|-f|-L|{_LABEL}|{_DISK}",
    "multipath": r"-t|-l|-ll|-v[0-6]",
    "parted": rf"--script|--machine|{_DISK}|unit|s|print|mklabel|gpt|mkpart|[A-Za-z0-9][A-Za-z0-9._-]*",
    "partprobe": rf"--dry-run|--summary|{_DISK}",
    "sg_vpd": rf"--?[A-Za-z][A-Za-z-]*(=[A-Za-z0-9]+)?|{_DISK}|{_NODE}",
    "systemctl": "daemon-reload",
    "udevadm": r"control|--reload|trigger|--action=change|--subsystem-match=[a-z0-9_]+|settle|--timeout=[0-9]+",
    "wipefs": rf"--all|--types|gpt,PMBR|{_DISK}",
}
"""Program of `PROGRAM_FOLDERS` -> pattern that each argument must match in full, in addition to the globs of the
policy.
"""

_DRV_CFG = rf"--query_block_device_id|--query_guid|--query_mdms|--block_device|{_NODE}"
_SCSI_ID = rf"-g|-u|-d|--whitelisted|--replace-whitespace|(--device=)?{_NODE}"
_BY_PATH: Mapping[str, str] = {
    "/bin/emc/scaleio/drv_cfg": _DRV_CFG,
    "/opt/emc/scaleio/sdc/bin/drv_cfg": _DRV_CFG,
    "/lib/udev/scsi_id": _SCSI_ID,
    "/usr/lib/udev/scsi_id": _SCSI_ID,
}
"""Programs in other folders that udev rules call to identify a disk."""

KNOWN_VALIDATORS: Mapping[str, tuple[str, ...]] = {
    "findmnt": ("--verify", "--tab-file", "{file}"),
    "multipath": ("-t", "{file}"),
    "udevadm": ("verify", "{file}"),
}
"""Program of `PROGRAM_FOLDERS` -> the arguments of a known validator: it reads the file and runs nothing in it."""

_NAME = r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*"
FORMS: Mapping[str, str] = {
    "count": r"[0-9]{1,18}",
    "number": r"[0-9]{1,18}(\.[0-9]{1,9})?",
    "word": r"[A-Za-z0-9][A-Za-z0-9_.+-]*",
    "path": rf"(/{_NAME})+",
    "host": rf"[A-Za-z0-9][A-Za-z0-9.-]*|\[?[0-9A-Fa-f]*(:[0-9A-Fa-f]*){{2,7}}\]?|(/{_NAME})+",
}
"""Form of a value in an argument of an entry, as `--threads={count}` -> its pattern. None matches an option, a list, a
`name:value` of a program's own, or a `..`. A host may be the folder of a socket.
"""
_SAMPLES: Mapping[str, str] = {"count": "1", "number": "1", "word": "a", "path": "/a", "host": "a"}
_FORM = re.compile(r"\{([a-z_]+)\}")

_I_KNOW = 'i_know: "…"'
_INSTEAD: Mapping[str, str] = {
    "/etc/postgresql": "the files there can make the server run programs, so use the operation `postgres_settings`; ",
    "/var/lib/postgresql": "the files there can make the server run programs, so use the "
    "operation `postgres_settings`; ",
}


def is_known_folder(path: str) -> bool:
    """Whether `paths` of a policy may list the plain absolute path `path` without a reason."""
    if path in KNOWN_FILES:
        return True
    below = any(path.startswith(f"{folder}/") for folder in (*KNOWN_FOLDERS, *DATA_FOLDERS))
    return below or path in KNOWN_FOLDERS


def known_arguments(program: str) -> str | None:
    """Pattern of the arguments of a program that a policy may list without a reason; None for any other program."""
    folder, _, name = program.rpartition("/")
    return _BY_PATH.get(program) or (_ARGUMENTS.get(name) if folder in PROGRAM_FOLDERS else None)


def has_wildcard(argument: str) -> bool:
    """Whether an entry's argument is a glob."""
    return any(character in argument for character in "*?[")


def is_literal(argument: str) -> bool:
    """Whether an entry's argument is a text, without wildcards and forms."""
    return not has_wildcard(argument) and _FORM.search(argument) is None


def unknown_form(argument: str) -> str:
    """The first `{name}` of an entry's argument that is not one of `FORMS`; "" if there is none."""
    return next((name for name in _FORM.findall(argument) if name not in FORMS), "")


def sample(argument: str) -> tuple[str, str]:
    """The text before the first form or wildcard of an argument, and the argument with a value in each place."""
    values = _FORM.sub(lambda match: _SAMPLES.get(match[1], match[0]), argument).replace("*", "a")
    return re.split(r"\{(?:" + "|".join(FORMS) + r")\}|\*", argument)[0], values


@cache
def compiled(listed: str) -> re.Pattern[str]:
    """The pattern of an entry's argument: its forms, and its text as a glob."""
    parts = _FORM.split(listed)
    around = [translate(text)[len("(?s:") : -len(r")\Z")] for text in parts[::2]]
    forms = [f"(?:{FORMS[name]})" for name in parts[1::2]]
    return re.compile("".join(map(str.__add__, around, [*forms, ""])), re.DOTALL)


def is_known_validator(argv: tuple[str, ...]) -> bool:
    """Whether `validators` of a policy may list `argv`, with `{file}`, without a reason."""
    folder, _, name = argv[0].rpartition("/")
    return folder in PROGRAM_FOLDERS and KNOWN_VALIDATORS.get(name) == argv[1:]


def folder_way_out(path: str) -> str:
    """Way out: how the policy can list another folder."""
    known = ", ".join((*KNOWN_FOLDERS, *KNOWN_FILES, *(f"{folder}/NAME" for folder in DATA_FOLDERS)))
    instead = next((text for folder, text in _INSTEAD.items() if path == folder or path.startswith(f"{folder}/")), "")
    return f"{instead}known: {known}; to let plans write there anyway, give a reason: {{path: {path}, {_I_KNOW}}}"


def program_way_out(program: str) -> str:
    """Way out: how the policy can list another program."""
    known = ", ".join(sorted((*_ARGUMENTS, *_BY_PATH)))
    return (
        f"known: {known}; to let plans start it anyway, give a reason: {{path: {program}, arguments: […], {_I_KNOW}}}"
    )


def argument_way_out(program: str) -> str:
    """Way out: how the policy can list an argument without a glob."""
    forms = ", ".join(f"{{{name}}}" for name in FORMS)
    return (
        f"list each option that plans need, with the form of its value, as `--threads={{count}}`; forms: {forms}; "
        f"to permit whatever the glob matches, give a reason: {{path: {program}, arguments: […], {_I_KNOW}}}"
    )


def validator_way_out(argv: tuple[str, ...]) -> str:
    """Way out: how the policy can list another validator."""
    known = ", ".join(" ".join((name, *words)) for name, words in sorted(KNOWN_VALIDATORS.items()))
    return f"known: {known}; to let it read files of plans, give a reason: {{run: [{', '.join(argv)}], {_I_KNOW}}}"


def matches(pattern: str, argument: str) -> bool:
    """Whether the whole argument matches a pattern of `known_arguments` and has no `..`."""
    return re.fullmatch(pattern, argument) is not None and ".." not in re.split(r"[/=]", argument)
