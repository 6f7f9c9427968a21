"""Common parts of the compiled sessions of the engines, for the compiled load loop."""

PURE_PYTHON = "PROVEOUT_PURE_PYTHON"  # set in the environment: leave the compiled hot path aside
