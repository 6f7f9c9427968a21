"""The contrast of texts, from the colours of the cells as they go to the terminal, backgrounds included (WCAG 2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.color import Color
from textual.app import App

LEAST = 4.5


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
