"""Write docs/reference/ from the code: the plan format from its JSON Schema, the metrics from their vocabulary, what a running
coordinator exports, the verbs' help, the JSON Schemas of results and of comparisons.

`python docs/generate.py` writes, `python docs/generate.py --check` says what is out of date and exits 1. A test runs the
latter, so the reference cannot drift from what the program does.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from proveout.cli import VERBS
from proveout.coordinator.exporter.metric_families import FAMILIES, Family
from proveout.coordinator.report.compare import comparison_json
from proveout.coordinator.report.result_schema import schema_json
from proveout.dsl import metrics

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; edit that. -->\n"

TREES = {
    "Load (always there)": metrics.LOAD,
    "Per transaction: `transactions.NAME.…`": metrics.TRANSACTION,
    "Host: `cpu` is the target's host, `hosts.NAME.…` each captured host (capture `os`)": metrics.OS_HOST,
    "Tool (a stage that runs fio); `hosts` and `prometheus` as of a load": metrics.TOOL,
    "Tool, per host: `nodes.NAME.…`": metrics.NODE,
    "Orders (workload `tprocc`)": metrics.ORDERS,
    "Sets of queries: a `kind: sql` workload `in_order`": metrics.SET,
    "Waits: `waits.…` (capture `waits`)": metrics.WAITS,
    "Sizes: `sizes.…` and `sizes.tables.<name>.…` (capture `sizes`)": metrics.SIZE,
    "Replication lag: `lag.…` (capture `lag`)": metrics.LAG,
    "Exporter: `prometheus.CAPTURE.NAME.…` (capture `prometheus`), a gauge": metrics.EXPORTED_GAUGE,
    "Exporter: `prometheus.CAPTURE.NAME.…` (capture `prometheus`), a counter": metrics.EXPORTED_COUNTER,
    "Estimate: what a number of a rung carries over its repeats": metrics.ESTIMATE,
    "Populate stage: `ID.…`": metrics.POPULATE,
    "Search stage: `ID.…`": metrics.SEARCH,
    "Sql stage: `ID.…`": metrics.SQL,
    "Reset and pause stages: `ID.…`": metrics.TIMED,
    "Propagation: `propagation.SYSTEM.…` (verdicts only)": metrics.PROPAGATION,
}


def main() -> int:
    """Write the reference, or with `--check` compare it; the exit code."""
    pages = {"plan.md": plan_page(), "metrics.md": metrics_page(), "cli.md": cli_page()}
    pages["openmetrics.md"] = openmetrics_page()
    pages["result.schema.json"] = schema_json()
    pages["compare.schema.json"] = comparison_json.schema_json()
    if "--check" in sys.argv[1:]:
        stale = [name for name, text in pages.items() if not _holds(REFERENCE / name, text)]
        for name in stale:
            sys.stderr.write(f"docs/reference/{name} is out of date: run python docs/generate.py\n")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages.items():
        (REFERENCE / name).write_text(text)
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


# ---- the plan format ------------------------------------------------------------------------------------------------


def plan_page() -> str:
    """The plan format: one section per object of the schema."""
    schema = json.loads((ROOT / "plans" / "plan.schema.json").read_text())
    lines = [NOTE, "# The plan format", "", schema.get("description", ""), ""]
    lines += _fields(schema)
    for name, definition in schema["$defs"].items():
        lines += [f"## {name}", "", definition.get("description", ""), "", *_fields(definition)]
    return "\n".join(lines).rstrip() + "\n"


def _fields(definition: Mapping[str, Any]) -> list[str]:
    required = set(definition.get("required", ()))
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    for key, field in definition.get("properties", {}).items():
        default = "required" if key in required else _default(field)
        rows.append(f"| `{key}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |")
    return [*rows, ""] if len(rows) > 2 else []


def _default(field: Mapping[str, Any]) -> str:
    return f"`{json.dumps(field['default'])}`" if field.get("default") is not None else ""


def _type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in field:
        return " \\| ".join(f"`{_cell(str(value))}`" for value in field["enum"])
    if union := field.get("anyOf", field.get("oneOf")):
        return " or ".join(dict.fromkeys(_type(each) for each in union if not _is_noise(each)))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"names to {_type(field['additionalProperties'])}"
    return str(field.get("format") or field.get("type", "any"))


def _is_noise(kind: Mapping[str, Any]) -> bool:
    """`null` (a key left out) and `${…}` (allowed for every value) are said once, not in every row."""
    return kind.get("type") == "null" or kind.get("description", "").startswith("${")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# ---- metrics --------------------------------------------------------------------------------------------------------


def metrics_page() -> str:
    """The names that expressions, verdicts and reports use."""
    lines = [NOTE, "# Metrics", "", *(metrics.__doc__ or "").strip().splitlines()[1:], ""]
    for title, tree in TREES.items():
        lines += [f"## {title}", "", "| name | |", "|---|---|"]
        lines += [f"| `{name}` | {_cell(text)} |" for name, text in _flat(tree)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _flat(tree: metrics.Tree, prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in tree.items():
        if isinstance(value, str):
            rows.append((prefix + name, value))
        elif value is metrics.LATENCY:
            rows.append((f"{prefix}{name}.{{{', '.join(metrics.LATENCY)}}}", "latency, µs"))
        elif value is metrics.LOAD:
            rows.append((f"{prefix}{name}.…", "as Load, of the confirming iteration"))
        else:
            rows += _flat(value, f"{prefix}{name}.")
    return rows


def openmetrics_page() -> str:
    """What `run --metrics` serves."""
    lines = [
        NOTE,
        "# Metrics of a running coordinator",
        "",
        "What `proveout run --metrics ADDR` serves as OpenMetrics text",
    ]
    lines += ["([guide](../guide/metrics.md)).", "", "| name | type | labels | |", "|---|---|---|---|"]
    lines += [
        f"| `{family.sample}` | {_kind(family)} | {_labels(family)} | {_cell(family.about)} |" for family in FAMILIES
    ]
    return "\n".join(lines) + "\n"


def _kind(family: Family) -> str:
    return f"{family.kind}: {', '.join(family.states)}" if family.states else family.kind


def _labels(family: Family) -> str:
    return ", ".join(f"`{label}`" for label in family.labels)


# ---- the command line -----------------------------------------------------------------------------------------------


def cli_page() -> str:
    """The help of every verb, as the program prints it."""
    lines = [NOTE, "# The command line", "", "```", _help(), "```", ""]
    for verb in VERBS:
        lines += [f"## proveout {verb}", "", "```", _help(verb), "```", ""]
        for below in _group(verb):
            lines += [f"### proveout {verb} {below}", "", "```", _help(verb, below), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _group(verb: str) -> list[str]:
    """The verbs below a verb that is a group, `pki`; none for the others."""
    found = getattr(importlib.import_module(f"proveout.cli.{verb}"), verb)
    if not isinstance(found, typer.Typer):
        return []
    return [command.name or command.callback.__name__ for command in found.registered_commands if command.callback]


def _help(*verb: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    argv = [sys.executable, "-m", "proveout", *verb, "--help"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment, timeout=60)
    return "\n".join(line.rstrip() for line in shown.stdout.strip().splitlines())


if __name__ == "__main__":
    sys.exit(main())
