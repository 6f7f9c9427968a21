"""What these tests share is beside them, and in the fabric's tests; pytest's importlib mode leaves both folders out."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fabric")]
