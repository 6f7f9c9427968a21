"""Hatch's hook that compiles the hot path, with Cython, when the package is built or installed for editing.

Without a C compiler or Python's headers the package is built all the same: a module in Python does what each compiled
one does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    "src/proveout/agent/engines/postgres/copy_rows_native.pyx",
    "src/proveout/agent/engines/wire_native.pyx",
    "src/proveout/agent/engines/postgres/protocol_native.pyx",
    "src/proveout/agent/engines/mysql/protocol_native.pyx",
    "src/proveout/agent/load/loop/arrival_schedule_native.pyx",
    "src/proveout/agent/load/loop/transaction_loop_native.pyx",
)
PURE_PYTHON = "PROVEOUT_PURE_PYTHON"


class NativeBuildHook(BuildHookInterface[Any]):
    """Puts each compiled module beside its source, and into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, for wheels only."""
        if self.target_name != "wheel" or os.environ.get(PURE_PYTHON):
            return
        suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
        targets = [source.removesuffix(".pyx") + suffix for source in SOURCES]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the compilers are processes of their own
            made = pool.map(lambda *paths: compiled(*(Path(self.root, path) for path in paths)), SOURCES, targets)
            failures = [(source, why) for source, why in zip(SOURCES, made, strict=True) if why is not None]
        for source, why in failures[:1]:
            self.app.display_warning(f"{source} was not compiled ({why}): loads will cost more of the client's CPU")
        if not failures:
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["artifacts"].extend(targets)


def root_of(source: Path) -> Path:
    """The folder of the packages that a source's `cimport`s are found in."""
    return next(folder.parent for folder in source.absolute().parents if folder.name == "proveout")


def compiled(source: Path, target: Path) -> str | None:
    """Compile `source` to `target`; why not, when it cannot be."""
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        return f"there is no Python.h in {include}"
    compiler = os.environ.get("CC") or "cc"
    with tempfile.TemporaryDirectory() as folder:
        c_file, made = Path(folder, f"{source.stem}.c"), Path(folder, target.name)
        flags = ["-O2", "-fPIC", "-shared", "-fno-strict-aliasing", "-DNDEBUG", f"-I{include}"]
        for argv in (
            [sys.executable, "-m", "cython", "-3", "-I", str(root_of(source)), str(source), "-o", str(c_file)],
            [compiler, *flags, str(c_file), "-o", str(made)],
        ):
            try:
                done = subprocess.run(argv, capture_output=True, text=True, check=False)
            except OSError as error:
                return f"{argv[0]}: {error.strerror}"
            if done.returncode:
                return f"{argv[0]} failed: {done.stderr.strip()[-500:]}"
        staged = target.with_name(f".{target.name}.{os.getpid()}")
        staged.write_bytes(made.read_bytes())
        staged.chmod(0o755)
        staged.replace(target)
    return None
