"""Checks of a project's data before anything is registered: the first rows of its files, against specs and pipelines."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.tasks import non_feature_columns
from modyn_dagster.errors import ConfigError, DataError, ModynError, StorageError, without_secrets
from modyn_dagster.spec.learning.features import HashSpec, ImputeSpec
from modyn_dagster.spec.load import Project
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.reading.complaints import probable
from modyn_dagster.spec.training import TrainingSpec

if TYPE_CHECKING:
    from modyn_dagster.catalog.datasets import Column
    from modyn_dagster.ingestion.preview.dataset import Preview
    from modyn_dagster.spec.dataset import DatasetSpec


def data_errors(project: Project) -> Iterator[ModynError]:
    """Find faults in the first rows of every dataset's files, and features of pipelines that these rows cannot be."""
    for spec in project.datasets.values():
        pipelines = [pipeline for pipeline in project.pipelines.values() if pipeline.dataset == spec.name]
        yield from _dataset_errors(spec, project.root_of(spec.name), pipelines)


def _dataset_errors(spec: "DatasetSpec", root: str, pipelines: list[PipelineSpec]) -> Iterator[ModynError]:
    from modyn_dagster.ingestion.preview.dataset import preview
    from modyn_dagster.ingestion.sources.source import open_source

    place = without_secrets(root)
    try:
        found = preview(open_source(root, spec.storage_options), spec)
    except (StorageError, OSError) as error:
        yield ConfigError(f"dataset {spec.name}", "root", place, f"cannot be read: {without_secrets(str(error))}")
        return
    if not found.n_files and not found.faults:
        settings = ", ".join(f"{field}: {value}" for field, value in spec.batches)
        rule = f"holds no batch as `batches` says ({settings}); add files, or correct `root` or `batches`"
        yield ConfigError(f"dataset {spec.name}", "root", place, rule)
    for fault in found.faults:
        yield DataError(f"{place}/{fault.file}", fault.message, row=fault.row, column=fault.column)
    for pipeline in pipelines:
        yield from _feature_errors(pipeline, spec, found, place)


def _feature_errors(pipeline: PipelineSpec, spec: "DatasetSpec", found: "Preview", place: str) -> Iterator[ModynError]:
    if pipeline.training.parser is not None or not found.columns:
        return
    arrays = {column.name: _no_values(column) for column in found.columns}
    wrong = list(_unusable_features(pipeline, found, arrays, place))
    yield from wrong
    if not wrong:
        # Imported here: it imports torch.
        from modyn_dagster.training.models.layout import Layout

        try:
            layout = Layout.of(pipeline.training, arrays, exclude=non_feature_columns(spec), source=f"pipeline {pipeline.name}")
        except ConfigError as error:
            yield error
        else:
            yield from _full_vocabularies(pipeline, [each.column for each in layout.encodings], arrays, found)


def _unusable_features(
    pipeline: PipelineSpec, found: "Preview", arrays: Mapping[str, npt.NDArray[Any]], place: str
) -> Iterator[ModynError]:
    """Features that are no columns, or columns of text, with the first row that shows it."""
    for field, name in _features(pipeline.training):
        if name not in arrays:
            rule = f"is not a column of the files, which have {', '.join(arrays)}{probable(name, list(arrays))}"
            yield ConfigError(f"pipeline {pipeline.name}", field, name, rule)
        elif arrays[name].dtype.kind not in "biuf" and not _is_encoded(pipeline.training, name):
            first = next((text for head in found.heads if (text := head.first_text(name)) is not None), None)
            if first is None:
                rule = "is not numeric in the files, and a feature is: give it an encoding under `training.encode`, or remove it"
                yield ConfigError(f"pipeline {pipeline.name}", field, name, rule)
            else:
                what = f"{first.message}, but pipeline {pipeline.name} uses the column as a feature"
                remedy = f"correct the file, give the column an encoding under `training.encode`, or remove it from `{field}`"
                yield DataError(f"{place}/{first.file}", f"{what}; {remedy}", row=first.row, column=name)


def _features(training: TrainingSpec) -> Iterator[tuple[str, str]]:
    """Named features, with the fields that name them."""
    if isinstance(training.features, dict):
        for group, content in training.features.items():
            yield from ((f"training.features.{group}.columns", name) for name in content.columns if isinstance(name, str))
    elif training.features != "numeric":
        yield from (("training.features", name) for name in training.features if isinstance(name, str))


def _is_encoded(training: TrainingSpec, name: str) -> bool:
    return any(key == name or fnmatchcase(name, key) for key in training.encode)


def _full_vocabularies(
    pipeline: PipelineSpec, encodings: Collection[str], arrays: Mapping[str, npt.NDArray[Any]], found: "Preview"
) -> Iterator[ConfigError]:
    """Columns that have more values in the first rows of one file than their encoding may have."""
    # Imported here, as it imports torch.
    from modyn_dagster.training.columns.selection import rules_of

    source = f"pipeline {pipeline.name}"
    for name, rule in rules_of(pipeline.training, encodings, arrays, source).items():
        if isinstance(rule, HashSpec | ImputeSpec) or rule.beyond != "refuse":
            continue
        for head in found.heads:
            n = head.n_values(found.columns, name)
            if n > rule.max_values:
                what = f"column {name!r} has {n} values in the first rows of {head.loaded.path}"
                remedy = "raise it, or say `beyond: unknown` or `kind: hash`"
                yield ConfigError(source, f"training.encode.{name}.max_values", rule.max_values, f"{what}: {remedy}")
                break


def _no_values(column: "Column") -> npt.NDArray[Any]:
    """Array of a column's dtype without samples; those of fixed rows are NumPy's, all others our own."""
    with suppress(TypeError):
        dtype = np.dtype({"bool": "?", "timestamp": "M8[us]"}.get(column.dtype, column.dtype))
        return np.empty((0, *dtype.shape), dtype.base)
    return np.empty(0, dtype=np.object_)
