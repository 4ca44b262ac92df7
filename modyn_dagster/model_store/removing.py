"""What may go, and how those that need it come to do without."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from modyn_dagster.errors import CorruptFile, ModelInUse
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.stored import Stored

#: Stores a model again without the one that goes, with another base (None: by itself).
Rebase = Callable[[Stored, ModelId, ModelId | None], None]


def children_of(model: ModelId, others: Iterable[Stored]) -> list[Stored]:
    """The models that cannot be had without this one."""
    return [other for other in others if other.id != model and model in other.needs]


def make_independent(gone: Stored, children: Sequence[Stored], rebase: Rebase | None, base: ModelId | None) -> None:
    """Rebase every child on ``base``, that of the one that goes; without one the first by itself, the others on the first.

    ``ModelInUse`` when there is no ``rebase``, or a child has no weights: it could only be trained again.
    """
    ids = [child.id for child in children]
    if children and rebase is None:
        raise ModelInUse(gone.id, ids, "delete them first, or pass rebase=True to store them without it")
    if without := [child.id for child in children if not child.has_weights]:
        raise ModelInUse(gone.id, without, "these have no weights: train them again, delete them and save them with weights")
    for child in children:
        if rebase is not None:
            rebase(child, gone.id, base)
            base = base or child.id


def readable(ids: Iterable[ModelId], open_model: Callable[[ModelId], Stored]) -> list[Stored]:
    """All models that can be opened."""
    found = []
    for model in ids:
        try:
            found.append(open_model(model))
        except CorruptFile:
            continue
    return found


def leftovers(root: Path) -> list[Path]:
    """Files that killed writers left behind; nobody may be writing now."""
    return [path for path in root.glob("**/.*.tmp") if path.is_file()]
