"""A TNS server in front of a PostgreSQL, for tests and demonstrations: `python tests/wire/tns_server.py --port 15210`.

Flow: python-oracledb (thin) -> Oracle's protocol -> seerdb.server -> `tns_backend.PostgresBackend` -> PostgreSQL.
Without `--postgres CONNINFO` it starts an embedded PostgreSQL of its own and removes it at the end. It prints one line,
`dsn …`, when it is ready, and serves until its stdin ends or it is interrupted. User and password are `hlr` and `hlr`,
because it serves only test data.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from seerdb.common.exceptions import Truncated
from seerdb.server import Server as TnsServer
from seerdb.server import session as tns_session

sys.path.insert(0, str(Path(__file__).parent))
from tns_backend import DICTIONARY, USER, PostgresBackend  # a script's neighbour

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.engines.postgres.roles import administration
from proveout.dsl.plan.topology import System

SERVICE = "HLR"
# The time limit for the rest of a message. The default of two seconds is too short on a machine busy with tests.
tns_session._CONTINUATION_TIMEOUT = 30.0
TNS_DATA = 6
parse_message = tns_session._complete_message


def _data_waits(stream: Any) -> bool:
    """Whether a further packet of data has arrived: its type is the fifth byte."""
    head = bytes(stream._acc[:5])
    if len(head) < 5 and select.select([stream._sock], [], [], 0.0)[0]:
        head += stream._sock.recv(5 - len(head), socket.MSG_PEEK)
    return len(head) == 5 and head[4] == TNS_DATA


def _complete_at_once(stream: Any, body: bytes, parse: Callable[[bytes], object]) -> bytes | None:
    """As `parse_message`, which parses a message again with every packet: takes the packets that have arrived
    first. A client sends nothing after a message until it is answered."""

    def patient(whole: bytes) -> object:
        if _data_waits(stream):
            raise Truncated("more packets have arrived")
        return parse(whole)

    return parse_message(stream, body, patient)


tns_session._complete_message = _complete_at_once


@contextlib.contextmanager
def postgres(conninfo: str | None) -> Iterator[str]:
    """Yield the conninfo of the given database, or of an embedded one."""
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
    # psycopg warns about each pipeline that a failed statement ends
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
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
