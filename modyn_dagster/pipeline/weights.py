"""Weights of a pipeline's models, including those that the store holds as provenance only.

Such a model is trained again once, and its weights stay in ``MODYN_HOME/weights`` until newer ones replace them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from torch import Tensor

from modyn_dagster.errors import CorruptFile, UnknownModel, WeightsNotStored
from modyn_dagster.model_store import ModelId, ModelStore, Snapshot
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.pipeline import PipelineSpec

_PLATFORM: Final[ContextVar[Platform | None]] = ContextVar("platform that trains again", default=None)


@contextmanager
def on_platform(platform: Platform) -> Iterator[None]:
    """Let trainings within the block use this platform; otherwise they open the one that the environment names."""
    token = _PLATFORM.set(platform)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


def current_platform() -> Platform | None:
    """Return the platform of the innermost ``on_platform`` block."""
    return _PLATFORM.get()


# A trigger needs its own model and the one before it, and a few pipelines may be at work.
_MOST_MODELS: Final = 8

logger = logging.getLogger(__name__)


def weights_of(platform: Platform, spec: PipelineSpec, model: ModelId) -> dict[str, Tensor]:
    """Load a model. One without stored weights is trained again, which takes as long as its training did.

    Raises:
        NotReproducible: names the cause, such as deleted data or code and libraries that give other bits.
    """
    store = platform.models_of(spec)
    try:
        return store.load(model)
    except WeightsNotStored:
        pass
    cache = platform.weight_cache
    try:
        return cache.load(model)
    except (UnknownModel, CorruptFile):
        logger.warning("model %s is stored as its provenance, and its weights are no longer kept: it is trained again", model)
    with on_platform(platform):
        state = store.load(model, retrain=True)
    cache_weights(cache, state)
    return state


def cache_weights(cache: ModelStore, state: dict[str, Tensor]) -> None:
    """Store weights in the cache, and delete the oldest beyond its size."""
    cache.save(state, strategy=Snapshot(compress=False))
    ages = []
    for model in cache.list():
        try:
            ages.append((cache.info(model).path.stat().st_mtime_ns, model))
        except (UnknownModel, CorruptFile, FileNotFoundError):
            continue
    for _, model in sorted(ages)[:-_MOST_MODELS]:
        try:
            cache.delete(model)
        except UnknownModel:
            # Another process was faster.
            continue
