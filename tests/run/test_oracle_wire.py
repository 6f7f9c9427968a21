"""The whole HLR plan over Oracle's protocol: `proveout run`, the real python-oracledb, a TNS server with PostgreSQL
behind it.

It proves the driver, the population, the journal and the verdicts end to end. It does not prove that Oracle Database
takes the texts, nor anything about its speed: the server is Python and translates each statement.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from whole_run import proveout

PLAN = Path(__file__).parents[2] / "plans" / "hlr-oracle-wire.yaml"
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


@pytest.mark.soak
def test_the_plan_passes_its_verdicts(oracle: str, tmp_path: Path) -> None:
    """The server's AWR is canned: its reports show which snapshots were taken, and that they are kept."""
    credentials, _, target = oracle.rpartition("@")
    (tmp_path / "lab.yaml").write_text(INVENTORY.format(user=credentials.partition("/")[0], target=target))
    words = ("-i", "lab.yaml", "-p", "subscribers=1_000", "-p", "measure=1s", "-p", "captures=[host, awr]")
    secret = {"PROVEOUT_ORACLE_PASSWORD": "hlr"}
    done = proveout(tmp_path, "run", str(PLAN), "--headless", "--runs-dir", "runs", *words, environment=secret)
    outcomes = {verdict["id"]: verdict["outcome"] for verdict in done.ended(0).result["verdicts"]}
    assert (outcomes["no-errors"], outcomes["change-costs-more"]) == ("PASS", "PASS")
    assert "system db is up on db1: oracle 19.7.0.0.0" in done.said
    reports = sorted(path.name for path in (done.directory / "outputs").iterdir())
    assert reports == [f"mixed-{rung}-{repeat}-1-awr-db1.html" for rung in (1, 2, 4) for repeat in (1, 2, 3)]
    page = (done.directory / "outputs" / reports[0]).read_text()
    assert "default-src 'none'" in page.splitlines()[0]
    assert "snapshots 1 to 2" in page
    assert f'<a href="outputs/{reports[0]}">' in (done.directory / "report.html").read_text()
    assert "success is as specified" in json.dumps(done.result), "no iteration was held against TATP's shares"
