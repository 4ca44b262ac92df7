"""A model's identity: a tree of hashes over the dotted names of its state.

A leaf covers dtype, shape and bytes of one tensor; a node covers the names and hashes below it, so two models can be
compared layer by layer by their trees. The root, the order of the names and the ties between them make the ``ModelId``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import torch

from modyn_dagster.model_store.dtypes import name_of

#: Hex SHA-256, the fastest of the strong hashes where the processor has instructions for it.
ModelId = str

# Deeper names share a node; nobody nests modules like that, and a hostile file must not exhaust the stack.
_MAX_DEPTH: Final = 64


def leaf_digest(dtype: torch.dtype, shape: Sequence[int]) -> "hashlib._Hash":
    """A digest that waits for the bytes of a tensor of this kind."""
    return hashlib.sha256(f"tensor {name_of(dtype)} {json.dumps(list(shape))}\n".encode())


def leaf_hash(dtype: torch.dtype, shape: Sequence[int], content: memoryview) -> str:
    """Hash of one tensor: equal values of another dtype or shape have another hash."""
    digest = leaf_digest(dtype, shape)
    digest.update(content)
    return digest.hexdigest()


@dataclass
class HashTree:
    """Hashes of a part of a model: of the tensor at this name, if there is one, and of the parts below."""

    leaf: str | None = None
    children: dict[str, "HashTree"] = field(default_factory=dict)

    @classmethod
    def of(cls, leaves: Mapping[str, str]) -> "HashTree":
        """The tree of tensor hashes by dotted name."""
        root = cls()
        for name, leaf in leaves.items():
            node = root
            for part in name.split(".", _MAX_DEPTH):
                node = node.children.setdefault(part, cls())
            node.leaf = leaf
        return root

    @cached_property
    def hash(self) -> str:
        """Covers everything below, whatever the order of the names."""
        below = [[part, child.hash] for part, child in sorted(self.children.items())]
        return hashlib.sha256(f"node {json.dumps([self.leaf, below])}\n".encode()).hexdigest()

    def differences(self, other: "HashTree", prefix: str = "") -> Iterator[str]:
        """Names whose tensors are not the same in both trees; equal subtrees are not walked."""
        if self.hash == other.hash:
            return
        if self.leaf != other.leaf:
            yield prefix.removesuffix(".")
        for part in dict.fromkeys([*self.children, *other.children]):
            yield from self.children.get(part, _NOTHING).differences(other.children.get(part, _NOTHING), f"{prefix}{part}.")


_NOTHING: Final = HashTree()


def model_id(leaves: Mapping[str, str], order: Sequence[str], ties: Mapping[str, str]) -> ModelId:
    """Identity of a state: ``leaves`` by name, all names in ``order``, and for a tied name the one it shares memory with."""
    identity = json.dumps([HashTree.of(leaves).hash, list(order), sorted(ties.items())])
    return hashlib.sha256(f"model {identity}\n".encode()).hexdigest()
