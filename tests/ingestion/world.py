"""A dataset on disk and in Postgres, for tests of ingestion."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow, sample
from modyn_dagster.catalog.registration.batches import register
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.samples import iter_keys
from modyn_dagster.data.reader import SampleReader, open_reader
from modyn_dagster.ingestion.discovery import announce, find_units
from modyn_dagster.ingestion.history import ImportSummary, import_history
from modyn_dagster.ingestion.ingest import IngestResult, ingest_batch
from modyn_dagster.ingestion.registration import Registered, register_ready_batches
from modyn_dagster.ingestion.sources.source import open_source
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.dataset import DatasetSpec

LABEL: Mapping[str, Any] = {"from": {"source": "column", "column": "label"}}


def dataset_spec(**fields: Any) -> DatasetSpec:
    """A CSV dataset with the columns time and label, unless fields say otherwise."""
    content: dict[str, Any] = {
        "name": "d",
        "root": "data",
        "format": {"kind": "csv"},
        "time": {"source": "column", "column": "time"},
        "label": LABEL,
    }
    return DatasetSpec.model_validate(content | fields)


@dataclass
class World:
    """A root folder, a home folder and a database."""

    engine: sa.Engine
    home: Path
    root: Path

    def write(self, name: str, content: str | bytes, *, mtime: float | None = None) -> Path:
        """A file below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def run_import(self, spec: DatasetSpec, by: str = "file", root: str | None = None) -> ImportSummary:
        return import_history(self.engine, self.home, spec, root or str(self.root), by=by)

    def register_all(self, spec: DatasetSpec) -> list[BatchRow]:
        """Announce what lies in the root, without ingesting it."""
        units = find_units(open_source(str(self.root), {}), spec)
        with transaction(self.engine) as conn:
            return register(conn, ensure_dataset(conn, spec).id, [announce(spec, unit) for unit in units])

    def ingest(self, spec: DatasetSpec, key: str) -> IngestResult:
        return ingest_batch(self.engine, self.home, spec, str(self.root), key)

    def look(self, spec: DatasetSpec, before: Registered[BatchRow] | None = None, now: float = 2e9) -> Registered[BatchRow]:
        return register_ready_batches(self.engine, spec, str(self.root), before.state if before else None, now)

    def dataset(self, spec: DatasetSpec) -> DatasetRow:
        with transaction(self.engine) as conn:
            return ensure_dataset(conn, spec)

    def batches(self, spec: DatasetSpec) -> list[BatchRow]:
        with transaction(self.engine) as conn:
            return list_batches(conn, ensure_dataset(conn, spec).id)

    def states(self, spec: DatasetSpec) -> dict[str, str]:
        return {batch.partition_key: batch.state for batch in self.batches(spec)}

    def rows(self, spec: DatasetSpec) -> Sequence[tuple[Any, ...]]:
        """Everything in ``sample``: key, time, label, target, attributes."""
        columns = (sample.c.key, sample.c.time, sample.c.label, sample.c.target, sample.c.attributes)
        with transaction(self.engine) as conn:
            found = conn.execute(
                sa.select(*columns).where(sample.c.dataset_id == ensure_dataset(conn, spec).id).order_by(sample.c.key)
            )
            return [tuple(row) for row in found]

    def keys(self, spec: DatasetSpec) -> KeyArray:
        with transaction(self.engine) as conn:
            return np.concatenate(list(iter_keys(conn, ensure_dataset(conn, spec).id, -1, 2**62)))

    def reader(self, spec: DatasetSpec, root: str | None = None) -> SampleReader:
        with transaction(self.engine) as conn:
            return open_reader(conn, ensure_dataset(conn, spec), spec, root or str(self.root), self.home)

    def files(self) -> dict[str, bytes]:
        """Every file of the home folder, by its path."""
        return {str(path.relative_to(self.home)): path.read_bytes() for path in sorted(self.home.rglob("*")) if path.is_file()}
