"""What may go, and how those that need it come to do without."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Final

from modyn_dagster.backoff import growing_pauses
from modyn_dagster.errors import CorruptFile, ModelInUse
from modyn_dagster.model_store.commit.saving import rebase_model
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import About
from modyn_dagster.model_store.format.model_file import PACKED, Stored, file_of
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.repository import Repository

#: Seconds after which nobody is taken to be writing a file any more, where nobody can be kept from it.
ABANDONED: Final = 86_400.0
#: Seconds to wait for those who are about to commit a model that needs the one to remove. New ones see that it goes.
PATIENCE: Final = 30.0


def delete(repository: Repository, model: ModelId, *, rebase: bool) -> None:
    """Remove a model. Those that need it are stored again without it, or it is ``ModelInUse``."""
    repository.size(model)
    with repository.folder.removing(model):
        _wait_for_dependents(repository, model)
        try:
            gone = repository.open(model)
        except CorruptFile:
            # What it was to others can no longer be read from it, only from them.
            nothing = Record((), {}, {})
            gone = Stored(model, file_of(repository.folder.root, model, PACKED), 0, nothing, {}, About("snapshot"))
        others = repository.readable(but=model, sure=True)
        base = gone.about.base if gone.about.base in {other.id for other in others} else None
        children = _children_of(model, others)
        _require_no_dependents(gone.id, children, rebase)
        for child in children:
            rebase_model(repository, child, gone.id, base)
            # Without a base the first is stored by itself, and the others on it.
            base = base or child.id
        repository.remove(model)


def collect(repository: Repository, older_than: float, progress: Callable[[int, int], None] | None) -> Sequence[PurePath]:
    """Remove what killed writers left, and documents that no model refers to; makes the index again."""
    with repository.folder.removing():
        gone = list(repository.folder.leftovers(older_than))
        for path in gone:
            repository.folder.remove(path)
        models = repository.readable(progress=progress)
        gone += _remove_duplicates(repository, models, older_than)
        # Unreadable models may still be put right by saving them again; the documents they name are not known.
        if len(models) == len(repository.ids()):
            named = {text for each in models for text in (each.about.environment, each.about.code) if text}
            gone += repository.documents.keep(named, older_than)
        repository.index.rebuild((leaf, each.id) for each in models for leaf in repository.shareable(each))
    return gone


def _remove_duplicates(repository: Repository, models: Iterable[Stored], older_than: float) -> list[PurePath]:
    """Second files of models, which two savers left that worked at once; removed."""
    found = [repository.other_file(each) for each in models]
    removed = [
        path for path in found if repository.folder.size(path) is not None and repository.folder.removable(path, older_than)
    ]
    for path in removed:
        repository.folder.remove(path)
    return removed


def _wait_for_dependents(repository: Repository, model: ModelId) -> None:
    if (notices := repository.folder.notices) is None:
        return
    end, pauses = time.monotonic() + PATIENCE, growing_pauses(0.05, longest=1.0)
    while coming := notices.pending_on(model, ABANDONED):
        if time.monotonic() >= end:
            remedy = (
                "these are being saved; try again later (should their saver be killed: after a day, or gc(older_than=seconds))"
            )
            raise ModelInUse(model, coming, remedy)
        time.sleep(next(pauses))


def _children_of(model: ModelId, others: Iterable[Stored]) -> list[Stored]:
    """The models that cannot be had without this one."""
    return [other for other in others if model in other.needs]


def _require_no_dependents(gone: ModelId, children: Sequence[Stored], rebase: bool) -> None:
    if children and not rebase:
        ids = [child.id for child in children]
        raise ModelInUse(gone, ids, "delete them first, or pass rebase=True (--rebase) to store them without it")
    if without := [child.id for child in children if not child.has_weights]:
        raise ModelInUse(
            gone, without, "these have no weights: load them with retrain=True and save them by another strategy first"
        )
