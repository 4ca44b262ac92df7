"""LitData: ``StreamingDataset`` over optimized chunks of 64 MB with one item of bytes per row, a lookup per row."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from litdata import StreamingDataset, optimize
from torch import Tensor

from benchmarks.contenders.library import Library, Positions, Take, batch_of_rows, rows_of


def _rows(path: str) -> Iterator[bytes]:
    yield from rows_of([Path(path)])


def write(paths: Sequence[Path], folder: Path) -> None:
    """Chunks in file order: one worker."""
    target = str(folder / "rows.litdata")
    optimize(fn=_rows, inputs=[str(path) for path in paths], output_dir=target, chunk_bytes="64MB", num_workers=1)


def open_rows(folder: Path) -> Take:
    """Takes row by row."""
    dataset = StreamingDataset(str(folder / "rows.litdata"))

    def take(positions: Positions) -> dict[str, Tensor]:
        return batch_of_rows(dataset[i] for i in positions.tolist())

    return take


LIBRARY = Library("litdata", write, open_rows)
