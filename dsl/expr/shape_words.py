"""Types of expressions in the words of messages, and the way from each to a number."""

from __future__ import annotations

from proveout.dsl.expr.name_types import Boolean, Estimate, Shape
from proveout.dsl.expr.name_types import Group as Names
from proveout.dsl.plan.matrix_labels import Label, written
from proveout.dsl.source.nodes import did_you_mean


def quoted(value: Label) -> str:
    """A label as an expression has it."""
    return f'"{value}"' if isinstance(value, str) else written(value)


def way_to_cell(tree: Names) -> str:
    """The choice of the first cell of a matrix."""
    return "".join(f".{axis}({quoted(values[0])})" for axis, values in tree.axes.items())


def describe(shape: Shape) -> str:
    """The type in words."""
    match shape:
        case Names(axes=axes) if axes:
            return "a matrix of ladders"
        case Estimate():
            return "an estimate over the repeats"
        case Boolean():
            return "true or false"
        case Names():
            return "a group of numbers" if shape.rung is None else "a ladder"
        case _:
            return "a number"


def way_to_number(shape: Shape) -> str:
    """The way to a number of it; "" where it is one."""
    match shape:
        case Estimate():
            return "take its .mean, .median, .lower or .upper"
        case Names(axes=axes) if axes:
            return f"choose a cell: {way_to_cell(shape)}.at(…)"
        case Names(rung=None):
            return did_you_mean("", (f".{name}" for name in shape.members))
        case Names():
            return "name a rung: .at(4) or .peak"
        case _:
            return ""
