"""Retraining of a trigger's model from its provenance in the model store: bit-identical, or an error."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from modyn_dagster.catalog.results.training_sets import TrainingSetRow, training_sets_with
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.errors import CorruptFile, NotReproducible, RunError, UnknownModel, UnknownName
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
        trigger: partition key of the trigger; where it was removed, another trigger of the same model stands in.

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
        same = _same_model(platform, data, seed, {"pipeline": pipeline, "trigger": trigger})
        if same is None:
            raise NotReproducible("args.trigger", trigger, "no such trigger in the catalog") from error
        context = same
    if (current := seed_for(context.run.seed, "train", context.trigger.ordinal)) != seed:
        raise NotReproducible("seed", seed, current)
    row = _training_set(context, data)
    if context.previous is None:
        return fit(context, row, previous=None, checkpoint=None).state_dict
    if base is None:
        raise NotReproducible("base", context.previous.hash, "none")
    return fit(context, row, previous=previous_model(context, context.previous, base), checkpoint=None).state_dict


def _same_model(platform: Platform, data: Mapping[str, Any], seed: int, args: Mapping[str, str]) -> TriggerContext | None:
    """Context of another trigger of the model whose recipe has these arguments; None where no run names it.

    The first of equal models writes the recipe, and its pipeline may be removed while other pipelines, or a live run that took
    over its replay, name the model.
    """
    with platform.transaction() as conn:
        uses = [(use, get_run(conn, use.run_id)) for use in training_sets_with(conn, str(data.get("training_set")))]
    for use, run in uses:
        if use.model_hash is None or seed_for(run.seed, "train", use.ordinal) != seed:
            continue
        try:
            recipe = platform.models_of(platform.spec_of(run)).info(use.model_hash).provenance
        except (CorruptFile, UnknownModel):
            continue
        # Pipelines that differ in their training alone have the same training sets.
        if recipe is not None and recipe.get("args") == args:
            return context_of(platform, use.pipeline, use.partition_key)
    return None


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
