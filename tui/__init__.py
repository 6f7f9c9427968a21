"""The terminal UI: view model of a run, screen of a run, home screen."""

from __future__ import annotations

from collections.abc import Mapping


def terminal_colours(environment: Mapping[str, str]) -> bool | None:
    """The value of Textual's `ansi_color`: with NO_COLOR the terminal's own colours and no others, else the theme's.

    Textual would turn its colours into greys, some of which are as dark as their background.
    """
    return True if "NO_COLOR" in environment else None
