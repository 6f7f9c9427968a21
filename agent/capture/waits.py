"""Capture `waits`: where the foreground sessions of a PostgreSQL spend their time, by sampling, and what it counts itself.

Ten times a second pg_stat_activity is looked at; each client backend in state `active` adds the time since the look before
to its wait event, or to `CPU` when it waits for nothing. Idle sessions, and those that wait for their client between
statements or in a COPY (`Client:ClientRead`), are not DB time. Our own captures are not seen. The sum of all events is DB time;
divided by elapsed time it is the average number of active sessions: the arithmetic of Oracle's ASH, in the shape of
AWR's top-10 foreground events.

Readings of each sample, one each `every_s` (label "" unless said; all `_total` are cumulative; cut by differences):

| metric | unit, label |
|---|---|
| `wait.seconds_total` | s of DB time since the capture began; label = `CPU` or `Type:Event` as in `IO:WalSync`, `LWLock:WALWrite` |
| `wait.looks_total` | looks taken since the capture began |
| `sessions.active`, `sessions.idle_in_transaction` | client backends at the last look (gauges) |
| `database.commits_total`, `database.rollbacks_total` | transactions of the endpoint's database |
| `database.blocks_read_total`, `database.blocks_hit_total` | blocks read from the OS, found in shared buffers |
| `database.deadlocks_total`, `database.temp_bytes_total` | deadlocks; bytes of temporary files |
| `wal.records_total`, `wal.full_page_images_total`, `wal.bytes_total`, `wal.buffers_full_total` | the whole server's WAL |
| `io.reads_total`, `io.writes_total`, `io.extends_total`, `io.fsyncs_total` | operations; label = `backend type/object/context` |
| `io.read_bytes_total`, `io.write_bytes_total` | bytes; label as above; server 18 and later |

Events appear when they are first seen: one that is absent has 0 so far. PostgreSQL's own counters are those of
pg_stat_database, pg_stat_wal, pg_stat_io (rows that are all zero are left out; io from server 16 on); a busy backend reports
to them about once a second. A lost connection is made again; the time without looks counts for no event and in `lost`.
"""

from __future__ import annotations
