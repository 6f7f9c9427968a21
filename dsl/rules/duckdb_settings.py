"""Settings of DuckDB that a plan may give: for a system's processes (`settings:`) and for a load's (`session:`). Pure.

DuckDB runs inside the process that opens the file, and its settings belong to that process. They are fixed when the
file is opened; SQL cannot change them afterwards (`agent.engines.duckdb.external_access`). So both kinds are written
into the dsn: `PATH?threads=2&memory_limit=1GB` -> `split_dsn` -> the configuration of the connection.

Source: DuckDB "Configuration", "Pragmas".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_COUNT = re.compile(r"[1-9]\d{0,3}")
_SIZE = re.compile(r"\d{1,12}(?:\.\d{1,3})? ?(?:[KMGT]i?B)")
_SWITCH = re.compile(r"on|off")
_METHOD = re.compile(r"auto|uncompressed|rle|dictionary|bitpacking|fsst|chimp|patas|alp|zstd")

SESSION: Mapping[str, re.Pattern[str]] = {
    "max_temp_directory_size": _SIZE,
    "memory_limit": _SIZE,
    "preserve_insertion_order": _SWITCH,
    "threads": _COUNT,
}
"""The settings of `session:`, with the pattern of their values."""

SETTINGS: Mapping[str, re.Pattern[str]] = {**SESSION, "checkpoint_threshold": _SIZE, "force_compression": _METHOD}
"""The settings of a system; `force_compression` applies to what is written, so a load cannot have it alone."""

_FORMS = {id(_COUNT): "a whole number from 1", id(_SIZE): "a size such as 512MB or 2GB", id(_SWITCH): "on or off"}
_DSN = re.compile(r"(?P<path>.*?)(?:\?(?P<settings>[a-z_]+=[^/?&=]+(?:&[a-z_]+=[^/?&=]+)*))?", re.DOTALL)


def objection(name: str, value: str, among: Mapping[str, re.Pattern[str]] = SETTINGS) -> str | None:
    """The reason why a setting cannot be given; None when it can.

    >>> objection("threads", "all")
    'the value of `threads` is a whole number from 1'
    """
    pattern = among.get(name)
    if pattern is None:
        return f"`{name}` is not a setting of DuckDB that a plan gives; these are: {', '.join(sorted(among))}"
    if not pattern.fullmatch(value):
        form = _FORMS.get(id(pattern), f"one of {_METHOD.pattern.replace('|', ', ')}")
        return f"the value of `{name}` is {form}"
    return None


def split_dsn(dsn: str) -> tuple[str, dict[str, str]]:
    """The path of the file and the settings.

    >>> split_dsn("/data/a.duckdb?threads=2&memory_limit=1GB")
    ('/data/a.duckdb', {'threads': '2', 'memory_limit': '1GB'})
    """
    found = _DSN.fullmatch(dsn)
    assert found is not None  # noqa: S101 - every text matches
    pairs = (pair.partition("=") for pair in (found["settings"] or "").split("&") if pair)
    return found["path"], {name: value for name, _, value in pairs}


def join_dsn(path: str, settings: Iterable[tuple[str, str]]) -> str:
    """The dsn of a file with settings; a later setting of the same name replaces an earlier one."""
    text = "&".join(f"{name}={value}" for name, value in dict(settings).items())
    return f"{path}?{text}" if text else path
