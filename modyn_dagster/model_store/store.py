"""Model store: models named by their content, stored small, and verified when they are loaded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, CorruptFile
from modyn_dagster.model_store import loading
from modyn_dagster.model_store.backends.folder import open_folder
from modyn_dagster.model_store.commit import removal, saving
from modyn_dagster.model_store.export import export
from modyn_dagster.model_store.format import tensors
from modyn_dagster.model_store.format.extra_state import with_extra_state
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.info import ModelInfo, difference, info_of, tree_of
from modyn_dagster.model_store.provenance.recipe import Architecture, Provenance, architecture_of
from modyn_dagster.model_store.provenance.retraining import OnDifference
from modyn_dagster.model_store.repository import Repository
from modyn_dagster.model_store.strategies.settings import Retrain, Strategy, strategy_of
from modyn_dagster.reproducibility.environment import Environment


class ModelStore:
    """Models in a folder, one file each, as ``<first two digits>/<id>.safetensors`` or ``.pack``.

    An id is a hash over names, order, ties, dtypes, shapes and bytes: equal models are one file, and ``load`` returns the saved
    state bit for bit. Loading runs no code. Memory layout (strides) and partial overlap of tensors are not kept; names that share
    all their memory come back sharing it.

    Args:
        root: the folder, or a URL that fsspec knows; it is created by the first save.
        allow: modules, with all below them, whose functions may be run to retrain a model or to build one for export.
        threads: number of threads to encode, decode and hash with; None: as many as torch uses.
        storage_options: options of fsspec; they are neither shown nor stored.

    Raises ``ConfigError`` for a URL that fsspec cannot open.

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
        self.repository = Repository(folder, threads)

    @property
    def threads(self) -> int:
        """Number of threads to encode, decode and hash with."""
        return self.repository.threads

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
        """Store a state and return its id; nothing is written for a model that is stored and sound.

        Args:
            state_dict: tensors by name.
            base: the model it was derived from: the base of a delta, and the start of a training.
            strategy: name of a strategy, or an object with its settings.
            model: factory of the module: an import path, or an ``Architecture`` with arguments.
            provenance: recipe of the training; recorded by every strategy.
            extra: state of optimizer, schedule, generators …: nested containers of numbers, texts, bytes and tensors. It is
                part of the identity.

        Raises ``StorageError`` for values that are no dense tensors, ``UnknownModel`` for a missing base, ``CorruptFile`` for a
        changed one, ``WriteFailed`` when the disk refuses, ``ConfigError`` for invalid settings of the strategy.
        """
        chosen, architecture = strategy_of(strategy), architecture_of(model)
        if isinstance(chosen, Retrain) and extra is not None:
            rule = "cannot be recovered by training; choose another strategy"
            raise ConfigError("model store", "extra", type(extra).__name__, rule)
        state = with_extra_state(tensors.without_wrappers(state_dict), extra)
        return saving.save(self.repository, state, chosen, base, architecture, provenance)

    def id_of(self, state_dict: Mapping[str, Tensor]) -> ModelId:
        """Id that a state without an extra part has in any store; nothing is written."""
        with self.repository.pool() as pool:
            return Record.of(tensors.without_wrappers(state_dict), pool).id

    def load(
        self, model: ModelId, *, retrain: bool = False, environment: OnDifference = "warn", verify: bool = True
    ) -> dict[str, Tensor]:
        """State on the CPU, verified.

        Args:
            model: id of the model.
            retrain: whether to retrain a model stored without weights; otherwise loading it raises ``WeightsNotStored``.
            environment: reaction to an environment that differs from that of the training: ``require`` raises and names the
                field, ``warn`` warns, ``ignore`` does nothing. The result must have the recorded hash in any case.
            verify: whether to compare every tensor with its hash.

        ``CorruptFile`` names the tensor that changed, ``UnknownModel`` a missing model.
        """
        return loading.load(self.repository, model, retrain=retrain, environment=environment, verify=verify, allow=self.allow)

    def load_extra(self, model: ModelId) -> Any:
        """Extra state saved with a model, with its types; None for a model without."""
        return loading.load_extra(self.repository, model)

    def load_into(self, model: ModelId, module: nn.Module) -> None:
        """Copy a model into a module, which may be compiled or wrapped. ``StorageError`` names the tensors that do not fit."""
        tensors.load_into(module, self.load(model))

    def info(self, model: ModelId) -> ModelInfo:
        """Description of a stored model, without reading weights."""
        return info_of(self.repository.open(model))

    def list(self) -> Sequence[ModelId]:
        """All ids, sorted."""
        return self.repository.ids()

    def tree(self) -> Mapping[ModelId | None, Sequence[ModelId]]:
        """Children by parent; those of None have no base, or a deleted one."""
        return tree_of(self.repository.readable())

    def size(self, model: ModelId) -> int:
        """Bytes of the model's own file, without its base or shared tensors."""
        return self.repository.size(model)

    def diff(self, a: ModelId, b: ModelId) -> Sequence[str]:
        """Names of the layers that differ, or that only one of the models has, by the trees of hashes."""
        return difference(self.repository.open(a).record, self.repository.open(b).record)

    def verify(
        self, model: ModelId | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> Sequence[CorruptFile]:
        """Read one or every model and return the damage found; ``progress`` gets the numbers of models done and of all models."""
        return loading.verify_all(self.repository, None if model is None else [model], progress)

    def delete(self, model: ModelId, *, rebase: bool = False) -> None:
        """Remove a model for good. Models that need its tensors are stored again without it, or it is ``ModelInUse``."""
        removal.delete(self.repository, model, rebase=rebase)

    def needs(self, models: Iterable[ModelId]) -> frozenset[ModelId]:
        """Stored models without which some others cannot be recovered, directly or indirectly; damaged ones are passed over."""
        stored = {model.id: model for model in self.repository.readable()}
        return frozenset(removal.needed_by(stored, stored.keys() & set(models)))

    def delete_unneeded(self, models: Iterable[ModelId]) -> Sequence[ModelId]:
        """Remove models for good, in one pass, except those that models outside of these need; returns those that stay.

        Missing models are passed over, so a call that was killed can be repeated.
        """
        return removal.delete_unneeded(self.repository, models)

    def gc(
        self, *, older_than: float = removal.ABANDONED, progress: Callable[[int, int], None] | None = None
    ) -> Sequence[PurePath]:
        """Remove files that killed writers left, and documents that no model refers to; return the removed paths.

        ``older_than`` is the age in seconds at which a file counts as left where a store has no locks (not a local folder).
        ``progress`` gets the numbers of models read and of all models.
        """
        return removal.collect(self.repository, older_than, progress) if self.repository.folder.files() else []

    def export(self, model: ModelId, path: Path | str, *, inputs: tuple[Any, ...] | None = None, retrain: bool = False) -> None:
        """Write a model for other systems: ``.safetensors``, ``.pt`` (TorchScript) or ``.pt2`` (``torch.export``).

        A model stored as its provenance is retrained with ``retrain``, otherwise it is ``WeightsNotStored``.
        """
        state = self.load(model, retrain=retrain)
        export(state, Path(path), self.repository.open(model).metadata.architecture, self.allow, inputs)

    def environment(self, model: ModelId) -> Environment | None:
        """Environment in which a model was saved, or trained, if it is recorded."""
        digest = self.repository.open(model).metadata.environment
        return None if digest is None else self.repository.documents.environment(digest)
