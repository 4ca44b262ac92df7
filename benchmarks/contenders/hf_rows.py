"""Hugging Face datasets: an Arrow table on disk, ``with_format("torch")`` and a list of positions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset, load_from_disk
from torch import Tensor

from benchmarks.contenders.library import Library, Positions, Take, arrays_of


def write(paths: Sequence[Path], folder: Path) -> None:
    """Three columns: two of fixed-size lists, one of numbers."""
    tables = []
    for rows in arrays_of(paths):
        lists = {name: np.ascontiguousarray(rows[name]) for name in ("num", "cat")}
        columns = {name: pa.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1]) for name, values in lists.items()}
        tables.append(pa.table({**columns, "label": np.ascontiguousarray(rows["label"])}))
    Dataset(pa.concat_tables(tables)).save_to_disk(folder / "rows.hf")


def open_rows(folder: Path) -> Take:
    """Takes the rows of a batch by one call; the library makes tensors of them."""
    dataset = load_from_disk(folder / "rows.hf").with_format("torch")

    def take(positions: Positions) -> dict[str, Tensor]:
        found = dataset[positions.tolist()]
        return {"num": found["num"].float(), "cat": found["cat"].long(), "label": found["label"].float()}

    return take


LIBRARY = Library("datasets", write, open_rows)
