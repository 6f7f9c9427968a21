"""The whole HLR plan over Oracle's protocol: `proveout run`, the real python-oracledb, a TNS server with PostgreSQL
behind it.

It proves the driver, the population, the journal and the verdicts end to end. It does not prove that Oracle Database
takes the texts, nor anything about its speed: the server is Python and translates each statement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

PLANS = Path(__file__).parents[2] / "plans"
INVENTORY = """
topology:
  hosts:
    db1:     {{roles: [server], address: local}}
    client1: {{roles: [client], address: local}}
  systems:
    db: {{engine: oracle, host: db1, dsn: "{user}/${{secrets.oracle}}@{target}"}}
secrets:
  oracle: {{env: PROVEOUT_ORACLE_PASSWORD}}
"""
PARAMETERS = ("-p", "subscribers=1_000", "-p", "measure=1s")


def run(folder: Path, dsn: str, password: str, *parameters: str) -> subprocess.CompletedProcess[str]:
    credentials, _, target = dsn.rpartition("@")
    inventory = folder / "inventory.yaml"
    inventory.write_text(INVENTORY.format(user=credentials.partition("/")[0], target=target))
    argv = [sys.executable, "-m", "proveout", "run", str(PLANS / "hlr-oracle-wire.yaml"), "-i", str(inventory)]
    argv += [
        "--headless",
        "--json",
        str(folder / "result.json"),
        "--runs-dir",
        str(folder / "runs"),
        *PARAMETERS,
        *parameters,
    ]
    environment = os.environ | {"PROVEOUT_ORACLE_PASSWORD": password}
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, env=environment, check=False)


@pytest.mark.slow
def test_the_plan_passes_its_verdicts(oracle: str, tmp_path: Path) -> None:
    """The server's AWR is canned: its reports show which snapshots were taken, and that they are kept."""
    done = run(tmp_path, oracle, "hlr", "-p", "captures=[host, awr]")
    text = done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    outcomes = {verdict["id"]: verdict["outcome"] for verdict in result["verdicts"]}
    assert outcomes["no-errors"] == "PASS", text
    assert outcomes["change-costs-more"] == "PASS", text
    assert done.returncode == 0, text
    assert "system db is up on db1: oracle 19.0.0.0.0" in text
    (folder,) = (tmp_path / "runs").iterdir()
    reports = sorted(path.name for path in (folder / "outputs").iterdir())
    assert reports == [f"mixed-{rung}-{repeat}-1-awr-db1.html" for rung in (1, 2, 4) for repeat in (1, 2, 3)]
    page = (folder / "outputs" / reports[0]).read_text()
    assert "default-src 'none'" in page.splitlines()[0]
    assert "snapshots 1 to 2" in page
    assert f'<a href="outputs/{reports[0]}">' in (folder / "report.html").read_text()
    assert "success is as specified" in json.dumps(result), "no iteration was held against TATP's shares"


def test_a_wrong_password_ends_the_run_in_oracles_words(oracle: str, tmp_path: Path) -> None:
    done = run(tmp_path, oracle, "tiger-of-mine")
    assert done.returncode == 4
    assert "ORA-01017" in done.stdout + done.stderr
    assert "tiger-of-mine" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
