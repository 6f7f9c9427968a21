"""Session state that the hooks and the collector share."""

from __future__ import annotations

import pytest

RUNS = pytest.StashKey[dict[str, str]]()
"""Plans that were run in this session: name -> run directory."""
