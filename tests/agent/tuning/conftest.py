"""Makes `tuning_bench` importable: pytest's importlib mode leaves this folder out."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
