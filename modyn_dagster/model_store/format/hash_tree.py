"""Identity of a model: a tree of hashes over the dotted names of its state.

A leaf covers dtype, shape and bytes of one tensor; a node covers the names and hashes below it, so the trees of two models show
which layers differ. The root, the order of the names and the ties between them make the ``ModelId``.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring_ascii as _json
from typing import Final

import torch
from blake3 import blake3

from modyn_dagster.model_store.format.tensors import name_of

#: Hex SHA-256 over the tree, 64 digits.
ModelId = str

#: Hash function of the leaves: as strong as SHA-256, and three to seven times as fast with vector instructions.
HASHING: Final = "blake3"

#: Form of ids, and of hashes of tensors and documents. Nothing else becomes part of a path.
ID_PATTERN: Final = re.compile(r"[0-9a-f]{64}")

# Deeper names share a node; nobody nests modules like that, and a hostile file must not exhaust the stack.
_MAX_DEPTH: Final = 64


def is_id(text: str) -> bool:
    """True if a text has the form of an id: 64 hexadecimal digits."""
    return ID_PATTERN.fullmatch(text) is not None


def leaf_digest(dtype: torch.dtype, shape: Sequence[int]) -> blake3:
    """Start the hash of a tensor; the bytes of the tensor follow by ``update``."""
    return blake3(f"tensor {name_of(dtype)} {json.dumps(list(shape))}\n".encode())


def leaf_hash(dtype: torch.dtype, shape: Sequence[int], content: memoryview) -> str:
    """Hash of one tensor: equal values of another dtype or shape have another hash."""
    digest = leaf_digest(dtype, shape)
    digest.update(content)
    return digest.hexdigest()


@dataclass
class HashTree:
    """Hashes of a part of a model: ``leaf`` of the tensor with this name, if any, and ``children`` of the parts below."""

    leaf: str | None = None
    children: dict[str, "HashTree"] = field(default_factory=dict)

    @classmethod
    def of(cls, leaves: Mapping[str, str]) -> "HashTree":
        """Build the tree of tensor hashes by dotted name."""
        root = cls()
        for name, leaf in leaves.items():
            node = root
            for part in name.split(".", _MAX_DEPTH):
                node = node.children.setdefault(part, cls())
            node.leaf = leaf
        return root

    @cached_property
    def hash(self) -> str:
        """Hash of everything below, whatever the order of the names."""
        below = ", ".join(f"[{_json(part)}, {_json(child.hash)}]" for part, child in sorted(self.children.items()))
        leaf = "null" if self.leaf is None else _json(self.leaf)
        return hashlib.sha256(f"node [{leaf}, [{below}]]\n".encode()).hexdigest()

    def differences(self, other: "HashTree", prefix: str = "") -> Iterator[str]:
        """Names whose tensors differ between both trees; equal subtrees are skipped."""
        if self.hash == other.hash:
            return
        if self.leaf != other.leaf:
            yield prefix.removesuffix(".")
        for part in dict.fromkeys([*self.children, *other.children]):
            yield from self.children.get(part, _NOTHING).differences(other.children.get(part, _NOTHING), f"{prefix}{part}.")


_NOTHING: Final = HashTree()


def model_id(leaves: Mapping[str, str], order: Sequence[str], ties: Mapping[str, str]) -> ModelId:
    """Identity of a state.

    Args:
        leaves: hashes of the stored tensors by name.
        order: all names.
        ties: by tied name, the name of the tensor it shares memory with.
    """
    identity = json.dumps([HashTree.of(leaves).hash, list(order), sorted(ties.items())])
    return hashlib.sha256(f"model {identity}\n".encode()).hexdigest()
