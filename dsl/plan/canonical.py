"""Compiled things as plain data, and the canonical form that digests are taken over."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


def to_data(value: Any, *, positions: bool = False) -> Any:
    """A plan (or any part) as plain lists, dicts and scalars; dataclass fields by name, `where` only with
    `positions`.

    A field that came later has `omitted` in its metadata: it is left out at its default, so that the digest of a plan
    that does not use it stays the same.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_data(getattr(value, f.name), positions=positions)
            for f in dataclasses.fields(value)
            if (positions or f.name != "where")
            and not ("omitted" in f.metadata and getattr(value, f.name) == f.default)
        }
    if isinstance(value, (tuple, list)):
        return [to_data(item, positions=positions) for item in value]
    return value


def canonical_json(plan: Any) -> str:
    """The canonical form: JSON, keys sorted, no spaces, no positions. The digest is the hash of this text."""
    return json.dumps(to_data(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
