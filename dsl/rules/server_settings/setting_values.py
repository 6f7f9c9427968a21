"""Names and values of settings, checked before a server refuses them or quietly takes others.

Data flow: engine, name, value -> the setting in the engine's table (`setting_tables`) -> an objection with the way
out, or None.
Source: PostgreSQL, "Parameter Interaction via the Configuration File" and its units; MariaDB, "Specifying Values for
Size Variables" and "Specifying Boolean Values".
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from proveout.dsl.rules.host_rules import Objection, setting_problems
from proveout.dsl.rules.server_settings.setting_tables import Setting, Table, table
from proveout.dsl.source.nodes import did_you_mean

_ON_OFF = frozenset({"on", "off", "true", "false", "yes", "no", "1", "0"})
_SIZES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TIMES = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3, "d": 86_400e3}
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_UNIT = re.compile(r"(\d*)([A-Za-z]+)")
_MYSQL = "mysql"
_LOOSE = "loose_"
"""MariaDB leaves out an option with this beginning that it does not have."""
_ANY_TEXT = frozenset({"log_bin"})
"""Variables of MariaDB whose option takes more than the variable's type."""


def setting_objections(engine: str, name: str, value: str, provision: str | None) -> list[Objection]:
    """The objections to a setting of a system that proveout starts: by its agents, and by the server itself."""
    refused = list(setting_problems(engine, name, value, provision))
    if provision != "embedded":
        return refused
    other = misspelled(engine, name) if refused else objection(engine, name, value)
    return refused if other is None else [other]


def objection(engine: str, name: str, value: str) -> Objection | None:
    """The reason why the embedded server of an engine would not take a setting; None when it would.

    >>> objection("postgres", "work_mem", "4gb").way_out
    'did you mean 4GB?'
    """
    known = table(engine)
    plain = name.lower().replace("-", "_") if engine == _MYSQL else name.lower()
    if known is None or ("." in plain and plain not in known.settings) or plain.startswith(_LOOSE):
        return None  # an extension's own, or one that the server may leave out
    setting = known.settings.get(plain)
    if setting is None:
        return None if plain in known.refused else _unknown(engine, name, plain, known)
    if plain in _ANY_TEXT:
        return None
    return _value(engine, name, setting, value.strip())


def misspelled(engine: str, name: str) -> Objection | None:
    """The objection to a name that no setting has, and that is close to one that a plan may give; None for others."""
    known = table(engine)
    plain = name.lower().replace("-", "_")
    if known is None or plain in known.settings or plain in known.refused:
        return None
    return _unknown(engine, name, plain, known) if get_close_matches(plain, known.settings, n=1, cutoff=0.8) else None


def _unknown(engine: str, name: str, plain: str, known: Table) -> Objection:
    hint = did_you_mean(plain, known.settings) if get_close_matches(plain, known.settings, n=1) else ""
    if not hint and engine == _MYSQL:
        hint = f"{_LOOSE}{plain} for a server of another version that has it"
    return Objection(message=f"{known.server} has no setting `{name}`", way_out=hint)


def _value(engine: str, name: str, setting: Setting, value: str) -> Objection | None:
    if setting.kind == "bool" and value.lower() not in _ON_OFF:
        return Objection(message=f"the value of `{name}` is on or off, not {value[:80]}")
    if setting.kind == "enum":
        return _word(engine, name, setting, value)
    if setting.kind == "set":
        return _words(name, setting, value)
    if setting.kind not in ("int", "real"):
        return None
    return _suffixed(name, setting, value) if engine == _MYSQL else _with_unit(name, setting, value)


def _word(engine: str, name: str, setting: Setting, value: str) -> Objection | None:
    lower = [word.lower() for word in setting.words]
    numbered = engine == _MYSQL and value.isdecimal() and int(value) < len(lower)
    if value.lower() in lower or numbered or (value.lower() in _ON_OFF and {"on", "off"} & set(lower)):
        return None
    message = f"the value of `{name}` cannot be {value[:80]}"
    return Objection(message=message, way_out=did_you_mean(value, setting.words))


def _words(name: str, setting: Setting, value: str) -> Objection | None:
    """Several words, in MariaDB with commas between them."""
    lower = {word.lower() for word in (*setting.words, "all", "default", "")}
    for word in value.split(","):
        plain = word.partition("=")[0].strip()
        if plain.lower() not in lower and not plain.isdecimal():
            message = f"the value of `{name}` cannot have {plain[:80]}"
            return Objection(message=message, way_out=did_you_mean(plain, setting.words))
    return None


def _suffixed(name: str, setting: Setting, value: str) -> Objection | None:
    """A number of MariaDB's, with K, M, G … after it."""
    found = _NUMBER.fullmatch(value)
    if found is None or found[2].upper() not in _SUFFIXES or (found[2] and "." in found[1]):
        close = found is not None and found[2][:1].upper() in _SUFFIXES and "." not in found[1]
        hint = f"did you mean {found[1]}{found[2][:1].upper()}?" if found and close else ""
        what = "a number" if setting.kind == "real" else "a whole number, such as 8192, 64K or 1G"
        return Objection(message=f"the value of `{name}` is {what}, not {value[:80]}", way_out=hint)
    return _within(name, setting, float(found[1]) * _SUFFIXES[found[2].upper()])


def _with_unit(name: str, setting: Setting, value: str) -> Objection | None:
    """A number of PostgreSQL's, with a unit of memory or of time where the setting has one."""
    found = _NUMBER.fullmatch(value)
    units = _units(setting)
    if found is None or (found[2] and found[2] not in units):
        allowed = f", with {', '.join(units)} or without a unit ({setting.unit})" if units else ", without a unit"
        meant = next((unit for unit in units if found and unit.lower() == found[2].lower()), "")
        short = next((unit for unit in units if found and unit[:1].lower() == found[2].lower()), "")
        hint = f"did you mean {found[1]}{meant or short}?" if found and (meant or short) else ""
        kind = "a whole number" if setting.kind == "int" and not units else "a number"
        return Objection(message=f"the value of `{name}` is {kind}{allowed}, not {value[:80]}", way_out=hint)
    base = _UNIT.fullmatch(setting.unit)
    scale = 1.0
    if found[2] and base is not None:
        scale = units[found[2]] / (units[base[2]] * int(base[1] or 1))
    return _within(name, setting, float(found[1]) * scale)


def _units(setting: Setting) -> dict[str, float]:
    """The units of memory or of time, by the unit of the setting."""
    base = _UNIT.fullmatch(setting.unit)
    return next((dict(family) for family in (_SIZES, _TIMES) if base is not None and base[2] in family), {})


def _within(name: str, setting: Setting, number: float) -> Objection | None:
    below = setting.low is not None and number < setting.low
    above = setting.high is not None and number > setting.high
    if not below and not above:
        return None
    unit = f" {setting.unit}" if setting.unit else ""
    limit = f"at least {setting.low:.20g}{unit}" if below else f"at most {setting.high:.20g}{unit}"
    return Objection(message=f"the value of `{name}` is {limit}")
