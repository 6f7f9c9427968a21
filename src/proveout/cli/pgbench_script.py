r"""A script of pgbench as a transaction of `kind: sql`.

Data flow: `FILE[@WEIGHT]` -> `Script.read`, its lines -> `Script.transaction`: a `\set` of `random` or of
`random_zipfian` becomes a generator, a statement stays one, BEGIN and END are left out, as the transactions of a plan
have them. What else a script can say is not carried: every such line is named.

Source: PostgreSQL documentation, "pgbench", custom scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from proveout.cli.database_address import Unusable
from proveout.cli.own_workload import Generator, Transaction
from proveout.core.data_classes import record
from proveout.dsl.workloads import sql_text

_SET = re.compile(r"\\set\s+(?P<name>\w+)\s+(?P<value>.+)", re.DOTALL)
_RANDOM = re.compile(r"(?P<function>random|random_zipfian)\s*\((?P<arguments>.*)\)", re.DOTALL)
_ARITHMETIC = re.compile(r"[\d\s+*/().-]+")
_VARIABLE = re.compile(r":(\w+)")
_BRACKETS = re.compile(r"(?:BEGIN|END|COMMIT|START\s+TRANSACTION)(?:\s+(?:WORK|TRANSACTION))?", re.IGNORECASE)
_TABLES = re.compile(r"(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)", re.IGNORECASE)
THETA_MAX = 5.0
"""Of `zipf`."""


@record
class Script:
    """A script: its commands with the number of their first line."""

    path: Path
    weight: float
    commands: Sequence[tuple[int, str]]

    @classmethod
    def read(cls, text: str) -> Script:
        """`FILE` or `FILE@WEIGHT`. Unusable for one that cannot be read."""
        name, at, weight = text.rpartition("@")
        if not at or not re.fullmatch(r"\d+", weight):
            name, weight = text, "1"
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as fault:
            raise Unusable(f"--pgbench {name}: {fault}", way_out="Name a script: FILE, or FILE@WEIGHT.") from None
        return cls(path=Path(name), weight=float(weight), commands=tuple(_commands(lines)))

    @property
    def is_on_tables_of_pgbench(self) -> bool:
        """Whether all of its tables are those that `pgbench -i` makes."""
        tables = {name.lower() for _, text in self.commands for name in _TABLES.findall(text)}
        return bool(tables) and all(name.startswith("pgbench_") for name in tables)

    def transaction(self, number: int, scale: int) -> Transaction:
        """The transaction, with `:scale` as pgbench has it. Unusable, with every line that is not carried."""
        values: dict[str, str] = {"scale": str(scale)}
        binds: dict[str, Generator] = {}
        statements: list[str] = []
        refused: list[str] = []
        for line, text in self.commands:
            try:
                if text.startswith("\\"):
                    self._set(text, values, binds)
                elif not _BRACKETS.fullmatch(text):
                    statements.append(_with_constants(text, values, binds))
            except ValueError as fault:
                refused.append(f"{self.path}:{line}: {fault}: {' '.join(text.split())[:80]}")
        if refused:
            raise Unusable(
                "\n".join(("this script is not carried as it is", *refused)),
                way_out="Leave these lines out, or run pgbench.",
            )
        if not statements:
            raise Unusable(f"{self.path} has no statement")
        used = {token.text[1:] for one in statements for token in sql_text.binds(sql_text.scan(one))}
        name = re.sub(r"\W", "_", self.path.stem)
        return Transaction(
            name=f"{name if name[:1].isalpha() else 'script'}_{number}"[:60],
            weight=self.weight,
            sql=statements,
            binds={name: generator for name, generator in binds.items() if name in used},
            about=str(self.path),
        )

    @staticmethod
    def _set(text: str, values: dict[str, str], binds: dict[str, Generator]) -> None:
        """Take a `\\set` into constants or generators. ValueError for another command, or what it cannot be."""
        found = _SET.fullmatch(text)
        if found is None:
            raise ValueError("there is no such command in a plan")
        name, value = found["name"], found["value"].strip()
        values.pop(name, None)
        drawn = _RANDOM.fullmatch(value)
        if drawn is None:
            values[name] = str(_constant(value, values))
            return
        arguments = [_constant(one, values) for one in _split(drawn["arguments"])]
        if drawn["function"] == "random" and len(arguments) == 2:
            binds[name] = {"uniform": [int(one) for one in arguments]}
        elif drawn["function"] == "random_zipfian" and len(arguments) == 3 and 0.0 < arguments[2] <= THETA_MAX:
            binds[name] = {"zipf": [int(one) for one in arguments[:2]], "theta": float(arguments[2])}
        else:
            raise ValueError("these arguments are not carried")


def _commands(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(line, command): a backslash command of one line, or a statement up to its semicolon; without comments."""
    begun = 0
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(?:^|\s)--.*$", "", line).strip()
        if not text:
            continue
        if text.startswith("\\") and not parts:
            yield number, text
            continue
        begun = begun if parts else number
        *whole, rest = text.split(";")
        for one in whole:
            if command := " ".join((*parts, one.strip())).strip():
                yield begun, command
            parts, begun = [], number
        parts += [rest.strip()] if rest.strip() else []
    if parts:
        yield begun, " ".join(parts)


def _split(text: str) -> list[str]:
    """Arguments at the commas outside of parentheses."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return found


def _constant(text: str, values: dict[str, str]) -> float:
    """The value of an expression of numbers and of variables with constant values. ValueError."""
    plain = _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text.strip())
    if not _ARITHMETIC.fullmatch(plain):
        raise ValueError("this value is not known before the run")
    return _sum(re.findall(r"\d+(?:\.\d+)?|[-+*/()]", plain))


def _sum(tokens: list[str]) -> float:
    """Arithmetic of `+ - * /` and parentheses, by recursive descent; whole numbers are divided as whole numbers."""
    at = 0

    def factor() -> float:
        nonlocal at
        if at >= len(tokens):
            raise ValueError("this expression is not complete")
        word, at = tokens[at], at + 1
        if word == "-":
            return -factor()
        if word == "(":
            value, at = total(), at + 1
            return value
        return float(word) if "." in word else int(word)

    def product() -> float:
        nonlocal at
        value = factor()
        while at < len(tokens) and tokens[at] in "*/":
            operator, at = tokens[at], at + 1
            other = factor()
            if operator == "*":
                value *= other
            else:
                value = value // other if isinstance(value, int) and isinstance(other, int) else value / other
        return value

    def total() -> float:
        nonlocal at
        value = product()
        while at < len(tokens) and tokens[at] in "+-":
            operator, at = tokens[at], at + 1
            value += product() * (1 if operator == "+" else -1)
        return value

    value = total()
    if at != len(tokens):
        raise ValueError("this expression is not arithmetic")
    return value


def _with_constants(text: str, values: dict[str, str], binds: dict[str, Generator]) -> str:
    """The statement with constants in the place of their variables. ValueError for a variable without a value."""
    for token in reversed(sql_text.binds(sql_text.scan(text))):
        name = token.text[1:]
        if name in values:
            text = f"{text[: token.start]}{values[name]}{text[token.start + len(token.text) :]}"
        elif name not in binds:
            raise ValueError(f":{name} has no value here")
    return text
