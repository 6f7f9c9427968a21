"""The application of every screen: its colours in the light and the dark theme."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textual.app import App
from textual.widgets import Static

from proveout.tui import terminal_colours
from proveout.tui.colours import DARK, LIGHT

Left = TypeVar("Left")
COMMON_CSS = Path(__file__).parent / "common.tcss"


class ThemedApp(App[Left]):
    """Texts are coloured again for another theme, because Textual keeps the colours that they were made with."""

    CSS_PATH: ClassVar[Any] = COMMON_CSS

    def __init__(self) -> None:
        super().__init__(ansi_color=terminal_colours(os.environ))
        self.ansi_theme_dark, self.ansi_theme_light = DARK, LIGHT

    def on_mount(self) -> None:
        """Wait for another theme."""
        self.watch(self, "theme", self._theme_changed, init=False)

    def _theme_changed(self) -> None:
        self.call_after_refresh(self._colour_again)

    def _colour_again(self) -> None:
        for screen in self.screen_stack:
            for widget in screen.query(Static):
                widget.content = widget.content

    def action_light_or_dark(self) -> None:
        """The other theme."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"
