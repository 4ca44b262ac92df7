"""Removal of models, rebasing those that depend on them, and of files that nobody needs."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from modyn_dagster.backoff import growing_pauses
from modyn_dagster.errors import CorruptFile, ModelInUse
from modyn_dagster.model_store.commit.saving import rebase_model
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.repository import Repository

#: Seconds after which a file without a lock counts as abandoned by its writer.
ABANDONED: Final = 86_400.0
#: Seconds to wait for commits of models that need the one to remove. New savers see the reservation of the removal.
PATIENCE: Final = 30.0


def delete(repository: Repository, model: ModelId, *, rebase: bool) -> None:
    """Remove a model. Models that need it are stored again without it, or it is ``ModelInUse``."""
    repository.size(model)
    with repository.folder.removal(model):
        _wait_for_dependents(repository, model)
        base = _base_of(repository, model)
        others = repository.readable(except_for=model, strict=True)
        if base not in {other.id for other in others}:
            base = None
        children = [other for other in others if model in other.dependencies]
        _require_no_dependents(model, children, rebase)
        for child in children:
            rebase_model(repository, child, model, base)
            # Without a base the first child is stored by itself, and the others on it.
            base = base or child.id
        repository.remove(model)
        repository.settle_removals([model])


def delete_unneeded(repository: Repository, models: Iterable[ModelId]) -> list[ModelId]:
    """Remove models in one pass, each before the models it needs; missing ones are passed over.

    Returns those that stay, sorted: models outside of the set need them. A kill leaves a store in which every model has its base.
    """
    named = set(models)
    staying = _delete_chosen(repository, named & set(repository.ids()))
    repository.settle_removals(named)
    return staying


def _delete_chosen(repository: Repository, chosen: set[ModelId]) -> list[ModelId]:
    if not chosen:
        return []
    with repository.folder.removal(*sorted(chosen)):
        for model in chosen:
            _wait_for_dependents(repository, model)
        stored = {other.id: other for other in repository.readable(strict=True)}
        staying = needed_by(stored, stored.keys() - chosen) & chosen
        going = chosen - staying
        while leaves := going - {need for model in going & stored.keys() for need in stored[model].dependencies}:
            for model in sorted(leaves):
                repository.remove(model)
            going -= leaves
    return sorted(staying | going)


def needed_by(stored: Mapping[ModelId, StoredModel], models: Iterable[ModelId]) -> set[ModelId]:
    """Models that some models need, directly or through others."""
    needed: set[ModelId] = set()
    waiting = list(models)
    while waiting:
        new = (stored[waiting.pop()].dependencies & stored.keys()) - needed
        needed |= new
        waiting += new
    return needed


def _base_of(repository: Repository, model: ModelId) -> ModelId | None:
    try:
        return repository.open(model).metadata.base
    except CorruptFile:
        # A damaged model can be removed, too; its dependents are known from their own files.
        return None


def collect(repository: Repository, older_than: float, progress: Callable[[int, int], None] | None) -> Sequence[PurePath]:
    """Remove files that killed writers left and documents that no model refers to, and rebuild the index."""
    with repository.folder.removal():
        removed = list(repository.folder.leftovers(older_than))
        for path in removed:
            repository.folder.remove(path)
        models = repository.readable(progress=progress)
        removed += _remove_duplicates(repository, models, older_than)
        # Saving an unreadable model again may still repair it; the documents it refers to are unknown.
        if len(models) == len(repository.ids()):
            documents = {text for model in models for text in (model.metadata.environment, model.metadata.code) if text}
            removed += repository.documents.keep(documents, older_than)
        repository.index.rebuild((leaf, model.id) for model in models for leaf in repository.shareable(model))
    return removed


def _remove_duplicates(repository: Repository, models: Iterable[StoredModel], older_than: float) -> list[PurePath]:
    """Remove second files of models, which two concurrent savers left."""
    folder, paths = repository.folder, [repository.other_file(model) for model in models]
    removed = [path for path in paths if folder.size(path) is not None and folder.removable(path, older_than)]
    for path in removed:
        repository.folder.remove(path)
    return removed


def _wait_for_dependents(repository: Repository, model: ModelId) -> None:
    if (reservations := repository.folder.reservations) is None:
        return
    end, pauses = time.monotonic() + PATIENCE, growing_pauses(0.05, longest=1.0)
    while pending := reservations.pending_on(model, ABANDONED):
        if time.monotonic() >= end:
            remedy = "these are being saved; try again later (if their saver was killed: after a day, or gc(older_than=seconds))"
            raise ModelInUse(model, pending, remedy)
        time.sleep(next(pauses))


def _require_no_dependents(model: ModelId, children: Sequence[StoredModel], rebase: bool) -> None:
    if children and not rebase:
        ids = [child.id for child in children]
        raise ModelInUse(model, ids, "delete them first, or pass rebase=True (--rebase) to store them without it")
    if weightless := [child.id for child in children if not child.has_weights]:
        remedy = "these have no weights: load them with retrain=True and save them by another strategy first"
        raise ModelInUse(model, weightless, remedy)
