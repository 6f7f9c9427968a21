"""Progress on a terminal: the headless lines, and below them one line that is rewritten as the load moves.

Data flow: as in `headless`; only where the text goes differs.
"""

from __future__ import annotations

from typing import TextIO

from proveout.cli.common.headless import HeadlessPrinter
from proveout.proto.events import Stamped

_CLEAR = "\r\x1b[K"


class LiveLinePrinter(HeadlessPrinter):
    """As `HeadlessPrinter`, for a terminal of `width` columns."""

    def __init__(self, stream: TextIO, *, width: int, colour: bool | None = None) -> None:
        super().__init__(stream, colour=colour)
        self._width = width
        self._moving = False

    def _live(self, stamped: Stamped) -> None:
        self._moving = True
        super()._live(stamped)
        self._moving = False

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            if self._moving:
                line = f"{self._clock()} {text}"
                self._stream.write(_CLEAR + line[: max(1, self._width - 1)])
                self._stream.flush()
            else:
                self._stream.write(_CLEAR)
                super()._write(text)
        except (BrokenPipeError, ValueError):
            self._gone = True
