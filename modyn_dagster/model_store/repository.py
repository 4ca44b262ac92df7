"""The models of one store as files: which there are, opening one, and what every reader and writer of them needs."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePath
from typing import Final

import torch

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.backends.folder import Folder
from modyn_dagster.model_store.backends.tensor_index import SHARED, Find, TensorIndex, hints_in
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import PACKED, PLAIN, Stored, file_of, read_stored
from modyn_dagster.model_store.format.tensor_sources import Sources
from modyn_dagster.model_store.provenance.documents import Documents

_ID: Final = re.compile(r"[0-9a-f]{64}")


class Repository:
    """A folder with models, its documents and its index. Nothing is opened or made before it is asked for.

    Args:
        folder: where they are.
        threads: to encode, decode and hash with; None: as many as torch uses.
    """

    def __init__(self, folder: Folder, threads: int | None) -> None:
        self.folder = folder
        self.documents = Documents(folder)
        self.index = TensorIndex(hints_in(folder))
        self._threads = threads

    @property
    def threads(self) -> int:
        """How many to work with."""
        return self._threads or torch.get_num_threads()

    @contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        """So many threads."""
        with ThreadPoolExecutor(self.threads, "model-store") as pool:
            yield pool

    def sources(self) -> Sources:
        """Of the tensors of its models."""
        return Sources(self.open, self._descriptor)

    def ids(self) -> Sequence[ModelId]:
        """All ids, sorted."""
        files = [path for path in self.folder.files() if path.suffix in (PLAIN, PACKED) and _ID.fullmatch(path.stem)]
        return sorted({path.stem for path in files if path == file_of(self.folder.root, path.stem, path.suffix)})

    def has(self, model: ModelId) -> bool:
        """Whether there is a file of it."""
        return self._kind(model) is not None

    def size(self, model: ModelId) -> int:
        """Bytes of its file. ``UnknownModel`` without one."""
        return self._existing(model)[1]

    def open(self, model: ModelId) -> Stored:
        """Its record, and where its tensors are. ``UnknownModel`` without a file, ``CorruptFile`` for a damaged one."""
        seen = ""
        while True:
            try:
                return self._opened(model)
            except CorruptFile as error:
                # Where removers are not kept out it may have been stored anew between two reads; damage stays as it is.
                if self.folder.notices is None or str(error) == seen:
                    raise
                seen = str(error)

    def was_replaced(self, stored: Stored) -> bool:
        """Whether it lies there otherwise than when it was opened: put right, or where there are no locks without its base."""
        again = self.open(stored.id)
        return (again.path, again.entries) != (stored.path, stored.entries)

    def readable(
        self, *, but: ModelId | None = None, sure: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> list[Stored]:
        """All models that can be opened, but for one; ``progress`` is told how many of how many were tried.

        ``sure``: ``CorruptFile`` for a file that the system does not let us read, perhaps only now: nobody knows what it needs.
        """
        found, models = [], [model for model in self.ids() if model != but]
        for n, model in enumerate(models, 1):
            try:
                found.append(self.open(model))
            except UnknownModel:
                pass
            except CorruptFile as error:
                if sure and isinstance(error.__cause__, OSError):
                    raise
            if progress is not None:
                progress(n, len(models))
        return found

    def remove(self, model: ModelId) -> None:
        """Its files, whoever needs them."""
        for suffix in (PLAIN, PACKED):
            self.folder.remove(file_of(self.folder.root, model, suffix))

    def keep_only(self, stored: Stored) -> None:
        """Remove the file of the other kind that a model may have beside this one: it is damaged, or needs what goes."""
        self.folder.remove(self.other_file(stored))

    def keep_one(self, stored: Stored) -> None:
        """Of two sound files of one model, which two savers leave that work at once, only the packed one.

        Never the other one, whoever came first: else each of them might remove what the other wrote.
        """
        if self.folder.size(self.other_file(stored)) is not None:
            self.folder.remove(file_of(self.folder.root, stored.id, PLAIN))

    def other_file(self, stored: Stored) -> PurePath:
        """Where the file of the other kind would be."""
        return file_of(self.folder.root, stored.id, PLAIN if stored.path.suffix == PACKED else PACKED)

    def shareable(self, stored: Stored) -> Sequence[str]:
        """Hashes of the tensors in its file that are worth a reference."""
        held = {leaf: stored.record.leaves[name] for leaf, name in stored.held.items()}
        return [leaf for leaf, what in held.items() if what.n_bytes >= SHARED and _ID.fullmatch(leaf)]

    def finder(self, model_of: Callable[[ModelId], Stored]) -> Find:
        """Which model holds a tensor, as far as is known now."""
        self.index.refresh()
        return lambda leaf: self.index.find(leaf, model_of)

    def _opened(self, model: ModelId) -> Stored:
        path = file_of(self.folder.root, model, self._existing(model)[0])
        try:
            return read_stored(self.folder.open(path), path, model)
        except FileNotFoundError:
            # Removed a moment ago.
            raise UnknownModel(model, self.folder.root) from None
        except OSError as error:
            raise CorruptFile(path, "a file that can be read", error.strerror or str(error)) from error

    def _descriptor(self, path: PurePath) -> int:
        try:
            return self.folder.descriptor(path)
        except FileNotFoundError:
            raise UnknownModel(path.stem, self.folder.root) from None

    def _kind(self, model: ModelId) -> tuple[str, int] | None:
        # An id may come from outside: nothing but a hash ever becomes part of a path.
        if _ID.fullmatch(model):
            for suffix in (PACKED, PLAIN):
                if (size := self.folder.size(file_of(self.folder.root, model, suffix))) is not None:
                    return suffix, size
        return None

    def _existing(self, model: ModelId) -> tuple[str, int]:
        found = self._kind(model)
        if found is None:
            raise UnknownModel(model, self.folder.root)
        return found
