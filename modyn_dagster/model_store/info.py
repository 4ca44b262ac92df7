"""Information about stored models: header contents, derivation trees, and differing layers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modyn_dagster.model_store.format.extra_state import PREFIX
from modyn_dagster.model_store.format.hash_tree import HashTree, ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.record import Record


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One name of the state of a model; ``tied_to`` names the tensor it shares its memory with."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    hash: str
    tied_to: str | None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Stored model without its weights.

    Attributes:
        id: identity of the model.
        path: file of the model: a ``Path`` where the store is a local folder.
        n_bytes: size of the file, without tensors in other files.
        n_elements: number of distinct elements.
        tensors: names in order, without those of the extra state.
        strategy: ``snapshot``, ``changed_layers``, ``delta`` or ``provenance``.
        reason: grounds for the strategy.
        base: the model it was derived from.
        needs: models without which it cannot be recovered.
        full_bytes: bytes of the tensors in memory.
        architecture: ``factory`` and ``args``.
        code: hash of the source text of the factory's module.
        environment: hash of the description of the environment.
        provenance: recipe of the training, if it is recorded.
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


def info_of(stored: StoredModel) -> ModelInfo:
    """Information about a model, from its header."""
    record, metadata = stored.record, stored.metadata
    owners = {name: record.leaves[record.ties.get(name, name)] for name in record.order if not name.startswith(PREFIX)}
    return ModelInfo(
        stored.id,
        stored.path,
        stored.n_bytes,
        sum(leaf.n_bytes // leaf.dtype.itemsize for leaf in record.leaves.values()),
        tuple(TensorInfo(name, leaf.dtype, leaf.shape, leaf.hash, record.ties.get(name)) for name, leaf in owners.items()),
        metadata.strategy,
        metadata.reason,
        metadata.base,
        tuple(sorted(stored.dependencies)),
        sum(leaf.n_bytes for leaf in record.leaves.values()),
        metadata.architecture,
        metadata.code,
        metadata.environment,
        metadata.provenance,
    )


def tree_of(models: Iterable[StoredModel]) -> Mapping[ModelId | None, Sequence[ModelId]]:
    """Children by parent, both sorted; those of None have no base, or a deleted one.

    Every model is a descendant of None: a cycle of bases, which only a forged file can have, begins with its first model.
    """
    recorded = {model.id: model.metadata.base for model in models}
    bases = {model: base if base in recorded else None for model, base in sorted(recorded.items())}
    rooted: set[ModelId] = set()
    for model in bases:
        path: dict[ModelId, None] = {}
        ancestor: ModelId | None = model
        while ancestor is not None and ancestor not in rooted and ancestor not in path:
            path[ancestor] = None
            ancestor = bases[ancestor]
        if ancestor is not None and ancestor in path:
            cycle = list(path)[list(path).index(ancestor) :]
            bases[min(cycle)] = None
        rooted.update(path)
    children: dict[ModelId | None, list[ModelId]] = {}
    for model, base in bases.items():
        children.setdefault(base, []).append(model)
    return children


def difference(one: Record, other: Record) -> list[str]:
    """Names whose tensors differ, or that only one record has, in the order of the first, then of the other."""
    changed = set(_tree(one).differences(_tree(other)))
    return [name for name in dict.fromkeys([*one.order, *other.order]) if name in changed and not name.startswith(PREFIX)]


def _tree(record: Record) -> HashTree:
    return HashTree.of({name: record.leaves[record.ties.get(name, name)].hash for name in record.order})
