"""S1, S2: a window to a finished training set, by strategy and backend."""

import time
import tracemalloc
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from benchmarks.database import Database
from benchmarks.figures.metadata import labelled_rows
from benchmarks.measure import Contender, Machine, Run, Spread, interleave
from benchmarks.report import Figure
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from fastpath.format.labels.label_file import LabelRows
from modyn_dagster.catalog.batches import BatchFacts, BatchRow, FileFacts, mark_ingested, visible_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import partition_of
from modyn_dagster.catalog.labels.label_files import record_label_file
from modyn_dagster.catalog.registration.batches import Announcement, register
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.samples import SampleRows, copy_samples
from modyn_dagster.data.label_files import write_label_file
from modyn_dagster.data.view import DatasetView
from modyn_dagster.data.windows.window_columns import WindowColumns
from modyn_dagster.keys import keys_of
from modyn_dagster.selection import KeyRange, Selection, write_training_set
from modyn_dagster.selection.own.choice import Origin
from modyn_dagster.selection.own.sql import sql_selection
from modyn_dagster.spec.selection import SelectionSpec
from modyn_dagster.spec.strategies.own import SQLStrategySpec
from modyn_dagster.storage import atomic_file
from modyn_dagster.values.digest import checksum_of

_BATCHES: Final = 4
_ALL: Final = KeyRange(-1, 2**62)
_N_CLASSES: Final = 10
_STRATEGIES: Final[Mapping[str, dict[str, Any]]] = {
    "all": {"kind": "all"},
    "uniform": {"kind": "uniform", "ratio": 0.5},
    "labels": {"kind": "balanced", "by": "label", "ratio": 0.5, "filling": "exact"},
}


def figures(database: Database, work: Path, n: int, machine: Machine) -> Iterator[Figure]:
    """Seconds, memory beyond the page cache, and keys a second, each to a training set that is fsynced."""
    view, late = _view(database, n), _view(database, n, late=True)
    size = f"{n / 1e6:.3g} M"
    runs = {
        f"{backend}.{name}": _contender(view, strategy, backend, work, n)
        for backend in ("arrow", "postgres")
        for name, strategy in _STRATEGIES.items()
    }
    runs |= {f"late.{backend}": _contender(late, _STRATEGIES["labels"], backend, work, n) for backend in ("arrow", "postgres")}
    rounds = interleave(runs, machine)
    scale = n / 20_000_000
    seconds, note = rounds.seconds("arrow.uniform"), "" if scale == 1 else "goal scaled to the window"
    yield Figure("S1", f"arrow: uniform 50 % of {size} rows", seconds, "s", 1.0 * scale, at_most=True, note=note)
    yield Figure(
        "S1.labels",
        "arrow: class-balanced over uniform, seconds",
        _inverse(rounds.ratio("arrow.labels", "arrow.uniform")),
        "x",
        2.0,
        at_most=True,
    )
    yield Figure("S1.all", f"arrow: all of {size} rows", rounds.seconds("arrow.all"), "s")
    yield Figure("S1.memory", "arrow: memory while it selects", Spread.of([_peak(view, work) / 1e6]), "MB", 250.0, at_most=True)
    yield Figure("S2", f"postgres: uniform 50 % of {size} rows", rounds.rate("postgres.uniform"), "M keys/s", 3.0)
    yield Figure(
        "S2.labels",
        "postgres: class-balanced over uniform, seconds",
        _inverse(rounds.ratio("postgres.labels", "postgres.uniform")),
        "x",
        2.0,
        at_most=True,
    )
    for figure, backend in (("S1.late", "arrow"), ("S2.late", "postgres")):
        ratio = _inverse(rounds.ratio(f"late.{backend}", f"{backend}.labels"))
        yield Figure(figure, f"{backend}: class-balanced, labels arrived later / with the samples", ratio, "x", 1.1, at_most=True)
    yield Figure("S2.all", f"postgres: all of {size} rows", rounds.rate("postgres.all"), "M keys/s")


def sql_figures(database: Database, work: Path, n: int, machine: Machine) -> Iterator[Figure]:
    """S3: class-balanced by a statement of SQL beside ``balanced`` on the other backends, to training sets of one size."""
    view = _view(database, n)
    runs = {f"balanced.{backend}": _contender(view, _STRATEGIES["labels"], backend, work, n) for backend in ("arrow", "postgres")}
    runs["sql"] = _by_statement(view, work, n)
    rounds = interleave(runs, machine)
    size = f"{n / 1e6:.3g} M rows"
    yield Figure("S3", f"class-balanced 50 % of {size} by a statement of SQL", rounds.seconds("sql"), "s")
    for backend in ("arrow", "postgres"):
        ratio = _inverse(rounds.ratio("sql", f"balanced.{backend}"))
        yield Figure(f"S3.{backend}", f"by a statement / `balanced` on {backend}, seconds", ratio, "x")


def balanced_by_sql(samples: sa.Subquery) -> sa.Select[Any]:
    """Half of the samples, as many of each class as there are, by hashes of Postgres."""
    c = samples.c
    order = (sa.func.hashint8extended(c.key, 7), c.key)
    rank = sa.func.row_number().over(partition_by=c.label, order_by=order).label("rank")
    counted = sa.select(c.key, rank, sa.func.count().over(partition_by=c.label).label("n")).subquery()
    n_samples = sa.select(sa.func.count()).select_from(samples).scalar_subquery()
    quota = sa.func.ceil(sa.cast(n_samples, sa.Double) / (2 * _N_CLASSES))
    return sa.select(counted.c.key, sa.func.least(1.0, quota / counted.c.n).label("chance")).where(counted.c.rank <= quota)


def _by_statement(view: DatasetView, work: Path, n: int) -> Contender:
    path = work / "training_set.arrow"
    origin = Origin("benchmark", "selection.strategy.statement", f"{__name__}:balanced_by_sql")
    strategy = SQLStrategySpec(kind="sql", statement=origin.path, size=n // 2, timeout="1h")
    spec = SelectionSpec(window="all", strategy=strategy, backend="postgres")

    def run() -> Run:
        path.unlink(missing_ok=True)
        start = time.perf_counter()
        pool = WindowColumns(view, _ALL, "postgres").repeatable()
        chosen = sql_selection(spec, strategy, view, pool, seed=0, trigger=0, origin=origin)
        written = write_training_set(path, chosen)
        # Classes differ in size by chance, so a few samples may be missing.
        if not 0.95 * n / 2 <= written.n_samples <= n // 2:
            raise RuntimeError(f"{written.n_samples} samples were selected of {n}")
        return Run(n / 1e6, time.perf_counter() - start)

    return run


def _contender(view: DatasetView, strategy: dict[str, Any], backend: str, work: Path, n: int) -> Contender:
    path = work / "training_set.arrow"

    def run() -> Run:
        path.unlink(missing_ok=True)
        start = time.perf_counter()
        written = write_training_set(path, _selection(view, strategy, backend))
        wanted = n if strategy["kind"] == "all" else n // 2
        if written.n_samples != wanted:
            raise RuntimeError(f"{written.n_samples} samples were selected instead of {wanted}")
        return Run(n / 1e6, time.perf_counter() - start)

    return run


def _selection(view: DatasetView, strategy: dict[str, Any], backend: str) -> Selection:
    spec = SelectionSpec.model_validate({"window": "all", "strategy": strategy, "backend": backend})
    return Selection(spec, WindowColumns(view, _ALL, backend), seed=0, trigger=0)


def _peak(view: DatasetView, work: Path) -> int:
    """The most that Python and NumPy had allocated at a time."""
    tracemalloc.start()
    try:
        write_training_set(work / "training_set.arrow", _selection(view, _STRATEGIES["uniform"], "arrow"))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _inverse(ratio: Spread) -> Spread:
    """Of rates: seconds."""
    return Spread(1 / ratio.value, 1 / ratio.max, 1 / ratio.min)


def _view(database: Database, n: int, *, late: bool = False) -> DatasetView:
    """A dataset of ingested batches with indexes and rows, soon after it was ingested; late labels are all known."""
    name = "late" if late else "chosen"
    label = {"from": {"source": "column", "column": "label"}, "arrives": "later" if late else "with_sample"}
    spec, moment, size = labelled_rows(name, label=label), datetime(2024, 1, 1, tzinfo=UTC), n // _BATCHES
    with transaction(database.engine) as conn:
        row = ensure_dataset(conn, spec)
        batches = register(conn, row.id, [Announcement(str(i), {"paths": [str(i)]}) for i in range(_BATCHES)])
    for batch in batches:
        keys, labels = keys_of(batch.ordinal, np.arange(size)), np.random.default_rng(batch.ordinal).integers(0, _N_CLASSES, size)
        times = np.full(size, np.datetime64("2024-01-01", "us"))
        path, checksum = _index(database.home, batch, times, None if late else labels)
        with transaction(database.engine) as conn:
            copy_samples(conn, row.id, SampleRows(keys, times, None if late else labels))
            facts = BatchFacts(size, size, moment, moment, moment, {}, path, checksum, "")
            mark_ingested(conn, batch, facts, [FileFacts(batch.partition_key, 0, None, "")])
            if late and batch.arrival is not None:
                rows = LabelRows(keys, labels, times, np.arange(size, dtype=np.uint64))
                record_label_file(conn, row.id, batch.arrival, write_label_file(database.home, name, batch.partition_key, rows))
    database.execute(f"vacuum analyze {partition_of(row.id)}")
    with transaction(database.engine) as conn:
        return DatasetView(database.engine, database.home, row, spec, "", visible_batches(conn, row.id))


def _index(home: Path, batch: BatchRow, times: Any, labels: Any) -> tuple[str, str]:
    name = f"chosen_{batch.id}.arrow"
    one = np.zeros(1, np.int64)
    extents = Extents(start=one, file=one.astype(np.int32), offset=one, stride=one + 1, length=one + 1)
    with atomic_file(home / name) as file:
        write_index_to(file, times, labels, None, extents, [IndexedFile("rows.bin", len(times), "0" * 32)])
    return name, checksum_of(home / name)
