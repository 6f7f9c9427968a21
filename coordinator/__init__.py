"""The coordinator: compiles a plan into tasks, schedules them on agents, journals, judges.

Arrow chooses its allocator once, at import. Its own default keeps 16 MB more than the system's when the samples of an
iteration have been written, on top of what a thousand sessions take.
"""

from __future__ import annotations

import os

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
