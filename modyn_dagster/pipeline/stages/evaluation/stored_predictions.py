"""Prediction files of either form. A compact one has outputs alone: its keys, times and labels are those of the batches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.errors import CorruptFile
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.evaluation.predictions.codes import CodedOutputs, block_sizes, encode
from modyn_dagster.evaluation.predictions.compact_file import CompactFile, form_of, key_digest, read_compact
from modyn_dagster.evaluation.predictions.files import read_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import KeyArray, keys_of, ordinal_of, ordinals_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.spec.evaluation import PredictionForm
from modyn_dagster.spec.tasks.task import truth_columns

_NONE: Final = np.empty(0, dtype=np.uint64)
#: Mark of scores from compact predictions, in the addresses of their cells; another one where codes change.
_CODES: Final = "codes 1"


class PredictionFile(NamedTuple):
    """A prediction file: path relative to the home folder, checksum, and the keys that it reaches from and to."""

    path: str
    checksum: str
    first_key: int
    last_key: int


class StoredPart(NamedTuple):
    """Content of one prediction file.

    Attributes:
        predictions: in key order.
        compact: ordinals of the batches with compact predictions.
        deleted: keys of samples of these that were deleted before, ``uint64``; codes of their neighbours depend on it.
    """

    predictions: Predictions
    compact: Sequence[int] = ()
    deleted: KeyArray = _NONE


@dataclass(frozen=True, slots=True)
class StoredPredictions:
    """Predictions of one model in key order, of all its files, and the content of each batch as these predictions show it."""

    predictions: Predictions
    parts: Sequence[StoredPart]

    @classmethod
    def of(cls, parts: Iterable[StoredPart]) -> Self:
        """Concatenate the files of one model, at least one, in any order."""
        parts = sorted(parts, key=lambda part: int(part.predictions.keys[0]) if len(part.predictions) else 0)
        return cls(Predictions.concat([part.predictions for part in parts]), parts)

    def contents(self, batches: Iterable[BatchRow]) -> Mapping[int, str | None]:
        """Digests of what scores in some batches depend on: of each batch, and of how its predictions are stored."""
        deleted = np.concatenate([_NONE, *(part.deleted for part in self.parts)])
        gaps = dict.fromkeys((ordinal for part in self.parts for ordinal in part.compact), "")
        gaps |= {
            ordinal: key_digest(deleted[ordinals_of(deleted) == ordinal]).hex() for ordinal in set(ordinals_of(deleted).tolist())
        }
        return {
            batch.ordinal: f"{batch.content_checksum} {_CODES} {gaps[batch.ordinal]}"
            if batch.ordinal in gaps
            else batch.content_checksum
            for batch in batches
        }


def form_for(context: TriggerContext, model: ModelRow) -> PredictionForm:
    """Form of a model's new prediction files.

    They are compact where every model predicts every batch, unless the spec asks for exact ones. Other than two classes, classes
    that a label transform makes, and several labels have no compact form.
    """
    spec, label = context.spec, context.view.spec.label
    asked = spec.evaluation.matrix == "full" and spec.evaluation.predictions == "compact"
    binary = label is not None and label.kind == "class" and int(model.architecture["n_outputs"]) == 2
    as_they_are = spec.training.label_transform is None and not truth_columns(spec.training.task)
    return "compact" if asked and binary and as_they_are else "exact"


def compacted(exact: Predictions) -> tuple[CodedOutputs, Predictions]:
    """Encode predictions of whole blocks, and return them as their codes give them back."""
    coded, outputs = encode(exact.outputs, block_sizes(exact.keys))
    return coded, replace(exact, outputs=outputs, losses=sample_losses(outputs, exact.truth, exact.kind))


def compact_part(
    data: EvaluationSet, stretch: Sequence[BatchRow], parts: Iterable[tuple[CodedOutputs, Predictions]]
) -> tuple[StoredPart, bytes]:
    """Join the compacted predictions of some batches, and return the content of their file, too."""
    coded, compact = zip(compacted(Predictions.empty("class", 2)), *parts, strict=True)
    keys, predictions = _keys(data, stretch), Predictions.concat(compact)
    deleted = keys[~np.isin(keys, predictions.keys, assume_unique=True)] if len(keys) != len(predictions) else _NONE
    content = CompactFile(key_digest(predictions.keys), deleted, CodedOutputs.concat(coded)).to_bytes()
    return StoredPart(predictions, [batch.ordinal for batch in stretch], deleted), content


def read_stored(home: Path, data: EvaluationSet, file: PredictionFile) -> StoredPart:
    """Read a prediction file; from a compact one without the samples deleted since.

    ``data`` must reach as far as the file. Raises ``CorruptFile`` for a damaged one, and for a compact one of other samples.
    """
    path = home / file.path
    if form_of(path) == "exact":
        return StoredPart(read_predictions(path, file.checksum))
    content = read_compact(path, file.checksum)
    first, last = ordinal_of(file.first_key), ordinal_of(file.last_key)
    stretch = [batch for batch in data.view.batches if first <= batch.ordinal <= last]
    keys = _keys(data, stretch)
    if len(content.deleted):
        keys = keys[~np.isin(keys, content.deleted, assume_unique=True)]
    sizes = block_sizes(keys)
    if (len(keys), len(sizes)) != (len(content.coded.codes), len(content.coded.widths)) or key_digest(keys) != content.digest:
        expected = f"predictions of the {len(keys)} evaluation samples of batches {first} to {last}"
        raise CorruptFile(path, expected, f"{len(content.coded.codes)} predictions of others")
    outputs, gone = content.coded.outputs(sizes), data.view.deleted.among(keys)
    if gone.any():
        keys, outputs = keys[~gone], outputs[~gone]
    times, labels = data.times_and_labels(keys)
    predictions = Predictions("class", keys, times, labels, outputs, sample_losses(outputs, labels, "class"))
    return StoredPart(predictions, [batch.ordinal for batch in stretch], content.deleted)


def _keys(data: EvaluationSet, stretch: Iterable[BatchRow]) -> KeyArray:
    """Keys that are predicted in some batches, including deleted ones."""
    return np.concatenate([_NONE, *(keys_of(batch.ordinal, data.positions(batch)) for batch in stretch)])
