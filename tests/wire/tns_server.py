"""A TNS server in front of a PostgreSQL, for tests and demonstrations: `python tests/wire/tns_server.py --port 15210`.

Flow: python-oracledb (thin) -> Oracle's protocol -> seerdb.server -> `tns_backend.PostgresBackend` -> PostgreSQL.
Without `--postgres CONNINFO` it starts an embedded PostgreSQL of its own and removes it at the end. It prints one line,
`dsn …`, when it is ready, and serves until its stdin ends or it is interrupted. User and password are `hlr` and `hlr`:
nothing to protect is behind it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from seerdb.server import Server as TnsServer
from seerdb.server import session as tns_session

sys.path.insert(0, str(Path(__file__).parent))
from tns_backend import DICTIONARY, USER, PostgresBackend  # a script's neighbour

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.engines.postgres.roles import administration
from proveout.dsl.plan.topology import System

SERVICE = "HLR"
# How long the rest of a message may take. Two seconds, as it comes, are too few where every core is busy with tests.
tns_session._CONTINUATION_TIMEOUT = 30.0


@contextlib.contextmanager
def postgres(conninfo: str | None) -> Iterator[str]:
    """The database behind: the one given, or one of our own."""
    if conninfo is not None:
        yield conninfo
        return
    settings = (("synchronous_commit", "off"),)
    system = System(name="behind", engine="postgres", host="local", provision="embedded", settings=settings)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(system, Path(folder))
        try:
            yield make_conninfo(administration(server.start()), options="")
        finally:
            server.close(keep_data=False)


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--postgres", metavar="CONNINFO")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("psycopg").setLevel(
        logging.CRITICAL
    )  # a statement that fails ends its pipeline, which is no news
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with postgres(arguments.postgres) as conninfo:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(DICTIONARY)
        server = TnsServer(
            port=arguments.port, backend_factory=lambda: PostgresBackend(conninfo, {USER.upper(): USER}, SERVICE)
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"dsn {USER}/{USER}@//127.0.0.1:{server.port}/{SERVICE}", flush=True)
        try:
            while sys.stdin.buffer.read(1):
                pass
        finally:
            server.close()


if __name__ == "__main__":
    main()
