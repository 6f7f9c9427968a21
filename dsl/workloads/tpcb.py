"""The TPC-B-like workload of pgbench: its parameters and its description for the compiler. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.mix import Range, Ranged, division_problem, mix, part, runs_any

TPCB_TRANSACTIONS: tuple[str, ...] = ("TpcbLike", "SimpleUpdate", "SelectOnly")
TPCB_WRITERS: frozenset[str] = frozenset(("TpcbLike", "SimpleUpdate"))
TPCB_WEIGHTS: Mapping[str, float] = {"TpcbLike": 100.0, "SimpleUpdate": 0.0, "SelectOnly": 0.0}
TABLES: tuple[str, ...] = ("pgbench_branches", "pgbench_tellers", "pgbench_accounts", "pgbench_history")
TELLERS_PER_BRANCH = 10


class Tpcb(Ranged):
    """Parameters of `kind: tpcb` (TPC-B as pgbench runs it): branches with tellers and accounts, and a history that
    adds up."""

    KEYS = ("scale", "branches")

    scale: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="Branches, as `pgbench -i -s`; each has 10 tellers and 100,000 accounts.",
    )
    accounts_per_branch: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Accounts of each branch. pgbench always draws from 100,000: with fewer it cannot run on the data.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the keys drawn.")
    range: Range = Field(
        default=None, description="First and last branch that the load touches; all of them by default."
    )
    weights: Annotated[dict[str, float], mix(TPCB_TRANSACTIONS)] = Field(
        default_factory=lambda: dict(TPCB_WEIGHTS),
        description="The mix: a weight per transaction; one that is left out does not run. By default TpcbLike alone.",
    )

    @property
    def tellers(self) -> int:
        return self.scale * TELLERS_PER_BRANCH

    @property
    def accounts(self) -> int:
        return self.scale * self.accounts_per_branch


def with_loads_of(model: Tpcb, others: Sequence[Tpcb]) -> Tpcb:
    """The parameters whose invariants hold after loads of `others` too: SimpleUpdate's rows of the history belong to no
    change of a branch, whichever load has made them."""
    weights = {name: max(one.weights[name] for one in (model, *others)) for name in model.weights}
    return model.model_copy(update={"weights": weights})


KIND = WorkloadExtension(
    parameters=Tpcb,
    transactions=lambda _: TPCB_TRANSACTIONS,
    build="proveout.dsl.workloads.tpcb_workload:build",
    writes=runs_any(TPCB_WRITERS),
    rows=lambda model: model.scale + model.tellers + model.accounts,
    tables=lambda _: TABLES,
    load_only=frozenset({"range", "weights"}),
    invariants_after="stage",
    invariants_of_population=True,
    invariants_beside=with_loads_of,
    division_problem=division_problem,
    part=part,
)
