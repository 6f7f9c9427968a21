"""The table of all operations, and the conversion of a compiled tuning back to its operation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import ValidationError

from proveout.core.errors import ProveoutError
from proveout.dsl.operations.disks import Filesystem, Mount, Partition, ZeroBlocks
from proveout.dsl.operations.faults import (
    CpuPressure,
    Delay,
    FillDisk,
    Kill,
    Loss,
    NetworkPartition,
    Promote,
    ServerRestart,
    Stop,
)
from proveout.dsl.operations.host import File, HostCommand, IniSection, Limits, PackagePresent, Service
from proveout.dsl.operations.kernel import BlockQueue, CpuGovernor, HugePages, Sysctl, Thp
from proveout.dsl.operations.multipath import Multipath, UdevRules
from proveout.dsl.operations.network import BondPresent, Mtu
from proveout.dsl.operations.operation import Operation
from proveout.dsl.operations.oracle import AsmDiskGroup, OracleParameters, OracleRedo
from proveout.dsl.operations.sql import DatabaseCopy, PostgresSettings, Sql
from proveout.dsl.plan.model_values import from_values
from proveout.dsl.plan.stages import Tuning

OPERATIONS: Mapping[str, type[Operation]] = MappingProxyType(
    {
        "sysctl": Sysctl,
        "huge_pages": HugePages,
        "service": Service,
        "package_present": PackagePresent,
        "file": File,
        "cpu_governor": CpuGovernor,
        "thp": Thp,
        "limits": Limits,
        "mtu": Mtu,
        "bond_present": BondPresent,
        "udev_rules": UdevRules,
        "multipath": Multipath,
        "block_queue": BlockQueue,
        "mount": Mount,
        "partition": Partition,
        "zero_blocks": ZeroBlocks,
        "filesystem": Filesystem,
        "ini_section": IniSection,
        "command": HostCommand,
        "postgres_settings": PostgresSettings,
        "oracle_parameters": OracleParameters,
        "oracle_redo": OracleRedo,
        "asm_disk_group": AsmDiskGroup,
        "sql": Sql,
        "database_copy": DatabaseCopy,
        "kill": Kill,
        "stop": Stop,
        "server_restart": ServerRestart,
        "promote": Promote,
        "network_partition": NetworkPartition,
        "loss": Loss,
        "delay": Delay,
        "fill_disk": FillDisk,
        "cpu_pressure": CpuPressure,
    }
)

TUNING_KEYS: Mapping[str, str] = MappingProxyType(
    {name: name for name, model in OPERATIONS.items() if not (model.of_fault or model.implied)}
)
"""The keys under `tuning:` -> the names of their operations."""
FAULT_KEYS: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: name
            for name, model in OPERATIONS.items()
            if name not in ("partition", "network_partition", "server_restart") and not model.implied
        },
        "restart": "server_restart",
        "partition": "network_partition",
    }
)
"""The keys under `faults:` -> the names of their operations. Two have another meaning there than under `tuning:`:
`restart` of a server, not of a unit, and `partition` of a network, not of a disk."""


def fault_key(operation: str) -> str:
    """The key of an operation under `faults:`."""
    return next((key for key, name in FAULT_KEYS.items() if name == operation), operation)


def operation_of(tuning: Tuning) -> Operation:
    """The operation of a compiled tuning. ProveoutError when this release has none such, or its parameters are not
    valid."""
    model = OPERATIONS.get(tuning.operation)
    if model is None:
        raise ProveoutError(
            f"no tuning operation is called {tuning.operation!r}",
            where=f"tuning {tuning.name}",
            way_out=f"there are {', '.join(OPERATIONS)}; have the same release on coordinator and agents",
        )
    try:
        return from_values(model, tuning.parameters)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ProveoutError(
            f"the parameters of {tuning.operation} are not valid: {first['msg']}",
            where=f"tuning {tuning.name}",
            way_out="have the same release on coordinator and agents",
        ) from error
