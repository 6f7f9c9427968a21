"""An embedded server starts, answers, is saved and restored, and quotes PostgreSQL when a setting is wrong."""

from __future__ import annotations

import psycopg


def test_the_shared_server_answers(database: str) -> None:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int, current_setting('listen_addresses')"
        ).fetchone()
    assert row is not None
    assert row[0] >= 180000
    assert row[1] == ""
