"""`package_present`: packages that must be there. It only checks; the owner of the host installs a missing package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from proveout.dsl.operations.facts import Facts, PackageQuery, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.types import PackageName
from proveout.dsl.schema.scalar_types import OrOne, one_or_many


class PackagePresent(Operation):
    """Packages (rpm or dpkg) that the host must have: `{packages: [tuned]}`. Nothing is installed; the run ends where
    one is missing."""

    packages: Annotated[
        list[PackageName], Field(min_length=1, max_length=200), BeforeValidator(one_or_many), OrOne()
    ] = Field(description="Their names.")

    privileges = "runs rpm or dpkg"

    @property
    def changing(self) -> bool:
        """It only checks."""
        return False

    def targets(self) -> Mapping[str, str]:
        """Each package."""
        return {f"package {name}": "present" for name in self.packages}

    def wanted(self) -> tuple[str, ...]:
        """All packages."""
        return (f"must be installed, or the run ends: {', '.join(self.packages)}",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """Each package."""
        return tuple(PackageQuery(name) for name in self.packages)

    def changes(self, facts: Facts) -> Step:
        """Never any."""
        return Step(
            refusals=tuple(f"package {name} is not installed" for name in self.packages if facts.package(name) is None)
        )
