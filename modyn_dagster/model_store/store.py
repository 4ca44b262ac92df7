"""Every model ever trained: named by its content, small, verified when it comes back."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from torch import Tensor, nn

from modyn_dagster.environment import Environment
from modyn_dagster.errors import ConfigError, CorruptFile
from modyn_dagster.model_store import loading
from modyn_dagster.model_store.backends.folder import open_folder
from modyn_dagster.model_store.commit import removal, saving
from modyn_dagster.model_store.export import export
from modyn_dagster.model_store.format import extra_state as extras
from modyn_dagster.model_store.format import tensors
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.info import ModelInfo, TensorInfo, difference, info_of, tree_of
from modyn_dagster.model_store.provenance.recipe import Architecture, Provenance, architecture_of
from modyn_dagster.model_store.provenance.retraining import OnDifference
from modyn_dagster.model_store.repository import Repository
from modyn_dagster.model_store.strategies.settings import Retrain, Strategy, strategy_of

__all__ = ["ModelId", "ModelInfo", "ModelStore", "TensorInfo"]


class ModelStore:
    """Models in a folder, one file each, as ``<first two digits>/<id>.safetensors`` or ``.pack``.

    An id is a hash over names, order, ties, dtypes, shapes and bytes: equal models are one file, and what ``load`` returns
    is what was saved, bit for bit. Loading runs no code. Memory layout (strides) and partial overlap of tensors are not
    kept; names that share all their memory come back sharing it.

    Args:
        root: the folder, or a URL that fsspec knows; it is made when the first model is saved.
        allow: modules, with all below them, whose functions may be run to train a model again or to build one for export.
        threads: to encode, decode and hash with; None: as many as torch uses.
        storage_options: for fsspec; they are neither shown nor stored.

    ``ConfigError`` for a URL that fsspec cannot open.

    >>> import tempfile, torch
    >>> from pathlib import Path
    >>> store = ModelStore(Path(tempfile.mkdtemp()))
    >>> model = store.save({"weight": torch.tensor([1.5, -0.0])})
    >>> store.load(model)["weight"]
    tensor([1.5000, -0.0000])
    """

    def __init__(
        self,
        root: PurePath | str,
        *,
        allow: Sequence[str] = (),
        threads: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        folder = open_folder(root, storage_options or {})
        self.root: Any = folder.root
        self.allow = tuple(allow)
        self._repository = Repository(folder, threads)

    @property
    def threads(self) -> int:
        """To encode, decode and hash with."""
        return self._repository.threads

    def save(
        self,
        state_dict: Mapping[str, Tensor],
        *,
        base: ModelId | None = None,
        strategy: str | Strategy = "adaptive",
        model: str | Architecture | None = None,
        provenance: Provenance | None = None,
        extra: Any = None,
    ) -> ModelId:
        """Store a state and return its id; nothing is written when it is there already and sound.

        Args:
            state_dict: tensors by name.
            base: the model it was derived from: what a delta is taken to, and the start of a training.
            strategy: a name of ``STRATEGIES``, or one of its objects with settings.
            model: what builds the module: an import path, or an ``Architecture`` with arguments.
            provenance: how it was trained; recorded by every strategy.
            extra: state of optimizer, schedule, generators …: nested containers of numbers, texts, bytes and tensors. It is
                part of the identity.

        Raises ``StorageError`` for what is not a dense tensor, ``UnknownModel`` for a base that is not there, ``CorruptFile`` for
        one that changed, ``WriteFailed`` when the disk refuses, ``ConfigError`` for a strategy that cannot be.
        """
        chosen, architecture = strategy_of(strategy), architecture_of(model)
        if isinstance(chosen, Retrain) and extra is not None:
            raise ConfigError(
                "model store", "extra", type(extra).__name__, "cannot be trained again; store it by another strategy"
            )
        state = extras.with_extra_state(tensors.without_wrappers(state_dict), extra)
        return saving.save(self._repository, state, chosen, base, architecture, provenance)

    def load(
        self, model: ModelId, *, retrain: bool = False, environment: OnDifference = "warn", verify: bool = True
    ) -> dict[str, Tensor]:
        """The state on the CPU, verified.

        Args:
            model: an id.
            retrain: train a model again whose weights are not stored; without it that is ``WeightsNotStored``.
            environment: ``require`` refuses to train where a field differs from where the model was trained, naming it; ``warn``
                warns; either way the result must have the recorded hash.
            verify: compare every tensor with its hash.

        ``CorruptFile`` names the tensor that changed, ``UnknownModel`` a model it lacks.
        """
        return loading.load(self._repository, model, retrain=retrain, environment=environment, verify=verify, allow=self.allow)

    def load_extra(self, model: ModelId) -> Any:
        """What was saved as ``extra``, of the same types; None without."""
        return loading.load_extra(self._repository, model)

    def load_into(self, model: ModelId, module: nn.Module) -> None:
        """Copy a model into a module, which may be compiled or wrapped. ``StorageError`` names what does not fit."""
        tensors.load_into(module, self.load(model))

    def info(self, model: ModelId) -> ModelInfo:
        """What is stored under an id, and how, without reading weights."""
        return info_of(self._repository.open(model))

    def list(self) -> Sequence[ModelId]:
        """All ids, sorted."""
        return self._repository.ids()

    def tree(self) -> Mapping[ModelId | None, Sequence[ModelId]]:
        """Children by parent; those of None have no base, or one that was deleted."""
        return tree_of(self._repository.readable())

    def size(self, model: ModelId) -> int:
        """Bytes this model added, without its base or anything shared."""
        return self._repository.size(model)

    def diff(self, a: ModelId, b: ModelId) -> Sequence[str]:
        """Names of the layers that differ, or that only one of them has, by the trees of hashes."""
        return difference(self._repository.open(a).record, self._repository.open(b).record)

    def verify(
        self, model: ModelId | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> Sequence[CorruptFile]:
        """Read one model, or every one, and return the damage found; ``progress`` is told how many of how many are done."""
        return loading.verify_all(self._repository, None if model is None else [model], progress)

    def delete(self, model: ModelId, *, rebase: bool = False) -> None:
        """Remove a model for good. Those that need its tensors are stored again without it, or it is ``ModelInUse``."""
        removal.delete(self._repository, model, rebase=rebase)

    def gc(
        self, *, older_than: float = removal.ABANDONED, progress: Callable[[int, int], None] | None = None
    ) -> Sequence[PurePath]:
        """Remove what killed writers left, and documents that no model refers to; returns what was removed.

        ``older_than``: seconds after which a file counts as left, where a store has no locks to know it by (not a local folder).
        ``progress`` is told how many of how many models were looked at.
        """
        return removal.collect(self._repository, older_than, progress) if self._repository.folder.files() else []

    def export(self, model: ModelId, path: Path | str, *, inputs: tuple[Any, ...] | None = None, retrain: bool = False) -> None:
        """Write a model for other systems: ``.safetensors``, ``.pt`` (TorchScript) or ``.pt2`` (``torch.export``).

        One that is stored as its provenance is trained again with ``retrain``, else it is ``WeightsNotStored``.
        """
        state = self.load(model, retrain=retrain)
        export(state, Path(path), self._repository.open(model).about.architecture, self.allow, inputs)

    def environment(self, model: ModelId) -> Environment | None:
        """Where a model was saved, or trained, if that is recorded."""
        digest = self._repository.open(model).about.environment
        return None if digest is None else self._repository.documents.environment(digest)
