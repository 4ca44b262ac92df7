"""Label files below the home folder: written before the row that names them, opened by the read side."""

from pathlib import Path

from fastpath.format.labels.label_file import LabelFile, LabelRows, write_label_rows
from modyn_dagster.catalog.labels.label_files import LabelFileFacts, LabelFileRow
from modyn_dagster.storage import atomic_write


def label_file_path(dataset: str, name: str) -> str:
    """Path of a label file, relative to the home folder.

    >>> label_file_path("clicks", "7")
    'labels/clicks/7.arrow'
    """
    return f"labels/{dataset}/{name}.arrow"


def write_label_file(home: Path, dataset: str, name: str, rows: LabelRows) -> LabelFileFacts:
    """Write a label file; the caller records it in the transaction of the batch that the labels came with.

    Args:
        home: folder of the files of state.
        dataset: name of the dataset.
        name: of the file, without suffix; unique in the dataset. After a kill, the same name is written again.
        rows: in any order.

    Raises:
        ValueError: a row has no time, a negative class or a target that is no number.
        WriteFailed: the operating system refuses.
    """
    rows = rows.sorted()
    path = label_file_path(dataset, name)
    with atomic_write(home / path) as out:
        write_label_rows(out, rows)
    return LabelFileFacts(path, out.checksum, len(rows.keys), rows.parts())


def open_label_file(home: Path, row: LabelFileRow) -> LabelFile:
    """Open a label file by its row. Raises ``CorruptFile`` when its checksum differs."""
    return LabelFile.open(home / row.path, row.checksum)
