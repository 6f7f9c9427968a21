"""Operations on the devices of an array: `multipath` and `udev_rules`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from proveout.dsl.operations.change import Command, UnitAction, around
from proveout.dsl.operations.facts import BytesQuery, Facts, UnitQuery
from proveout.dsl.operations.operation import (
    ACCOUNT,
    OCTAL,
    AbsolutePath,
    Found,
    Line,
    Operation,
    Waiting,
    in_folder,
    matching,
    whole_file,
)
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import custom

# The worldwide names of disks are read out of their vital product data, as the kernel shows it; nothing is run for
# that. Disks of one array are numbered in the order of those names, so every host of a cluster calls a disk the same.
# Source: multipath.conf(5).
#
# `wwid` reads a disk's name from its vital product data, page 0x83 (/sys/block/*/device/vpd_pg83), as scsi_id(8) makes
# it: the type of the designator, then its bytes. Source: SPC-5, 7.7.6.

UNIT = "multipathd.service"
_CONF_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*\.conf"
PAGES = "/sys/block/sd*/device/vpd_pg83"
MAPS = "/sys/block/dm-*/dm/uuid"
Word: TypeAlias = Annotated[
    Line,
    matching(
        r"[A-Za-z0-9_ .:,/*?+()|^$\[\]-]+",
        "{value!r} cannot stand in multipath.conf: letters, digits, blanks and _ . : , / * ? + ( ) | ^ $ [ ] -",
    ),
]
Alias: TypeAlias = Annotated[
    str, matching(r"[A-Za-z][A-Za-z0-9_.-]{0,40}", "`{value}` is not the name of a map, as fcion1")
]
Wwid: TypeAlias = Annotated[
    str,
    matching(
        r"[0-9a-z][0-9A-Za-z_.-]{7,127}", "`{value}` is not a worldwide name, as 3600a098038304437415d4b6a59676d51"
    ),
]
Seconds: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Paths(Strict):
    """The treatment of paths. Keys that are left out keep multipathd's own values; no key names a program, a library
    or a file."""

    path_grouping_policy: (
        Literal["failover", "multibus", "group_by_serial", "group_by_prio", "group_by_node_name", "group_by_tpg"] | None
    ) = None
    path_selector: Word | None = None
    path_checker: Literal["tur", "directio", "readsector0", "emc_clariion", "hp_sw", "rdac", "none"] | None = None
    prio: Literal["const", "alua", "ontap", "emc", "hds", "rdac", "sysfs", "random", "path_latency"] | None = None
    features: Word | None = None
    hardware_handler: Word | None = None
    failback: Literal["immediate", "manual", "followover"] | None = None
    rr_weight: Literal["uniform", "priorities"] | None = None
    rr_min_io_rq: Annotated[int, Field(ge=1, le=100_000)] | None = None
    no_path_retry: Word | None = Field(None, description="A number in quotes, fail, or queue.")
    fast_io_fail_tmo: Seconds | None = None
    dev_loss_tmo: Seconds | None = None
    detect_prio: bool | None = Field(None, description="Whether the kind of an array decides how paths are rated.")

    def settings(self) -> Iterator[str]:
        """The keys that are given, as the file has them."""
        for name in (*_FIRST, *(name for name in type(self).model_fields if name not in _FIRST)):
            value = getattr(self, name, None)
            if isinstance(value, bool):
                yield f'{name} "{"yes" if value else "no"}"'
            elif value is not None:
                yield f"{name} {value}" if isinstance(value, int) else f'{name} "{value}"'


_FIRST = ("vendor", "product")


class Device(Paths):
    """A `device` section: an array, and how its paths are treated."""

    vendor: Word
    product: Word = ".*"


class Defaults(Paths):
    """The `defaults` section: what holds for every array without a value of its own, also for the disks of the host
    itself."""

    polling_interval: Annotated[int, Field(ge=1, le=3600)] | None = Field(
        None, description="Seconds between two checks of a path."
    )
    user_friendly_names: bool | None = Field(
        None, description="Whether maps without an alias are called mpatha, mpathb …"
    )
    find_multipaths: bool | Literal["strict", "greedy", "smart"] | None = Field(
        None, description="For which disks maps are made."
    )


class Disks(Strict):
    """Disks that a `device` of a blacklist section means: patterns of what they report."""

    vendor: Word
    product: Word = ".*"


class Blacklist(Strict):
    """A `blacklist` or `blacklist_exceptions` section: disks that get no map, or get one all the same."""

    devnodes: Annotated[list[Word], Field(max_length=100)] = Field(
        [], description="Patterns of names in /dev: ^(ram|raw|loop|fd|md|dm-|sr|scd|st)[0-9]*"
    )
    wwids: Annotated[list[Word], Field(max_length=1000)] = Field([], description="Worldwide names, or patterns.")
    devices: Annotated[list[Disks], Field(max_length=100)] = Field([], description="Vendors and products.")

    @model_validator(mode="after")
    def _names_something(self) -> Blacklist:
        if not (self.devnodes or self.wwids or self.devices):
            raise custom("no disk is named: give devnodes, wwids or devices")
        return self

    def settings(self) -> Iterator[str]:
        """The lines of the section."""
        yield from (f'devnode "{pattern}"' for pattern in self.devnodes)
        yield from (f'wwid "{pattern}"' for pattern in self.wwids)
        for disks in self.devices:
            yield from _section("device", (f'vendor "{disks.vendor}"', f'product "{disks.product}"'))


def _section(name: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"{name} {{"
    yield from (f"    {line}" for line in lines)
    yield "}"


class Numbered(Strict):
    """Names for all disks of an array: the prefix and a number, in the order of their worldwide names."""

    vendor: Word = Field(description="As the disks report it, or a pattern: FUSIONIO, 3PARdata.")
    model: Word = Field("*", description="As the disks report it, or a pattern.")
    prefix: Alias = Field(description="fcion gives fcion1, fcion2 …")
    count: int = Field(ge=1, le=1000, description="The required number: a missing disk must not shift the names.")


class Multipath(Operation):
    """Device sections, defaults, blacklists and names of maps, in a file of their own: `{file:
    /etc/multipath/conf.d/x.conf, devices: […], aliases: {…}}`."""

    file: Annotated[AbsolutePath, in_folder("/etc/multipath/conf.d", _CONF_NAME)] = Field(
        description="The file of /etc/multipath/conf.d that holds them, whole and alone."
    )
    defaults: Defaults | None = Field(None, description="The defaults of all arrays.")
    blacklist: Blacklist | None = Field(None, description="Disks that get no map.")
    blacklist_exceptions: Blacklist | None = Field(
        None, description="Disks of the blacklist that get one all the same."
    )
    devices: list[Device] = Field([], max_length=50, description="Device sections.")
    aliases: dict[Alias, Wwid] = Field(
        {}, max_length=1000, description="Name of a map to the worldwide name of its disk."
    )
    numbered: list[Numbered] = Field([], max_length=20, description="Names for all disks of an array.")

    privileges = "root: writes /etc/multipath, reloads multipathd"

    @model_validator(mode="after")
    def _sets_something(self) -> Multipath:
        if not (self.devices or self.aliases or self.numbered or any(self._sections())):
            raise custom("nothing is to be set: give devices, aliases, numbered, defaults or blacklist")
        if self.defaults is not None and not any(self.defaults.settings()):
            raise custom("`defaults` sets nothing")
        return self

    @model_validator(mode="after")
    def _each_name_once(self) -> Multipath:
        numbered = (f"{one.prefix}{number}" for one in self.numbered for number in range(1, one.count + 1))
        ((name, times),) = Counter([*self.aliases, *numbered, ""]).most_common(1)
        if times > 1:
            raise custom(f"`{name}` would be the name of two disks: give each array a prefix of its own")
        return self

    def _sections(self) -> Iterator[str]:
        """The lines of the sections that are not about one array."""
        for name in ("defaults", "blacklist", "blacklist_exceptions"):
            part: Defaults | Blacklist | None = getattr(self, name)
            if part is not None:
                yield from _section(name, part.settings())

    def targets(self) -> Mapping[str, str]:
        """The file, and the defaults, which all files of the folder share."""
        defaults = () if self.defaults is None else tuple(self.defaults.settings())
        return {
            f"file {self.file}": "\n".join(self.wanted()),
            **{f"multipath default {name}": value for name, _, value in (one.partition(" ") for one in defaults)},
        }

    def wanted(self) -> tuple[str, ...]:
        numbered = (
            f"    {one.prefix}1 … {one.prefix}{one.count}: disks of {one.vendor} {one.model}, in the order of their "
            "worldwide names"
            for one in self.numbered
        )
        return (f"{self.file}:", *self._text(self.aliases).splitlines(), *numbered)

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The file; multipathd is reloaded after it, also when it is set back. A map that keeps an older name is
        reported."""
        unit = facts.ask(UnitQuery(UNIT))
        if unit is None or not unit.active:
            yield "multipathd does not run on this host (multipathd.service)"
            return
        aliases, refusals = dict(self.aliases), []
        for one in self.numbered:
            # the worldwide names of an array's disks, each once however many paths it has
            found: set[str] = set()
            for page in facts.paths(PAGES):
                vendor, model = (facts.text(page.replace("vpd_pg83", name)) or "" for name in ("vendor", "model"))
                name = wwid(facts.ask(BytesQuery(page)) or b"")
                if name is not None and fnmatchcase(vendor, one.vendor) and fnmatchcase(model, one.model):
                    found.add(name)
            disks = sorted(found)
            if len(disks) != one.count:
                there = ", ".join(disks) or "none"
                refusals.append(
                    f"this host has {len(disks)} disks of {one.vendor} {one.model}, not {one.count}: {there}"
                )
            aliases |= {f"{one.prefix}{number}": disk for number, disk in enumerate(disks, 1)}
        twice = sorted({disk for disk in aliases.values() if list(aliases.values()).count(disk) > 1})
        refusals += [f"{disk} has two names" for disk in twice]
        if refusals:
            yield from refusals
            return
        made = tuple(whole_file(facts, self.file, self._text(aliases).encode()))
        yield from around(made, UnitAction(unit=UNIT, verb="", undo="reload"), UnitAction(unit=UNIT, verb="reload"))
        if made:
            return
        names = {facts.text(uuid): facts.text(f"{uuid.removesuffix('uuid')}name") for uuid in facts.paths(MAPS)}
        for alias, disk in aliases.items():
            if (now := names.get(f"mpath-{disk}")) not in (None, alias):
                yield Waiting(
                    text=f"{disk} is still called {now}: multipathd names it {alias} once no program has it open"
                )

    def _text(self, aliases: Mapping[str, str]) -> str:
        lines = [*self._sections()]
        if self.devices:
            sections = (_section("device", device.settings()) for device in self.devices)
            lines += _section("devices", chain.from_iterable(sections))
        if aliases:
            sections = (
                _section("multipath", (f'wwid "{disk}"', f'alias "{alias}"')) for alias, disk in aliases.items()
            )
            lines += _section("multipaths", chain.from_iterable(sections))
        return "".join(f"{line}\n" for line in lines)


PAGE = 0x83
_BINARY, _OF_THE_UNIT = 1, 0
_EUI64, _NAA = 2, 3
_NAA_LENGTHS = {2: 8, 3: 8, 5: 8, 6: 16}
HEAD = 4


def wwid(page: bytes) -> str | None:
    """The worldwide name: NAA (the longest first), else EUI-64; None where the page has none, or is cut short."""
    return max(_names(page), default=(0, None), key=lambda pair: pair[0])[1]


def _names(page: bytes) -> Iterator[tuple[int, str]]:
    """The names with their ranks; nothing of a page that is another, or from where it is cut short."""
    if len(page) < HEAD or page[1] != PAGE:
        return
    at, end = HEAD, min(HEAD + int.from_bytes(page[2:4], "big"), len(page))
    while at + HEAD <= end:
        code_set, kind, _, length = page[at : at + HEAD]
        at += HEAD + length
        value = page[at - length : at]
        if len(value) < length:
            return
        if code_set & 0x0F != _BINARY or kind & 0x30 != _OF_THE_UNIT or not value:
            continue
        if kind & 0x0F == _NAA and length == _NAA_LENGTHS.get(value[0] >> 4):
            yield 10 + (value[0] >> 4), f"3{value.hex()}"
        elif kind & 0x0F == _EUI64 and length in (8, 12, 16):
            yield 1, f"2{value.hex()}"


# A rule is made of keys listed here, with quoted values that cannot end early: there is no way to RUN or IMPORT
# anything. `program` is udev's PROGRAM, for devices that only their vendor's tool can tell apart; the policy of the
# host has to list it with its arguments.
#
# A rule that gives an owner, a mode, a link or a property names its devices by a pair of `match` that the policy of the
# host lists (`WriteFile.governs`). Links lie in a folder of their own below /dev. Of udev's substitutions only the
# kernel's own name and number of a device are taken: an environment variable or the output of a program can be empty or
# hold `..`.

UDEVADM = "/usr/bin/udevadm"
_QUEUES = "/sys/block/queue"
"""The path of the queues of all disks, for the check against a policy."""
_ASSIGN = re.compile(r"SYMLINK|OWNER|GROUP|MODE|ATTR\{queue/[a-z][a-z_]*\}|ENV\{(DM_UDEV|ID|UDISKS)_[A-Z0-9_]{1,60}\}")
_IDENTIFIES = re.compile(r"ENV\{ID_(BUS|SERIAL|WWN)(_.*)?\}")
"""Properties that names in /dev/disk/by-id are made of, and that policies list. Source: 60-persistent-storage.rules."""
_UDEV_VALUE = re.compile(r"[ !#$%&'()*+,./0-9:;<=>?@A-Z\[\]^_a-z{|}~-]+")
_LINK = re.compile(r"[A-Za-z0-9%${}_.:+-]+(/[A-Za-z0-9%${}_.:+-]+)+")
_SUBSTITUTION = re.compile(r"%[kn]|\$(kernel|number|name)(?![a-z])")
"""The kernel's name of a device (`sdb1`), its number (`1`, or nothing) and its name in /dev."""
FOLDERS_OF_UDEV = frozenset(
    {
        "block", "bus", "char", "core", "cpu", "cpu_dma_latency", "disk", "dma_heap", "dri", "fd", "hugepages",
        "infiniband", "input",
        "log", "mapper", "md", "mqueue", "net", "nvme-fabrics", "pts", "raw", "serial", "shm", "snd", "usb", "v4l",
        "vfio", "vhost-net",
    }
)  # fmt: skip
"""Folders of /dev that hold names of udev, of the kernel or of the C library."""
_WORLD_WRITE = 0o002


def _assign_key(key: str) -> str:
    if key.startswith(("RUN", "IMPORT", "PROGRAM")):
        raise custom(f"`{key}` would have udev run something as root; no plan sets it")
    if not _ASSIGN.fullmatch(key):
        raise custom(
            f"`{key}` is nothing that a plan gives a device: SYMLINK, OWNER, GROUP, MODE, ATTR{{queue/…}}, ENV{{ID_…}}"
        )
    if _IDENTIFIES.fullmatch(key):
        raise custom(f"`{key}` identifies a disk: one could take the name of another that the host's policy lists")
    return key


def _udev_value(value: str) -> str:
    if not _UDEV_VALUE.fullmatch(value):
        raise custom(f'{value!r} cannot stand in a rule: printable ASCII without ", \\ and `')
    return value


def _word(value: str) -> str:
    if " " in _udev_value(value):
        raise custom(f"{value!r} holds a blank, which udev would take for the end of an argument")
    return _substituted(value)


def _substituted(value: str) -> str:
    """The value, if its substitutions are known and it does not lead out of a folder whatever they stand for."""
    plain, empty = _SUBSTITUTION.sub("x", value), _SUBSTITUTION.sub("", value)
    if "%" in plain or "$" in plain:
        raise custom(
            f"`{value}` holds a substitution other than %k, %n, $kernel, $number, $name: it could stand for `..`"
        )
    if any(".." in re.split(r"[/=:,]", word) for word in (plain, empty)):
        raise custom(f"`{value}` leads out of its folder by `..`")
    return value


def _program(words: list[str]) -> list[str]:
    if words and (not words[0].startswith("/") or _SUBSTITUTION.search(words[0])):
        raise custom(f"`{words[0]}` is not the absolute path of a program")
    return words


def _link(link: str) -> None:
    """A link below /dev that cannot take the place of another name of a device."""
    folder = link.split("/", maxsplit=1)[0]
    if not _LINK.fullmatch(link):
        raise custom(f"`{link}` is not a name in a folder below /dev, as oraudev/disks/DATA1")
    if folder == "oracleasm":
        raise custom("/dev/oracleasm is ASMLib's own file system; name another folder, as oraudev/disks")
    if folder in FOLDERS_OF_UDEV or _SUBSTITUTION.search(folder):
        raise custom(f"`{link}` could hide another name of a device; name a folder of its own, as oraudev/disks")
    if {"", "."} & set(_SUBSTITUTION.sub("", _substituted(link)).split("/")):
        raise custom(f"`{link}` is not a plain name")


def _assigned(given: dict[str, str]) -> dict[str, str]:
    for key, value in given.items():
        if key == "MODE" and (not OCTAL.fullmatch(value) or int(value, 8) & _WORLD_WRITE):
            raise custom(f'MODE {value} is not a mode, as "0660", or makes the device writable for all users')
        if key in ("OWNER", "GROUP") and not re.fullmatch(ACCOUNT, value):
            raise custom(f"`{value}` is not the name of a user or group")
        if key == "SYMLINK":
            for link in value.split(" "):
                _link(link)
    return given


Value: TypeAlias = Annotated[Line, AfterValidator(_udev_value)]
MatchKey: TypeAlias = Annotated[
    str,
    matching(
        r"ACTION|DEVPATH|KERNELS?|SUBSYSTEMS?|DRIVERS?|RESULT|TAGS?|(ATTRS?|ENV)\{[A-Za-z0-9_][A-Za-z0-9_./-]*\}",
        "`{value}` is not a key that a device is matched by: KERNEL, SUBSYSTEM, ENV{{NAME}}, ATTRS{{name}}, RESULT …",
    ),
]
Matches: TypeAlias = dict[MatchKey, Value]
Assigns: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_assign_key)], Value], Field(min_length=1), AfterValidator(_assigned)
]


class Rule(Strict):
    """One rule: a device with all of `match` and none of `unless` gets the values of `assign`."""

    match: Matches = Field(min_length=1, max_length=50, description='Keys of udev(7) and patterns: {KERNEL: "sd*"}.')
    unless: Matches = Field({}, max_length=50, description="Keys and patterns that must not match.")
    program: Annotated[list[Annotated[Line, AfterValidator(_word)]], AfterValidator(_program)] = Field(
        [],
        max_length=20,
        description="A program that udev starts to tell devices apart, and its arguments; `RESULT` in `match` is its "
        "expected output.",
    )
    assign: Assigns = Field(description='Assignments: {OWNER: grid, MODE: "0660"}; SYMLINK is added.')

    @property
    def gives(self) -> bool:
        """Whether it gives devices an owner, a mode, a link or a property, and not only settings of their queues."""
        return any(not key.startswith("ATTR{queue/") for key in self.assign)

    @property
    def links(self) -> tuple[str, ...]:
        """The links that it makes, below /dev."""
        return tuple(self.assign["SYMLINK"].split(" ")) if "SYMLINK" in self.assign else ()

    def line(self) -> str:
        """The rule as udev reads it; PROGRAM precedes the RESULT that it gives."""
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        result = {key: value for key, value in self.match.items() if key == "RESULT"}
        yield from (f'{key}=="{value}"' for key, value in self.match.items() if key not in result)
        yield from (f'{key}!="{value}"' for key, value in self.unless.items())
        if self.program:
            yield f'PROGRAM=="{" ".join(self.program)}"'
        yield from (f'{key}=="{value}"' for key, value in result.items())
        for key, value in self.assign.items():
            yield f'{key}{"+=" if key == "SYMLINK" else "="}"{value}"'


_RULES_NAME = r"[0-9]{2}-[A-Za-z0-9][A-Za-z0-9_.-]*\.rules"


class UdevRules(Operation):
    """Rules for devices, in a file of their own: `{file: /etc/udev/rules.d/66-x.rules, rules: [{match: …, assign:
    …}]}`."""

    file: Annotated[AbsolutePath, in_folder("/etc/udev/rules.d", _RULES_NAME, "66-NAME.rules")] = Field(
        description="The file of /etc/udev/rules.d that holds them, whole and alone."
    )
    rules: list[Rule] = Field(min_length=1, max_length=500, description="The rules, in order.")
    subsystem: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] = Field(
        "block", description="The devices that udev looks at again afterwards."
    )
    validator: Annotated[str, Field(max_length=80)] = Field(
        "", description="A check of the host's policy that has to accept the file first."
    )

    privileges = "root: writes /etc/udev/rules.d, runs udevadm"

    @property
    def lasting(self) -> str:
        """Attributes that udev writes: it restores none when the rule is removed; `block_queue` does."""
        attributes = [key for rule in self.rules for key in rule.assign if key.startswith("ATTR{")]
        return f"what udev writes to {attributes[0]}" if attributes else ""

    def targets(self) -> Mapping[str, str]:
        return {f"file {self.file}": self._content().decode()}

    def wanted(self) -> tuple[str, ...]:
        after = f"udev reads them at once and looks at all {self.subsystem} devices again"
        return (f"{self.file}:", *(f"  {rule.line()}" for rule in self.rules), after)

    def steps(self, facts: Facts) -> Iterable[Found]:
        """The file; udev reads it and evaluates the devices again, also on undo."""
        found: Iterable[Found] = whole_file(
            facts,
            self.file,
            self._content(),
            validator=self.validator,
            runs=tuple(tuple(rule.program) for rule in self.rules if rule.program),
            writes=(_QUEUES,) if self.lasting else (),
            governs=tuple(tuple(rule.match.items()) for rule in self.rules if rule.gives),
            links=tuple(link for rule in self.rules for link in rule.links),
        )
        trigger = (UDEVADM, "trigger", "--action=change", f"--subsystem-match={self.subsystem}")
        for argv in ((UDEVADM, "control", "--reload"), trigger, (UDEVADM, "settle", "--timeout=30")):
            found = around(found, Command(undo=argv), Command(argv=argv))
        return found

    def _content(self) -> bytes:
        return "".join(f"{rule.line()}\n" for rule in self.rules).encode()
