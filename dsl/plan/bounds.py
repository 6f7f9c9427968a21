"""Bounds of a plan's numbers, lists and names, for the models of the schema and for the rules. No pydantic here: agents
check tasks by the rules.
"""

from __future__ import annotations

from proveout.core import units

WEEK_S = 7 * units.DAY_S
EVERY_MIN_S, EVERY_MAX_S = 0.1, 3600.0
RATE_MAX = 1e9
SIZE_MIN, SIZE_MAX = 512, 2**50
THREADS_MAX = 10_000
TEXT_MAX = 4096
STATEMENTS_MAX = 1000
SETTINGS_MAX, INSTANCES_MAX, SCRAPES_MAX = 200, 64, 200
STANDBYS_MAX = 8
VALUES_MAX, COLUMNS_MAX, WHERE_MAX = 100, 1000, 10
ARGUMENTS_MAX, EXIT_CODES_MAX = 200, 20
FACTS_MAX, FACT_TEXT_MAX, EQUIPMENT_MAX = 200, 1000, 200

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
FACT_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:-]{0,99}$"
EXPECTED_FACT_PATTERN = r"^[A-Za-z*][A-Za-z0-9_.:*-]{0,99}$"
ID_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
METRIC_PATTERN = r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$"
CONNECT_EVERY_MAX = 1_000_000

RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
"""The words of the expression language, which name nothing else."""
RESERVED_IDS = RESERVED | {"at", "hosts", "params", "propagation", "ratio", "rung", "secrets"}
