"""A trained model on its way into the model store: what it is stored as, and what it derives from."""

import logging
from dataclasses import replace
from time import perf_counter
from typing import Any

from modyn_dagster.catalog.results.models import ModelRow, models_before
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel
from modyn_dagster.model_store import (
    Adaptive,
    Architecture,
    ChangedLayers,
    Delta,
    Environment,
    ModelId,
    ModelStore,
    Prices,
    Provenance,
    Retrain,
    Snapshot,
)
from modyn_dagster.model_store.strategies.settings import Strategy
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.platform import BUILDER, TRAINING
from modyn_dagster.pipeline.weights import keep
from modyn_dagster.randomness import seed_for
from modyn_dagster.spec.operation import ModelStoreSpec
from modyn_dagster.training import TrainedModel

logger = logging.getLogger(__name__)


def strategy_of(spec: ModelStoreSpec) -> Strategy:
    """The strategy of a pipeline, with its settings."""
    delta = Delta(spec.operator, spec.max_depth, spec.full_model_interval)
    match spec.strategy:
        case "snapshot":
            return Snapshot()
        case "changed_layers":
            return ChangedLayers()
        case "delta":
            return delta
        case "provenance":
            return Retrain()
        case "adaptive":
            return Adaptive(Prices(**spec.prices.model_dump()), spec.max_recovery_seconds, delta)


def store_model(
    context: TriggerContext, trained: TrainedModel, training_set: TrainingSetRow, start: ModelId | None, seconds: float
) -> ModelId:
    """Store a model with the run's model before as its base, as the pipeline's spec says.

    Where it may be stored as its provenance, that is recorded: ``start`` is the model it was trained from, if any, and
    ``seconds`` what the training took. A base that is gone or damaged costs the difference to it, and a warning; never the
    new model.
    """
    chosen = context.spec.model_store
    store, strategy = context.platform.models_of(context.spec), strategy_of(chosen)
    base = start or base_of(context)
    how: dict[str, Any] = {"model": Architecture(BUILDER, {"architecture": trained.architecture})}
    if chosen.retrain or chosen.strategy == "provenance":
        how["provenance"] = provenance_of(context, training_set, start, seconds)
    try:
        model = store.save(trained.state_dict, base=base, strategy=strategy, **how)
    except (CorruptFile, UnknownModel) as error:
        if base is None:
            raise
        logger.warning("trigger %s: stored without its base: %s", context.trigger.partition_key, error)
        # Without what it was trained from it could not be trained again.
        return store.save(trained.state_dict, strategy=Snapshot() if start else strategy, model=how["model"])
    if store.info(model).strategy == Retrain.kind:
        keep(context.platform.kept_weights, trained.state_dict)
    return model


def provenance_of(context: TriggerContext, training_set: TrainingSetRow, start: ModelId | None, seconds: float) -> Provenance:
    """How the model of a trigger is trained again: by the platform, from what its catalog says.

    The samples stay with the platform: their keys are those of the training set with this checksum.
    """
    trigger = context.trigger
    return Provenance(
        train=TRAINING,
        args={"pipeline": context.run.pipeline, "trigger": trigger.partition_key},
        data={
            "dataset": context.spec.dataset,
            "training_set": training_set.checksum,
            "samples": training_set.n_samples,
            "after": training_set.after,
            "until": training_set.until,
        },
        seed=seed_for(context.run.seed, "train", trigger.ordinal),
        environment=replace(Environment.now(), threads=context.run.threads),
        seconds=seconds,
        # An operation without a deterministic implementation would have been an error.
        probed=context.spec.training.deterministic,
        uses_base=start is not None,
    )


def base_of(context: TriggerContext) -> ModelId | None:
    """The newest model that the trigger's run trained before it, or took over at its start."""
    with context.platform.transaction() as conn:
        before = models_before(conn, context.run.id, context.trigger.ordinal, newest=1)
    return before[0].hash if before else context.run.previous_model


def stored_exactly(store: ModelStore, model: ModelRow) -> CheckResult:
    """Reading the model gives every tensor with its hash; the time is that of a recovery."""
    began = perf_counter()
    try:
        damage: list[StorageError] = list(store.verify(model.hash))
    except UnknownModel as error:
        damage = [error]
    seconds = perf_counter() - began
    text = f"read and verified in {seconds:.3g} s" if not damage else "; ".join(map(str, damage))
    if not damage and store.info(model.hash).strategy == Retrain.kind:
        text = "stored as its provenance: nothing to read, and all it is trained from is there"
    return CheckResult("stored_exactly", not damage, True, text, {"seconds": seconds, "damaged": len(damage)})
