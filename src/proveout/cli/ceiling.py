"""`proveout ceiling`: measure the highest rate of this client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.options import SUFFIXES, Inventory, Overrides, is_plan_file, parse_overrides, refuse
from proveout.core.numbers import count_of, number
from proveout.dsl import engines

if TYPE_CHECKING:
    from proveout.agent.load.ceiling import Step
    from proveout.dsl.plan.topology import System
    from proveout.proto.wire.tasks import Endpoint

EPILOG = """
  proveout ceiling postgres
  proveout ceiling postgresql://bench@db1.lab/bench --connections 16 --connections 128
  proveout ceiling plans/hlr-cache-lab.yaml --system backend -i lab.yaml
  proveout ceiling --engine oracle bench/secret@db1.lab/service
"""

PROVISIONED = tuple(name for name, engine in engines.ENGINES.items() if engine.embedded)
CONNECTIONS = (1, 4, 16, 64)
SPARE_CONNECTIONS = 30
_SCHEMES = {scheme: name for name, engine in engines.ENGINES.items() for scheme in engine.schemes}
_LOCAL = re.compile(r"\b(localhost|127\.\d+\.\d+\.\d+)(?![\w.-])|\[?::1\]?(?=[:/ ]|$)|host=/|host=%2F")
_FORMAT = "{:>12}{:>14}{:>16}{:>12}{:>12}"


def ceiling(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help=f"An engine ({', '.join(PROVISIONED)}: a throw-away server), a plan file, or a DSN.",
        ),
    ],
    *,
    system: Annotated[str, typer.Option(metavar="NAME", help="Of a plan: which system.")] = "",
    engine: Annotated[str, typer.Option(help="Of a DSN: the engine, where the DSN does not tell.")] = "",
    connections: Annotated[
        list[int] | None,
        typer.Option(min=1, max=10_000, help="Numbers of connections, repeatable [default: 1, 4, 16, 64]."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.5, max=600.0, help="Measured at each of them.")] = 3.0,
    workers: Annotated[int | None, typer.Option(min=1, max=1000, help="Load processes [default: the cores].")] = None,
    parameters: Overrides = None,
    inventory: Inventory = None,
) -> None:
    """Measure the highest rate of this host's load generator, with a statement that does nothing.

    The figure is kept for this user on this host. From then on the results of loads from here say how much of it they
    reached, and from 90 % of it on that the client may have been the bottleneck. Run it on every client host, as the
    user that the agent runs as. Nothing is written to the target.
    """
    import asyncio

    from proveout.agent.load import ceiling as measuring
    from proveout.agent.load import ceiling_store

    counts = sorted(set(connections or CONNECTIONS))
    is_file = Path(target).suffix in SUFFIXES if engine else is_plan_file(target)
    if is_plan := is_file and target not in PROVISIONED:
        refuse("of a DSN, not of a plan", engine=engine)
    else:
        refuse("only of a plan", system=system, p=parameters, inventory=inventory)
    if target in PROVISIONED:
        refuse("of a DSN, not of an engine", engine=engine)
        found = _provisioned(target, counts[-1] + SPARE_CONNECTIONS)
    elif is_plan:
        found = _of_plan(Path(target), system, parse_overrides(parameters), inventory)
    else:
        found = _endpoint(target, engine)
    shared = not hasattr(found, "dsn") or found.dsn is None or is_local(found.engine, found.dsn)
    typer.echo(f"{found.engine}, {'server on this machine' if shared else 'server elsewhere'}, {seconds:g} s each")
    typer.echo(_FORMAT.format("connections", "per second", "client CPU, µs", "p50, µs", "p99, µs"))
    steps = asyncio.run(measuring.measure(found, counts, seconds=seconds, workers=workers, on_step=_show))
    best = measuring.ceiling(found.engine, steps, shared=shared, workers=workers or measuring.cores())
    path = ceiling_store.keep(best)
    typer.echo(
        f"ceiling: {number(best.per_s)}/s at {count_of(best.connections, 'connection')} with the {best.engine} driver;"
        f" kept in {path}"
    )


def is_local(engine: str, dsn: str) -> bool:
    """Whether a DSN names a server on this machine, judged by its text."""
    named = re.search(r"://|\bhost=|@", dsn)
    return engines.of(engine).in_files or named is None or _LOCAL.search(dsn) is not None


def _show(step: Step) -> None:
    row = tuple(map(number, (step.per_s, step.cpu_us, step.p50_us, step.p99_us)))
    typer.echo(_FORMAT.format(step.connections, *row))


def _provisioned(engine: str, connections: int) -> System | Endpoint:
    from proveout.dsl.plan.topology import System

    settings = {"postgres": (("max_connections", str(connections)),)}.get(engine, ())
    return System(name="ceiling", engine=engine, host="here", provision="embedded", settings=settings)


def _endpoint(dsn: str, engine: str) -> Endpoint:
    from proveout.proto.wire.tasks import Endpoint

    scheme = dsn.partition("://")[0] if "://" in dsn else ""
    named = engine or _SCHEMES.get(scheme, "postgres" if re.search(r"\b(host|dbname|service)=", dsn) else "")
    if engine and engine not in engines.WITH_DRIVER:
        raise typer.BadParameter(f"{engine!r} is none of {', '.join(engines.WITH_DRIVER)}", param_hint="--engine")
    if not named:
        raise typer.BadParameter(
            f"{dsn!r} is not an engine ({', '.join(PROVISIONED)}), not a plan file and not a DSN of a known engine",
            param_hint="TARGET",
        )
    return Endpoint(system="target", engine=named, dsn=dsn)


def _of_plan(path: Path, name: str, overrides: dict[str, str], inventory: Path | None) -> System | Endpoint:
    import os

    from proveout.coordinator.agents.endpoints import external_endpoints
    from proveout.dsl.compile.compiler import compile_plan

    plan = compile_plan(path, overrides=overrides, inventory=inventory)
    names = [system.name for system in plan.systems]
    if name not in names and (name or len(names) != 1):
        raise typer.BadParameter(f"the plan's systems are {', '.join(names)}: which one?", param_hint="--system")
    chosen = plan.system(name or names[0])
    return chosen if chosen.provision is not None else external_endpoints(plan, os.environ)[chosen.name]
