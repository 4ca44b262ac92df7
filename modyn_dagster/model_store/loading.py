"""Getting models back: read and verified, or trained again."""

import errno
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel, WeightsNotStored
from modyn_dagster.model_store.format import extra_state as extras
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.reading import read_state, verify_state
from modyn_dagster.model_store.provenance.recipe import require_allowed
from modyn_dagster.model_store.provenance.retraining import (
    OnDifference,
    lineage_to_train,
    provenance_of,
    require_environment,
    require_known,
    train_again,
)
from modyn_dagster.model_store.repository import Repository

_Found = TypeVar("_Found")


def load(
    repository: Repository, model: ModelId, *, retrain: bool, environment: OnDifference, verify: bool, allow: Sequence[str]
) -> dict[str, Tensor]:
    """The state on the CPU, without its extra part; trained again only with ``retrain``."""
    require_known(environment)
    with repository.folder.adding():
        stored = repository.open(model)
        if stored.has_weights:
            return extras.split_extra_state(_read(repository, stored, verify))[0]
        if not retrain:
            raise WeightsNotStored(model, "only how to train it again: load(id, retrain=True) does that (model export --retrain)")
        start, todo = lineage_to_train(stored, repository.open)
        state = None if start is None else extras.split_extra_state(_read(repository, start, verify))[0]
    for each in todo:
        provenance = provenance_of(each, repository.documents)
        require_allowed(provenance.train, allow)
        require_environment(provenance, environment)
        state = train_again(each, state, provenance, allow)
    return state or {}


def load_extra(repository: Repository, model: ModelId) -> Any:
    """What was saved as ``extra``; None without."""
    with repository.folder.adding():
        stored = repository.open(model)
        if extras.PREFIX not in stored.record.leaves or not stored.has_weights:
            return None
        return extras.split_extra_state(_read(repository, stored, verify=True))[1]


def _read(repository: Repository, stored: Stored, verify: bool) -> dict[str, Tensor]:
    """All tensors, those of the extra part too. Whoever calls has kept removers out since before ``stored`` was opened."""

    def whole(found: Stored) -> dict[str, Tensor]:
        with repository.pool() as pool, repository.sources() as sources:
            return read_state(found, sources, pool, verify=verify)

    return _reread_if_replaced(repository, stored, whole)


def verify_all(
    repository: Repository, chosen: Sequence[ModelId] | None, progress: Callable[[int, int], None] | None = None
) -> list[CorruptFile]:
    """Read these, or all there are, and the documents they name, and return the damage."""
    damage = []
    models = repository.ids() if chosen is None else chosen
    for n, each in enumerate(models, 1):
        try:
            with repository.folder.adding():
                _verify(repository, repository.open(each))
        except CorruptFile as error:
            damage.append(error)
        except UnknownModel:
            if chosen is not None:
                raise
            # Deleted a moment ago, or a name that leads to no file.
            if each in repository.ids():
                damage.append(CorruptFile(repository.folder.root, f"a file of model {each}", "a name that leads to none"))
        if progress is not None:
            progress(n, len(models))
    return damage


def _verify(repository: Repository, stored: Stored) -> None:
    def whole(found: Stored) -> None:
        with repository.pool() as pool, repository.sources() as sources:
            verify_state(found, sources, pool)

    if stored.has_weights:
        _reread_if_replaced(repository, stored, whole)
    else:
        lineage_to_train(stored, repository.open)
    for document in (stored.about.environment, stored.about.code):
        if document is not None:
            repository.documents.load(document)


def _io_errors_as_damage(stored: Stored, reading: Callable[[Stored], _Found]) -> _Found:
    try:
        return reading(stored)
    except OSError as error:
        # What the disk cannot read is damage; anything else, such as too many open files, is none.
        if error.errno != errno.EIO:
            raise
        raise CorruptFile(stored.path, "bytes that can be read", error.strerror or str(error)) from error


def _reread_if_replaced(repository: Repository, stored: Stored, reading: Callable[[Stored], _Found]) -> _Found:
    """A model may be stored again while it is read: put right, or where removers are not kept out, without its base."""
    while True:
        try:
            return _io_errors_as_damage(stored, reading)
        except StorageError:
            if not repository.was_replaced(stored):
                raise
            stored = repository.open(stored.id)
