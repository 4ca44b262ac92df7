"""Training of a trigger: its data, the weights it starts from, its checkpoint and its optimizer states."""

import logging
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fastpath import TrainingSet
from modyn_dagster.catalog.results.models import architecture_of, find_model, newest_model
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import task_of, with_class_numbers
from modyn_dagster.pipeline.platform import checkpoint_path, optimizers_path
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.randomness import seed_for
from modyn_dagster.storage import inside
from modyn_dagster.training import CheckpointFile, FastPath, PreviousModel, TrainedModel, TrainingData, train

logger = logging.getLogger(__name__)


def checkpoint_of(context: TriggerContext) -> CheckpointFile:
    """The same for every attempt of a trigger, so that one goes on where the one before was killed."""
    return CheckpointFile(context.platform.home / checkpoint_path(context.run.id, context.trigger.ordinal))


def save_optimizers(context: TriggerContext, trained: TrainedModel, model_hash: str) -> None:
    """Write the states of the optimizers, if the spec carries them over, for whoever starts from this model."""
    if trained.optimizers is not None:
        path = optimizers_path(context.run.id, context.trigger.ordinal)
        CheckpointFile(context.platform.home / path).save(model_hash, trained.optimizers)


def load_optimizers(context: TriggerContext, model_hash: str) -> list[dict[str, Any]] | None:
    """The states that were saved with a model; None where the spec does not ask for them.

    Without them, for example after a spec began to ask, optimizers start afresh; the log says so.
    """
    if not context.spec.training.carry_optimizer:
        return None
    with context.platform.transaction() as conn:
        row = newest_model(conn, context.run.id, model_hash)
    path = None if row is None else context.platform.home / optimizers_path(row.run_id, row.ordinal)
    found: list[dict[str, Any]] | None = None if path is None else CheckpointFile(path).load(model_hash)
    if found is None:
        logger.warning("no optimizer states were kept with model %s; the optimizers start afresh", model_hash)
    return found


def load_initial(context: TriggerContext, source: str) -> dict[str, Tensor] | None:
    """The weights that a training without a previous model starts from; None where the spec names none."""
    name = context.spec.training.initial_weights
    if name is None:
        return None
    try:
        return load_file(inside(context.platform.project.folder, name))
    except (OSError, SafetensorError) as error:
        raise ConfigError(source, "training.initial_weights", name, f"cannot be read: {error}") from error


def previous_model(context: TriggerContext) -> str | None:
    """Hash of the model this trigger starts from, if the spec says so and there is one."""
    if not context.spec.training.use_previous_model:
        return None
    with context.platform.transaction() as conn:
        if context.trigger.state == "trained":
            found = find_model(conn, context.trigger.id)
            return found.previous_hash if found else None
        return get_run(conn, context.run.id).previous_model


def fit(
    context: TriggerContext,
    row: TrainingSetRow,
    previous: PreviousModel | None,
    *,
    checkpoint: CheckpointFile | None,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
) -> TrainedModel:
    """Train on the training set of a trigger, from the previous model if the spec says so; nothing is stored."""
    chosen = open_training_set(context, row)
    source = f"pipeline {context.run.pipeline}"
    return train(
        with_class_numbers(context.spec.training.at(context.trigger.ordinal), context.view, source),
        TrainingData(chosen, context.view.reader, fast_path),
        task=task_of(context.view, source),
        previous=previous,
        initial=None if previous else load_initial(context, source),
        calibrate=_calibration(context, row, fast_path),
        checkpoint=checkpoint,
        seed=seed_for(context.run.seed, "train", context.trigger.ordinal),
        threads=context.run.threads,
        source=source,
        progress=progress,
    )


def train_trigger(
    context: TriggerContext, row: TrainingSetRow, progress: ProgressCallback | None, fast_path: FastPath
) -> TrainedModel:
    """Train the model of a trigger from its previous model and its checkpoint, if there are any; nothing is stored."""
    previous = previous_model(context)
    return fit(
        context,
        row,
        _load(context, previous) if previous else None,
        # Training a trained trigger again is a check, and begins at the beginning.
        checkpoint=None if context.trigger.state == "trained" else checkpoint_of(context),
        progress=progress,
        fast_path=fast_path,
    )


def _load(context: TriggerContext, model_hash: str) -> PreviousModel:
    with context.platform.transaction() as conn:
        architecture = architecture_of(conn, model_hash)
    weights = weights_of(context.platform, context.spec, model_hash)
    return PreviousModel(weights, architecture, load_optimizers(context, model_hash))


def _calibration(context: TriggerContext, row: TrainingSetRow, fast_path: FastPath) -> TrainingData | None:
    """The calibration samples of the window, where early stopping watches them."""
    if context.spec.training.early_stopping is None:
        return None
    keys = context.view.keys_on(CALIBRATE, KeyRange(row.after, row.until))
    if len(keys) == 0:
        window = f"keys after {row.after} up to {row.until}"
        raise TrainingError(f"early_stopping: the window ({window}) has no sample on the split's side `calibrate`")
    return TrainingData(TrainingSet.of(keys), context.view.reader, fast_path)
