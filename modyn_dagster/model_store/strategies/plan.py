"""Plan of a file: each tensor of a model is a reference, a difference, or stored by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from modyn_dagster.model_store.backends.tensor_index import MIN_SHARED_BYTES, FindTensor
from modyn_dagster.model_store.format.codec import Codec
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.pack import Entry
from modyn_dagster.model_store.format.record import Leaf, Record
from modyn_dagster.model_store.format.tensor_sources import TensorSource, TensorSources
from modyn_dagster.model_store.strategies.settings import Delta

#: Bytes below which a tensor is stored unencoded: half the tensors of most models, and half a percent of their bytes.
MIN_ENCODED_BYTES: Final = 4 << 10


@dataclass(frozen=True, slots=True)
class DeltaBase:
    """Tensor that a difference refers to: the model that holds it, the name there, and the source of the bytes."""

    stored: StoredModel
    name: str
    source: TensorSource

    @property
    def holder(self) -> ModelId:
        """Model that holds the tensor."""
        return self.stored.id

    @property
    def leaf(self) -> Leaf:
        """Dtype, shape and hash of the tensor."""
        return self.stored.record.leaves[self.name]


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """Plan of one tensor: a reference by ``entry``, else written, as a difference to ``base`` if that pays."""

    name: str
    leaf: Leaf
    entry: Entry | None = None
    base: DeltaBase | None = None
    codec: Codec = Codec.PLANES

    @property
    def n_bytes(self) -> int:
        """Bytes to encode."""
        return 0 if self.entry is not None else self.leaf.n_bytes


def plan(
    record: Record, base: StoredModel | None, delta: Delta | None, sources: TensorSources, find: FindTensor
) -> list[PlannedTensor]:
    """Plan every tensor.

    A tensor is a reference where the base, another model, or this model under an earlier name holds it, and a difference
    where ``delta`` allows it.
    """
    holders = {} if base is None else dict(_tensors_of_base(base, sources))
    planned = []
    for name, leaf in record.leaves.items():
        holder = holders.get(leaf.hash) or (find(leaf.hash) if leaf.n_bytes >= MIN_SHARED_BYTES else None)
        if leaf.n_bytes >= MIN_SHARED_BYTES:
            holders.setdefault(leaf.hash, holder or record.id)
        if holder is not None:
            planned.append(PlannedTensor(name, leaf, Entry(Codec.ELSEWHERE, holder=holder)))
        elif delta is not None and base is not None and (delta_base := _base_of(name, leaf, base, delta, sources)) is not None:
            planned.append(PlannedTensor(name, leaf, base=delta_base, codec=Codec(delta.operator)))
        else:
            planned.append(PlannedTensor(name, leaf))
    return planned


def _tensors_of_base(base: StoredModel, sources: TensorSources) -> Mapping[str, ModelId]:
    filled = [name for name in base.entries if base.record.leaves[name].n_bytes]
    return {base.record.leaves[name].hash: sources.holder(base, name)[0].id for name in filled}


def _base_of(name: str, leaf: Leaf, base: StoredModel, delta: Delta, sources: TensorSources) -> DeltaBase | None:
    """The keyframe's tensor, or the first on the chain to it that leaves the difference within the depth limit."""
    other = base.record.leaves.get(name)
    if other is None or name not in base.entries or leaf.n_bytes < MIN_ENCODED_BYTES:
        return None
    if (other.dtype, other.shape) != (leaf.dtype, leaf.shape):
        return None
    stored, base_name = sources.holder(base, name)
    while sources.depth(stored, base_name) >= delta.max_depth:
        stored, base_name = sources.delta_base(stored, base_name)
    return DeltaBase(stored, base_name, sources.open(stored, base_name))
