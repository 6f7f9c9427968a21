"""The key `commits` of a load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from proveout.dsl.schema.scalar_types import Strict


class CommitsEntry(Strict):
    """Whether the commits of a load are tracked."""

    commits: Literal["tracked", "checked", "untracked"] | None = Field(
        None,
        description="tracked: each transaction that changes rows carries one more statement, which counts its commit "
        "in the database, so that lost commits, commits without an answer and duplicates are known. checked: and "
        "with `on_disconnect: retry` a transaction that had committed without an answer is not run again. By default "
        "untracked; of one of several loads that changes rows, that of the stage.",
    )
