"""Shared setting of the figures: sizes, folder for data, interpreter with other libraries, and rows."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.contenders.cold_reads import forget
from benchmarks.data import Data, ingest, make, make_repeated, warm
from benchmarks.measure import Machine
from benchmarks.rows import ROWS_PER_FILE


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; the defaults are those of a full run, in rows where nothing else stands."""

    rows: int = 3_000_000
    large_rows: int = 26_800_000
    scaling_files: tuple[int, int] = (6, 112)
    library_rows: int = 1_000_000
    training_rows: int = 100_000_000
    steps: int = 5
    images: int = 5_000
    decoded_images: int = 400
    image_steps: int = 8


#: Everything within about a minute.
QUICK = Sizes(
    rows=300_000,
    large_rows=1_800_000,
    scaling_files=(1, 8),
    library_rows=70_000,
    training_rows=10_000_000,
    steps=1,
    images=400,
    decoded_images=60,
    image_steps=2,
)


class Mismatch(Exception):
    """Two contenders that must deliver the same batch do not."""


@dataclass
class Setting:
    """One run of the benchmark.

    Attributes:
        work: a folder that is removed after the run.
        sizes: how much to measure.
        python: interpreter with the libraries of ``requirements.txt``.
        given: a folder with ``data/day_*.bin`` made before by ``criteo.py``; None makes rows.
        only: ids to measure, ``F1`` or ``F6.lance``; empty for all.
        machine: how busy it was.
    """

    work: Path
    sizes: Sizes
    python: Path
    given: Path | None = None
    only: Collection[str] = ()
    machine: Machine = field(default_factory=Machine)

    def wants(self, *ids: str) -> bool:
        """Whether one of these figures, or a part of one, is asked for."""
        return not self.only or any(figure.split(".")[0] == wanted.split(".")[0] for figure in ids for wanted in self.only)

    @cached_property
    def data(self) -> Data:
        """The rows most figures read, in the page cache."""
        folder = self.work / "rows"
        if self.given is None:
            found = make(folder, self.sizes.rows)
        else:
            found = ingest(folder, sorted((self.given / "data").glob("day_*.bin")))
        warm(found)
        return found

    @cached_property
    def large(self) -> Data:
        """Gigabytes of rows, in the page cache, written back so that the disk is quiet afterwards."""
        found = make_repeated(self.work / "large", max(self.sizes.large_rows, self.sizes.scaling_files[1] * ROWS_PER_FILE))
        forget(found.paths)
        warm(found)
        return found
