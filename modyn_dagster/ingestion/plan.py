"""Planning a bulk import by time or count: every file is read once to know all times, and checked on the way."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from modyn_dagster.catalog.announcements import Announcement
from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.columns import Found, settle_columns
from modyn_dagster.ingestion.discovery import announce
from modyn_dagster.ingestion.file_times import time_of_file
from modyn_dagster.ingestion.members import Members, resolve_members
from modyn_dagster.ingestion.order import natural_key
from modyn_dagster.ingestion.read_batch import BatchReader
from modyn_dagster.ingestion.slices import Cut, Whole, cut_whole
from modyn_dagster.ingestion.source import Source
from modyn_dagster.ingestion.times import TimeArray
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
        slices = cut_whole(_whole(times), cut) if times else []
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
