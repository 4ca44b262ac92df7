"""Every model ever trained: named by its content, small, verified when it comes back."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, CorruptFile, UnknownModel, WeightsNotStored
from modyn_dagster.model_store import extra as extras
from modyn_dagster.model_store import names
from modyn_dagster.model_store.about import About
from modyn_dagster.model_store.adaptive import choose
from modyn_dagster.model_store.architecture import Architecture, architecture_of
from modyn_dagster.model_store.documents import Documents
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.exporting import export
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.index import TensorIndex
from modyn_dagster.model_store.info import ModelInfo, TensorInfo, info_of
from modyn_dagster.model_store.lineage import difference, tree_of
from modyn_dagster.model_store.locking import alone, shared
from modyn_dagster.model_store.planning import SHARED, Find
from modyn_dagster.model_store.provenance import Provenance
from modyn_dagster.model_store.reading import read_state, verify_state
from modyn_dagster.model_store.record import Record
from modyn_dagster.model_store.removing import children_of, leftovers, make_independent, readable
from modyn_dagster.model_store.retraining import OnDifference, lineage_to_train, provenance_of, require_environment, train_again
from modyn_dagster.model_store.saving import Saving
from modyn_dagster.model_store.sources import Sources
from modyn_dagster.model_store.stored import PACKED, PLAIN, Stored, read_stored
from modyn_dagster.model_store.strategies import Adaptive, Retrain, Snapshot, Strategy, strategy_of

__all__ = ["ModelId", "ModelInfo", "ModelStore", "TensorInfo"]

_ID: Final = re.compile(r"[0-9a-f]{64}")


class ModelStore:
    """Models in a folder, one file each, as ``<first two digits>/<id>.safetensors`` or ``.pack``.

    An id is a hash over names, order, ties, dtypes, shapes and bytes: equal models are one file, and what ``load`` returns
    is what was saved, bit for bit. Loading runs no code. Memory layout (strides) and partial overlap of tensors are not
    kept; names that share all their memory come back sharing it.

    Args:
        root: the folder; it is made when the first model is saved.
        allow: modules, with all below them, whose functions may be run to train a model again or to build one for export.
        threads: to encode, decode and hash with; None: as many as torch uses.

    >>> import tempfile
    >>> store = ModelStore(Path(tempfile.mkdtemp()))
    >>> model = store.save({"weight": torch.tensor([1.5, -0.0])})
    >>> store.load(model)["weight"]
    tensor([1.5000, -0.0000])
    """

    def __init__(self, root: Path | str, *, allow: Sequence[str] = (), threads: int | None = None) -> None:
        self.root = _folder(root)
        self.allow = tuple(allow)
        self.threads = threads
        self._index = TensorIndex(self.root / "tensors.index")
        self._documents = Documents(self.root / "documents")

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
        state = names.normalised(state_dict) | extras.to_tensors(extra)
        with self._pool() as pool:
            record = Record.of(state, pool.map)
            with shared(self.root), Sources(self._open) as sources:
                found = None if base is None else sources.model(base)
                find, there = self._finder(sources), self._has(record.id)
                if there and not self.verify(record.id):
                    return record.id
                if there:
                    # Others may rely on what its file held, and it on them: put right, it needs nobody.
                    chosen, found, find = Snapshot(), None, _nowhere
                saving = Saving(self.root / record.id[:2], state, record, found, sources, find, pool, self._threads)
                self._write(saving, chosen, self._about(base, architecture, provenance))
        return record.id

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
        stored = self._open(model)
        if stored.has_weights:
            return extras.split(self._read(stored, verify))[0]
        if not retrain:
            raise WeightsNotStored(model, "only how to train it again: load(id, retrain=True) does that")
        start, todo = lineage_to_train(stored, self._open)
        state = None if start is None else extras.split(self._read(start, verify))[0]
        for each in todo:
            provenance = provenance_of(each, self._documents)
            require_environment(provenance, environment)
            state = train_again(each, state, provenance, self.allow)
        return state or {}

    def load_extra(self, model: ModelId) -> Any:
        """What was saved as ``extra``, of the same types; None without."""
        stored = self._open(model)
        return extras.split(self._read(stored, verify=True))[1] if extras.PREFIX in stored.record.leaves else None

    def load_into(self, model: ModelId, module: nn.Module) -> None:
        """Copy a model into a module, which may be compiled or wrapped. ``StorageError`` names what does not fit."""
        names.load_into(module, self.load(model))

    def info(self, model: ModelId) -> ModelInfo:
        """What is stored under an id, and how, without reading weights."""
        return info_of(self._open(model))

    def list(self) -> Sequence[ModelId]:
        """All ids, sorted."""
        files = [path for suffix in (PLAIN, PACKED) for path in self.root.glob(f"[0-9a-f][0-9a-f]/*{suffix}")]
        return sorted({path.stem for path in files if _ID.fullmatch(path.stem)})

    def tree(self) -> Mapping[ModelId | None, Sequence[ModelId]]:
        """Children by parent; those of None have no base, or one that was deleted."""
        return tree_of(readable(self.list(), self._open))

    def size(self, model: ModelId) -> int:
        """Bytes this model added, without its base or anything shared."""
        return self._existing(model).stat().st_size

    def diff(self, a: ModelId, b: ModelId) -> Sequence[str]:
        """Names of the layers that differ, or that only one of them has, by the trees of hashes."""
        return difference(self._open(a).record, self._open(b).record)

    def verify(
        self, model: ModelId | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> Sequence[CorruptFile]:
        """Read one model, or every one, and return the damage found; ``progress`` is told how many of how many are done."""
        todo, damage = self.list() if model is None else [model], []
        for n, each in enumerate(todo, 1):
            try:
                self._verify(each)
            except CorruptFile as error:
                damage.append(error)
            if progress is not None:
                progress(n, len(todo))
        return damage

    def delete(self, model: ModelId, *, rebase: bool = False) -> None:
        """Remove a model for good. Those that need its tensors are stored again without it, or it is ``ModelInUse``."""
        self._existing(model)
        with alone(self.root):
            try:
                gone = self._open(model)
            except CorruptFile as error:
                # What it was to others can no longer be read from it, only from them.
                gone = Stored(model, Path(error.path), 0, Record((), {}, {}), {}, About("snapshot"))
            others = readable(self.list(), self._open)
            base = gone.about.base if gone.about.base in {other.id for other in others} else None
            make_independent(gone, children_of(model, others), self._rebase if rebase else None, base)
            for suffix in (PLAIN, PACKED):
                self._path(model, suffix).unlink(missing_ok=True)

    def gc(self) -> Sequence[Path]:
        """Remove what killed writers left, and documents that no model refers to; returns what was removed."""
        if not self.root.is_dir():
            return []
        with alone(self.root):
            gone = leftovers(self.root)
            for path in gone:
                path.unlink()
            models = readable(self.list(), self._open)
            # Unreadable models may still be put right by saving them again; the documents they name are not known.
            if len(models) == len(self.list()):
                gone += self._documents.keep(
                    {text for each in models for text in (each.about.environment, each.about.code) if text}
                )
            self._index.rebuild((leaf, each.id) for each in models for leaf in self._shareable(each))
        return gone

    def export(self, model: ModelId, path: Path | str, *, inputs: tuple[Any, ...] | None = None) -> None:
        """Write a model for other systems: ``.safetensors``, ``.pt`` (TorchScript) or ``.pt2`` (``torch.export``)."""
        export(self.load(model), Path(path), self._open(model).about.architecture, self.allow, inputs)

    def environment(self, model: ModelId) -> Environment | None:
        """Where a model was saved, or trained, if that is recorded."""
        digest = self._open(model).about.environment
        return None if digest is None else self._documents.environment(digest)

    def _write(self, saving: Saving, strategy: Strategy, about: About) -> None:
        reason = ""
        if isinstance(strategy, Adaptive):
            strategy, reason = choose(saving, strategy, about)
        settled = saving.settled(strategy)
        stored = saving.write(settled, replace(about, reason=reason or saving.why(strategy) or "asked for"))
        # A hint lost costs nothing but the sharing of its tensor.
        with suppress(OSError):
            self._index.add(self._shareable(stored), saving.model)

    def _about(self, base: ModelId | None, architecture: Architecture | None, provenance: Provenance | None) -> About:
        recorded = None if provenance is None else provenance.environment
        source = None if architecture is None else architecture.source()
        return About(
            "snapshot",
            base=base,
            environment=self._documents.save(json.dumps((recorded or Environment.now()).to_json(), sort_keys=True)),
            code=None if source is None else self._documents.save(source),
            architecture=None if architecture is None else architecture.to_json(),
            provenance=None if provenance is None else provenance.to_json(),
        )

    def _rebase(self, child: Stored, gone: ModelId, base: ModelId | None) -> None:
        with self._pool() as pool, Sources(self._open) as sources:
            state = read_state(child, sources, pool)
            found = None if base is None else sources.model(base)
            saving = Saving(child.path.parent, state, child.record, found, sources, _nowhere, pool, self._threads)
            reason = f"{child.about.reason}; stored again without {gone}"
            about = replace(child.about, reason=reason, base=base if child.about.base == gone else child.about.base)
            saving.write_without(child, gone, about)

    def _read(self, stored: Stored, verify: bool) -> dict[str, Tensor]:
        with shared(self.root), self._pool() as pool, Sources(self._open) as sources:
            return read_state(stored, sources, pool, verify=verify)

    def _verify(self, model: ModelId) -> None:
        stored = self._open(model)
        if not stored.has_weights:
            lineage_to_train(stored, self._open)
            return
        with shared(self.root), self._pool() as pool, Sources(self._open) as sources:
            verify_state(stored, sources, pool)

    def _shareable(self, stored: Stored) -> Sequence[str]:
        held = {leaf: stored.record.leaves[name] for leaf, name in stored.held.items()}
        return [leaf for leaf, what in held.items() if what.n_bytes >= SHARED and _ID.fullmatch(leaf)]

    def _finder(self, sources: Sources) -> Find:
        self._index.refresh()
        return lambda leaf: self._index.find(leaf, sources.model)

    @property
    def _threads(self) -> int:
        return self.threads or torch.get_num_threads()

    @contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(self._threads, "model-store") as pool:
            yield pool

    def _open(self, model: ModelId) -> Stored:
        return read_stored(self._existing(model), model)

    def _path(self, model: ModelId, suffix: str) -> Path:
        return self.root / model[:2] / f"{model}{suffix}"

    def _has(self, model: ModelId) -> bool:
        return any(self._path(model, suffix).is_file() for suffix in (PLAIN, PACKED))

    def _existing(self, model: ModelId) -> Path:
        # An id may come from outside: nothing but a hash ever becomes part of a path.
        if _ID.fullmatch(model):
            for suffix in (PACKED, PLAIN):
                if (path := self._path(model, suffix)).is_file():
                    return path
        raise UnknownModel(model, self.root)


def _nowhere(leaf: str) -> ModelId | None:  # noqa: ARG001 - a ``Find``
    return None


def _folder(root: Path | str) -> Path:
    text = str(root)
    if isinstance(root, str) and "://" in text:
        if not text.startswith("file://"):
            raise ConfigError("model store", "root", text, "must be a local folder")
        return Path(text.removeprefix("file://"))
    return Path(root)
