"""Indexes of batches, written atomically. Their format is that of ``fastpath.index_file``."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpath.index import Extents, IndexedFile, TimeArray, write_index_to
from modyn_dagster.ingestion.formats.base import Int64Array
from modyn_dagster.storage import atomic_write


def write_index(
    path: Path,
    times: TimeArray,
    labels: Int64Array | None,
    targets: npt.NDArray[np.float64] | None,
    extents: Extents,
    files: Sequence[IndexedFile],
) -> str:
    """Write an index atomically; returns its checksum."""
    with atomic_write(path) as out:
        write_index_to(out, times, labels, targets, extents, files)
    return out.checksum
