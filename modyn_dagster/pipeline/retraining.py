"""Training the model of a trigger again, as its provenance in the model store asks: bit for bit or not at all."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from modyn_dagster.catalog.results.models import architecture_of
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.errors import NotReproducible, RunError, UnknownName
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.stages.model.training import fit, load_optimizers, previous_model
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.pipeline.weights import current_platform
from modyn_dagster.randomness import seed_for
from modyn_dagster.settings import Settings
from modyn_dagster.training import PreviousModel


def train_again(
    base: Mapping[str, Tensor] | None, *, data: Mapping[str, Any], seed: int, pipeline: str, trigger: str
) -> Mapping[str, Tensor]:
    """The state of the model of a trained trigger.

    ``base`` are the weights of the run's model before, where the training starts from it; ``data`` is what
    ``provenance_of`` recorded. ``NotReproducible`` names the field that keeps it from being the same training.
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
    if (here := seed_for(context.run.seed, "train", context.trigger.ordinal)) != seed:
        raise NotReproducible("seed", seed, here)
    row = _training_set(context, data)
    previous = _previous(context, base)
    return fit(context, row, previous, checkpoint=None).state_dict


def _training_set(context: TriggerContext, data: Mapping[str, Any]) -> TrainingSetRow:
    """The set that the model was trained on, none of whose samples was deleted."""
    with context.platform.transaction() as conn:
        row = find_training_set(conn, context.trigger.id)
    if row is None or row.checksum != data.get("training_set"):
        raise NotReproducible("data.training_set", data.get("training_set"), "none" if row is None else row.checksum)
    if not (context.platform.home / row.path).is_file():
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


def _previous(context: TriggerContext, base: Mapping[str, Tensor] | None) -> PreviousModel | None:
    model_hash = previous_model(context)
    if model_hash is None:
        return None
    if base is None:
        raise NotReproducible("base", model_hash, "none")
    with context.platform.transaction() as conn:
        architecture = architecture_of(conn, model_hash)
    return PreviousModel(dict(base), architecture, load_optimizers(context, model_hash))
