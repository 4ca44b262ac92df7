"""Committing a model that needs others: they are there when it is, and stay.

A lock sees to that, or where there is none a notice, left before looking whether they stay.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.notices import Notices
from modyn_dagster.model_store.shelf import Shelf
from modyn_dagster.model_store.stored import Stored


class NeededGoes(Exception):
    """A model was not committed, for ``models`` that it needs are being removed, or were."""

    def __init__(self, models: frozenset[ModelId]) -> None:
        super().__init__(", ".join(sorted(models)))
        self.models = models


@contextmanager
def relying(shelf: Shelf, stored: Stored) -> Iterator[None]:
    """Around the commit. When that fails the notice stays: a request that was not answered may still be obeyed."""
    notices = shelf.folder.notices
    if notices is None or not stored.needs:
        yield
        return
    notice = notices.announce(stored.id, stored.needs)
    if lost := _lost(shelf, notices, stored):
        notices.withdraw(notice)
        raise NeededGoes(lost)
    yield
    notices.withdraw(notice)


def _lost(shelf: Shelf, notices: Notices, stored: Stored) -> frozenset[ModelId]:
    # In this order: what went between the two is missing from the second.
    going = notices.going() & stored.needs
    return going or frozenset(need for need in stored.needs if not _holds(shelf, need, stored))


def _holds(shelf: Shelf, need: ModelId, stored: Stored) -> bool:
    """Whether it has the tensors that are needed of it: it may have been removed and stored again otherwise."""
    leaves = stored.record.leaves
    wanted = {entry.base or leaves[name].hash for name, entry in stored.entries.items() if entry.home == need}
    try:
        return wanted <= shelf.open(need).held.keys()
    except (UnknownModel, CorruptFile):
        return False
