"""Retraining of a trigger's model from its provenance in the model store: bit-identical, or an error."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.errors import NotReproducible, RunError, UnknownName
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.stages.model.training import fit, previous_model
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.pipeline.weights import current_platform
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.settings import Settings


def train_again(
    base: Mapping[str, Tensor] | None, *, data: Mapping[str, Any], seed: int, pipeline: str, trigger: str
) -> Mapping[str, Tensor]:
    """Train the model of a trained trigger again and return its state.

    Args:
        base: weights of the model that the training starts from; None where it starts afresh.
        data: description of the training set, as recorded with the model.
        seed: seed of the recorded training.
        pipeline: name of the pipeline.
        trigger: partition key of the trigger.

    Raises:
        NotReproducible: names the field in which the training would differ from the recorded one.
    """
    platform = current_platform()
    if platform is not None:
        return _train_again(platform, base, data, seed, pipeline, trigger)
    opened = Platform.open(Settings.from_environment())
    try:
        return _train_again(opened, base, data, seed, pipeline, trigger)
    finally:
        opened.close()


def _train_again(
    platform: Platform, base: Mapping[str, Tensor] | None, data: Mapping[str, Any], seed: int, pipeline: str, trigger: str
) -> Mapping[str, Tensor]:
    try:
        context = context_of(platform, pipeline, trigger)
    except UnknownName as error:
        raise NotReproducible("args.trigger", trigger, "no such trigger in the catalog") from error
    if (current := seed_for(context.run.seed, "train", context.trigger.ordinal)) != seed:
        raise NotReproducible("seed", seed, current)
    row = _training_set(context, data)
    if context.previous is None:
        return fit(context, row, previous=None, checkpoint=None).state_dict
    if base is None:
        raise NotReproducible("base", context.previous.hash, "none")
    return fit(context, row, previous=previous_model(context, context.previous, base), checkpoint=None).state_dict


def _training_set(context: TriggerContext, data: Mapping[str, Any]) -> TrainingSetRow:
    """Return the set that the model was trained on, none of whose samples was deleted."""
    row = context.training_set
    if row is None or row.checksum != data.get("training_set"):
        raise NotReproducible("data.training_set", data.get("training_set"), "none" if row is None else row.checksum)
    if files_at(path := context.platform.home / row.path).size(path) is None:
        try:
            row = select_training_set(context)
        except RunError as error:
            raise NotReproducible("data.training_set", row.checksum, str(error)) from error
    for partition in open_training_set(context, row).partitions():
        deleted = context.view.deleted.among(partition.keys)
        if deleted.any():
            first = int(partition.keys[deleted.argmax()])
            raise NotReproducible("data.keys", f"{row.n_samples} samples", f"sample {first} deleted")
    return row
