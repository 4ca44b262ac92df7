"""Newest model of a run at a trigger, for strategies that look at samples through it."""

from collections.abc import Iterator
from contextlib import contextmanager

from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.measure.feature_extractor import BlockCache, FeatureExtractor
from modyn_dagster.pipeline.models import predictor_of


@contextmanager
def newest_model(context: TriggerContext, trigger: TriggerRow | None) -> Iterator[FeatureExtractor | None]:
    """Open the extractor of the last model that the run trained before a trigger; None before the first, or without a trigger."""
    models = [model for model in context.models if trigger is not None and model.ordinal < trigger.ordinal]
    if not models:
        yield None
        return
    predictor = predictor_of(context.platform, context.run, models[-1], context.view)
    try:
        yield FeatureExtractor(predictor, models[-1].hash, BlockCache())
    finally:
        predictor.close()
