"""`limits`: resource limits of the processes of a login, as a file of /etc/security/limits.d. Source:
limits.conf(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proveout.dsl.operations.facts import Facts, FileQuery, Query
from proveout.dsl.operations.operation import Operation, Step, whole_file
from proveout.dsl.operations.types import AbsolutePath
from proveout.dsl.schema.scalar_types import custom

_FILE = re.compile(r"/etc/security/limits\.d/[A-Za-z0-9_][A-Za-z0-9_.-]*\.conf")
_DOMAIN = re.compile(r"\*|@?[a-z_][a-z0-9_-]{0,31}")

Item: TypeAlias = Literal[
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "sigpending", "stack",
]  # fmt: skip


def _limit(value: object) -> object:
    if value == "unlimited" or (isinstance(value, int) and not isinstance(value, bool) and -20 <= value < 2**63):
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        return value  # from the compiled plan
    raise custom(f"{value} is not a limit: a whole number, or unlimited")


def _file(path: str) -> str:
    if not _FILE.fullmatch(path):
        raise custom(f"`{path}` is not a file of /etc/security/limits.d: /etc/security/limits.d/NAME.conf")
    return path


def _domain(name: str) -> str:
    if not _DOMAIN.fullmatch(name):
        raise custom(f"`{name}` is not a user, an @group or *")
    return name


LIMITS: tuple[JsonSchemaValue, ...] = ({"type": "integer"}, {"const": "unlimited"})
Limit: TypeAlias = Annotated[str, BeforeValidator(_limit), WithJsonSchema({"anyOf": [*LIMITS]})]


class Pair(BaseModel):
    """A soft and a hard limit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    soft: Limit
    hard: Limit


def _pair(value: object) -> object:
    """One limit for both."""
    return value if isinstance(value, (dict, Pair)) else {"soft": value, "hard": value}


class OrLimit:
    """In the JSON Schema: also one limit."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core), *LIMITS]}


Both: TypeAlias = Annotated[Pair, BeforeValidator(_pair), OrLimit()]


class Limits(Operation):
    """Limits of users and groups, in force for logins from then on: `{file: …, users: {oracle: {memlock:
    unlimited}}}`."""

    file: Annotated[AbsolutePath, AfterValidator(_file)] = Field(
        description="The file of /etc/security/limits.d that holds them, whole and alone."
    )
    users: dict[Annotated[str, AfterValidator(_domain)], Annotated[dict[Item, Both], Field(min_length=1)]] = Field(
        min_length=1, max_length=100, description="User, @group or *, to item, to a limit or {soft: …, hard: …}."
    )

    privileges = "root: writes /etc/security/limits.d"

    def _lines(self) -> Iterator[str]:
        for user, items in self.users.items():
            for item, pair in items.items():
                if pair.soft == pair.hard:
                    yield f"{user} - {item} {pair.soft}"
                else:
                    yield f"{user} soft {item} {pair.soft}"
                    yield f"{user} hard {item} {pair.hard}"

    def targets(self) -> Mapping[str, str]:
        """The file, and each limit."""
        each = {
            f"limit {item} of {user}": f"{pair.soft} {pair.hard}"
            for user, items in self.users.items()
            for item, pair in items.items()
        }
        return {f"file {self.file}": "\n".join(self._lines()), **each}

    def wanted(self) -> tuple[str, ...]:
        """The file's lines."""
        return (f"{self.file}, for logins from then on:", *(f"  {line}" for line in self._lines()))

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The file."""
        return (FileQuery(self.file),)

    def changes(self, facts: Facts) -> Step:
        """The file."""
        return whole_file(facts, self.file, "".join(f"{line}\n" for line in self._lines()).encode())
