"""Committing a model that others may come to need, and that may need others: these are there when it is, and stay as they are.

Locks see to that, or where there are none a notice, left before looking whether they stay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel
from modyn_dagster.model_store.backends.reservations import Notices
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.repository import Repository


class DependencyRemoved(Exception):
    """A model was not committed, for ``models`` that it needs are being removed or changed, or were."""

    def __init__(self, models: frozenset[ModelId]) -> None:
        super().__init__(", ".join(sorted(models)))
        self.models = models


class ConcurrentSave(Exception):
    """A model was not committed, for another saver of it was first."""


@contextmanager
def relying(repository: Repository, is_first: Callable[[], bool], stored: Stored) -> Iterator[None]:
    """Around the commit, if nobody changed what is there of the model: what others found in its file, they find on.

    When the commit fails the notice stays: a request that was not answered may still be obeyed.
    """
    notices = repository.folder.notices
    if notices is None:
        with repository.folder.turn(stored.path):
            _require_first(is_first)
            yield
    elif not stored.needs:
        # Whoever relies on the tensors of this model finds all of them in this file.
        yield
    else:
        notice = notices.announce(stored.id, stored.needs)
        try:
            _require_first(is_first)
            _require_stay(repository, notices, stored)
        except (DependencyRemoved, ConcurrentSave, StorageError):
            notices.withdraw(notice)
            raise
        yield
        notices.withdraw(notice)


def _require_first(is_first: Callable[[], bool]) -> None:
    if not is_first():
        raise ConcurrentSave


def _require_stay(repository: Repository, notices: Notices, stored: Stored) -> None:
    # In this order: what went or changed between the questions shows in the last.
    changing = (notices.going() | notices.coming()) & stored.needs
    if lost := changing or frozenset(need for need in stored.needs if not _holds(repository, need, stored)):
        raise DependencyRemoved(lost)


def _holds(repository: Repository, need: ModelId, stored: Stored) -> bool:
    """Whether it has the tensors that are needed of it: it may have been removed and stored again otherwise."""
    leaves = stored.record.leaves
    wanted = {entry.base or leaves[name].hash for name, entry in stored.entries.items() if entry.home == need}
    try:
        return wanted <= repository.open(need).held.keys()
    except (UnknownModel, CorruptFile):
        return False
