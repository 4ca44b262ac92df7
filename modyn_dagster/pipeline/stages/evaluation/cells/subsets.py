"""Subsets of predictions that are scored apart: slices by an attribute of the dataset, or by label."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of, positions_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet

#: Subset of all samples.
ALL: Final = ""
#: Beginning of the names of slices by label.
BY_LABEL: Final = "label="


def subsets_of(context: TriggerContext, data: EvaluationSet, predictions: Predictions) -> Mapping[str, Predictions]:
    """Split predictions into the slices of the spec, by ``name=value``, beside all of them; skip samples without a value."""
    subsets = {ALL: predictions}
    for name in context.spec.evaluation.slices:
        values = _labels(context, predictions) if name == "label" else _attribute(data, name, predictions)
        present = np.flatnonzero(values != None)  # noqa: E711 - of every element
        texts, groups = np.unique(values[present].astype(str), return_inverse=True)
        for number, text in enumerate(texts.tolist()):
            subsets[f"{name}={text}"] = predictions.take(present[groups == number])
    return subsets


def _labels(context: TriggerContext, predictions: Predictions) -> npt.NDArray[np.object_]:
    """Return the names of the samples' classes, or their numbers where they have no names."""
    # Classes that a label transform makes have no names.
    plain = context.spec.training.label_transform is None
    names = np.array([*context.view.row.class_names] if plain else [], dtype=object)
    truth = predictions.truth.astype(np.int64)
    values = np.array([str(label) for label in truth.tolist()], dtype=object)
    named = (truth >= 0) & (truth < len(names))
    values[named] = names[truth[named]]
    values[truth < 0] = None
    return values


def _attribute(data: EvaluationSet, name: str, predictions: Predictions) -> npt.NDArray[np.object_]:
    values = np.full(len(predictions), None, dtype=object)
    ordinals = ordinals_of(predictions.keys)
    for batch in data.view.batches_at(np.unique(ordinals).tolist()):
        rows = np.flatnonzero(ordinals == batch.ordinal)
        values[rows] = data.view.attribute(name, batch)[positions_of(predictions.keys[rows])]
    return values
