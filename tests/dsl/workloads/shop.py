"""A workload of a plan's own SQL (`kind: sql`) with all that such a workload can have, as parameters."""

from __future__ import annotations

from typing import Any

import yaml

SHOP: dict[str, Any] = yaml.safe_load("""
seed: 7
tables:
  item:
    rows: 1000
    create: CREATE TABLE item (id integer, name varchar(9), price numeric(8, 2), kind integer)
    columns: {id: {sequence: 1}, name: {text: [3, 9]}, price: {uniform: [0.5, 9.5], digits: 2}, kind: {pick: {1: 3, 2: 1}}}
    after: {postgres: CREATE INDEX a ON item (kind), sqlite: [CREATE INDEX a ON item (kind), CREATE INDEX b ON item (name);]}
  line:
    rows: 70
    create: CREATE TABLE line (id integer, pos integer, at timestamp)
    columns:
      id: {sequence: 10, step: 10, each: 3}
      pos: {sequence: 1, until: 3}
      at: {timestamp: ["2024-01-01", "2024-12-31"]}
binds:
  item: {uniform: [1, 1000]}
transactions:
  Show: {weight: 3, logical_failures: 0%, statements: {find: {sql: "SELECT name FROM item WHERE id = :item", expect_rows: some}}}
  Count: {weight: 1, statements: {all: "SELECT count(*) AS n FROM item"}}
  Buy:
    weight: 1
    logical_failures: [10%, 20%]
    binds: {price: {from: find.price}, id: {sequence: 500}, n: {uniform: [1, 5]}}
    statements:
      find: {sql: "SELECT id, price FROM item WHERE id = :item", expect_rows: 1}
      insert:
        sql: {any: "INSERT INTO line VALUES (:id, :n, :price)", oracle: "INSERT INTO line (a, b, c) VALUES (:n, :id, :price)"}
        logical_errors: [unique, "23P01"]
      clock: UPDATE clock SET t = t + 1
      again: {sql: "DELETE FROM line WHERE id = :id AND pos = :n", expect_rows: [0, 2]}
""")
