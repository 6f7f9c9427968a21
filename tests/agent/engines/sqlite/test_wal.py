"""Many connections that open a new file at the same time all succeed, in WAL mode."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import apsw

from proveout.agent.engines.sqlite.driver import SqliteDriver

CONNECTIONS, FILES = 8, 150


def test_connections_that_open_a_file_at_the_same_time(tmp_path: Path) -> None:
    together = Barrier(CONNECTIONS)

    def open_one(path: Path) -> str:
        together.wait(10)
        session = SqliteDriver().connect(str(path))
        mode = str(session._connection.pragma("journal_mode"))
        session.close()
        return mode

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for number in range(FILES):
            path = tmp_path / f"{number}.db"
            fresh = apsw.Connection(str(path))
            fresh.execute("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
            fresh.close()
            assert set(threads.map(open_one, [path] * CONNECTIONS)) == {"wal"}
