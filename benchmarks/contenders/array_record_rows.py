"""array_record: ``ArrayRecordDataSource.__getitems__`` over one file, a record per row, groups of one as for random access."""

from collections.abc import Sequence
from pathlib import Path

from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter
from torch import Tensor

from benchmarks.contenders.library import Library, Positions, Take, batch_of_rows, rows_of


def write(paths: Sequence[Path], folder: Path) -> None:
    """One uncompressed file."""
    writer = ArrayRecordWriter(str(folder / "rows.array_record"), "group_size:1,uncompressed")
    for row in rows_of(paths):
        writer.write(row)
    writer.close()


def open_rows(folder: Path) -> Take:
    """Takes the rows of a batch by one call."""
    source = ArrayRecordDataSource([str(folder / "rows.array_record")])

    def take(positions: Positions) -> dict[str, Tensor]:
        return batch_of_rows(source.__getitems__(positions.tolist()))

    return take


LIBRARY = Library("array-record", write, open_rows)
