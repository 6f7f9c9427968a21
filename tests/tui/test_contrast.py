"""The contrast of every text on the screens, in both themes: 4.5 : 1 or more, as WCAG 2 asks of text.

It is computed from the colours of the cells as they go to the terminal, backgrounds included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import histories
import pytest
from rich.color import Color
from textual.app import App

from proveout.tui.run.app import RunApp

LEAST = 4.5
STATES = (
    histories.climbing,
    histories.searching,
    histories.troubled,
    histories.broken,
    histories.judged,
    histories.tuned,
)
PANES = {histories.troubled: "23458", histories.judged: "67", histories.tuned: "9"}


def luminance(colour: Color) -> float:
    """The relative luminance, 0 … 1 (WCAG 2.2)."""
    assert colour.triplet is not None, f"{colour} has no value"
    parts = [value / 255.0 for value in colour.triplet]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def is_text(sign: str) -> bool:
    """Whether it is read: letters, digits, and the signs of states; frames and bars are not."""
    return sign.isalnum() or sign in "✓✗?▶·–!~±%"


def too_weak(app: App[Any], within: str = "Screen") -> Iterator[str]:
    """The texts of the widget whose contrast is less, each with its colours."""
    region = app.screen.region if within == "Screen" else app.screen.query_one(within).region
    for number, whole in enumerate(app.screen._compositor.render_strips()):
        strip = whole.crop(region.x, region.right) if region.y <= number < region.bottom else ()
        for segment in strip:
            style = segment.style
            if style is None or not any(map(is_text, segment.text)) or style.color is None or style.bgcolor is None:
                continue
            assert not style.dim, segment.text
            found = contrast(style.color, style.bgcolor)
            if found < LEAST:
                yield f"{segment.text.strip()!r}: {found:.2f}, {style.color.name} on {style.bgcolor.name}"


def test_the_contrast_of_black_on_white_is_that_of_the_standard() -> None:
    black, white, grey = (Color.from_rgb(*[value] * 3) for value in (0, 255, 119))
    assert contrast(black, white) == pytest.approx(21.0)
    assert contrast(grey, white) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_every_text_can_be_read(state: Any, theme: str) -> None:
    app = RunApp(histories.Still(state()))
    weak: set[str] = set()
    async with app.run_test(size=(200, 60)) as pilot:
        app.theme = theme
        for pane in ("1", *PANES.get(state, "")):
            await pilot.press(pane)
            await pilot.pause()
            weak.update(too_weak(app))
    assert not weak, "\n".join(sorted(weak))


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize(("key", "dialog"), [("q", "#ask"), ("question_mark", "#help")])
async def test_dialogs_can_be_read(key: str, dialog: str, theme: str) -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=(120, 40)) as pilot:
        app.theme = theme
        await pilot.press(key)
        await pilot.pause()
        weak = set(too_weak(app, dialog))
    assert not weak, "\n".join(sorted(weak))
