"""Repository: the models of one store as files, with their documents and tensor index."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePath

import torch

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.backends.folder import Folder
from modyn_dagster.model_store.backends.tensor_index import MIN_SHARED_BYTES, FindTensor, TensorIndex, hints_in
from modyn_dagster.model_store.format.hash_tree import ModelId, is_id
from modyn_dagster.model_store.format.model_file import PACKED, PLAIN, StoredModel, file_of, read_stored
from modyn_dagster.model_store.format.tensor_sources import TensorSources
from modyn_dagster.model_store.provenance.documents import Documents


class Repository:
    """Models of a folder, with their documents and index. The constructor opens and creates nothing.

    Args:
        folder: folder of the files.
        threads: number of threads to encode, decode and hash with; None: as many as torch uses.
    """

    def __init__(self, folder: Folder, threads: int | None) -> None:
        self.folder = folder
        self.documents = Documents(folder)
        self.index = TensorIndex(hints_in(folder))
        self._threads = threads

    @property
    def threads(self) -> int:
        """Number of threads to encode, decode and hash with."""
        return self._threads or torch.get_num_threads()

    @contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        """Pool of ``threads`` threads."""
        with ThreadPoolExecutor(self.threads, "model-store") as pool:
            yield pool

    def sources(self) -> TensorSources:
        """Sources of the tensors of the stored models."""
        return TensorSources(self.open, self._descriptor)

    def ids(self) -> Sequence[ModelId]:
        """All ids, sorted."""
        files = [path for path in self.folder.files() if path.suffix in (PLAIN, PACKED) and is_id(path.stem)]
        return sorted({path.stem for path in files if path == file_of(self.folder.root, path.stem, path.suffix)})

    def has(self, model: ModelId) -> bool:
        """True if a model has a file."""
        return self._kind(model) is not None

    def size(self, model: ModelId) -> int:
        """Bytes of the file of a model. ``UnknownModel`` without one."""
        return self._existing(model)[1]

    def open(self, model: ModelId) -> StoredModel:
        """Stored model without its tensors. ``UnknownModel`` without a file, ``CorruptFile`` for a damaged one."""
        damage = ""
        while True:
            try:
                return self._opened(model)
            except CorruptFile as error:
                # Without locks the file may have been replaced between two reads; real damage shows again.
                if self.folder.reservations is None or str(error) == damage:
                    raise
                damage = str(error)

    def was_replaced(self, stored: StoredModel) -> bool:
        """True if the file of a model changed since it was opened: repaired, or without locks stored again without its base."""
        again = self.open(stored.id)
        return (again.path, again.entries) != (stored.path, stored.entries)

    def readable(
        self, *, except_for: ModelId | None = None, strict: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> list[StoredModel]:
        """All models that can be opened, but for one; ``progress`` gets the numbers of models tried and of all models.

        ``strict`` raises ``CorruptFile`` for a file that the system cannot read, perhaps only now: its dependencies are unknown.
        """
        readable, models = [], [model for model in self.ids() if model != except_for]
        for n, model in enumerate(models, 1):
            try:
                readable.append(self.open(model))
            except UnknownModel:
                pass
            except CorruptFile as error:
                if strict and isinstance(error.__cause__, OSError):
                    raise
            if progress is not None:
                progress(n, len(models))
        return readable

    def remove(self, model: ModelId) -> None:
        """Remove the files of a model, even if others need it."""
        for suffix in (PLAIN, PACKED):
            self.folder.remove(file_of(self.folder.root, model, suffix))

    def settle_removals(self, models: Iterable[ModelId]) -> None:
        """Let removals survive a power cut, also those of a process that was killed before."""
        one_per_folder = {model[:2]: model for model in models}
        for model in one_per_folder.values():
            self.folder.settle(file_of(self.folder.root, model, PLAIN))

    def remove_other_file(self, stored: StoredModel) -> None:
        """Remove the file of the other kind that a model may have beside this one: it is damaged, or needs a removed model."""
        self.folder.remove(self.other_file(stored))

    def remove_duplicate(self, stored: StoredModel) -> None:
        """Keep only the packed one of two sound files of a model, which two concurrent savers leave.

        The plain file is removed whoever was first: otherwise each saver might remove the file of the other.
        """
        if self.folder.size(self.other_file(stored)) is not None:
            self.folder.remove(file_of(self.folder.root, stored.id, PLAIN))

    def other_file(self, stored: StoredModel) -> PurePath:
        """Path of the file of the other kind."""
        return file_of(self.folder.root, stored.id, PLAIN if stored.path.suffix == PACKED else PACKED)

    def shareable(self, stored: StoredModel) -> Sequence[str]:
        """Hashes of the tensors in the file of a model that are large enough for a reference."""
        sizes = {digest: stored.record.leaves[name].n_bytes for digest, name in stored.own_tensors.items()}
        return [digest for digest, n_bytes in sizes.items() if n_bytes >= MIN_SHARED_BYTES and is_id(digest)]

    def finder(self, model_of: Callable[[ModelId], StoredModel]) -> FindTensor:
        """Search for the model that holds a tensor, as of now."""
        self.index.refresh()
        return lambda leaf: self.index.find(leaf, model_of)

    def _opened(self, model: ModelId) -> StoredModel:
        path = file_of(self.folder.root, model, self._existing(model)[0])
        try:
            return read_stored(self.folder.open(path), path, model)
        except FileNotFoundError:
            # Removed since its size was asked for.
            raise UnknownModel(model, self.folder.root) from None
        except OSError as error:
            raise CorruptFile(path, "a file that can be read", error.strerror or str(error)) from error

    def _descriptor(self, path: PurePath) -> int:
        try:
            return self.folder.descriptor(path)
        except FileNotFoundError:
            raise UnknownModel(path.stem, self.folder.root) from None

    def _kind(self, model: ModelId) -> tuple[str, int] | None:
        # An id may come from outside: only a hash ever becomes part of a path.
        if is_id(model):
            for suffix in (PACKED, PLAIN):
                if (size := self.folder.size(file_of(self.folder.root, model, suffix))) is not None:
                    return suffix, size
        return None

    def _existing(self, model: ModelId) -> tuple[str, int]:
        kind = self._kind(model)
        if kind is None:
            raise UnknownModel(model, self.folder.root)
        return kind
