"""Label files below the home folder: written before the row that names them, opened by the read side."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpath.format.labels.known_labels import Defaults, KnownLabels, LabelPart
from fastpath.format.labels.label_file import LabelArray, LabelFile, LabelRows, write_label_rows
from modyn_dagster.catalog.labels.label_files import LabelFileFacts, LabelFileRow
from modyn_dagster.spec.dataset import DatasetSpec
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
    largest = int(rows.values.max(initial=-1)) if rows.values.dtype == np.int64 else -1
    return LabelFileFacts(path, out.checksum, len(rows.keys), rows.parts(), largest)


def open_label_file(home: Path, row: LabelFileRow) -> LabelFile:
    """Open a label file by its row. Raises ``CorruptFile`` when its checksum differs."""
    return LabelFile.open(home / row.path, row.checksum)


def known_labels(
    home: Path, spec: DatasetSpec, files: Iterable[LabelFileRow], position: int, defaults: Defaults | None
) -> KnownLabels:
    """Labels of a dataset as of a position in its sequence of arrivals, with its default label then; no file is opened."""
    parts: dict[int, list[LabelPart]] = {}
    for file in files:
        if file.arrival <= position:
            for ordinal, first, n in file.parts:
                parts.setdefault(ordinal, []).append(LabelPart(home / file.path, file.checksum, first, n))
    is_class = spec.label is not None and spec.label.kind == "class"
    return KnownLabels("labels" if is_class else "targets", parts, defaults)


def arrive_later(spec: DatasetSpec) -> bool:
    """True for a dataset whose labels arrive after its samples."""
    return spec.label is not None and spec.label.arrives == "later"


def is_labelled(values: LabelArray) -> npt.NDArray[np.bool_]:
    """Mask of the samples with a label: a class index of at least 0, or a target that is a number."""
    known: npt.NDArray[np.bool_] = values >= 0 if values.dtype == np.int64 else ~np.isnan(values)
    return known
