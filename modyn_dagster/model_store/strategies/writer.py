"""From a state to a file: the strategy decides which, and one rename commits it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Final

from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.model_store.backends.folder import Folder
from modyn_dagster.model_store.backends.tensor_index import Find
from modyn_dagster.model_store.format.codec import Codec
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import About
from modyn_dagster.model_store.format.model_file import PACKED, PLAIN, Stored, file_of
from modyn_dagster.model_store.format.pack import MAGIC, Entry, write_footer
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.format.safetensors_header import encode_header
from modyn_dagster.model_store.format.tensor_sources import Sources
from modyn_dagster.model_store.format.tensors import bytes_of
from modyn_dagster.model_store.strategies.encoding import write_parts
from modyn_dagster.model_store.strategies.plan import Part, plan
from modyn_dagster.model_store.strategies.settings import ChangedLayers, Delta, Retrain, Snapshot, Strategy

#: Below this, compressing saves nothing worth a file that other tools cannot read.
SMALL: Final = 1 << 20


@dataclass(frozen=True)
class Saving:
    """Everything that goes into the file of one model.

    Attributes:
        folder: of the store.
        state: its tensors by name.
        record: the same, hashed.
        base: the model it derives from, if it is in the store.
        sources: to read bases from.
        find: other models' tensors.
        pool: threads to encode in.
        threads: how many these are.
        relying: around the commit; ``DependencyRemoved`` when a model it needs is removed,
            ``ConcurrentSave`` when another saver stored it.
    """

    folder: Folder
    state: Mapping[str, Tensor]
    record: Record
    base: Stored | None
    sources: Sources
    find: Find
    pool: Executor
    threads: int
    relying: Callable[[Stored], AbstractContextManager[None]]

    @property
    def model(self) -> ModelId:
        """The identity of the state."""
        return self.record.id

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(leaf.n_bytes for leaf in self.record.leaves.values())

    def content(self, name: str) -> memoryview:
        """The bytes of one tensor."""
        return bytes_of(self.state[name].detach())

    def settled(self, strategy: Strategy) -> Strategy:
        """The strategy that can be followed: a whole model where there is nothing to refer to, or its turn has come."""
        if isinstance(strategy, Snapshot):
            return replace(strategy, compress=self.n_bytes >= SMALL) if strategy.compress is None else strategy
        if isinstance(strategy, Delta | ChangedLayers):
            is_turn = isinstance(strategy, Delta) and self._is_turn_of_a_full_one(strategy)
            if self.base is None or not self.base.has_weights or is_turn:
                return self.settled(Snapshot())
        return strategy

    def why(self, strategy: Strategy) -> str:
        """Why another strategy than the one asked for is followed; empty when it is that one."""
        if self.settled(strategy).kind == strategy.kind:
            return ""
        if self.base is None:
            return f"{strategy.kind} without a base"
        if not self.base.has_weights:
            return f"{strategy.kind}, but the base is stored as its provenance"
        return f"every {strategy.full_model_interval} models one is stored whole" if isinstance(strategy, Delta) else ""

    def parts(self, strategy: Strategy) -> list[Part]:
        """What becomes of each tensor."""
        base = None if isinstance(strategy, Snapshot) else self.base
        delta = strategy if isinstance(strategy, Delta) else None
        return plan(self.record, base, delta, self.sources, self.find)

    def write(self, strategy: Strategy, about: About) -> Stored:
        """Write the file by a settled strategy, and say what is there now."""
        about = replace(about, strategy=strategy.kind, since_full=self._since_full(strategy))
        if isinstance(strategy, Snapshot) and not strategy.compress:
            return self._write_plain(about)
        if isinstance(strategy, Retrain) and about.provenance is None:
            raise ConfigError("model store", "provenance", None, "is needed to store a model as its provenance")
        parts = [] if isinstance(strategy, Retrain) else self.parts(strategy)
        return self.write_pack(parts, about)

    def write_pack(self, parts: Sequence[Part], about: About) -> Stored:
        """Write these parts, and commit them."""
        path = file_of(self.folder.root, self.model, PACKED)
        with ExitStack() as committing, self.folder.writing(path) as file:
            file.write(MAGIC)
            entries = write_parts(file, parts, self.content, self.sources, self.pool, 2 * self.threads)
            write_footer(file, self.record, entries, about)
            stored = Stored(self.model, path, file.tell(), self.record, entries, about)
            committing.enter_context(self.relying(stored))
        return stored

    def write_rebased(self, stored: Stored, gone: ModelId, about: About) -> Stored:
        """Write a stored model again so that it does not need another one; what its file holds, it goes on holding.

        Models that refer to tensors in this file find them there afterwards, too; and as near: what is stored by itself stays so,
        else a difference to it would become one to a difference.
        """
        parts = []
        for part in plan(self.record, self.base, Delta(), self.sources, self.find):
            codec = stored.entries[part.name].codec
            elsewhere = part.entry is not None and part.entry.home not in (gone, self.model)
            if elsewhere and codec == Codec.ELSEWHERE:
                parts.append(part)
                continue
            by_itself = codec in (Codec.RAW, Codec.PLANES)
            base = None if by_itself or (part.base is not None and part.base.home in (gone, self.model)) else part.base
            parts.append(replace(part, entry=None, base=base))
        return self.write_pack(parts, about)

    def _write_plain(self, about: About) -> Stored:
        path = file_of(self.folder.root, self.model, PLAIN)
        places = self.record.places()
        header = encode_header(self.record.to_metadata() | about.to_metadata(), places)
        start = len(header)
        entries = {name: Entry(Codec.RAW, start + place.start, start + place.end) for name, place in places.items()}
        with ExitStack() as committing, self.folder.writing(path) as file:
            file.write(header)
            for name in places:
                file.write(self.content(name))
            stored = Stored(self.model, path, file.tell(), self.record, entries, about)
            committing.enter_context(self.relying(stored))
        return stored

    def _is_turn_of_a_full_one(self, delta: Delta) -> bool:
        interval = delta.full_model_interval
        return interval is not None and self.base is not None and self.base.about.since_full + 1 >= interval

    def _since_full(self, strategy: Strategy) -> int:
        return 0 if isinstance(strategy, Snapshot) or self.base is None else self.base.about.since_full + 1
