"""The library that strikes calls of the C library: built once per session, loaded into every process that is to suffer."""

import ctypes
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.faults.plan import Plan

_SOURCES: Final = Path(__file__).parent / "preload"


def build(folder: Path) -> Path:
    """Compile the library in a folder, with warnings as errors."""
    library = folder / "faults.so"
    sources = [str(path) for path in sorted(_SOURCES.glob("*.c"))]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([os.environ.get("CC", "gcc"), *flags, "-o", str(library), *sources, "-ldl"], check=True)
    return library


def environment(library: Path, plan: Plan | None = None) -> Mapping[str, str]:
    """Variables that let a program, and all that it starts, suffer a plan; without one they only can."""
    return {"LD_PRELOAD": str(library)} | ({"MODYN_TESTS_FAULTS": str(plan.path)} if plan else {})


@cache
def _loaded() -> ctypes.CDLL:
    """The library of this process, which was started with it."""
    return ctypes.CDLL(None)


def begin(plan: Path) -> None:
    """Follow a plan in this process and in its children, from now on."""
    error = _loaded().faults_begin(os.fsencode(plan))
    if error:
        raise OSError(error, os.strerror(error), str(plan))
    os.environ["MODYN_TESTS_FAULTS"] = str(plan)


def end() -> None:
    """Follow no plan any more."""
    _loaded().faults_begin(None)


def remember(path: Path) -> str:
    """Note in the shadow of the plan that a file or folder survives a power cut as it is; returns its identity there."""
    identity = ctypes.create_string_buffer(96)
    if _loaded().faults_remember(os.fsencode(path), identity) != 0:
        raise FileNotFoundError(path)
    return identity.value.decode()
