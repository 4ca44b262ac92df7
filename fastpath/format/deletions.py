"""List of a batch's deleted samples: one Arrow IPC stream with one column of positions, ascending.

A deletion writes a new version of the whole list beside the index, ``<ordinal>.<version>.deleted``; a written list never
changes. Equal content gives equal bytes.
"""

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.copies import opened_again
from fastpath.errors import CorruptFile
from fastpath.format.mapped_files import checksum_of, open_descriptor
from fastpath.format.skeleton import ARROW_ERRORS, Skeleton

#: ``uint32[k]``, strictly ascending.
DeletedPositions = npt.NDArray[np.uint32]

_SCHEMA: Final = pa.schema([pa.field("position", pa.uint32(), nullable=False)], metadata={"modyn_deleted": "1"})
_NAME: Final = re.compile(r"(\d+)\.(\d+)\.deleted")


def write_deleted(out: Any, positions: DeletedPositions) -> None:
    """Write a list to a binary file; ``ValueError`` unless ``positions`` are strictly ascending."""
    if not _ascending(positions):
        raise ValueError("deleted positions must be strictly ascending")
    batch = pa.record_batch([pa.array(positions, pa.uint32())], schema=_SCHEMA)
    with pa.ipc.new_stream(out, _SCHEMA) as writer:
        writer.write_batch(batch)


def read_deleted(path: Path, checksum: str | None = None) -> DeletedPositions:
    """Deleted positions of a batch, ``uint32[k]`` ascending, read-only.

    Raises ``CorruptFile`` unless the file is a list of positions and has the given checksum (hex BLAKE2b, 16 bytes).
    """
    return opened_again(path, lambda: _read(path, checksum))


def _read(path: Path, checksum: str | None) -> DeletedPositions:
    try:
        with open(path, "rb", opener=lambda _, __: open_descriptor(path, checksum)) as file:
            content = file.read()
    except OSError as error:
        raise CorruptFile(path, "a list of deleted positions", error.strerror or str(error)) from error
    if checksum is not None and (actual := checksum_of(content)) != checksum:
        raise CorruptFile(path, f"checksum {checksum}", actual)
    positions = _positions(path, content)
    if not _ascending(positions):
        raise CorruptFile(path, "strictly ascending positions", "positions in another order")
    return positions


def newest_deleted(index_path: Path) -> Path | None:
    """List with the highest version beside the index of a batch; None for a batch without deletions.

    For stores opened without the catalog, which otherwise names the version that counts.
    """
    ordinal = index_path.name.partition(".")[0]
    versions = {
        int(match[2]): path
        for path in index_path.parent.glob(f"{ordinal}.*.deleted")
        if (match := _NAME.fullmatch(path.name)) is not None
    }
    return versions[max(versions)] if versions else None


def _positions(path: Path, content: bytes) -> DeletedPositions:
    try:
        skeleton = Skeleton(content, is_stream=True)
        with pa.PythonFile(skeleton, mode="r") as source, pa.ipc.open_stream(source) as reader:
            if not reader.schema.equals(_SCHEMA, check_metadata=True):
                raise CorruptFile(path, "one column `position` of uint32", f"{reader.schema}")
            batches = list(reader)
        columns = [skeleton.real(batch.column(0)) for batch in batches]
        for column in columns:
            column.validate(full=True)
    except ARROW_ERRORS as error:
        raise CorruptFile(path, "a list of deleted positions as Arrow IPC", str(error)) from error
    if len(columns) != 1 or columns[0].null_count:
        raise CorruptFile(path, "one record batch without nulls", f"{len(batches)} record batches")
    positions: DeletedPositions = columns[0].to_numpy()
    return positions


def _ascending(positions: DeletedPositions) -> bool:
    return bool((positions[1:] > positions[:-1]).all())
