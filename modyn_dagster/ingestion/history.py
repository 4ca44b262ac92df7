"""Bulk import: all new files of a dataset are cut into batches, registered at once and ingested in order."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import sqlalchemy as sa

from fastpath.array_types import TimeArray
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import Column, DatasetRow, lock_dataset, set_columns
from modyn_dagster.catalog.registration import Announcement, ensure_dataset, known_paths, register
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.members import Members, resolve_members
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.discovery import announce, find_units
from modyn_dagster.ingestion.formats.columns import ObservedColumn, resolve_columns
from modyn_dagster.ingestion.formats.times import time_of_file
from modyn_dagster.ingestion.ingest import IngestResult, ingest_with
from modyn_dagster.ingestion.slices import Cut, History, cut_history
from modyn_dagster.ingestion.small_batches import ingest_together, leading_group
from modyn_dagster.ingestion.sources.files import natural_key
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec

T = TypeVar("T")
#: Sample times of each file, by path.
FileTimes = dict[str, TimeArray]


@dataclass(frozen=True)
class ImportPlan:
    """Batches that a bulk import will register.

    Attributes:
        columns: of the dataset, resolved over all sound files unless an earlier batch has done it; None if no file is sound, or
            where samples are files.
        announcements: slices of the sound units (files, directories, manifests), then each unsound unit, which fails alone.
    """

    columns: tuple[Column, ...] | None
    announcements: list[Announcement]


def plan_import(source: Source, spec: DatasetSpec, dataset: DatasetRow, units: Sequence[str], cut: Cut) -> ImportPlan:
    """Read the times of all units and cut their samples into batches.

    Args:
        source: of the dataset's files.
        spec: of the dataset.
        dataset: its row.
        units: new files, directories or manifests.
        cut: by time or by count.
    """
    units_read = _ImportUnits(source, spec, units)
    columns = None
    if spec.format.kind == "files":
        times = units_read.file_times()
    else:
        columns = dataset.columns if dataset.columns is not None else units_read.resolve()
        times = units_read.row_times(replace(dataset, columns=columns))
    slices = cut_history(_history_of(times), cut) if times else []
    unsound = [announce(spec, unit) for unit in sorted(units_read.unsound, key=natural_key)]
    return ImportPlan(columns if times else None, slices + unsound)


class _ImportUnits:
    """The units of an import; those with bad data are put aside in ``unsound``."""

    def __init__(self, source: Source, spec: DatasetSpec, units: Sequence[str]) -> None:
        self._source, self._spec = source, spec
        self._reader = BatchReader(source, spec)
        self.unsound: set[str] = set()
        self._owned: set[str] = set()
        self._members = self._sound(units, self._resolve_members)

    def resolve(self) -> tuple[Column, ...]:
        """Columns of the dataset by all sound units."""
        by_unit = self._sound(self._members, self._observe)
        while by_unit:
            unit_of = {path: unit for unit, files in by_unit.items() for path, _ in files}
            try:
                return resolve_columns(self._spec, [file for files in by_unit.values() for file in files])
            except DataError as error:
                self.unsound.add(unit_of[error.file])
                del by_unit[unit_of[error.file]]
        return ()

    def row_times(self, dataset: DatasetRow) -> dict[str, FileTimes]:
        """Times of the rows of each file, by unit."""

        def read(unit: str) -> FileTimes:
            return {piece.paths[0]: piece.times for piece in self._reader.read(dataset, self._members[unit]).pieces}

        return self._sound(self._members, read)

    def file_times(self) -> dict[str, FileTimes]:
        """Times of files that are samples, by unit."""
        spec = self._spec.time
        assert spec.source != "column"  # noqa: S101 - refused by the spec; narrows the type

        def read(unit: str) -> FileTimes:
            members = self._members[unit]
            states = {path: self._source.state(path) for path in members.paths}
            return {path: np.array([time_of_file(spec, path, state, members.times)]) for path, state in states.items()}

        return self._sound(self._members, read)

    def _sound(self, units: Iterable[str], work: Callable[[str], T]) -> dict[str, T]:
        """Results by unit; a unit with bad data is put aside."""
        results: dict[str, T] = {}
        for unit in units:
            if unit in self.unsound:
                continue
            try:
                with contained(unit):
                    results[unit] = work(unit)
            except DataError:
                self.unsound.add(unit)
        return results

    def _resolve_members(self, unit: str) -> Members:
        members = resolve_members(self._source, self._spec, [unit])
        for path in members.paths:
            if path in self._owned:
                raise DataError(path, "belongs to an earlier directory or manifest")
        self._owned.update(members.paths)
        return members

    def _observe(self, unit: str) -> list[tuple[str, list[ObservedColumn]]]:
        return [(path, self._reader.open(path)[1].find_columns()) for path in self._members[unit].paths]


def _history_of(times: dict[str, FileTimes]) -> History:
    unit_of = {path: unit for unit, files in times.items() for path in files}
    by_path = {path: files[path] for files in times.values() for path in files}
    paths = sorted(by_path, key=natural_key)
    sizes = [len(by_path[path]) for path in paths]
    return History(
        paths=paths,
        unit_of=[unit_of[path] for path in paths],
        path_of=np.repeat(np.arange(len(paths)), sizes),
        rows=np.concatenate([np.arange(size) for size in sizes]),
        times=np.concatenate([by_path[path] for path in paths]),
    )


#: Called with the number of batches closed so far, the total, and the result or error of the last batch.
ImportProgress = Callable[[int, int, "IngestResult | DataError | None"], None]


@dataclass
class ImportSummary:
    """Result of an import.

    Attributes:
        ingested: results of the ingested batches, in ordinal order.
        failed: ``(partition key, error)`` of the batches closed as failed.
    """

    ingested: list[IngestResult] = field(default_factory=list)
    failed: list[tuple[str, DataError]] = field(default_factory=list)

    @property
    def n_samples(self) -> int:
        """Number of ingested samples."""
        return sum(result.n_samples for result in self.ingested)


def import_history(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    root: str,
    *,
    by: str = "file",
    progress: ImportProgress | None = None,
) -> ImportSummary:
    """Ingest all files that belong to no batch. After a kill, the next call continues with the open batches.

    Args:
        engine: of the ``modyn`` database.
        home: folder for indexes and shards.
        spec: of the dataset.
        root: folder or URL of its files.
        by: ``file`` (or directory, or manifest, by the spec's ``batches``), ``time:30d``, or ``count:5000``.
        progress: called after each batch.

    Raises:
        ConfigError: ``by`` is not of this form.
        OSError, DatabaseDown, WriteFailed: may pass; start again.
    """
    cut = Cut.parse(by)
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        interrupted = list_batches(conn, dataset.id, "open")
        known = known_paths(conn, dataset.id)
    new = [unit for unit in find_units(source, spec) if unit not in known]
    if cut.by == "file":
        columns, announcements = dataset.columns, [announce(spec, unit) for unit in new]
    else:
        plan = plan_import(source, spec, dataset, new, cut)
        columns, announcements = plan.columns, plan.announcements
    with transaction(engine) as conn:
        if columns is not None and lock_dataset(conn, dataset.id).columns is None:
            set_columns(conn, dataset.id, columns)
        registered = register(conn, dataset.id, announcements)
    return ingest_open(engine, home, spec, source, [*interrupted, *registered], progress)


def ingest_open(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    source: Source,
    batches: Sequence[BatchRow],
    progress: ImportProgress | None = None,
) -> ImportSummary:
    """Ingest open batches in ordinal order, small ones together. A batch that fails is closed, and the others go on."""
    shared = Counter(path for batch in batches for path in batch.source.get("files", ()))
    reader = BatchReader(source, spec, uses=shared)
    summary = ImportSummary()
    rest = batches
    while rest:
        group = leading_group(source, spec, rest)
        together = ingest_together(engine, home, spec, source, reader, group) if len(group) > 1 else None
        # A bad batch goes alone, and so do all where another process interferes.
        alone = group if together is None else group[len(together) :][:1]
        outcomes = chain(together or (), (_ingest_alone(engine, home, spec, source, batch, reader) for batch in alone))
        for batch, outcome in zip(rest, outcomes, strict=False):
            if isinstance(outcome, DataError):
                summary.failed.append((batch.partition_key, outcome))
            else:
                summary.ingested.append(outcome)
            if progress is not None:
                progress(len(summary.ingested) + len(summary.failed), len(batches), outcome)
        rest = rest[len(together or ()) + len(alone) :]
    return summary


def _ingest_alone(
    engine: sa.Engine, home: Path, spec: DatasetSpec, source: Source, batch: BatchRow, reader: BatchReader
) -> IngestResult | DataError:
    try:
        return ingest_with(engine, home, spec, source, batch.partition_key, reader)
    except DataError as error:
        return error
