"""A state on its way to the shelf: the strategy is settled, the file committed, and what it relies on looked after again."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from torch import Tensor

from modyn_dagster.errors import StorageError, UnknownModel
from modyn_dagster.model_store.about import About
from modyn_dagster.model_store.adaptive import choose
from modyn_dagster.model_store.architecture import Architecture
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.loading import verify_all
from modyn_dagster.model_store.provenance import Provenance
from modyn_dagster.model_store.reading import read_state
from modyn_dagster.model_store.record import Record
from modyn_dagster.model_store.saving import Saving
from modyn_dagster.model_store.shelf import Shelf
from modyn_dagster.model_store.stored import Stored
from modyn_dagster.model_store.strategies import Adaptive, Retrain, Snapshot, Strategy


def about_of(shelf: Shelf, base: ModelId | None, architecture: Architecture | None, provenance: Provenance | None) -> About:
    """What is recorded of a model by every strategy; its documents are stored."""
    recorded = None if provenance is None else provenance.environment
    source = None if architecture is None else architecture.source()
    return About(
        "snapshot",
        base=base,
        environment=shelf.documents.save(json.dumps((recorded or Environment.now()).to_json(), sort_keys=True)),
        code=None if source is None else shelf.documents.save(source),
        architecture=None if architecture is None else architecture.to_json(),
        provenance=None if provenance is None else provenance.to_json(),
    )


def save(
    shelf: Shelf,
    state: Mapping[str, Tensor],
    strategy: Strategy,
    base: ModelId | None,
    architecture: Architecture | None,
    provenance: Provenance | None,
) -> ModelId:
    """Commit a state, unless it is there and sound; one that is there without weights gets them where they are asked for."""
    with shelf.pool() as pool:
        record = Record.of(state, pool.map)
        with shelf.folder.adding(), shelf.sources() as sources:
            found = None if base is None else sources.model(base)
            find = shelf.finder(sources.model)
            saving = Saving(shelf.folder, state, record, found, sources, find, pool, shelf.threads)
            if not shelf.has(record.id):
                shelf.keep_one(_commit(shelf, saving, strategy, about_of(shelf, base, architecture, provenance)))
                return record.id
            # Others may rely on what its file held, and it on them: stored again, it needs nobody.
            alone = replace(saving, base=None, find=_nowhere)
            if verify_all(shelf, [record.id]):
                shelf.keep_only(_commit(shelf, alone, Snapshot(), about_of(shelf, base, architecture, provenance)))
            elif not (there := sources.model(record.id)).has_weights:
                _add_weights(shelf, alone, strategy, there.about)
    return record.id


def _add_weights(shelf: Shelf, saving: Saving, strategy: Strategy, about: About) -> None:
    """Whoever saved the model before could do without; what they recorded of it stays, how to train it again too."""
    reason = "asked for"
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    if not isinstance(strategy, Retrain):
        # In a file of the same kind, which takes the place of that of before at once.
        shelf.keep_one(_commit(shelf, saving, Snapshot(compress=True), about, f"{reason}; it was there without weights"))


def store_without(shelf: Shelf, child: Stored, gone: ModelId, base: ModelId | None) -> None:
    """Store a model again so that it does not need one that goes, as a difference to ``base`` where there is one."""
    with shelf.pool() as pool, shelf.sources() as sources:
        state = read_state(child, sources, pool)
        found = None if base is None else sources.model(base)
        saving = Saving(shelf.folder, state, child.record, found, sources, _nowhere, pool, shelf.threads)
        reason = f"{child.about.reason}; stored again without {gone}"
        about = replace(child.about, reason=reason, base=base if child.about.base == gone else child.about.base)
        _require_needed(shelf, saving, saving.write_without(child, gone, about))


def _commit(shelf: Shelf, saving: Saving, strategy: Strategy, about: About, reason: str = "") -> Stored:
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    settled = saving.settled(strategy)
    stored = saving.write(settled, replace(about, reason=reason or saving.why(strategy) or "asked for"))
    stored = _require_needed(shelf, saving, stored)
    # A hint lost costs nothing but the sharing of its tensor.
    with suppress(OSError, StorageError):
        shelf.index.add(shelf.shareable(stored), saving.model)
    return stored


def _require_needed(shelf: Shelf, saving: Saving, stored: Stored) -> Stored:
    """Where removers are not kept out: what needs a model that went meanwhile is stored again by itself."""
    if not (going := shelf.folder.gone(stored.needs)):
        return stored
    if not stored.has_weights:
        shelf.remove(saving.model)
        raise UnknownModel(min(going), shelf.folder.root)
    alone = replace(saving, base=None, find=_nowhere)
    reason = f"{stored.about.reason}; by itself, for {min(going)} was removed"
    stored = alone.write(alone.settled(Snapshot()), replace(stored.about, reason=reason))
    shelf.keep_only(stored)
    return stored


def _nowhere(leaf: str) -> ModelId | None:  # noqa: ARG001 - a ``Find``
    return None
