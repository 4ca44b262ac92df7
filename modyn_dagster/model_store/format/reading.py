"""Reading of a state from its file, each tensor verified on the way."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import PurePath
from typing import TypeVar

from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.record import Leaf
from modyn_dagster.model_store.format.tensor_sources import (
    TensorSource,
    TensorSources,
    read_unverified,
    read_verified,
    require_hash,
)
from modyn_dagster.model_store.format.tensors import allocate, tensor_of
from modyn_dagster.model_store.format.threads import batches, executor_for

_Read = TypeVar("_Read")


def read_state(stored: StoredModel, sources: TensorSources, pool: Executor, *, verify: bool = True) -> dict[str, Tensor]:
    """All tensors on the CPU. ``CorruptFile`` names the first tensor that changed."""
    _require_room(stored, sum(leaf.n_bytes for leaf in stored.record.leaves.values()))

    def read(leaf: Leaf, source: TensorSource) -> tuple[Tensor, str]:
        buffer = allocate(leaf.n_bytes)
        content = buffer.numpy().data
        if verify:
            return buffer, read_verified(source, leaf, content)
        read_unverified(source, leaf, content)
        return buffer, leaf.hash

    tensors = {}
    for name, (buffer, digest) in _map_tensors(stored, sources, pool, read):
        require_hash(sources, stored, name, digest)
        tensors[name] = _tensor(buffer, stored.record.leaves[name], name, stored.path)
    return {name: tensors[stored.record.ties.get(name, name)] for name in stored.record.order}


def verify_state(stored: StoredModel, sources: TensorSources, pool: Executor) -> None:
    """Read every tensor and keep none."""

    def read(leaf: Leaf, source: TensorSource) -> str:
        return read_verified(source, leaf, allocate(leaf.n_bytes).numpy().data)

    _require_room(stored, max((leaf.n_bytes for leaf in stored.record.leaves.values()), default=0))
    for name, digest in _map_tensors(stored, sources, pool, read):
        require_hash(sources, stored, name, digest)


def _map_tensors(
    stored: StoredModel, sources: TensorSources, pool: Executor, read: Callable[[Leaf, TensorSource], _Read]
) -> Iterator[tuple[str, _Read]]:
    """Results of ``read`` by name, in the order of the record."""

    def read_batch(batch: list[tuple[str, TensorSource]]) -> list[tuple[str, _Read]]:
        return [(name, read(leaves[name], source)) for name, source in batch]

    leaves = stored.record.leaves
    origins = [(name, sources.open(stored, name)) for name in leaves]
    pool = executor_for(pool, sum(leaf.n_bytes for leaf in leaves.values()))
    for result in [pool.submit(read_batch, batch) for batch in batches(origins, lambda item: leaves[item[0]].n_bytes)]:
        yield from result.result()


def _require_room(stored: StoredModel, n_bytes: int) -> None:
    if n_bytes > (limit := total_memory()):
        raise CorruptFile(stored.path, f"at most {limit} bytes of tensors, the memory of this machine", f"{n_bytes} bytes")


def total_memory() -> int:
    """Bytes of memory of this machine; no larger model was ever here."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _tensor(buffer: Tensor, leaf: Leaf, name: str, path: PurePath) -> Tensor:
    try:
        return tensor_of(buffer, leaf.dtype, leaf.shape)
    except (RuntimeError, TypeError) as error:
        raise StorageError(f"{path}: tensor {name!r} of shape {leaf.shape} cannot be made: {error}") from error
