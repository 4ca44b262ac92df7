"""Information about stored models: the content of a header, derivation trees, and differing layers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modyn_dagster.model_store.format.extra_state import PREFIX
from modyn_dagster.model_store.format.hash_tree import HashTree, ModelId
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.record import Record


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One name of a model's state; ``tied_to`` names the tensor it shares its memory with."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    hash: str
    tied_to: str | None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A stored model without its weights.

    Attributes:
        id: its identity.
        path: its file: a ``Path`` where the store is a local folder.
        n_bytes: size of that, without what it shares with others.
        n_elements: its number of distinct elements.
        tensors: its names, in order, without those of the extra state.
        strategy: ``snapshot``, ``changed_layers``, ``delta`` or ``provenance``.
        reason: why that.
        base: the model it was derived from.
        needs: models it cannot be had without.
        full_bytes: what its tensors take in memory.
        architecture: ``factory`` and ``args``.
        code: hash of the source text of the factory's module.
        environment: hash of the description of where it was made.
        provenance: how to train it again, if that is recorded.
    """

    id: ModelId
    path: Any
    n_bytes: int
    n_elements: int
    tensors: tuple[TensorInfo, ...]
    strategy: str
    reason: str
    base: ModelId | None
    needs: tuple[ModelId, ...]
    full_bytes: int
    architecture: Mapping[str, Any] | None
    code: str | None
    environment: str | None
    provenance: Mapping[str, Any] | None


def info_of(stored: Stored) -> ModelInfo:
    """What there is to tell."""
    record, about = stored.record, stored.about
    owners = {name: record.leaves[record.ties.get(name, name)] for name in record.order if not name.startswith(PREFIX)}
    return ModelInfo(
        stored.id,
        stored.path,
        stored.n_bytes,
        sum(leaf.n_bytes // leaf.dtype.itemsize for leaf in record.leaves.values()),
        tuple(TensorInfo(name, leaf.dtype, leaf.shape, leaf.hash, record.ties.get(name)) for name, leaf in owners.items()),
        about.strategy,
        about.reason,
        about.base,
        tuple(sorted(stored.needs)),
        sum(leaf.n_bytes for leaf in record.leaves.values()),
        about.architecture,
        about.code,
        about.environment,
        about.provenance,
    )


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
