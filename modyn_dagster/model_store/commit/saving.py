"""Saving of a state: settle the strategy, commit the file; store it whole where a model it depends on goes away."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torch import Tensor

from modyn_dagster.environment import Environment
from modyn_dagster.errors import StorageError, UnknownModel
from modyn_dagster.json_values import canonical_json
from modyn_dagster.model_store.commit.dependencies import ConcurrentSave, DependencyRemoved, relying
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import About
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.reading import read_state
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.loading import verify_all
from modyn_dagster.model_store.provenance.recipe import Architecture, Provenance
from modyn_dagster.model_store.repository import Repository
from modyn_dagster.model_store.strategies.adaptive import choose
from modyn_dagster.model_store.strategies.settings import Adaptive, Retrain, Snapshot, Strategy
from modyn_dagster.model_store.strategies.writer import Saving


def metadata_of(
    repository: Repository, base: ModelId | None, architecture: Architecture | None, provenance: Provenance | None
) -> About:
    """What is recorded of a model by every strategy; its documents are stored."""
    recorded = None if provenance is None else provenance.environment
    source = None if architecture is None else architecture.source()
    return About(
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
    """Commit a state, unless it is there and sound; one that is there without weights gets them where they are asked for."""
    with repository.pool() as pool:
        record = Record.of(state, pool)
        with repository.folder.adding(), repository.sources() as sources:
            found = None if base is None else sources.model(base)
            find = repository.finder(sources.model)
            there, is_damaged = _existing_model(repository, record.id)
            relies = partial(relying, repository, lambda: there is not None or is_damaged or not repository.has(record.id))
            saving = Saving(repository.folder, state, record, found, sources, find, pool, repository.threads, relies)
            # Others may rely on what its file held, and it on them: stored again, it needs nobody.
            alone = replace(saving, base=None, find=_nowhere)
            try:
                if is_damaged:
                    repository.keep_only(
                        _commit(repository, alone, Snapshot(), metadata_of(repository, base, architecture, provenance))
                    )
                elif there is None:
                    repository.keep_one(
                        _commit(repository, saving, strategy, metadata_of(repository, base, architecture, provenance))
                    )
                elif not there.has_weights:
                    _add_weights(repository, alone, strategy, there.about)
            except ConcurrentSave:
                return record.id
            except StorageError:
                if found is None or not repository.was_replaced(found):
                    raise
                return save(repository, state, strategy, base, architecture, provenance)
    return record.id


def _add_weights(repository: Repository, saving: Saving, strategy: Strategy, about: About) -> None:
    """Whoever saved the model before could do without; what they recorded of it stays, how to train it again too."""
    reason = "asked for"
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    if not isinstance(strategy, Retrain):
        # In a file of the same kind, which takes the place of that of before at once.
        repository.keep_one(
            _commit(repository, saving, Snapshot(compress=True), about, f"{reason}; it was there without weights")
        )


def rebase_model(repository: Repository, child: Stored, gone: ModelId, base: ModelId | None) -> None:
    """Store a model again so that it does not need one that goes, as a difference to ``base`` where there is one."""
    if gone not in child.needs:
        return
    try:
        _store_without(repository, child, gone, base)
    except (StorageError, ConcurrentSave):
        if not repository.was_replaced(child):
            raise
        rebase_model(repository, repository.open(child.id), gone, base)


def _store_without(repository: Repository, child: Stored, gone: ModelId, base: ModelId | None) -> None:
    with repository.pool() as pool, repository.sources() as sources:
        state = read_state(child, sources, pool)
        found = None if base is None else sources.model(base)
        relies = partial(relying, repository, lambda: not repository.was_replaced(child))
        saving = Saving(repository.folder, state, child.record, found, sources, _nowhere, pool, repository.threads, relies)
        reason = f"{child.about.reason}; stored again without {gone}"
        about = replace(child.about, reason=reason, base=base if child.about.base == gone else child.about.base)
        try:
            stored = saving.write_rebased(child, gone, about)
        except DependencyRemoved as error:
            stored = _write_alone(saving, about, error)
        repository.keep_only(stored)


def _existing_model(repository: Repository, model: ModelId) -> tuple[Stored | None, bool]:
    """The model, unless it is not there, or not any more, or damaged; and whether it is that."""
    try:
        if not repository.has(model):
            return None, False
        is_damaged = bool(verify_all(repository, [model]))
        return (None if is_damaged else repository.open(model)), is_damaged
    except UnknownModel:
        return None, False


def _commit(repository: Repository, saving: Saving, strategy: Strategy, about: About, reason: str = "") -> Stored:
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    settled = saving.settled(strategy)
    about = replace(about, reason=reason or saving.why(strategy) or "asked for")
    try:
        stored = saving.write(settled, about)
    except DependencyRemoved as error:
        if isinstance(settled, Retrain):
            raise UnknownModel(min(error.models), repository.folder.root) from None
        stored = _write_alone(saving, about, error)
    # A hint lost costs nothing but the sharing of its tensor.
    with suppress(OSError, StorageError):
        repository.index.add(repository.shareable(stored), saving.model)
    return stored


def _write_alone(saving: Saving, about: About, error: DependencyRemoved) -> Stored:
    alone = replace(saving, base=None, find=_nowhere)
    reason = f"{about.reason}; by itself, for {min(error.models)} was removed"
    return alone.write(alone.settled(Snapshot()), replace(about, reason=reason))


def _nowhere(leaf: str) -> ModelId | None:  # noqa: ARG001 - a ``Find``
    return None
