"""A trained model on its way into the model store: what it is stored as, and what it derives from."""

import logging
from time import perf_counter
from typing import Final

from modyn_dagster.catalog.models import ModelRow, models_before
from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel
from modyn_dagster.model_store import Adaptive, Architecture, ChangedLayers, Delta, ModelId, ModelStore, Prices, Snapshot
from modyn_dagster.model_store.strategies import Strategy
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.platform import MODULES_OF_THE_BOX
from modyn_dagster.spec.model_store import ModelStoreSpec
from modyn_dagster.training import TrainedModel

_BUILDER: Final = f"{MODULES_OF_THE_BOX}:build_module"

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
        case "adaptive":
            return Adaptive(Prices(**spec.prices.model_dump()), spec.max_recovery_seconds, delta)


def store_model(context: TriggerContext, trained: TrainedModel) -> ModelId:
    """Store a model with the run's model before as its base, as the pipeline's spec says.

    A base that is gone or damaged costs the difference to it, and a warning; never the new model.
    """
    store, strategy = context.platform.model_store, strategy_of(context.spec.model_store)
    architecture = Architecture(_BUILDER, {"architecture": trained.architecture})
    base = base_of(context)
    try:
        return store.save(trained.state_dict, base=base, strategy=strategy, model=architecture)
    except (CorruptFile, UnknownModel) as error:
        if base is None:
            raise
        logger.warning("trigger %s: stored without its base: %s", context.trigger.partition_key, error)
        return store.save(trained.state_dict, strategy=strategy, model=architecture)


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
    return CheckResult("stored_exactly", not damage, True, text, {"seconds": seconds, "damaged": len(damage)})
