"""`file`: a file of a host, from the plan's own text or a template whose values cannot become lines.

A template is Jinja's syntax with names alone: `{{ name }}`, rendered when the plan is compiled, with values that stand
on one line. Only its program can judge the file: `validator` names a check of the host's policy that must accept it
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from proveout.dsl.operations.facts import Facts, FileQuery, Query
from proveout.dsl.operations.operation import Operation, Step, whole_file
from proveout.dsl.operations.types import Account, Mode, OwnPath, no_control
from proveout.dsl.rules.bounds import ID_PATTERN
from proveout.dsl.schema.scalar_types import custom

SIZE_MAX = 256 * 1024


def _value(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise custom("the value of a template is a text on one line, or a number")
    return no_control(str(value))


Word: TypeAlias = Annotated[
    str, BeforeValidator(_value), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
]


def rendered(template: str, values: Mapping[str, str]) -> str:
    """The text with each `{{ name }}` in its place. Raises ValueError for any other Jinja syntax, and for names without
    a value."""
    import jinja2  # noqa: PLC0415 - most plans have no template
    from jinja2 import nodes  # noqa: PLC0415

    try:
        tree = jinja2.Environment(autoescape=False, keep_trailing_newline=True).parse(template)  # noqa: S701 - no HTML
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"the template is not well-formed at its line {error.lineno}: {error.message}") from None
    except RecursionError:
        raise ValueError("the template is nested too deeply: it holds names only, {{ name }}") from None
    parts: list[str] = []
    for output in tree.body:
        for node in output.nodes if isinstance(output, nodes.Output) else [output]:
            match node:
                case nodes.TemplateData(data=data):
                    parts.append(data)
                case nodes.Name(name=name) if name in values:
                    parts.append(values[name])
                case nodes.Name(name=name):
                    raise ValueError(f"the template's `{name}` has no value: give it in `values`")
                case _:
                    raise ValueError("a template holds names only, {{ name }}")
    return "".join(parts)


class File(Operation):
    """A file with its content, mode and owner: `{path: /etc/app/app.conf, content: "…"}`."""

    path: OwnPath = Field(description="Its path; its folder must exist.")
    content: Annotated[str, Field(max_length=SIZE_MAX)] | None = Field(None, description="All that is in it.")
    template: Annotated[str, Field(max_length=SIZE_MAX)] | None = Field(
        None, description="Or a template of it, with {{ name }} for each of `values`."
    )
    values: dict[Annotated[str, Field(pattern=ID_PATTERN)], Word] = Field(
        default_factory=dict, max_length=200, description="Values of a template's names, each on one line."
    )
    mode: Mode = Field(0o644, description='Permissions, as "0644".')
    owner: Account = "root"
    group: Account = "root"
    validator: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = Field(
        "", description="A validator of the host's policy that has to accept the new content before it is in place."
    )

    privileges = "root: writes files that the host's policy lists"

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.content is None) == (self.template is None):
            raise ValueError("a file has either `content` or a `template`")
        if self.content is not None and self.values:
            raise ValueError("`values` are for a `template`")
        if "\x00" in self._text():
            raise ValueError("a NUL cannot stand in a text file")
        if self.template is not None:
            unused = [name for name in self.values if name not in self.template]
            if unused:
                raise ValueError(f"the template has no `{unused[0]}`")
        return self

    def _text(self) -> str:
        return self.content if self.content is not None else rendered(self.template or "", self.values)

    def targets(self) -> Mapping[str, str]:
        """The file."""
        return {f"file {self.path}": f"{self.mode:04o} {self.owner}:{self.group} {self._text()}"}

    def wanted(self) -> tuple[str, ...]:
        """The file with all its lines."""
        checked = f", checked by {self.validator}" if self.validator else ""
        head = f"{self.path}: {self.mode:04o} {self.owner}:{self.group}{checked}"
        return (head, *(f"  {line}" for line in self._text().splitlines()))

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The file as it is."""
        return (FileQuery(self.path),)

    def changes(self, facts: Facts) -> Step:
        """The file."""
        text = self._text().encode()
        return whole_file(facts, self.path, text, self.mode, self.owner, self.group, self.validator)
