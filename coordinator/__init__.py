"""The coordinator: compiles a plan into tasks, schedules them on agents, journals, judges.

Arrow chooses its allocator once, at import. Its own default keeps 16 MB more than the system's when an iteration's samples
have been written, which comes on top of a thousand sessions.
"""

from __future__ import annotations

import os

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
