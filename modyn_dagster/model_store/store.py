"""Every model ever trained: saved whole, named by its content, verified when it comes back."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel
from modyn_dagster.model_store.hash_tree import ModelId, leaf_hash
from modyn_dagster.model_store.layout import Header, encode_header, read_header
from modyn_dagster.model_store.record import Leaf, Record
from modyn_dagster.model_store.tensor_bytes import allocate, bytes_of, tensor_of
from modyn_dagster.storage import atomic_write

_ID: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One name of a model's state; ``tied_to`` names the tensor it shares its memory with."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    hash: str
    tied_to: str | None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A stored model without its weights: ``n_bytes`` of its file, its number of distinct elements, and its tensors."""

    id: ModelId
    path: Path
    n_bytes: int
    n_elements: int
    tensors: tuple[TensorInfo, ...]


class ModelStore:
    """Models in a folder, as ``<first two digits>/<id>.safetensors``.

    An id is a hash over names, order, ties, dtypes, shapes and bytes: equal models are one file, and what ``load`` returns
    is what was saved, bit for bit. Loading runs no code. Memory layout (strides) and partial overlap of tensors are not
    kept; names that share all their memory come back sharing it.

    >>> import tempfile
    >>> store = ModelStore(Path(tempfile.mkdtemp()))
    >>> model = store.save({"weight": torch.tensor([1.5, -0.0])})
    >>> store.load(model)["weight"]
    tensor([1.5000, -0.0000])
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, state_dict: Mapping[str, Tensor]) -> ModelId:
        """Store a state and return its id; nothing is written when it is there already and sound.

        Raises ``StorageError`` for what is not a dense tensor, ``WriteFailed`` when the disk refuses.
        """
        record = Record.of(state_dict)
        model = record.id
        path = self._path(model)
        if path.is_file() and not self.verify(model):
            return model
        places = record.places()
        with atomic_write(path) as file:
            file.write(encode_header(record.to_metadata(), places))
            for name in places:
                file.write(bytes_of(state_dict[name].detach()))
        return model

    def load(self, model: ModelId) -> dict[str, Tensor]:
        """The state on the CPU, verified. ``CorruptFile`` names the tensor that changed, ``UnknownModel`` a model it lacks."""
        path = self._existing(model)
        with open(path, "rb") as file:
            header, record = _read_record(file, path, model)
            stored = {name: _read_tensor(file, path, header, name, leaf) for name, leaf in record.leaves.items()}
        return {name: stored[record.ties.get(name, name)] for name in record.order}

    def info(self, model: ModelId) -> ModelInfo:
        """What is stored under an id, read from the file's header alone."""
        path = self._existing(model)
        with open(path, "rb") as file:
            _, record = _read_record(file, path, model)
        owners = {name: record.leaves[record.ties.get(name, name)] for name in record.order}
        tensors = tuple(TensorInfo(n, leaf.dtype, leaf.shape, leaf.hash, record.ties.get(n)) for n, leaf in owners.items())
        n_elements = sum(leaf.n_bytes // leaf.dtype.itemsize for leaf in record.leaves.values())
        return ModelInfo(model, path, path.stat().st_size, n_elements, tensors)

    def list(self) -> Sequence[ModelId]:
        """All ids, sorted."""
        return sorted(path.stem for path in self.root.glob("*/*.safetensors") if _ID.fullmatch(path.stem))

    def size(self, model: ModelId) -> int:
        """Bytes this model takes on disk."""
        return self._existing(model).stat().st_size

    def verify(self, model: ModelId | None = None) -> Sequence[CorruptFile]:
        """Read one model, or every one, and return the damage found; nothing when all is sound."""
        damage = []
        for each in self.list() if model is None else [model]:
            try:
                self._verify(each)
            except CorruptFile as error:
                damage.append(error)
        return damage

    def delete(self, model: ModelId) -> None:
        """Remove a model for good."""
        self._existing(model).unlink()

    def _verify(self, model: ModelId) -> None:
        path = self._existing(model)
        with open(path, "rb") as file:
            header, record = _read_record(file, path, model)
            for name, leaf in record.leaves.items():
                _read_tensor(file, path, header, name, leaf)

    def _path(self, model: ModelId) -> Path:
        return self.root / model[:2] / f"{model}.safetensors"

    def _existing(self, model: ModelId) -> Path:
        # An id may come from outside: nothing but a hash ever becomes part of a path.
        if not _ID.fullmatch(model) or not self._path(model).is_file():
            raise UnknownModel(model, self.root)
        return self._path(model)


def _read_record(file: BufferedReader, path: Path, model: ModelId) -> tuple[Header, Record]:
    header = read_header(file, path)
    record = Record.from_header(header, path)
    if record.id != model:
        raise CorruptFile(path, f"the record of model {model}", f"that of {record.id}")
    # A state has one encoding: what was never read, such as padding, must not have changed either.
    if encode_header(record.to_metadata(), record.places()) != header.encoded:
        raise CorruptFile(path, f"the header of model {model} as it was written", "another one")
    return header, record


def _read_tensor(file: BufferedReader, path: Path, header: Header, name: str, leaf: Leaf) -> Tensor:
    buffer = allocate(leaf.n_bytes)
    content = buffer.numpy().data
    file.seek(header.data_start + header.places[name].start)
    n_read = file.readinto(content)
    if n_read != leaf.n_bytes:
        raise CorruptFile(path, f"{leaf.n_bytes} bytes of tensor {name!r}", f"{n_read} bytes")
    found = leaf_hash(leaf.dtype, leaf.shape, content)
    if found != leaf.hash:
        raise CorruptFile(path, f"tensor {name!r} with hash {leaf.hash}", f"hash {found}")
    try:
        return tensor_of(buffer, leaf.dtype, leaf.shape)
    except (RuntimeError, TypeError) as error:
        raise StorageError(f"{path}: tensor {name!r} of shape {leaf.shape} cannot be made: {error}") from error
