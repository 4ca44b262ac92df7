"""Lineage of samples: the training sets that hold them, and the models derived from those.

A model has seen a sample that is in its training set, or that its early stopping watched; one that began with the weights of
such a model, or with a file of them, has, too, and so has one whose replay memory was chosen by such a model. Holdout models of
downsampling are trained on a part of the training set, and need no row of their own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from modyn_dagster.catalog.results.predictions import PredictionFileRow, predictions_holding
from modyn_dagster.catalog.results.training_sets import TrainingSetUse, training_sets_of
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.data.split import CALIBRATE, side_of
from modyn_dagster.errors import StorageError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.live_intervals import LiveTime, read_live_times
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.selection import strategy_at
from modyn_dagster.selection.membership import held_by
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import CHOSEN_BY_MODELS

Source = Literal["training_set", "calibration", "previous_model", "initial_weights", "memory", "decisions"]

_NO_RUNS: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SampleUse:
    """Use of some keys by a training set, and by the model trained on it.

    Attributes:
        used_by: the training set.
        n_keys: number of the keys in it; None where its file is removed or cannot be read.
        why_unknown: reason of an unknown number, otherwise empty.
        sources: ways in which the model has, or may have, seen the keys; ``decisions`` where only its trigger may depend on them.
    """

    used_by: TrainingSetUse
    n_keys: int | None
    why_unknown: str
    sources: tuple[Source, ...]

    @property
    def inherited(self) -> bool:
        """True for a model that has seen the keys through another model."""
        return not {"previous_model", "initial_weights", "memory"}.isdisjoint(self.sources)


@dataclass(frozen=True, slots=True)
class SampleLineage:
    """Everything that some keys went into.

    Attributes:
        uses: training sets, and the models trained on them.
        live: live times of those models, by the partition key of the trigger; models of replays have none.
        predictions: prediction files that cover the keys, each with the partition key of its trigger.
    """

    uses: list[SampleUse]
    live: Mapping[str, LiveTime]
    predictions: list[tuple[str, PredictionFileRow]]


def lineage_of(platform: Platform, dataset: str, dataset_id: int, keys: KeyArray) -> SampleLineage:
    """Follow keys (``uint64[n]``) to training sets, models, live times and predictions.

    A training set is searched, not read: its keys are in order (``held_by``). Prediction files are matched by the range of
    their batches; samples on other sides of the split are in the range, and not in the file.
    """
    keys = np.unique(keys)
    uses = usages_of(platform, dataset_id, keys)
    named = {use.used_by.partition_key for use in uses if use.used_by.model_hash is not None}
    with platform.transaction() as conn:
        live = {trigger: time for trigger, time in read_live_times(conn).items() if trigger in named}
        predictions = predictions_holding(conn, dataset, keys) if len(keys) else []
    return SampleLineage(uses, live, predictions)


def usages_of(
    platform: Platform, dataset_id: int, keys: KeyArray, models: Collection[str] = (), runs: Mapping[int, int] = _NO_RUNS
) -> list[SampleUse]:
    """List the training sets that may hold some of these keys (``uint64[n]``), and those of models derived from theirs.

    Only training sets whose window reaches one of the keys are opened. ``models`` that are withdrawn already count as
    having seen the keys; ``runs`` are the ordinals of their first triggers, by id of the run.
    """
    keys = np.unique(keys)
    with platform.transaction() as conn:
        rows = training_sets_of(conn, dataset_id)
        specs = {run_id: platform.spec_of(get_run(conn, run_id)) for run_id in sorted({row.run_id for row in rows})}
    uses, seen, touched = [], set(models), dict(runs)
    for row in rows:
        spec = specs[row.run_id]
        inside = _inside(row, keys) if row.dataset_id == dataset_id else keys[:0]
        n_keys, why_unknown = _count(platform, row, inside)
        if n_keys is None and row.model_hash is None and row.state == "skipped":
            # Nothing was trained on it, or its model was withdrawn, and the file is gone.
            continue
        sources: list[Source] = [] if n_keys == 0 else ["training_set"]
        if _is_calibrated(platform, spec, row, inside):
            sources.append("calibration")
        if row.previous_hash in seen:
            sources.append("previous_model")
        if row.initial_hash in seen:
            sources.append("initial_weights")
        is_later = touched.get(row.run_id, row.ordinal) < row.ordinal
        if is_later and isinstance(strategy_at(spec.selection, row.ordinal), CHOSEN_BY_MODELS):
            sources.append("memory")
        if not sources:
            continue
        uses.append(SampleUse(row, n_keys, why_unknown, tuple(sources)))
        if row.model_hash is not None:
            seen.add(row.model_hash)
            touched.setdefault(row.run_id, row.ordinal)
    return uses


def _inside(row: TrainingSetUse, keys: KeyArray) -> KeyArray:
    first, stop = np.searchsorted(keys, np.array([row.after + 1, row.until + 1], dtype=np.uint64))
    return keys[first:stop]


def _count(platform: Platform, row: TrainingSetUse, inside: KeyArray) -> tuple[int | None, str]:
    if len(inside) == 0 or row.n_samples == 0:
        return 0, ""
    path = platform.home / row.path
    if files_at(path).size(path) is None:
        return None, "file removed by retention"
    try:
        return int(np.count_nonzero(held_by(path, row.checksum, inside))), ""
    except StorageError as error:
        return None, str(error)


def _is_calibrated(platform: Platform, spec: PipelineSpec, row: TrainingSetUse, inside: KeyArray) -> bool:
    """Test whether early stopping watched one of the keys of the window."""
    if spec.training.early_stopping is None or row.model_hash is None or len(inside) == 0:
        return False
    return bool((side_of(inside, platform.dataset(spec.dataset).split) == CALIBRATE).any())
