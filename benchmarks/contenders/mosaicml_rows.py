"""MosaicML Streaming: ``LocalDataset``, uncompressed MDS shards with one column of bytes, a lookup per row."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.contenders.library import Library, Positions, Take, batch_of_rows, rows_of

# The library imports torchvision, whose wheels bring their compiled operators for a CUDA build of torch only. With a CPU
# build two of them are missing at import; nothing here calls them.
if torch.version.cuda is None:
    _OPERATORS = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]  # torch has no type for it
    for name in ("nms", "qnms"):
        _OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]  # torch has no type for it

from streaming import LocalDataset, MDSWriter


def write(paths: Sequence[Path], folder: Path) -> None:
    """Shards of the library's default size."""
    with MDSWriter(out=str(folder / "rows.mds"), columns={"row": "bytes"}) as writer:
        for row in rows_of(paths):
            writer.write({"row": row})


def open_rows(folder: Path) -> Take:
    """Takes row by row."""
    dataset = LocalDataset(str(folder / "rows.mds"))

    def take(positions: Positions) -> dict[str, Tensor]:
        return batch_of_rows(dataset[i]["row"] for i in positions.tolist())

    return take


LIBRARY = Library("mosaicml-streaming", write, open_rows)
