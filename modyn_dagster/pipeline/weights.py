"""Weights of a pipeline's models, also of those that the store holds as provenance only.

Such a model is trained again once; its weights stay in ``MODYN_HOME/weights`` until newer ones need the room.
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
    """Within the block trainings use this platform; else they open the one that the environment names."""
    token = _PLATFORM.set(platform)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


def current_platform() -> Platform | None:
    """The one of the innermost block."""
    return _PLATFORM.get()


# A trigger needs its own model and the one before; a few pipelines may be at work.
_KEPT: Final = 8

logger = logging.getLogger(__name__)


def weights_of(platform: Platform, spec: PipelineSpec, model: ModelId) -> dict[str, Tensor]:
    """Load a model; one without weights is trained again, which takes as long as it took.

    ``NotReproducible`` names what keeps it from that: deleted data, another code or library that gives other bits.
    """
    store = platform.models_of(spec)
    try:
        return store.load(model)
    except WeightsNotStored:
        pass
    kept = platform.kept_weights
    try:
        return kept.load(model)
    except (UnknownModel, CorruptFile):
        logger.warning("model %s is stored as its provenance, and its weights are no longer kept: it is trained again", model)
    with on_platform(platform):
        state = store.load(model, retrain=True)
    keep(kept, state)
    return state


def keep(kept: ModelStore, state: dict[str, Tensor]) -> None:
    """Put weights where they are found again, and let go of the oldest."""
    kept.save(state, strategy=Snapshot(compress=False))
    ages = []
    for model in kept.list():
        try:
            ages.append((kept.info(model).path.stat().st_mtime_ns, model))
        except (UnknownModel, CorruptFile, FileNotFoundError):
            continue
    for _, model in sorted(ages)[:-_KEPT]:
        try:
            kept.delete(model)
        except UnknownModel:
            # Another process was faster.
            continue
