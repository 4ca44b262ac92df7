"""How models relate: which derives from which, and where two of them differ."""

from collections.abc import Iterable, Mapping, Sequence

from modyn_dagster.model_store.extra import PREFIX
from modyn_dagster.model_store.hash_tree import HashTree, ModelId
from modyn_dagster.model_store.record import Record
from modyn_dagster.model_store.stored import Stored


def tree_of(models: Iterable[Stored]) -> Mapping[ModelId | None, Sequence[ModelId]]:
    """Children by parent, both sorted; None has the models without a base, or whose base is gone.

    Every model is below None: of a cycle of bases, which only a file made to mislead can have, the first one is.
    """
    recorded = {model.id: model.about.base for model in models}
    bases = {model: base if base in recorded else None for model, base in sorted(recorded.items())}
    ends: set[ModelId] = set()
    for model in bases:
        path: dict[ModelId, None] = {}
        following: ModelId | None = model
        while following is not None and following not in ends and following not in path:
            path[following] = None
            following = bases[following]
        if following is not None and following in path:
            cycle = list(path)[list(path).index(following) :]
            bases[min(cycle)] = None
        ends.update(path)
    children: dict[ModelId | None, list[ModelId]] = {}
    for model, base in bases.items():
        children.setdefault(base, []).append(model)
    return children


def difference(one: Record, other: Record) -> list[str]:
    """Names whose tensors differ, or that only one has, in the order of the first, then of the other."""
    changed = set(_tree(one).differences(_tree(other)))
    return [name for name in dict.fromkeys([*one.order, *other.order]) if name in changed and not name.startswith(PREFIX)]


def _tree(record: Record) -> HashTree:
    return HashTree.of({name: record.leaves[record.ties.get(name, name)].hash for name in record.order})
