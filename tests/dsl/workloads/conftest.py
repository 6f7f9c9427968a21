"""The modules of this folder import each other by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # pytest's importlib mode leaves this folder out
