"""Where the bytes of stored tensors are: which models' files, and which differences lie between."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import PurePath
from types import TracebackType
from typing import Final

import numpy as np

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.codec import Codec
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.source import Encoded, Plain, Source, read_verified
from modyn_dagster.model_store.stored import Stored

#: Differences on top of each other that are followed at most; a cycle of bases ends here.
MAX_DEPTH: Final = 32


class Sources(AbstractContextManager["Sources"]):
    """Sources of the tensors of models that ``find`` opens, in files that ``opened`` opens and that are closed at the end."""

    def __init__(self, find: Callable[[ModelId], Stored], opened: Callable[[PurePath], int]) -> None:
        self._find = find
        self._opened = opened
        self._models: dict[ModelId, Stored] = {}
        self._files: dict[PurePath, int] = {}
        self._closing = ExitStack()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    def model(self, model: ModelId) -> Stored:
        """A model, read once."""
        if model not in self._models:
            self._models[model] = self._find(model)
        return self._models[model]

    def of(self, stored: Stored, name: str, depth: int = 0) -> Source:
        """Where the bytes of a tensor come from. ``CorruptFile`` for references that lead nowhere, or in a circle."""
        stored, name = self.home(stored, name)
        leaf, entry = stored.record.leaves[name], stored.entries[name]
        file = self._open(stored.path)
        if entry.codec == Codec.RAW:
            return Plain(file, stored.path, name, entry.start)
        base: Source | None = None
        if entry.base is not None:
            if depth >= MAX_DEPTH:
                expected = f"tensor {name!r} after at most {MAX_DEPTH} differences"
                raise CorruptFile(stored.path, expected, "more, or a cycle of bases")
            base = self.of(*self.base(stored, name), depth + 1)
        return Encoded(file, stored.path, name, leaf, entry, base)

    def home(self, stored: Stored, name: str) -> tuple[Stored, str]:
        """The model whose file holds a tensor, and its name there."""
        entry = stored.entries[name]
        if entry.codec != Codec.ELSEWHERE:
            return stored, name
        leaf = stored.record.leaves[name]
        found, other = self._held(stored, name, entry.home, leaf.hash)
        if found.record.leaves[other] != leaf:
            raise CorruptFile(stored.path, f"tensor {name!r} as one of its kind", f"another kind in model {entry.home}")
        return found, other

    def base(self, stored: Stored, name: str) -> tuple[Stored, str]:
        """The model whose file holds the tensor that this one is a difference to, and its name there."""
        entry = stored.entries[name]
        found, other = self._held(stored, name, entry.home, entry.base)
        leaf, expected = found.record.leaves[other], stored.record.leaves[name]
        if (leaf.dtype, leaf.n_bytes) != (expected.dtype, expected.n_bytes):
            raise CorruptFile(stored.path, f"tensor {name!r} as a difference to one of its kind", f"{leaf.dtype} {leaf.shape}")
        return found, other

    def depth(self, stored: Stored, name: str) -> int:
        """Differences to apply until the tensor is there."""
        depth = 0
        stored, name = self.home(stored, name)
        while stored.entries[name].base is not None and depth < MAX_DEPTH:
            stored, name = self.base(stored, name)
            depth += 1
        return depth

    def _held(self, stored: Stored, name: str, home: ModelId | None, leaf: str | None) -> tuple[Stored, str]:
        try:
            found = None if home is None else self.model(home)
        except UnknownModel as error:
            raise CorruptFile(stored.path, f"tensor {name!r} with the help of model {home}", "no model of that id") from error
        if found is None or leaf is None or leaf not in found.held:
            raise CorruptFile(stored.path, f"tensor {name!r} with the help of model {home}", "no such tensor there")
        return found, found.held[leaf]

    def _open(self, path: PurePath) -> int:
        if path not in self._files:
            self._files[path] = self._opened(path)
            self._closing.callback(os.close, self._files[path])
        return self._files[path]


def check(sources: Sources, stored: Stored, name: str, found: str) -> None:
    """Raise ``CorruptFile`` that names the tensor, and the file at fault, when ``found`` is not its hash."""
    expected = stored.record.leaves[name].hash
    if found == expected:
        return
    stored, name = sources.home(stored, name)
    while stored.entries[name].base is not None:
        base, base_name = sources.base(stored, name)
        leaf = base.record.leaves[base_name]
        scratch = np.empty(leaf.n_bytes, np.uint8)
        if (there := read_verified(sources.of(base, base_name), leaf, scratch.data)) == leaf.hash:
            break
        stored, name, expected, found = base, base_name, leaf.hash, there
    raise CorruptFile(stored.path, f"tensor {name!r} with hash {expected}", f"hash {found}")
