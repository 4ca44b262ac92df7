"""F15: a CSV file to an ingested batch: rows found and checked, extents, index, checksums, Postgres."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from benchmarks.database import Database
from benchmarks.figures.metadata import labelled_rows
from benchmarks.measure import Contender, Machine, Run, Spread, anonymous_bytes, interleave
from benchmarks.report import Figure
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.registration.batches import register
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.ingestion.discovery import announce
from modyn_dagster.ingestion.ingest import ingest_batch
from modyn_dagster.spec.dataset import DatasetSpec

_LATE_ROUNDS: Final = 20


def write_rows(path: Path, n: int) -> None:
    """Ten columns: a time as ISO 8601 text, a label, four integers of 2 to 5 digits, four numbers with four decimals."""
    rng = np.random.default_rng(0)
    columns: dict[str, object] = {"time": (np.datetime64("2024-01-01", "s") + np.arange(n)).astype(str)}
    columns["label"] = rng.integers(0, 10, n)
    columns |= {f"i{k}": rng.integers(0, 10 ** (k + 2), n) for k in range(4)}
    columns |= {f"f{k}": np.round(rng.normal(size=n) * 10, 4) for k in range(4)}
    arrow_csv.write_csv(pa.table(columns), path)


@dataclass
class Ingestions:
    """The same file ingested again and again under other names."""

    database: Database
    root: Path
    file: Path
    n: int
    numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def of(cls, database: Database, work: Path, n: int) -> "Ingestions":
        """Write the file of ``n`` rows into a working folder."""
        root = work / "csv"
        root.mkdir()
        write_rows(work / "rows.csv", n)
        return cls(database, root, work / "rows.csv", n)

    def once(self, spec: DatasetSpec) -> tuple[float, float]:
        """Ingest a new batch; its seconds by the clock, and the CPU seconds of this process and the server."""
        name = f"{next(self.numbers)}.csv"
        os.link(self.file, self.root / name)
        engine = self.database.engine
        with transaction(engine) as conn:
            [batch] = register(conn, ensure_dataset(conn, spec).id, [announce(spec, name)])
        self.database.settle()
        cpu, start = time.process_time() + self.database.cpu_seconds(), time.perf_counter()
        result = ingest_batch(engine, self.database.home, spec, str(self.root), batch.partition_key)
        seconds = time.perf_counter() - start
        if result.n_samples != self.n:
            raise RuntimeError(f"{result.n_samples} samples were ingested, the file has {self.n}")
        return seconds, time.process_time() + self.database.cpu_seconds() - cpu


def figures(database: Database, work: Path, n: int, machine: Machine) -> Iterator[Figure]:
    """F15 and F15.first in rows per CPU second of client and server together, F15.clock by the clock, F15.memory."""
    ingestions = Ingestions.of(database, work, n)
    later, numbers = labelled_rows("later"), count()
    clock: list[float] = []

    def next_batch() -> Run:
        seconds, cpu = ingestions.once(later)
        clock.append(n / seconds / 1e6)
        return Run(n / 1e6, cpu)

    def first_batch() -> Run:
        return Run(n / 1e6, ingestions.once(labelled_rows(f"first_{next(numbers)}"))[1])

    contenders: dict[str, Contender] = {
        "later": next_batch,
        "first": first_batch,
        "parse": lambda: _parse(work / "rows.csv", n),
    }
    rounds = interleave(contenders, machine)
    what = f"CSV of {n / 1e6:.3g} M rows x 10 columns to an ingested batch"
    yield Figure("F15", f"{what}, per core", rounds.rate("later"), "M rows/s", 0.8, note="CPU time of client and server")
    yield Figure("F15.first", "the same, first batch of a dataset: columns are found", rounds.rate("first"), "M rows/s", 0.8)
    yield Figure("F15.clock", "the same by the clock", Spread.of(clock[1:]), "M rows/s")
    yield Figure("F15.parse", "Arrow's CSV parser alone, one thread", rounds.rate("parse"), "M rows/s")
    size = (work / "rows.csv").stat().st_size
    grown = [_grown_by(lambda: ingestions.once(later)) / size for _ in range(5)]
    yield Figure("F15.memory", "memory that the ingestion needs, file sizes", Spread.of(grown), "x", 4.0, at_most=True)


def late_figures(database: Database, work: Path, n: int, machine: Machine) -> Iterator[Figure]:
    """F15.late: CPU time of batches whose labels arrive later, over that of the same ones with labels, in many rounds.

    Both write as much as Postgres does between two checkpoints, so that single rounds differ by more than the figure.
    """
    ingestions = Ingestions.of(database, work, n)
    own_labels = {"from": {"source": "column", "column": "label"}, "arrives": "later"}
    specs = {"with": labelled_rows("with"), "late": labelled_rows("late", label=own_labels)}
    contenders: dict[str, Contender] = {
        name: lambda spec=spec: Run(n / 1e6, ingestions.once(spec)[1])  # type: ignore[misc]  # of a lambda's default
        for name, spec in specs.items()
    }
    rounds = interleave(contenders, machine, rounds=_LATE_ROUNDS)
    what = f"CSV of {n / 1e6:.3g} M rows, labels that arrive later, here all at once / labels with the samples, CPU time"
    note = f"{_LATE_ROUNDS} rounds"
    yield Figure("F15.late", what, rounds.ratio("with", "late"), "x", 1.1, at_most=True, note=note)


def _parse(path: Path, n: int) -> Run:
    start = time.process_time()
    options = arrow_csv.ConvertOptions(column_types={"time": pa.string()})
    if len(arrow_csv.read_csv(path, arrow_csv.ReadOptions(use_threads=False), convert_options=options)) != n:
        raise RuntimeError(f"{path} does not have {n} rows")
    return Run(n / 1e6, time.process_time() - start)


def _grown_by(work: Callable[[], object]) -> float:
    """Peak of the memory that no file backs over what there was before, bytes; looked at every few milliseconds."""
    before, peak, done = anonymous_bytes(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peak[0] - before
