"""Facts of hosts and systems -> digests, drift, and what people read of them."""

from __future__ import annotations

import json
from typing import Any, Literal

from proveout.coordinator.report import markdown
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.fingerprint import digest, fingerprints, outline
from proveout.coordinator.results.results import load_results
from proveout.proto.events import FactsTaken

HOST = {"cpus": 2, "cpu_model": "A", "kernel": "6.1", "memory_bytes": 8 * 2**30, "boot_id": "x", "host_name": "a"}


def taken(when: Literal["start", "end"], host: str = "db1", system: str = "", **facts: Any) -> FactsTaken:
    return FactsTaken(when=when, host=host, system=system, facts=facts)


def test_alike_machines_have_the_same_digest() -> None:
    assert digest(HOST) == digest(HOST | {"boot_id": "y", "host_name": "b"})
    assert digest(HOST) != digest(HOST | {"kernel": "6.2"})
    assert digest(dict(reversed(HOST.items()))) == digest(HOST)


def test_drift_is_between_the_first_look_and_the_last() -> None:
    later = {key: value for key, value in HOST.items() if key != "kernel"} | {"cpu_governor": "performance"}
    events = [taken("start", **HOST), taken("start", system="db", version="18"), taken("end", **later)]
    host, system = fingerprints(load_results(events))
    assert [str(change) for change in host.drift] == ["cpu_governor: none -> performance", "kernel: 6.1 -> none"]
    assert (host.name, host.whole, host.digest) == ("db1", True, digest(HOST))
    assert (system.name, system.whole, system.drift) == ("db", False, ())


def test_a_resume_on_another_kernel_is_drift_and_the_new_one_counts() -> None:
    """Numbers of both sittings are in the run, so the change has to show."""
    events = [
        taken("start", **HOST),
        taken("start", **HOST | {"kernel": "6.2"}),
        taken("end", **HOST | {"kernel": "6.2"}),
    ]
    (host,) = fingerprints(load_results(events))
    assert [change.fact for change in host.drift] == ["kernel"]
    assert host.digest == digest(HOST | {"kernel": "6.2"})


def test_it_is_in_every_report() -> None:
    results = load_results([taken("start", **HOST), taken("end", **HOST | {"kernel": "6.2"})])
    (host,) = fingerprints(results)
    assert outline(host) == "2 × A, 8 GiB, Linux 6.1"
    text = markdown.render(run_document(results))
    assert "## Environment" in text
    assert host.digest[7:19] in text
    assert "kernel: 6.1 -\\> 6.2" in text
    (written,) = json.loads(result_to_json(results))["environment"]
    assert written["facts"]["cpu_model"] == "A"
    assert written["drift"] == [{"fact": "kernel", "before": "6.1", "after": "6.2"}]
