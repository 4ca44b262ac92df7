"""The predictions of a model apart by the values of attributes and of the label."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.predictions import Predictions
from modyn_dagster.keys import ordinals_of, positions_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.judged_on import JudgedOn

#: Name of the subset of all samples.
ALL: Final = ""


def subsets_of(context: TriggerContext, data: JudgedOn, predictions: Predictions) -> Mapping[str, Predictions]:
    """All predictions, and those of each slice the pipeline asks for by ``name=value``; samples without a value are in none."""
    found = {ALL: predictions}
    for name in context.spec.evaluation.slices:
        values = _labels(context, predictions) if name == "label" else _attribute(data, name, predictions)
        present = np.flatnonzero(values != None)  # noqa: E711 - of every element
        texts, groups = np.unique(values[present].astype(str), return_inverse=True)
        for number, text in enumerate(texts.tolist()):
            found[f"{name}={text}"] = predictions.take(present[groups == number])
    return found


def _labels(context: TriggerContext, predictions: Predictions) -> npt.NDArray[np.object_]:
    """Names of the classes, or their numbers where they have none."""
    # What a transform makes of classes has no names.
    plain = context.spec.training.label_transform is None
    names = np.array([*context.view.row.class_names] if plain else [], dtype=object)
    truth = predictions.truth.astype(np.int64)
    values = np.array([str(label) for label in truth.tolist()], dtype=object)
    named = (truth >= 0) & (truth < len(names))
    values[named] = names[truth[named]]
    values[truth < 0] = None
    return values


def _attribute(data: JudgedOn, name: str, predictions: Predictions) -> npt.NDArray[np.object_]:
    values = np.full(len(predictions), None, dtype=object)
    ordinals = ordinals_of(predictions.keys)
    for batch in data.view.batches:
        rows = np.flatnonzero(ordinals == batch.ordinal)
        if len(rows):
            values[rows] = data.view.attribute(name, batch)[positions_of(predictions.keys[rows])]
    return values
