"""Devices that a udev rule of a plan may match: attacks are refused by the compiler or by the policy, rules of labs are
accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policy_attacks import LISTED, RULES
from pydantic import ValidationError

from proveout.agent.security import policy as security_policy
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning.host import Host
from proveout.dsl.operations.facts import ABSENT, Facts, FileQuery
from proveout.dsl.operations.multipath import UdevRules

FILE = "/etc/udev/rules.d/66-x.rules"
DRV_CFG = "/bin/emc/scaleio/drv_cfg"
UDEVADM = Tool(path="/usr/bin/udevadm", arguments=("*",))
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d",),
    devices=LISTED,
    udev_devices=("KERNEL==scini*",),
    tools=(UDEVADM, Tool(path="/opt/drv_cfg", arguments=("/srv/*", "--file=/srv/*"))),
)


def objections(rule: Mapping[str, Any], policy: Policy = POLICY) -> tuple[str, ...]:
    """The objections to a rule, by the compiler or by the agent's policy."""
    try:
        operation = UdevRules.model_validate({"file": FILE, "rules": [rule]})
    except ValidationError as error:
        return tuple(str(detail["msg"]) for detail in error.errors())
    step = operation.changes(Facts({FileQuery(FILE): ABSENT}))
    return Host(policy=policy, root=Path("/nonexistent")).objections(step.changes)


@pytest.mark.escape
def test_a_rule_that_exceeds_the_policy_is_refused(record_property: Callable[[str, object], None]) -> None:
    """The same rules without the attack are accepted, so they are not refused for another reason."""
    record_property("escapes", len(RULES))
    assert [name for name, rule in RULES.items() if not objections(rule)] == []
    for rule in (
        {"match": {"KERNEL": "scini*"}, "assign": {"OWNER": "lab", "SYMLINK": "oraudev/disks/A%n"}},
        {"match": {"KERNEL": "scinia|scinib"}, "program": ["/opt/drv_cfg", "/srv/%k"], "assign": {"MODE": "0660"}},
        {"match": {"ENV{DM_NAME}": "fcion1"}, "assign": {"OWNER": "lab"}},
        {"match": {"ENV{DM_NAME}": "fcion1p2"}, "assign": {"OWNER": "lab"}},
        {"match": {"ENV{ID_SERIAL}": "36001405aaaa", "SUBSYSTEM": "block"}, "assign": {"OWNER": "lab"}},
        {"match": {"ENV{ID_SERIAL_SHORT}": "S4EVNX0R512345"}, "assign": {"GROUP": "lab"}},
    ):
        assert objections(rule) == (), rule


LABS: Mapping[str, tuple[Mapping[str, Any], Policy]] = {
    "ScaleIO disks identified by drv_cfg": (
        {
            "match": {"KERNEL": "scini*", "RESULT": "3e1a6b0f00000000"},
            "program": [DRV_CFG, "--query_block_device_id", "--block_device", "/dev/$name"],
            "assign": {"SYMLINK": "oraudev/disks/OCR1", "OWNER": "grid", "GROUP": "asmadmin", "MODE": "0660"},
        },
        replace(
            POLICY,
            tools=(UDEVADM, Tool(path=DRV_CFG, arguments=("--query_block_device_id", "--block_device", "/dev/$name"))),
        ),
    ),
    "maps of a Fusion-io array": (
        {"match": {"ENV{DM_NAME}": "fcion*1"}, "assign": {"OWNER": "grid", "GROUP": "asmadmin", "MODE": "0660"}},
        replace(POLICY, udev_devices=("ENV{DM_NAME}==fcion*",)),
    ),
    "queues of a 3PAR array": (
        {
            "match": {"SUBSYSTEM": "block", "KERNEL": "sd*", "ATTRS{vendor}": "3PARdata*"},
            "assign": {"ATTR{queue/rotational}": "0", "ATTR{queue/nr_requests}": "128"},
        },
        replace(POLICY, paths=("/etc/udev/rules.d", "/sys/block")),
    ),
}


@pytest.mark.parametrize("name", LABS)
def test_rules_of_labs_are_accepted_by_a_policy_that_lists_their_disks(name: str) -> None:
    rule, policy = LABS[name]
    assert objections(rule, policy) == ()
    without = replace(policy, udev_devices=(), paths=("/etc/udev/rules.d",))
    assert objections(rule, without), "and not without"


def test_a_refusal_names_the_rule_and_the_way_out() -> None:
    (objection,) = objections({"match": {"KERNEL": "sda"}, "assign": {"OWNER": "lab"}})
    assert objection.startswith("the devices of the rule KERNEL==sda are not allowed on this host")
    assert "`KEY==pattern`, under `udev: devices` in /etc/proveout/policy.yaml" in objection
    queues, policy = LABS["queues of a 3PAR array"]
    (attribute,) = objections(queues, replace(policy, paths=("/etc/udev/rules.d",)))
    assert "/sys/block/queue is not allowed" in attribute and "`- /sys/block`" in attribute


@pytest.mark.parametrize(
    ("value", "listed", "expected"),
    [
        ("scinia", "scini*", True),
        ("scini*1", "scini*", True),
        ("sc*", "scini*", False),
        ("scinia|sda", "scini*", False),
        ("", "scini*", False),
        ("scini*", "scini[ab]", False),
        ("scinia", "scini[ab]", True),
        ("scini*", "*ini*", False),
        ("fcion*12", "fcion*1", False),
    ],
)
def test_a_pattern_within_a_listed_one(value: str, listed: str, expected: bool) -> None:
    assert security_policy.is_within(value, listed) is expected
