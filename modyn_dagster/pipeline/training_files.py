"""Files beside a training: the checkpoint it goes on from, and the states of its optimizers for the next one."""

import logging
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from modyn_dagster.catalog.models import newest_model
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.paths import checkpoint_path, optimizers_path
from modyn_dagster.storage import inside
from modyn_dagster.training import CheckpointFile, TrainedModel

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
