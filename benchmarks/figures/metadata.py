"""F14: metadata of samples into Postgres, as ingestion does it and as others would."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from benchmarks.contenders import loads as others
from benchmarks.database import Database
from benchmarks.measure import Contender, Machine, Run, Spread, interleave
from benchmarks.report import Figure
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.datasets import partition_of
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.samples import SampleRows, copy_samples
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.dataset import DatasetSpec

_OTHERS: Final = {
    "pyarrow": "text COPY, written by pyarrow.csv",
    "pandas": "text COPY, written by pandas to_csv",
    "execute_values": "INSERT by psycopg2's execute_values",
}


@dataclass
class Loads:
    """Batches of one dataset, each loaded once: a counter hands out ordinals."""

    database: Database
    n: int
    dataset_id: int = 0
    ordinal: int = 0

    def __post_init__(self) -> None:
        with transaction(self.database.engine) as conn:
            self.dataset_id = ensure_dataset(conn, labelled_rows("metadata")).id

    @property
    def leaf(self) -> str:
        """The table that holds the dataset's samples."""
        return partition_of(self.dataset_id)

    def next(self) -> int:
        """An ordinal that was not used yet."""
        self.ordinal += 1
        return self.ordinal

    def timed(self, load: Callable[[sa.Connection, SampleRows], None], n: int) -> Contender:
        """A contender that loads n samples and commits."""

        def run() -> Run:
            rows = sample_rows(self.next(), n)
            self.database.settle()
            start = time.perf_counter()
            with transaction(self.database.engine) as conn:
                load(conn, rows)
            return Run(n, time.perf_counter() - start)

        return run


def figures(database: Database, n: int, machine: Machine) -> Iterator[Figure]:
    """F14, F14.two, and for orientation three other ways; rows a second, commit included."""
    loads = Loads(database, n)
    with _Pair(database.url, loads.dataset_id) as pair:
        contenders: dict[str, Contender] = {
            "one": loads.timed(lambda conn, rows: copy_samples(conn, loads.dataset_id, rows), n),
            "two": lambda: _two(loads, pair),
            "pyarrow": loads.timed(lambda conn, rows: others.copy_text(conn, loads.leaf, others.arrow_csv_of(rows)), n // 4),
            "pandas": loads.timed(lambda conn, rows: others.copy_text(conn, loads.leaf, others.pandas_csv(rows)), n // 8),
            "execute_values": loads.timed(lambda conn, rows: others.insert(conn, loads.leaf, rows), n // 32),
        }
        rounds = interleave(contenders, machine)
    size = f"{n / 1e6:.3g} M samples"
    yield Figure("F14", f"{size} into Postgres, one batch", _millions(rounds.rate("one")), "M rows/s", 2.5)
    yield Figure("F14.two", f"2 x {size}, two batches at once", _millions(rounds.rate("two")), "M rows/s", 4.0)
    yield Figure("F14.pyarrow", "text COPY, written by pyarrow.csv", _millions(rounds.rate("pyarrow")), "M rows/s")
    yield Figure("F14.pandas", "text COPY, written by pandas to_csv", _millions(rounds.rate("pandas")), "M rows/s")
    yield Figure(
        "F14.execute_values", "INSERT by psycopg2's execute_values", _millions(rounds.rate("execute_values")), "M rows/s"
    )


def labelled_rows(name: str, **fields: Any) -> DatasetSpec:
    """A CSV dataset with the columns time and label."""
    content: dict[str, Any] = {
        "name": name,
        "root": "data",
        "format": {"kind": "csv"},
        "batches": {"kind": "file", "pattern": "*.csv", "quiet_seconds": 0},
        "time": {"source": "column", "column": "time"},
        "label": {"from": {"source": "column", "column": "label"}},
    }
    return DatasetSpec.model_validate(content | fields)


def sample_rows(ordinal: int, n: int) -> SampleRows:
    """A sample per millisecond, of ten classes."""
    positions = np.arange(n)
    return SampleRows(keys_of(ordinal, positions), (positions * 1000).view("datetime64[us]"), positions % 10)


class _Pair:
    """Two processes with a connection each that load a batch when told to."""

    def __init__(self, url: str, dataset_id: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection[Any, Any]] = []
        self._processes = []
        for _ in range(2):
            here, there = context.Pipe()
            process = context.Process(target=_load_when_told, args=(url, dataset_id, there), daemon=True)
            process.start()
            self._ends.append(here)
            self._processes.append(process)

    def load(self, ordinals: list[int], n: int) -> float:
        """Load one batch in each at the same time; seconds from the first start to the last commit."""
        for end, ordinal in zip(self._ends, ordinals):
            end.send((ordinal, n))
        for end in self._ends:
            end.recv()  # rows are made
        for end in self._ends:
            end.send(None)
        spans = [end.recv() for end in self._ends]
        return float(max(stop for _, stop in spans) - min(start for start, _ in spans))

    def __enter__(self) -> "_Pair":
        return self

    def __exit__(self, *_: object) -> None:
        for end, process in zip(self._ends, self._processes):
            end.close()
            process.join()


def _load_when_told(url: str, dataset_id: int, end: "Connection[Any, Any]") -> None:
    engine = open_engine(sa.make_url(url))
    while True:
        try:
            ordinal, n = end.recv()
        except EOFError:
            engine.dispose()
            return
        rows = sample_rows(ordinal, n)
        end.send(None)
        end.recv()
        start = time.perf_counter()
        with transaction(engine) as conn:
            copy_samples(conn, dataset_id, rows)
        end.send((start, time.perf_counter()))


def _two(loads: Loads, pair: _Pair) -> Run:
    loads.database.settle()
    return Run(2 * loads.n, pair.load([loads.next(), loads.next()], loads.n))


def _millions(rate: Spread) -> Spread:
    return Spread(rate.value / 1e6, rate.min / 1e6, rate.max / 1e6)
