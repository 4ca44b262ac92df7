"""Which tensor of a model is stored how: referred to, as a difference, or by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from modyn_dagster.model_store.backends.tensor_index import SHARED, Find
from modyn_dagster.model_store.format.codec import Codec
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.pack import Entry
from modyn_dagster.model_store.format.record import Leaf, Record
from modyn_dagster.model_store.format.tensor_sources import Source, Sources
from modyn_dagster.model_store.strategies.settings import Delta

#: Below this a tensor is stored as it is: of most models these are half the tensors, and half a percent of the bytes.
TINY: Final = 4 << 10


@dataclass(frozen=True, slots=True)
class Base:
    """The tensor that a difference is taken to."""

    home: ModelId
    stored: Stored
    name: str
    source: Source

    @property
    def leaf(self) -> Leaf:
        """What it is."""
        return self.stored.record.leaves[self.name]


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor to store: ``entry`` says where it is already, else it is written, as a difference to ``base`` if that pays."""

    name: str
    leaf: Leaf
    entry: Entry | None = None
    base: Base | None = None
    codec: Codec = Codec.PLANES

    @property
    def n_bytes(self) -> int:
        """Bytes to encode."""
        return 0 if self.entry is not None else self.leaf.n_bytes


def plan(record: Record, base: Stored | None, delta: Delta | None, sources: Sources, find: Find) -> list[Part]:
    """Every tensor: a reference where the base, another model, or this one before has it; a difference where ``delta`` asks."""
    held = {} if base is None else dict(_held_by(base, sources))
    parts = []
    for name, leaf in record.leaves.items():
        home = held.get(leaf.hash) or (find(leaf.hash) if leaf.n_bytes >= SHARED else None)
        if leaf.n_bytes >= SHARED:
            held.setdefault(leaf.hash, home or record.id)
        if home is not None:
            parts.append(Part(name, leaf, Entry(Codec.ELSEWHERE, home=home)))
        elif delta is not None and base is not None and (found := _base_of(name, leaf, base, delta, sources)) is not None:
            parts.append(Part(name, leaf, base=found, codec=Codec(delta.operator)))
        else:
            parts.append(Part(name, leaf))
    return parts


def _held_by(base: Stored, sources: Sources) -> Mapping[str, ModelId]:
    filled = [name for name in base.entries if base.record.leaves[name].n_bytes]
    return {base.record.leaves[name].hash: sources.home(base, name)[0].id for name in filled}


def _base_of(name: str, leaf: Leaf, base: Stored, delta: Delta, sources: Sources) -> Base | None:
    """The keyframe's tensor, or one on the way there that is not deeper than allowed."""
    other = base.record.leaves.get(name)
    if other is None or (other.dtype, other.shape) != (leaf.dtype, leaf.shape) or leaf.n_bytes < TINY or name not in base.entries:
        return None
    stored, there = sources.home(base, name)
    while sources.depth(stored, there) >= delta.max_depth:
        stored, there = sources.base(stored, there)
    return Base(stored.id, stored, there, sources.of(stored, there))
