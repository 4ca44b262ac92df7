"""Writer of one model: a strategy decides the content of the file, and one rename commits it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Final, Self

from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.model_store.backends.folder import Folder
from modyn_dagster.model_store.backends.tensor_index import FindTensor
from modyn_dagster.model_store.format.codec import Codec
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.format.model_file import PACKED, PLAIN, StoredModel, file_of
from modyn_dagster.model_store.format.pack import MAGIC, Entry, write_footer
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.format.safetensors_header import encode_header
from modyn_dagster.model_store.format.tensor_sources import TensorSources
from modyn_dagster.model_store.format.tensors import bytes_of
from modyn_dagster.model_store.strategies.encoding import write_parts
from modyn_dagster.model_store.strategies.plan import PlannedTensor, plan
from modyn_dagster.model_store.strategies.settings import ChangedLayers, Delta, Retrain, Snapshot, Strategy

#: Bytes of a model below which compression saves too little to justify a file that other tools cannot read.
MIN_COMPRESSED_BYTES: Final = 1 << 20


def no_match(leaf: str) -> ModelId | None:  # noqa: ARG001
    """Search that finds no tensor in any model."""
    return None


#: Guard around a commit: ``DependencyRemoved`` when a dependency is removed, ``ConcurrentSave`` after a save of the same model.
Reserve = Callable[[StoredModel], AbstractContextManager[None]]


@dataclass(frozen=True)
class ModelWriter:
    """Writer of the file of one model.

    Attributes:
        folder: folder of the store.
        state: tensors of the model by name.
        record: names, dtypes, shapes and hashes of the state.
        base: the model it derives from, if it is in the store.
        sources: sources of the tensors of bases.
        find: search for the tensors in other models.
        pool: threads that encode.
        threads: number of these threads.
        reserve: guard around the commit.
    """

    folder: Folder
    state: Mapping[str, Tensor]
    record: Record
    base: StoredModel | None
    sources: TensorSources
    find: FindTensor
    pool: Executor
    threads: int
    reserve: Reserve

    @property
    def model(self) -> ModelId:
        """Identity of the state."""
        return self.record.id

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(leaf.n_bytes for leaf in self.record.leaves.values())

    def without_base(self) -> Self:
        """Writer of the same model that depends on no other model."""
        return replace(self, base=None, find=no_match)

    def tensor_bytes(self, name: str) -> memoryview:
        """Bytes of one tensor."""
        return bytes_of(self.state[name].detach())

    def applicable(self, strategy: Strategy) -> Strategy:
        """The strategy itself, or a full model without a usable base or after ``full_model_interval`` models."""
        if isinstance(strategy, Snapshot):
            return replace(strategy, compress=self.n_bytes >= MIN_COMPRESSED_BYTES) if strategy.compress is None else strategy
        if isinstance(strategy, Delta | ChangedLayers):
            is_full_due = isinstance(strategy, Delta) and self._is_full_model_due(strategy)
            if self.base is None or not self.base.has_weights or is_full_due:
                return self.applicable(Snapshot())
        return strategy

    def fallback_reason(self, strategy: Strategy) -> str:
        """Reason for following another strategy than requested; empty where the requested one applies."""
        if self.applicable(strategy).kind == strategy.kind:
            return ""
        if self.base is None:
            return f"{strategy.kind} without a base"
        if not self.base.has_weights:
            return f"{strategy.kind}, but the base is stored as its provenance"
        return f"every {strategy.full_model_interval} models one is stored whole" if isinstance(strategy, Delta) else ""

    def parts(self, strategy: Strategy) -> list[PlannedTensor]:
        """Plan of every tensor."""
        base = None if isinstance(strategy, Snapshot) else self.base
        delta = strategy if isinstance(strategy, Delta) else None
        return plan(self.record, base, delta, self.sources, self.find)

    def write(self, strategy: Strategy, metadata: ModelMetadata) -> StoredModel:
        """Write the file by an applicable strategy, and return the stored model."""
        metadata = replace(metadata, strategy=strategy.kind, since_full=self._since_full(strategy))
        if isinstance(strategy, Snapshot) and not strategy.compress:
            return self._write_plain(metadata)
        if isinstance(strategy, Retrain) and metadata.provenance is None:
            raise ConfigError("model store", "provenance", None, "is needed to store a model as its provenance")
        parts = [] if isinstance(strategy, Retrain) else self.parts(strategy)
        return self.write_pack(parts, metadata)

    def write_pack(self, parts: Sequence[PlannedTensor], metadata: ModelMetadata) -> StoredModel:
        """Write the planned tensors to a packed file, and commit it."""
        path = file_of(self.folder.root, self.model, PACKED)
        with ExitStack() as guard, self.folder.writing(path) as file:
            file.write(MAGIC)
            entries = write_parts(file, parts, self.tensor_bytes, self.sources, self.pool, 2 * self.threads)
            write_footer(file, self.record, entries, metadata)
            stored = StoredModel(self.model, path, file.tell(), self.record, entries, metadata)
            guard.enter_context(self.reserve(stored))
        return stored

    def write_rebased(self, stored: StoredModel, removed: ModelId, metadata: ModelMetadata) -> StoredModel:
        """Write a stored model again without its dependency on ``removed``; the new file holds all tensors of the old one.

        Models that refer to tensors in the old file find them in the new one. A tensor stored by itself remains so: otherwise a
        difference to it would become a difference to a difference.
        """
        parts = []
        for part in plan(self.record, self.base, Delta(), self.sources, self.find):
            codec = stored.entries[part.name].codec
            elsewhere = part.entry is not None and part.entry.holder not in (removed, self.model)
            if elsewhere and codec == Codec.ELSEWHERE:
                parts.append(part)
                continue
            by_itself = codec in (Codec.RAW, Codec.PLANES)
            base = None if by_itself or (part.base is not None and part.base.holder in (removed, self.model)) else part.base
            parts.append(replace(part, entry=None, base=base))
        return self.write_pack(parts, metadata)

    def _write_plain(self, metadata: ModelMetadata) -> StoredModel:
        path = file_of(self.folder.root, self.model, PLAIN)
        places = self.record.places()
        header = encode_header(self.record.to_metadata() | metadata.to_metadata(), places)
        start = len(header)
        entries = {name: Entry(Codec.RAW, start + place.start, start + place.end) for name, place in places.items()}
        with ExitStack() as guard, self.folder.writing(path) as file:
            file.write(header)
            for name in places:
                file.write(self.tensor_bytes(name))
            stored = StoredModel(self.model, path, file.tell(), self.record, entries, metadata)
            guard.enter_context(self.reserve(stored))
        return stored

    def _is_full_model_due(self, delta: Delta) -> bool:
        interval = delta.full_model_interval
        return interval is not None and self.base is not None and self.base.metadata.since_full + 1 >= interval

    def _since_full(self, strategy: Strategy) -> int:
        return 0 if isinstance(strategy, Snapshot) or self.base is None else self.base.metadata.since_full + 1
