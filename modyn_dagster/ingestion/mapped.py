"""Source files and shards, mapped for reading and checked against what was ingested."""

import mmap
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from modyn_dagster.errors import CorruptFile
from modyn_dagster.ingestion.formats.base import ByteArray
from modyn_dagster.storage import checksum_of

_MAX_MAPPED: Final = 512


@dataclass(frozen=True, slots=True)
class Expected:
    """What a file must be: size, checksum, and the mtime at which it had them; without an mtime the checksum decides."""

    path: Path
    size: int
    checksum: str
    mtime_ns: int | None


class MappedFiles:
    """A bounded cache of mapped files, least recently used first out.

    Before a mapping is handed out the file is looked at: a mapping of a file that was cut short kills the process that
    touches it. A file whose mtime changed is read once to compare its checksum: copied back from a backup it is still the
    same.
    """

    def __init__(self) -> None:
        self._mapped: OrderedDict[Path, tuple[os.stat_result, ByteArray]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._mapped)

    def get(self, expected: Expected) -> ByteArray:
        """All bytes, ``uint8``, read-only. Raises ``CorruptFile`` when the file is gone or is not what was ingested."""
        found = _stat(expected)
        known = self._mapped.get(expected.path)
        if known is None or _version(known[0]) != _version(found):
            known = found, _verified(expected, found)
            self._mapped[expected.path] = known
        self._mapped.move_to_end(expected.path)
        while len(self._mapped) > _MAX_MAPPED:
            self._mapped.popitem(last=False)
        return known[1]


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _stat(expected: Expected) -> os.stat_result:
    try:
        found = expected.path.stat()
    except OSError as error:
        raise CorruptFile(expected.path, f"a file of {expected.size} bytes", error.strerror or str(error)) from error
    if found.st_size != expected.size:
        raise CorruptFile(expected.path, f"{expected.size} bytes, as when it was ingested", f"{found.st_size} bytes")
    return found


def _verified(expected: Expected, found: os.stat_result) -> ByteArray:
    if found.st_mtime_ns != expected.mtime_ns:
        checksum = checksum_of(expected.path)
        if checksum != expected.checksum:
            raise CorruptFile(expected.path, f"checksum {expected.checksum}, as when it was ingested", checksum)
    if expected.size == 0:
        return np.empty(0, dtype=np.uint8)
    with open(expected.path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), expected.size, access=mmap.ACCESS_READ), dtype=np.uint8)
