"""Plan of a bulk import: all new units are read for their times, and their samples are cut into batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fastpath.array_types import TimeArray
from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.catalog.registration.batches import Announcement
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.members import Members, resolve_members
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.discovery import announce
from modyn_dagster.ingestion.formats.columns import ObservedColumn, resolve_columns
from modyn_dagster.ingestion.formats.times import time_of_file
from modyn_dagster.ingestion.slices import Cut, History, cut_history
from modyn_dagster.ingestion.sources.files import natural_key
from modyn_dagster.ingestion.sources.source import Source
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
    columns, times = units_read.times(dataset)
    slices = cut_history(_history_of(times), cut) if times else []
    unsound = [announce(spec, unit) for unit in sorted(units_read.unsound, key=natural_key)]
    return ImportPlan(columns, slices + unsound)


def times_of_units(
    source: Source, spec: DatasetSpec, dataset: DatasetRow, units: Sequence[str]
) -> tuple[tuple[Column, ...] | None, Mapping[str, FileTimes]]:
    """Columns of the dataset, and times of the samples of each sound unit; None where samples are files, or no unit is sound."""
    read = _ImportUnits(source, spec, units)
    return read.times(dataset)


class _ImportUnits:
    """The units of an import; those with bad data are put aside in ``unsound``."""

    def __init__(self, source: Source, spec: DatasetSpec, units: Sequence[str]) -> None:
        self._source, self._spec = source, spec
        self._reader = BatchReader(source, spec)
        self.unsound: set[str] = set()
        self._owned: set[str] = set()
        self._members = self._sound(units, self._resolve_members)

    def times(self, dataset: DatasetRow) -> tuple[tuple[Column, ...] | None, dict[str, FileTimes]]:
        """Columns of the dataset, None where samples are files or no unit is sound, and times of the samples by unit and file."""
        if self._spec.format.kind == "files":
            return None, self.file_times()
        columns = dataset.columns if dataset.columns is not None else self.resolve()
        times = self.row_times(replace(dataset, columns=columns))
        return columns if times else None, times

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
