"""The HLR schema for Oracle Database: tables before the load, keys, indexes and statistics after it.

Tables are loaded bare and get their keys afterwards. With partitions every table is range-partitioned by s_id at the
same edges, primary keys are local (they lead with s_id), and the number's index is a global one whose partitions follow
the same edges (sub_nbr is s_id in 15 digits): instances that keep to their own partitions share no index block.

TimesTen takes the same statements where it has them: it has no range partitions and no DBMS_STATS; see `timesten`.
Source: Oracle Database SQL Language Reference, CREATE TABLE and CREATE INDEX. Not run on a live server in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping

Columns = tuple[tuple[str, str], ...]

_TYPES = {"int2": "NUMBER(5)", "int4": "NUMBER(10)", "int8": "NUMBER(19)"}


def table(name: str, columns: Columns, bounds: tuple[int, ...]) -> str:
    """The statement that creates a table; `bounds` are the first s_id of partitions 2 …, none for one without."""
    body = ", ".join(f"{column} {_type(kind)} NOT NULL" for column, kind in columns)
    return f"CREATE TABLE {name} ({body})" + _partitions("s_id", tuple(str(bound) for bound in bounds))


def after(
    keys: Mapping[str, str], foreign_keys: tuple[tuple[str, str, str], ...], bounds: tuple[int, ...]
) -> tuple[tuple[str, ...], ...]:
    """Phases after the load: primary keys and the number's index, foreign keys, statistics."""
    local = " USING INDEX LOCAL" if bounds else ""
    primary = tuple(
        f"ALTER TABLE {name} ADD CONSTRAINT {name}_pk PRIMARY KEY ({key}){local}" for name, key in keys.items()
    )
    edges = _partitions("sub_nbr", tuple(f"'{bound:015d}'" for bound in bounds))
    number = "CREATE UNIQUE INDEX subscriber_sub_nbr ON subscriber (sub_nbr)" + (f" GLOBAL{edges}" if bounds else "")
    foreign = tuple(
        f"ALTER TABLE {name} ADD CONSTRAINT {name}_fk FOREIGN KEY ({key}) REFERENCES {to}"
        for name, key, to in foreign_keys
    )
    statistics = tuple(f"BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, '{name.upper()}'); END;" for name in keys)
    return ((*primary, number), foreign, statistics)


def drop(names: tuple[str, ...]) -> tuple[str, ...]:
    """Statements that remove the tables; the caller must treat ORA-00942 (no such table) as success."""
    return tuple(f"DROP TABLE {name} CASCADE CONSTRAINTS PURGE" for name in reversed(names))


def _partitions(column: str, bounds: tuple[str, ...]) -> str:
    if not bounds:
        return ""
    edges = (*bounds, "MAXVALUE")
    parts = ", ".join(f"PARTITION p{part} VALUES LESS THAN ({edge})" for part, edge in enumerate(edges, start=1))
    return f" PARTITION BY RANGE ({column}) ({parts})"


def _type(kind: str) -> str:
    return _TYPES.get(kind) or kind.upper().replace("VARCHAR(", "VARCHAR2(")
