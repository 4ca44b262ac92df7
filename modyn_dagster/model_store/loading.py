"""Loading of models: read and verified, or retrained; and verification of a whole store."""

import errno
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel, WeightsNotStored
from modyn_dagster.model_store.format.extra_state import PREFIX, split_extra_state
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.reading import read_state, verify_state
from modyn_dagster.model_store.provenance.recipe import require_allowed
from modyn_dagster.model_store.provenance.retraining import (
    OnDifference,
    lineage_to_train,
    provenance_of,
    require_environment,
    require_mode,
    retrain_model,
)
from modyn_dagster.model_store.repository import Repository

_Result = TypeVar("_Result")


def load(
    repository: Repository, model: ModelId, *, retrain: bool, environment: OnDifference, verify: bool, allow: Sequence[str]
) -> dict[str, Tensor]:
    """State on the CPU, without its extra part; retrained only with ``retrain``."""
    require_mode(environment)
    with repository.folder.shared_lock():
        stored = repository.open(model)
        if stored.has_weights:
            return split_extra_state(_read(repository, stored, verify))[0]
        if not retrain:
            raise WeightsNotStored(model, "only how to train it again: load(id, retrain=True) does that (model export --retrain)")
        start, trainings = lineage_to_train(stored, repository.open)
        state = None if start is None else split_extra_state(_read(repository, start, verify))[0]
    for training in trainings:
        provenance = provenance_of(training, repository.documents)
        require_allowed(provenance.train, allow)
        require_environment(provenance, environment)
        state = retrain_model(training, state, provenance, allow)
    return state or {}


def load_extra(repository: Repository, model: ModelId) -> Any:
    """Extra state of a model; None for a model without."""
    with repository.folder.shared_lock():
        stored = repository.open(model)
        if PREFIX not in stored.record.leaves or not stored.has_weights:
            return None
        return split_extra_state(_read(repository, stored, verify=True))[1]


def _read(repository: Repository, stored: StoredModel, verify: bool) -> dict[str, Tensor]:
    """All tensors, those of the extra part included. The caller has held the shared lock since before ``stored`` was opened."""

    def read(model: StoredModel) -> dict[str, Tensor]:
        with repository.pool() as pool, repository.sources() as sources:
            return read_state(model, sources, pool, verify=verify)

    return _reread_if_replaced(repository, stored, read)


def verify_all(
    repository: Repository, chosen: Sequence[ModelId] | None, progress: Callable[[int, int], None] | None = None
) -> list[CorruptFile]:
    """Read these or all models, and the documents they refer to, and return the damage."""
    damage = []
    models = repository.ids() if chosen is None else chosen
    for n, model in enumerate(models, 1):
        try:
            with repository.folder.shared_lock():
                _verify(repository, repository.open(model))
        except CorruptFile as error:
            damage.append(error)
        except UnknownModel:
            if chosen is not None:
                raise
            # Deleted a moment ago, or a dangling link.
            if model in repository.ids():
                damage.append(CorruptFile(repository.folder.root, f"a file of model {model}", "a name that leads to none"))
        if progress is not None:
            progress(n, len(models))
    return damage


def _verify(repository: Repository, stored: StoredModel) -> None:
    def read(model: StoredModel) -> None:
        with repository.pool() as pool, repository.sources() as sources:
            verify_state(model, sources, pool)

    if stored.has_weights:
        _reread_if_replaced(repository, stored, read)
    else:
        lineage_to_train(stored, repository.open)
    for document in (stored.metadata.environment, stored.metadata.code):
        if document is not None:
            repository.documents.load(document)


def _io_errors_as_damage(stored: StoredModel, read: Callable[[StoredModel], _Result]) -> _Result:
    try:
        return read(stored)
    except OSError as error:
        # Unreadable sectors are damage; other errors, such as too many open files, are not.
        if error.errno != errno.EIO:
            raise
        raise CorruptFile(stored.path, "bytes that can be read", error.strerror or str(error)) from error


def _reread_if_replaced(repository: Repository, stored: StoredModel, read: Callable[[StoredModel], _Result]) -> _Result:
    """Read a model, again if it was stored anew meanwhile: repaired, or where there are no locks without its base."""
    while True:
        try:
            return _io_errors_as_damage(stored, read)
        except StorageError:
            if not repository.was_replaced(stored):
                raise
            stored = repository.open(stored.id)
