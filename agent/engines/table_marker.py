"""Mark tables as made by proveout in a database whose DDL commits by itself (MySQL, Oracle): the mark first, then the
tables.

Flow of `prepare`: drop our tables of before -> create the intention, an empty table whose name stands for the names of
the population's tables -> create the tables -> give each the comment that marks it -> drop the intention. So a killed
`prepare` leaves either marked tables, or the intention and perhaps some tables without a mark. While the intention is
there, `prepare` and `undo` take a table without a mark for ours if it is empty and has all columns of the population's:
rows go in only after the marks.
"""

from __future__ import annotations

import zlib

from proveout.dsl.workloads.base import Population, Table

COMMENT = "Made by proveout for a load; proveout drops and makes it anew"


def intention_of(population: Population) -> str:
    """The intention's name; of 24 characters, as Oracle before 12.2 takes 30."""
    names = " ".join(sorted(table.name.lower() for table in population.tables))
    return f"proveout_making_{zlib.crc32(names.encode()):08x}"


def probe(table: Table) -> str:
    """A query that fails if a column of the population's is missing, and has no row if the table is empty."""
    names = ", ".join(name for name, _ in table.columns)
    return f"SELECT {names} FROM {table.name}"  # noqa: S608 - names that the plan's compiler has checked
