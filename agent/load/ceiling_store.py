"""Stores the ceilings measured on this host: the highest rate of its load generator, by driver.

Flow: `proveout ceiling` -> `keep` -> `ceilings.json` in the user's state directory -> `known(engine)` in the result of
every load -> the coordinator compares the achieved rate with it. A ceiling is valid for one machine configuration: it
is dropped when the CPU, the kernel, Python or proveout has changed (`fingerprint`). A server on the same machine uses
some of the cores, so ceilings with the server on the same machine (`shared`) and on another one (`apart`) are separate.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from proveout.agent import host_facts
from proveout.core.data_classes import record

FILE = "ceilings.json"
_FACTS = ("architecture", "cpu_model", "cpus", "kernel")


@record
class Ceiling:
    """Highest rate of a driver on a host: no-op transactions a second at `connections`, and client CPU for each, µs."""

    engine: str
    shared: bool
    per_s: float
    connections: int
    cpu_us: float
    workers: int
    measured_unix_s: float


@record
class Known:
    """Ceilings of a driver on this host, 1/s: with the server on the same machine, and on another one."""

    shared_per_s: float | None = None
    apart_per_s: float | None = None

    def text(self, shown: Callable[[float], str]) -> str:
        """`12,000/s away from the server, 9,000/s beside the server`; "" for none."""
        both = ((self.apart_per_s, "away from the server"), (self.shared_per_s, "beside the server"))
        return ", ".join(f"{shown(per_s)}/s {where}" for per_s, where in both if per_s is not None)


def state_directory() -> Path:
    """$XDG_STATE_HOME/proveout, or ~/.local/state/proveout, of the user that generates the load."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / "proveout"


@cache  # asked at the end of every load, and 15 ms of CPU
def fingerprint() -> str:
    """The machine configuration that a ceiling is valid for, in one line."""
    found = dict(host_facts.facts())
    parts = [host_facts.machine_id(), *(str(found.get(name, "")) for name in _FACTS)]
    return " | ".join((*parts, f"python {platform.python_version()}", f"proveout {metadata.version('proveout')}"))


def keep(ceiling: Ceiling, directory: Path | None = None) -> Path:
    """Store a ceiling, replacing an earlier one of the same driver and kind; returns the file. OSError."""
    folder = directory or state_directory()
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in _read(folder).items() if value.get("fingerprint") == fingerprint()}
    kept[_key(ceiling.engine, shared=ceiling.shared)] = asdict(ceiling) | {"fingerprint": fingerprint()}
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as beside:
        json.dump(kept, beside, indent=1, sort_keys=True)
    Path(beside.name).replace(folder / FILE)
    return folder / FILE


def known(engine: str, directory: Path | None = None) -> Known:
    """The ceilings of a driver that are valid now; none if the file cannot be read."""
    kept = _read(directory or state_directory())
    return Known(shared_per_s=_per_s(kept, engine, shared=True), apart_per_s=_per_s(kept, engine, shared=False))


def _per_s(kept: Mapping[str, Any], engine: str, *, shared: bool) -> float | None:
    entry = kept.get(_key(engine, shared=shared), {})
    if "fingerprint" not in entry or entry["fingerprint"] != fingerprint():
        return None
    per_s = entry.get("per_s")
    return per_s if isinstance(per_s, float) else None


def _key(engine: str, *, shared: bool) -> str:
    return f"{engine}/{'shared' if shared else 'apart'}"


def _read(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if isinstance(kept, dict):
            return {key: value for key, value in kept.items() if isinstance(value, dict)}
    return {}
