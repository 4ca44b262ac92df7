"""Bulk import: everything in a dataset's root is cut into batches, registered at once and ingested in order."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import Column, DatasetRow, lock_dataset, set_columns
from modyn_dagster.catalog.registration import Announcement, ensure_dataset, known_paths, register
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.members import Members, resolve_members
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.discovery import announce, find_units
from modyn_dagster.ingestion.formats.columns import Found, settle_columns
from modyn_dagster.ingestion.formats.times import TimeArray, time_of_file
from modyn_dagster.ingestion.ingest import IngestResult, ingest_with
from modyn_dagster.ingestion.slices import Cut, Whole, cut_history
from modyn_dagster.ingestion.sources.files import natural_key
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec

T = TypeVar("T")
#: Times of the samples of each file, by path.
FileTimes = dict[str, TimeArray]


class ImportPlan:
    """What a bulk import will register.

    Attributes:
        columns: of the dataset, settled by all sound files together where no batch has done it before; None if none is sound,
            or where samples are files.
        announcements: slices of the sound units (files, directories, manifests), then each unit that is not sound, to fail
            by itself.
    """

    def __init__(self, source: Source, spec: DatasetSpec, dataset: DatasetRow, units: Sequence[str], cut: Cut) -> None:
        self._source, self._spec = source, spec
        self._reader = BatchReader(source, spec)
        self._bad: set[str] = set()
        self._taken: set[str] = set()
        self._members = self._sound(units, self._resolve)
        if spec.format.kind == "files":
            times, columns = self._sound(self._members, self._file_times), None
        else:
            columns = dataset.columns if dataset.columns is not None else self._settle()
            self._dataset = replace(dataset, columns=columns)
            times = self._sound(self._members, self._row_times)
        slices = cut_history(_whole(times), cut) if times else []
        self.columns = columns if times else None
        self.announcements: list[Announcement] = slices + [announce(spec, unit) for unit in sorted(self._bad, key=natural_key)]

    def _sound(self, units: Iterable[str], work: Callable[[str], T]) -> dict[str, T]:
        """Results by unit; a unit with bad data is put aside."""
        results: dict[str, T] = {}
        for unit in units:
            if unit in self._bad:
                continue
            try:
                results[unit] = work(unit)
            except DataError:
                self._bad.add(unit)
        return results

    def _resolve(self, unit: str) -> Members:
        members = resolve_members(self._source, self._spec, [unit])
        for path in members.paths:
            if path in self._taken:
                raise DataError(path, "belongs to an earlier directory or manifest")
        self._taken.update(members.paths)
        return members

    def _settle(self) -> tuple[Column, ...]:
        by_unit = self._sound(self._members, self._find_columns)
        while by_unit:
            unit_of = {path: unit for unit, found in by_unit.items() for path, _ in found}
            try:
                return settle_columns(self._spec, [file for found in by_unit.values() for file in found])
            except DataError as error:
                self._bad.add(unit_of[error.file])
                del by_unit[unit_of[error.file]]
        return ()

    def _find_columns(self, unit: str) -> list[tuple[str, list[Found]]]:
        return [(path, self._reader.open(path)[1].find_columns()) for path in self._members[unit].paths]

    def _row_times(self, unit: str) -> FileTimes:
        pieces = self._reader.read(self._dataset, self._members[unit]).pieces
        return {piece.paths[0]: piece.times for piece in pieces}

    def _file_times(self, unit: str) -> FileTimes:
        members = self._members[unit]
        assert self._spec.time.source != "column"  # noqa: S101 - refused by the spec; narrows the type
        times = {path: time_of_file(self._spec.time, path, self._source.state(path), members.times) for path in members.paths}
        return {path: np.array([time]) for path, time in times.items()}


def _whole(times: dict[str, FileTimes]) -> Whole:
    unit_of = {path: unit for unit, files in times.items() for path in files}
    by_path = {path: files[path] for files in times.values() for path in files}
    paths = sorted(by_path, key=natural_key)
    sizes = [len(by_path[path]) for path in paths]
    return Whole(
        paths=paths,
        unit_of=[unit_of[path] for path in paths],
        path_of=np.repeat(np.arange(len(paths)), sizes),
        rows=np.concatenate([np.arange(size) for size in sizes]),
        times=np.concatenate([by_path[path] for path in paths]),
    )


#: Called with the number of batches closed so far, their total, and the result or error of the last one.
ImportProgress = Callable[[int, int, "IngestResult | DataError | None"], None]


@dataclass
class ImportSummary:
    """What an import did.

    Attributes:
        ingested: results of the batches ingested now, in ordinal order.
        failed: ``(partition key, error)`` of the batches closed as failed now.
    """

    ingested: list[IngestResult] = field(default_factory=list)
    failed: list[tuple[str, DataError]] = field(default_factory=list)

    @property
    def n_samples(self) -> int:
        """Samples ingested now."""
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
    """Ingest all files that no batch has yet. Started again after a kill it goes on with the batches that are open.

    Args:
        engine: of the ``modyn`` database.
        home: folder for indexes and shards.
        spec: of the dataset.
        root: its files.
        by: ``file`` (or directory, or manifest, as the spec's ``batches`` say), ``time:30d``, or ``count:5000``.
        progress: called after each batch.

    Raises:
        ConfigError: ``by`` has another form.
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
        plan = ImportPlan(source, spec, dataset, new, cut)
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
    """Ingest open batches in ordinal order; one that fails is closed, and the others go on."""
    shared = Counter(path for batch in batches for path in batch.source.get("files", ()))
    reader = BatchReader(source, spec, uses=shared)
    summary = ImportSummary()
    for done, batch in enumerate(batches, 1):
        outcome: IngestResult | DataError
        try:
            outcome = ingest_with(engine, home, spec, source, batch.partition_key, reader)
            summary.ingested.append(outcome)
        except DataError as error:
            outcome = error
            summary.failed.append((batch.partition_key, error))
        if progress is not None:
            progress(done, len(batches), outcome)
    return summary
