"""Record of a model: order of the names, ties, dtypes that safetensors lacks, and the hash of every tensor."""

import json
import reprlib
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import PurePath
from typing import Any, Final, Self

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.hash_tree import HASHING, ModelId, leaf_digest, leaf_hash, model_id
from modyn_dagster.model_store.format.safetensors_header import METADATA, Header, Place
from modyn_dagster.model_store.format.tensors import (
    CODES,
    DTYPES,
    VIEWED,
    VIEWED_NAMES,
    allocate,
    bytes_of,
    n_bytes_of,
    require_storable,
    tensor_of,
)
from modyn_dagster.model_store.format.threads import InlineExecutor, batches, executor_for
from modyn_dagster.values.json_values import compact_json

_KEY: Final = "modyn"
_INLINE: Final = InlineExecutor()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One stored tensor: dtype, shape and hash."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    hash: str
    #: Bytes of the elements.
    n_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bytes", n_bytes_of(self.dtype, self.shape))

    def digest(self) -> blake3:
        """Start the digest that becomes ``hash`` after the bytes of the tensor."""
        return leaf_digest(self.dtype, self.shape)


@dataclass(frozen=True)
class Record:
    """Description of a state without its bytes.

    Attributes:
        order: all names, in the order of the state.
        leaves: the stored tensors by name, in the order of the state.
        ties: names that share all memory of a stored tensor.
    """

    order: tuple[str, ...]
    leaves: Mapping[str, Leaf]
    ties: Mapping[str, str]

    @classmethod
    def of(cls, state: Mapping[str, Tensor], pool: Executor = _INLINE) -> Self:
        """Describe a state and hash its tensors in ``pool``; ``StorageError`` names what cannot be stored."""
        owned: dict[str, Tensor] = {}
        ties: dict[str, str] = {}
        owners: dict[tuple[object, ...], str] = {}
        for name, value in state.items():
            _require_name(name)
            tensor = require_storable(name, value)
            owner = owners.setdefault(_memory(tensor), name) if tensor.numel() else name
            if owner == name:
                owned[name] = tensor
            else:
                ties[name] = owner
        pool = executor_for(pool, sum(tensor.nbytes for tensor in owned.values()))
        leaves = chain.from_iterable(pool.map(_leaves, batches(owned.values(), lambda tensor: tensor.nbytes)))
        return cls(tuple(state), dict(zip(owned, leaves, strict=True)), ties)

    @cached_property
    def id(self) -> ModelId:
        """Identity of the state."""
        return model_id({name: leaf.hash for name, leaf in self.leaves.items()}, self.order, self.ties)

    def places(self) -> dict[str, Place]:
        """Place of each tensor in a plain file: wide elements first, so that every tensor is aligned to its elements."""
        places, end = {}, 0
        for name, leaf in sorted(self.leaves.items(), key=lambda item: -item[1].dtype.itemsize):
            viewed = leaf.dtype in VIEWED_NAMES
            shape = (*leaf.shape, leaf.dtype.itemsize) if viewed else leaf.shape
            places[name] = Place("U8" if viewed else CODES[leaf.dtype], shape, end, end + leaf.n_bytes)
            end += leaf.n_bytes
        return places

    def to_metadata(self) -> dict[str, str]:
        """Metadata of the header beside the places; equal states give equal bytes."""
        viewed = {name: VIEWED_NAMES[leaf.dtype] for name, leaf in self.leaves.items() if leaf.dtype in VIEWED_NAMES}
        hashes = {name: leaf.hash for name, leaf in self.leaves.items()}
        content = {"order": self.order, "ties": self.ties, "viewed": viewed, "hashes": hashes, "hashing": HASHING}
        return {"format": "pt", _KEY: compact_json(content)}

    @classmethod
    def from_header(cls, header: Header, path: PurePath) -> Self:
        """Parse the record of a plain file; ``CorruptFile`` where it contradicts the places."""
        content = _content(header, path)
        order, ties = content["order"], content["ties"]
        stored = [name for name in order if name not in ties]
        names_fit = len(set(order)) == len(order) and set(stored) == set(header.places) == set(content["hashes"])
        ties_fit = set(ties) <= set(order) and set(ties.values()) <= set(stored) and set(content["viewed"]) <= set(stored)
        if not (names_fit and ties_fit):
            raise CorruptFile(path, "the names of the tensors it holds", "a record of other names")
        require_blake3(content, path)
        leaves = {}
        for name in stored:
            dtype, shape = _dtype_and_shape(name, header.places[name], content["viewed"].get(name), path)
            leaves[name] = Leaf(dtype, shape, content["hashes"][name])
        return cls(tuple(order), leaves, ties)


def require_blake3(content: Mapping[str, Any], path: PurePath) -> None:
    """``CorruptFile`` for a header whose tensors are hashed otherwise, or that names no hash function."""
    hashing = content.get("hashing")
    if hashing != HASHING:
        raise CorruptFile(path, f"tensors hashed with {HASHING}", str(hashing)[:200])


def as_loaded(state: Mapping[str, Tensor], record: Record) -> dict[str, Tensor]:
    """The state as loading returns it: plain contiguous tensors on the CPU with memory of their own, tied as recorded.

    A further training must not depend on the memory layout of the original.
    """
    tensors = {}
    for name, leaf in record.leaves.items():
        buffer = allocate(leaf.n_bytes)
        buffer.numpy()[:] = np.frombuffer(bytes_of(state[name].detach()), np.uint8)
        tensors[name] = tensor_of(buffer, leaf.dtype, leaf.shape)
    return {name: tensors[record.ties.get(name, name)] for name in record.order}


def _leaves(tensors: list[Tensor]) -> list[Leaf]:
    return [Leaf(t.dtype, tuple(t.shape), leaf_hash(t.dtype, t.shape, bytes_of(t))) for t in tensors]


def _require_name(name: object) -> None:
    if not isinstance(name, str) or name == METADATA:
        raise StorageError(f"{name!r} cannot be the name of a tensor")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise StorageError(f"{name!r} cannot be the name of a tensor: {error.reason}") from error


def _memory(tensor: Tensor) -> tuple[object, ...]:
    """Key that is equal for tensors with the same elements of the same memory."""
    flags = tensor.is_conj(), tensor.is_neg()
    return (str(tensor.device), tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), flags)


def _content(header: Header, path: PurePath) -> dict[str, Any]:
    try:
        content: Any = json.loads(header.metadata.get(_KEY, ""))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, "the record of a model", f"{type(error).__name__}: {error}") from error
    match content:
        case {"order": list(order), "ties": dict(ties), "viewed": dict(viewed), "hashes": dict(hashes)}:
            texts = [*order, *ties.values(), *viewed.values(), *hashes.values()]
            if all(isinstance(text, str) for text in texts):
                return dict(content)
    raise CorruptFile(path, "the record of a model", reprlib.repr(content))


def _dtype_and_shape(name: str, place: Place, viewed: str | None, path: PurePath) -> tuple[torch.dtype, tuple[int, ...]]:
    if viewed is None:
        return DTYPES[place.code], place.shape
    dtype = VIEWED.get(viewed)
    if dtype is None or place.code != "U8" or place.shape[-1:] != (dtype.itemsize,):
        raise CorruptFile(path, f"tensor {name!r} as bytes of a known dtype", f"{viewed!r}, {place.code} {place.shape}")
    return dtype, place.shape[:-1]
