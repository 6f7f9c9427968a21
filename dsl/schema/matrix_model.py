"""The model of `matrix:`, in its long form and in its short one. `schema` has it in the ladder's, `matrix` lays it out."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from proveout.dsl.schema.scalar_types import Id, OrOne, one_or_many

AxisValue: TypeAlias = Annotated[Any, WithJsonSchema({"type": ["string", "number", "boolean"]})]


class MatrixEntry(BaseModel):
    """Variants of a stage: a cell for each combination of the axes' values, which stand for `${matrix.axis}` in it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    axes: dict[Id, Annotated[list[AxisValue], Field(min_length=1), BeforeValidator(one_or_many), OrOne()]] = Field(
        min_length=1, max_length=8, description="Each axis with its values; the first one changes slowest."
    )
    combine: Literal["product", "zip"] = Field(
        "product", description="Every value with every other, or the first values together, the second ones, and so on."
    )


MatrixAxes: TypeAlias = dict[Id, Annotated[list[AxisValue], OrOne()]]
