"""How models relate: which derives from which, and where two of them differ."""

from collections.abc import Iterable, Mapping, Sequence

from modyn_dagster.model_store.extra import PREFIX
from modyn_dagster.model_store.hash_tree import HashTree, ModelId
from modyn_dagster.model_store.record import Record
from modyn_dagster.model_store.stored import Stored


def tree_of(models: Iterable[Stored]) -> Mapping[ModelId | None, Sequence[ModelId]]:
    """Children by parent, both sorted; None has the models without a base, or whose base is gone."""
    bases = {model.id: model.about.base for model in models}
    children: dict[ModelId | None, list[ModelId]] = {}
    for model, base in sorted(bases.items()):
        children.setdefault(base if base in bases else None, []).append(model)
    return children


def difference(one: Record, other: Record) -> list[str]:
    """Names whose tensors differ, or that only one has, in the order of the first, then of the other."""
    changed = set(_tree(one).differences(_tree(other)))
    return [name for name in dict.fromkeys([*one.order, *other.order]) if name in changed and not name.startswith(PREFIX)]


def _tree(record: Record) -> HashTree:
    return HashTree.of({name: record.leaves[record.ties.get(name, name)].hash for name in record.order})
