"""Getting models back: read and verified, or trained again."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError, WeightsNotStored
from modyn_dagster.model_store import extra as extras
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.reading import read_state, verify_state
from modyn_dagster.model_store.retraining import OnDifference, lineage_to_train, provenance_of, require_environment, train_again
from modyn_dagster.model_store.shelf import Shelf
from modyn_dagster.model_store.stored import Stored

_Found = TypeVar("_Found")


def load(
    shelf: Shelf, model: ModelId, *, retrain: bool, environment: OnDifference, verify: bool, allow: Sequence[str]
) -> dict[str, Tensor]:
    """The state on the CPU, without its extra part; trained again only with ``retrain``."""
    stored = shelf.open(model)
    if stored.has_weights:
        return extras.split(read(shelf, stored, verify))[0]
    if not retrain:
        raise WeightsNotStored(model, "only how to train it again: load(id, retrain=True) does that")
    start, todo = lineage_to_train(stored, shelf.open)
    state = None if start is None else extras.split(read(shelf, start, verify))[0]
    for each in todo:
        provenance = provenance_of(each, shelf.documents)
        provenance.require_allowed(allow)
        require_environment(provenance, environment)
        state = train_again(each, state, provenance, allow)
    return state or {}


def read(shelf: Shelf, stored: Stored, verify: bool) -> dict[str, Tensor]:
    """All tensors, those of the extra part too."""

    def whole(found: Stored) -> dict[str, Tensor]:
        with shelf.folder.adding(), shelf.pool() as pool, shelf.sources() as sources:
            return read_state(found, sources, pool, verify=verify)

    return _as_it_is_now(shelf, stored, whole)


def verify_all(shelf: Shelf, models: Sequence[ModelId], progress: Callable[[int, int], None] | None) -> list[CorruptFile]:
    """Read these, and return the damage."""
    damage = []
    for n, each in enumerate(models, 1):
        try:
            _verify(shelf, each)
        except CorruptFile as error:
            damage.append(error)
        if progress is not None:
            progress(n, len(models))
    return damage


def _verify(shelf: Shelf, model: ModelId) -> None:
    def whole(found: Stored) -> None:
        with shelf.folder.adding(), shelf.pool() as pool, shelf.sources() as sources:
            verify_state(found, sources, pool)

    stored = shelf.open(model)
    if stored.has_weights:
        _as_it_is_now(shelf, stored, whole)
    else:
        lineage_to_train(stored, shelf.open)


def _as_it_is_now(shelf: Shelf, stored: Stored, reading: Callable[[Stored], _Found]) -> _Found:
    """Where removers are not kept out, a model may be stored again without its base while it is read."""
    while True:
        try:
            return reading(stored)
        except StorageError:
            if not shelf.is_stored_anew(stored):
                raise
            stored = shelf.open(stored.id)
