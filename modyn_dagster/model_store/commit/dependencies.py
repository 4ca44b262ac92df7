"""Reservation of dependencies: at the commit of a model, the models it needs exist and hold the needed tensors.

Locks ensure that, or where there are none a reservation, left before the dependencies are checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel
from modyn_dagster.model_store.backends.reservations import Reservations
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.repository import Repository


class DependencyRemoved(Exception):
    """Failed commit: ``models`` that the model needs are being removed or changed, or were."""

    def __init__(self, models: frozenset[ModelId]) -> None:
        super().__init__(", ".join(sorted(models)))
        self.models = models


class ConcurrentSave(Exception):
    """Failed commit: another saver of the same model was first."""


@contextmanager
def reserve_dependencies(repository: Repository, unchanged: Callable[[], bool], stored: StoredModel) -> Iterator[None]:
    """Guard the commit of a model; ``unchanged`` says whether its present file, which others may rely on, is still the same.

    After a failed commit the reservation stays: a request without an answer may still be executed.
    """
    reservations = repository.folder.reservations
    if reservations is None:
        with repository.folder.commit_lock(stored.path):
            _require_unchanged(unchanged)
            yield
    elif not stored.dependencies:
        # Models that rely on the tensors of this model find all of them in this file.
        yield
    else:
        reservation = reservations.announce(stored.id, stored.dependencies)
        try:
            _require_unchanged(unchanged)
            _require_dependencies(repository, reservations, stored)
        except (DependencyRemoved, ConcurrentSave, StorageError):
            reservations.withdraw(reservation)
            raise
        yield
        reservations.withdraw(reservation)


def _require_unchanged(unchanged: Callable[[], bool]) -> None:
    if not unchanged():
        raise ConcurrentSave


def _require_dependencies(repository: Repository, reservations: Reservations, stored: StoredModel) -> None:
    # In this order: a removal or change between both checks shows in the second.
    changing = (reservations.removals() | reservations.commits()) & stored.dependencies
    if lost := changing or frozenset(model for model in stored.dependencies if not _holds(repository, model, stored)):
        raise DependencyRemoved(lost)


def _holds(repository: Repository, model: ModelId, stored: StoredModel) -> bool:
    """True if a dependency holds the needed tensors: it may have been removed and stored again in another way."""
    leaves = stored.record.leaves
    needed = {entry.base or leaves[name].hash for name, entry in stored.entries.items() if entry.holder == model}
    try:
        return needed <= repository.open(model).own_tensors.keys()
    except (UnknownModel, CorruptFile):
        return False
