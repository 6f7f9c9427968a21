"""The client's cost of a transaction written in the plan (`kind: sql`) compared with the same built-in one.

    python benchmarks/load/custom_sql.py [--transactions 200000] [--rounds 7] [--seconds 3] [--json FILE]

First the client alone: the load engine on a session that answers at once, so that the figures do not contain noise of a
server; CPU time per transaction, in alternating rounds, the minimum of each. GetBasicSubscriberData is one statement
with a drawn key; UpdateLocation takes the key of its second statement from the result of the first, between BEGIN and
COMMIT. Then the first on an embedded PostgreSQL, both kinds in turn: rate and client CPU, medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from pathlib import Path

from harness import Figures, postgres, run, workload
from overhead import TERMINALS, NullSession, engine

from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr import DECLARED
from proveout.dsl.workloads.kinds import build
from proveout.dsl.workloads.sql import Custom

SUBSCRIBERS = 100_000
CONNECTIONS = 4


def stated(transaction: str) -> Workload:
    """Return a plan's text for one HLR transaction."""
    sql = {one.name: {"sql": one.text, "expect_rows": "some"} for one in DECLARED[transaction]}
    binds = {
        "GetBasicSubscriberData": {"s_id": {"uniform": [1, SUBSCRIBERS]}},
        "UpdateLocation": {
            "sub_nbr": {"text": 15, "alphabet": "0123456789"},
            "location": {"uniform": [1, 2**32 - 1]},
            "s_id": {"from": "find_number.s_id"},
        },
    }
    model = Custom.model_validate({"transactions": {transaction: {"binds": binds[transaction], "statements": sql}}})
    return Workload(name="stated", kind="sql", parameters=to_values(model))


def alone(of: Workload, transactions: int) -> float:
    """CPU nanoseconds of the engine per transaction of one statement (or of several: per statement sent)."""
    sessions = [NullSession([0]) for _ in range(TERMINALS)]
    budget = [transactions]
    for session in sessions:
        session._budget = budget
    try:
        return engine(sessions, build(of)) / transactions * 1e9
    finally:
        for session in sessions:
            session.close()


def client_alone(name: str, transactions: int, rounds: int) -> tuple[float, float]:
    """(built in, stated), nanoseconds per statement."""
    builtin, own = workload(SUBSCRIBERS, {name: 1.0}), stated(name)
    times = [(alone(builtin, transactions), alone(own, transactions)) for _ in range(rounds)]
    return min(first for first, _ in times), min(second for _, second in times)


async def on_postgres(seconds: float, rounds: int) -> tuple[list[Figures], list[Figures]]:
    """(built in, stated), a figure each round."""
    name = "GetBasicSubscriberData"
    builtin, own = workload(SUBSCRIBERS, {name: 1.0}), stated(name)
    figures: tuple[list[Figures], list[Figures]] = ([], [])
    async with postgres(builtin) as (context, endpoint):
        for number in range(rounds):
            for of, into in zip((builtin, own), figures, strict=True):
                into.append(await run(context, endpoint, of, connections=CONNECTIONS, seconds=seconds, seed=number + 1))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=200_000, help="statements a round, client alone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured each time on PostgreSQL")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    ratios: dict[str, float] = {}
    print(f"{'':44}{'built in':>10}{'stated':>10}{'ratio':>8}")
    for name, short in (("GetBasicSubscriberData", "one"), ("UpdateLocation", "several")):
        builtin, own = client_alone(name, given.transactions, given.rounds)
        ratios[short] = own / builtin
        print(f"{name + ', client alone, ns a statement':44}{builtin:10,.0f}{own:10,.0f}{own / builtin:8.2f}")
    both = asyncio.run(on_postgres(given.seconds, given.rounds))
    cpu, tps = ([statistics.median(getattr(f, of) for f in side) for side in both] for of in ("cpu_us", "tps"))
    ratios |= {"cpu": cpu[1] / cpu[0], "tps": tps[1] / tps[0]}
    print(f"{'on PostgreSQL, client CPU, µs':44}{cpu[0]:10.1f}{cpu[1]:10.1f}{ratios['cpu']:8.2f}")
    print(f"{'on PostgreSQL, transactions a second':44}{tps[0]:10,.0f}{tps[1]:10,.0f}{ratios['tps']:8.2f}")
    if given.json:
        given.json.write_text(json.dumps({"ratios": ratios}))


if __name__ == "__main__":
    main()
