"""The reference is what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_reference_is_up_to_date() -> None:
    argv = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    checked = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stderr
