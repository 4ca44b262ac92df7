"""Storage of a trained model: strategy, base and provenance; and its check."""

import logging
from dataclasses import replace
from time import perf_counter
from typing import Any

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel
from modyn_dagster.model_store import (
    Adaptive,
    Architecture,
    ChangedLayers,
    Custom,
    Delta,
    Environment,
    ModelId,
    ModelStore,
    Prices,
    Provenance,
    Retrain,
    Snapshot,
)
from modyn_dagster.model_store.strategies.choosing import storage_choice
from modyn_dagster.model_store.strategies.settings import Strategy
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.platform import BUILDER, TRAINING
from modyn_dagster.pipeline.weights import cache_weights
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.operation import ModelStoreSpec
from modyn_dagster.training import TrainedModel

logger = logging.getLogger(__name__)


def storage_strategy(spec: ModelStoreSpec, *, source: str) -> Strategy:
    """Return the strategy that a spec names, with its settings; calls the factory of a choice of the user's."""
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
        case "custom":
            factory = str(spec.factory)
            return Custom(storage_choice(factory, spec.config, source=source), factory, delta)
        case "adaptive":
            return Adaptive(Prices(**spec.prices.model_dump()), spec.max_recovery_seconds, delta)


def store_model(context: TriggerContext, training_set: TrainingSetRow, trained: TrainedModel, seconds: float) -> ModelId:
    """Store the model of a trigger, by the pipeline's strategy and with the run's newest earlier model as its base.

    ``seconds`` of training are recorded with its provenance, where the strategy may store that. A missing or damaged base
    is a warning; the model is then stored whole.
    """
    spec = context.spec.model_store
    store, strategy = context.platform.models_of(context.spec), storage_strategy(spec, source=f"pipeline {context.run.pipeline}")
    base = context.base_hash if context.previous is None else context.previous.hash
    recipe: dict[str, Any] = {"model": Architecture(BUILDER, {"architecture": trained.architecture})}
    if spec.retrain or spec.strategy == "provenance":
        recipe["provenance"] = _provenance(context, training_set, seconds)
    try:
        model = store.save(trained.state_dict, base=base, strategy=strategy, **recipe)
    except (CorruptFile, UnknownModel) as error:
        if base is None:
            raise
        logger.warning("trigger %s: stored without its base: %s", context.trigger.partition_key, error)
        # A model that continues a missing one cannot be trained again, so it is stored whole.
        whole = Snapshot() if context.previous is not None else strategy
        return store.save(trained.state_dict, strategy=whole, model=recipe["model"])
    if store.info(model).strategy == Retrain.kind:
        cache_weights(context.platform.weight_cache, trained.state_dict)
    return model


def _provenance(context: TriggerContext, training_set: TrainingSetRow, seconds: float) -> Provenance:
    """Record how the platform trains the model of a trigger again.

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
        environment=replace(Environment.now(), threads=context.run.threads, ranks=context.spec.training.ranks),
        seconds=seconds,
        # An operation without a deterministic implementation would have been an error.
        probed=context.spec.training.deterministic,
        uses_base=context.previous is not None,
    )


def stored_exactly(store: ModelStore, model: ModelRow) -> CheckResult:
    """Check that every tensor reads back with its hash; the time is that of a recovery."""
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
