"""Training of a trigger: its data, the weights it starts from, its checkpoint and its optimizer states."""

import logging
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fastpath import TrainingSet
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.data.windows.label_windows import labelled_keys, recorded_window
from modyn_dagster.errors import ConfigError, StorageError, TrainingError
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import task_of, with_class_numbers
from modyn_dagster.pipeline.platform import checkpoint_path, optimizers_path
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.storage import inside
from modyn_dagster.training import CheckpointFile, FastPath, PreviousModel, TrainedModel, TrainingData, train, train_in_ranks
from modyn_dagster.training.pretrained.weights_file import read_pretrained, read_weights_file, with_config

logger = logging.getLogger(__name__)


def checkpoint_of(context: TriggerContext) -> CheckpointFile:
    """Return the checkpoint of a trigger. All attempts share it, so that one resumes where the one before was killed."""
    return CheckpointFile(context.platform.home / checkpoint_path(context.run.id, context.trigger.ordinal))


def save_optimizers(context: TriggerContext, trained: TrainedModel, model_hash: str) -> None:
    """Write the optimizer states, if the spec carries them over, for the training that starts from this model."""
    if trained.optimizers is not None:
        path = optimizers_path(context.run.id, context.trigger.ordinal)
        CheckpointFile(context.platform.home / path).save(model_hash, trained.optimizers)


def previous_model(context: TriggerContext, model: ModelRow, weights: Mapping[str, Tensor] | None = None) -> PreviousModel:
    """Load the model that a training starts from, with the optimizer states that were saved with it."""
    if weights is None:
        weights = weights_of(context.platform, context.spec, model.hash)
    return PreviousModel(dict(weights), dict(model.architecture), _load_optimizers(context, model))


def _load_optimizers(context: TriggerContext, model: ModelRow) -> list[dict[str, Any]] | None:
    """Load the optimizer states of a model; None where the spec does not carry them over.

    Where none were saved, for example because the spec carries them over only since then, optimizers start afresh, and the
    log says so.
    """
    if not context.spec.training.carry_optimizer:
        return None
    path = context.platform.home / optimizers_path(model.run_id, model.ordinal)
    states: list[dict[str, Any]] | None = CheckpointFile(path).load(model.hash)
    if states is None:
        logger.warning("no optimizer states were kept with model %s; the optimizers start afresh", model.hash)
    return states


def _initial_weights(context: TriggerContext, source: str) -> dict[str, Tensor] | None:
    """Load the weights that a training without a previous model starts from; None where the spec names none."""
    name = context.spec.training.initial_weights
    if name is None:
        return read_pretrained(context.spec.training, context.platform.project.folder, source=source)
    try:
        return load_file(inside(context.platform.project.folder, name))
    except StorageError as error:
        raise ConfigError(source, "training.initial_weights", name, "must be a file below the project's folder") from error
    except (OSError, SafetensorError) as error:
        raise ConfigError(source, "training.initial_weights", name, f"cannot be read: {error}") from error


def initial_model(context: TriggerContext, trained: TrainedModel) -> str | None:
    """Id that the file of initial weights has as a model, by its content; None where training began with another model's.

    A file that ``model export`` wrote of a model with the same layers, none of which share tensors, has the id of that model.
    """
    if context.previous is not None:
        return None
    source, spec = f"pipeline {context.run.pipeline}", context.spec.training
    if spec.initial_weights is None:
        weights = read_weights_file(spec, context.platform.project.folder, source=source)
    else:
        weights = _initial_weights(context, source)
    if weights is None:
        return None
    # Ids depend on the order of the tensors, which a file of weights does not keep.
    order = [*(name for name in trained.state_dict if name in weights), *(weights.keys() - trained.state_dict.keys())]
    return context.platform.models_of(context.spec).id_of({name: weights[name] for name in order})


def training_spec(context: TriggerContext) -> TrainingSpec:
    """Training of a trigger as its spec says, with the numbers of classes and the configuration of a pretrained network."""
    source = f"pipeline {context.run.pipeline}"
    spec = with_class_numbers(context.spec.training.at(context.trigger.ordinal), context.view, source)
    return with_config(spec, context.platform.project.folder, source=source)


def fit(
    context: TriggerContext,
    row: TrainingSetRow,
    *,
    previous: PreviousModel | None,
    checkpoint: CheckpointFile | None,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
) -> TrainedModel:
    """Train on the training set of a trigger, from a previous model and a checkpoint where there are any; store nothing."""
    source = f"pipeline {context.run.pipeline}"
    spec = training_spec(context)
    data = TrainingData(open_training_set(context, row), context.view.reader, fast_path)
    given: dict[str, Any] = {
        "task": task_of(spec, context.view),
        "previous": previous,
        "initial": None if previous else _initial_weights(context, source),
        "calibrate": _calibration(context, row, fast_path),
        "checkpoint": checkpoint,
        "seed": seed_for(context.run.seed, "train", context.trigger.ordinal),
        "threads": context.run.threads,
        "source": source,
        "progress": progress,
    }
    if spec.ranks > 1:
        platform = context.platform
        return train_in_ranks(platform.group, spec, data, timeout=platform.settings.rank_timeout, **given)
    return train(spec, data, **given)


def calibration_keys(context: TriggerContext, row: TrainingSetRow) -> KeyArray | None:
    """Return the samples of the window that early stopping watches; None where it watches none."""
    if context.spec.training.early_stopping is None:
        return None
    return labelled_keys(context.view, recorded_window(context.view, row), CALIBRATE)


def _calibration(context: TriggerContext, row: TrainingSetRow, fast_path: FastPath) -> TrainingData | None:
    """Return the calibration samples of the window, where early stopping watches them."""
    keys = calibration_keys(context, row)
    if keys is None:
        return None
    if len(keys) == 0:
        window = f"keys after {row.after} up to {row.until}"
        raise TrainingError(f"early_stopping: the window ({window}) has no sample on the split's side `calibrate`")
    return TrainingData(TrainingSet.of(keys), context.view.reader, fast_path)
