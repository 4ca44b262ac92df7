"""Scope of a verification: datasets, pipelines and kinds of files."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from modyn_dagster.catalog.datasets import DatasetRow, list_datasets
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.errors import UnknownName
from modyn_dagster.pipeline.integrity.finding import KINDS, Kind
from modyn_dagster.pipeline.platform import Platform


@dataclass(frozen=True, slots=True)
class Scope:
    """Part of a home that is verified.

    Attributes:
        datasets: rows of the datasets whose files are checked.
        runs: runs whose files and models are checked, in order.
        kinds: kinds of files.
        is_whole: whether no dataset and no pipeline was named; only then files without a row are looked for.
    """

    datasets: tuple[DatasetRow, ...]
    runs: tuple[RunRow, ...]
    kinds: Collection[Kind]
    is_whole: bool

    @classmethod
    def of(
        cls, platform: Platform, *, dataset: str | None = None, pipeline: str | None = None, kinds: Collection[Kind] = ()
    ) -> Self:
        """Choose by name. One name alone chooses its own files, none chooses everything.

        Raises:
            UnknownName: the catalog has no such dataset, or no run of such a pipeline.
        """
        with platform.transaction() as conn:
            datasets, runs = list_datasets(conn), list_runs(conn)
        is_whole = dataset is None and pipeline is None
        if dataset is not None and dataset not in [row.name for row in datasets]:
            raise UnknownName("dataset", dataset, [row.name for row in datasets])
        if pipeline is not None and pipeline not in [run.pipeline for run in runs]:
            raise UnknownName("pipeline with runs", pipeline, sorted({run.pipeline for run in runs}))
        return cls(
            tuple(row for row in datasets if is_whole or row.name == dataset),
            tuple(sorted((run for run in runs if is_whole or run.pipeline == pipeline), key=lambda run: run.id)),
            kinds or KINDS,
            is_whole,
        )
