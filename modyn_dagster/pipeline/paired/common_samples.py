"""Samples that two models can be compared on: new to both, predicted by both, with a label, each once and in stream order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.evaluation.metrics.evaluation_samples import Flags, Outputs, Truth
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import KeyArray, ordinal_of
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.paired.named_models import NamedModel
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet, Times
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import PredictionFile, StoredPredictions, read_stored
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from modyn_dagster.spec.base import seconds_of, timedelta_of
from modyn_dagster.spec.tasks.task import truth_columns

_SOURCE: Final = "model compare"


@dataclass(frozen=True, slots=True)
class CommonSamples:
    """Predictions of two models for the same labelled samples, in key order.

    Attributes:
        keys: ``uint64[n]``, all newer than what either model has seen.
        times: ``datetime64[us][n]``.
        truth: classes ``int64[n]`` from 0 on, or targets ``float64[n]``.
        candidate, incumbent: outputs ``float32[n, k]``.
        unlabelled: samples left out because they have no label yet.
        immature: samples left out because they are younger than ``maturity``.
        note: a sentence about samples that one of the two has not predicted; empty where there are none.
    """

    keys: KeyArray
    times: Times
    truth: Truth
    candidate: Outputs
    incumbent: Outputs
    unlabelled: int
    immature: int
    note: str

    def __len__(self) -> int:
        return len(self.keys)


def common_samples(candidate: NamedModel, incumbent: NamedModel, *, window: str | None = None) -> CommonSamples:
    """Read the samples that two models can be compared on.

    These arrived after the triggers of both, are no calibration samples, are present, and have a label as of now. Where
    labels arrive later and the evaluation of either pipeline has a ``maturity``, they have the longer one as their age.

    Args:
        candidate, incumbent: two models of one dataset and one task.
        window: a duration; only samples whose time lies within it before the newest time of the stream count.

    Raises:
        ConfigError: the models are the same, or are not to be compared.
        RunError: there is no such sample, with the reason.
        CorruptFile: a file of predictions is damaged.
    """
    _check_pair(candidate, incumbent)
    data = evaluation_set(candidate.context)
    others = evaluation_set(incumbent.context)
    _check_data(candidate, data, others)
    after = max(candidate.newest_seen, incumbent.newest_seen)
    ours, our_batches = _predictions(candidate, data, after)
    theirs, their_batches = _predictions(incumbent, others, after)
    note = _missing(data, after, [(candidate, our_batches), (incumbent, their_batches)])
    if ours is None or theirs is None:
        raise RunError(note or _nothing_new(candidate, incumbent))
    keys, own, other = np.intersect1d(ours.keys, theirs.keys, assume_unique=True, return_indices=True)
    wanted = _in_window(data, ours.times[own], window) & (data.view.sides(keys) != CALIBRATE)
    mature = _are_mature(candidate, incumbent, data, keys)
    labelled = is_labelled(ours.truth[own])
    kept = wanted & mature & labelled
    if not kept.any():
        raise RunError(_why_none(candidate, incumbent, wanted, mature, note, window))
    own, other = own[kept], other[kept]
    return CommonSamples(
        keys[kept],
        ours.times[own],
        ours.truth[own],
        ours.outputs[own],
        theirs.outputs[other],
        int(np.count_nonzero(wanted & mature & ~labelled)),
        int(np.count_nonzero(wanted & ~mature)),
        note,
    )


def _check_pair(candidate: NamedModel, incumbent: NamedModel) -> None:
    if candidate.model.hash == incumbent.model.hash:
        rule = f"is the same model as the incumbent ({candidate.title} and {incumbent.title}); name two"
        raise ConfigError(_SOURCE, "candidate", candidate.model.hash[:12], rule)
    one, other = candidate.context, incumbent.context
    if one.view.row.id != other.view.row.id:
        rule = f"models of one dataset are compared; the incumbent's is {other.view.row.name}"
        raise ConfigError(_SOURCE, "candidate", one.view.row.name, rule)
    if one.spec.training.task != other.spec.training.task:
        rule = f"has another training.task than {incumbent.title}; compare models of one task"
        raise ConfigError(_SOURCE, "candidate", candidate.title, rule)
    if truth_columns(one.spec.training.task):
        rule = (
            "has a truth of several columns or of groups, and tests compare losses of one; compare the scores of the evaluation"
        )
        raise ConfigError(_SOURCE, "candidate", candidate.title, rule)
    if one.spec.training.label_transform != other.spec.training.label_transform:
        rule = f"learns other labels than {incumbent.title}: their training.label_transform differs; compare models of one task"
        raise ConfigError(_SOURCE, "candidate", candidate.title, rule)


def _check_data(candidate: NamedModel, data: EvaluationSet, others: EvaluationSet) -> None:
    if data.source != others.source:
        rule = f"is evaluated on {data.source}, the incumbent on {others.source}; give both pipelines the same evaluation.data"
        raise ConfigError(_SOURCE, "candidate", candidate.title, rule)
    if data.view.row.id != candidate.context.view.row.id:
        rule = "is another dataset, whose samples come neither before nor after the triggers; use the dataset of the pipelines"
        raise ConfigError(f"pipeline {candidate.context.run.pipeline}", "evaluation.data", data.source, rule)


def _predictions(named: NamedModel, data: EvaluationSet, after: int) -> tuple[Predictions | None, set[int]]:
    """Predictions of a model for evaluation samples after a key, None without any, and the ordinals of the predicted batches."""
    context = named.context
    with context.platform.transaction() as conn:
        rows = list_predictions(conn, context.trigger.id, predictor_id(named.model.hash, context.spec.training))
    files = [
        PredictionFile(row.path, row.checksum, row.first_key, row.last_key)
        for row in rows
        # A file that was written since the view was read may reach beyond it.
        if row.removed_at is None and after < row.last_key <= data.view.last_key
    ]
    batches = data.view.columns.ordinals
    spans = [(ordinal_of(file.first_key), ordinal_of(file.last_key)) for file in files]
    covered = {int(ordinal) for first, last in spans for ordinal in batches[(batches >= first) & (batches <= last)]}
    parts = [read_stored(context.platform.home, data, file) for file in files]
    if not parts:
        return None, covered
    predictions = data.evaluated(StoredPredictions.of(parts).predictions)
    newer = predictions.take(np.flatnonzero(predictions.keys > np.uint64(max(after, 0))))
    return (newer if len(newer) else None), covered


def _missing(data: EvaluationSet, after: int, pair: Sequence[tuple[NamedModel, set[int]]]) -> str:
    """Sentence about evaluation samples after a key that a model of a pair has not predicted; empty where there are none."""
    batches = [batch for batch in data.view.batches if batch.ordinal >= ordinal_of(after)]
    counts = {batch.ordinal: len(data.positions(batch)) for batch in batches}
    sentences = []
    for named, covered in pair:
        n_missing = sum(n for ordinal, n in counts.items() if ordinal not in covered)
        if n_missing == 0:
            continue
        run = named.context.run
        remedy = f"`modyn-dagster pipeline matrix {run.pipeline} --run {run.id}` predicts them"
        if named.model.removed_at is not None:
            remedy = "its weights were removed, so it predicts no more"
        sentences.append(f"{named.title} has no predictions for {n_missing:,} evaluation samples after both triggers: {remedy}")
    return "; ".join(sentences)


def _in_window(data: EvaluationSet, times: Times, window: str | None) -> Flags:
    reached = data.view.time_reached
    if window is None or reached is None:
        return np.ones(len(times), dtype=np.bool_)
    return np.asarray(times > reached - timedelta_of(window))


def _are_mature(candidate: NamedModel, incumbent: NamedModel, data: EvaluationSet, keys: KeyArray) -> Flags:
    ages = [named.context.spec.evaluation.maturity for named in (candidate, incumbent)]
    longest = max((age for age in ages if age is not None), key=seconds_of, default=None)
    position = data.newest_label_position
    if longest is None or position is None:
        return np.ones(len(keys), dtype=np.bool_)
    return data.view.labelled_as_of(position).are_older(keys, timedelta_of(longest))


def _nothing_new(candidate: NamedModel, incumbent: NamedModel) -> str:
    return f"no evaluation sample has arrived after the triggers of {candidate.title} and {incumbent.title} yet; wait for some"


def _why_none(
    candidate: NamedModel,
    incumbent: NamedModel,
    wanted: Flags,
    mature: Flags,
    note: str,
    window: str | None,
) -> str:
    if len(wanted) == 0:
        return note or _nothing_new(candidate, incumbent)
    if not wanted.any():
        return f"no sample that both models have predicted lies within the window {window}; give a longer one"
    n, n_mature = int(np.count_nonzero(wanted)), int(np.count_nonzero(wanted & mature))
    if n_mature == 0:
        return (
            f"all {n:,} samples that both have predicted after their triggers are younger than evaluation.maturity; wait for some"
        )
    return f"none of the {n_mature:,} samples that both have predicted after their triggers has a label yet; wait for some"
