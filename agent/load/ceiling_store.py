"""The ceilings that were measured on this host: how fast its load generator goes at most, by driver. Kept for the loads to come.

Flow: `proveout ceiling` -> `keep` -> `ceilings.json` in the user's state directory -> `known(engine)` in every load's result -> the
coordinator holds the achieved rate against it. A ceiling belongs to the machine as it was: it is forgotten when the CPU, the
kernel, Python or proveout is another (`fingerprint`). A server on the same machine takes its share of the cores, so ceilings
measured beside one (`shared`) and away from one (`apart`) are two.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from proveout.agent import host_facts

FILE = "ceilings.json"
_TOLD = ("architecture", "cpu_model", "cpus", "kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most of a driver on a host: no-op transactions a second at `connections`, and CPU of the client for each, µs."""

    engine: str
    shared: bool
    per_s: float
    connections: int
    cpu_us: float
    workers: int
    measured_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a driver's ceiling here, 1/s: beside a server, and away from it."""

    shared_per_s: float | None = None
    apart_per_s: float | None = None


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """$XDG_STATE_HOME/proveout, or ~/.local/state/proveout: of the user that makes the load."""
    home = environment.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / "proveout"


def fingerprint() -> str:
    """What a ceiling depends on, in one line."""
    told = dict(host_facts.facts())
    parts = [host_facts.machine_id(), *(str(told.get(name, "")) for name in _TOLD)]
    return " | ".join((*parts, f"python {platform.python_version()}", f"proveout {metadata.version('proveout')}"))


def keep(ceiling: Ceiling, directory: Path | None = None) -> Path:
    """Keep a ceiling in place of an earlier one of the same driver and kind; the file. OSError."""
    folder = directory or state_directory()
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in _read(folder).items() if value.get("fingerprint") == fingerprint()}
    kept[_key(ceiling.engine, shared=ceiling.shared)] = asdict(ceiling) | {"fingerprint": fingerprint()}
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as beside:
        json.dump(kept, beside, indent=1, sort_keys=True)
    Path(beside.name).replace(folder / FILE)
    return folder / FILE


def known(engine: str, directory: Path | None = None) -> Known:
    """The ceilings of a driver on this host as it is now; a file that cannot be read knows none."""
    found = {shared: _ceiling(_read(directory or state_directory()), engine, shared=shared) for shared in (True, False)}
    shared, apart = found[True], found[False]
    return Known(
        shared_per_s=None if shared is None else shared.per_s, apart_per_s=None if apart is None else apart.per_s
    )


def _ceiling(kept: Mapping[str, Any], engine: str, *, shared: bool) -> Ceiling | None:
    entry = kept.get(_key(engine, shared=shared), {})
    if entry.get("fingerprint") != fingerprint():
        return None
    with contextlib.suppress(KeyError, TypeError):
        return Ceiling(**{field.name: entry[field.name] for field in fields(Ceiling)})
    return None


def _key(engine: str, *, shared: bool) -> str:
    return f"{engine}/{'shared' if shared else 'apart'}"


def _read(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if isinstance(kept, dict):
            return {key: value for key, value in kept.items() if isinstance(value, dict)}
    return {}
