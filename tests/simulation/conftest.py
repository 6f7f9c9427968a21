"""The simulation's modules are beside the tests; pytest's importlib mode leaves their folder out."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
