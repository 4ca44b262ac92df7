"""Saving of a state: choose the strategy and commit the file, without a dependency that is removed in the meantime."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torch import Tensor

from modyn_dagster.errors import StorageError, UnknownModel
from modyn_dagster.model_store.commit.dependencies import ConcurrentSave, DependencyRemoved, reserve_dependencies
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.reading import read_state
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.loading import verify_all
from modyn_dagster.model_store.provenance.recipe import Architecture, Provenance
from modyn_dagster.model_store.repository import Repository
from modyn_dagster.model_store.strategies.choosing import choose
from modyn_dagster.model_store.strategies.settings import Adaptive, Custom, Retrain, Snapshot, Strategy
from modyn_dagster.model_store.strategies.writer import ModelWriter, no_match
from modyn_dagster.reproducibility.environment import Environment
from modyn_dagster.values.json_values import canonical_json


def metadata_of(
    repository: Repository, base: ModelId | None, architecture: Architecture | None, provenance: Provenance | None
) -> ModelMetadata:
    """Metadata recorded by every strategy; the documents it refers to are stored."""
    recorded = None if provenance is None else provenance.environment
    source = None if architecture is None else architecture.source()
    return ModelMetadata(
        "snapshot",
        base=base,
        environment=repository.documents.save(canonical_json((recorded or Environment.now()).to_json())),
        code=None if source is None else repository.documents.save(source),
        architecture=None if architecture is None else architecture.to_json(),
        provenance=None if provenance is None else provenance.to_json(),
    )


def save(
    repository: Repository,
    state: Mapping[str, Tensor],
    strategy: Strategy,
    base: ModelId | None,
    architecture: Architecture | None,
    provenance: Provenance | None,
) -> ModelId:
    """Commit a state, unless it is stored and sound; a model stored without weights gets them if the strategy stores weights."""
    with repository.pool() as pool:
        record = Record.of(state, pool)
        with repository.folder.shared_lock(), repository.sources() as sources:
            base_model = None if base is None else sources.model(base)
            find = repository.finder(sources.model)
            existing, is_damaged = _existing_model(repository, record.id)

            def unchanged() -> bool:
                return existing is not None or is_damaged or not repository.has(record.id)

            reserve = partial(reserve_dependencies, repository, unchanged)
            writer = ModelWriter(repository.folder, state, record, base_model, sources, find, pool, repository.threads, reserve)
            # Models may depend on the old file, and it on them: a file stored again depends on none.
            independent = writer.without_base()
            try:
                if is_damaged:
                    metadata = metadata_of(repository, base, architecture, provenance)
                    repository.remove_other_file(_commit(repository, independent, Snapshot(), metadata))
                elif existing is None:
                    metadata = metadata_of(repository, base, architecture, provenance)
                    repository.remove_duplicate(_commit(repository, writer, strategy, metadata))
                elif not existing.has_weights:
                    _add_weights(repository, independent, strategy, existing.metadata)
                else:
                    repository.folder.settle(existing.path)
            except ConcurrentSave:
                return record.id
            except StorageError:
                if base_model is None or not repository.was_replaced(base_model):
                    raise
                return save(repository, state, strategy, base, architecture, provenance)
    return record.id


def _add_weights(repository: Repository, writer: ModelWriter, strategy: Strategy, metadata: ModelMetadata) -> None:
    """Store a model with weights that was stored without; the recorded metadata stay, the recipe included."""
    reason = "asked for"
    if isinstance(strategy, Adaptive | Custom):
        strategy, reason = choose(writer, strategy, metadata)
    if not isinstance(strategy, Retrain):
        # A packed file replaces the present one, which is packed, too, in one rename.
        stored = _commit(repository, writer, Snapshot(compress=True), metadata, f"{reason}; it was there without weights")
        repository.remove_duplicate(stored)


def rebase_model(repository: Repository, child: StoredModel, removed: ModelId, base: ModelId | None) -> None:
    """Store a model again without its dependency on a model to remove, as a difference to ``base`` if given."""
    if removed not in child.dependencies:
        return
    try:
        _rebase(repository, child, removed, base)
    except (StorageError, ConcurrentSave):
        if not repository.was_replaced(child):
            raise
        rebase_model(repository, repository.open(child.id), removed, base)


def _rebase(repository: Repository, child: StoredModel, removed: ModelId, base: ModelId | None) -> None:
    with repository.pool() as pool, repository.sources() as sources:
        state = read_state(child, sources, pool)
        base_model = None if base is None else sources.model(base)
        reserve = partial(reserve_dependencies, repository, lambda: not repository.was_replaced(child))
        threads, record = repository.threads, child.record
        writer = ModelWriter(repository.folder, state, record, base_model, sources, no_match, pool, threads, reserve)
        reason = f"{child.metadata.reason}; stored again without {removed}"
        metadata = replace(child.metadata, reason=reason, base=base if child.metadata.base == removed else child.metadata.base)
        try:
            stored = writer.write_rebased(child, removed, metadata)
        except DependencyRemoved as error:
            stored = _write_without_base(writer, metadata, error)
        repository.remove_other_file(stored)


def _existing_model(repository: Repository, model: ModelId) -> tuple[StoredModel | None, bool]:
    """The stored model, or None if it is missing or damaged, and whether it is damaged."""
    try:
        if not repository.has(model):
            return None, False
        is_damaged = bool(verify_all(repository, [model]))
        return (None if is_damaged else repository.open(model)), is_damaged
    except UnknownModel:
        return None, False


def _commit(
    repository: Repository, writer: ModelWriter, strategy: Strategy, metadata: ModelMetadata, reason: str = ""
) -> StoredModel:
    if isinstance(strategy, Adaptive | Custom):
        strategy, reason = choose(writer, strategy, metadata)
    applicable = writer.applicable(strategy)
    metadata = replace(metadata, reason=reason or writer.fallback_reason(strategy) or "asked for")
    try:
        stored = writer.write(applicable, metadata)
    except DependencyRemoved as error:
        if isinstance(applicable, Retrain):
            raise UnknownModel(min(error.models), repository.folder.root) from None
        stored = _write_without_base(writer, metadata, error)
    # A lost hint costs nothing but the sharing of its tensor.
    with suppress(OSError, StorageError):
        repository.index.add(repository.shareable(stored), writer.model)
    return stored


def _write_without_base(writer: ModelWriter, metadata: ModelMetadata, error: DependencyRemoved) -> StoredModel:
    independent = writer.without_base()
    reason = f"{metadata.reason}; by itself, for {min(error.models)} was removed"
    return independent.write(independent.applicable(Snapshot()), replace(metadata, reason=reason))
