"""Capture `lag`: how far a sink is behind its source in asynchronous propagation, in bytes of log and in seconds.

`endpoints[0]` is the source (the capture's `system`, the cache), `endpoints[1]` the sink. Ten times a second the source's
WAL insert position is noted with its time. At each `every_s` the applied position is read: the furthest of what the sink's
replication origin says (every commit applied moves it) and what the source's slot has confirmed (log that holds no
changes moves it, so idle WAL does not look like lag). The lag in seconds is now minus the time when the source stood at the
applied position, interpolated between notes; it is 0 when all is applied. A change that waits grows it by 1 s each second.

Readings of each sample (label ""):

| metric | unit |
|---|---|
| `lag.seconds` | s (gauge); at least: when the applied position is older than the capture, now minus the capture's begin |
| `lag.bytes` | bytes of WAL inserted on the source and not yet applied (gauge) |
| `lag.generated_bytes_total` | the source's WAL insert position, bytes |
| `lag.applied_bytes_total` | the applied position in the source's WAL, bytes |

A sample that cannot be taken (connection lost, server restarting) is left out and counted in `lost`, the connection is made
again; while the subscription's worker is down, the lag simply grows, as it does.
"""

from __future__ import annotations
