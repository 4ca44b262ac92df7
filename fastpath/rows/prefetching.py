"""Prefetching of rows that a gather copies next: it gains on most processors and costs on some, so a short probe decides.

The probe takes 1 to 3 ms, and its answer is remembered for the machine, in ``modyn-dagster`` below ``XDG_CACHE_HOME`` or
``~/.cache``; without that folder each process probes. The bytes that a gather delivers do not depend on it.
"""

import json
import os
import platform
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from fastpath.array_types import address_of
from fastpath.kernels._columns import evict, gather_columns
from fastpath.rows.columns import Columns

#: Rows of a request from which on the probe is worth its time.
MANY_ROWS: Final = 4096
#: Version of the probe and of the kernel that it times; another one's answer does not count.
_VERSION: Final = 1
_ROWS: Final = 1024
_ROW: Final = np.dtype([("label", "<i4"), ("numbers", "<f4", (13,)), ("categories", "<i4", (26,))])
#: Bytes from row to row in memory: each has a page of its own, as rows at random keys do, and other sets of the caches.
_STRIDE: Final = 4096 + 192
_TURNS: Final = 3
#: Prefetching is given up only where each turn without it took at most this share of the time.
_FASTER: Final = 0.95


@cache
def prefetching_gains() -> bool:
    """True if gathers are faster with prefetching on this machine, or no slower."""
    path, machine = _answer_file(), _machine()
    found = _remembered(path, machine)
    if found is None:
        found = probe()
        _remember(path, {"version": _VERSION, "machine": machine, "gains": found})
    return found


def probe() -> bool:
    """Time gathers of rows that no cache holds, with and without prefetching in turns."""
    memory = np.empty((_ROWS, _STRIDE), np.uint8)
    rows = memory[:, : _ROW.itemsize]
    # Unwritten pages are one and the same page of zeros.
    rows[:] = 0
    columns = Columns(_ROW, {"num": (["numbers"], np.float32), "cat": (["categories"], np.int64), "label": "label"})
    out = columns.allocate(_ROWS)
    bases, files = np.array([address_of(memory)], np.uint64), np.zeros(_ROWS, np.int32)
    offsets = np.random.default_rng(0).permutation(_ROWS) * _STRIDE
    places = columns.places(_ROWS, out)

    def seconds(*, ahead: bool) -> float:
        evict(rows)
        start = time.perf_counter()
        gather_columns(bases, files, offsets, *columns.span, columns.operations, places, 1, ahead)
        return time.perf_counter() - start

    seconds(ahead=True)
    return any(seconds(ahead=False) > _FASTER * seconds(ahead=True) for _ in range(_TURNS))


def _answer_file() -> Path | None:
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # A relative path is to be ignored (XDG Base Directory Specification).
    if folder.is_absolute():
        return folder / "modyn-dagster" / "prefetching.json"
    try:
        return Path.home() / ".cache" / "modyn-dagster" / "prefetching.json"
    except RuntimeError:
        return None


def _machine() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("model name", "CPU part")):
                return f"{platform.machine()} {line.partition(':')[2].strip()}"
    return f"{platform.machine()} {platform.processor()}"


def _remembered(path: Path | None, machine: str) -> bool | None:
    """Answer of an earlier probe; None where there is none of this version and machine."""
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or (content.get("version"), content.get("machine")) != (_VERSION, machine):
        return None
    gains = content.get("gains")
    return gains if isinstance(gains, bool) else None


def _remember(path: Path | None, content: dict[str, Any]) -> None:
    """Write the answer whole or not at all; a machine that keeps nothing probes again."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
