"""Predictions of one model for a stretch of batches, divided among workers.

A part is a number of whole reads of the stretch. Its blocks and reads are those of an undivided stretch, so the predictions of
all parts, one after the other, are those of one process to the bit, and so is their file. Workers return predictions and write
nothing: a call that is made twice, or whose worker dies, leaves no trace.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import RunError, one_line
from modyn_dagster.evaluation.predictions.blocks import READ_BLOCKS, count_blocks
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.pipeline.context import TriggerContext, context_in_worker
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.prediction_files import predicted_blocks, ranges_of
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor

logger = logging.getLogger(__name__)

#: Parts of a stretch for each worker: a worker loads the model for each, and all are to end at about the same time.
_PARTS: Final = 4
#: Reads of a part at most, which bound the memory of a worker and of its caller: about a million samples.
_MOST_READS: Final = 64


@dataclass(frozen=True, slots=True)
class StretchPart:
    """A part of a stretch of batches that a model is to predict.

    Attributes:
        settings: of the process that writes the file.
        run_id: run of the model.
        trigger_id: trigger of the model.
        until: ordinal of the last batch of the view.
        ordinals: batches that the part begins in, ends in, or holds as a whole.
        begin, end: numbers of its blocks among those of these batches.
        deleted: versions of the deleted samples of these batches, on which the content of blocks depends.
    """

    settings: Settings
    run_id: int
    trigger_id: int
    until: int
    ordinals: Sequence[int]
    begin: int
    end: int
    deleted: Sequence[int]

    def __str__(self) -> str:
        return f"the predictions of batches {self.ordinals[0]} to {self.ordinals[-1]} for trigger {self.trigger_id}"


def stretch_predictions(
    context: TriggerContext, data: EvaluationSet, predictor: "Predictor", stretch: Sequence[BatchRow]
) -> Iterator[Predictions]:
    """Predict a stretch in the workers of the context, where it has any and they are of use; else in this process.

    What workers fail on is predicted in this process.
    """
    parts = stretch_parts(context, data, stretch)
    if context.pool is None or len(parts) < 2:
        yield from predicted_blocks(predictor, data, stretch)
        return
    done = 0
    try:
        for predicted in context.pool.map(predict_part, parts, Resources(cpus=context.run.threads)):
            yield from predicted
            done += 1
    except Exception as error:  # noqa: BLE001 - this process predicts the rest, and meets the error if it comes again
        logger.warning("trigger %s predicts in one process: %s", context.trigger.partition_key, one_line(error))
    for part in parts[done:]:
        yield from predicted_blocks(predictor, data, data.view.batches_at(part.ordinals), part.begin, part.end)


def stretch_parts(context: TriggerContext, data: EvaluationSet, stretch: Sequence[BatchRow]) -> list[StretchPart]:
    """Divide a stretch among the workers of a context, into ``count_parts``; none where it is one read, or no use."""
    workers = usable_workers(context)
    if workers < 2:
        return []
    counts = np.array([count_blocks(*each[1:]) for each in ranges_of(data, stretch)], dtype=np.int64)
    ends = np.cumsum(counts)
    reads = -(-int(ends[-1]) // READ_BLOCKS)
    number = count_parts(reads, workers)
    bounds = [min(reads * part // number * READ_BLOCKS, int(ends[-1])) for part in range(number + 1)] if number > 1 else []
    found = []
    for begin, end in pairwise(bounds):
        first, last = np.searchsorted(ends, [begin, end - 1], side="right").tolist()
        before, batches = int(ends[first] - counts[first]), stretch[first : last + 1]
        ordinals, deleted = [batch.ordinal for batch in batches], _deleted_versions(batches)
        place = (context.platform.settings, context.run.id, context.trigger.id, context.view.last_ordinal, ordinals)
        found.append(StretchPart(*place, begin - before, end - before, deleted))
    return found


def count_parts(reads: int, workers: int) -> int:
    """Number of parts of so many reads: four for each worker, more where one would have above 64 reads.

    >>> count_parts(3, 2), count_parts(100, 2), count_parts(1000, 2)
    (3, 8, 16)
    """
    return min(reads, max(_PARTS * workers, -(-reads // _MOST_READS)))


def predict_part(part: StretchPart) -> list[Predictions]:
    """Predict a part in a worker's process, read by read.

    Raises:
        RunError: samples were deleted since the stretch was divided.
    """
    context = context_in_worker(part.settings, part.run_id, part.trigger_id, part.until)
    data, model = evaluation_set(context), context.model
    batches = data.view.batches_at(part.ordinals)
    if model is None or _deleted_versions(batches) != part.deleted:
        raise RunError(f"{part}: samples were deleted since they were dealt")
    with closing(predictor_of(context.platform, context.run, model, data.view)) as predictor:
        return list(predicted_blocks(predictor, data, batches, part.begin, part.end))


def usable_workers(context: TriggerContext) -> int:
    """Number of workers that predict as this process does: none for models on a GPU, or where a cluster does not answer."""
    if context.pool is None or context.spec.training.device != "cpu":
        return 0
    try:
        return context.pool.workers
    except Exception as error:  # noqa: BLE001 - predictions need no workers
        logger.warning("trigger %s predicts in one process: %s", context.trigger.partition_key, one_line(error))
        return 0


def _deleted_versions(batches: Sequence[BatchRow]) -> list[int]:
    return [batch.deleted_version for batch in batches]
